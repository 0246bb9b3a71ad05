//! Outputs that must not be written, and those that must not be there when something fails.

use crate::support::{demo, folder, moeslice, refuses, succeeds, write_usage};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder with a copy of the demo model and a usage of it.
fn with_model() -> TempDir {
    let folder = folder();
    fs::copy(demo(), folder.path().join("m.gguf")).unwrap();
    write_usage(&folder.path().join("u.json"), &folder.path().join("m.gguf"), |_, expert| {
        u64::from(expert) + 1
    });
    folder
}

fn prune(folder: &TempDir, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command
        .arg("prune")
        .arg("-m")
        .arg(folder.path().join("m.gguf"))
        .arg("--usage")
        .arg(folder.path().join("u.json"))
        .args(["--keep", "16", "-o"])
        .arg(output);
    command
}

#[test]
fn model_as_its_own_output_is_refused() {
    let folder = with_model();
    let at = |name: &str| folder.path().join(name);
    fs::hard_link(at("m.gguf"), at("hard.gguf")).unwrap();
    std::os::unix::fs::symlink(at("m.gguf"), at("soft.gguf")).unwrap();
    let before = fs::read(at("m.gguf")).unwrap();
    for name in ["m.gguf", "hard.gguf", "soft.gguf", "./m.gguf"] {
        refuses(prune(&folder, &at(name)).arg("--force"), 2, &["the model itself"]);
    }
    assert!(fs::read(at("m.gguf")).unwrap() == before);
}

#[test]
#[cfg(target_os = "linux")]
fn bind_mount_of_the_model_as_output_is_refused() {
    let folder = with_model();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("bind.gguf"), "").unwrap();
    fs::create_dir(at("mounted")).unwrap();
    let before = fs::read(at("m.gguf")).unwrap();
    // In a namespace of its own, where the system lets us have one.
    let mounts = "mount --bind m.gguf bind.gguf && mount --bind . mounted || exit 77; \
                  exec \"$0\" prune -m m.gguf --usage u.json --keep 16 --force -o \"$1\"";
    for output in ["bind.gguf", "mounted/m.gguf"] {
        let mut command = assert_cmd::Command::new("unshare");
        command.args([
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            mounts,
            env!("CARGO_BIN_EXE_moeslice"),
            output,
        ]);
        command.current_dir(folder.path());
        let result = command.output();
        if !matches!(&result, Ok(result) if [Some(0), Some(2)].contains(&result.status.code())) {
            eprintln!("nothing could be mounted: {result:?}");
            return;
        }
        refuses(&mut command, 2, &["the model itself"]);
        assert!(fs::read(at("m.gguf")).unwrap() == before);
    }
}

#[test]
fn existing_output_is_replaced_only_on_request() {
    let folder = with_model();
    let out = folder.path().join("out.gguf");
    fs::write(&out, "precious").unwrap();
    refuses(&mut prune(&folder, &out), 2, &["exists already", "--force"]);
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    succeeds(prune(&folder, &out).arg("--force"));
    assert!(fs::metadata(&out).unwrap().len() > 1_000_000);
}

#[test]
fn missing_output_folder_is_named() {
    let folder = with_model();
    refuses(&mut prune(&folder, &folder.path().join("no/out.gguf")), 2, &["no does not exist"]);
}

#[test]
fn output_that_does_not_fit_the_disk_leaves_nothing_behind() {
    let folder = with_model();
    let out = folder.path().join("out.gguf");
    // A limit on the size of files stands in for a full disk.
    let script = format!(
        "ulimit -f 1000; exec {} prune -m {} --usage {} --keep 16 -o {}",
        env!("CARGO_BIN_EXE_moeslice"),
        folder.path().join("m.gguf").display(),
        folder.path().join("u.json").display(),
        out.display()
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "only the model and its usage are there");
}

#[test]
fn input_as_output_is_refused() {
    let folder = with_model();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("u2.json"), fs::read(at("u.json")).unwrap()).unwrap();
    fs::write(at("p.json"), r#"{"0":[0,1,2,3],"1":[0,1,2,3],"2":[0,1,2,3],"3":[0,1,2,3]}"#).unwrap();
    fs::write(at("t.txt"), "{{ messages[0].content }}").unwrap();
    fs::write(at("c.jsonl"), r#"[{"role":"user","content":"Hi"}]"#).unwrap();
    std::os::unix::fs::symlink(at("t.txt"), at("link.txt")).unwrap();
    let before = |name: &str| fs::read(at(name)).unwrap();
    let names = ["m.gguf", "u.json", "p.json", "t.txt"];
    let contents = names.map(before);
    let refuse = |line: &str| {
        let mut command = moeslice();
        command.current_dir(folder.path()).args(line.split(' ')).arg("--force");
        refuses(&mut command, 2, &["input"]);
    };
    refuse("plan u.json -m m.gguf --keep 16 -o m.gguf");
    refuse("plan u.json -m m.gguf --keep 16 -o ./u.json");
    refuse("prune -m m.gguf --usage u.json --keep 16 -o u.json");
    refuse("prune -m m.gguf --plan p.json -o p.json");
    refuse("merge u.json u2.json -o u.json");
    #[cfg(feature = "llama")]
    for line in [
        "profile -m m.gguf -f t.txt -o m.gguf",
        "profile -m m.gguf -f t.txt -o t.txt",
        "profile -m m.gguf -f t.txt -o link.txt",
        "run -m m.gguf -f t.txt --keep 16 -o o.gguf --usage-out m.gguf",
        "run -m m.gguf -f t.txt --keep 16 -o o.gguf --usage-out t.txt",
        "run -m m.gguf -f t.txt --keep 16 -o t.txt",
        "profile -m m.gguf -f c.jsonl --chat-template t.txt -o t.txt",
        "run -m m.gguf -f c.jsonl --chat-template t.txt --keep 16 -o o.gguf --usage-out t.txt",
    ] {
        refuse(line);
    }
    assert!(names.map(before) == contents);
}

#[cfg(feature = "llama")]
#[test]
fn two_outputs_of_one_name_are_refused() {
    let folder = with_model();
    fs::write(folder.path().join("t.txt"), "text").unwrap();
    let line = "run -m m.gguf -f t.txt --keep 16 -o o.gguf --usage-out ./o.gguf --force";
    refuses(moeslice().current_dir(folder.path()).args(line.split(' ')), 2, &["same file"]);
}

#[test]
fn output_name_that_is_not_utf8_is_written_and_reported() {
    use std::os::unix::ffi::OsStrExt;
    let folder = with_model();
    let out = folder.path().join(std::ffi::OsStr::from_bytes(b"w\xFE.gguf"));
    let report = succeeds(prune(&folder, &out).arg("--json"));
    assert!(serde_json::from_str::<serde_json::Value>(&report).is_ok(), "{report}");
    assert!(out.exists());
}

#[test]
fn unread_stderr_changes_nothing() {
    let folder = with_model();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moeslice"));
    command
        .current_dir(folder.path())
        .args(["plan", "u.json", "-m", "m.gguf", "--keep", "16", "-o", "p.json"]);
    assert_eq!(command.stderr(full()).status().unwrap().code(), Some(0));
    assert!(folder.path().join("p.json").exists());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moeslice"));
    assert_eq!(command.args(["inspect", "no.gguf"]).stderr(full()).status().unwrap().code(), Some(3));
}
