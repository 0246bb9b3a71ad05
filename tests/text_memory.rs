//! A long text costs the memory of its pieces, is read no further than it is needed, and can be interrupted.
//!
//! One test alone in its binary, so that no other allocates while it measures.
#![cfg(all(target_os = "linux", feature = "llama"))]

use moeslice::corpus::{ChatReader, TextSource, read_corpora};
use moeslice::llama::{Backend, Model, Placement};
use moeslice::progress::{Interrupt, Silent};
use moeslice::windows::{Cut, TokenizeError, Windows};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the text, about.
const LONG: usize = 96 << 20;

static STOP: AtomicBool = AtomicBool::new(false);

/// Memory that this process has had at most, in KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn write_text(path: &Path, bytes: usize) {
    let line = "A line of words that are not too long, and then the next one.\n";
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    (0..bytes / line.len()).for_each(|_| file.write_all(line.as_bytes()).expect("written"));
    file.flush().expect("written");
}

fn cut(model: &Model, path: &Path, limit: usize, interrupt: Interrupt) -> Result<Windows, TokenizeError> {
    let source = TextSource::parse(path.as_os_str()).expect("a source");
    let corpora = read_corpora(&[source], &ChatReader::default(), &mut |_| {}).expect("a text");
    let cut = Cut { n_tokens: 512, limit, parse_special: false, answer: false, interrupt };
    Windows::cut(model.vocab(), &corpora, cut)
}

#[test]
fn long_text_costs_what_is_used_of_it_and_hears_an_interrupt() {
    let folder = tempfile::tempdir().expect("a folder");
    let (short, long) = (folder.path().join("short.txt"), folder.path().join("long.txt"));
    write_text(&short, LONG / 32);
    write_text(&long, LONG);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf");
    let placement = Placement { devices: Some(Vec::new()), vocab_only: true, ..Placement::default() };
    let backend = Backend::start().expect("llama.cpp");
    let model = Model::load(backend, &demo, &placement, &mut Silent, Interrupt::NEVER).expect("a vocabulary");

    let of_short = cut(&model, &short, 4, Interrupt::NEVER).expect("windows");
    let before = peak_kib();
    let of_long = cut(&model, &long, 4, Interrupt::NEVER).expect("windows");
    let grown = peak_kib() - before;
    assert!(grown <= 8 << 10, "{grown} KiB for a text that is {} MiB longer", LONG >> 20);
    let tokens =
        |windows: &Windows| windows.corpora[0].iter().flat_map(|w| w.tokens.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&of_long), tokens(&of_short));
    assert_eq!(tokens(&of_long).len(), 4 * 512);

    let stopped = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            STOP.store(true, Ordering::Relaxed);
        });
        cut(&model, &long, usize::MAX, Interrupt::when(&STOP))
    });
    assert!(
        matches!(stopped, Err(TokenizeError::Interrupted)),
        "{} windows",
        stopped.map_or(0, |w| w.n_tokens())
    );
}
