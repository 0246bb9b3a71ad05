use super::test_trace::{meta, tokens};
use super::*;
use crate::sys::PartFile;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LAYERS: &[(u32, u32, u64)] = &[(8, 2, 100), (6, 3, 50)];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// All tokens of a trace, and its remark.
fn read_all(path: &Path) -> Result<(TraceMeta, Batch, Option<String>), TraceError> {
    let mut trace = open(path)?;
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while trace.read(&mut batch)? {
        all.append(&mut batch);
    }
    Ok((trace.meta().clone(), all, trace.remark().map(str::to_owned)))
}

/// A trace of several batches, with the tokens of each.
fn written(folder: &TempDir, values: RouterValues) -> (PathBuf, TraceMeta, Vec<Batch>) {
    let path = folder.path().join("t.arrow");
    let meta = meta(LAYERS, values);
    let batches: Vec<Batch> = (0..4).map(|seed| tokens(&meta, 10 + seed, 20, 4, seed.into())).collect();
    let mut writer = TraceWriter::create(&path, false, meta.clone()).unwrap();
    for batch in &batches {
        writer.append(&mut batch.clone()).unwrap();
        writer.flush().unwrap();
    }
    assert_eq!(writer.finish().unwrap(), path);
    (path, meta, batches)
}

#[test]
fn arrow_trace_read_again_is_what_was_written() {
    for values in [RouterValues::Logits, RouterValues::Selection, RouterValues::None] {
        let folder = folder();
        let (path, meta, batches) = written(&folder, values);
        let mut all = Batch::default();
        batches.into_iter().for_each(|mut batch| all.append(&mut batch));
        assert_eq!(read_all(&path).unwrap(), (meta, all, None));
        assert!(!PartFile::part_of(&path).exists());
    }
}

#[test]
fn arrow_trace_cut_anywhere_is_read_up_to_its_last_batch() {
    let folder = folder();
    let (path, _, batches) = written(&folder, RouterValues::Logits);
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 1000, "several batches");
    let part = PartFile::part_of(&path);
    let mut counts = Vec::new();
    for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        fs::write(&part, &bytes[..length]).unwrap();
        match read_all(&part) {
            Err(TraceError::NotATrace { .. }) => {
                assert!(counts.is_empty(), "the header is whole at {length}")
            }
            Err(error) => panic!("{length}: {error}"),
            Ok((_, tokens, remark)) => {
                assert!(
                    remark.is_some_and(|text| text.contains(&format!("first {} tokens", tokens.rows.len())))
                );
                counts.push(tokens.rows.len());
            }
        }
    }
    counts.dedup();
    let mut sums = vec![0];
    batches.iter().for_each(|batch| sums.push(sums.last().unwrap() + batch.rows.len()));
    assert_eq!(counts, sums);
}

#[test]
fn arrow_trace_that_shrinks_while_it_is_read_is_an_error() {
    let folder = folder();
    let path = folder.path().join("t.arrow");
    let meta = meta(LAYERS, RouterValues::Logits);
    let mut writer = TraceWriter::create(&path, false, meta.clone()).unwrap();
    for seed in 0..200 {
        writer.append(&mut tokens(&meta, 50, 20, 4, seed)).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    let mut trace = open(&path).unwrap();
    let mut batch = Batch::default();
    assert!(trace.read(&mut batch).unwrap());
    fs::File::options().write(true).open(&path).unwrap().set_len(200_000).unwrap();
    let error = loop {
        match trace.read(&mut batch) {
            Ok(more) => assert!(more, "the end was reached"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TraceError::Shrank { .. }), "{error}");
}

#[test]
fn open_names_what_is_not_a_trace() {
    let folder = folder();
    let path = folder.path().join("x");
    for (bytes, part) in [
        (&b""[..], "it is empty"),
        (b"ARROW1\0\0", "an Arrow file, and a trace is an Arrow stream"),
        (b"GGUF\x03\0\0\0", "begins neither"),
        (b"\xff\xff\xff\xff\x10\0", "ends within its header"),
        (b"\0\0", "begins neither"),
        (b"{\"schema\":\"moeslice.trace/9\"}\n", "moeslice.trace/9"),
        (b"{\"layer\":0,\"experts\":[1],\"temperature\":1}\n", "unknown field `temperature`"),
        (b"layer,experts,colour\n", "\"colour\" is not a column"),
        (b"layer,token\n", "no column \"experts\""),
        (b"layer,experts\n", "it has no tokens"),
        (b"layer,experts\n0,1 2\n1,3\n0,1 2\n0,1 2\n", "line 5: layer 0 where the token's layer 1"),
        (b"layer,experts\n0,1 2\n1,3\n0,1 2\n", "ends within a token"),
        (b"layer,experts\n0,1 1\n", "expert 1 is there twice"),
        (b"layer,experts\n0,1 2\n0,1 2 3\n", "3 experts are used where layer 0 used 2 before"),
        (b"layer,experts\n0,1024\n", "out of range"),
        (b"layer,experts\n0\n", "1 fields for 2 columns"),
        (b"layer,phase,experts\n0,thinking,1\n", "neither prefill nor decode"),
    ] {
        fs::write(&path, bytes).unwrap();
        let message = read_all(&path).unwrap_err().to_string();
        assert!(message.contains(part), "{:?}: {message}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn lines_of_both_forms_give_the_same_tokens() {
    let folder = folder();
    let (jsonl, csv) = (folder.path().join("t.jsonl"), folder.path().join("t.csv"));
    fs::write(
        &jsonl,
        r#"{"session":1,"phase":"prefill","ubatch":7,"position":3,"token":9,"layer":2,"experts":[4,0,3],"used":2}
{"session":1,"phase":"prefill","ubatch":7,"position":3,"token":9,"layer":5,"experts":[1,2],"used":1}
"#,
    )
    .unwrap();
    fs::write(
        &csv,
        "session,phase,ubatch,position,token,layer,experts,used\n1,prefill,7,3,9,2,4 0 3,2\n1,prefill,7,3,9,5,\"1 2\",1\n",
    )
    .unwrap();
    let (meta, batch, _) = read_all(&jsonl).unwrap();
    assert_eq!(read_all(&csv).unwrap(), (meta.clone(), batch.clone(), None));
    let row = Row { session: 1, turn: 0, phase: Phase::Prefill, ubatch: 7, position: 3, token: 9 };
    assert_eq!(batch.rows, [row]);
    assert_eq!(batch.ids, [4, 0, 3, 1, 2, NO_EXPERT]);
    let shapes: Vec<_> = meta.layers.iter().map(|l| (l.layer, l.n_expert, l.n_expert_used)).collect();
    assert_eq!(shapes, [(2, 5, 2), (5, 3, 1)]);
}

#[test]
fn jsonl_header_gives_experts_and_bytes() {
    let folder = folder();
    let path = folder.path().join("t.jsonl");
    let meta = meta(LAYERS, RouterValues::None);
    let header = serde_json::to_string(&meta).unwrap();
    fs::write(
        &path,
        format!("{header}\n{}\n{}\n", r#"{"layer":0,"experts":[1,2]}"#, r#"{"layer":1,"experts":[1,2,3]}"#),
    )
    .unwrap();
    let (found, batch, _) = read_all(&path).unwrap();
    assert_eq!(found, meta);
    assert_eq!(batch.rows.len(), 1);
    assert_eq!(batch.ids[..3], [1, 2, NO_EXPERT]);
}

proptest! {
    #[test]
    fn arrow_trace_with_any_byte_changed_is_read_or_refused(place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let folder = folder();
        let (path, ..) = written(&folder, RouterValues::Logits);
        let mut bytes = fs::read(&path).unwrap();
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        let _ = read_all(&path);
    }
}

#[test]
fn router_values_that_are_no_numbers_are_refused_where_an_expert_has_them() {
    let folder = folder();
    let path = folder.path().join("t.arrow");
    let meta = meta(LAYERS, RouterValues::Logits);
    let good = tokens(&meta, 5, 20, 4, 1);
    let width = meta.candidates as usize;
    let refusal = |change: &dyn Fn(&mut Batch)| {
        let mut batch = good.clone();
        change(&mut batch);
        let mut writer = TraceWriter::create(&path, true, meta.clone()).unwrap();
        writer.append(&mut batch).unwrap();
        writer.finish().unwrap();
        match read_all(&path) {
            Ok(_) => None,
            Err(TraceError::Row { row, what, .. }) => Some((row, what)),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(refusal(&|_| {}), None);
    // The fourth token, in the second layer.
    let at = (3 * 2 + 1) * width;
    let id = good.ids[at];
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let what = format!("layer 1: the router value of expert {id} is {value}");
        assert_eq!(refusal(&|batch| batch.values[at] = value), Some((3, what)));
        for (name, list) in [
            ("z_min", (|batch| &mut batch.z_min) as fn(&mut Batch) -> &mut Vec<f32>),
            ("z_mean", |batch| &mut batch.z_mean),
            ("z_std", |batch| &mut batch.z_std),
        ] {
            let found = refusal(&|batch| list(batch)[3 * 2 + 1] = value);
            assert_eq!(found, Some((3, format!("layer 1: {name} is {value}"))));
        }
    }
    // Where there is no expert, there is no value.
    let empty = good.ids.iter().position(|id| *id == NO_EXPERT).unwrap();
    assert_eq!(refusal(&|batch| batch.values[empty] = f32::NAN), None);
}

#[test]
fn malformed_message_is_named_by_its_number_whatever_is_wrong_with_it() {
    let folder = folder();
    let (path, _, _) = written(&folder, RouterValues::None);
    let bytes = fs::read(&path).unwrap();
    let mut at = 0;
    for number in 0..5 {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let metadata = &bytes[at + 8..at + 8 + length];
        let message = arrow_ipc::root_as_message(metadata).unwrap();
        let body = at + 8 + length;
        // Its frame, where the schema's tells what the file is; and, of tokens, the phase of the first.
        let phase = message.header_as_record_batch().map(|batch| batch.buffers().unwrap().get(5).offset());
        let frame = (number > 0).then_some(at);
        for place in frame.into_iter().chain(phase.map(|offset| body + offset as usize)).chain([at + 8]) {
            let mut damaged = bytes.clone();
            damaged[place..place + 4].copy_from_slice(&[7, 0xff, 0xff, 0xff]);
            fs::write(&path, damaged).unwrap();
            let error = read_all(&path).unwrap_err();
            assert!(matches!(error, TraceError::Message { message, .. } if message == number), "{error}");
        }
        at = body + message.bodyLength() as usize;
    }
}
