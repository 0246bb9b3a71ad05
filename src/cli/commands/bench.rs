//! `moeslice bench`: how fast models are, side by side.

use crate::bench::{self, BenchOptions, Format, Subject, Test};
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{Console, print, print_styled};
use crate::flags::llama::LlamaFlags;
use crate::flags::selection::{SelectionFlags, open_usage};
use crate::gguf;
use crate::llama::{Model, Placement};
use crate::moe::{MoeModel, ShardPolicy};
use crate::plan::KeepTarget;
use crate::progress::{Interrupt, Unit, stage};
use crate::report::fitting;
use crate::slice::{self, Cut, Options};
use crate::sys::{self, catch_interrupts};
use clap::Args;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// A model, a GGUF file; give several to compare them with the first
    #[arg(short, long = "model", value_name = "MODEL", required = true)]
    pub models: Vec<PathBuf>,
    /// Tokens of the prompts
    #[arg(short = 'p', long, value_name = "N,…", value_delimiter = ',', default_value = "512", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub n_prompt: Vec<u32>,
    /// Tokens that are generated
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "128", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub n_gen: Vec<u32>,
    /// How often each test is taken
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Also bench cuts of the model with so many experts, which are written to a temporary folder
    #[arg(long, value_name = "K,…", value_delimiter = ',', requires = "usage")]
    pub keep: Vec<KeepTarget>,
    /// The usage file that the cuts are chosen by
    #[arg(long, value_name = "U.json", requires = "keep")]
    pub usage: Option<PathBuf>,
    /// Form of the rows: md, csv, json or jsonl; default: md, and on a terminal a table as wide as that
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// The file to write; default: stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub choose: SelectionFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `bench`.
pub fn bench(args: &BenchArgs, console: Console) -> Result<(), Failure> {
    let tests: Vec<Test> = args.n_prompt.iter().copied().filter(|&n| n > 0).map(Test::prompt).collect();
    let tests: Vec<Test> = tests
        .into_iter()
        .chain(args.n_gen.iter().copied().filter(|&n| n > 0).map(Test::generation))
        .collect();
    if tests.is_empty() {
        return Err(Failure::arguments("-p 0 and -n 0 leave nothing to measure"));
    }
    if !args.keep.is_empty() && args.models.len() > 1 {
        return Err(Failure::arguments("--keep cuts one model: give one -m"));
    }
    let files = args.models.iter().map(|path| gguf::Model::open(path).map_err(Failure::input));
    let files = files.collect::<Result<Vec<_>, Failure>>()?;
    let output = args.output.as_ref().filter(|output| *output != Path::new("-"));
    if let Some(output) = output {
        let mut outputs = OutputFiles::default();
        outputs.add_small(output, args.force)?;
        let shards = files.iter().flat_map(gguf::Model::shards).map(|shard| shard.path.as_path());
        outputs.check_inputs(shards.chain(args.usage.as_deref()))?;
    }
    let interrupt = catch_interrupts();
    let cuts = Cuts::write(args, console, interrupt)?;
    let backend = args.llama.start()?;
    let placement = args.llama.placement(backend, console)?;
    let mut subjects: Vec<Subject> = files.iter().map(|file| subject(file, &placement)).collect();
    for path in &cuts.paths {
        subjects.push(subject(&gguf::Model::open(path).map_err(Failure::running)?, &placement));
    }
    let options = BenchOptions {
        tests,
        repetitions: args.repetitions,
        batch_size: args.llama.batch_size,
        ubatch_size: args.llama.ubatch_size.min(args.llama.batch_size),
        n_cpu_moe: args.llama.n_cpu_moe.unwrap_or(0),
        settings: args.llama.settings(interrupt),
    };
    if !args.llama.no_memory_check {
        // One model is in memory at a time.
        for Subject { path, placement, .. } in &subjects {
            let mut contexts = |_: &Model| Ok(vec![bench::bench_contexts(&options)]);
            let demand = args.llama.demand(backend, path, placement, &mut contexts, (console, interrupt))?;
            demand.map_or(Ok(()), |demand| args.llama.check_memory(path, &demand, console))?;
        }
    }
    let benches = stage(&mut *console.progress(), "benching", Unit::Tokens, |progress| {
        bench::bench(backend, &subjects, &options, progress)
    });
    let benches = benches.map_err(|error| match error {
        error if error.is_interrupt() => Failure::Interrupted,
        error => Failure::running(error),
    })?;
    let style = console.style();
    if args.format.is_none() && output.is_none() && style.graphics {
        return Ok(print_styled(&fitting(&style, &bench::COLUMNS, &bench::rows(&benches), (3, 1)))?);
    }
    let text = args.format.unwrap_or_default().text(&benches, &options, backend);
    let Some(output) = output else { return Ok(print(&text)?) };
    write_small(output, text.as_bytes(), args.force, console)?;
    console.remark(&format!("wrote {}", output.display()));
    Ok(())
}

fn subject(file: &gguf::Model, placement: &Placement) -> Subject {
    let first = file.shards().first().map_or(file.path(), |shard| shard.path.as_path());
    Subject {
        name: sys::name_of(first),
        path: first.to_owned(),
        file_bytes: file.total_bytes(),
        placement: placement.clone(),
    }
}

/// Cuts that are gone when this is dropped.
struct Cuts {
    _folder: Option<TempDir>,
    paths: Vec<PathBuf>,
}

impl Cuts {
    /// Writes the cuts that `--keep` names, once it is known that the disk has room for them all.
    fn write(args: &BenchArgs, console: Console, interrupt: Interrupt) -> Result<Cuts, Failure> {
        let (Some(usage), Some(path)) = (&args.usage, args.models.first()) else {
            return Ok(Cuts { _folder: None, paths: Vec::new() });
        };
        let model = MoeModel::open(path).map_err(Failure::input)?;
        let usage = open_usage(usage, &model, console)?;
        let selection = args.choose.selection();
        let mut plans = Vec::new();
        for keep in &args.keep {
            plans.push(selection.plan(&model, &usage, keep, ShardPolicy::Single)?);
        }
        let folder = tempfile::tempdir().map_err(Failure::running)?;
        let stem = model.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let paths: Vec<PathBuf> =
            plans.iter().map(|plan| folder.path().join(format!("{stem}-{}e.gguf", plan.k))).collect();
        let provenance = model.provenance("bench", "bench", Vec::new());
        let sizes = plans.iter().map(|plan| model.cut_bytes(plan.k, &provenance, ShardPolicy::Single));
        let sizes = sizes.collect::<Result<Vec<u64>, _>>().map_err(Failure::input)?;
        let files: Vec<(&Path, u64)> = paths.iter().map(PathBuf::as_path).zip(sizes).collect();
        sys::check_room(folder.path(), &files).map_err(Failure::running)?;
        for (plan, path) in plans.iter().zip(&paths) {
            let cut = Cut {
                model: &model.file,
                experts: model.written(),
                keep: &plan.keep,
                provenance: provenance.clone(),
            };
            // Equal numbers of experts would be one file. Only its speed is of interest, which no fault of a disk changes.
            let options = Options { force: true, shards: ShardPolicy::Single, verify: false, interrupt };
            slice::prune(&cut, path, &options, &mut *console.progress())
                .map_err(crate::flags::output::slice_failure)?;
        }
        Ok(Cuts { _folder: Some(folder), paths })
    }
}
