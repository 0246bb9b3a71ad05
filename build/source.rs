//! Where the llama.cpp source comes from.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A llama.cpp source tree.
pub struct Source {
    pub folder: PathBuf,
    /// Whether the files can change under the same path (a checkout), or never do (an unpacked package).
    pub mutable: bool,
}

/// The manifest and lock file of the package that carries the source.
const PIN: &str = "native/llama-source.toml";
const PIN_LOCK: &str = "native/llama-source.lock";

/// `LLAMA_CPP_DIR`, else the submodule when it is populated, else the tree in the pinned package.
pub fn find() -> Result<Source, String> {
    println!("cargo:rerun-if-env-changed=LLAMA_CPP_DIR");
    println!("cargo:rerun-if-changed={PIN}");
    println!("cargo:rerun-if-changed={PIN_LOCK}");
    if let Some(folder) = env::var_os("LLAMA_CPP_DIR").map(PathBuf::from) {
        if !is_tree(&folder) {
            return Err(format!(
                "LLAMA_CPP_DIR={} holds no llama.cpp source (no include/llama.h)",
                folder.display()
            ));
        }
        return Ok(watched(folder));
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let submodule = root.join("llama.cpp");
    if is_tree(&submodule) {
        return Ok(watched(submodule));
    }
    let folder = pinned_package(&root)?.join("llama.cpp");
    if !is_tree(&folder) {
        return Err(format!("the pinned package holds no llama.cpp source in {}", folder.display()));
    }
    Ok(Source { folder, mutable: false })
}

fn is_tree(folder: &Path) -> bool {
    folder.join("include/llama.h").is_file() && folder.join("ggml/CMakeLists.txt").is_file()
}

fn watched(folder: PathBuf) -> Source {
    let folder = folder.canonicalize().unwrap_or(folder);
    for part in ["CMakeLists.txt", "include", "src", "ggml", "common"] {
        println!("cargo:rerun-if-changed={}", folder.join(part).display());
    }
    Source { folder, mutable: true }
}

/// Lays the pin out as a package that Cargo can be asked about. It cannot lie in the sources in this form: `cargo package`
/// leaves out every folder that holds a `Cargo.toml`.
fn lay_out_pin(root: &Path) -> std::io::Result<PathBuf> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("llama-source");
    fs::create_dir_all(out.join("src"))?;
    fs::write(out.join("src/lib.rs"), "")?;
    // Not `copy`: the files of an unpacked package may be read-only, and their copies would be so too.
    fs::write(out.join("Cargo.lock"), fs::read(root.join(PIN_LOCK))?)?;
    let manifest = out.join("Cargo.toml");
    fs::write(&manifest, fs::read(root.join(PIN))?)?;
    Ok(manifest)
}

/// The folder into which Cargo unpacked `llama-cpp-sys-4`, which it downloads and checks against [`PIN_LOCK`] when it is
/// not there yet.
fn pinned_package(root: &Path) -> Result<PathBuf, String> {
    const PACKAGE: &str = "llama-cpp-sys-4";
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest =
        lay_out_pin(root).map_err(|e| format!("cannot lay out the package pinned in {PIN}: {e}"))?;
    let metadata = |offline: bool| {
        let mut command = Command::new(&cargo);
        command.args(["metadata", "--format-version", "1", "--locked", "--manifest-path"]).arg(&manifest);
        if offline {
            command.arg("--offline");
        }
        // The outer build's target and flags say nothing about where a package lies.
        command
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
    };
    let failed = |e: std::io::Error| format!("cannot run {} metadata: {e}", Path::new(&cargo).display());
    let mut output = metadata(true).map_err(failed)?;
    if !output.status.success() {
        output = metadata(false).map_err(failed)?;
    }
    if !output.status.success() {
        return Err(format!(
            "Cargo could not fetch the package that carries the llama.cpp source ({PACKAGE}).\n\
             Set LLAMA_CPP_DIR to a checkout of llama.cpp v0.8.0, or run scripts/llama-submodule. Cargo said:\n{}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        ));
    }
    let parsed: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    parsed["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == PACKAGE)
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).parent().map(Path::to_owned))
        .ok_or_else(|| format!("cargo metadata does not list {PACKAGE}"))
}
