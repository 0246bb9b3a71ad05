//! Writes a model with the layout of a real one, and a usage that scatters what is kept of it:
//! `synthetic_model MODEL.gguf USAGE.json [--layers N] [--experts N] [--vocabulary N]
//! [--alignment N]`.
//!
//! The bytes are random, so that nothing is sparse and nothing can be compressed: cuts of such a model take the time
//! that cuts of a real one take. No text can be made with it.

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

const N_EMBD: u64 = 1024;
const N_FF: u64 = 256;
const HEAD_WIDTH: u64 = 128;
const N_HEAD: u64 = 16;
const N_HEAD_KV: u64 = 2;
const N_USED: u32 = 8;
const TOKENS: u64 = 100_000;

/// What is to be written.
struct Size {
    layers: u32,
    experts: u32,
    vocabulary: usize,
    alignment: u32,
}

fn main() -> anyhow::Result<()> {
    let mut paths = Vec::new();
    let mut size = Size { layers: 40, experts: 256, vocabulary: 150_000, alignment: 32 };
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
            _ => paths.push(argument),
        }
    }
    let [model, usage] = paths.as_slice() else {
        anyhow::bail!(
            "usage: synthetic_model MODEL.gguf USAGE.json [--layers N] [--experts N] [--vocabulary N] [--alignment N]"
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
    let mut chunk = vec![0; 1 << 20];
    for (index, info) in layout.tensors().iter().enumerate() {
        let mut left = info.bytes();
        while left > 0 {
            let part = &mut chunk[..left.min(1 << 20) as usize];
            random.fill(part);
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.write_all(&vec![0; usize::try_from(layout.padding_after(index))?])?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

/// The tensors of a Mixture-of-Experts model as llama.cpp's converter and a `Q4_K_M` quantisation leave them: most of
/// it Q4_K, what quality hangs on Q6_K, routers and norms F32.
fn tensors(size: &Size) -> anyhow::Result<Vec<TensorInfo>> {
    const F32: TensorType = TensorType::F32;
    const Q4_K: TensorType = TensorType::Q4_K;
    const Q6_K: TensorType = TensorType::Q6_K;
    let mut tensors = Vec::new();
    let mut add = |name: String, dims: &[u64], ty| -> anyhow::Result<()> {
        tensors.push(TensorInfo::new(name, dims.to_vec(), ty)?);
        Ok(())
    };
    let (n_vocab, n_expert) = (size.vocabulary as u64, u64::from(size.experts));
    let (q, kv) = (HEAD_WIDTH * N_HEAD, HEAD_WIDTH * N_HEAD_KV);
    add("output.weight".into(), &[N_EMBD, n_vocab], Q6_K)?;
    add("output_norm.weight".into(), &[N_EMBD], F32)?;
    add("token_embd.weight".into(), &[N_EMBD, n_vocab], Q4_K)?;
    for layer in 0..size.layers {
        let better = if layer % 2 == 0 { Q6_K } else { Q4_K };
        let block: [(&str, &[u64], TensorType); 12] = [
            ("attn_k.weight", &[N_EMBD, kv], Q4_K),
            ("attn_k_norm.weight", &[HEAD_WIDTH], F32),
            ("attn_norm.weight", &[N_EMBD], F32),
            ("attn_output.weight", &[q, N_EMBD], Q4_K),
            ("attn_q.weight", &[N_EMBD, q], Q4_K),
            ("attn_q_norm.weight", &[HEAD_WIDTH], F32),
            ("attn_v.weight", &[N_EMBD, kv], better),
            ("ffn_down_exps.weight", &[N_FF, N_EMBD, n_expert], better),
            ("ffn_gate_exps.weight", &[N_EMBD, N_FF, n_expert], Q4_K),
            ("ffn_gate_inp.weight", &[N_EMBD, n_expert], F32),
            ("ffn_norm.weight", &[N_EMBD], F32),
            ("ffn_up_exps.weight", &[N_EMBD, N_FF, n_expert], Q4_K),
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
        ("embedding_length", N_EMBD as u32),
        ("feed_forward_length", 4 * N_EMBD as u32),
        ("expert_feed_forward_length", N_FF as u32),
        ("attention.head_count", N_HEAD as u32),
        ("attention.head_count_kv", N_HEAD_KV as u32),
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
