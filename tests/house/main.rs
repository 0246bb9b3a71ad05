//! The rules of the house (`docs/architecture.md`), held to what stands in `src/`: who may know whom, how large files
//! and folders grow, and where `unsafe` may stand.

mod imports;
mod source;

use imports::House;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const MAX_FILE_LINES: usize = 400;
const MAX_FOLDER_LINES: usize = 3_300;

/// The sources of this repository.
static HOUSE: LazyLock<House> = LazyLock::new(read);

fn read() -> House {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src/ can be listed") {
            let path = entry.expect("src/ can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                files.insert(path.strip_prefix(&root).expect("it lies in src/").to_owned(), text);
            }
        }
    }
    assert!(files.len() > 50, "src/ holds {} files only", files.len());
    House::new(files)
}

/// A house of a few made-up files.
fn made_up(files: &[(&str, &str)]) -> House {
    House::new(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect())
}

#[track_caller]
fn none(what: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{what}:\n  {}", breaches.join("\n  "));
}

#[test]
fn every_room_has_its_place_in_the_order() {
    none("rooms without a place in imports::ORDER", &HOUSE.rooms_without_place());
}

#[test]
fn rooms_know_only_the_rooms_before_them() {
    none("imports against the order of knowledge", &HOUSE.against_the_order());
}

#[test]
fn no_two_files_import_each_other() {
    none("files that import each other", &HOUSE.circles());
}

#[test]
fn files_and_folders_stay_small() {
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    let mut breaches = Vec::new();
    for (path, lines) in HOUSE.lines() {
        if lines > MAX_FILE_LINES {
            breaches.push(format!("{}: {lines} lines, {MAX_FILE_LINES} at most", path.display()));
        }
        for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            *folders.entry(folder).or_default() += lines;
        }
    }
    for (folder, lines) in folders {
        if lines > MAX_FOLDER_LINES {
            breaches.push(format!("{}/: {lines} lines, {MAX_FOLDER_LINES} at most", folder.display()));
        }
    }
    none("too large, tests not counted", &breaches);
}

#[test]
fn unsafe_stands_only_in_llama_and_sys() {
    none("unsafe", &HOUSE.unsafe_outside(&["llama", "sys"]));
}

#[test]
fn an_import_to_the_right_is_found_however_it_is_written() {
    for breach in [
        "use crate::cli::console;",
        "use crate::{gguf::Model, cli::{console, Console}};",
        "use super::super::cli;",
        "fn f() { crate::cli::console::say(1); }",
        "fn f(c: &crate::Console) {}",
        "mod inner { use super::super::super::cli::Console; }",
        "/* /* nested */ */ const C: char = '\"'; use crate::cli; // \"",
        "const R: &str = r#\"a \" b\"#; use crate::cli;",
        "#[cfg(test)] use crate::cli; fn f<'a>(x: &'a str) { crate::cli::main() }",
    ] {
        let house = made_up(&[
            ("lib.rs", "pub use cli::Console;"),
            ("moe/mod.rs", ""),
            ("moe/kept.rs", breach),
            ("cli/mod.rs", "pub struct Console;"),
            ("cli/console.rs", ""),
        ]);
        assert_eq!(house.against_the_order(), ["moe/kept.rs uses cli"], "{breach}");
    }
}

#[test]
fn comments_strings_and_tests_are_no_imports() {
    for harmless in [
        "// use crate::cli;",
        "/* crate::cli::main() */",
        "//! [`crate::cli`]",
        "const S: &str = \"use crate::cli;\";",
        "const S: &str = r##\"crate::cli::main\"# \"##;",
        "#[cfg(test)] mod tests { use crate::cli; fn f() { crate::cli::main() } }",
        "#[cfg(test)] mod checks;",
        "use crate::sys::FileId;",
        "use crate::moe::KeptExperts;",
    ] {
        let house = made_up(&[
            ("lib.rs", ""),
            ("sys/mod.rs", ""),
            ("moe/mod.rs", "mod kept;"),
            ("moe/kept.rs", harmless),
            ("moe/kept/checks.rs", "use crate::cli;"),
            ("cli/mod.rs", ""),
        ]);
        // Where nobody declares it a test, the last file but one is a source like any other.
        let expected: &[&str] =
            if harmless.contains("checks") { &[] } else { &["moe/kept/checks.rs uses cli"] };
        assert_eq!(house.against_the_order(), expected, "{harmless}");
    }
}

#[test]
fn files_that_import_each_other_are_found_through_re_exports() {
    let circle = |one: &str, other: &str| {
        let files = [("lib.rs", ""), ("moe/mod.rs", "pub use kept::A; pub use count::B; fn f() {}")];
        made_up(&[files[0], files[1], ("moe/kept.rs", one), ("moe/count.rs", other)]).circles()
    };
    let found = ["moe/count.rs and moe/kept.rs"];
    assert_eq!(circle("use super::count::B;", "use super::kept::A;"), found);
    assert_eq!(circle("use super::B;", "use crate::moe::{A};"), found);
    assert_eq!(circle("use crate::moe::B as C;", "fn f() { super::kept::A::new() }"), found);
    // A folder and its own files count as one.
    assert!(circle("use super::f;", "use super::kept::A;").is_empty());
}

#[test]
fn lines_of_tests_are_not_counted() {
    let house = made_up(&[
        ("lib.rs", "a\n\n#[cfg(test)]\nmod tests {\n\n}\nb\n"),
        ("moe/tests.rs", "a\nb\n"),
        ("moe/tests/more.rs", "a\n"),
    ]);
    assert_eq!(house.lines().collect::<Vec<_>>(), [(Path::new("lib.rs"), 3)]);
}

#[test]
fn unsafe_is_found_in_code_and_not_in_words() {
    let house = made_up(&[
        ("moe/mod.rs", "// unsafe\n#![deny(unsafe_op_in_unsafe_fn)]\nconst S: &str = \"unsafe\";"),
        ("moe/kept.rs", "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }"),
        ("sys/mod.rs", "unsafe fn f() {}"),
    ]);
    assert_eq!(house.unsafe_outside(&["llama", "sys"]), ["moe/kept.rs:1"]);
}
