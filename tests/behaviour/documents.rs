//! What the program prints about itself: completions and the manual page.

use crate::support::{moeslice, refuses, succeeds};

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = succeeds(moeslice().arg("--help"));
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<String> = list
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    assert!(names.iter().any(|name| name == "prune"), "{help}");
    names
}

#[test]
fn completions_of_each_shell_name_every_command_and_long_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeeds(moeslice().args(["completions", shell]));
        for name in commands().iter().map(String::as_str).chain(["always-keep", "shards"]) {
            assert!(script.contains(name), "{shell}: {name} is missing");
        }
    }
}

#[cfg(unix)]
#[test]
fn bash_completes_a_command_and_its_flags() {
    let Ok(found) = std::process::Command::new("bash").arg("--version").output() else { return };
    assert!(found.status.success());
    let script = succeeds(moeslice().args(["completions", "bash"]));
    let complete = |words: &str, at: u32| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={at}\n\
             _moeslice moeslice \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{}]}}\"; echo \"${{COMPREPLY[@]}}\"",
            at - 1
        );
        let output = std::process::Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("moeslice ver", 1), "verify");
    assert_eq!(complete("moeslice prune --alw", 2), "--always-keep");
}

#[test]
fn completions_for_an_unknown_shell_are_refused_with_the_known_ones() {
    refuses(moeslice().args(["completions", "csh"]), 2, &["csh", "bash", "zsh"]);
}

#[test]
fn the_manual_page_has_a_name_and_a_section_for_every_command() {
    let page = succeeds(moeslice().arg("man"));
    assert!(page.contains(".TH moeslice 1"), "{page}");
    assert!(page.contains(".SH NAME\nmoeslice"), "{page}");
    for name in commands() {
        assert!(
            page.contains(&format!(".SH \"MOESLICE {}\"", name.to_uppercase())),
            "{name} is missing in: {page}"
        );
    }
    for words in ["\\-\\-always\\-keep", "Exit codes"] {
        assert!(page.contains(words), "{words} is missing in: {page}");
    }
}
