//! The model card of a pruned file: a README.md as model hubs show it. It claims nothing that was not counted or measured.

use super::StabilityRow;
use super::wording::{digits, grouped, percent, seen_text};
use crate::evaluate::{Evaluation, Figures};
use crate::gguf::Metadata;
use crate::moe::{MoeModel, Role};
use crate::plan::{Coverages, Plan};
use crate::units::ByteCount;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a card speaks of.
#[derive(Clone, Copy, Debug)]
pub struct Card<'a> {
    /// The model that was cut.
    pub model: &'a MoeModel,
    /// What stays.
    pub plan: &'a Plan,
    /// The files of the cut, by their names.
    pub files: &'a [String],
    /// Bytes of the model, and of the cut.
    pub bytes: (u64, u64),
    /// Whether the cut was compared with the model byte by byte.
    pub verified: bool,
    /// What the experts that stay cover, where a usage is at hand.
    pub coverages: Option<&'a Coverages>,
    /// Whether half of the text would have chosen the same, where it is known.
    pub stability: Option<&'a StabilityRow>,
    /// What was measured.
    pub measured: Option<&'a Evaluation>,
    /// The command line that made the cut, as a shell takes it.
    pub command: &'a str,
}

impl Card<'_> {
    /// The text of the card.
    pub fn text(&self) -> String {
        [self.front_matter(), self.summary(), self.texts(), self.quality(), self.reproduction()].concat()
    }

    fn n_expert(&self) -> u32 {
        self.model.experts.n_expert
    }

    /// What hubs read: YAML, all strings quoted.
    fn front_matter(&self) -> String {
        let metadata = self.model.file.metadata();
        let mut out = String::from("---\n");
        if let Some(repository) = repository(metadata) {
            let _ = writeln!(out, "base_model:\n- {}", quoted(&repository));
        }
        for (key, name) in [
            ("general.license", "license"),
            ("general.license.name", "license_name"),
            ("general.license.link", "license_link"),
        ] {
            if let Some(text) = metadata.get(key).and_then(|value| value.as_str()) {
                let _ = writeln!(out, "{name}: {}", quoted(text));
            }
        }
        let languages = metadata.get("general.languages").and_then(|value| value.as_array());
        let languages: Vec<String> = languages
            .iter()
            .flat_map(|list| list.iter())
            .filter_map(|text| text.as_str().map(quoted))
            .collect();
        if !languages.is_empty() {
            let _ = writeln!(out, "language: [{}]", languages.join(", "));
        }
        let _ = writeln!(out, "library_name: gguf\nquantized_type: {}", quoted(&self.expert_type()));
        out + "tags:\n- gguf\n- mixture-of-experts\n- expert-pruning\n- moeslice\n---\n\n"
    }

    /// The type that most bytes of the experts are in.
    fn expert_type(&self) -> String {
        let mut by_type: BTreeMap<&str, u64> = BTreeMap::new();
        for tensor in self.model.experts.layers.iter().flat_map(|layer| &layer.tensors) {
            if matches!(tensor.role, Role::Gate | Role::Up | Role::GateUp | Role::Down) {
                let info = &self.model.file.tensors()[tensor.index].info;
                let bytes = by_type.entry(info.ty.name()).or_default();
                *bytes = bytes.saturating_add(info.bytes());
            }
        }
        by_type
            .into_iter()
            .max_by_key(|(_, bytes)| *bytes)
            .map_or_else(String::new, |(name, _)| name.to_uppercase())
    }

    fn name(&self) -> String {
        let name = self.model.file.metadata().get("general.name").and_then(|value| value.as_str());
        name.map_or_else(|| self.model.file_name(), str::to_owned)
    }

    fn summary(&self) -> String {
        let (k, n) = (self.plan.k, self.n_expert());
        let (before, after) = self.bytes;
        let share = percent(after as f64 / before.max(1) as f64);
        let mut out = format!("# {}, {k} of {n} experts\n\n", markdown(&self.name()));
        let _ = writeln!(
            out,
            "This is {} with {k} of the {n} experts in each layer. The others were cut out of the GGUF file, and with them their \
             rows of the routers. What stays is not requantised: it has the bytes that it had. A token still goes to {} experts.\n",
            markdown(&self.model.file_name()),
            self.model.experts.n_expert_used
        );
        let _ = writeln!(out, "| | before | after |\n|---|---|---|\n| experts in a layer | {n} | {k} |");
        let _ = writeln!(out, "| size | {} | {} ({share}) |", ByteCount(before), ByteCount(after));
        let _ = writeln!(out, "| layers with experts | {0} | {0} |", self.model.written().layers.len());
        if self.model.written().mtp_dropped > 0 {
            out += "\nThe blocks of multi-token prediction (MTP) were left out.\n";
        }
        if let Some(coverages) = self.coverages {
            let all = coverages.all;
            let _ = writeln!(
                out,
                "\nThe experts that stay had {} of the routing of the texts below, on average over the layers; {} in layer {}, the \
                 worst.",
                percent(all.mean),
                percent(all.worst),
                all.worst_layer
            );
        }
        let ranked = match &self.plan.score {
            Some(score) => format!("ranked by {score}"),
            None => "named in a plan made by hand".into(),
        };
        let _ = writeln!(
            out,
            "\nThe experts were {}. For each layer, the file has their original ids in its metadata, \
             `moeslice.expert_ids.<layer>`.",
            ranked
        );
        out
    }

    /// The texts that chose, by their hashes.
    fn texts(&self) -> String {
        if self.plan.corpora.is_empty() {
            return String::new();
        }
        let mut out = String::from(
            "\n## The texts that chose\n\n| corpus | tokens | routing kept | SHA-256 |\n|---|---:|---:|---|\n",
        );
        for corpus in &self.plan.corpora {
            let kept = self.coverages.and_then(|coverages| coverages.corpora.get(&corpus.name));
            let _ = writeln!(
                out,
                "| {} | {} | {} | `{}` |",
                markdown(&corpus.name),
                grouped(corpus.tokens),
                kept.map_or("–".into(), |coverage| percent(coverage.mean)),
                corpus.sha256
            );
        }
        out += "\nWork unlike these texts (another language, another task) may have needed the experts that are gone.\n";
        if let Some(row) = self.stability {
            let _ = writeln!(out, "\n{}", row.meaning());
        }
        out
    }

    fn quality(&self) -> String {
        let row = self.measured.and_then(|measured| measured.row(self.plan.k, self.plan.score.as_deref()));
        let (Some(measured), Some(row)) = (self.measured, row) else {
            return "\n## Quality\n\nNot measured. The share of the routing counts selections; it does not say what the cut costs.\n".into();
        };
        let mut out = String::from(
            "\n## Quality\n\n| text | perplexity before | after | KL divergence |\n|---|---:|---:|---:|\n",
        );
        let mut line = |name: &str, figures: &Figures, base: Option<f64>| {
            let kl = figures
                .kl
                .map_or("–".into(), |kl| format!("{} ± {}", digits(kl.kl_mean), digits(kl.kl_err)));
            let _ = writeln!(
                out,
                "| {name} | {} | {} ± {} | {kl} |",
                base.map_or("–".into(), digits),
                digits(figures.ppl),
                digits(figures.ppl_err)
            );
        };
        line("all together", &row.all, measured.base_ppl(row, self.n_expert()));
        for corpus in &measured.corpora {
            let Some(figures) = row.corpora.get(&corpus.name) else { continue };
            let seen = corpus.seen.map_or(String::new(), |seen| format!(" ({})", seen_text(seen)));
            line(&format!("{}{seen}", markdown(&corpus.name)), figures, figures.kl.map(|kl| kl.ppl_base));
        }
        let _ = writeln!(out, "\nMeasured with moeslice on {}.", markdown(&measured.run.devices.join(", ")));
        out
    }

    fn reproduction(&self) -> String {
        let mut out = String::from("\n## How it was made\n\n");
        for line in self.command.lines() {
            let _ = writeln!(out, "    {line}");
        }
        let origin = self.model.provenance("", "", Vec::new());
        let _ = writeln!(
            out,
            "\n| | |\n|---|---|\n| moeslice | {} |\n| source | `{}` |",
            origin.version, origin.source_fingerprint
        );
        if origin.original_fingerprint != origin.source_fingerprint {
            let _ = writeln!(out, "| before the first cut | `{}` |", origin.original_fingerprint);
        }
        let _ = writeln!(out, "| routers of the source | `{}` |", self.model.identity.router_hash);
        if self.verified {
            let base = markdown(&self.model.file_name());
            let file = self.files.first().map(|file| markdown(file)).unwrap_or_default();
            let _ = writeln!(
                out,
                "\nThe file was compared with its source byte by byte; `moeslice verify` does it again, from {base} and {file}."
            );
        }
        out
    }
}

/// The repository of the model itself on a hub, as `OWNER/NAME`, where its file names one.
fn repository(metadata: &Metadata) -> Option<String> {
    let keys = [
        "general.repo_url",
        "general.source.repo_url",
        "general.source.url",
        "general.source.huggingface.repository",
    ];
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    keys.iter().find_map(|key| {
        let text = metadata.get(key)?.as_str()?;
        let path = text.strip_prefix("https://huggingface.co/").unwrap_or(text).trim_end_matches('/');
        let (owner, name) = path.split_once('/')?;
        (plain(owner) && plain(name)).then(|| path.to_owned())
    })
}

/// A string of YAML, which takes those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Text that Markdown leaves alone, on one line.
fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_to_markdown() {
        assert_eq!(markdown("a_b|<script>\n"), "a\\_b\\|&lt;script> ");
        assert_eq!(quoted("a: \"b\""), "\"a: \\\"b\\\"\"");
    }

    #[test]
    fn base_model_is_named_only_where_the_file_does() {
        let named = |key: &str, value: &str| {
            let mut metadata = Metadata::new();
            metadata.set(key, value);
            repository(&metadata)
        };
        let url = "https://huggingface.co/Qwen/Qwen3-30B-A3B";
        assert_eq!(named("general.repo_url", url).as_deref(), Some("Qwen/Qwen3-30B-A3B"));
        assert_eq!(named("general.source.huggingface.repository", "a/b").as_deref(), Some("a/b"));
        assert_eq!(named("general.repo_url", "https://example.org/a/b"), None);
        // The base of the source is not the source.
        assert_eq!(named("general.base_model.0.repo_url", url), None);
        assert_eq!(repository(&Metadata::new()), None);
    }
}
