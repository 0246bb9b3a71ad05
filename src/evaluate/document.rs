//! The file that keeps a measurement, schema `moeslice.eval/1`.

use super::Figures;
use crate::json::{DocumentError, Format};
use crate::usage::{CorpusFile, ProfiledModel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The value of `schema` in a measurement of this version.
pub const EVAL_SCHEMA: &str = "moeslice.eval/1";

const FORMAT: Format =
    Format { name: "measurement", fault: "not a measurement of moeslice", schema: EVAL_SCHEMA };

/// What was measured, on what, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// `moeslice.eval/1`.
    #[cfg_attr(test, schemars(extend("const" = EVAL_SCHEMA)))]
    pub schema: String,
    /// The model that was measured.
    pub model: ProfiledModel,
    /// The model that it was compared with; absent where there is none, or where rows are compared with `model` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<ProfiledModel>,
    /// How the figures were got.
    pub run: EvalRun,
    /// The corpora, in the order in which they were given.
    pub corpora: Vec<EvaluatedCorpus>,
    /// One row a measurement, in the order in which they were made.
    pub rows: Vec<EvalRow>,
    /// The same model against itself in another way: differences up to this size say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Where the loss begins to rise steeply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// What a reader has to know about the figures, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// How a measurement came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EvalRun {
    /// Version of moeslice.
    pub moeslice: String,
    /// Version of the llama.cpp that ran the model.
    pub llama_cpp: String,
    /// The devices that the model ran on.
    pub devices: Vec<String>,
    /// Tokens of a window; the second half of each is scored.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once, at most.
    pub batch_size: u32,
    /// Tokens computed at once, at most.
    pub ubatch_size: u32,
    /// Seconds from the first to the last window, loading not included.
    pub wall_seconds: f64,
}

/// A corpus that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EvaluatedCorpus {
    /// Its name.
    pub name: String,
    /// The files that were read.
    pub files: Vec<CorpusFile>,
    /// Windows that were run.
    pub windows: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// Tokens that were scored.
    pub scored: u64,
    /// Whether the usage knows it; absent where there is no usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// Whether it stands for other work, and is left out of the figures of all corpora together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
}

/// What a usage knows of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The experts were ranked by this very text.
    Profiled,
    /// Windows of a profiled corpus that were left out of the counts.
    HeldOut,
    /// Nothing.
    Unseen,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EvalRow {
    /// Experts of a layer.
    pub k: u32,
    /// Bytes of all files of the model: those that a cut would write, where the row is one that was tried by masking.
    pub bytes: u64,
    /// What the experts were ranked by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// The plan that says what stays, where it came from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether the experts were masked in the whole model; otherwise the row is that of a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Share of the routing that the kept experts cover, mean over the layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_mean: Option<f64>,
    /// The smallest of a layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_worst: Option<f64>,
    /// The layer of the smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_layer: Option<u32>,
    /// The cache that took part in the routing; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<CacheRouting>,
    /// All corpora together, without those of other work.
    pub all: Figures,
    /// Each corpus, by name.
    #[serde(deserialize_with = "crate::json::unique_keys::deserialize")]
    pub corpora: BTreeMap<String, Figures>,
}

/// Routing that a simulated cache of experts took part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CacheRouting {
    /// The policy of the cache.
    pub policy: String,
    /// Experts of each layer that it holds.
    pub capacity: u32,
    /// How much being in the cache counts; 0 is the plain routing.
    pub lambda: f64,
    /// Ranks that count as in the cache.
    pub top: u32,
    /// What the range of router values is: `ema99`, `ema95` or `token`.
    pub delta: String,
    /// Whether each window begins with what the one before it left in the cache.
    pub carry: bool,
    /// What the cache counted while it chose.
    pub closed: CacheCounts,
    /// The same of a cache that chooses among the plain routing's candidates, where the model does not see what it chose.
    pub open: CacheCounts,
}

/// What a simulated cache counted, over all layers, one request for each expert of each token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CacheCounts {
    /// Tokens.
    pub tokens: u64,
    /// Requests.
    pub requests: u64,
    /// Those that missed.
    pub misses: u64,
    /// Those of them after the warm-up.
    pub steady_misses: u64,
    /// Requests after the warm-up.
    pub steady_requests: u64,
    /// Bytes of the misses.
    pub bytes: u64,
}

impl CacheCounts {
    /// Share of the requests that missed.
    pub fn miss_rate(&self) -> f64 {
        self.misses as f64 / self.requests.max(1) as f64
    }

    /// Misses of a token over all layers.
    pub fn misses_per_token(&self) -> f64 {
        self.misses as f64 / self.tokens.max(1) as f64
    }
}

/// A model against itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// What was different the second time.
    pub against: String,
    /// All corpora together.
    pub all: Figures,
}

/// Where the loss begins to rise steeply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Knee {
    /// Experts of a layer.
    pub k: u32,
    /// Mean KL divergence that each expert costs which is cut above it.
    pub above: f64,
    /// The same below it.
    pub below: f64,
}

/// Why a measurement cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// It is none.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A figure that cannot be.
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

impl Evaluation {
    /// Reads a measurement.
    ///
    /// # Errors
    /// When the file cannot be read, is none, or holds figures that cannot be.
    pub fn read(path: &Path) -> Result<Evaluation, EvaluationError> {
        Self::parse(&FORMAT.read(path)?, path)
    }

    /// Parses the text of a measurement; `path` serves the messages alone.
    ///
    /// # Errors
    /// As [`Evaluation::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Evaluation, EvaluationError> {
        let evaluation: Evaluation = FORMAT.parse(text, path)?;
        let sound = |figures: &Figures| figures.ppl >= 1.0 - 1e-9 && figures.ppl_err >= 0.0;
        let broken = |row: &&EvalRow| !sound(&row.all) || !row.corpora.values().all(sound);
        match evaluation.rows.iter().find(broken) {
            Some(row) => Err(EvaluationError::Value { path: path.into(), k: row.k }),
            None => Ok(evaluation),
        }
    }

    /// Checks that it measures the model with these routers, or a cut of it that was compared with it. `path` and
    /// `model` serve the message alone.
    ///
    /// # Errors
    /// When it measures another model.
    pub fn check_model(&self, router_hash: &str, path: &Path, model: &str) -> Result<(), EvaluationError> {
        let measured = [Some(&self.model), self.base.as_ref()];
        if measured.into_iter().flatten().any(|known| known.router_hash == router_hash) {
            return Ok(());
        }
        let (measured, model) = (self.model.file.clone(), model.to_owned());
        Err(EvaluationError::OtherModel { path: path.into(), measured, model })
    }

    /// The row of a number of experts, that of this score where there are several.
    pub fn row(&self, k: u32, score: Option<&str>) -> Option<&EvalRow> {
        let of_k = || self.rows.iter().filter(move |row| row.k == k);
        of_k().find(|row| row.score.as_deref() == score).or_else(|| of_k().next())
    }

    /// The perplexity of the whole model, where it was measured beside that of `row`.
    pub fn base_ppl(&self, row: &EvalRow, n_expert: u32) -> Option<f64> {
        row.all.kl.map(|kl| kl.ppl_base).or_else(|| Some(self.row(n_expert, None)?.all.ppl))
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

impl Knee {
    /// The knee of a curve of (K, mean KL divergence), in any order: the point that lies farthest below the line from the
    /// first to the last, both axes scaled to that line. `None` for fewer than three K, or a curve without one.
    pub fn of(points: &[(u32, f64)]) -> Option<Knee> {
        let mut points = points.to_vec();
        points.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
        points.dedup_by_key(|point| point.0);
        let (&first, &last) = (points.first()?, points.last()?);
        let (width, height) = (f64::from(first.0 - last.0), last.1 - first.1);
        if points.len() < 3 || height <= 0.0 {
            return None;
        }
        let depth = |&(k, kl): &(u32, f64)| f64::from(first.0 - k) / width - (kl - first.1) / height;
        let knee = points.iter().max_by(|a, b| depth(a).total_cmp(&depth(b)))?;
        let slope = |from: (u32, f64), to: (u32, f64)| (to.1 - from.1) / f64::from(from.0 - to.0);
        (depth(knee) > 0.05).then(|| Knee {
            k: knee.0,
            above: slope(first, *knee),
            below: slope(*knee, last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_evaluation::evaluation;
    use super::*;

    const PATH: &str = "e.json";

    fn parse(text: &str) -> Result<Evaluation, EvaluationError> {
        Evaluation::parse(text.as_bytes(), Path::new(PATH))
    }

    #[test]
    fn measurement_reads_back_as_it_was_written() {
        let written = evaluation();
        assert_eq!(parse(&written.to_json()).unwrap(), written);
    }

    #[test]
    fn row_is_that_of_the_score_or_the_first_of_its_number() {
        let found = evaluation();
        let row = found.row(16, Some("frequency")).unwrap();
        assert_eq!((row.all.ppl, found.base_ppl(row, 32)), (12.0, Some(10.0)));
        let other = found.row(16, Some("ean-sum")).unwrap();
        assert_eq!((other.score.as_deref(), found.base_ppl(other, 32)), (Some("weight"), Some(10.5)));
        assert_eq!(found.row(8, None), None);
    }

    #[test]
    fn measurement_of_another_model_is_refused() {
        let found = evaluation();
        for hash in ["base", "cut"] {
            found.check_model(hash, Path::new(PATH), "m.gguf").unwrap();
        }
        let error = found.check_model("other", Path::new(PATH), "m.gguf").unwrap_err().to_string();
        assert!(
            error.contains("e.json measures another model (cut.gguf)") && error.contains("m.gguf"),
            "{error}"
        );
    }

    #[test]
    fn document_of_another_kind_is_refused() {
        let text = evaluation().to_json();
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error(&text.replace("eval/1", "eval/2")).contains("schema is \"moeslice.eval/2\""));
        assert!(error("[]").contains("not a measurement"));
        assert!(error(&text.replace("12.5", "-1.5")).contains("figures of K = 16"));
    }

    #[test]
    fn knee_is_where_the_curve_bends() {
        let curve = [(32, 0.0), (24, 0.02), (16, 0.05), (12, 0.4), (8, 1.0)];
        let knee = Knee::of(&curve).unwrap();
        assert_eq!(knee.k, 16);
        assert!((knee.above - 0.05 / 16.0).abs() < 1e-12 && (knee.below - 0.95 / 8.0).abs() < 1e-12);
        let mut shuffled = curve;
        shuffled.swap(0, 3);
        assert_eq!(Knee::of(&shuffled), Some(knee));
    }

    #[test]
    fn knee_is_not_made_up() {
        assert_eq!(Knee::of(&[(32, 0.0), (16, 1.0)]), None);
        assert_eq!(Knee::of(&[(32, 0.0), (24, 0.5), (16, 1.0)]), None, "a straight line has none");
        assert_eq!(Knee::of(&[(32, 0.0), (24, 0.0), (16, 0.0)]), None);
        assert_eq!(Knee::of(&[]), None);
    }
}
