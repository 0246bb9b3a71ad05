//! What was measured of a model, as far as reports speak of it: plain types that hold the figures of an evaluation.
//!
//! A document of schema `moeslice.eval/1` is read leniently: it may say more than a report has room for.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The schema of the measurements that are understood.
const SCHEMA: &str = "moeslice.eval/1";

/// A measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The model that was measured.
    pub model: MeasuredModel,
    /// The model that it was compared with, where that is another file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<MeasuredModel>,
    /// How it came to be.
    #[serde(default)]
    pub run: MeasuredRun,
    /// The corpora.
    #[serde(default)]
    pub corpora: Vec<MeasuredCorpus>,
    /// One row a measurement.
    pub rows: Vec<MeasuredRow>,
    /// The model against itself: differences up to this size say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// What a reader has to know about the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A model of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredModel {
    /// File name.
    pub file: String,
    /// SHA-256 over metadata and tensor table.
    pub fingerprint: String,
    /// SHA-256 over the router weights.
    pub router_hash: String,
}

/// How a measurement came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// Version of the llama.cpp that ran the model.
    #[serde(default)]
    pub llama_cpp: String,
    /// The devices that it ran on.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Tokens of a window.
    #[serde(default)]
    pub ctx_size: u32,
}

/// A corpus of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredCorpus {
    /// Its name.
    pub name: String,
    /// Tokens that were scored.
    #[serde(default)]
    pub scored: u64,
    /// What the usage knows of it: `profiled`, `held_out` or `unseen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Whether it is left out of the figures of all corpora together.
    #[serde(default)]
    pub other: bool,
}

/// A measurement of one number of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRow {
    /// Experts of a layer.
    pub k: u32,
    /// Bytes of the model.
    pub bytes: u64,
    /// What the experts were ranked by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// Share of the routing that the kept experts cover, mean over the layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_mean: Option<f64>,
    /// All corpora together.
    pub all: Figures,
    /// Each corpus, by name.
    #[serde(default)]
    pub corpora: BTreeMap<String, Figures>,
}

/// The figures of a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Perplexity.
    pub ppl: f64,
    /// Its standard error.
    pub ppl_err: f64,
    /// How far the model is from its base; absent where nothing was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<Divergence>,
}

/// How far a model is from its base.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Mean KL divergence of a token, in nats.
    pub kl_mean: f64,
    /// Its standard error.
    pub kl_err: f64,
    /// Perplexity of the base.
    pub ppl_base: f64,
    /// Share of the tokens for which both find the same token the likeliest.
    pub same_top: f64,
}

/// A model against itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// What was different the second time.
    pub against: String,
    /// All corpora together.
    pub all: Figures,
}

/// Why a measurement cannot be reported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FiguresError {
    /// The file cannot be read.
    #[error("{}: cannot read the measurement: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not JSON of this schema.
    #[error("{}: not a measurement of moeslice: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: serde_json::Error,
    },
    /// Another schema or version.
    #[error("{}: schema is {found:?}, this moeslice reads {SCHEMA:?}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema named in the file.
        found: String,
    },
    /// A figure that is not a number.
    #[error("{}: the figures of K = {k} are not numbers that can be", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Experts of the row.
        k: u32,
    },
    /// Figures of another model.
    #[error("{} measures another model ({measured}): the routers of {model} differ", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The model that was measured.
        measured: String,
        /// The model at hand.
        model: String,
    },
}

impl Measured {
    /// Reads a measurement.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this schema.
    pub fn read(path: &Path) -> Result<Measured, FiguresError> {
        let text = crate::sys::read_bounded(path)
            .map_err(|source| FiguresError::Read { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the bytes of a measurement; `path` serves the messages alone.
    ///
    /// # Errors
    /// As [`Measured::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Measured, FiguresError> {
        /// Reads the schema first, so that another version is told apart from damage.
        #[derive(Deserialize)]
        #[serde(expecting = "an object")]
        struct Head {
            schema: String,
        }
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let parse = |source| FiguresError::Parse { path: path.into(), source };
        let head: Head = serde_json::from_slice(text).map_err(parse)?;
        if head.schema != SCHEMA {
            return Err(FiguresError::Schema { path: path.into(), found: head.schema });
        }
        let measured: Measured = serde_json::from_slice(text).map_err(parse)?;
        let sound = |figures: &Figures| figures.ppl >= 1.0 - 1e-9 && figures.ppl_err >= 0.0;
        let broken = |row: &&MeasuredRow| !sound(&row.all) || !row.corpora.values().all(sound);
        match measured.rows.iter().find(broken) {
            Some(row) => Err(FiguresError::Value { path: path.into(), k: row.k }),
            None => Ok(measured),
        }
    }

    /// Checks that it measures the model with these routers, or a cut of it that was compared with it. `path` and
    /// `model` serve the message alone.
    ///
    /// # Errors
    /// When it measures another model.
    pub fn check_model(&self, router_hash: &str, path: &Path, model: &str) -> Result<(), FiguresError> {
        let measured = [Some(&self.model), self.base.as_ref()];
        if measured.into_iter().flatten().any(|known| known.router_hash == router_hash) {
            return Ok(());
        }
        let (measured, model) = (self.model.file.clone(), model.to_owned());
        Err(FiguresError::OtherModel { path: path.into(), measured, model })
    }

    /// The row of a number of experts, that of this score where there are several.
    pub fn row(&self, k: u32, score: Option<&str>) -> Option<&MeasuredRow> {
        let of_k = || self.rows.iter().filter(move |row| row.k == k);
        of_k().find(|row| row.score.as_deref() == score).or_else(|| of_k().next())
    }

    /// The perplexity of the whole model, where it was measured beside that of `row`.
    pub fn base_ppl(&self, row: &MeasuredRow, n_expert: u32) -> Option<f64> {
        row.all.kl.map(|kl| kl.ppl_base).or_else(|| Some(self.row(n_expert, None)?.all.ppl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "schema": "moeslice.eval/1",
        "model": {"file": "cut.gguf", "fingerprint": "f1", "router_hash": "r1", "n_layer": 4},
        "base": {"file": "base.gguf", "fingerprint": "f0", "router_hash": "r0"},
        "run": {"moeslice": "0.1.0", "llama_cpp": "b1", "devices": ["CPU"], "ctx_size": 256, "wall_seconds": 3.0},
        "corpora": [{"name": "dev", "scored": 100, "seen": "held_out"}],
        "rows": [
            {"k": 16, "bytes": 5, "score": "weight", "all": {"scored": 100, "ppl": 12.5, "ppl_err": 0.5}},
            {"k": 16, "bytes": 5, "score": "frequency", "all": {"ppl": 12.0, "ppl_err": 0.5,
                "kl": {"kl_mean": 0.1, "kl_err": 0.01, "ppl_base": 10.0, "same_top": 0.9, "kl_max": 3.0}}}
        ],
        "knee": {"k": 16}
    }"#;

    #[test]
    fn measurement_is_read_with_what_it_says_beside() {
        let measured = Measured::parse(TEXT.as_bytes(), Path::new("e.json")).unwrap();
        let row = measured.row(16, Some("frequency")).unwrap();
        assert_eq!((row.all.ppl, measured.base_ppl(row, 32)), (12.0, Some(10.0)));
        assert_eq!(measured.row(16, Some("ean-sum")).unwrap().score.as_deref(), Some("weight"));
        assert_eq!(measured.row(8, None), None);
    }

    #[test]
    fn measurement_of_another_model_is_refused() {
        let measured = Measured::parse(TEXT.as_bytes(), Path::new("e.json")).unwrap();
        for hash in ["r0", "r1"] {
            measured.check_model(hash, Path::new("e.json"), "m.gguf").unwrap();
        }
        let error = measured.check_model("r2", Path::new("e.json"), "m.gguf").unwrap_err().to_string();
        assert!(
            error.contains("e.json measures another model (cut.gguf)") && error.contains("m.gguf"),
            "{error}"
        );
    }

    #[test]
    fn document_of_another_kind_is_refused() {
        let error =
            |text: &str| Measured::parse(text.as_bytes(), Path::new("e.json")).unwrap_err().to_string();
        assert!(error(&TEXT.replace("eval/1", "eval/2")).contains("schema is \"moeslice.eval/2\""));
        assert!(error("[]").contains("not a measurement"));
        assert!(error(&TEXT.replace("12.5", "-1")).contains("figures of K = 16"));
    }
}
