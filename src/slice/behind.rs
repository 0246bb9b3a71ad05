//! A comparison that follows the writer: what has reached the disk is read back while the rest is still written.
//!
//! The writer tells a [`Frontier`] how far it has come. The reader waits for a finished stretch to be on the disk, and
//! takes its bytes from there and not from what the page cache holds of them since they were written.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::progress::{Progress, Unit};
use crate::sys::{self, AtomicFile, DiskBlock, DiskFile, FileError, Way};

/// Bytes that are handed over at once. The page cache has units of up to 2 MiB, which lie at multiples of their size:
/// a stretch that ends at such a multiple leaves none that is half written.
pub(super) const STRETCH: u64 = 16 << 20;

/// Bytes that are read at once; a part of a stretch.
const BLOCK: usize = 4 << 20;

/// Blocks in memory: one is compared while the next are read.
const BLOCKS: usize = 3;

/// How often the progress of a reader that the writer waits for is told.
const TICK: Duration = Duration::from_millis(50);

/// A place in the outputs: so many whole files, and so many bytes of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    file: usize,
    at: u64,
}

/// What the writer of the outputs and the one that reads behind it know of each other.
pub(super) struct Frontier<'a> {
    outputs: &'a [AtomicFile],
    /// Where each output begins when all stand one behind the other, and where the last ends.
    starts: Vec<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes that were compared, and that there are to compare.
    compared: [AtomicU64; 2],
}

#[derive(Default)]
struct State {
    written: Position,
    /// The writer ended early: nobody needs to know any more.
    abandoned: bool,
    reader_is_done: bool,
    /// Why the outputs could not be brought to the disk.
    error: Option<FileError>,
}

/// Why nothing was read.
#[derive(Debug)]
pub(super) enum NotRead {
    /// The writer ended early, or what is written could not be brought to the disk.
    Abandoned,
    /// The disk gave an error.
    Failed(io::Error),
}

impl<'a> Frontier<'a> {
    /// Nothing is written yet of `outputs`, which will have so many bytes.
    pub(super) fn new(outputs: &'a [AtomicFile], bytes: impl Iterator<Item = u64>) -> Self {
        let mut starts = vec![0];
        let mut end = 0_u64;
        starts.extend(bytes.map(|bytes| {
            end = end.saturating_add(bytes);
            end
        }));
        let compared = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { outputs, starts, state: Mutex::default(), changed: Condvar::new(), compared }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer has come so far: everything before is written, of the files before whole. What is not a whole
    /// stretch waits until more is there, or until [`finish`](Self::finish).
    pub(super) fn reached(&self, file: usize, at: u64) {
        let position = Position { file, at: at - at % STRETCH };
        let in_all = |position: Position| self.starts[position.file].saturating_add(position.at);
        let mut state = self.lock();
        if in_all(position) >= in_all(state.written).saturating_add(STRETCH) {
            state.written = position;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Everything is written. Waits for the reader to be done, and tells how far it is.
    pub(super) fn finish(&self, progress: &mut dyn Progress) {
        let mut state = self.lock();
        state.written = Position { file: self.outputs.len(), at: 0 };
        self.changed.notify_all();
        while !state.reader_is_done {
            drop(state);
            self.tell(progress);
            state = self.lock();
            if !state.reader_is_done {
                let waited = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
            }
        }
        drop(state);
        self.tell(progress);
    }

    fn is_written(&self) -> bool {
        self.lock().written.file == self.outputs.len()
    }

    fn tell(&self, progress: &mut dyn Progress) {
        let [done, total] = [0, 1].map(|index| self.compared[index].load(Ordering::Relaxed));
        // The comparison that has not begun does not know yet how much it has to do.
        if total > 0 {
            progress.update(done, total);
        }
    }

    /// Ends the reader's waiting for more when dropped, whatever became of the writer.
    pub(super) fn writer(&self) -> WriterGuard<'_, 'a> {
        WriterGuard(self)
    }

    /// Reads the outputs behind the writer, ahead of what is done with them in `work`.
    pub(super) fn read<T>(&self, work: impl FnOnce(Reader) -> T) -> T {
        let _guard = ReaderGuard(self);
        let (free, memory) = channel();
        let (sender, read) = sync_channel(BLOCKS);
        for _ in 0..BLOCKS {
            // The other end is in this function.
            let _ = free.send(DiskBlock::new(BLOCK));
        }
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || {
                DiskReader { frontier: self, on_disk: Position::default() }.run(&memory, &sender);
            });
            let result = work(Reader { read, free, block: None });
            // Until all of the thread is gone, which the end of a scope alone does not wait for.
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result
        })
    }

    /// Why the outputs could not be brought to the disk, if so.
    pub(super) fn into_error(self) -> Option<FileError> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).error
    }

    fn len_of(&self, file: usize) -> u64 {
        self.starts[file + 1] - self.starts[file]
    }
}

/// See [`Frontier::writer`].
pub(super) struct WriterGuard<'f, 'a>(&'f Frontier<'a>);

impl Drop for WriterGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().abandoned = true;
        self.0.changed.notify_all();
    }
}

/// What was read of an output.
struct Block {
    file: usize,
    start: u64,
    len: usize,
    memory: DiskBlock,
}

/// Gives what was read behind the writer, from the beginning of the first output to the end of the last.
pub(super) struct Reader {
    read: Receiver<Result<Block, NotRead>>,
    /// Takes back memory that is not needed any more.
    free: Sender<DiskBlock>,
    block: Option<Block>,
}

impl Reader {
    /// Reads what the disk has of the output `file` at `at`, once it is there. Gives fewer bytes than asked for only at
    /// the end. Each read goes on where the one before ended, or later.
    pub(super) fn read(&mut self, file: usize, at: u64, buffer: &mut [u8]) -> Result<usize, NotRead> {
        let mut done = 0;
        while done < buffer.len() {
            let position = at.saturating_add(done as u64);
            let block = self.block_with(file, position)?;
            let from = usize::try_from(position - block.start).unwrap_or(usize::MAX).min(block.len);
            let n = (block.len - from).min(buffer.len() - done);
            if n == 0 {
                break;
            }
            buffer[done..done + n].copy_from_slice(&block.memory.bytes()[from..from + n]);
            done += n;
        }
        Ok(done)
    }

    /// The block that holds this position of an output.
    fn block_with(&mut self, file: usize, at: u64) -> Result<&Block, NotRead> {
        let wanted = (file, at - at % BLOCK as u64);
        loop {
            let block = match self.block.take() {
                Some(block) if (block.file, block.start) == wanted => block,
                Some(block) if (block.file, block.start) > wanted => {
                    return Err(NotRead::Failed(io::Error::from(io::ErrorKind::NotSeekable)));
                }
                before => {
                    // Nobody takes memory back once everything is read.
                    let _ = before.map(|block| self.free.send(block.memory));
                    self.block = Some(self.read.recv().unwrap_or(Err(NotRead::Abandoned))?);
                    continue;
                }
            };
            return Ok(self.block.insert(block));
        }
    }
}

/// Reads the outputs one block after the other, each when the writer is done with it.
struct DiskReader<'f, 'a> {
    frontier: &'f Frontier<'a>,
    /// Everything before was brought to the disk since it was written.
    on_disk: Position,
}

impl DiskReader<'_, '_> {
    fn run(&mut self, free: &Receiver<DiskBlock>, read: &SyncSender<Result<Block, NotRead>>) {
        for (file, output) in self.frontier.outputs.iter().enumerate() {
            let (output, len) = (DiskFile::new(output.file()), self.frontier.len_of(file));
            for start in (0..len).step_by(BLOCK) {
                // Whoever compares may have ended early.
                let Ok(memory) = free.recv() else { return };
                let block = self.read_block((file, &output), start, len, memory);
                let failed = block.is_err();
                if read.send(block).is_err() || failed {
                    return;
                }
            }
        }
    }

    fn read_block(
        &mut self,
        (file, output): (usize, &DiskFile<'_>),
        start: u64,
        len: u64,
        mut memory: DiskBlock,
    ) -> Result<Block, NotRead> {
        self.wait_for(file, start.saturating_add(BLOCK as u64).min(len))?;
        let way = if self.frontier.is_written() { Way::Direct } else { Way::Cached };
        let len = output.read(&mut memory, start, way).map_err(NotRead::Failed)?;
        Ok(Block { file, start, len, memory })
    }

    /// Waits until the output `file` is on the disk up to `end`.
    fn wait_for(&mut self, file: usize, end: u64) -> Result<(), NotRead> {
        let wanted = Position { file, at: end };
        while self.on_disk < wanted {
            let written = {
                let mut state = self.frontier.lock();
                while state.written <= self.on_disk && !state.abandoned {
                    state = self.frontier.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.written <= self.on_disk {
                    return Err(NotRead::Abandoned);
                }
                state.written
            };
            self.bring_to_disk(written)?;
        }
        Ok(())
    }

    /// Brings the next stretch of what is written to the disk.
    fn bring_to_disk(&mut self, written: Position) -> Result<(), NotRead> {
        let Position { file, at } = self.on_disk;
        let end = if written.file > file { self.frontier.len_of(file) } else { written.at };
        let to = end.min(at.saturating_add(STRETCH));
        let output = &self.frontier.outputs[file];
        if let Err(error) = sys::write_out(output.file(), at, to - at) {
            self.frontier.lock().error = Some(output.write_error(error));
            return Err(NotRead::Abandoned);
        }
        self.on_disk = match to == end && written.file > file {
            true => Position { file: file + 1, at: 0 },
            false => Position { file, at: to },
        };
        Ok(())
    }
}

/// See [`Frontier::read`].
struct ReaderGuard<'f, 'a>(&'f Frontier<'a>);

impl Drop for ReaderGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().reader_is_done = true;
        self.0.changed.notify_all();
    }
}

/// The progress of the one that reads, which the writer tells.
pub(super) struct ReaderProgress<'f, 'a>(pub(super) &'f Frontier<'a>);

impl Progress for ReaderProgress<'_, '_> {
    fn begin(&mut self, _: &str, _: Unit) {}
    fn update(&mut self, done: u64, total: u64) {
        self.0.compared[0].store(done, Ordering::Relaxed);
        self.0.compared[1].store(total, Ordering::Relaxed);
    }
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    fn outputs(folder: &std::path::Path, sizes: &[u64]) -> Vec<AtomicFile> {
        let create = |(index, &bytes): (usize, &u64)| {
            let file = AtomicFile::create(&folder.join(index.to_string()), false).unwrap();
            file.reserve(bytes).unwrap();
            file
        };
        sizes.iter().enumerate().map(create).collect()
    }

    #[test]
    fn a_reader_is_let_no_further_than_the_writer_has_come() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [3 * STRETCH + 5, 7, 2 * STRETCH];
        let outputs = outputs(folder.path(), &sizes);
        let frontier = Frontier::new(&outputs, sizes.into_iter());
        let mut reader = DiskReader { frontier: &frontier, on_disk: Position::default() };
        let mut let_through = |file, end| {
            // With nobody left to write, a wait ends at once.
            drop(frontier.writer());
            reader.wait_for(file, end).is_ok()
        };
        frontier.reached(0, STRETCH - 1);
        assert!(!let_through(0, 1));
        frontier.reached(0, STRETCH + 9);
        assert!(let_through(0, STRETCH));
        assert!(!let_through(0, STRETCH + 1));
        // The end of the first file comes with the first stretch that ends in a later one.
        frontier.reached(0, 3 * STRETCH + 5);
        assert!(let_through(0, 3 * STRETCH));
        assert!(!let_through(0, 3 * STRETCH + 5));
        frontier.reached(1, 7);
        frontier.reached(2, STRETCH - 1);
        assert!(!let_through(1, 1));
        frontier.reached(2, STRETCH);
        assert!(let_through(2, STRETCH));
        assert!(!let_through(2, 2 * STRETCH));
    }

    #[test]
    fn what_is_read_behind_the_writer_is_what_the_disk_has() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [STRETCH + 5, 7, BLOCK as u64 + 1];
        let outputs = outputs(folder.path(), &sizes);
        let frontier = Frontier::new(&outputs, sizes.into_iter());
        std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                frontier.read(|mut reader| {
                    let mut sums = Vec::new();
                    for (file, &size) in sizes.iter().enumerate() {
                        let mut bytes = vec![9; size as usize + 3];
                        let got = reader.read(file, 0, &mut bytes).unwrap();
                        sums.push((got as u64, bytes[..got].iter().map(|&byte| u64::from(byte)).sum()));
                    }
                    // What is past cannot be read again, nor what there is not.
                    assert!(matches!(reader.read(0, 0, &mut [0]), Err(NotRead::Failed(_))));
                    sums
                })
            });
            let _writer = frontier.writer();
            for (file, output) in outputs.iter().enumerate() {
                output.write_all_at(&vec![1; sizes[file] as usize], 0).unwrap();
                frontier.reached(file, sizes[file]);
            }
            frontier.finish(&mut Silent);
            assert_eq!(read.join().unwrap(), sizes.map(|size| (size, size)));
        });
    }

    #[test]
    fn a_writer_that_ends_early_ends_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = outputs(folder.path(), &[9]);
        let frontier = Frontier::new(&outputs, std::iter::once(9));
        drop(frontier.writer());
        let read = frontier.read(|mut reader| reader.read(0, 0, &mut [0; 9]));
        assert!(matches!(read, Err(NotRead::Abandoned)), "{read:?}");
    }

    #[test]
    fn a_stretch_that_cannot_reach_the_disk_ends_the_reader_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = outputs(folder.path(), &[9]);
        // What lies beyond the largest position of a file cannot be written out.
        let frontier = Frontier::new(&outputs, std::iter::once(u64::MAX));
        frontier.lock().written = Position { file: 0, at: u64::MAX };
        let on_disk = Position { file: 0, at: u64::MAX - 9 };
        assert!(DiskReader { frontier: &frontier, on_disk }.wait_for(0, u64::MAX).is_err());
        assert!(matches!(frontier.into_error(), Some(FileError::Write { .. })));
    }
}
