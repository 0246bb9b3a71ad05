//! What is proven of one model, in a process of its own.

use crate::counts;
use crate::passes;
use crate::support::observed::{MultipliedIds, Nothing, Shape, pass};
use crate::support::random::Random;
use crate::support::tiny::TinyModel;
use moeslice::arch::ProfilePass;
use moeslice::evaluate::ExpertMask;
use moeslice::gguf;
use moeslice::llama::{Backend, Device, Model, Observer, Observers, Placement, Token};
use moeslice::moe::{Experts, Identity, KeptExperts, LayerKind, Provenance};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{self, Cut, Options};
use std::path::{Path, PathBuf};

/// Tokens of a window; the last of several is shorter.
pub const WINDOW: u32 = 32;
/// Tokens of the text that is profiled.
pub const TOKENS: usize = 3 * WINDOW as usize + 11;

/// A model on disk, read by us and loaded by llama.cpp.
pub struct Subject {
    pub tiny: TinyModel,
    pub path: PathBuf,
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
pub fn text() -> String {
    let mut random = Random::of(7, "text");
    (0..5 * TOKENS).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
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
    counts::counts(subject);
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
