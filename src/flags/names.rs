//! The names of llama.cpp's flags, as they stand on a command line.

use std::ffi::OsString;

/// Short flags of several letters, which the usual rules would read as several flags of one letter, and other names of
/// flags: each with our long name.
const NAMES: [(&str, &str); 31] = [
    ("-cmoe", "--cpu-moe"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-dev", "--device"),
    ("-fa", "--flash-attn"),
    ("-fit", "--fit"),
    ("-fitt", "--fit-target"),
    ("-hf", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hfr", "--hf-repo"),
    ("-kvo", "--kv-offload"),
    ("-kvu", "--kv-unified"),
    ("-lm", "--load-mode"),
    ("-mg", "--main-gpu"),
    ("-ncffn", "--n-cpu-ffn"),
    ("-ncmoe", "--n-cpu-moe"),
    ("-ngl", "--gpu-layers"),
    ("-nkvo", "--kv-offload=off"),
    ("-no-kvu", "--kv-unified=off"),
    ("-nr", "--repack=off"),
    ("-ot", "--override-tensor"),
    ("-sm", "--split-mode"),
    ("-tb", "--threads-batch"),
    ("-ts", "--tensor-split"),
    ("-ub", "--ubatch-size"),
    ("--chat-template-file", "--chat-template"),
    ("--n-gpu-layers", "--gpu-layers"),
    ("--no-kv-offload", "--kv-offload=off"),
    ("--no-kv-unified", "--kv-unified=off"),
    ("--no-op-offload", "--op-offload=off"),
    ("--no-repack", "--repack=off"),
];

/// Flags of older llama.cpp, and what stands in their place.
const REPLACED: [(&str, &str); 5] = [
    ("--mlock", "--load-mode mlock"),
    ("--mmap", "--load-mode mmap"),
    ("--no-mmap", "--load-mode none"),
    ("--direct-io", "--load-mode dio"),
    ("-dio", "--load-mode dio"),
];

/// Flags of llama.cpp's tools that moeslice does not take, one a line.
const OTHERS: &str = include_str!("other-names.txt");

/// Reads llama.cpp's variables of the environment as it does: `LLAMA_ARG_NO_X` stands for `LLAMA_ARG_X=off`, whatever its
/// value. An empty variable is none. To be called before there are threads.
#[cfg(feature = "llama")]
pub fn settle_variables() {
    crate::sys::remove_empty_variables("LLAMA_ARG_");
    for name in ["KV_OFFLOAD", "KV_UNIFIED", "REPACK"] {
        crate::sys::replace_variable(&format!("LLAMA_ARG_NO_{name}"), &format!("LLAMA_ARG_{name}"), "off");
    }
}

/// Replaces llama.cpp's names by ours, up to a `--`.
///
/// # Errors
/// Names a flag that would be read as something else.
pub fn translate(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut rest = false;
    let mut rename = |argument: OsString| {
        rest |= argument == "--";
        let Some(text) = argument.to_str().filter(|text| !rest && text.starts_with('-')) else {
            return Ok(argument);
        };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // As llama.cpp does with its long names.
        let name = if name.starts_with("--") { name.replace('_', "-") } else { name.to_owned() };
        if let Some((_, instead)) = REPLACED.iter().find(|(old, _)| *old == name) {
            return Err(format!("{name} is now {instead}"));
        }
        let several_letters = !name.starts_with("--") && name.len() > 2;
        if let Some(why) = refusal(&name).filter(|_| several_letters) {
            return Err(why);
        }
        let long = NAMES.iter().find(|(other, _)| *other == name).map_or(name.as_str(), |(_, long)| long);
        Ok(value.map_or_else(|| long.into(), |value| format!("{long}={value}").into()))
    };
    arguments.into_iter().map(&mut rename).collect()
}

/// What to say of a flag that is unknown here and known to llama.cpp.
pub fn refusal(name: &str) -> Option<String> {
    OTHERS
        .lines()
        .any(|other| other == name)
        .then(|| format!("{name} is a flag of llama.cpp's tools that has no meaning here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(arguments: &[&str]) -> Result<Vec<String>, String> {
        let translated = translate(arguments.iter().map(OsString::from))?;
        Ok(translated.into_iter().map(|argument| argument.into_string().unwrap()).collect())
    }

    #[test]
    fn the_names_of_llama_cpp_become_ours() {
        let given = ["-tb", "4", "-ub=64", "-ngl", "-1", "--ctx_size", "128", "-no-kvu", "-nkvo"];
        let ours = ["--threads-batch", "4", "--ubatch-size=64", "--gpu-layers", "-1", "--ctx-size", "128"];
        let ours: Vec<&str> = ours.into_iter().chain(["--kv-unified=off", "--kv-offload=off"]).collect();
        assert_eq!(translated(&given).unwrap(), ours);
        assert_eq!(translated(&["-f", "a_b", "--", "-tb"]).unwrap(), ["-f", "a_b", "--", "-tb"]);
    }

    #[test]
    fn flags_without_meaning_here_are_named_as_such() {
        assert!(translated(&["-np", "4"]).unwrap_err().contains("-np is a flag of llama.cpp's"));
        assert!(translated(&["--no-mmap"]).unwrap_err().contains("--load-mode none"));
        // A flag of one letter may be one of ours: the parser says whether it is.
        assert_eq!(translated(&["-p", "x"]).unwrap(), ["-p", "x"]);
        assert!(refusal("--rope-scaling").is_some() && refusal("--nonsense").is_none());
    }

    #[test]
    fn no_name_is_taken_and_refused() {
        assert!(OTHERS.lines().count() > 300 && OTHERS.lines().is_sorted());
        assert!(NAMES.iter().all(|(name, _)| refusal(name).is_none()));
    }
}
