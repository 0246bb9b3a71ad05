//! The bytes of what is written, read from the disk.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::frontier::{Frontier, Position, STRETCH};
use crate::sys::{self, DiskBlock, DiskFile, Way};

/// Bytes that are read at once; a part of a stretch.
const BLOCK: usize = 4 << 20;

/// Blocks in memory: one is compared while the next are read.
const BLOCKS: usize = 3;

/// Why nothing was read.
#[derive(Debug)]
pub(crate) enum NotRead {
    /// The writer ended early, or what is written could not be brought to the disk.
    Abandoned,
    /// The disk gave an error.
    Failed(io::Error),
}

/// Reads the outputs behind the writer, ahead of what is done with them in `work`.
pub(crate) fn follow<T>(frontier: &Frontier<'_>, work: impl FnOnce(Reader) -> T) -> T {
    let _guard = frontier.reader();
    let (free, memory) = channel();
    let (sender, read) = sync_channel(BLOCKS);
    for _ in 0..BLOCKS {
        // The other end is in this function.
        let _ = free.send(DiskBlock::new(BLOCK));
    }
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            DiskReader { frontier, on_disk: Position::default() }.run(&memory, &sender);
        });
        let result = work(Reader { read, free, block: None });
        // Until all of the thread is gone, which the end of a scope alone does not wait for.
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result
    })
}

/// What was read of an output.
struct Block {
    file: usize,
    start: u64,
    len: usize,
    memory: DiskBlock,
}

/// Gives what was read behind the writer, from the beginning of the first output to the end of the last.
pub(crate) struct Reader {
    read: Receiver<Result<Block, NotRead>>,
    /// Takes back memory that is not needed any more.
    free: Sender<DiskBlock>,
    block: Option<Block>,
}

impl Reader {
    /// Reads what the disk has of the output `file` at `at`, once it is there. Gives fewer bytes than asked for only at
    /// the end. Each read goes on where the one before ended, or later.
    pub(crate) fn read(&mut self, file: usize, at: u64, buffer: &mut [u8]) -> Result<usize, NotRead> {
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
        for (file, output) in self.frontier.outputs().iter().enumerate() {
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
            let written = self.frontier.wait_beyond(self.on_disk).ok_or(NotRead::Abandoned)?;
            self.bring_to_disk(written)?;
        }
        Ok(())
    }

    /// Brings the next stretch of what is written to the disk.
    fn bring_to_disk(&mut self, written: Position) -> Result<(), NotRead> {
        let Position { file, at } = self.on_disk;
        let end = if written.file > file { self.frontier.len_of(file) } else { written.at };
        let to = end.min(at.saturating_add(STRETCH));
        let output = &self.frontier.outputs()[file];
        if let Err(error) = sys::write_out(output.file(), at, to - at) {
            self.frontier.fail(output.write_error(error));
            return Err(NotRead::Abandoned);
        }
        self.on_disk = match to == end && written.file > file {
            true => Position { file: file + 1, at: 0 },
            false => Position { file, at: to },
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::sys::{AtomicFile, FileError};

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
    fn what_is_follow_the_writer_is_what_the_disk_has() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [STRETCH + 5, 7, BLOCK as u64 + 1];
        let outputs = outputs(folder.path(), &sizes);
        let frontier = Frontier::new(&outputs, sizes.into_iter());
        std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                follow(&frontier, |mut reader| {
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
        let read = follow(&frontier, |mut reader| reader.read(0, 0, &mut [0; 9]));
        assert!(matches!(read, Err(NotRead::Abandoned)), "{read:?}");
    }

    #[test]
    fn a_stretch_that_cannot_reach_the_disk_ends_the_reader_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = outputs(folder.path(), &[9]);
        // What lies beyond the largest position of a file cannot be written out.
        let frontier = Frontier::new(&outputs, std::iter::once(u64::MAX));
        frontier.reached(0, u64::MAX);
        let on_disk = Position { file: 0, at: u64::MAX - 2 * STRETCH };
        assert!(DiskReader { frontier: &frontier, on_disk }.wait_for(0, u64::MAX - STRETCH).is_err());
        assert!(matches!(frontier.into_error(), Some(FileError::Write { .. })));
    }
}
