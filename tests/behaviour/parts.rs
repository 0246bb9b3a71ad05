//! A profile that is shared out, and put together again.

use crate::support::{demo, folder, moeslice, refuses, repository, succeeds};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn profile(output: &Path, extra: &[&str]) -> assert_cmd::Command {
    let mut command = moeslice();
    command.args(["profile", "-dev", "none", "-t", "1", "-c", "64", "-b", "256", "-m"]).arg(demo());
    command.arg("-f").arg(repository("corpora/dev")).arg("-f").arg(repository("corpora/family"));
    command
        .args(["--chunks", "21", "--score-data", "full", "--holdout", "20%", "-o"])
        .arg(output)
        .args(extra);
    command
}

fn merge(parts: &[&str], folder: &Path, output: &str) -> assert_cmd::Command {
    let mut command = moeslice();
    command.arg("merge").args(parts.iter().map(|name| folder.join(name))).arg("-o").arg(folder.join(output));
    command
}

/// The usage without what differs between two runs over the same input.
fn figures(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut usage: Value = serde_json::from_str(&text).unwrap();
    usage.as_object_mut().unwrap().remove("run").unwrap();
    // Numbers of equal text are equal in every bit.
    usage.to_string()
}

#[test]
fn parts_of_a_run_make_the_same_usage_as_the_run() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    succeeds(&mut profile(&at("whole.json"), &[]));
    std::thread::scope(|scope| {
        for part in 1..=4 {
            let output = at(&format!("{part}.json"));
            scope.spawn(move || succeeds(&mut profile(&output, &["--part", &format!("{part}/4")])));
        }
    });
    let part: Value = serde_json::from_slice(&fs::read(at("3.json")).unwrap()).unwrap();
    assert_eq!(
        (part["run"]["part"]["index"].as_u64(), part["run"]["part"]["of"].as_u64()),
        (Some(3), Some(4))
    );
    succeeds(&mut merge(&["3.json", "1.json", "4.json", "2.json"], folder.path(), "merged.json"));
    assert_eq!(figures(&at("merged.json")), figures(&at("whole.json")));
    let merged: Value = serde_json::from_slice(&fs::read(at("merged.json")).unwrap()).unwrap();
    assert_eq!(merged["run"]["merged_from"].as_array().unwrap().len(), 4);
    assert_eq!(merged["run"]["part"], Value::Null);

    // What does not make a whole.
    let joins =
        |parts: &[&str], words: &[&str]| refuses(&mut merge(parts, folder.path(), "no.json"), 3, words);
    joins(&["1.json", "4.json"], &["of 4 parts, 2, 3 are missing"]);
    joins(&["1.json", "2.json", "4.json", "2.json"], &["are both part 2 of 4"]);
    succeeds(&mut profile(&at("other.json"), &["--part", "3/4", "-ub", "32"]));
    joins(&["1.json", "2.json", "other.json", "4.json"], &["-ub is 32", "64 in the second"]);
    succeeds(&mut profile(&at("fa.json"), &["--part", "3/4", "-fa", "off"]));
    joins(&["1.json", "2.json", "fa.json", "4.json"], &["flash-attn=off"]);
    let text = fs::read_to_string(at("3.json")).unwrap();
    let text = text.replacen("\"count\": [", "\"count\": [ 1", 1);
    fs::write(at("damaged.json"), text).unwrap();
    joins(&["1.json", "2.json", "damaged.json", "4.json"], &["damaged.json"]);

    let text = fs::read_to_string(at("3.json")).unwrap();
    fs::write(at("many.json"), text.replacen("\"of\": 4", "\"of\": 4294967295", 1)).unwrap();
    joins(&["1.json", "many.json"], &["run.part is 3 of 4294967295"]);

    // A part that is used for the whole.
    let mut plan = moeslice();
    let output = plan.arg("plan").arg(at("2.json")).arg("-m").arg(demo()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("part 2 of 4 of a run"), "{said}");
}

#[test]
fn part_that_cannot_be_is_refused() {
    let folder = folder();
    let output = folder.path().join("u.json");
    for part in ["0/4", "5/4", "1/0", "1", "a/b", "1/4/4", "-1/4"] {
        refuses(profile(&output, &[]).arg(format!("--part={part}")), 2, &["such as 2/4"]);
    }
    refuses(&mut profile(&output, &["--part", "1/500"]), 3, &["cannot be shared out among 500"]);
    refuses(&mut profile(&output, &["--part", "1/2", "--generate", "4"]), 2, &["--generate"]);
}
