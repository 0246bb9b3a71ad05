//! A node of the running graph, as an observer sees it.

use super::error::ObserveError;
use super::{ERROR_BYTES, ffi, message};
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::ops::Deref;

/// The places of a Mixture-of-Experts layer that observers look at, named after the callback names of
/// `llm_graph_context::build_moe_ffn` in llama.cpp's `src/llama-graph.cpp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Site {
    /// `[n_expert, n_tokens]` F32: router output before anything else.
    Logits,
    /// `[n_expert, n_tokens]` F32: router output plus the router's bias.
    LogitsBiased,
    /// `[n_expert, n_tokens]` F32: gate probabilities.
    Probs,
    /// `[n_expert, n_tokens]` F32: probabilities plus the selection bias.
    ProbsBiased,
    /// `[n_expert, n_tokens]` I32: all experts of each token, the selected ones first.
    Argsort,
    /// `[n_expert_used, n_tokens]` I32: the selected experts; a view of the argsort with its row stride.
    Topk,
    /// `[1, n_expert_used, n_tokens]` F32: probabilities of the selected experts.
    Weights,
    /// As [`Site::Weights`], after a softmax over the selected experts.
    WeightsSoftmax,
    /// `[n_expert_used, n_tokens]` F32: the weights divided by their sum.
    WeightsNorm,
    /// `[1, n_expert_used, n_tokens]` F32: the weights times the model's scale.
    WeightsScaled,
    /// `[n_embd, n_expert_used, n_tokens]` F32: the outputs of the selected experts, before scales and biases.
    Down,
    /// As [`Site::Down`], after a scale of each expert.
    DownScaled,
    /// As [`Site::Down`], after a bias of each expert.
    DownBiased,
    /// `[n_embd, n_expert_used, n_tokens]` F32: the outputs of the selected experts times their gate weights; llama4
    /// weights the inputs instead.
    Weighted,
}

impl Site {
    const ALL: [(Site, &str); 14] = [
        (Site::Logits, "ffn_moe_logits"),
        (Site::LogitsBiased, "ffn_moe_logits_biased"),
        (Site::Probs, "ffn_moe_probs"),
        (Site::ProbsBiased, "ffn_moe_probs_biased"),
        (Site::Argsort, "ffn_moe_argsort"),
        (Site::Topk, "ffn_moe_topk"),
        (Site::Weights, "ffn_moe_weights"),
        (Site::WeightsSoftmax, "ffn_moe_weights_softmax"),
        (Site::WeightsNorm, "ffn_moe_weights_norm"),
        (Site::WeightsScaled, "ffn_moe_weights_scaled"),
        (Site::Down, "ffn_moe_down"),
        (Site::DownScaled, "ffn_moe_down_scaled"),
        (Site::DownBiased, "ffn_moe_down_biased"),
        (Site::Weighted, "ffn_moe_weighted"),
    ];

    /// The site of a node's name without its layer, such as `ffn_moe_topk`.
    pub fn named(base: &str) -> Option<Site> {
        Self::ALL.iter().find(|(_, name)| *name == base).map(|(site, _)| *site)
    }

    /// The name of its nodes without their layer.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(site, _)| *site == self).map_or("", |(_, name)| name)
    }

    /// Splits a node's name, `BASE-LAYER`, exactly: "ffn_moe_topk-3 (view)" is no site.
    pub fn parse(name: &str) -> Option<(Site, u32)> {
        let (base, layer) = name.rsplit_once('-')?;
        Some((Site::named(base)?, layer.parse().ok()?))
    }
}

/// A node of the graph that llama.cpp is computing; it lives as long as the callback that shows it.
pub struct Node<'g> {
    raw: *mut ffi::ggml_tensor,
    _graph: PhantomData<&'g mut ffi::ggml_tensor>,
}

impl<'g> Node<'g> {
    /// # Safety
    /// `raw` must be a tensor of a graph that stays alive and is touched by nobody else during `'g`.
    pub(super) unsafe fn new(raw: *mut ffi::ggml_tensor) -> Node<'g> {
        Node { raw, _graph: PhantomData }
    }

    fn tensor(&self) -> &ffi::ggml_tensor {
        // SAFETY: by the contract of `new`.
        unsafe { &*self.raw }
    }

    /// The name, such as `ffn_moe_topk-3`.
    pub fn name(&self) -> &str {
        name_of(self.tensor())
    }

    /// Site and layer, for the nodes that observers know.
    pub fn site(&self) -> Option<(Site, u32)> {
        Site::parse(self.name())
    }

    /// Elements in each dimension, innermost first.
    pub fn dims(&self) -> [usize; 4] {
        self.tensor().ne.map(|n| usize::try_from(n).unwrap_or(0))
    }

    /// A tensor that this node is computed from, by position. It can only be read: it may be a weight of the model, and
    /// what is computed from it is computed already.
    pub fn source(&self, index: usize) -> Option<SourceNode<'_>> {
        let raw = *self.tensor().src.get(index)?;
        // SAFETY: sources belong to the same graph, and the result borrows this node.
        (!raw.is_null()).then(|| SourceNode(unsafe { Node::new(raw) }))
    }

    /// Whether the node multiplies each token with the experts selected for it; source 0 is the experts' tensor
    /// `[.., n_expert]` and source 2 the ids `[n_expert_used, n_tokens]`.
    pub fn is_mul_mat_id(&self) -> bool {
        self.tensor().op == ffi::GGML_OP_MUL_MAT_ID
    }

    /// Whether the node is a softmax that the processor computes, as [`Node::softmax`] does.
    pub fn is_softmax_in_host_memory(&self) -> bool {
        self.tensor().op == ffi::GGML_OP_SOFT_MAX && self.is_in_host_memory()
    }

    fn buffer(&self) -> ffi::ggml_backend_buffer_t {
        let tensor = self.tensor();
        // SAFETY: a view's source is a tensor of the same graph.
        unsafe { tensor.view_src.as_ref() }.map_or(tensor.buffer, |source| source.buffer)
    }

    fn is_in_host_memory(&self) -> bool {
        let buffer = self.buffer();
        // SAFETY: a live buffer.
        !buffer.is_null() && unsafe { ffi::ggml_backend_buffer_is_host(buffer) }
    }

    /// Reads the first `columns` of every row of an I32 node, by its strides, into `into`.
    ///
    /// # Errors
    /// When the node is not I32, has fewer columns, or holds no data.
    pub fn read_ids(&self, columns: usize, into: &mut Vec<i32>) -> Result<(), ObserveError> {
        self.expect(ffi::GGML_TYPE_I32, "I32")?;
        into.resize(self.check_columns(columns)? * columns, 0);
        self.read_rows(columns * 4, into.as_mut_ptr().cast())
    }

    /// Reads all elements of an F32 node, by its strides, into `into`, innermost dimension first.
    ///
    /// # Errors
    /// When the node is not F32 or holds no data.
    pub fn read_floats(&self, into: &mut Vec<f32>) -> Result<(), ObserveError> {
        self.expect(ffi::GGML_TYPE_F32, "F32")?;
        let columns = self.dims()[0];
        into.resize(self.check_columns(columns)? * columns, 0.0);
        self.read_rows(columns * 4, into.as_mut_ptr().cast())
    }

    /// All elements of an F32 node in place, innermost dimension first, where they lie in the processor's memory one behind
    /// another.
    ///
    /// # Errors
    /// When the node is not F32, or holds no data.
    pub fn floats(&self) -> Result<Option<&[f32]>, ObserveError> {
        self.expect(ffi::GGML_TYPE_F32, "F32")?;
        // SAFETY: a live tensor.
        if !(self.is_in_host_memory() && unsafe { ffi::ggml_is_contiguous(self.raw) }) {
            return Ok(None);
        }
        let n = self.dims().iter().product();
        // SAFETY: the data lies in the processor's memory, `n` floats one behind another, aligned as ggml aligns
        // tensors, and nobody writes while the graph waits for the callback.
        Ok(Some(unsafe { std::slice::from_raw_parts(self.tensor().data.cast::<f32>().cast_const(), n) }))
    }

    /// Replaces all elements of a contiguous F32 node; what is computed later sees the new ones.
    ///
    /// # Errors
    /// When the node is not F32, not contiguous, or has another number of elements.
    pub fn write_floats(&mut self, values: &[f32]) -> Result<(), ObserveError> {
        self.expect(ffi::GGML_TYPE_F32, "F32")?;
        self.check_whole(values.len())?;
        // SAFETY: the tensor has data (`expect`), and as many elements of 4 bytes as there are values.
        unsafe { self.write(values.as_ptr().cast(), values.len() * 4) }
    }

    /// Replaces all elements of a contiguous I32 node; what is computed later sees the new ones.
    ///
    /// # Errors
    /// When the node is not I32, not contiguous, or has another number of elements.
    pub fn write_ids(&mut self, values: &[i32]) -> Result<(), ObserveError> {
        self.expect(ffi::GGML_TYPE_I32, "I32")?;
        self.check_whole(values.len())?;
        // SAFETY: the tensor has data (`expect`), and as many elements of 4 bytes as there are values.
        unsafe { self.write(values.as_ptr().cast(), values.len() * 4) }
    }

    /// Checks that `given` values are all elements, which lie one behind another.
    fn check_whole(&self, given: usize) -> Result<(), ObserveError> {
        let elements: usize = self.dims().iter().product();
        // SAFETY: a live tensor.
        let contiguous = unsafe { ffi::ggml_is_contiguous(self.raw) };
        if elements == given && contiguous {
            return Ok(());
        }
        Err(self.layout(format!("{given} values for {elements} elements (contiguous: {contiguous})")))
    }

    /// # Safety
    /// The tensor has data, `bytes` in all, as many as can be read at `values`.
    unsafe fn write(&mut self, values: *const c_void, bytes: usize) -> Result<(), ObserveError> {
        if bytes == 0 {
            return Ok(());
        }
        self.guarded(|error, size| {
            // SAFETY: by this function's contract.
            unsafe { ffi::moeslice_tensor_set(self.raw, values, 0, bytes, error, size) }
        })
    }

    /// Replaces each row of `width` numbers by its softmax, in every bit as the processor computes it in a graph.
    ///
    /// # Errors
    /// When llama.cpp fails.
    pub fn softmax(&self, rows: &mut [f32], width: usize) -> Result<(), ObserveError> {
        let n = rows.len().checked_div(width).unwrap_or(0);
        self.guarded(|error, size| {
            // SAFETY: `rows` holds `n` rows of `width` numbers, and nobody else uses them meanwhile.
            unsafe { ffi::moeslice_softmax(rows.as_mut_ptr(), width as i64, n as i64, error, size) }
        })
    }

    /// Makes a call of the shim; an exception becomes an error.
    fn guarded(&self, call: impl FnOnce(*mut c_char, usize) -> i32) -> Result<(), ObserveError> {
        let mut error = [0; ERROR_BYTES];
        match call(error.as_mut_ptr(), error.len()) {
            ffi::MOESLICE_THREW => {
                Err(ObserveError::Device { node: self.name().to_owned(), message: message(&error) })
            }
            _ => Ok(()),
        }
    }

    fn layout(&self, what: impl Into<String>) -> ObserveError {
        ObserveError::Layout { node: self.name().to_owned(), what: what.into() }
    }

    /// Checks type and presence of data; elements of a row must lie next to each other.
    fn expect(&self, kind: ffi::ggml_type, name: &str) -> Result<(), ObserveError> {
        let tensor = self.tensor();
        if tensor.type_ != kind || tensor.nb[0] != 4 {
            return Err(self.layout(format!("not {name} with adjacent elements")));
        }
        if tensor.data.is_null() || self.buffer().is_null() {
            return Err(self.layout("it holds no data yet"));
        }
        Ok(())
    }

    /// The number of rows, when `columns` fit into one.
    fn check_columns(&self, columns: usize) -> Result<usize, ObserveError> {
        let [width, rows @ ..] = self.dims();
        if columns > width {
            return Err(self.layout(format!("{width} columns where at least {columns} were expected")));
        }
        Ok(rows.iter().product())
    }

    /// Copies `row_bytes` of every row to `target`, rows one behind another.
    fn read_rows(&self, row_bytes: usize, target: *mut u8) -> Result<(), ObserveError> {
        let tensor = self.tensor();
        let [_, n1, n2, n3] = self.dims();
        if row_bytes == 0 || n1 * n2 * n3 == 0 {
            return Ok(());
        }
        // SAFETY: a live tensor.
        if row_bytes == tensor.nb[1] && unsafe { ffi::ggml_is_contiguous(tensor) } {
            let bytes = row_bytes * n1 * n2 * n3;
            // SAFETY: `target` has room for all rows (the callers resize it), and so many bytes are the whole tensor.
            return self.guarded(|error, size| unsafe {
                ffi::moeslice_tensor_get(tensor, target.cast(), 0, bytes, error, size)
            });
        }
        for (i3, i2) in (0..n3).flat_map(|i3| (0..n2).map(move |i2| (i3, i2))) {
            let done = (i3 * n2 + i2) * n1 * row_bytes;
            let offset = i3 * tensor.nb[3] + i2 * tensor.nb[2];
            // SAFETY: as above; every read stays inside the tensor, since dimensions and strides are its own, and
            // `row_bytes` is at most a row's width.
            self.guarded(|error, size| unsafe {
                let target = target.add(done).cast();
                let stride = tensor.nb[1];
                ffi::moeslice_tensor_get_2d(
                    tensor, target, offset, row_bytes, n1, stride, row_bytes, error, size,
                )
            })?;
        }
        Ok(())
    }
}

/// A tensor that a [`Node`] is computed from.
///
/// ```compile_fail
/// fn write(node: &moeslice::llama::Node<'_>) {
///     node.source(0).unwrap().write_floats(&[0.0]);
/// }
/// ```
pub struct SourceNode<'n>(Node<'n>);

impl<'n> Deref for SourceNode<'n> {
    type Target = Node<'n>;

    fn deref(&self) -> &Node<'n> {
        &self.0
    }
}

/// The name of a tensor; empty when it is not UTF-8.
pub(super) fn name_of(tensor: &ffi::ggml_tensor) -> &str {
    let bytes = &tensor.name;
    let length = bytes.iter().position(|&c| c == 0).unwrap_or(bytes.len());
    // SAFETY: `c_char` and `u8` have the same layout, and `length` is within the array.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), length) };
    std::str::from_utf8(bytes).unwrap_or_default()
}
