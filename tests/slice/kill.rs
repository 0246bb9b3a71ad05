//! A process that is killed at any moment leaves a whole file or none.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use moeslice::gguf::{Model, TensorType, shard_path};
use moeslice::moe::ShardPolicy;
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::verify;
use moeslice::sys::remove_leftovers;

use crate::child;
use crate::sample::{Extras, Sample, Source, contents, names};

/// Moments at which a process is killed, spread over its run.
const KILLS: u32 = 60;

fn source(path: &Path) -> Source {
    let mut sample = Sample::new("qwen3moe", 6, 24, 2, 9);
    for layer in 0..6 {
        sample.layer(layer, 24, TensorType::Q8_0, Extras::default());
    }
    Source::of(sample.write(path))
}

/// Kills cuts at many moments; `first` is the file to open of what they write.
fn kill_many(shard_bytes: Option<u64>, first: impl Fn(&Path) -> std::path::PathBuf, files: usize) {
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder.path().join("base.gguf"));
    let base = contents(folder.path());
    let keep = child::keep(&source);
    let out = tempfile::tempdir().unwrap();
    let output = out.path().join("cut.gguf");
    let start = || {
        let mut command = child::command(source.model.path(), &output);
        if let Some(bytes) = shard_bytes {
            child::shard_bytes(&mut command, bytes);
        }
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    // The first run warms the page cache.
    let run = || {
        let begin = Instant::now();
        assert_eq!(child::code(start().wait().unwrap()), child::DONE);
        begin.elapsed()
    };
    let _cold = run();
    let whole_run = run();
    let first = first(out.path());
    let (mut killed, mut whole, mut partial, mut none) = (0, 0, 0, 0);
    for kill in 0..KILLS {
        // Every other time over an older output, which must stay whole too.
        if kill % 2 == 0 {
            for name in names(out.path()) {
                fs::remove_file(out.path().join(name)).unwrap();
            }
        }
        let mut child = start();
        // A little beyond the end, since runs differ.
        std::thread::sleep(
            whole_run.mul_f64(1.1 * f64::from(kill) / f64::from(KILLS)).max(Duration::from_micros(1)),
        );
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
        partial += u32::from(names(out.path()).iter().any(|name| name.ends_with(".partial")));
        // What the next run does first.
        remove_leftovers(out.path()).unwrap();
        let names = names(out.path());
        if first.exists() {
            whole += 1;
            assert_eq!(names.len(), files, "{names:?}");
            verify(&source.model, &Model::open(&first).unwrap(), Some(&keep), &mut Silent, Interrupt::NEVER)
                .unwrap();
        } else {
            none += 1;
            assert!(names.is_empty(), "{names:?}");
        }
    }
    assert_eq!(contents(folder.path()), base);
    println!(
        "{KILLS} runs: {killed} killed, {partial} of them while writing; {whole} times a whole output, {none} times none"
    );
    // Otherwise nothing was tested.
    assert!(partial > 0 && none > 0, "{partial} {none}");
}

#[test]
fn killed_cut_leaves_a_whole_file_or_none() {
    kill_many(None, |folder| folder.join("cut.gguf"), 1);
}

#[test]
fn killed_cut_leaves_all_shards_or_none() {
    let bytes = 5_000_000;
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder.path().join("base.gguf"));
    let k = source.experts.n_expert * 3 / 4;
    let shape = moeslice::moe::PrunedShape::of_count(&source.model, &source.experts, k, &source.provenance);
    let files = shape.unwrap().file_bytes(ShardPolicy::Size(bytes)).unwrap().len();
    assert!(files > 3);
    let first = |folder: &Path| shard_path(&folder.join("cut"), 0, files as u16);
    kill_many(Some(bytes), first, files);
}
