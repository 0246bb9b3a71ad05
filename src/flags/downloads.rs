//! Models that llama.cpp or the tools of Hugging Face have downloaded: found, never fetched.

use std::env;
use std::path::{Path, PathBuf};

/// A repository of models, `USER/REPO[:QUANT]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Download {
    name: String,
    quant: Option<String>,
}

impl Download {
    /// Reads `USER/REPO[:QUANT]`.
    ///
    /// # Errors
    /// When the text is something else.
    pub fn parse(text: &str) -> Result<Download, String> {
        let (name, quant) = text.split_once(':').map_or((text, None), |(name, quant)| (name, Some(quant)));
        let parts: Vec<&str> = name.split('/').collect();
        match parts.as_slice() {
            [user, repository]
                if ![*user, *repository].iter().any(|part| part.is_empty() || part.starts_with('.')) =>
            {
                Ok(Download { name: name.to_owned(), quant: quant.map(str::to_owned) })
            }
            _ => Err(format!("{text:?} is not a repository: expected USER/REPO[:QUANT]")),
        }
    }

    /// The model, or its `file`, where llama.cpp or the tools of Hugging Face have downloaded it.
    ///
    /// # Errors
    /// When it is not there; says what fetches it.
    pub fn find(&self, file: Option<&str>) -> Result<PathBuf, String> {
        self.find_in(file, &caches())
    }

    /// The model in the first of `caches` that has it.
    fn find_in(&self, file: Option<&str>, caches: &[PathBuf]) -> Result<PathBuf, String> {
        let snapshots = caches.iter().flat_map(|cache| self.snapshots(cache));
        let found = snapshots.filter_map(|snapshot| self.choose(file, &snapshot)).next();
        found.ok_or_else(|| {
            let Download { name, quant } = self;
            let what = match (file, quant) {
                (Some(file), _) => format!("{file} of {name}"),
                (None, Some(quant)) => format!("{name} in {quant}"),
                (None, None) => name.clone(),
            };
            let pattern = file.map_or_else(|| quant.as_ref().map_or("*.gguf".into(), |quant| format!("*{quant}*")), str::to_owned);
            let places: Vec<String> = caches.iter().map(|cache| cache.display().to_string()).collect();
            format!(
                "{what} is not among the downloads in {}; fetch it with: hf download {name} --include '{pattern}'",
                places.join(", ")
            )
        })
    }

    /// The snapshots of the repository in a cache, that of the branch `main` first.
    fn snapshots(&self, cache: &Path) -> Vec<PathBuf> {
        let folder = cache.join(format!("models--{}", self.name.replace('/', "--")));
        let main = std::fs::read_to_string(folder.join("refs/main")).unwrap_or_default();
        let mut all: Vec<PathBuf> = std::fs::read_dir(folder.join("snapshots"))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        all.sort_by_key(|snapshot| (!snapshot.ends_with(main.trim()), snapshot.clone()));
        all
    }

    /// The file that llama.cpp would take: that of the quantisation, or of Q4_K_M, or of Q8_0, or else the first.
    fn choose(&self, file: Option<&str>, snapshot: &Path) -> Option<PathBuf> {
        if let Some(file) = file {
            return Some(snapshot.join(file)).filter(|path| path.is_file());
        }
        let models: Vec<String> =
            files(snapshot, snapshot, 0).into_iter().filter(|name| is_model(name)).collect();
        let quants = match &self.quant {
            Some(quant) => vec![quant.to_lowercase()],
            None => vec!["q4_k_m".to_owned(), "q8_0".to_owned()],
        };
        let has = |name: &str, quant: &str| {
            let name = name.to_lowercase();
            name.match_indices(quant)
                .any(|(at, _)| matches!(name.as_bytes().get(at + quant.len()), Some(b'.' | b'-')))
        };
        let chosen = quants.iter().find_map(|quant| models.iter().find(|name| has(name, quant)));
        let chosen = chosen.or_else(|| models.first().filter(|_| self.quant.is_none()));
        chosen.map(|name| snapshot.join(name))
    }
}

/// The folders that llama.cpp and the tools of Hugging Face download into, in llama.cpp's order.
fn caches() -> Vec<PathBuf> {
    let entries = [
        ("LLAMA_CACHE", ""),
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ];
    let folder = |(variable, below): (&str, &str)| {
        env::var_os(variable).filter(|value| !value.is_empty()).map(|value| PathBuf::from(value).join(below))
    };
    entries.into_iter().filter_map(folder).collect()
}

/// The files below `folder`, by their path below `root`, sorted.
fn files(root: &Path, folder: &Path, depth: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && depth < 4 {
            found.extend(files(root, &path, depth + 1));
        } else if path.is_file() {
            found.extend(path.strip_prefix(root).ok().map(|below| below.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    found
}

/// Whether a file is a model by itself, or the first shard of one, as llama.cpp tells by its name.
fn is_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some(stem) = name.strip_suffix(".gguf") else { return false };
    let aside = ["imatrix", "mmproj", "mtp", "dflash", "eagle3"];
    let shard =
        stem.rsplit_once("-of-").and_then(|(front, _)| front.rsplit_once('-')).map(|(_, number)| number);
    let later_shard = shard.is_some_and(|number| {
        number.len() == 5 && number.bytes().all(|digit| digit.is_ascii_digit()) && number != "00001"
    });
    !aside.iter().any(|word| name.contains(word)) && !later_shard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cache(names: &[&str]) -> tempfile::TempDir {
        let cache = tempfile::tempdir().unwrap();
        for name in names {
            let path = cache.path().join("models--me--moe-GGUF/snapshots/abc").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        cache
    }

    fn found(name: &str, file: Option<&str>, cache: &Path) -> Result<String, String> {
        let path = Download::parse(name)?.find_in(file, &[cache.to_owned()])?;
        Ok(path.strip_prefix(cache.join("models--me--moe-GGUF/snapshots/abc")).unwrap().display().to_string())
    }

    #[test]
    fn the_quantisation_that_llama_cpp_would_take_is_found() {
        let cache = cache(&[
            "moe-Q2_K.gguf",
            "moe-Q4_K_M.gguf",
            "mmproj-Q4_K_M.gguf",
            "Q6_K/moe-Q6_K-00002-of-00002.gguf",
            "Q6_K/moe-Q6_K-00001-of-00002.gguf",
        ]);
        let find = |name: &str, file| found(name, file, cache.path());
        assert_eq!(find("me/moe-GGUF", None).unwrap(), "moe-Q4_K_M.gguf");
        assert_eq!(find("me/moe-GGUF:q2_k", None).unwrap(), "moe-Q2_K.gguf");
        assert_eq!(find("me/moe-GGUF:Q6_K", None).unwrap(), "Q6_K/moe-Q6_K-00001-of-00002.gguf");
        assert_eq!(find("me/moe-GGUF", Some("moe-Q2_K.gguf")).unwrap(), "moe-Q2_K.gguf");
    }

    #[test]
    fn what_is_not_there_names_the_command_that_fetches_it() {
        let cache = cache(&["moe-Q2_K.gguf"]);
        let error = found("me/moe-GGUF:Q8_0", None, cache.path()).unwrap_err();
        assert!(
            error.contains("me/moe-GGUF in Q8_0")
                && error.contains("hf download me/moe-GGUF --include '*Q8_0*'"),
            "{error}"
        );
        assert!(found("me", None, cache.path()).unwrap_err().contains("USER/REPO"));
        assert!(found("../up", None, cache.path()).unwrap_err().contains("USER/REPO"));
    }
}
