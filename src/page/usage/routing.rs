//! The sections about where the routing goes: the heat map, the curves, how uneven the layers are.

use super::Content;
use crate::page::escape::escape;
use crate::page::markup::{Row, Table, key, section, switch};
use crate::report::LayerRow;
use crate::report::steps;
use crate::report::wording::percent;
use crate::usage::LayerUsage;

impl Content<'_> {
    /// The heat map with its switches, and the layer that is looked at.
    pub(super) fn routing(&self) -> String {
        let names = self.report.corpora.iter().map(|corpus| corpus.name.as_str());
        let all = [(String::new(), "all together")];
        let corpora: Vec<(String, &str)> =
            all.into_iter().chain(names.enumerate().map(|(at, name)| (at.to_string(), name))).collect();
        let corpora = if corpora.len() > 2 { switch("Corpus", "corpus", &corpora) } else { String::new() };
        let kept = [("kept", "what stays"), ("half", "busiest half"), ("none", "nothing")];
        let marks = if self.page.plan.is_some() { &kept[..] } else { &[kept[2], kept[1]] };
        let of = |choices: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            choices.iter().map(|&(value, words)| (value.to_owned(), words)).collect()
        };
        let marks = switch("Stand out", "mark", &of(marks));
        let order = switch("Columns", "order", &of(&[("id", "by id"), ("use", "busiest first")]));
        let body = format!(
            "<div class=\"controls needs-script\">{corpora}{marks}{order}</div>\n\
             <figure class=\"needs-script\"><canvas id=\"heat\" tabindex=\"0\" role=\"application\" aria-roledescription=\"heat map\" \
             aria-label=\"Selections of each expert by layer. Arrow keys go from expert to expert.\"></canvas>\n\
             <figcaption class=\"key\"><span id=\"legend\"></span><span>times the even share; a row a layer, a column an expert</span></figcaption></figure>\n\
             <p id=\"heat-says\" class=\"hidden\" aria-live=\"polite\"></p>\n\
             <div class=\"controls needs-script\"><span class=\"switch\"><label class=\"name\" for=\"layer\">One layer</label> <select id=\"layer\"></select></span>\
             <span class=\"switch box\"><label><input type=\"checkbox\" id=\"sorted\" checked>busiest first</label></span>\
             <button type=\"button\" id=\"show-experts\" aria-expanded=\"false\" aria-controls=\"experts\">As a table</button></div>\n\
             <figure class=\"needs-script\" id=\"bars\"></figure>\n\
             <div class=\"scroll tall\" id=\"experts\" tabindex=\"0\" role=\"region\" aria-label=\"The experts of one layer\" hidden></div>\n"
        );
        section(
            "routing",
            "Where the routing goes",
            "Each layer sends every token to a few of its experts. The darker the cell (on dark paper, the lighter), the more \
             tokens the expert gets. Point at a cell, tap it, or walk with the arrow keys.",
            &body,
        )
    }

    /// What the busiest experts of each layer cover.
    pub(super) fn curves(&self) -> String {
        let model = &self.report.model;
        let ks = steps(model.n_expert, model.n_expert_used);
        let row = |layer: &LayerUsage| {
            let mut counts = layer.total.count.clone();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let all: u64 = counts.iter().sum();
            let share = |&k: &u32| {
                let kept: u64 = counts.iter().take(k as usize).sum();
                percent(kept as f64 / all as f64)
            };
            (all > 0).then(|| {
                Row::new([layer.layer.to_string()].into_iter().chain(ks.iter().map(share)).collect())
            })
        };
        let table = Table {
            caption: "Share of each layer's routing that its K busiest experts cover",
            head: ["layer".to_owned()].into_iter().chain(ks.iter().map(|k| format!("K = {k}"))).collect(),
            rows: self.page.usage.layers.iter().filter_map(row).collect(),
            left: 0,
        };
        let lines =
            [("blue", "mean of the layers"), ("orange dashed", "worst layer"), ("faint", "each layer")];
        let body = format!(
            "{}<figure class=\"needs-script\" id=\"curves\"></figure>\n{}",
            key(&lines),
            table.folded("The layers as a table")
        );
        section(
            "coverage",
            "What the busiest experts cover",
            "The sooner a curve rises, the fewer experts do most of the work, and the more can go. The switch above picks the \
             corpus here too.",
            &body,
        )
    }

    /// How uneven the layers are, as bars and as a table.
    pub(super) fn skew(&self) -> String {
        let rows = &self.report.layers.rows;
        let row = |row: &LayerRow| {
            let as_even_as = format!("{:.1} of {}", row.all.entropy_bits.exp2(), row.n_expert);
            Row::new(row.cells().into_iter().chain([as_even_as]).collect())
        };
        let table = Table {
            caption: "How uneven each layer is, all corpora together",
            head: [
                "layer",
                "tokens",
                "busiest / least",
                "std / mean",
                "never selected",
                "entropy (bits)",
                "as even as",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: rows.iter().map(row).collect(),
            left: 0,
        };
        let body = format!(
            "<figure class=\"needs-script\" id=\"skew-bars\"></figure>\n<p class=\"note\">{} A full bar is a layer that uses all \
             its experts alike.</p>\n{}",
            escape(&self.report.median_line()),
            table.folded("The layers as a table")
        );
        section("skew", "How uneven the layers are", "", &body)
    }
}
