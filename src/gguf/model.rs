//! A model: one GGUF file, or all shards of a split one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{GgufError, ShardFault};
use super::header::Header;
use super::malformation::Malformation;
use super::metadata::Metadata;
use super::shard_name::shard_path;
use super::source::ReadAt;
use super::split::{SPLIT_TENSORS_KEY, Split, check_member};
use super::tensor::TensorInfo;
use super::value::Value;
use crate::sys::{FileState, ensure_descriptors};

/// The metadata key of the architecture.
pub const ARCHITECTURE_KEY: &str = "general.architecture";

/// An opened model, its headers read and checked.
#[derive(Debug)]
pub struct Model {
    path: PathBuf,
    shards: Vec<Shard>,
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
}

/// One file of a model.
#[derive(Debug)]
pub struct Shard {
    /// Its path.
    pub path: PathBuf,
    /// The opened file.
    pub file: File,
    /// Its header.
    pub header: Header,
    /// Bytes of the file.
    pub size: u64,
    /// What the file was before its header was read.
    state: FileState,
}

/// A tensor of a model and where its data lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name, shape and type.
    pub info: TensorInfo,
    /// Index into [`Model::shards`].
    pub shard: usize,
    /// Position of the first byte in that shard's file.
    pub file_offset: u64,
}

impl Shard {
    fn open(path: &Path) -> Result<Self, GgufError> {
        let open = |error| GgufError::Open { path: path.to_owned(), error };
        // Asked by name and before opening: to open a pipe would wait for its writer.
        if !std::fs::metadata(path).map_err(open)?.is_file() {
            return Err(GgufError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(open)?;
        Self::read(path, file)
    }

    fn read(path: &Path, file: File) -> Result<Self, GgufError> {
        let open = |error| GgufError::Open { path: path.to_owned(), error };
        let state = FileState::of_file(&file).map_err(open)?;
        let size = file.byte_len().map_err(open)?;
        let header = Header::parse(&file, path)?;
        header.check_data(&file, path)?;
        Ok(Self { path: path.to_owned(), file, header, size, state })
    }

    /// Whether the open file is what it was, and still the one that its path leads to.
    fn is_unchanged(&self) -> bool {
        let now = [FileState::of_file(&self.file), FileState::of_path(&self.path)];
        now.into_iter().all(|state| state.is_ok_and(|state| state == self.state))
    }
}

impl Model {
    /// Opens the model that `path` is, or is a shard of (any one), with all its shards.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let given = Shard::open(path)?;
        let shards = match Split::of(&given.header.metadata, path)? {
            None => vec![given],
            Some(split) => open_shards(given, split)?,
        };
        Self::of_shards(path, shards)
    }

    /// A model whose files are open already and may have other names yet: all of them, in order, each with the path
    /// that messages call it.
    pub fn of_files(files: Vec<(PathBuf, File)>) -> Result<Self, GgufError> {
        let shards: Vec<Shard> =
            files.into_iter().map(|(path, file)| Shard::read(&path, file)).collect::<Result<_, _>>()?;
        let Some(first) = shards.first() else {
            let error = io::Error::from(io::ErrorKind::NotFound);
            return Err(GgufError::Open { path: PathBuf::new(), error });
        };
        let count = Split::of(&first.header.metadata, &first.path)?.map_or(1, |split| split.count);
        if usize::from(count) != shards.len() {
            // More files than a model can have are as many as it can have, and the missing one is named by that.
            let index = u16::try_from(shards.len()).unwrap_or(u16::MAX);
            let fault = ShardFault::Missing { index, count };
            return Err(GgufError::Shards { path: first.path.clone(), fault });
        }
        if count > 1 {
            for (index, shard) in (0..count).zip(&shards) {
                check_member(&first.header.metadata, &shard.header.metadata, index)
                    .map_err(|fault| GgufError::Shards { path: shard.path.clone(), fault })?;
            }
        }
        let path = first.path.clone();
        Self::of_shards(&path, shards)
    }

    fn of_shards(path: &Path, shards: Vec<Shard>) -> Result<Self, GgufError> {
        let (tensors, by_name) = index_tensors(&shards)?;
        let model = Self { path: path.to_owned(), shards, tensors, by_name };
        model.check_tensor_count()?;
        Ok(model)
    }

    /// Checks that no file of the model was written to, changed otherwise or replaced since it was opened: what was
    /// read of it may be half old and half new.
    ///
    /// # Errors
    /// Names the first file that is not what it was.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        match self.shards.iter().find(|shard| !shard.is_unchanged()) {
            Some(shard) => Err(GgufError::Changed { path: shard.path.clone() }),
            None => Ok(()),
        }
    }

    fn check_tensor_count(&self) -> Result<(), GgufError> {
        let first = &self.shards[0];
        let fault = |fault| GgufError::Shards { path: first.path.clone(), fault };
        let Some(split) = Split::of(&first.header.metadata, &first.path)? else { return Ok(()) };
        let declared =
            split.tensors.ok_or_else(|| fault(ShardFault::KeyMissing { key: SPLIT_TENSORS_KEY }))?;
        let (declared, found) = (i64::from(declared), self.tensors.len() as u64);
        if u64::try_from(declared) != Ok(found) {
            return Err(fault(ShardFault::TensorCount { declared, found }));
        }
        Ok(())
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of the first shard: the others' hold nothing but `split.*`.
    pub fn metadata(&self) -> &Metadata {
        &self.shards[0].header.metadata
    }

    /// All files, at least one, in order.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The alignment of the first shard in bytes. Other shards have their own in their headers.
    pub fn alignment(&self) -> u64 {
        self.shards[0].header.alignment
    }

    /// All tensors: by shard, then as listed.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// Fills `buf` with the tensor's bytes from `offset` (counted from its own start) on.
    pub fn read_exact_at(&self, tensor: &Tensor, offset: u64, buf: &mut [u8]) -> Result<(), GgufError> {
        let (bytes, len) = (tensor.info.bytes(), buf.len() as u64);
        let name = || tensor.info.name.clone();
        if offset.checked_add(len).is_none_or(|end| end > bytes) {
            return Err(GgufError::OutsideTensor { tensor: name(), bytes, offset, len });
        }
        let Some(shard) = self.shards.get(tensor.shard) else {
            return Err(GgufError::OutsideTensor { tensor: name(), bytes: 0, offset, len });
        };
        let position = tensor.file_offset.saturating_add(offset);
        let got = shard.file.read_full_at(buf, position).map_err(|error| GgufError::Read {
            path: shard.path.clone(),
            what: format!("tensor {:?}", tensor.info.name),
            error,
        })?;
        if got < buf.len() {
            return Err(GgufError::FileShrank {
                path: shard.path.clone(),
                tensor: name(),
                position: position.saturating_add(got as u64),
            });
        }
        Ok(())
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.size))
    }

    /// The architecture's name, such as `qwen3moe`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        let value = self.metadata().get(ARCHITECTURE_KEY).and_then(|value| value.as_str());
        value.ok_or_else(|| GgufError::NoArchitecture { path: self.shards[0].path.clone() })
    }

    /// The value of `{architecture}.{key}`.
    pub fn arch_value(&self, key: &str) -> Option<Value<'_>> {
        let architecture = self.architecture().ok()?;
        self.metadata().get(&format!("{architecture}.{key}"))
    }
}

/// Opens the shards that belong to `given`, which is returned among them.
fn open_shards(given: Shard, split: Split) -> Result<Vec<Shard>, GgufError> {
    let prefix = split.prefix(&given.path)?;
    ensure_descriptors(split.count.into()).map_err(|error| GgufError::Descriptors { error })?;
    let mut given = Some(given);
    let mut shards: Vec<Shard> = Vec::new();
    for index in 0..split.count {
        let shard = match given.take_if(|_| index == split.index) {
            Some(shard) => shard,
            None => open_sibling(&shard_path(&prefix, index, split.count), index, split.count)?,
        };
        let first = shards.first().map_or(&shard.header.metadata, |first| &first.header.metadata);
        check_member(first, &shard.header.metadata, index)
            .map_err(|fault| GgufError::Shards { path: shard.path.clone(), fault })?;
        shards.push(shard);
    }
    Ok(shards)
}

fn open_sibling(path: &Path, index: u16, count: u16) -> Result<Shard, GgufError> {
    Shard::open(path).map_err(|error| match error {
        GgufError::Open { path, error } if error.kind() == io::ErrorKind::NotFound => {
            GgufError::Shards { path, fault: ShardFault::Missing { index, count } }
        }
        other => other,
    })
}

type TensorIndex = (Vec<Tensor>, HashMap<String, usize>);

fn index_tensors(shards: &[Shard]) -> Result<TensorIndex, GgufError> {
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut by_name = HashMap::new();
    for (index, shard) in shards.iter().enumerate() {
        for info in &shard.header.tensors {
            match by_name.entry(info.name.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(tensors.len());
                }
                Entry::Occupied(earlier) => {
                    let other = shards[tensors[*earlier.get()].shard].path.clone();
                    let fault = ShardFault::DuplicateTensor { tensor: info.name.clone(), other };
                    return Err(GgufError::Shards { path: shard.path.clone(), fault });
                }
            }
            let Some(file_offset) = shard.header.data_offset.checked_add(info.offset) else {
                let fault = Malformation::DataOverflow { tensor: info.name.clone() };
                return Err(GgufError::malformed(&shard.path, fault));
            };
            tensors.push(Tensor { info: info.clone(), shard: index, file_offset });
        }
    }
    Ok((tensors, by_name))
}
