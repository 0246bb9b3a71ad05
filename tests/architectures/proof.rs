//! What is proven of one model, in a process of its own.

use crate::passes;
use crate::support::observed::{GraphOrder, MultipliedIds, Nothing, Shape, mtp_pass, pass};
use crate::support::random::Random;
use crate::support::tiny::TinyModel;
use moeslice::arch::ProfilePass;
use moeslice::corpus::{Content, CorpusText, Text};
use moeslice::evaluate::ExpertMask;
use moeslice::gguf;
use moeslice::llama::{
    Backend, ContextSettings, Device, FlashAttention, Model, Observer, Observers, Placement, Token,
};
use moeslice::moe::{Experts, Identity, KeptExperts, LayerKind, Provenance};
use moeslice::profile::{Profile, ProfileOptions, profile};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{self, Cut, Options};
use moeslice::usage::CorpusFile;
use moeslice::windows::{KvUnified, WindowOptions};
use std::path::{Path, PathBuf};

/// Tokens of a window; the last of several is shorter.
pub const WINDOW: u32 = 32;
/// Tokens of the text that is profiled.
pub const TOKENS: usize = 3 * WINDOW as usize + 11;

/// A model on disk, read by us and loaded by llama.cpp.
pub struct Subject {
    pub tiny: TinyModel,
    path: PathBuf,
    pub file: gguf::Model,
    pub experts: Experts,
    pub model: Model,
    folder: tempfile::TempDir,
    pub placement: Placement,
}

impl Subject {
    pub fn new(tiny: TinyModel, devices: Vec<Device>) -> Subject {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("base.gguf");
        tiny.write(&path);
        let file = gguf::Model::open(&path).expect("a model that we read");
        let experts = Experts::read(&file).unwrap_or_else(|e| panic!("{e}"));
        let gpu_layers = if devices.is_empty() { 0 } else { 99 };
        let placement = Placement { devices: Some(devices), gpu_layers, ..Placement::default() };
        let model = load(&path, &placement);
        Subject { tiny, path, file, experts, model, folder, placement }
    }

    /// Whether llama.cpp has to compute a window at once.
    pub fn whole_window(&self) -> bool {
        self.experts.arch.is_some_and(|arch| arch.profile == ProfilePass::NonCausal)
    }

    /// Whether the model has an LM head at all.
    pub fn head(&self) -> bool {
        !matches!(self.experts.architecture.as_str(), "nomic-bert-moe" | "llama-embed")
    }

    pub fn windows(&self) -> Vec<Vec<Token>> {
        let tokens = self.model.vocab().tokenize(&text(), false).expect("tokens");
        assert_eq!(tokens.len(), TOKENS);
        tokens.chunks(WINDOW as usize).map(<[Token]>::to_vec).collect()
    }

    /// Writes the model cut to `kept`.
    pub fn cut(&self, kept: &KeptExperts, name: &str) -> Result<PathBuf, slice::SliceError> {
        self.cut_of(&self.experts, kept, name)
    }

    /// Writes the model cut to `kept` of `experts`, its own or those without MTP blocks.
    pub fn cut_of(
        &self,
        experts: &Experts,
        kept: &KeptExperts,
        name: &str,
    ) -> Result<PathBuf, slice::SliceError> {
        let identity = Identity::of(&self.file, &self.experts).expect("an identity");
        let provenance = Provenance::new(&self.file, &identity, "frequency", "test", Vec::new());
        let cut = Cut { model: &self.file, experts, keep: kept, provenance };
        let path = self.folder.path().join(name);
        slice::prune(&cut, &path, &Options::default(), &mut Silent)?;
        Ok(path)
    }
}

pub fn load(path: &Path, placement: &Placement) -> Model {
    let backend = Backend::start().expect("llama.cpp");
    Model::load(backend, path, placement, &mut Silent, Interrupt::NEVER).unwrap_or_else(|e| panic!("{e}"))
}

/// A text of which every 5 bytes are a token of the vocabulary for tests.
fn text() -> String {
    let mut random = Random::of(7, "text");
    (0..5 * TOKENS).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// The profile counts what the graph multiplies, whatever the shape of the pass.
pub fn counts(subject: &Subject) {
    let architecture = &subject.experts.architecture;
    let logits_only = matches!(subject.experts.arch.map(|arch| arch.profile), Some(ProfilePass::Logits(_)));
    let ubatches: &[u32] = if subject.whole_window() { &[WINDOW] } else { &[WINDOW, 10] };
    for head in [true, false] {
        if head && !subject.head() || !head && logits_only {
            continue;
        }
        for &n_ubatch in ubatches {
            let shape = Shape { n_ctx: WINDOW, n_ubatch, head, exact: false };
            let mut seen = MultipliedIds::default();
            pass(&subject.model, &subject.windows(), shape, &mut seen, &mut |_, _| {})
                .unwrap_or_else(|e| panic!("{shape:?}: {e}"));
            for weights in [false, true] {
                check_counts(subject, &seen, shape, weights);
            }
        }
    }
    passes::order(subject);
    passes::packing(subject);
    println!("{architecture}: counts are right");
}

/// The profile of an MTP block counts what its graph multiplies, and leaves the counts of the trunk as they are.
pub fn mtp_counts(subject: &Subject, layer: u32) {
    let placement = Placement { mtp: true, ..subject.placement.clone() };
    let model = load(&subject.path, &placement);
    for n_ubatch in [WINDOW, 10] {
        let shape = Shape { n_ctx: WINDOW, n_ubatch, head: true, exact: false };
        let mut seen = MultipliedIds::default();
        mtp_pass(&model, &subject.windows(), shape, &mut seen).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        assert_eq!(seen.counts.keys().copied().collect::<Vec<_>>(), [layer], "layers that the block runs");
        let mut order = GraphOrder::default();
        mtp_pass(&model, &subject.windows(), shape, &mut order).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        order.check(&[layer]);
        let n_expert_used = subject.experts.layer(layer).expect("a layer").n_expert_used;
        for weights in [false, true] {
            let with = run_profile(subject, &model, shape, weights, true);
            let without = run_profile(subject, &model, shape, weights, false);
            let (usage, trunk) = with.layers.split_last().expect("layers");
            assert_eq!((usage.layer, trunk), (layer, without.layers.as_slice()));
            let steps = (TOKENS - TOKENS.div_ceil(WINDOW as usize)) as u64;
            assert_eq!(usage.total.n_tokens, steps);
            assert_eq!(usage.total.count.iter().sum::<u64>(), steps * u64::from(n_expert_used));
            let graph = |id: usize| seen.counts[&layer].get(&(id as i32)).copied().unwrap_or(0);
            let graph: Vec<u64> = (0..usage.total.count.len()).map(graph).collect();
            assert_eq!(usage.total.count, graph, "{shape:?}, weights {weights}");
        }
    }
    println!("{}: counts of the MTP block are right", subject.experts.architecture);
}

fn run_profile(subject: &Subject, model: &Model, shape: Shape, weights: bool, mtp: bool) -> Profile {
    let options = ProfileOptions {
        windows: WindowOptions {
            ctx_size: WINDOW,
            batch_size: 2 * WINDOW,
            ubatch_size: shape.n_ubatch,
            kv_unified: KvUnified::Off,
            settings: ContextSettings { flash_attention: FlashAttention::Off, ..ContextSettings::default() },
        },
        chunks: None,
        weights,
        activations: false,
        hold_out: None,
        parse_special: false,
        generate: None,
        lm_head: shape.head,
        mtp,
    };
    let file = CorpusFile { path: "text".into(), bytes: 0, sha256: String::new(), left_out: 0 };
    let corpus = CorpusText {
        name: "text".into(),
        texts: vec![Text { path: "text.txt".into(), file, content: Content::Plain(text().into()) }],
    };
    profile(model, &subject.experts, &[corpus], &options, &mut Silent)
        .unwrap_or_else(|e| panic!("{shape:?}, weights {weights}: {e}"))
}

fn check_counts(subject: &Subject, seen: &MultipliedIds, shape: Shape, weights: bool) {
    let profile = run_profile(subject, &subject.model, shape, weights, false);
    let expected = passes::trunk_layers(subject);
    assert_eq!(profile.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>(), expected);
    assert_eq!(seen.counts.keys().copied().collect::<Vec<_>>(), expected, "layers in the graph");
    for usage in &profile.layers {
        let layer = subject.experts.layer(usage.layer).expect("a layer with experts");
        let graph = &seen.counts[&usage.layer];
        let graph: Vec<u64> =
            (0..layer.n_expert as i32).map(|id| graph.get(&id).copied().unwrap_or(0)).collect();
        assert_eq!(usage.total.count, graph, "layer {}, {shape:?}, weights {weights}", usage.layer);
        assert_eq!(usage.total.n_tokens, TOKENS as u64);
        assert_eq!(
            graph.iter().sum::<u64>(),
            TOKENS as u64 * u64::from(layer.n_expert_used),
            "all that are seen"
        );
        if layer.kind == LayerKind::Hash {
            assert_eq!(usage.total.count, table_counts(subject, usage.layer), "by the table");
        }
        let sums = usage.total.weight.as_ref();
        assert_eq!(sums.is_some(), weights);
        if let Some(sums) = sums {
            for (weight, count) in sums.iter().zip(&usage.total.count) {
                assert!(weight.is_finite() && (*count > 0) == (*weight != 0.0), "{weight} for {count}");
            }
        }
    }
}

/// What a table sends to each expert, computed from the file.
fn table_counts(subject: &Subject, layer: u32) -> Vec<u64> {
    let name = format!("blk.{layer}.ffn_gate_tid2eid.weight");
    let (info, data) = subject.tiny.tensor(&name).expect("a table");
    let mut counts = vec![0; subject.experts.n_expert as usize];
    for token in subject.windows().concat() {
        let row = 4 * info.dims[0] as usize;
        for id in data[row * token as usize..][..row].chunks_exact(4) {
            counts[u32::from_le_bytes(id.try_into().expect("4 bytes")) as usize] += 1;
        }
    }
    counts
}

/// How closely a cut model follows the mask.
#[derive(Clone, Copy)]
pub struct Tolerance {
    /// Of the largest logit.
    pub same: f32,
    /// Whether the best token has to be the same everywhere.
    pub top1: bool,
}

impl Tolerance {
    /// For the plain model of an architecture.
    pub fn of(architecture: &str) -> Tolerance {
        match architecture {
            // ggml looks GELU up in a table of half-precision numbers: the last bit of its input can become the tenth.
            "nomic-bert-moe" => Tolerance { same: 1e-4, top1: true },
            _ => Tolerance { same: 1e-5, top1: true },
        }
    }
}

/// All that is proven of a model that runs.
pub fn all(subject: &Subject, tolerance: Tolerance) {
    counts(subject);
    cuts(subject, tolerance);
}

/// What is proven of a model that does not run by itself: cut files are right, and load.
pub fn cut_only(tiny: &TinyModel) {
    let subject = Subject::new(tiny.clone(), Vec::new());
    for (at, k) in two_keeps(&subject.experts).into_iter().enumerate() {
        let kept = choose(&subject.experts, k, at as u64);
        let path = subject.cut(&kept, &format!("cut-{k}.gguf")).unwrap_or_else(|e| panic!("{e}"));
        check_file(&subject, &kept, &path);
        drop(load(&path, &subject.placement));
    }
}

/// The cut file has what it should have, and computes what the masked model computes.
pub fn cuts(subject: &Subject, tolerance: Tolerance) {
    for (at, k) in two_keeps(&subject.experts).into_iter().enumerate() {
        let kept = choose(&subject.experts, k, at as u64);
        let path = subject.cut(&kept, &format!("cut-{k}.gguf")).unwrap_or_else(|e| panic!("{e}"));
        check_file(subject, &kept, &path);
        check_mask(subject, &kept, &path, tolerance);
        println!("{}: {k} of {} is right", subject.experts.architecture, subject.experts.n_expert);
    }
}

/// Two numbers of experts below all, the second a small one.
pub fn two_keeps(experts: &Experts) -> Vec<u32> {
    let mut possible = experts.possible_counts();
    possible.pop();
    let large = possible.len().saturating_sub(2);
    let small = 1.min(large);
    let mut keeps = vec![possible[large], possible[small]];
    keeps.dedup();
    keeps
}

/// Experts at random, other ones in each layer, as many from each group.
pub fn choose(experts: &Experts, k: u32, seed: u64) -> KeptExperts {
    let groups = experts.groups.filter(|_| experts.arch.is_none_or(|arch| arch.groups));
    let groups = groups.map_or(1, |groups| groups.count as usize);
    let of_layer = |layer: &moeslice::moe::ExpertLayer| {
        let mut random = Random::of(seed, &format!("keep of layer {}", layer.layer));
        let (size, each) = (layer.n_expert as usize / groups, layer.kept(k) as usize / groups);
        let mut ids: Vec<u32> = (0..groups)
            .flat_map(|group| {
                random.some_of(size, each).into_iter().map(move |id| id + (group * size) as u32)
            })
            .collect();
        ids.sort_unstable();
        (layer.layer, ids)
    };
    experts.layers.iter().map(of_layer).collect()
}

/// Every tensor is what a plain reading of the names makes of it, and the product's own check agrees.
fn check_file(subject: &Subject, kept: &KeptExperts, path: &Path) {
    let cut = gguf::Model::open(path).expect("a file that we read");
    slice::verify(&subject.file, &cut, Some(kept), &mut Silent, Interrupt::NEVER)
        .unwrap_or_else(|e| panic!("{e}"));
    let bytes = std::fs::read(path).expect("the file");
    assert_eq!(cut.tensors().len(), subject.tiny.tensors.len());
    for (tensor, (info, data)) in cut.tensors().iter().zip(&subject.tiny.tensors) {
        let found = &bytes[tensor.file_offset as usize..][..tensor.info.bytes() as usize];
        let layer = info.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let layer = layer.map(|(layer, part)| (layer.parse::<u32>().expect("a layer"), part));
        assert_eq!((&tensor.info.name, tensor.info.ty), (&info.name, info.ty));
        match layer {
            Some((_, "ffn_gate_tid2eid.weight")) => assert_eq!(tensor.info.dims, info.dims),
            Some((layer, part)) if has_experts(part) => {
                let ids = kept.layer(layer).expect("a layer with experts");
                let n_expert = *info.dims.last().expect("a dimension") as usize;
                let slab = data.len() / n_expert;
                let expected: Vec<u8> =
                    ids.iter().flat_map(|&id| &data[id as usize * slab..][..slab]).copied().collect();
                assert_eq!(tensor.info.dims.last(), Some(&(ids.len() as u64)), "{}", info.name);
                assert!(found == expected, "{}", info.name);
            }
            _ => {
                assert_eq!(tensor.info.dims, info.dims, "{}", info.name);
                assert!(found == data.as_slice(), "{}", info.name);
            }
        }
    }
}

/// The names of the tensors that are to be cut, written down once more and in another way than the product's table.
fn has_experts(part: &str) -> bool {
    let (stem, kind) = part.split_once('.').unwrap_or((part, "bias"));
    let matrices = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"].contains(&stem);
    let router = stem == "ffn_gate_inp" && kind != "scale";
    matrices || router || stem.starts_with("exp_probs_b")
}

pub fn check_mask(subject: &Subject, kept: &KeptExperts, path: &Path, tolerance: Tolerance) {
    let cut = load(path, &subject.placement);
    let expected = outputs(subject, &cut, &mut Nothing);
    let largest = expected.iter().flatten().fold(0.0_f32, |max, x| max.max(x.abs()));
    assert!(largest > 0.0 && expected.iter().flatten().all(|x| x.is_finite()), "outputs of the cut file");
    let masked = |kept: &KeptExperts| {
        let mut mask = ExpertMask::new(&subject.experts, kept).unwrap_or_else(|e| panic!("{e}"));
        let mut seen = MultipliedIds::default();
        let mut both = Observers::new([&mut mask as &mut dyn Observer, &mut seen]);
        let found = outputs(subject, &subject.model, &mut both);
        mask.check_reached().unwrap_or_else(|e| panic!("{e}"));
        for (layer, counts) in &seen.counts {
            let strays = counts
                .keys()
                .filter(|id| !kept.layer(*layer).is_some_and(|ids| ids.contains(&(**id as u32))))
                .count();
            assert_eq!(strays, 0, "masked experts of layer {layer} that were used all the same");
        }
        (found, seen)
    };
    passes::hidden_sites_are_missed(subject, kept);
    let (found, seen) = masked(kept);
    let off = distance(&expected, &found) / largest;
    assert!(off <= tolerance.same, "the mask is off by {off:e} of the largest output");
    if tolerance.top1 {
        for (token, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(best(expected), best(found), "best token after token {token}");
        }
    }
    let whole = distance(&expected, &outputs(subject, &subject.model, &mut Nothing)) / largest;
    assert!(whole > 10.0 * tolerance.same, "without a mask the model is off by {whole:e} only");
    for kind in [LayerKind::Trunk, LayerKind::Hash] {
        let Some(wrong) = swap_one(subject, kept, kind, &seen) else { continue };
        let off = distance(&expected, &masked(&wrong).0) / largest;
        assert!(off > 10.0 * tolerance.same, "one wrong expert ({kind:?}) is off by {off:e} only");
    }
    println!("{}: mask {off:e}, no mask {whole:e}", subject.experts.architecture);
}

/// The most used expert of the first layer of a kind gives its place to one that was removed, in its group.
fn swap_one(
    subject: &Subject,
    kept: &KeptExperts,
    kind: LayerKind,
    seen: &MultipliedIds,
) -> Option<KeptExperts> {
    let cut = |layer: &&moeslice::moe::ExpertLayer| {
        layer.kind == kind && kept.layer(layer.layer).is_some_and(|ids| ids.len() < layer.n_expert as usize)
    };
    let layer = subject.experts.layers.iter().find(cut)?;
    let (&most_used, _) = seen.counts[&layer.layer].iter().max_by_key(|&(id, count)| (count, id))?;
    let groups = subject.experts.groups.map_or(1, |groups| groups.count.max(1));
    let size = layer.n_expert / groups;
    let group = most_used as u32 / size;
    let mut wrong = kept.clone();
    let mut ids = wrong.layer(layer.layer)?.to_vec();
    let removed = (group * size..(group + 1) * size).find(|id| !ids.contains(id))?;
    *ids.iter_mut().find(|id| **id == most_used as u32)? = removed;
    ids.sort_unstable();
    wrong.insert(layer.layer, ids);
    Some(wrong)
}

/// What the model puts out: logits after each token, or the embedding of each window where it has no LM head.
pub fn outputs(subject: &Subject, model: &Model, observer: &mut dyn Observer) -> Vec<Vec<f32>> {
    let head = subject.head();
    let shape = Shape { n_ctx: WINDOW, n_ubatch: WINDOW, head, exact: true };
    let mut windows = subject.windows();
    if !head {
        // Only the last token of a window is seen: more windows make up for it.
        windows = windows.concat().windows(9).step_by(3).map(<[Token]>::to_vec).collect();
    }
    let mut rows = Vec::new();
    let mut each = |context: &moeslice::llama::Context<'_>, n_tokens: usize| {
        if head {
            rows.extend(
                (0..n_tokens).map(|at| context.logits(at).expect("no exception").expect("logits").to_vec()),
            );
        } else {
            rows.push(context.embedding(0).expect("no exception").expect("an embedding").to_vec());
        }
    };
    pass(model, &windows, shape, observer, &mut each).unwrap_or_else(|e| panic!("{e}"));
    rows
}

/// The largest difference; infinite when any is not a number.
fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |max, x| if x.is_nan() { f32::INFINITY } else { max.max(x) })
}

fn best(row: &[f32]) -> usize {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at)
}
