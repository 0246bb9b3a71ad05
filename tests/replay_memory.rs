//! A trace that is larger than the memory of the process is replayed.
#![cfg(all(target_os = "linux", feature = "cli"))]

use moeslice::trace::{Batch, Phase, RouterValues, Row, TraceLayer, TraceMeta, TraceWriter};
use std::path::Path;
use std::process::Command;

const LAYERS: u32 = 48;
const CANDIDATES: u32 = 64;
/// Address space that the program may have, in KiB.
const LIMIT_KIB: u64 = 256 << 10;

/// Tokens of 48 layers with 64 candidates each.
fn write_trace(path: &Path) {
    let layer = |layer| TraceLayer { layer, n_expert: 128, n_expert_used: 8, slabs: vec![1000] };
    let meta = TraceMeta::new((0..LAYERS).map(layer).collect(), CANDIDATES, RouterValues::Logits);
    let mut writer = TraceWriter::create(path, false, meta).unwrap();
    let values: Vec<f32> = (0..CANDIDATES).map(|rank| -(rank as f32)).collect();
    for at in 0..96_u32 {
        let mut batch = Batch::default();
        for token in at * 256..(at + 1) * 256 {
            let row = Row {
                session: 0,
                turn: 0,
                phase: Phase::Decode,
                ubatch: token.into(),
                position: token,
                token: 0,
            };
            batch.rows.push(row);
            for layer in 0..LAYERS {
                let first = (token * 7 + layer * 3) % 65;
                batch.ids.extend((first..first + CANDIDATES).map(|id| id as u16));
                batch.values.extend_from_slice(&values);
            }
            for list in [&mut batch.z_min, &mut batch.z_mean, &mut batch.z_std] {
                list.extend([0.0; LAYERS as usize]);
            }
        }
        writer.append(&mut batch).unwrap();
    }
    writer.finish().unwrap();
}

/// What `replay --json` says when it may have so much address space.
#[track_caller]
fn replayed_within(limit_kib: u64, trace: &Path, flags: &[&str]) -> serde_json::Value {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {limit_kib} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_moeslice")])
        .arg("replay")
        .arg(trace)
        .args(flags)
        .arg("--json")
        // Each arena of the allocator reserves 64 MiB of address space, used or not.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn memory_follows_the_tokens_of_a_trace_and_not_the_experts_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    // The pairs of experts of neighbouring layers alone would be 2 GiB a cache.
    let layer = |layer| TraceLayer { layer, n_expert: 1024, n_expert_used: 1, slabs: vec![1] };
    let meta = TraceMeta::new((0..512).map(layer).collect(), 1, RouterValues::None);
    let mut batch = Batch::default();
    for token in 0..3_u16 {
        let (session, turn, phase, ubatch, position) = (0, 0, Phase::Decode, token.into(), token.into());
        batch.rows.push(Row { session, turn, phase, ubatch, position, token: 0 });
        batch.ids.extend([token * 7; 512]);
    }
    let mut writer = TraceWriter::create(&path, false, meta).unwrap();
    writer.append(&mut batch).unwrap();
    writer.finish().unwrap();
    let flags = ["--capacity", "8", "--policy", "lru,lfu,ema", "--warmup", "1", "--prefetch", "staging:2"];
    let found = replayed_within(1 << 20, &path, &flags);
    assert_eq!(found["tokens"], 3);
}

#[test]
#[ignore = "slow: writes 430 MiB"]
fn trace_larger_than_memory_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    write_trace(&path);
    let bytes = path.metadata().unwrap().len();
    assert!(bytes > 3 * LIMIT_KIB * 1024 / 2, "{bytes} bytes");
    let flags = ["--capacity", "16,64", "--policy", "lru,slru,belady", "--curve"];
    let found = replayed_within(LIMIT_KIB, &path, &flags);
    assert_eq!(found["tokens"], 96 * 256);
    assert_eq!(found["rows"].as_array().unwrap().len(), 6);
}
