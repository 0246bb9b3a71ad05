//! The report as a page: one file without a network, for people and, by the JSON in it, for programs.
//!
//! Tables stand in the markup; the script draws figures from the embedded document and needs nothing else. A strict
//! Content-Security-Policy lets nothing run or load but that one script and style, which it names by their hashes.

mod answer;
mod colour;
mod document;
mod escape;
mod markup;
mod routing;
mod sections;

use super::{PlanTable, UsageReport};
use crate::evaluate::Evaluation;
use crate::plan::{Coverages, Plan, coverage};
use crate::usage::Usage;
use escape::{base64, escape};

pub use escape::shell_word;
use sha2::{Digest, Sha256};

/// The element that holds the data, by its id.
pub const DATA_ID: &str = "moeslice-data";

/// Bytes that a page with gate weights may have; with more, it has the counts alone.
const LIMIT: usize = 2_000_000;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    "(() => {\n'use strict';\n",
    include_str!("page/data.js"),
    include_str!("page/charts.js"),
    include_str!("page/heat.js"),
    include_str!("page/layer.js"),
    "})();\n"
);

/// What a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The usage, which [`Usage::check`] holds for.
    pub usage: &'a Usage,
    /// What every number of experts takes and covers, where the model was at hand.
    pub sizes: Option<&'a PlanTable>,
    /// The plan that the page is about.
    pub plan: Option<&'a Plan>,
    /// Bytes of the model, and of the cut by the plan.
    pub bytes: Option<(u64, u64)>,
    /// What was measured.
    pub measured: Option<&'a Evaluation>,
    /// The command line that made the page, program and arguments.
    pub command: &'a [String],
}

/// A page in the making.
struct Content<'a> {
    page: Page<'a>,
    report: UsageReport,
    coverages: Option<Coverages>,
}

impl Page<'_> {
    /// The file's text; `None` when nothing was routed in the usage.
    pub fn render(&self) -> Option<String> {
        let report = UsageReport::new(self.usage)?;
        let coverages = self.plan.and_then(|plan| coverage(self.usage, &plan.keep));
        let content = Content { page: *self, report, coverages };
        let body = content.body();
        let with_weights = content.html(&body, true);
        Some(if with_weights.len() <= LIMIT { with_weights } else { content.html(&body, false) })
    }
}

impl Content<'_> {
    /// The number of experts that the page is about: that of the plan, or the least that is enough.
    fn k(&self) -> u32 {
        self.page.plan.map_or(self.report.enough.k, |plan| plan.k)
    }

    fn body(&self) -> String {
        [
            self.header(),
            self.answer(),
            self.cost(),
            self.quality(),
            self.routing(),
            self.curves(),
            self.skew(),
            self.overlap(),
            self.stability(),
            self.kept(),
            self.measured(),
            self.command(),
        ]
        .concat()
    }

    fn html(&self, body: &str, weights: bool) -> String {
        let data = self.document(weights);
        let hash = |text: &str| base64(&Sha256::digest(text.as_bytes()));
        let (style, script) = (hash(STYLE), hash(SCRIPT));
        let title = escape(&self.report.model.file);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{script}'; \
             style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta name=\"generator\" content=\"moeslice {version}\">\n\
             <title>{title}: which experts its texts activate</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
             <footer>Made by moeslice {version}. This page loads nothing and sends nothing. Its data are JSON, in the element \
             <code>{DATA_ID}</code>.</footer>\n</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
             <script type=\"application/json\" id=\"{DATA_ID}\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

#[cfg(test)]
mod tests;
