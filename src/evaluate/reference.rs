//! The predictions of a base: kept in a temporary file, or computed beside the other model.

use super::EvalError;
use super::figures::TokenLoss;
use super::scorer::{Rows, Scorer, Unobserved};
use super::softmax::Normaliser;
use crate::windows::{Window, fill_rows, for_rows};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Up to so many bytes, log-probabilities are kept as they are.
const EXACT_BYTES: u64 = 1 << 30;
/// Log-probabilities this far below the greatest of their row are as good as none: e^-16 is a ten-millionth.
const RANGE: f32 = 16.0;
/// Bytes before each row of 16-bit numbers: the least log-probability and the step, F32 each.
const ROW_HEAD: usize = 8;

thread_local! {
    /// A row as it lies in the file.
    static ENCODED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How log-probabilities lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// F32.
    Exact,
    /// 16 bits over the range of the row.
    Compact,
}

/// Log-probabilities of all scored tokens, in their order, in a temporary file without a name.
///
/// Each thread writes and reads the rows that it works on, so that no row is copied more often than the system does it,
/// and never by one thread for all.
pub struct StoredRows {
    file: File,
    width: Width,
    n_vocab: usize,
    /// Rows that were written.
    written: usize,
    /// The row that is read next.
    next: usize,
}

/// Some rows of log-probabilities of the base, one behind another.
#[derive(Clone, Copy)]
pub(super) enum BaseRows<'r> {
    /// As they are.
    Plain { n_vocab: usize, rows: &'r [f32] },
    /// In the file, from this row on.
    Stored { stored: &'r StoredRows, first: usize },
}

impl<'r> BaseRows<'r> {
    /// The row at a place, in `scratch` where it has to be read.
    ///
    /// # Errors
    /// When there is no such row, or it cannot be read.
    pub(super) fn row<'a>(&self, at: usize, scratch: &'a mut Vec<f32>) -> Result<&'a [f32], EvalError>
    where
        'r: 'a,
    {
        match *self {
            BaseRows::Plain { n_vocab, rows } => {
                rows.get(at * n_vocab..(at + 1) * n_vocab).ok_or(EvalError::NoLogits)
            }
            BaseRows::Stored { stored, first } => {
                stored.read(first + at, scratch)?;
                Ok(scratch)
            }
        }
    }
}

impl StoredRows {
    /// Bytes that `rows` rows take.
    pub fn bytes(n_vocab: usize, rows: u64) -> u64 {
        let exact = rows.saturating_mul(n_vocab as u64 * 4);
        if exact <= EXACT_BYTES { exact } else { rows.saturating_mul((n_vocab * 2 + ROW_HEAD) as u64) }
    }

    /// A file for `rows` rows, in the system's folder for temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(n_vocab: usize, rows: u64) -> Result<Self, EvalError> {
        let exact = rows.saturating_mul(n_vocab as u64 * 4) <= EXACT_BYTES;
        let file = tempfile::tempfile().map_err(EvalError::Store)?;
        let width = if exact { Width::Exact } else { Width::Compact };
        Ok(StoredRows { file, width, n_vocab, written: 0, next: 0 })
    }

    /// Appends rows; gives the losses of the tokens that they foresee.
    pub(super) fn push(&mut self, rows: &Rows<'_>, threads: usize) -> Result<Vec<TokenLoss>, EvalError> {
        let (first, row_bytes) = (self.written, self.row_bytes());
        let losses = for_rows(rows.logits.len(), threads, |at| {
            let logits = rows.logits[at];
            let normaliser = Normaliser::of(logits).ok_or(EvalError::NotNumbers)?;
            ENCODED.with_borrow_mut(|bytes| {
                bytes.resize(row_bytes, 0);
                encode(self.width, normaliser, logits, bytes);
                self.file.write_all_at(bytes, self.offset(first + at)).map_err(EvalError::Store)
            })?;
            let target = usize::try_from(rows.targets[at]).ok().and_then(|target| logits.get(target));
            let nll = -f64::from(normaliser.log_probability(*target.ok_or(EvalError::NotNumbers)?));
            Ok(TokenLoss { nll, base: None })
        });
        let losses = losses.into_iter().collect::<Result<Vec<_>, EvalError>>()?;
        self.written += losses.len();
        Ok(losses)
    }

    fn row_bytes(&self) -> usize {
        match self.width {
            Width::Exact => self.n_vocab * 4,
            Width::Compact => self.n_vocab * 2 + ROW_HEAD,
        }
    }

    /// Where a row begins.
    fn offset(&self, row: usize) -> u64 {
        row as u64 * self.row_bytes() as u64
    }

    /// The next `n` rows.
    fn rows(&mut self, n: usize) -> Result<BaseRows<'_>, EvalError> {
        let first = self.next;
        if n > self.written - first {
            return Err(EvalError::NoLogits);
        }
        self.next += n;
        Ok(BaseRows::Stored { stored: self, first })
    }

    /// Reads a row.
    fn read(&self, row: usize, into: &mut Vec<f32>) -> Result<(), EvalError> {
        ENCODED.with_borrow_mut(|bytes| {
            bytes.resize(self.row_bytes(), 0);
            self.file.read_exact_at(bytes, self.offset(row)).map_err(EvalError::Store)?;
            into.clear();
            decode(self.width, bytes, into);
            Ok(())
        })
    }
}

/// Writes a row of log-probabilities into the bytes that it takes.
fn encode(width: Width, normaliser: Normaliser, logits: &[f32], bytes: &mut [u8]) {
    let log_probabilities = logits.iter().map(|&logit| normaliser.log_probability(logit));
    if width == Width::Exact {
        let numbers = bytes.as_chunks_mut::<4>().0.iter_mut();
        return numbers.zip(log_probabilities).for_each(|(bytes, p)| *bytes = p.to_le_bytes());
    }
    let top = -normaliser.log_sum;
    let least = logits.iter().fold(f32::INFINITY, |least, &logit| if logit < least { logit } else { least });
    let least = normaliser.log_probability(least).clamp(top - RANGE, top);
    let step = (top - least) / f32::from(u16::MAX);
    let (head, numbers) = bytes.split_at_mut(ROW_HEAD);
    head.as_chunks_mut::<4>().0.iter_mut().zip([least, step]).for_each(|(to, one)| *to = one.to_le_bytes());
    // A row of equal logits has no step; its numbers are 0, as the cast makes of what is no number. The cast cuts off what
    // stands behind the point, and makes 0 of what is below.
    let per_step = step.recip();
    let numbers = numbers.as_chunks_mut::<2>().0.iter_mut();
    numbers
        .zip(log_probabilities)
        .for_each(|(bytes, p)| *bytes = (((p - least) * per_step + 0.5) as u16).to_le_bytes());
}

fn decode(width: Width, row: &[u8], into: &mut Vec<f32>) {
    match width {
        Width::Exact => into.extend(row.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes))),
        Width::Compact => {
            let (head, numbers) = row.split_at(ROW_HEAD);
            let [least, step] = [0, 1]
                .map(|at| head.as_chunks::<4>().0.get(at).map_or(0.0, |&bytes| f32::from_le_bytes(bytes)));
            let numbers = numbers.as_chunks::<2>().0.iter();
            into.extend(numbers.map(|&bytes| least + step * f32::from(u16::from_le_bytes(bytes))));
        }
    }
}

/// What another model is compared with.
pub enum Reference<'m> {
    /// Predictions that were kept.
    Stored(StoredRows),
    /// A model that computes each group of windows first; nothing is kept.
    InStep(Box<InStep<'m>>),
}

/// A base that runs beside the other model.
pub struct InStep<'m> {
    scorer: Scorer<'m>,
    rows: Vec<f32>,
    next: usize,
}

impl<'m> Reference<'m> {
    /// A base that runs beside the other model.
    pub fn in_step(scorer: Scorer<'m>) -> Self {
        Reference::InStep(Box::new(InStep { scorer, rows: Vec::new(), next: 0 }))
    }

    /// The first rows come next.
    pub(super) fn rewind(&mut self) {
        match self {
            Reference::Stored(stored) => stored.next = 0,
            Reference::InStep(_) => {}
        }
    }

    /// A group of windows begins.
    pub(super) fn begin(&mut self, group: &[Window]) -> Result<(), EvalError> {
        let Reference::InStep(in_step) = self else { return Ok(()) };
        let InStep { scorer, rows, next } = in_step.as_mut();
        rows.clear();
        *next = 0;
        scorer.run(group, &mut Unobserved, &mut |found, threads| {
            let n_vocab = found.logits.first().map_or(1, |row| row.len());
            let begin = rows.len();
            rows.resize(begin + found.logits.len() * n_vocab, 0.0);
            let written = fill_rows(&mut rows[begin..], n_vocab, threads, |at, row| {
                Normaliser::of(found.logits[at]).map(|normaliser| normaliser.write(found.logits[at], row))
            });
            written.into_iter().collect::<Option<()>>().ok_or(EvalError::NotNumbers)
        })
    }

    /// The next `n` rows.
    pub(super) fn rows(&mut self, n: usize) -> Result<BaseRows<'_>, EvalError> {
        match self {
            Reference::Stored(stored) => stored.rows(n),
            Reference::InStep(in_step) => {
                let InStep { scorer, rows, next } = in_step.as_mut();
                let n_vocab = scorer.n_vocab();
                let begin = *next;
                *next += n * n_vocab;
                let rows = rows.get(begin..*next).ok_or(EvalError::NoLogits)?;
                Ok(BaseRows::Plain { n_vocab, rows })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(width: Width, logits: &[f32]) -> Vec<u8> {
        let mut stored = StoredRows::new(logits.len(), 1).unwrap();
        stored.width = width;
        let mut bytes = vec![0xff; stored.row_bytes()];
        encode(width, Normaliser::of(logits).unwrap(), logits, &mut bytes);
        bytes
    }

    #[test]
    fn compact_rows_are_within_a_step_of_the_exact_ones() {
        let logits: Vec<f32> = (0..999).map(|at| ((at * 37) % 101) as f32 / 9.0 - 5.0).collect();
        let (mut exact, mut compact) = (Vec::new(), Vec::new());
        decode(Width::Exact, &encoded(Width::Exact, &logits), &mut exact);
        decode(Width::Compact, &encoded(Width::Compact, &logits), &mut compact);
        assert_eq!(exact.len(), 999);
        for (a, b) in exact.iter().zip(&compact) {
            assert!((a - b).abs() < 16.0 / 65535.0, "{a} {b}");
        }
    }

    #[test]
    fn a_row_of_equal_logits_survives() {
        let mut rows = Vec::new();
        decode(Width::Compact, &encoded(Width::Compact, &[2.0; 8]), &mut rows);
        assert!(rows.iter().all(|p| (p - (1.0f32 / 8.0).ln()).abs() < 1e-6), "{rows:?}");
    }
}
