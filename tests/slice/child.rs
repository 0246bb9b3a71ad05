//! A process of its own that cuts a model, for tests that take something away from it, its life included.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use moeslice::moe::ShardPolicy;
use moeslice::slice::{Options, SliceError};
use moeslice::sys::FileError;

use crate::sample::{Random, Source, names};

const MODEL: &str = "MOESLICE_TEST_MODEL";
const OUTPUT: &str = "MOESLICE_TEST_OUTPUT";
const EXPECT: &str = "MOESLICE_TEST_EXPECT";

/// What the child finds.
pub const DONE: i32 = 10;
pub const NO_ROOM: i32 = 11;
pub const SIZE_LIMIT: i32 = 12;
pub const NO_FOLDER_ACCESS: i32 = 13;
pub const OTHER: i32 = 14;
/// Something was left behind after an error.
pub const LEFTOVERS: i32 = 15;

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

/// What the parent wants of it beside.
pub fn policy(command: &mut Command, shards: ShardPolicy) -> &mut Command {
    let text = match shards {
        ShardPolicy::Size(bytes) => bytes.to_string(),
        _ => "keep".to_owned(),
    };
    command.env(EXPECT, text)
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
    let shards = match std::env::var(EXPECT).ok().and_then(|text| text.parse().ok()) {
        Some(bytes) => ShardPolicy::Size(bytes),
        None => ShardPolicy::Keep,
    };
    let source = Source::open(Path::new(&model));
    let keep = keep(&source);
    let options = Options { force: true, shards, ..Options::default() };
    let code = match source.prune(&keep, &output, &options) {
        Ok(_) => DONE,
        Err(_) if names(output.parent().unwrap()).iter().any(|name| name.contains("moeslice-")) => LEFTOVERS,
        Err(SliceError::File(FileError::NoRoom { .. })) => NO_ROOM,
        Err(SliceError::File(FileError::SizeLimit { .. })) => SIZE_LIMIT,
        Err(SliceError::File(FileError::Create { .. })) => NO_FOLDER_ACCESS,
        Err(error) => {
            eprintln!("{error}");
            OTHER
        }
    };
    std::process::exit(code);
}

/// The experts that the child keeps.
pub fn keep(source: &Source) -> moeslice::moe::Kept {
    source.random_keep(source.experts.n_expert * 3 / 4, &mut Random(77))
}
