//! Work on many rows of numbers, on several threads.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Computes `row` for each of `n` rows on `threads` threads; the results are in the order of the rows.
pub(crate) fn for_rows<T: Send>(n: usize, threads: usize, row: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let share = n.div_ceil(threads.max(1)).max(1);
    if share >= n {
        return (0..n).map(row).collect();
    }
    let row = &row;
    thread::scope(|scope| {
        let parts: Vec<_> = (0..n)
            .step_by(share)
            .map(|begin| {
                let rows = begin..(begin + share).min(n);
                scope.spawn(move || rows.map(row).collect::<Vec<T>>())
            })
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Fills each row of `width` values on `threads` threads; what `fill` gives is in the order of the rows.
pub(crate) fn fill_rows<V: Send, T: Send>(
    values: &mut [V],
    width: usize,
    threads: usize,
    fill: impl Fn(usize, &mut [V]) -> T + Sync,
) -> Vec<T> {
    let width = width.max(1);
    let share = (values.len() / width).div_ceil(threads.max(1)).max(1);
    // A thread takes its part once; nobody else asks for it.
    let parts: Vec<_> = values.chunks_mut(share * width).map(Mutex::new).collect();
    let filled = for_rows(parts.len(), threads, |part| {
        let mut values = parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        let rows = (part * share..).zip(values.chunks_exact_mut(width));
        rows.map(|(at, row)| fill(at, row)).collect::<Vec<T>>()
    });
    filled.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filled_whoever_fills_them() {
        for threads in [0, 1, 2, 3, 7, 100] {
            let mut values = vec![0.0; 30];
            let filled = fill_rows(&mut values, 3, threads, |at, row| {
                row.fill(at as f32);
                at
            });
            assert_eq!(filled, (0..10).collect::<Vec<_>>());
            assert!(values.iter().enumerate().all(|(at, &value)| value == (at / 3) as f32), "{values:?}");
        }
    }

    #[test]
    fn rows_keep_their_order_on_any_number_of_threads() {
        for threads in [0, 1, 2, 3, 7, 100] {
            let squares: Vec<_> = (0..10).map(|row| row * row).collect();
            assert_eq!(for_rows(10, threads, |row| row * row), squares);
        }
        assert!(for_rows(0, 4, |row| row).is_empty());
    }
}
