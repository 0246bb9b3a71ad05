//! Writes a model with the layout of a real one, and a usage that scatters what is kept of it:
//! `synthetic_model MODEL.gguf USAGE.json [--layers N] [--experts N] [--vocabulary N] [--alignment N] [--embedding N]
//! [--ff N] [--heads N] [--runs]`.
//!
//! The bytes are random, so that nothing is sparse and nothing can be compressed: cuts of such a model take the time
//! that cuts of a real one take. No text can be made with it. With `--runs` it computes: weights are Q4_0 around zero,
//! norms are ones, and routers send tokens everywhere, so that its speed is that of a real model of this width.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use moeslice::gguf::{self, Layout, Metadata, Model, TensorInfo, TensorType};
use moeslice::moe::{Experts, Identity};
use moeslice::usage::{Corpus, ExpertSums, LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage};

#[path = "../tests/support/random.rs"]
#[allow(dead_code)] // shared with the tests
mod random;
use random::Random;

const HEAD_WIDTH: u64 = 128;
/// Heads of queries for one of keys and values.
const GROUPED: u64 = 8;
const N_USED: u32 = 8;
const TOKENS: u64 = 100_000;

/// Bytes that are written at once: whole blocks and whole numbers.
const CHUNK: usize = 36 * 29_000;

/// What is to be written.
struct Size {
    layers: u32,
    experts: u32,
    vocabulary: usize,
    alignment: u32,
    /// Width of the hidden state, and of an expert.
    embedding: u32,
    ff: u32,
    heads: u32,
    /// Whether the numbers are such that the model computes.
    runs: bool,
}

fn main() -> anyhow::Result<()> {
    let mut paths = Vec::new();
    let mut size = Size {
        layers: 40,
        experts: 256,
        vocabulary: 150_000,
        alignment: 32,
        embedding: 1024,
        ff: 256,
        heads: 16,
        runs: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> anyhow::Result<u32> {
            let text = arguments.next().with_context(|| format!("{argument} needs a number"))?;
            text.parse().with_context(|| format!("{argument}: {text:?} is no number"))
        };
        match argument.as_str() {
            "--layers" => size.layers = number()?,
            "--experts" => size.experts = number()?,
            "--vocabulary" => size.vocabulary = number()? as usize,
            "--alignment" => size.alignment = number()?,
            "--embedding" => size.embedding = number()?,
            "--ff" => size.ff = number()?,
            "--heads" => size.heads = number()?,
            "--runs" => size.runs = true,
            _ => paths.push(argument),
        }
    }
    let [model, usage] = paths.as_slice() else {
        anyhow::bail!(
            "usage: synthetic_model MODEL.gguf USAGE.json [--layers N] [--experts N] [--vocabulary N] [--alignment N] \
             [--embedding N] [--ff N] [--heads N] [--runs]"
        );
    };
    // With fewer, an expert that is busier than the others would be selected more often than there are tokens.
    let least = 4 * N_USED;
    anyhow::ensure!(size.layers > 0 && size.experts >= least, "it takes a layer and {least} experts");
    write_model(Path::new(model), &size)?;
    std::fs::write(usage, scattered_usage(Path::new(model))?.to_json())?;
    Ok(())
}

fn write_model(path: &Path, size: &Size) -> anyhow::Result<()> {
    let metadata = metadata(size);
    let alignment = gguf::declared_alignment(&metadata)?;
    let layout = Layout::new(&metadata, &tensors(size)?, alignment, gguf::CURRENT_VERSION)?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(layout.header())?;
    let mut random = Random(1);
    let mut chunk = vec![0; CHUNK];
    for (index, info) in layout.tensors().iter().enumerate() {
        let mut left = info.bytes();
        while left > 0 {
            let part = &mut chunk[..left.min(CHUNK as u64) as usize];
            if size.runs {
                fill(part, info.ty, info.dims.len(), &mut random);
            } else {
                random.fill(part);
            }
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.write_all(&vec![0; usize::try_from(layout.padding_after(index))?])?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

/// Numbers that a model computes with: small and around zero, and ones for norms.
fn fill(part: &mut [u8], ty: TensorType, n_dims: usize, random: &mut Random) {
    // 1 / 256 as a half: a block of random nibbles has a deviation of about 0.018.
    const SCALE: [u8; 2] = 0x1c00_u16.to_le_bytes();
    const BLOCK: usize = 18;
    if ty == TensorType::Q4_0 {
        random.fill(part);
        part.chunks_mut(BLOCK)
            .filter(|block| block.len() >= 2)
            .for_each(|block| block[..2].copy_from_slice(&SCALE));
        return;
    }
    for number in part.chunks_exact_mut(4) {
        let value = if n_dims == 1 { 1.0 } else { (random.bits() % 2001) as f32 / 10_000.0 - 0.1 };
        number.copy_from_slice(&value.to_le_bytes());
    }
}

/// The tensors of a Mixture-of-Experts model as llama.cpp's converter and a `Q4_K_M` quantisation leave them: most of
/// it Q4_K, what quality hangs on Q6_K, routers and norms F32.
fn tensors(size: &Size) -> anyhow::Result<Vec<TensorInfo>> {
    const F32: TensorType = TensorType::F32;
    let (q4, q6) =
        if size.runs { (TensorType::Q4_0, TensorType::Q4_0) } else { (TensorType::Q4_K, TensorType::Q6_K) };
    let mut tensors = Vec::new();
    let mut add = |name: String, dims: &[u64], ty| -> anyhow::Result<()> {
        tensors.push(TensorInfo::new(name, dims.to_vec(), ty)?);
        Ok(())
    };
    let (n_vocab, n_expert) = (size.vocabulary as u64, u64::from(size.experts));
    let (n_embd, n_ff) = (u64::from(size.embedding), u64::from(size.ff));
    let q = HEAD_WIDTH * u64::from(size.heads);
    let kv = q / GROUPED;
    add("output.weight".into(), &[n_embd, n_vocab], q6)?;
    add("output_norm.weight".into(), &[n_embd], F32)?;
    add("token_embd.weight".into(), &[n_embd, n_vocab], q4)?;
    for layer in 0..size.layers {
        let better = if layer % 2 == 0 { q6 } else { q4 };
        let block: [(&str, &[u64], TensorType); 12] = [
            ("attn_k.weight", &[n_embd, kv], q4),
            ("attn_k_norm.weight", &[HEAD_WIDTH], F32),
            ("attn_norm.weight", &[n_embd], F32),
            ("attn_output.weight", &[q, n_embd], q4),
            ("attn_q.weight", &[n_embd, q], q4),
            ("attn_q_norm.weight", &[HEAD_WIDTH], F32),
            ("attn_v.weight", &[n_embd, kv], better),
            ("ffn_down_exps.weight", &[n_ff, n_embd, n_expert], better),
            ("ffn_gate_exps.weight", &[n_embd, n_ff, n_expert], q4),
            ("ffn_gate_inp.weight", &[n_embd, n_expert], F32),
            ("ffn_norm.weight", &[n_embd], F32),
            ("ffn_up_exps.weight", &[n_embd, n_ff, n_expert], q4),
        ];
        for (name, dims, ty) in block {
            add(format!("blk.{layer}.{name}"), dims, ty)?;
        }
    }
    Ok(tensors)
}

fn metadata(size: &Size) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3moe");
    metadata.set("general.type", "model");
    metadata.set("general.name", "Synthetic");
    // The usual one goes without saying.
    if size.alignment != 32 {
        metadata.set("general.alignment", size.alignment);
    }
    for (key, value) in [
        ("block_count", size.layers),
        ("context_length", 32_768),
        ("embedding_length", size.embedding),
        ("feed_forward_length", 4 * size.embedding),
        ("expert_feed_forward_length", size.ff),
        ("attention.head_count", size.heads),
        ("attention.head_count_kv", size.heads / GROUPED as u32),
        ("attention.key_length", HEAD_WIDTH as u32),
        ("attention.value_length", HEAD_WIDTH as u32),
        ("expert_count", size.experts),
        ("expert_used_count", N_USED),
    ] {
        metadata.set(&format!("qwen3moe.{key}"), value);
    }
    metadata.set("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6_f32);
    metadata.set("qwen3moe.rope.freq_base", 1e6_f32);
    let (tokens, merges) = vocabulary(size.vocabulary);
    metadata.set("tokenizer.ggml.model", "gpt2");
    metadata.set("tokenizer.ggml.pre", "qwen2");
    metadata.set("tokenizer.ggml.token_type", vec![1_i32; tokens.len()]);
    metadata.set("tokenizer.ggml.tokens", tokens);
    metadata.set("tokenizer.ggml.merges", merges);
    metadata.set("tokenizer.ggml.eos_token_id", 0_u32);
    metadata.set("tokenizer.ggml.add_bos_token", false);
    metadata
}

/// A byte-pair vocabulary: the bytes as GPT-2 writes them, and then one token a merge of two earlier ones.
fn vocabulary(wanted: usize) -> (Vec<String>, Vec<String>) {
    let plain = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut beyond = 256..;
    let bytes = (0..256).map(|byte| if plain(byte) { byte } else { beyond.next().expect("there are more") });
    let mut tokens: Vec<String> = bytes.filter_map(char::from_u32).map(String::from).take(wanted).collect();
    let mut known: std::collections::HashSet<String> = tokens.iter().cloned().collect();
    let (mut merges, mut random) = (Vec::new(), Random(2));
    while tokens.len() < wanted {
        let mut pick = |tokens: &[String]| tokens[random.below(tokens.len())].clone();
        let (left, right) = (pick(&tokens), pick(&tokens));
        let joined = format!("{left}{right}");
        // About as long as the tokens of real vocabularies.
        if joined.chars().count() <= 12 && known.insert(joined.clone()) {
            merges.push(format!("{left} {right}"));
            tokens.push(joined);
        }
    }
    (tokens, merges)
}

/// A usage in which the busy experts lie scattered: where a cut falls tells nothing of where the next one does.
fn scattered_usage(path: &Path) -> anyhow::Result<Usage> {
    let model = Model::open(path)?;
    let experts = Experts::read(&model)?;
    let identity = Identity::of(&model, &experts)?;
    let mut random = Random(3);
    let layers = experts.layers.iter().map(|layer| {
        let n = u64::from(layer.n_expert);
        let selections = TOKENS * u64::from(layer.n_expert_used);
        let weights: Vec<u64> = (0..n).map(|_| 500 + random.bits() % 1000).collect();
        let all: u64 = weights.iter().sum();
        let mut count: Vec<u64> = weights.iter().map(|weight| selections * weight / all).collect();
        // What rounding left over goes to the first.
        count[0] += selections - count.iter().sum::<u64>();
        let sums = ExpertSums { n_tokens: TOKENS, count, weight: None, activation: None };
        LayerUsage::join(layer.layer, layer.n_expert_used, [("random".to_owned(), sums)].into())
    });
    let usage = Usage {
        schema: USAGE_SCHEMA.into(),
        model: ProfiledModel::new(path, &identity),
        run: Run {
            moeslice: env!("CARGO_PKG_VERSION").into(),
            imported_from: Some("random numbers".into()),
            ctx_size: 512,
            batch_size: 512,
            ubatch_size: 512,
            ..Run::default()
        },
        corpora: vec![Corpus { name: "random".into(), files: vec![], tokens: TOKENS, held_out: None }],
        layers: layers.collect(),
    };
    usage.check().map_err(anyhow::Error::msg)?;
    Ok(usage)
}
