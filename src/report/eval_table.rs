//! Measurements as tables.

use super::TextStyle;
use super::table::fitting;
use super::wording::percent;
use crate::evaluate::{CacheRouting, EvalRow, Evaluation, Figures, Knee};
use crate::units::ByteCount;

/// Columns that a corpus takes beside others, and that the figures of all corpora take without the label.
const CORPUS_WIDTH: usize = 21;
const NARROW: usize = 72;
/// The row without a cache in it.
const PLAIN: &str = "none";

/// Columns of a table that grows line by line while it is measured.
#[derive(Clone, Debug)]
pub struct SweepTable {
    names: Vec<String>,
    score_width: usize,
    style: TextStyle,
    /// Corpora that have a column beside the others.
    beside: usize,
}

impl SweepTable {
    /// For rows about these corpora, whose labels (score or plan) have at most so many characters.
    pub fn new(names: Vec<String>, label_width: usize, style: TextStyle) -> Self {
        let mut table = SweepTable { names, score_width: label_width.max(5), style, beside: 0 };
        let first = table.line(&Default::default()).chars().count();
        table.beside = table.names.len().min(style.table_width().saturating_sub(first) / CORPUS_WIDTH);
        table
    }

    /// The two lines above the rows.
    pub fn header(&self) -> String {
        let mut line =
            self.line(&["K", "size", "score", "kept", "worst", "PPL", "±", "KL", "±"].map(String::from));
        for name in self.names.iter().take(self.beside) {
            line += &format!("  {:>19}", short(name));
        }
        line.truncate(line.trim_end().len());
        self.style.table(line + "\n")
    }

    /// The corpora that found no place beside the others, below them; nothing where all did.
    pub fn rest(&self, rows: &[EvalRow]) -> String {
        let names: Vec<&String> = self.names.iter().skip(self.beside).collect();
        if names.is_empty() {
            return String::new();
        }
        let heads: Vec<String> = names.iter().map(|name| short(name)).collect();
        let header: Vec<&str> = ["K", "score"].into_iter().chain(heads.iter().map(String::as_str)).collect();
        let cells = |row: &EvalRow| {
            let each = names.iter().map(|name| row.corpora.get(*name).map_or_else(String::new, pair));
            [row.k.to_string(), label(row)].into_iter().chain(each).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        format!("\n{}\n", fitting(&self.style, &header, &rows, (2, 0)))
    }

    /// One row.
    pub fn row(&self, row: &EvalRow) -> String {
        let share = |share: Option<f64>| share.map_or_else(String::new, percent);
        let kl = row.all.kl.as_ref();
        let mut line = self.line(&[
            row.k.to_string(),
            ByteCount(row.bytes).to_string(),
            label(row),
            share(row.coverage_mean),
            share(row.coverage_worst),
            number(row.all.ppl),
            number(row.all.ppl_err),
            kl.map_or_else(|| "-".into(), |kl| divergence(kl.kl_mean)),
            kl.map_or_else(String::new, |kl| divergence(kl.kl_err)),
        ]);
        for name in self.names.iter().take(self.beside) {
            line += &format!("  {:>19}", row.corpora.get(name).map_or_else(String::new, pair));
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    }

    fn line(&self, cells: &[String; 9]) -> String {
        let [k, size, score, kept, worst, ppl, ppl_err, kl, kl_err] = cells;
        let width = self.score_width;
        // What a narrow terminal can do without, other columns tell, too.
        if self.style.table_width() < NARROW + width {
            return format!("{k:>4}  {size:>9}  {score:<width$}  {ppl:>8}  {kl:>8}  {kl_err:>7}");
        }
        format!(
            "{k:>4}  {size:>9}  {score:<width$}  {kept:>6}  {worst:>6}  {ppl:>8}  {ppl_err:>6}  {kl:>8}  {kl_err:>7}"
        )
    }
}

/// Columns of a table of caches that take part in the routing; it grows line by line while it is measured.
#[derive(Clone, Debug)]
pub struct RoutingTable {
    policy_width: usize,
    style: TextStyle,
}

impl RoutingTable {
    /// For rows of these policies.
    pub fn new(policies: impl Iterator<Item = &'static str>, style: TextStyle) -> Self {
        let widths = policies.chain(["policy", PLAIN]).map(|name| name.chars().count());
        RoutingTable { policy_width: widths.max().unwrap_or(0), style }
    }

    /// The two lines above the rows.
    pub fn header(&self) -> String {
        let names = ["policy", "a layer", "λ", "PPL", "±", "KL", "±", "missed", "replayed", "change"];
        self.style.table(self.line(&names.map(String::from)) + "\n")
    }

    /// One row; without a cache that of the plain routing.
    pub fn row(&self, row: &EvalRow) -> String {
        let routing = row.routing.as_ref();
        let of = |text: &dyn Fn(&CacheRouting) -> String| routing.map_or_else(String::new, text);
        let kl = row.all.kl.as_ref();
        let share = |share: f64| format!("{:.2}%", share * 100.0);
        let line = self.line(&[
            routing.map_or(PLAIN, |routing| &routing.policy).to_owned(),
            of(&|routing| routing.capacity.to_string()),
            of(&|routing| routing.lambda.to_string()),
            number(row.all.ppl),
            number(row.all.ppl_err),
            kl.map_or_else(|| "-".into(), |kl| divergence(kl.kl_mean)),
            kl.map_or_else(String::new, |kl| divergence(kl.kl_err)),
            of(&|routing| share(routing.closed.miss_rate())),
            of(&|routing| share(routing.open.miss_rate())),
            of(&|routing| match routing.closed.miss_rate() - routing.open.miss_rate() {
                0.0 => String::new(),
                change => format!("{:+.2}%", change * 100.0),
            }),
        ]);
        format!("{}\n", line.trim_end())
    }

    fn line(&self, cells: &[String; 10]) -> String {
        let [policy, capacity, lambda, ppl, ppl_err, kl, kl_err, missed, replayed, change] = cells;
        let width = self.policy_width;
        let name = format!("{policy:<width$}  {capacity:>7}  {lambda:>5}");
        let cache = format!("{missed:>7}  {replayed:>8}  {change:>7}");
        // What a narrow terminal can do without.
        if self.style.table_width() < NARROW + 8 + width {
            return format!("{name}  {ppl:>8}  {kl:>8}  {cache}");
        }
        format!("{name}  {ppl:>8}  {ppl_err:>6}  {kl:>8}  {kl_err:>7}  {cache}")
    }
}

/// What tells a row from others with as many experts.
fn label(row: &EvalRow) -> String {
    let label = row.plan.as_deref().or(row.score.as_deref());
    label.unwrap_or(if row.masked { "plan" } else { "all" }).to_owned()
}

/// Perplexity and divergence of one corpus.
fn pair(figures: &Figures) -> String {
    let kl = figures.kl.as_ref().map(|kl| format!(" ({})", divergence(kl.kl_mean))).unwrap_or_default();
    format!("{}{kl}", number(figures.ppl))
}

fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.4}"),
        value if value < 1000.0 => format!("{value:.3}"),
        value => format!("{value:.0}"),
    }
}

fn divergence(value: f64) -> String {
    if value != 0.0 && value < 0.001 { format!("{value:.1e}") } else { format!("{value:.4}") }
}

fn short(name: &str) -> String {
    let cut: String = name.chars().take(10).collect();
    format!("{cut} PPL (KL)")
}

impl Evaluation {
    /// The corpora of one row, one below another, and all of them together.
    pub fn corpora_table(&self, row: &EvalRow, style: &TextStyle) -> String {
        let with_base = row.all.kl.is_some();
        let mut header = vec!["corpus", "scored", "PPL", "±"];
        if with_base {
            header.extend([
                "base PPL", "KL", "±", "median", "99 %", "max", "Δp RMS", "same top", "ln ratio", "±",
            ]);
        }
        let mut rows = Vec::new();
        for corpus in &self.corpora {
            if let Some(figures) = row.corpora.get(&corpus.name) {
                rows.push(cells(&corpus.name, figures));
            }
        }
        if self.corpora.iter().filter(|corpus| !corpus.other).count() > 1 {
            rows.push(cells("together", &row.all));
        }
        fitting(style, &header, &rows, (1, 1))
    }

    /// The lines below the table: noise, knee, and what a reader has to know.
    pub fn notes(&self) -> String {
        let mut text = String::new();
        if let Some(noise) = &self.noise {
            let kl = noise.all.kl.as_ref();
            text += &format!(
                "noise: the same model {} has KL {} (99 % of the tokens at most {}), PPL {}: smaller differences say nothing\n",
                noise.against,
                kl.map_or_else(String::new, |kl| divergence(kl.kl_mean)),
                kl.map_or_else(String::new, |kl| divergence(kl.kl_p99)),
                number(noise.all.ppl),
            );
        }
        if let Some(Knee { k, above, below }) = &self.knee {
            text += &format!(
                "knee: K = {k}; down to it each expert cut costs KL {above:.4}, below it {below:.4}\n"
            );
        }
        for remark in &self.remarks {
            text += &format!("{remark}\n");
        }
        text
    }
}

fn cells(name: &str, figures: &Figures) -> Vec<String> {
    let mut cells =
        vec![name.to_owned(), figures.scored.to_string(), number(figures.ppl), number(figures.ppl_err)];
    if let Some(kl) = &figures.kl {
        cells.extend([
            number(kl.ppl_base),
            divergence(kl.kl_mean),
            divergence(kl.kl_err),
            divergence(kl.kl_median),
            divergence(kl.kl_p99),
            divergence(kl.kl_max),
            percent_of(kl.dp_rms),
            percent_of(kl.same_top),
            format!("{:.5}", kl.ln_ppl_ratio),
            format!("{:.5}", kl.ln_ppl_ratio_err),
        ]);
    }
    cells
}

fn percent_of(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}
