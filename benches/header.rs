//! Reading the header of a model with a vocabulary of 250,000, beside what no reader can beat: copying the same bytes.
//! The ratio of the two is the figure; `scripts/bench header` has the same for whole processes and llama.cpp's tools.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use moeslice::gguf::{Header, Layout, Metadata, TensorInfo, TensorType};
use std::hint::black_box;
use std::path::Path;

/// A header of 40 layers and 250,000 tokens, as bytes.
fn header() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3moe");
    metadata
        .set("tokenizer.ggml.tokens", (0..250_000).map(|id| format!("token{id}")).collect::<Vec<String>>());
    metadata.set("tokenizer.ggml.token_type", vec![1_i32; 250_000]);
    let names = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate_inp"];
    let tensors: Vec<TensorInfo> = (0..40)
        .flat_map(|layer| names.map(|name| format!("blk.{layer}.{name}.weight")))
        .map(|name| TensorInfo::new(name, vec![256, 32], TensorType::F32).expect("the shape is possible"))
        .collect();
    let layout = Layout::new(&metadata, &tensors, 32, 3).expect("the header can be laid out");
    layout.header().to_vec()
}

fn bench(criterion: &mut Criterion) {
    let bytes = header();
    let mut group = criterion.benchmark_group("header of 250,000 tokens");
    group.throughput(Throughput::Bytes(bytes.len() as u64)).sample_size(20);
    group.bench_function("parse", |bencher| {
        bencher
            .iter(|| Header::parse(black_box(&bytes), Path::new("header.gguf")).expect("the header parses"));
    });
    group.bench_function("copy of the same bytes", |bencher| bencher.iter(|| black_box(&bytes).clone()));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
