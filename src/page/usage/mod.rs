//! The page of a usage: where the routing goes, what each number of experts keeps, and the plan where there is one.

mod answer;
mod colour;
mod counted;
mod document;
mod routing;
mod sections;

use super::frame::{Frame, scripts};
use super::origin;
use super::quality::quality;
use crate::evaluate::Evaluation;
use crate::plan::{Coverages, Plan, coverage};
use crate::report::{PlanTable, UsageReport};
use crate::usage::Usage;

/// Bytes that a page with gate weights may have; with more, it has the counts alone.
const LIMIT: usize = 2_000_000;

/// What the page of a usage shows.
#[derive(Clone, Copy, Debug)]
pub struct UsagePage<'a> {
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
    page: UsagePage<'a>,
    report: UsageReport,
    coverages: Option<Coverages>,
}

impl UsagePage<'_> {
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
        let measured = self.page.measured.filter(|measured| !measured.rows.is_empty());
        [
            self.header(),
            self.answer(),
            self.cost(),
            measured.map_or_else(String::new, |measured| quality(measured, Some(self.k()))),
            self.routing(),
            self.curves(),
            self.skew(),
            self.overlap(),
            self.stability(),
            self.kept(),
            self.counted(),
            origin::command(self.page.command, &self.report.limits),
        ]
        .concat()
    }

    fn html(&self, body: &str, weights: bool) -> String {
        let title = format!("{}: which experts its texts activate", self.report.model.file);
        let data = self.document(weights);
        Frame { title: &title, body, data: &data, script: scripts::USAGE }.html()
    }
}

#[cfg(test)]
mod tests;
