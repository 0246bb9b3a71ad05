//! `moeslice prune` killed with SIGKILL, at moments spread over its whole run.

use crate::support::{folder, moeslice, succeeds, variant, write_usage};
use moeslice::gguf::TensorInfo;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The demo model with experts that are so many times as wide.
fn wide_model(path: &Path, times: u64) {
    variant(path, |_, tensors| {
        let mut number = 1_u64;
        for (info, bytes) in tensors.iter_mut().filter(|(info, _)| info.name.contains("_exps")) {
            let mut dims = info.dims.clone();
            dims[1] *= times;
            *info = TensorInfo::new(info.name.clone(), dims, info.ty).unwrap();
            bytes.clear();
            let len = usize::try_from(info.bytes()).unwrap();
            while bytes.len() < len {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.extend(number.to_le_bytes());
            }
            bytes.truncate(len);
        }
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Kills as many cuts of a model so wide; every other one has an older output in its place. `shards` is the value of
/// the flag.
fn kill_many(times: u64, kills: u32, shards: &str) {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    wide_model(&at("base.gguf"), times);
    write_usage(&at("u.json"), &at("base.gguf"), |layer, expert| 1 + u64::from((expert + layer) % 2) * 9);
    let source = fs::read(at("base.gguf")).unwrap();
    let command = |output: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moeslice"));
        command.arg("prune").arg("-m").arg(at("base.gguf")).arg("--usage").arg(at("u.json"));
        command.args(["--keep", "16", "--force", "--shards", shards, "-o"]).arg(output);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let prune = |output: &Path| {
        let begin = Instant::now();
        assert!(command(output).status().unwrap().success());
        begin.elapsed()
    };
    // What a cut that nobody kills writes, and how long it takes once the cache is warm.
    fs::create_dir(at("whole")).unwrap();
    prune(&at("whole/cut.gguf"));
    let mut whole_run = prune(&at("whole/cut.gguf"));
    let whole: Vec<_> = names(&at("whole"))
        .into_iter()
        .map(|name| (fs::read(at("whole").join(&name)).unwrap(), name))
        .collect();
    fs::create_dir(at("out")).unwrap();
    let out = at("out");
    let (mut runs, mut killed, mut none, mut all, mut left) = (0, 0, 0, 0, 0);
    while killed < kills {
        assert!(runs < 10 * kills, "of {runs} runs only {killed} were killed in time");
        if runs % 2 == 0 {
            names(&out).iter().for_each(|name| fs::remove_file(out.join(name)).unwrap());
        }
        runs += 1;
        let mut child = command(&out.join("cut.gguf")).spawn().unwrap();
        let begin = Instant::now();
        let moment = whole_run.mul_f64(f64::from(killed) / f64::from(kills));
        while begin.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        if child.wait().unwrap().code().is_none() {
            killed += 1;
        } else {
            // It was faster than thought: the same moment once more.
            whole_run = (whole_run + begin.elapsed()) / 2;
        }

        let found = names(&out);
        let visible: BTreeSet<_> = found.iter().filter(|name| !name.starts_with('.')).collect();
        left += u32::from(found.len() > visible.len());
        // Between the first rename and the last of several shards a few are visible, and rolled back by the next run.
        if found.iter().all(|name| !name.ends_with(".commit")) {
            assert!(visible.is_empty() || visible.len() == whole.len(), "{found:?}");
        }
        for (bytes, name) in &whole {
            let path = out.join(name);
            assert!(
                !path.exists() || fs::read(path).unwrap() == *bytes,
                "{name} is neither whole nor absent"
            );
        }
        if visible.is_empty() {
            none += 1
        } else {
            all += 1
        }
        assert!(fs::read(at("base.gguf")).unwrap() == source, "the source has other bytes");
    }
    prune(&out.join("cut.gguf"));
    assert_eq!(
        names(&out),
        whole.iter().map(|(_, name)| name.clone()).collect(),
        "a run cleans up after dead ones"
    );
    succeeds(moeslice().arg("verify").arg(at("base.gguf")).arg(out.join(&whole[0].1)));
    println!("{runs} runs, {killed} killed: {left} left a hidden file, {none} no output, {all} a whole one");
    assert!(left > 0 && none > 0, "otherwise nothing was tested: {left} {none}");
}

#[test]
fn killed_prune_leaves_no_output_or_a_whole_one() {
    kill_many(10, 50, "single");
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn killed_prune_of_larger_model_leaves_no_output_or_a_whole_one() {
    kill_many(60, 100, "single");
}

#[test]
#[ignore = "slow: run with scripts/test --all"]
fn killed_prune_into_shards_leaves_none_or_all() {
    kill_many(60, 100, "20MiB");
}
