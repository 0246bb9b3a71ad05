//! How far the writer has come, and the one that reads behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::progress::{Progress, Unit};
use crate::sys::{AtomicFile, FileError};

/// Bytes that are handed over at once. The page cache has units of up to 2 MiB, which lie at multiples of their size:
/// a stretch that ends at such a multiple leaves none that is half written.
pub(crate) const STRETCH: u64 = 16 << 20;

/// How often the progress of a reader that the writer waits for is told.
const TICK: Duration = Duration::from_millis(50);

/// A place in the outputs: so many whole files, and so many bytes of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) file: usize,
    pub(super) at: u64,
}

/// What the writer of the outputs and the one that reads behind it know of each other.
pub(crate) struct Frontier<'a> {
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

impl<'a> Frontier<'a> {
    /// Nothing is written yet of `outputs`, which will have so many bytes.
    pub(crate) fn new(outputs: &'a [AtomicFile], bytes: impl Iterator<Item = u64>) -> Self {
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
    pub(crate) fn reached(&self, file: usize, at: u64) {
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
    pub(crate) fn finish(&self, progress: &mut dyn Progress) {
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

    /// Whether the writer has written everything.
    pub(super) fn is_written(&self) -> bool {
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
    pub(crate) fn writer(&self) -> WriterGuard<'_, 'a> {
        WriterGuard(self)
    }

    /// Why the outputs could not be brought to the disk, if so.
    pub(crate) fn into_error(self) -> Option<FileError> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).error
    }

    /// The files that are written.
    pub(super) fn outputs(&self) -> &'a [AtomicFile] {
        self.outputs
    }

    /// The length that an output will have.
    pub(super) fn len_of(&self, file: usize) -> u64 {
        self.starts[file + 1] - self.starts[file]
    }

    /// Waits until the writer has come further than `position`, and gives how far; `None` when it ended before.
    pub(super) fn wait_beyond(&self, position: Position) -> Option<Position> {
        let waits = |state: &mut State| state.written <= position && !state.abandoned;
        let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        Some(state.written).filter(|&written| written > position)
    }

    /// Keeps why an output could not be brought to the disk.
    pub(super) fn fail(&self, error: FileError) {
        self.lock().error = Some(error);
    }

    /// Ends the writer's waiting for the reader when dropped.
    pub(super) fn reader(&self) -> ReaderGuard<'_, 'a> {
        ReaderGuard(self)
    }
}

/// See [`Frontier::writer`].
pub(crate) struct WriterGuard<'f, 'a>(&'f Frontier<'a>);

impl Drop for WriterGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().abandoned = true;
        self.0.changed.notify_all();
    }
}

/// See [`Frontier::reader`].
pub(super) struct ReaderGuard<'f, 'a>(&'f Frontier<'a>);

impl Drop for ReaderGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().reader_is_done = true;
        self.0.changed.notify_all();
    }
}

/// The progress of the one that reads, which the writer tells.
pub(crate) struct ReaderProgress<'f, 'a>(pub(crate) &'f Frontier<'a>);

impl Progress for ReaderProgress<'_, '_> {
    fn begin(&mut self, _: &str, _: Unit) {}
    fn update(&mut self, done: u64, total: u64) {
        self.0.compared[0].store(done, Ordering::Relaxed);
        self.0.compared[1].store(total, Ordering::Relaxed);
    }
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}
