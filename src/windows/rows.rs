//! Work on many rows of numbers, on several threads.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_order_on_any_number_of_threads() {
        for threads in [0, 1, 2, 3, 7, 100] {
            let squares: Vec<_> = (0..10).map(|row| row * row).collect();
            assert_eq!(for_rows(10, threads, |row| row * row), squares);
        }
        assert!(for_rows(0, 4, |row| row).is_empty());
    }
}
