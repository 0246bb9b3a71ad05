//! The page of a replay: miss-ratio curves of caches of experts, by policy, capacity and phase.

mod answer;
mod series;
mod tables;

use super::frame::{Frame, SCHEMA, scripts};
use super::markup::{key, notes, section, switch};
use super::origin::{self, Facts, files};
use crate::replay::{PartResult, Replay, RunResult, TransferModel};
use crate::report::wording::{digits, grouped};
use crate::trace::TraceMeta;
use crate::units::ByteCount;
use serde_json::json;
use series::Chart;

/// What the page of a replay shows.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPage<'a> {
    /// What came out.
    pub replay: &'a Replay,
    /// What the trace says of itself.
    pub trace: &'a TraceMeta,
    /// The name of the trace's file.
    pub file: &'a str,
    /// How long transfers take; without it no speed is claimed.
    pub transfers: Option<TransferModel>,
    /// The command line that made the page, program and arguments.
    pub command: &'a [String],
}

/// A part of a trace that is counted apart.
#[derive(Clone, Copy)]
struct Part {
    /// Its field in the embedded document; empty for all of it.
    field: &'static str,
    words: &'static str,
    of: fn(&RunResult) -> &PartResult,
}

const PARTS: [Part; 4] = [
    Part { field: "", words: "the whole trace", of: |row| &row.all },
    Part { field: "prefill", words: "prefill", of: |row| &row.prefill },
    Part { field: "decode", words: "decode", of: |row| &row.decode },
    Part { field: "steady", words: "after the warm-up", of: |row| &row.steady },
];

impl ReplayPage<'_> {
    /// The file's text.
    pub fn render(&self) -> String {
        let charts = series::charts(self.replay);
        let body = [
            self.header(),
            self.answer(),
            self.misses(&charts),
            self.speed(),
            self.caches(),
            self.replayed(),
            origin::command(
                self.command,
                "A replay of the same trace gives the same figures on every machine.",
            ),
        ]
        .concat();
        let transfers = self
            .transfers
            .map(|model| json!({ "bytes_per_second": model.bandwidth, "seconds_per_expert": model.latency }));
        let data = json!({
            "schema": SCHEMA, "replay": self.replay, "trace": self.trace, "transfers": transfers, "charts": charts,
        });
        let title = format!("{}: what a cache of experts would have to fetch", self.file);
        Frame { title: &title, body: &body, data: &data, script: scripts::REPLAY }.html()
    }

    /// The parts that have tokens.
    fn parts(&self) -> Vec<Part> {
        let has = |part: &Part| self.replay.rows.iter().any(|row| (part.of)(row).tokens() > 0);
        PARTS.into_iter().filter(has).collect()
    }

    /// The curves with their switches, and the same as tables.
    fn misses(&self, charts: &[Chart]) -> String {
        let parts = self.parts();
        let choices = parts.iter().map(|part| (part.field.to_owned(), part.words)).collect::<Vec<_>>();
        let mut measures = vec![("miss", "share that misses"), ("misses", "misses a token")];
        if self.trace.has_bytes() {
            measures.push(("bytes", "bytes a token"));
        }
        if self.transfers.is_some() {
            measures.push(("speed", "tokens/s, modelled"));
        }
        let measures: Vec<(String, &str)> =
            measures.into_iter().map(|(value, words)| (value.to_owned(), words)).collect();
        let mut body = String::new();
        if !self.replay.rows.is_empty() {
            body += &format!(
                "<div class=\"controls needs-script\">{}{}</div>\n",
                switch("Part", "part", &choices),
                switch("Show", "measure", &measures)
            );
        }
        for (at, chart) in charts.iter().enumerate() {
            body += &format!("<h3>{}</h3>\n", chart.title());
            body += &key(&chart.key());
            body += &format!("<figure class=\"needs-script\" id=\"chart-{at}\"></figure>\n");
            body += &parts.iter().map(|part| self.part_table(chart, *part)).collect::<String>();
            if chart.is_of_layers() {
                body += &self.curve_table();
            }
        }
        let note = "Of all accesses to experts, those that were not in the cache: each one has to be fetched. The lower a \
                    curve, the better the policy at that size.";
        section("misses", "What misses, by the size of the cache", note, &body)
    }

    /// How the speeds come about, or that there are none.
    fn speed(&self) -> String {
        let text = match self.transfers {
            Some(model) => format!(
                "Tokens a second are modelled, not measured: the time of a token is that of fetching its misses, at {} GB a second \
                 and {:.1} µs for each expert beside its bytes. Nothing else takes time in it, neither computing nor the \
                 rest of the model, so the speeds are upper bounds.",
                digits(model.bandwidth / 1e9),
                model.latency * 1e6
            ),
            None => "No bandwidth between the memories was given, so the page claims no speeds.".into(),
        };
        section("bandwidth", "What the speeds rest on", "", &notes([text.as_str()]))
    }

    /// What was replayed, and by which rules.
    fn replayed(&self) -> String {
        let (replay, trace) = (self.replay, self.trace);
        let mut facts = Facts::default();
        facts.add("Trace", self.file);
        if let Some(model) = &trace.model {
            facts.add_model("Model", [&model.file, &model.fingerprint, &model.router_hash]);
        }
        facts.add("Tokens", &grouped(replay.tokens));
        if replay.working_set_bytes > 0 {
            facts.add("Experts of a token", &ByteCount(replay.working_set_bytes).to_string());
        }
        let sessions = match replay.carry {
            true => "each begins with what the one before it left in the cache",
            false => "each begins with an empty cache",
        };
        facts.add("Sessions", sessions);
        let prefill = match replay.one_by_one {
            true => "the tokens are requested one by one, as in decode",
            false => "the tokens of a ubatch are requested at once",
        };
        facts.add("Prefill", prefill);
        facts.add("Warm-up", &format!("the first {} tokens after the cache was empty", replay.warmup));
        if let Some(run) = &trace.run {
            facts.add("Device", &run.devices.join(", "));
            facts.add("Windows", &format!("{} tokens; {} at once", run.ctx_size, run.ubatch_size));
            if let Some(generate) = run.generate {
                let sampling = run.sampling.as_ref().map_or(String::new(), |how| format!(", {how}"));
                facts.add("Generated", &format!("up to {generate} tokens behind each text{sampling}"));
            }
            facts.add_versions(&run.moeslice, Some(&run.llama_cpp));
        }
        facts.add("Replayed by", &format!("moeslice {}", env!("CARGO_PKG_VERSION")));
        let files = files(trace.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.files.as_slice())));
        let remarks = notes(replay.remarks.iter().map(String::as_str));
        section("replayed", "What was replayed", "", &[facts.html(), files, remarks].concat())
    }
}

impl PartResult {
    /// Tokens of the part.
    fn tokens(&self) -> u64 {
        self.counts.tokens
    }
}

#[cfg(test)]
mod tests;
