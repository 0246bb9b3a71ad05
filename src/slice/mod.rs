//! A GGUF file and a choice of experts → a pruned GGUF file.
//!
//! [`prune`] moves raw bytes: no value is dequantised and no tensor is held in memory whole. What it writes becomes
//! visible whole or not at all. [`verify()`] compares a pruned model with the one that it was cut from, byte by byte.

mod behind;
mod copy;
mod error;
mod fate;
mod hash_table;
mod imatrix;
mod output;
mod readahead;
mod runs;
mod verify;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::gguf::{Header, Model};
use crate::moe::{Experts, FileShape, IdMap, KeptExperts, Provenance, PrunedShape, ShardPolicy};
use crate::progress::{Interrupt, Interrupted, Progress, Unit, stage};
use crate::sys::{self, AtomicFile, FileError, commit_all};

use behind::Frontier;
pub use error::SliceError;
pub use hash_table::Remap;
pub use imatrix::{ImatrixSliceError, SlicedImatrix, slice_imatrix};
pub use output::output_paths;
pub use verify::{Difference, Differences, Verified, VerifyError, Where, kept_of, verify, verify_model};

/// `TENSOR_ALIGNMENT` of llama.cpp's `ggml/src/ggml-impl.h`: where a mapped buffer may begin.
pub(crate) const SAFE_ALIGNMENT: u64 = 32;

/// What to cut.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its experts; those of [`Experts::without_mtp`] leave out the blocks of multi-token prediction.
    pub experts: &'a Experts,
    /// The experts that stay, by layer, in the ids of the file, ascending.
    pub keep: &'a KeptExperts,
    /// What the pruned file tells of its making.
    pub provenance: Provenance,
}

/// How to write it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Replace existing files.
    pub force: bool,
    /// Into which files.
    pub shards: ShardPolicy,
    /// Compare what was written with the model before it becomes visible.
    pub verify: bool,
    /// Once set, the work stops and leaves nothing behind.
    pub interrupt: Interrupt,
}

impl Default for Options {
    fn default() -> Self {
        Self { force: false, shards: ShardPolicy::default(), verify: true, interrupt: Interrupt::NEVER }
    }
}

/// What would be written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedFiles {
    /// The files with their sizes in bytes, in order; the first is the one to open.
    pub files: Vec<(PathBuf, u64)>,
    /// Bytes that are free where they go; `u64::MAX` when the file system does not tell.
    pub free: u64,
    /// Files of killed runs that lay in the folder and were removed.
    pub leftovers: sys::Leftovers,
    shapes: Vec<FileShape>,
    ids: IdMap,
}

impl PlannedFiles {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What was written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The files with their sizes in bytes, in order; the first is the one to open.
    pub files: Vec<(PathBuf, u64)>,
    /// The original ids of the experts that stayed.
    pub ids: IdMap,
    /// How long the writing took.
    pub duration: Duration,
    /// What was compared with the model, unless nothing was to be.
    pub verified: Option<Verified>,
    /// Files of other runs beside these whose names make them look like a part of the same model.
    pub beside: Vec<PathBuf>,
    /// What killed runs had left in the folder.
    pub leftovers: sys::Leftovers,
}

impl Written {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Checks everything that can be known before the long work, and says what would be written.
///
/// The choice of experts is possible; no output is a file of the model, by whatever name; no output exists, unless it
/// may be replaced; the folder takes files; there is room; the model is what it was when it was opened. What killed runs
/// left in the folder is removed.
pub fn check(cut: &Cut<'_>, output: &Path, options: &Options) -> Result<PlannedFiles, SliceError> {
    check_alignment(cut.model)?;
    let impossible = |error| SliceError::Shape { path: cut.model.path().to_owned(), error };
    let shape = PrunedShape::new(cut.model, cut.experts, cut.keep, &cut.provenance).map_err(impossible)?;
    let shapes = shape.files(options.shards).map_err(impossible)?;
    let paths = output_paths(output, shapes.len())?;
    output::check_not_source(&paths, cut.model)?;
    // Written, compared, and opened by their names.
    sys::ensure_descriptors(3 * paths.len() as u64)?;
    let targets = sys::check_targets(&paths, options.force)?;
    let folder = targets.first().map_or_else(|| PathBuf::from("."), |target| sys::folder_of(target));
    // A folder that cannot be listed may take files all the same.
    let leftovers = sys::remove_leftovers(&folder).unwrap_or_default();
    let files: Vec<_> =
        paths.into_iter().zip(&shapes).map(|(path, shape)| (path, shape.layout.file_bytes())).collect();
    let sizes: Vec<_> = files.iter().map(|(path, bytes)| (path.as_path(), *bytes)).collect();
    let free = sys::check_room(&folder, &sizes)?;
    cut.model.check_unchanged()?;
    Ok(PlannedFiles { files, free, leftovers, shapes, ids: shape.ids })
}

/// Writes the pruned model to `output`, or to shards named after it; [`check`] is part of it.
///
/// What was written gets its name when it is whole on the disk and, with [`Options::verify`], was read back from there
/// and found to be a true cut; what is on the disk already is read back while the rest is written. On any error but
/// those that say otherwise, the outputs are as they were before.
pub fn prune(
    cut: &Cut<'_>,
    output: &Path,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Written, SliceError> {
    let PlannedFiles { files, shapes, ids, leftovers, .. } = check(cut, output, options)?;
    let begin = Instant::now();
    let outputs = create(cut, &files, &shapes, options)?;
    let (duration, verified) = match options.verify {
        true => {
            let (duration, verified) = write_and_compare(cut, &outputs, &shapes, options, progress)?;
            (duration, Some(verified))
        }
        false => {
            stage(progress, "writing", Unit::Bytes, |progress| {
                write(cut, &outputs, &shapes, None, options.interrupt, progress)
            })?;
            let duration = begin.elapsed();
            for (file, shape) in outputs.iter().zip(&shapes) {
                check_written(&Header::parse(file.file(), file.target())?, file, shape)?;
            }
            (duration, None)
        }
    };
    cut.model.check_unchanged()?;
    options.interrupt.check()?;
    commit_all(outputs)?;
    reopen(&files)?;
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    let beside = output::beside(&paths, cut.model);
    Ok(Written { files, ids, duration, verified, beside, leftovers })
}

/// Creates the files under hidden names, with all of their room taken and their headers written.
fn create(
    cut: &Cut<'_>,
    files: &[(PathBuf, u64)],
    shapes: &[FileShape],
    options: &Options,
) -> Result<Vec<AtomicFile>, SliceError> {
    let mut outputs = Vec::with_capacity(files.len());
    for ((path, bytes), shape) in files.iter().zip(shapes) {
        let mut file = AtomicFile::create(path, options.force)?;
        if let Some(first) = cut.model.shards().first() {
            file = file.like(&first.file)?;
        }
        file.reserve(*bytes)?;
        file.write_all_at(shape.layout.header(), 0)?;
        outputs.push(file);
    }
    Ok(outputs)
}

/// Writes the tensors of the files, up to the disk.
fn write<'a>(
    cut: &'a Cut<'a>,
    outputs: &'a [AtomicFile],
    shapes: &[FileShape],
    behind: Option<&'a Frontier<'a>>,
    interrupt: Interrupt,
    progress: &'a mut dyn Progress,
) -> Result<(), SliceError> {
    let mut writer = copy::Writer::new(cut, interrupt, shapes, progress, behind);
    for (number, (file, shape)) in outputs.iter().zip(shapes).enumerate() {
        writer.write(number, file, shape)?;
    }
    for file in outputs {
        file.sync()?;
    }
    Ok(())
}

/// Writes the files and compares what lies on the disk with the model, behind the writer. Gives how long the writing
/// took.
fn write_and_compare(
    cut: &Cut<'_>,
    outputs: &[AtomicFile],
    shapes: &[FileShape],
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<(Duration, Verified), SliceError> {
    let not_true = |error| match cut.model.check_unchanged() {
        Err(changed) => changed.into(),
        Ok(()) => {
            let path = outputs.first().map_or_else(PathBuf::new, |output| output.target().to_owned());
            SliceError::NotTrue { path, error: Box::new(error) }
        }
    };
    let following = verify::Following::new(cut).map_err(not_true)?;
    let begin = Instant::now();
    let (written_in, compared) = {
        let headers = read_back(outputs, shapes, not_true)?;
        let frontier = Frontier::new(outputs, shapes.iter().map(|shape| shape.layout.file_bytes()));
        let (written, compared) = std::thread::scope(|scope| {
            let comparing = scope.spawn(|| following.compare_data(&headers, &frontier, options.interrupt));
            let writer = frontier.writer();
            let written = stage(progress, "writing", Unit::Bytes, |progress| {
                write(cut, outputs, shapes, Some(&frontier), options.interrupt, progress)
            });
            let duration = begin.elapsed();
            if written.is_ok() {
                stage(progress, "verifying", Unit::Bytes, |progress| frontier.finish(progress));
            }
            drop(writer);
            let compared = comparing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (written.map(|()| duration), compared)
        });
        let duration = written?;
        if let Some(error) = frontier.into_error() {
            return Err(error.into());
        }
        (duration, compared)
    };
    let compared = compared.map_err(|error| match error {
        VerifyError::Interrupted => SliceError::Interrupted,
        error => not_true(error),
    })?;
    // The headers once more, now that nothing is written any more.
    for (output, shape) in outputs.iter().zip(shapes) {
        sys::drop_pages(output.file(), 0, shape.layout.data_offset().next_multiple_of(behind::STRETCH));
    }
    let written = read_back(outputs, shapes, not_true)?;
    let after = begin.elapsed().saturating_sub(written_in);
    let verified = following.finish(&written, compared, after).map_err(not_true)?;
    Ok((written_in, verified))
}

/// Opens the files under their hidden names, and checks that their headers are those that were written.
fn read_back(
    outputs: &[AtomicFile],
    shapes: &[FileShape],
    not_true: impl FnOnce(VerifyError) -> SliceError,
) -> Result<Model, SliceError> {
    let mut files = Vec::with_capacity(outputs.len());
    for output in outputs {
        let file = output.file().try_clone().map_err(|error| output.write_error(error))?;
        files.push((output.target().to_owned(), file));
    }
    let model = Model::of_files(files).map_err(|error| not_true(error.into()))?;
    for ((shard, output), shape) in model.shards().iter().zip(outputs).zip(shapes) {
        check_written(&shard.header, output, shape)?;
    }
    Ok(model)
}

/// Refuses a model whose cut llama.cpp might not load: it maps a file only when its data begin at a safe multiple,
/// which fewer experts may move them away from.
fn check_alignment(model: &Model) -> Result<(), SliceError> {
    let alignment = model.alignment();
    if alignment < SAFE_ALIGNMENT {
        return Err(SliceError::Alignment { path: model.path().to_owned(), alignment });
    }
    Ok(())
}

/// Checks that the header that was read back is the one that was written, and the file as long as it should be.
fn check_written(header: &Header, file: &AtomicFile, shape: &FileShape) -> Result<(), SliceError> {
    header.check_data(file.file(), file.target())?;
    let size = file.file().metadata().map_err(|source| file.write_error(source))?.len();
    let layout = &shape.layout;
    // Without tensors there is no data section, wherever the header's padding ends.
    let same = size == layout.file_bytes()
        && (header.tensors.is_empty() || header.data_offset == layout.data_offset())
        && header.metadata == shape.metadata
        && header.tensors == layout.tensors();
    if same { Ok(()) } else { Err(SliceError::ReadBack { path: file.target().to_owned() }) }
}

/// Opens the finished model as everybody else would.
fn reopen(files: &[(PathBuf, u64)]) -> Result<(), SliceError> {
    let Some((first, _)) = files.first() else { return Ok(()) };
    let in_place = |error: String| SliceError::InPlace { path: first.clone(), error };
    let model = Model::open(first).map_err(|error| in_place(error.to_string()))?;
    let sizes: Vec<u64> = model.shards().iter().map(|shard| shard.size).collect();
    let same = sizes.iter().eq(files.iter().map(|(_, bytes)| bytes));
    if same { Ok(()) } else { Err(in_place("another process replaced it".to_owned())) }
}

impl From<FileError> for SliceError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<Interrupted> for SliceError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
