//! The head of a page: what it is about, and the answer before anything else.

use super::Content;
use crate::page::markup;
use crate::report::wording::{digits, grouped, layers, percent};
use crate::units::ByteCount;

impl Content<'_> {
    pub(super) fn header(&self) -> String {
        let model = &self.report.model;
        let sub = format!(
            "{}, {} of {} experts, {} used for a token",
            model.architecture,
            layers(model.layers),
            model.n_expert,
            model.n_expert_used
        );
        markup::header("Which experts your texts activate", &model.file, &sub)
    }

    /// The claim, a line below it, and the figures as tiles.
    pub(super) fn answer(&self) -> String {
        let n = self.report.model.n_expert;
        let (claim, sub) = match (&self.page.plan, &self.coverages) {
            (Some(plan), Some(coverages)) => {
                let all = coverages.all;
                let claim = format!(
                    "{} of {n} experts in each layer keep {} of the routing.",
                    plan.k,
                    percent(all.mean)
                );
                let least = coverages
                    .corpora
                    .iter()
                    .filter(|_| coverages.corpora.len() > 1)
                    .min_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
                let corpus = least.map_or_else(String::new, |(name, coverage)| {
                    format!(" Of the corpora, {name} keeps least: {}.", percent(coverage.mean))
                });
                (claim, format!("Layer {} keeps least: {}.{corpus}", all.worst_layer, percent(all.worst)))
            }
            _ if self.report.enough.k == n => (
                format!("Any cut costs: only all {n} experts leave every layer 95% of its routing."),
                self.report.meaning.clone(),
            ),
            _ => (
                format!("{} of {n} experts leave every layer 95% of its routing.", self.report.enough.k),
                self.report.meaning.clone(),
            ),
        };
        let without_script = "The figures are drawn by a script, which is switched off here. The tables have all that they \
                              show, but single experts.";
        markup::answer(&claim, &sub, &self.tiles(), without_script)
    }

    fn tiles(&self) -> Vec<(&'static str, String, String)> {
        let (k, n) = (self.k(), self.report.model.n_expert);
        let mut tiles = vec![];
        let at_k = self.page.sizes.and_then(|table| {
            Some((table.rows.last()?.bytes, table.rows.iter().find(|row| row.k == k)?.bytes))
        });
        match self.page.bytes.or(at_k) {
            Some((before, after)) => {
                let share = percent(after as f64 / before.max(1) as f64);
                tiles.push((
                    "Size",
                    ByteCount(after).to_string(),
                    format!("of {}, {share}", ByteCount(before)),
                ));
            }
            None => tiles.push(("Experts", format!("{k} of {n}"), "the size needs the model at hand".into())),
        }
        let all = self.coverages.as_ref().map_or(self.report.enough.all, |coverages| coverages.all);
        tiles.push((
            "Routing kept",
            percent(all.mean),
            format!("{} in layer {}, the worst", percent(all.worst), all.worst_layer),
        ));
        tiles.push(self.quality_tile());
        let tokens: u64 = self.report.corpora.iter().map(|corpus| corpus.tokens).sum();
        let enough = match self.stability_rows().and_then(|stability| stability.telling_row(k)) {
            Some(row) if row.wants_more_text() => "half of it would choose otherwise: profile more",
            Some(_) => "half of it would choose nearly the same",
            None => "the halves were not counted apart",
        };
        tiles.push(("Text", format!("{} tokens", grouped(tokens)), enough.into()));
        tiles
    }

    /// Nothing is said of quality but what was measured.
    fn quality_tile(&self) -> (&'static str, String, String) {
        let (k, n) = (self.k(), self.report.model.n_expert);
        let score = self.page.plan.and_then(|plan| plan.score.as_deref());
        let Some((measured, row)) =
            self.page.measured.and_then(|measured| Some((measured, measured.row(k, score)?)))
        else {
            let note = match self.page.measured {
                Some(_) => format!("K = {k} is not among what was measured"),
                None => "coverage counts selections; what the rest costs has to be measured".into(),
            };
            return ("Quality", "not measured".into(), note);
        };
        let ppl = format!("{} ± {}", digits(row.all.ppl), digits(row.all.ppl_err));
        match measured.base_ppl(row, n) {
            Some(base) if k < n => (
                "Perplexity",
                format!("{} → {}", digits(base), digits(row.all.ppl)),
                match row.all.kl {
                    Some(kl) => {
                        format!("{ppl}; KL divergence {} ± {}", digits(kl.kl_mean), digits(kl.kl_err))
                    }
                    None => ppl,
                },
            ),
            _ => ("Perplexity", ppl, "of the model as it is".into()),
        }
    }
}
