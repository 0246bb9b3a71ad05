//! Files and tensors beyond the reach of 32-bit numbers, made of holes so that they cost no disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use moeslice::gguf::{Layout, Metadata, Model, TensorInfo, TensorType};
use moeslice::moe::KeptExperts;
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{Options, verify};

use crate::child;
use crate::oracle;
use crate::sample::Source;

const N_EMBD: u64 = 4096;

/// A model whose one layer has `n_expert` experts, each of `n_ff` * 8 KiB in three tensors, marked at both ends.
fn sparse(path: &Path, n_expert: u64, n_ff: u64) -> Model {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3moe");
    metadata.set("qwen3moe.block_count", 1_u32);
    metadata.set("qwen3moe.expert_count", n_expert as u32);
    metadata.set("qwen3moe.expert_used_count", 2_u32);
    let tensor = |name: &str, dims: &[u64]| {
        TensorInfo::new(format!("blk.0.{name}.weight"), dims.to_vec(), TensorType::F16).unwrap()
    };
    let tensors = [
        tensor("ffn_gate_inp", &[N_EMBD, n_expert]),
        tensor("ffn_down_exps", &[n_ff, N_EMBD, n_expert]),
        tensor("ffn_up_exps", &[N_EMBD, n_ff, n_expert]),
        tensor("ffn_gate_exps", &[N_EMBD, n_ff, n_expert]),
    ];
    let layout = Layout::new(&metadata, &tensors, 32, 3).unwrap();
    let file = File::create(path).unwrap();
    file.write_all_at(layout.header(), 0).unwrap();
    file.set_len(layout.file_bytes()).unwrap();
    for (index, info) in layout.tensors().iter().enumerate() {
        let slab = info.bytes() / n_expert;
        for expert in 0..n_expert {
            let start = layout.data_offset() + info.offset + expert * slab;
            for (position, end) in [(start, 0), (start + slab - 8, 1)] {
                file.write_all_at(&mark(index as u64, expert, end), position).unwrap();
            }
        }
    }
    Model::open(path).unwrap()
}

fn mark(tensor: u64, expert: u64, end: u64) -> [u8; 8] {
    (0xfeed_0000_0000_0000 | tensor << 16 | expert << 8 | end).to_le_bytes()
}

/// Asserts that every kept expert is in its place, by its marks.
fn assert_marks(pruned: &Model, kept: &[u32]) {
    for (index, tensor) in pruned.tensors().iter().enumerate() {
        let slab = tensor.info.bytes() / kept.len() as u64;
        for (new, &old) in (0..).zip(kept) {
            for (position, end) in [(new * slab, 0), ((new + 1) * slab - 8, 1)] {
                let mut found = [0; 8];
                pruned.read_exact_at(tensor, position, &mut found).unwrap();
                assert_eq!(found, mark(index as u64, u64::from(old), end), "{} {old}", tensor.info.name);
            }
        }
    }
}

fn keep(ids: &[u32]) -> KeptExperts {
    KeptExperts::from([(0, ids.to_vec())])
}

#[test]
fn experts_beyond_4_gib_are_cut_right() {
    let folder = tempfile::tempdir().unwrap();
    // Tensors of 4 GiB, a file of 12.
    let source = Source::of(sparse(&folder.path().join("base.gguf"), 64, 8 * 1024));
    assert!(source.model.total_bytes() > 12 << 30);
    let keep = keep(&[1, 63]);
    let output = folder.path().join("cut.gguf");
    source.prune(&keep, &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    assert_marks(&pruned, &keep[0]);
    verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
}

#[test]
fn output_above_4_gib_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.gguf");
    sparse(&path, 16, 12 * 1024);
    let output = folder.path().join("cut.gguf");
    // In a process of its own, which measures its memory.
    let mut command = child::command(&path, &output);
    let status = child::uncompared(child::keep_count(&mut command, 15)).status().unwrap();
    assert_eq!(child::code(status), child::DONE, "{status}");
    let pruned = Model::open(&output).unwrap();
    assert!(pruned.total_bytes() > 4 << 30, "{}", pruned.total_bytes());
    assert_marks(&pruned, &oracle::ids(&pruned, 0));
    assert_eq!(oracle::ids(&pruned, 0).len(), 15);
}
