//! What fuzzing and property tests do with arbitrary bytes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::gguf::{Header, Metadata, Model, ReadAt, TensorInfo, TensorType, write_model};
use crate::moe::{Experts, Identity, KeptExperts, Provenance, ShardPolicy};
use crate::progress::{Interrupt, Silent};
use crate::slice::{Cut, Options, prune, verify};

/// Keys whose texts no base tells, so that nothing is compared: see [`verify`].
const UNCHECKED: [&str; 4] = ["moeslice.version", "moeslice.score", "moeslice.target", "moeslice.corpora"];

/// Of a cut whose source is not the base at hand, nothing is known of that source.
const SOURCE: &str = "moeslice.source_fingerprint";

/// A model and a true cut of it, as bytes.
struct Pair {
    folder: TempDir,
    keep: KeptExperts,
    /// The files of the cut, by name.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// For each file, the ranges that are not compared.
    unchecked: Vec<Vec<std::ops::Range<usize>>>,
}

/// Changes one byte of a true cut as `bytes` say (which cut, which byte, to what), and verifies it. Returns whether a
/// byte was changed that has to be noticed.
///
/// # Panics
/// When the changed cut is called a true one: that is what the callers look for.
pub fn changed_cut(bytes: &[u8]) -> io::Result<bool> {
    let [which, change, position @ ..] = bytes else { return Ok(false) };
    let position = position.iter().take(4).fold(0_usize, |number, &byte| number << 8 | usize::from(byte));
    let pairs = pairs();
    let pair = &pairs[usize::from(which & 1) % pairs.len()];
    let file = usize::from(which >> 1) % pair.files.len();
    let (name, original) = &pair.files[file];
    let position = position % original.len();
    if *change == 0 || pair.unchecked[file].iter().any(|range| range.contains(&position)) {
        return Ok(false);
    }
    let folder = tempfile::tempdir()?;
    for (other, bytes) in &pair.files {
        std::fs::write(folder.path().join(other), bytes)?;
    }
    let mut changed = original.clone();
    changed[position] ^= change;
    std::fs::write(folder.path().join(name), changed)?;
    let base = Model::open(&pair.folder.path().join("base.gguf")).expect("the base opens");
    let Ok(model) = Model::open(&folder.path().join(&pair.files[0].0)) else { return Ok(true) };
    for keep in [None, Some(&pair.keep)] {
        let verified = verify(&base, &model, keep, &mut Silent, Interrupt::NEVER);
        assert!(verified.is_err(), "byte {position} of {} ^ {change} is called true", name.display());
    }
    Ok(true)
}

/// A single file with a table of ids, and shards of a plain model with biases.
fn pairs() -> &'static [Pair] {
    static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let limit = ShardPolicy::Size(1200);
        vec![pair("deepseek4", true, ShardPolicy::Keep), pair("gpt-oss", false, limit)]
    })
}

fn pair(architecture: &str, table: bool, shards: ShardPolicy) -> Pair {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let base = folder.path().join("base.gguf");
    write_base(&base, architecture, table);
    let model = Model::open(&base).expect("the base opens");
    let experts = Experts::read(&model).expect("the base has experts");
    let identity = Identity::of(&model, &experts).expect("the base has routers");
    let keep: KeptExperts = experts.layers.iter().map(|layer| (layer.layer, vec![0, 2, 3, 6])).collect();
    let provenance = Provenance::new(&model, &identity, "frequency", "4", vec!["a sha256:0".to_owned()]);
    let cut = Cut { model: &model, experts: &experts, keep: &keep, provenance };
    let options = Options { shards, ..Options::default() };
    let written =
        prune(&cut, &folder.path().join("cut.gguf"), &options, &mut Silent).expect("the base is cut");
    let mut files = Vec::new();
    let mut unchecked = Vec::new();
    for (path, _) in written.files {
        let bytes = std::fs::read(&path).expect("a file of the cut");
        let header = Header::parse(&bytes, &path).expect("the header of the cut");
        unchecked.push(ranges(&bytes, &header.metadata));
        let name = path.file_name().map_or_else(PathBuf::new, PathBuf::from);
        files.push((name, bytes));
    }
    Pair { folder, keep, files, unchecked }
}

/// Where the texts of unchecked keys lie, the numbers that say how long they are left out.
fn ranges(bytes: &[u8], metadata: &Metadata) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    for key in UNCHECKED.iter().copied().chain([SOURCE]) {
        let Some(raw) = metadata.raw(key) else { continue };
        let named = [key.as_bytes(), raw].concat();
        let Some(at) = bytes.windows(named.len()).position(|window| window == named) else { continue };
        let start = at + key.len();
        // Type and length; of the list of one corpus, also the type and length of the list.
        let before = if key == "moeslice.corpora" { 4 + 4 + 8 + 8 } else { 4 + 8 };
        ranges.push(start + before..start + raw.len());
    }
    ranges
}

fn write_base(path: &Path, architecture: &str, table: bool) {
    const N: u64 = 8;
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", architecture);
    metadata.set("general.size_label", "8x1K");
    for (key, value) in [("block_count", 1_u32), ("expert_count", N as u32), ("expert_used_count", 2)] {
        metadata.set(&format!("{architecture}.{key}"), value);
    }
    if table {
        metadata.set(&format!("{architecture}.hash_layer_count"), 1_u32);
    }
    metadata.set("tokenizer.ggml.tokens", vec!["a", "b\u{e9}", "c"]);
    let mut tensors: Vec<(TensorInfo, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, dims: &[u64], ty: TensorType| {
        let info = TensorInfo::new(name, dims.to_vec(), ty).expect("a valid tensor");
        // Each number is finite, and no two are the same.
        let seed = tensors.len() as u32 + 1;
        let data = (0..info.bytes().div_ceil(4) as u32)
            .flat_map(|at| (at as f32 + seed as f32 / 64.0).to_le_bytes());
        let bytes = info.bytes() as usize;
        tensors.push((info, data.take(bytes).collect()));
    };
    add("token_embd.weight", &[6, 3], TensorType::F32);
    add("blk.0.ffn_gate_inp.weight", &[6, N], TensorType::F32);
    add("blk.0.ffn_gate_exps.weight", &[6, 5, N], TensorType::F32);
    add("blk.0.ffn_up_exps.weight", &[6, 5, N], TensorType::F32);
    add("blk.0.ffn_down_exps.weight", &[5, 6, N], TensorType::F32);
    if table {
        let info = TensorInfo::new("blk.0.ffn_gate_tid2eid.weight", vec![2, 3], TensorType::I32);
        let ids = [0_i32, 1, 2, 3, 7, 6].into_iter().flat_map(i32::to_le_bytes);
        tensors.push((info.expect("a valid table"), ids.collect()));
    } else {
        add("blk.0.ffn_gate_inp.bias", &[N], TensorType::F32);
        add("blk.0.ffn_up_exps.bias", &[5, N], TensorType::F32);
    }
    let mut bytes = Vec::new();
    write_model(&mut bytes, &metadata, &tensors).expect("a valid model");
    std::fs::write(path, bytes).expect("the temporary folder takes files");
}

/// Every byte of every cut, or one of `stride` of them, each changed in one way. Returns how many had to be noticed.
///
/// # Panics
/// As [`changed_cut`].
pub fn every_byte(change: u8, stride: usize) -> io::Result<u64> {
    let mut noticed = 0;
    for (which, pair) in pairs().iter().enumerate() {
        for (file, (_, bytes)) in pair.files.iter().enumerate() {
            let len = bytes.as_slice().byte_len()?;
            for position in (0..len).step_by(stride) {
                let place = u32::try_from(position).unwrap_or(u32::MAX).to_be_bytes();
                let selector = u8::try_from(which | file << 1).unwrap_or(u8::MAX);
                noticed += u64::from(changed_cut(&[&[selector, change], &place[..]].concat())?);
            }
        }
    }
    Ok(noticed)
}
