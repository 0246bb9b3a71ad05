//! The page of a measurement: what a model is worth on texts, alone, beside its base, or as if it had been cut.

use super::frame::{Frame, SCHEMA, scripts};
use super::markup::{self, Row, Table, section};
use super::origin::{self, Facts, files};
use super::quality::{perplexity, plus_minus, quality, remarks, telling_row};
use crate::evaluate::{EvalRow, EvaluatedCorpus, Evaluation, Figures};
use crate::report::wording::{digits, grouped, layers, percent, seen_text};
use crate::units::ByteCount;
use serde_json::json;

/// What the page of a measurement shows.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationPage<'a> {
    /// The measurement.
    pub measured: &'a Evaluation,
    /// The command line that made the page, program and arguments.
    pub command: &'a [String],
}

impl<'a> EvaluationPage<'a> {
    /// The file's text; `None` when there is no row in the measurement.
    pub fn render(&self) -> Option<String> {
        let row = telling_row(self.measured)?;
        let body = [
            self.header(),
            self.answer(row),
            if self.is_series() { quality(self.measured, Some(row.k)) } else { String::new() },
            self.corpora(row),
            self.measured(),
            origin::command(
                self.command,
                "Figures that were measured on another machine may differ in their last digits.",
            ),
        ]
        .concat();
        let data = json!({ "schema": SCHEMA, "measured": self.measured, "chosen": self.is_sweep().then_some(row.k), "row": self.place(row) });
        let title = format!("{}: what it is worth on texts", self.measured.model.file);
        Some(Frame { title: &title, body: &body, data: &data, script: scripts::EVALUATION }.html())
    }

    /// Whether there are rows to compare.
    fn is_series(&self) -> bool {
        self.measured.rows.len() > 1
    }

    /// Whether rows are cuts of the model that were tried.
    fn is_sweep(&self) -> bool {
        self.measured.rows.iter().any(|row| row.masked)
    }

    fn place(&self, row: &EvalRow) -> Option<usize> {
        self.measured.rows.iter().position(|other| std::ptr::eq(other, row))
    }

    fn header(&self) -> String {
        let model = &self.measured.model;
        let base = self.measured.base.as_ref();
        let base = base.map_or(String::new(), |base| format!("; beside {}", base.file));
        let sub = format!(
            "{}, {} of {} experts, {} used for a token{base}",
            model.architecture,
            layers(model.expert_layers.len()),
            model.n_expert,
            model.n_expert_used
        );
        markup::header("What the model is worth on your texts", &model.file, &sub)
    }

    fn answer(&self, row: &EvalRow) -> String {
        let n = self.measured.model.n_expert;
        let what = digits(row.all.ppl);
        let whole = row.all.kl.map(|kl| digits(kl.ppl_base));
        let claim = match (&whole, row.masked) {
            (Some(whole), true) => {
                format!("With {} of {n} experts, perplexity is {what}; whole, it is {whole}.", row.k)
            }
            (Some(whole), false) => format!("Perplexity {what}; its base has {whole}."),
            (None, _) => format!("Perplexity {}.", perplexity(&row.all)),
        };
        let sub = match (&row.all.kl, &self.measured.knee) {
            (_, Some(knee)) if row.masked => format!(
                "From here on each expert costs more: down to this K one costs a KL divergence of {}, below it {}.",
                digits(knee.above),
                digits(knee.below)
            ),
            (Some(kl), _) => {
                format!("For {} of the tokens both find the same one the likeliest.", percent(kl.same_top))
            }
            (None, _) => "Perplexities compare only between models of one vocabulary, on the same texts in windows of one \
                          size."
                .into(),
        };
        let without_script = "The charts are drawn by a script, which is switched off here. The tables have all that they show.";
        markup::answer(&claim, &sub, &self.tiles(row), without_script)
    }

    fn tiles(&self, row: &EvalRow) -> Vec<(&'static str, String, String)> {
        let n = self.measured.model.n_expert;
        let mut tiles = vec![];
        let kept = row.coverage_mean.map(|mean| format!(", {} of the routing kept", percent(mean)));
        let note = match row.masked {
            true => format!("as a file, {} of {n} experts{}", row.k, kept.unwrap_or_default()),
            false => format!("{} experts a layer", row.k),
        };
        tiles.push(("Size", ByteCount(row.bytes).to_string(), note));
        let base = row
            .all
            .kl
            .map(|kl| format!("{}{}", if row.masked { "whole " } else { "base " }, digits(kl.ppl_base)));
        let err = format!("± {}", digits(row.all.ppl_err));
        tiles.push((
            "Perplexity",
            digits(row.all.ppl),
            [Some(err), base].into_iter().flatten().collect::<Vec<_>>().join("; "),
        ));
        if let Some(kl) = row.all.kl {
            let note = format!(
                "± {} nats a token; 99% of the tokens at most {}",
                digits(kl.kl_err),
                digits(kl.kl_p99)
            );
            tiles.push(("KL divergence", digits(kl.kl_mean), note));
        }
        let corpora = self.measured.corpora.iter().filter(|corpus| !corpus.other).count();
        let of = if corpora == 1 { "of one corpus".into() } else { format!("of {corpora} corpora") };
        tiles.push(("Text", format!("{} tokens", grouped(row.all.scored)), format!("scored, {of}")));
        tiles
    }

    /// Every figure of each corpus.
    fn corpora(&self, row: &EvalRow) -> String {
        let several = self.measured.corpora.len() > 1;
        let figure =
            if several { "<figure class=\"needs-script\" id=\"corpora-chart\"></figure>\n" } else { "" };
        let key = match (several, row.all.kl, row.masked) {
            (true, Some(_), true) => markup::key(&[("blue", "the cut"), ("grey", "the whole model")]),
            (true, Some(_), false) => markup::key(&[("blue", "the model"), ("grey", "its base")]),
            _ => String::new(),
        };
        let tables: String = (self.measured.rows.iter())
            .map(|row| {
                let what = match row.masked {
                    true => format!("K = {}", row.k),
                    false => "The model as it is".into(),
                };
                let table = self.corpora_table(row, &what);
                if self.is_series() { table.folded(&what) } else { table.html() }
            })
            .collect();
        let remarks = if self.is_series() { String::new() } else { remarks(self.measured) };
        section("corpora", "Each text", "", &[key, figure.to_owned(), tables, remarks].concat())
    }

    fn corpora_table<'t>(&self, row: &EvalRow, caption: &'t str) -> Table<'t> {
        let mut head = vec!["corpus", "scored", "PPL"];
        if row.all.kl.is_some() {
            head.extend([
                if row.masked { "PPL whole" } else { "PPL of the base" },
                "KL divergence",
                "median",
                "99% at most",
                "largest",
                "Δp, RMS",
                "same first choice",
                "ln of the ratio of PPL",
            ]);
        }
        let cells = |name: &str, figures: &Figures| {
            let mut cells = vec![name.to_owned(), grouped(figures.scored), perplexity(figures)];
            if let Some(kl) = &figures.kl {
                cells.push(digits(kl.ppl_base));
                cells.push(plus_minus(kl.kl_mean, kl.kl_err));
                cells.extend([kl.kl_median, kl.kl_p99, kl.kl_max].map(digits));
                cells.extend([percent(kl.dp_rms), percent(kl.same_top)]);
                cells.push(plus_minus(kl.ln_ppl_ratio, kl.ln_ppl_ratio_err));
            }
            Row::new(cells)
        };
        let each = self.measured.corpora.iter();
        let mut rows: Vec<Row> =
            each.filter_map(|corpus| Some(cells(&corpus.name, row.corpora.get(&corpus.name)?))).collect();
        if rows.len() != 1 {
            rows.push(cells("together", &row.all));
        }
        Table { caption, head: head.into_iter().map(str::to_owned).collect(), rows, left: 1 }
    }

    fn measured(&self) -> String {
        let measured = self.measured;
        let run = &measured.run;
        let mut facts = Facts::default();
        facts.add_profiled("Model", &measured.model);
        if let Some(base) = &measured.base {
            facts.add_profiled("Base", base);
        }
        facts.add("Device", &run.devices.join(", "));
        let windows = format!(
            "{} tokens, of which the second half is scored; batches of {}, {} at once",
            run.ctx_size, run.batch_size, run.ubatch_size
        );
        facts.add("Windows", &windows);
        facts.add("Time", &format!("{:.1} s", run.wall_seconds));
        facts.add_versions(&run.moeslice, Some(&run.llama_cpp));
        let seen = measured.corpora.iter().any(|corpus| corpus.seen.is_some());
        let mut head = vec!["corpus", "windows", "tokens", "scored", "files"];
        if seen {
            head.push("known to the usage");
        }
        let row = |corpus: &EvaluatedCorpus| {
            let numbers = [corpus.windows, corpus.tokens, corpus.scored, corpus.files.len() as u64];
            let other = if corpus.other { " (other work)" } else { "" };
            let known = seen.then(|| corpus.seen.map_or("–", seen_text).to_owned());
            let name = [format!("{}{other}", corpus.name)];
            Row::new(name.into_iter().chain(numbers.map(grouped)).chain(known).collect())
        };
        let table = Table {
            caption: "The texts",
            head: head.into_iter().map(str::to_owned).collect(),
            rows: measured.corpora.iter().map(row).collect(),
            left: 1,
        };
        let files =
            files(measured.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.files.as_slice())));
        section("measured", "What was measured", "", &[facts.html(), table.html(), files].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::test_evaluation::{divergence, evaluation, row};
    use crate::page::frame::test_frame::{check_policy, data, markup};

    fn html(measured: &Evaluation) -> String {
        let command = ["moeslice".to_owned(), "eval".into()];
        EvaluationPage { measured, command: &command }.render().unwrap()
    }

    #[test]
    fn page_of_a_model_alone_tells_its_perplexity_and_compares_nothing() {
        let page = html(&Evaluation { base: None, rows: vec![row(32, None, 10.5, None)], ..evaluation() });
        check_policy(&page, scripts::EVALUATION);
        let markup = markup(&page);
        assert!(markup.contains("Perplexity 10.5 ± 0.50.") && markup.contains("&lt;held&gt;"), "{markup}");
        assert!(!markup.contains("divergence") && !markup.contains("base.gguf"), "{markup}");
        assert_eq!(data(&page)["measured"]["rows"][0]["all"]["ppl"], 10.5);
    }

    #[test]
    fn page_beside_a_base_tells_the_divergence() {
        let rows = vec![row(16, None, 12.0, Some(divergence(0.123, 0.004)))];
        let page = html(&Evaluation { rows, ..evaluation() });
        assert!(page.contains("beside base.gguf") && page.contains("its base has"), "{}", markup(&page));
        assert!(page.contains("<dd>0.12 <small>± 0.0040 nats a token"), "{}", markup(&page));
    }

    #[test]
    fn page_of_cuts_is_about_the_knee_or_the_smallest() {
        let cut = |k, kl| EvalRow { masked: true, ..row(k, None, 12.0, Some(divergence(kl, 0.004))) };
        let rows = vec![row(32, None, 10.0, None), cut(24, 0.01), cut(16, 0.5)];
        let mut measured = Evaluation { base: None, rows, ..evaluation() };
        assert_eq!(data(&html(&measured))["chosen"], 16);
        measured.knee = Some(crate::evaluate::Knee { k: 24, above: 0.001, below: 0.06 });
        let page = html(&measured);
        assert_eq!(data(&page)["chosen"], 24);
        assert!(page.contains("With 24 of 32 experts"), "{}", markup(&page));
        assert!(page.contains("<tr class=\"chosen\"><th scope=\"row\">24</th>"), "{}", markup(&page));
    }

    #[test]
    fn measurement_without_rows_has_no_page() {
        let measured = Evaluation { rows: vec![], ..evaluation() };
        assert_eq!(EvaluationPage { measured: &measured, command: &[] }.render(), None);
    }
}
