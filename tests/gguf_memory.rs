//! A header costs memory in proportion to its real size, whatever it declares.
//!
//! One test alone in its binary, so that no other allocates while it measures.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use moeslice::gguf::Header;

/// Address space that this process has had at most, in KiB: counts allocations even if they are never touched.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn number(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

/// `GGUF`, version 3, the counts and what follows.
fn file(tensors: u64, entries: u64, rest: &[&[u8]]) -> Vec<u8> {
    [b"GGUF\x03\0\0\0".as_slice(), &number(tensors), &number(entries), &rest.concat()].concat()
}

#[test]
fn header_memory_follows_its_real_size() {
    let folder = tempfile::tempdir().expect("a folder");
    // The allocator has reserved and released space for this thread. Lifted above that old peak by space that is never
    // touched, any further allocation shows.
    let ballast = std::hint::black_box(Vec::<u8>::with_capacity(512 << 20));
    large_claims_cost_no_memory(folder.path());
    a_vocabulary_costs_a_small_multiple_of_its_bytes(folder.path());
    drop(ballast);
}

fn large_claims_cost_no_memory(folder: &Path) {
    let key = [number(1).as_slice(), b"k"].concat();
    let array = |element: u8, len: u64| [&[9, 0, 0, 0, element, 0, 0, 0], number(len).as_slice()].concat();
    let claims = [
        file(1 << 34, 0, &[]),
        file(0, 1 << 34, &[]),
        file(0, 1, &[&number(1 << 34)]),
        file(0, 1, &[&key, &array(8, 1 << 40)]),
        file(0, 1, &[&key, &array(10, 1 << 29)]),
        file(0, 1, &[&key, &[8, 0, 0, 0], &number(1 << 30)]),
        file(1, 0, &[&number(1 << 34)]),
        file(1, 0, &[&number(1), b"t", &[0xff; 36]]),
    ];
    let path = folder.join("claim.gguf");

    let before = peak_kib();
    // The file as it is, and at the start of a sparse one that is long enough for most of the claims.
    for len in [100, 1 << 40] {
        for claim in &claims {
            fs::write(&path, claim).expect("written");
            let file = fs::File::options().read(true).write(true).open(&path).expect("opened");
            file.set_len(len).expect("a sparse file");
            let parsed = Header::parse(&file, &path);
            assert!(parsed.is_err_and(|error| error.malformation().is_some()), "{claim:?}");
        }
    }
    let grown = peak_kib() - before;
    assert!(grown <= 1024, "{grown} KiB for headers of at most 100 bytes");
}

fn a_vocabulary_costs_a_small_multiple_of_its_bytes(folder: &Path) {
    let tokens = 500_000_u64;
    let path = folder.join("vocabulary.gguf");
    // Written piece by piece: what the test allocates itself would hide what parsing does.
    let mut out = BufWriter::new(fs::File::create(&path).expect("created"));
    let mut write = |bytes: &[u8]| out.write_all(bytes).expect("written");
    write(&file(0, 1, &[&number(1), b"t", &[9, 0, 0, 0, 8, 0, 0, 0], &number(tokens)]));
    for token in 0..tokens {
        write(&number(12));
        write(format!("word{token:08}").as_bytes());
    }
    out.into_inner().expect("flushed");

    let file = fs::File::open(&path).expect("opened");
    let real = file.metadata().expect("a size").len() / 1024;
    let before = peak_kib();
    let header = Header::parse(&file, &path).expect("parsed");
    let grown = peak_kib() - before;
    let array = header.metadata.get("t").and_then(|value| value.as_array());
    assert_eq!(array.map(|array| array.len()), Some(tokens));
    assert!((real / 2..=3 * real).contains(&grown), "{grown} KiB for a header of {real} KiB");
}
