//! A batch of tokens, of one or several sequences.

use super::ffi;
use super::vocab::Token;

/// Tokens to be computed together. Unless said otherwise, every token is an output: a model's last layer computes outputs
/// only, and would otherwise route fewer tokens than the layers before it.
#[derive(Default)]
pub struct Batch {
    tokens: Vec<Token>,
    positions: Vec<i32>,
    sequence_counts: Vec<i32>,
    sequences: Vec<i32>,
    sequence_pointers: Vec<*mut i32>,
    outputs: Vec<i8>,
    /// Whether the last token alone is an output.
    last_only: bool,
}

impl Batch {
    /// A batch without tokens.
    pub fn new() -> Self {
        Batch::default()
    }

    /// A batch of which the last token alone is an output, as in generation.
    pub fn last_output() -> Self {
        Batch { last_only: true, ..Batch::default() }
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.outputs.clear();
    }

    /// Appends `tokens` to `sequence`, at `position` and following.
    pub fn push(&mut self, sequence: u32, position: u32, tokens: &[Token]) {
        self.push_with_outputs(sequence, position, tokens, 0..tokens.len());
    }

    /// As [`Batch::push`], but only the tokens of this range (in `tokens`) are outputs. For passes that look at logits
    /// alone: the last layer does not route the others.
    pub fn push_with_outputs(
        &mut self,
        sequence: u32,
        position: u32,
        tokens: &[Token],
        outputs: std::ops::Range<usize>,
    ) {
        self.tokens.extend_from_slice(tokens);
        self.outputs.extend((0..tokens.len()).map(|at| i8::from(outputs.contains(&at))));
        self.positions.extend((position as i32..).take(tokens.len()));
        self.sequences.extend(std::iter::repeat_n(sequence as i32, tokens.len()));
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The batch as llama.cpp takes it; it points into `self`.
    pub(super) fn raw(&mut self) -> ffi::llama_batch {
        let n = self.tokens.len();
        self.sequence_counts.resize(n, 1);
        if self.last_only {
            self.outputs.fill(0);
            if let Some(last) = self.outputs.last_mut() {
                *last = 1;
            }
        }
        self.sequence_pointers.clear();
        self.sequence_pointers.extend(self.sequences.iter_mut().map(|sequence| sequence as *mut i32));
        ffi::llama_batch {
            n_tokens: n as i32,
            token: self.tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: self.positions.as_mut_ptr(),
            n_seq_id: self.sequence_counts.as_mut_ptr(),
            seq_id: self.sequence_pointers.as_mut_ptr(),
            logits: self.outputs.as_mut_ptr(),
        }
    }
}
