//! The section about what was measured: perplexity and divergence, as the page of a usage and that of a measurement
//! have it.

use super::markup::{Row, Table, notes, section};
use crate::evaluate::{EvalRow, EvaluatedCorpus, Evaluation, Figures};
use crate::report::wording::{digits, grouped, percent, seen_text};
use crate::units::ByteCount;

/// The rows as a table and, where there are several, as charts; `chosen` is the number of experts that the page is about.
pub(super) fn quality(measured: &Evaluation, chosen: Option<u32>) -> String {
    let names: Vec<&str> = measured.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
    let apart = names.len() > 1;
    let has = |of: fn(&EvalRow) -> bool| measured.rows.iter().any(of);
    let (with_kl, with_kept) = (has(|row| row.all.kl.is_some()), has(|row| row.coverage_mean.is_some()));
    let mut head: Vec<String> = ["K", "chosen by", "size"].map(str::to_owned).to_vec();
    if with_kept {
        head.push("routing kept".into());
    }
    head.push("PPL".into());
    if with_kl {
        head.extend(["KL divergence", "same first choice"].map(str::to_owned));
    }
    head.extend(names.iter().filter(|_| apart).map(|name| format!("PPL of {name}")));
    let rows = measured.rows.iter().filter(|row| row.routing.is_none()).map(|row| {
        let mut cells = vec![row.k.to_string(), chosen_by(row), ByteCount(row.bytes).to_string()];
        if with_kept {
            cells.push(row.coverage_mean.map_or("–".into(), percent));
        }
        cells.push(perplexity(&row.all));
        if with_kl {
            let kl = row.all.kl;
            cells.push(kl.map_or("–".into(), |kl| plus_minus(kl.kl_mean, kl.kl_err)));
            cells.push(kl.map_or("–".into(), |kl| percent(kl.same_top)));
        }
        cells.extend(
            names.iter().filter(|_| apart).map(|name| row.corpora.get(*name).map_or("–".into(), perplexity)),
        );
        Row { cells, chosen: Some(row.k) == chosen && measured.rows.len() > 1 }
    });
    let caption = if with_kl { "Perplexity and divergence" } else { "Perplexity" };
    let table = Table { caption, head, rows: rows.collect(), left: 0 };
    let several = measured.rows.len() > 1;
    let mut body = String::new();
    if several {
        body += "<h3>Perplexity</h3><figure class=\"needs-script\" id=\"ppl-chart\"></figure>\n";
    }
    if several && with_kl {
        body += "<h3>KL divergence from the whole model, nats a token</h3><figure class=\"needs-script\" id=\"kl-chart\"></figure>\n";
    }
    body += &table.html();
    body += &remarks(measured);
    section("quality", "What it costs in quality", "", &body)
}

/// On what it was measured, and what a reader has to know of the figures.
pub(super) fn remarks(measured: &Evaluation) -> String {
    let texts: Vec<String> = measured.corpora.iter().map(text_line).collect();
    let mut lines = vec![format!("Measured on {}.", texts.join(", "))];
    if let Some(noise) = &measured.noise {
        let kl = noise
            .all
            .kl
            .map_or_else(|| digits(noise.all.ppl), |kl| format!("a KL divergence of {}", digits(kl.kl_mean)));
        lines.push(format!(
            "The model against itself ({}) gives {kl}: smaller differences say nothing.",
            noise.against
        ));
    }
    lines.extend(measured.remarks.iter().cloned());
    notes(lines.iter().map(String::as_str))
}

/// The row that tells most: the cut at the knee, or the smallest; otherwise what was measured last.
pub fn telling_row(measured: &Evaluation) -> Option<&EvalRow> {
    // Rows of another routing say nothing of a cut.
    let rows = || measured.rows.iter().filter(|row| row.routing.is_none());
    let knee = measured.knee.as_ref().and_then(|knee| rows().find(|row| row.k == knee.k));
    let smallest = || rows().filter(|row| row.masked).min_by_key(|row| row.k);
    knee.or_else(smallest).or_else(|| rows().next_back())
}

/// What the experts of a row were chosen by.
fn chosen_by(row: &EvalRow) -> String {
    row.plan.clone().or_else(|| row.score.clone()).unwrap_or_else(|| "–".into())
}

fn text_line(corpus: &EvaluatedCorpus) -> String {
    let seen = corpus.seen.map_or(String::new(), |seen| format!(", {}", seen_text(seen)));
    let other = if corpus.other { ", other work" } else { "" };
    format!("{} ({} tokens scored{seen}{other})", corpus.name, grouped(corpus.scored))
}

/// A value with its standard error.
pub(super) fn plus_minus(value: f64, err: f64) -> String {
    format!("{} ± {}", digits(value), digits(err))
}

/// Perplexity with its standard error.
pub(super) fn perplexity(figures: &Figures) -> String {
    plus_minus(figures.ppl, figures.ppl_err)
}
