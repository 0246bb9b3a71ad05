//! Models of several shards.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::gguf::{
    GgufError, Malformation, Metadata, Model, OwnedValue, ShardFault, TensorInfo, TensorType, ValueType,
    parse_shard_name, shard_path, write_model,
};

/// Shards that can be spoilt before they are written: each its metadata and the names of its tensors.
struct Split {
    dir: TempDir,
    shards: Vec<(Metadata, Vec<&'static str>)>,
}

impl Split {
    /// Three shards, the first without a tensor.
    fn new() -> Self {
        let names: [&[&str]; 3] = [&[], &["a", "b"], &["c"]];
        let shards = (0..).zip(names).map(|(index, names)| {
            let mut metadata = Metadata::new();
            if index == 0 {
                metadata.set("general.architecture", "qwen3moe");
                metadata.set("general.alignment", 64_u32);
            }
            metadata.set("split.no", index as u16);
            metadata.set("split.count", 3_u16);
            metadata.set("split.tensors.count", 3_i32);
            (metadata, names.to_vec())
        });
        Self { dir: TempDir::new().unwrap(), shards: shards.collect() }
    }

    fn path(&self, index: u16) -> PathBuf {
        shard_path(&self.dir.path().join("model"), index, 3)
    }

    fn write(&self) {
        for (index, (metadata, names)) in (0..).zip(&self.shards) {
            let tensors: Vec<_> = names
                .iter()
                .map(|name| (TensorInfo::new(*name, vec![4], TensorType::I8).unwrap(), name.repeat(4).into()))
                .collect();
            let mut file = fs::File::create(self.path(index)).unwrap();
            write_model(&mut file, metadata, &tensors).unwrap();
        }
    }

    /// Opens by the given shard's name what this describes.
    fn open(&self, index: u16) -> Result<Model, GgufError> {
        self.write();
        Model::open(&self.path(index))
    }

    /// The fault and the index of the shard that it is said of.
    #[track_caller]
    fn fault(&self, given: u16) -> (ShardFault, u16) {
        match self.open(given).unwrap_err() {
            GgufError::Shards { path, fault } => (fault, parse_shard_name(path).unwrap().1),
            other => panic!("a fault of the shards: {other}"),
        }
    }

    fn set(&mut self, shard: usize, key: &str, value: impl Into<OwnedValue>) {
        self.shards[shard].0.set(key, value);
    }
}

#[test]
fn any_shard_opens_the_whole_model() {
    let split = Split::new();
    for given in 0..3 {
        let model = split.open(given).unwrap();
        assert_eq!(model.path(), split.path(given));
        assert_eq!(
            model.shards().iter().map(|s| s.path.clone()).collect::<Vec<_>>(),
            [0, 1, 2].map(|i| split.path(i))
        );
        assert_eq!(model.architecture().unwrap(), "qwen3moe");
        assert_eq!(model.alignment(), 64);
        assert_eq!(model.shards()[1].header.alignment, 32);
        let places: Vec<_> = model.tensors().iter().map(|t| (t.info.name.as_str(), t.shard)).collect();
        assert_eq!(places, [("a", 1), ("b", 1), ("c", 2)]);
        for tensor in model.tensors() {
            let mut data = [0; 4];
            model.read_exact_at(tensor, 0, &mut data).unwrap();
            assert_eq!(data.as_slice(), tensor.info.name.repeat(4).as_bytes());
        }
        let sizes: u64 = (0..3).map(|i| fs::metadata(split.path(i)).unwrap().len()).sum();
        assert_eq!(model.total_bytes(), sizes);
    }
}

#[test]
fn merged_file_stands_alone() {
    let mut split = Split::new();
    for count in [0_u16, 1] {
        split.set(1, "split.count", count);
        let model = split.open(1).unwrap();
        assert_eq!((model.shards().len(), model.tensors().len()), (1, 2));
    }
}

#[test]
fn missing_shard_is_named() {
    let split = Split::new();
    split.write();
    fs::remove_file(split.path(2)).unwrap();
    let error = Model::open(&split.path(1)).unwrap_err();
    assert!(matches!(&error, GgufError::Shards { fault: ShardFault::Missing { index: 2, count: 3 }, .. }));
    assert!(error.to_string().contains("model-00003-of-00003.gguf: shard 3 of 3 is missing"), "{error}");
}

#[test]
fn truncated_shard_is_named() {
    let split = Split::new();
    split.write();
    let file = fs::File::options().write(true).open(split.path(2)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 29).unwrap();
    let error = Model::open(&split.path(0)).unwrap_err();
    assert!(
        matches!(error.malformation(), Some(Malformation::DataTruncated { tensor, .. }) if tensor == "c")
    );
    assert!(error.to_string().contains("model-00003-of-00003.gguf"), "{error}");
}

#[test]
fn renamed_shard_is_refused() {
    let split = Split::new();
    split.write();
    for name in
        ["other.gguf", "model-00001-of-00003.GGUF", "model-00002-of-00003.gguf", "model-00001-of-00004.gguf"]
    {
        let path = split.dir.path().join(name);
        fs::copy(split.path(0), &path).unwrap();
        let error = Model::open(&path).unwrap_err();
        assert!(
            matches!(&error, GgufError::Shards { fault: ShardFault::Renamed { index: 0, count: 3 }, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("`-00001-of-00003.gguf`"), "{error}");
    }
}

#[test]
fn shard_under_another_name_is_refused() {
    let split = Split::new();
    split.write();
    fs::copy(split.path(2), split.path(1)).unwrap();
    let error = Model::open(&split.path(0)).unwrap_err();
    let expected = ShardFault::Index { expected: 1, found: 2 };
    assert!(
        matches!(&error, GgufError::Shards { fault, .. } if fault.to_string() == expected.to_string()),
        "{error}"
    );
}

#[test]
fn shard_of_another_model_is_refused() {
    for (key, value) in [
        ("split.count", OwnedValue::U16(4)),
        ("split.tensors.count", OwnedValue::I32(9)),
        ("general.architecture", OwnedValue::from("llama")),
    ] {
        let mut split = Split::new();
        split.set(2, key, value);
        let (fault, shard) = split.fault(0);
        assert!(matches!(fault, ShardFault::Foreign { key: k, .. } if k == key), "{fault}");
        assert_eq!(shard, 2);
    }
}

#[test]
fn shard_without_its_number_is_refused() {
    for (shard, given) in [(0, 0), (2, 0)] {
        let mut split = Split::new();
        split.shards[shard].0.remove("split.no");
        let (fault, at) = split.fault(given);
        assert!(matches!(fault, ShardFault::KeyMissing { key: "split.no" }), "{fault}");
        assert_eq!(usize::from(at), shard);
    }
}

#[test]
fn shard_number_beyond_the_count_is_refused() {
    let mut split = Split::new();
    split.set(1, "split.no", 3_u16);
    assert!(matches!(split.fault(1).0, ShardFault::IndexRange { index: 3, count: 3 }));
}

#[test]
fn split_keys_of_another_type_are_refused() {
    for (key, expected) in [
        ("split.count", ValueType::U16),
        ("split.no", ValueType::U16),
        ("split.tensors.count", ValueType::I32),
    ] {
        let mut split = Split::new();
        split.set(0, key, 3_u32);
        let fault = split.fault(0).0;
        let ShardFault::KeyType { key: k, found: ValueType::U32, expected: e } = fault else {
            panic!("{fault}");
        };
        assert_eq!((k, e), (key, expected));
    }
}

#[test]
fn tensor_in_two_shards_is_refused() {
    let mut split = Split::new();
    split.shards[2].1 = vec!["b"];
    let (fault, shard) = split.fault(0);
    assert!(
        matches!(&fault, ShardFault::DuplicateTensor { tensor, other } if tensor == "b" && *other == split.path(1))
    );
    assert_eq!(shard, 2);
}

#[test]
fn wrong_number_of_tensors_is_refused() {
    for (declared, kept) in [(4, vec!["c"]), (-1, vec!["c"]), (3, vec![])] {
        let mut split = Split::new();
        for shard in 0..3 {
            split.set(shard, "split.tensors.count", declared);
        }
        split.shards[2].1 = kept;
        let found = 2 + split.shards[2].1.len() as u64;
        let fault = split.fault(0).0;
        let expected = ShardFault::TensorCount { declared: declared.into(), found };
        assert_eq!(fault.to_string(), expected.to_string());
    }
    let mut split = Split::new();
    split.shards[0].0.remove("split.tensors.count");
    assert!(matches!(split.fault(0).0, ShardFault::KeyMissing { key: "split.tensors.count" }));
}

#[test]
fn shard_names_are_made_and_read_back() {
    let path = shard_path(Path::new("/models/a.b"), 1, 13);
    assert_eq!(path, Path::new("/models/a.b-00002-of-00013.gguf"));
    assert_eq!(parse_shard_name(&path), Some(("/models/a.b".into(), 1, 13)));
    let last = shard_path(Path::new("m"), u16::MAX - 1, u16::MAX);
    assert_eq!(parse_shard_name(&last), Some(("m".into(), u16::MAX - 1, u16::MAX)));
    for name in [
        "model.gguf",
        "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf",
        "m-0001-of-00003.gguf",
        "m-000001-of-000003.gguf",
        "m-00001-of-00003.bin",
        "m-00001-of-99999.gguf",
        "m-+0001-of-00003.gguf",
        "-00001-of-00003.gguf",
        "",
    ] {
        assert_eq!(parse_shard_name(name), None, "{name}");
    }
}
