//! The norms of many output vectors: where they lie, or on other threads while the device works on.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Lanes that the compiler may put into one register.
const LANES: usize = 16;
/// Bytes of outputs that wait for their norms, at most; one tensor may have more.
const WAITING: usize = 256 << 20;

/// What is known of one output vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// The sum of the squares.
    pub square: f64,
    /// The greatest absolute value.
    pub max: f32,
}

/// The rows of one tensor.
#[derive(Debug)]
pub(super) enum Rows {
    /// Computed.
    Ready(Vec<Row>),
    /// Being computed by [`Behind`].
    Coming(Receiver<Vec<Row>>),
}

impl Rows {
    /// The rows; waits for those that are being computed. `None` when their thread has ended without them.
    pub(super) fn take(&mut self) -> Option<Vec<Row>> {
        match std::mem::replace(self, Rows::Ready(Vec::new())) {
            Rows::Ready(rows) => Some(rows),
            Rows::Coming(rows) => rows.recv().ok(),
        }
    }
}

/// Threads that compute norms of outputs that were fetched from a device, so that the device need not wait for more than
/// the fetching. A tensor is one thread's: its rows come out the same on any number of threads.
pub(super) struct Behind {
    jobs: Sender<Job>,
    waiting: Arc<Waiting>,
}

struct Job {
    values: Vec<f32>,
    width: usize,
    rows: Sender<Vec<Row>>,
}

/// The memory of the jobs.
#[derive(Default)]
struct Waiting {
    state: Mutex<Buffers>,
    fewer: Condvar,
}

#[derive(Default)]
struct Buffers {
    bytes: usize,
    free: Vec<Vec<f32>>,
}

impl Behind {
    /// Starts `threads` threads; they end with this.
    pub(super) fn new(threads: usize) -> Behind {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let waiting = Arc::new(Waiting::default());
        for _ in 0..threads.max(1) {
            let (queue, waiting) = (Arc::clone(&queue), Arc::clone(&waiting));
            thread::spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Job { values, width, rows }) = job else { return };
                    let found = values.chunks_exact(width).map(row).collect();
                    waiting.give_back(values);
                    // Nobody waits for the rows of a node that a later one has replaced.
                    let _ = rows.send(found);
                }
            });
        }
        Behind { jobs, waiting }
    }

    /// An empty buffer for `elements`, once the memory that waits leaves room for them.
    pub(super) fn buffer(&self, elements: usize) -> Vec<f32> {
        self.waiting.take(elements)
    }

    /// Has the norms of `values` computed, rows of `width`; the buffer is one of [`Behind::buffer`], for as many elements.
    pub(super) fn submit(&self, values: Vec<f32>, width: usize) -> Rows {
        let (rows, coming) = channel();
        // The queue lives as long as its threads, which end with this.
        let _ = self.jobs.send(Job { values, width: width.max(1), rows });
        Rows::Coming(coming)
    }
}

impl Waiting {
    fn take(&self, elements: usize) -> Vec<f32> {
        let bytes = elements.saturating_mul(4);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |state: &mut Buffers| state.bytes > 0 && state.bytes.saturating_add(bytes) > WAITING;
        let mut state = self.fewer.wait_while(state, has_room).unwrap_or_else(PoisonError::into_inner);
        state.bytes += bytes;
        state.free.pop().unwrap_or_default()
    }

    fn give_back(&self, mut values: Vec<f32>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes = state.bytes.saturating_sub(values.len() * 4);
        values.clear();
        state.free.push(values);
        self.fewer.notify_one();
    }
}

/// The sum of the squares, and the greatest absolute value. A NaN makes the sum one.
pub(super) fn row(values: &[f32]) -> Row {
    let mut squares = [0f32; LANES];
    let mut maxima = [0f32; LANES];
    let mut square = 0.0;
    for block in values.chunks(LANES * 8) {
        let (whole, rest) = block.as_chunks::<LANES>();
        for chunk in whole {
            for lane in 0..LANES {
                squares[lane] += chunk[lane] * chunk[lane];
                maxima[lane] = maxima[lane].max(chunk[lane].abs());
            }
        }
        for (lane, value) in rest.iter().enumerate() {
            squares[lane] += value * value;
            maxima[lane] = maxima[lane].max(value.abs());
        }
        square += squares.iter().map(|&one| f64::from(one)).sum::<f64>();
        squares = [0.0; LANES];
    }
    Row { square, max: maxima.into_iter().fold(0.0, f32::max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_the_square_of_the_norm_and_the_greatest_element() {
        let values: Vec<f32> = (0..1003).map(|at| (at as f32 * 0.37).sin()).collect();
        let exact: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        let found = row(&values);
        assert!((found.square - exact).abs() < 1e-6 * exact);
        assert_eq!(found.max, values.iter().map(|value| value.abs()).fold(0.0, f32::max));
        assert!(!row(&[1.0, f32::NAN]).square.is_finite());
        assert!(!row(&[f32::INFINITY; 40]).square.is_finite());
    }

    #[test]
    fn rows_from_other_threads_are_those_of_this_one() {
        let tensor = |seed: usize| -> Vec<f32> {
            (0..37 * 24).map(|at| ((at * 7 + seed) as f32 * 0.11).sin()).collect()
        };
        for threads in [1, 3] {
            let behind = Behind::new(threads);
            let submitted: Vec<Rows> = (0..40)
                .map(|seed| {
                    let mut values = behind.buffer(37 * 24);
                    values.extend(tensor(seed));
                    behind.submit(values, 37)
                })
                .collect();
            for (seed, mut rows) in submitted.into_iter().enumerate() {
                let expected: Vec<Row> = tensor(seed).chunks(37).map(row).collect();
                assert_eq!(rows.take(), Some(expected));
            }
        }
    }

    #[test]
    fn memory_that_waits_is_bounded_and_used_again() {
        let behind = Behind::new(2);
        let half = WAITING / 8 + 1;
        for _ in 0..8 {
            let mut values = behind.buffer(half);
            values.resize(half, 0.5);
            // The rows are dropped, as those of a node that a later one replaces.
            drop(behind.submit(values, half));
            let state = behind.waiting.state.lock().unwrap();
            assert!(state.bytes <= half * 4 && state.free.len() <= 1, "one at a time: {}", state.bytes);
        }
    }
}
