//! The replay of `slru` beside llama.cpp's own expert cache: the trace is recorded in the context that has the cache, and
//! both have to count the same hits and misses.
#![cfg(feature = "llama")]

#[path = "support/isolated.rs"]
mod isolated;

use moeslice::cache::PolicyKind;
use moeslice::corpus::{ChatReader, TextSource, read_corpora};
use moeslice::llama::{Backend, ContextSettings, DeviceKind, FlashAttention, Model, Placement, set_log_sink};
use moeslice::moe::MoeModel;
use moeslice::profile::{TraceOptions, TraceTarget, record};
use moeslice::progress::{Interrupt, Silent};
use moeslice::replay::{Capacity, Counts, ReplayOptions, RunSpec, replay};
use moeslice::trace::{self, TracedModel};
use moeslice::windows::{KvUnified, WindowOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What llama.cpp says of its cache.
#[derive(Debug, Default, PartialEq, Eq)]
struct CacheLog {
    slots: u32,
    /// Of ubatches that go through it.
    hits: u64,
    misses: u64,
    /// Experts that larger ubatches read from it, each in so many tensors.
    copied: u64,
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The number behind `name` in a line of the log.
fn number(line: &str, name: &str) -> Option<u64> {
    let digits = line.split_once(name)?.1.trim_start();
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn read_log() -> CacheLog {
    let mut found = CacheLog::default();
    for line in LOG.lock().unwrap().drain(..) {
        if let Some((before, _)) = line.split_once(" slots (") {
            found.slots += before.rsplit(' ').next().and_then(|slots| slots.parse::<u32>().ok()).unwrap_or(0);
        }
        if line.contains("ubatch <= 8:") || line.contains("ubatch  > 8:") {
            found.hits += number(&line, "hits = ").unwrap_or(0);
            found.misses += number(&line, "misses = ").unwrap_or(0);
        }
        if line.contains("large batches:") {
            found.copied += number(&line, "large batches: ").unwrap_or(0);
        }
    }
    found
}

/// Records a trace with ubatches of so many tokens in a context with a cache of so many bytes.
fn run(model: &Model, moe: &MoeModel, ubatch_size: u32, bytes: usize, path: &Path) -> CacheLog {
    let sources = [TextSource::parse(repository("corpora/dev").as_os_str()).unwrap()];
    let corpora = read_corpora(&sources, &ChatReader::default(), &mut |_| {}).unwrap();
    let options = TraceOptions {
        windows: WindowOptions {
            ctx_size: 64,
            batch_size: 64,
            ubatch_size,
            kv_unified: KvUnified::Off,
            settings: ContextSettings {
                threads: 2,
                threads_batch: 2,
                flash_attention: FlashAttention::Off,
                moe_cache_bytes: bytes,
                ..ContextSettings::default()
            },
        },
        chunks: Some(2),
        parse_special: false,
        candidates: None,
        generate: None,
    };
    let target = TraceTarget {
        path,
        replace: true,
        model: TracedModel::new(moe.path(), &moe.identity),
        llama_cpp: String::new(),
        devices: Vec::new(),
    };
    LOG.lock().unwrap().clear();
    let recorded = record(model, &moe.experts, &corpora, &options, &target, &mut Silent).unwrap();
    assert_eq!(recorded.tokens, 128);
    read_log()
}

/// What the replay counts.
fn replayed(path: &Path, capacity: Capacity) -> Counts {
    let mut trace = trace::open(path).unwrap();
    let options = ReplayOptions { warmup: 0, carry: true, ..ReplayOptions::new(1) };
    let spec = RunSpec::plain(PolicyKind::Slru, capacity);
    let replayed = replay(&mut trace, &[spec], options, None, Interrupt::NEVER, &mut |_| {});
    replayed.unwrap().unwrap().rows[0].all.counts
}

#[test]
#[ignore = "the child process of the other test"]
fn child() {
    if isolated::task().is_none() {
        return;
    }
    set_log_sink(|line, _| LOG.lock().unwrap().push(line.to_owned()));
    let backend = Backend::start().unwrap();
    let devices = backend.devices();
    let gpu =
        devices.iter().find(|device| device.name.starts_with("Vulkan")).expect("a Vulkan device").clone();
    let cpu = devices.iter().find(|device| device.kind == DeviceKind::Cpu).expect("a processor").clone();
    let moe = MoeModel::open(&repository("models/moeslice-demo-Q8_0.gguf")).unwrap();
    let placement = Placement {
        devices: Some(vec![gpu]),
        gpu_layers: -1,
        overrides: vec![(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps".to_owned(), cpu.buffer_type())],
        ..Placement::default()
    };
    let model = Model::load(backend, moe.path(), &placement, &mut Silent, Interrupt::NEVER).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (ubatch, bytes) in
        [(1, 1 << 20), (1, 2 << 20), (4, 1 << 20), (16, 1 << 20), (16, 3 << 20), (48, 1 << 20)]
    {
        let path = folder.path().join("t.arrow");
        let log = run(&model, &moe, ubatch, bytes, &path);
        let counts = replayed(&path, Capacity::Slots(log.slots));
        println!("ubatch {ubatch}, {bytes} bytes: llama.cpp {log:?}; replay {counts:?}");
        assert!(log.slots > 0 && log.hits + log.misses > 0, "the cache was used");
        let tensors = trace::open(&path).map(|trace| tensors(&trace)).unwrap();
        assert_eq!(counts.hits, log.hits + log.copied / tensors);
        assert_eq!(counts, replayed(&path, Capacity::Bytes(bytes as u64)), "a budget makes as many slots");
        if ubatch <= 32 {
            assert_eq!((counts.misses, log.copied), (log.misses, 0));
        }
    }
}

/// Tensors that an expert is in.
fn tensors(trace: &trace::OpenTrace) -> u64 {
    trace::TraceReader::meta(trace).layers[0].slabs.len() as u64
}

#[test]
#[ignore = "compiling shaders for llvmpipe takes a while"]
fn replay_of_slru_counts_as_the_cache_of_llama_cpp() {
    let out = isolated::run("child", "cache", &[("GGML_VK_VISIBLE_DEVICES", "0")]);
    println!("{}", out.unwrap_or_else(|error| panic!("{error}")));
}
