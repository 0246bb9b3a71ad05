//! A process of its own that cuts a model, for tests that take something away from it, its life included.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use moeslice::gguf::{GgufError, Model};
use moeslice::moe::ShardPolicy;
use moeslice::slice::{Options, SliceError};
use moeslice::sys::FileError;

use crate::sample::{Random, Source, names};

const MODEL: &str = "MOESLICE_TEST_MODEL";
const OUTPUT: &str = "MOESLICE_TEST_OUTPUT";
const SHARDS: &str = "MOESLICE_TEST_SHARDS";
const UNCOMPARED: &str = "MOESLICE_TEST_UNCOMPARED";
const KEEP: &str = "MOESLICE_TEST_KEEP";
const FROM_DISK: &str = "MOESLICE_TEST_FROM_DISK";

/// Bytes of memory that a cut takes at most, whatever the model.
const MEMORY: u64 = 100_000_000;

/// What the child finds.
pub const DONE: i32 = 10;
pub const NO_ROOM: i32 = 11;
pub const SIZE_LIMIT: i32 = 12;
pub const NO_FOLDER_ACCESS: i32 = 13;
pub const OTHER: i32 = 14;
/// Something was left behind after an error.
pub const LEFTOVERS: i32 = 15;
/// The process took more memory than it may at its peak.
pub const MUCH_MEMORY: i32 = 16;
/// More files at once than the process may open.
pub const TOO_MANY_FILES: i32 = 17;
/// The process read less from the disk than it wrote, though it was to read back all of it.
pub const NOT_FROM_DISK: i32 = 18;

/// The arguments of a child that cuts `model` to `output`; the program is the test program itself.
pub fn command(model: &Path, output: &Path) -> Command {
    through(&[], model, output)
}

/// The same, started by another program that is given it as arguments.
pub fn through(starter: &[&str], model: &Path, output: &Path) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match starter.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(["--ignored", "--exact", "child::cut", "--nocapture", "--test-threads=1"]);
    command.env(MODEL, model).env(OUTPUT, output).stdout(std::process::Stdio::null());
    command
}

/// Sets how many experts of each layer the child keeps; three quarters otherwise.
pub fn keep_count(command: &mut Command, k: u32) -> &mut Command {
    command.env(KEEP, k.to_string())
}

/// Sets into shards of which size the child writes; as the source otherwise.
pub fn shard_bytes(command: &mut Command, bytes: u64) -> &mut Command {
    command.env(SHARDS, bytes.to_string())
}

/// Lets the child write without comparing, for large files.
pub fn uncompared(command: &mut Command) -> &mut Command {
    command.env(UNCOMPARED, "1")
}

/// Lets the child find out whether it read from the disk as much as it wrote.
pub fn from_disk(command: &mut Command) -> &mut Command {
    command.env(FROM_DISK, "1")
}

pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

/// The child: started by the tests only.
#[test]
#[ignore = "a part of other tests"]
fn cut() {
    let (Some(model), Some(output)) = (std::env::var_os(MODEL), std::env::var_os(OUTPUT)) else { return };
    let output = PathBuf::from(output);
    let number = |name| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let shards = number(SHARDS).map_or(ShardPolicy::Keep, ShardPolicy::Size);
    let source = match Model::open(Path::new(&model)) {
        Ok(model) => Source::of(model),
        Err(GgufError::Descriptors { .. }) => std::process::exit(TOO_MANY_FILES),
        Err(error) => panic!("{error}"),
    };
    let keep = match number(KEEP) {
        Some(k) => source.random_keep(k as u32, &mut Random(77)),
        None => keep(&source),
    };
    let verify = std::env::var_os(UNCOMPARED).is_none();
    let options = Options { force: true, shards, verify, ..Options::default() };
    let code = match source.prune(&keep, &output, &options) {
        Ok(_) if peak_memory() > MEMORY => MUCH_MEMORY,
        Ok(written) if std::env::var_os(FROM_DISK).is_some() && read_from_disk() < written.bytes() => {
            NOT_FROM_DISK
        }
        Ok(_) => DONE,
        Err(_) if names(output.parent().unwrap()).iter().any(|name| name.contains("moeslice-")) => LEFTOVERS,
        Err(SliceError::File(FileError::NoRoom { .. })) => NO_ROOM,
        Err(SliceError::File(FileError::SizeLimit { .. })) => SIZE_LIMIT,
        Err(SliceError::File(FileError::Create { .. })) => NO_FOLDER_ACCESS,
        Err(SliceError::File(FileError::Descriptors { .. })) => TOO_MANY_FILES,
        Err(error) => {
            eprintln!("{error}");
            OTHER
        }
    };
    std::process::exit(code);
}

/// The experts that the child keeps.
pub fn keep(source: &Source) -> moeslice::moe::KeptExperts {
    source.random_keep(source.experts.n_expert * 3 / 4, &mut Random(77))
}

/// Bytes that this process had the disk read.
fn read_from_disk() -> u64 {
    let told = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

/// The most memory that this process ever had, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let bytes = kibibytes.unwrap_or(0) * 1024;
    println!("peak memory {bytes} bytes");
    bytes
}
