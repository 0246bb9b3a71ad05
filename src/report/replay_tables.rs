//! The tables of `replay`.

use super::TextStyle;
use super::table::fitting;
use super::wording::{percent, shell_word};
use crate::replay::{Advice, AdviceRow, Choice, PartResult, Replay, RunResult};
use crate::units::ByteCount;
use serde::Serialize;
use std::fmt::Write;

/// Bytes a token.
fn each(bytes: Option<f64>) -> String {
    bytes.map_or("–".to_owned(), |bytes| ByteCount(bytes.round() as u64).to_string())
}

/// The result of a replay.
pub fn replay(replay: &Replay, style: &TextStyle) -> String {
    let many = |n: u64| if n == 1 { "" } else { "s" };
    let (tokens, layers) = (replay.tokens, replay.n_layer);
    let mut text =
        format!("{tokens} token{}, {layers} layer{} with experts", many(tokens), many(layers as u64));
    if replay.working_set_bytes > 0 {
        let _ = write!(text, ", {} of experts a token", ByteCount(replay.working_set_bytes));
    }
    let sessions =
        if replay.carry { "the cache carries over" } else { "each session begins with an empty cache" };
    let _ = write!(text, "; {sessions}");
    if replay.one_by_one {
        text += "; prefill one token at a time";
    }
    text += "\n\n";
    if !replay.rows.is_empty() {
        text += &rows(replay, style);
    }
    if let Some(curve) = &replay.curve {
        let _ = writeln!(
            text,
            "\nlru, a cache for each layer: {} requests, {} of them the first of an expert\n",
            curve.requests, curve.cold_misses
        );
        let every = curve.points.len().div_ceil(16).max(1);
        let shown = curve.points.iter().rev().step_by(every).collect::<Vec<_>>();
        let points: Vec<Vec<String>> = (shown.iter().rev())
            .map(|point| vec![point.capacity.to_string(), percent(point.hit_rate), point.misses.to_string()])
            .collect();
        text += &fitting(style, &["capacity", "hits", "misses"], &points, (1, 0));
    }
    text
}

fn rows(replay: &Replay, style: &TextStyle) -> String {
    let aware = replay.rows.iter().any(|row| row.cache_aware.is_some());
    let ahead = replay.rows.iter().any(|row| row.prefetch.is_some());
    // A trace may have one phase alone.
    let modelled = replay.rows.iter().any(|row| row.all.tokens_per_second.is_some());
    let mut header = vec!["policy", "capacity"];
    if aware {
        header.push("λ");
    }
    header.extend(["hits", "steady", "misses/token", "MB/token prefill", "decode"]);
    if ahead {
        header.extend(["useful", "wasted"]);
    }
    if modelled {
        header.extend(["tokens/s prefill", "decode"]);
    }
    header.extend(["cold", "warm", "steady"]);
    let mb = |part: &PartResult| match part.counts.bytes {
        0 if part.counts.misses > 0 || part.counts.tokens == 0 => "–".to_owned(),
        _ => format!("{:.3}", part.bytes_per_token / 1e6),
    };
    let rate =
        |part: &PartResult| part.tokens_per_second.map_or("–".to_owned(), |rate| format!("{rate:.1}"));
    let line = |row: &RunResult| {
        let capacity = match row.capacity {
            Some(capacity) => format!("{capacity}/layer"),
            None => ByteCount(row.capacity_bytes).to_string(),
        };
        let mut line = vec![row.policy.to_owned(), capacity];
        if aware {
            line.push(row.cache_aware.as_ref().map_or(String::new(), |aware| aware.lambda.to_string()));
        }
        line.extend([
            percent(row.all.hit_rate),
            percent(row.steady.hit_rate),
            format!("{:.2}", row.all.misses_per_token),
            mb(&row.prefill),
            mb(&row.decode),
        ]);
        if ahead {
            line.extend(row.prefetch.as_ref().map_or([String::new(), String::new()], |ahead| {
                [
                    ByteCount(ahead.counts.useful_bytes).to_string(),
                    ByteCount(ahead.counts.wasted_bytes).to_string(),
                ]
            }));
        }
        if modelled {
            line.extend([rate(&row.prefill), rate(&row.decode)]);
        }
        line.extend([row.cold_misses, row.warm_misses, row.steady_misses].map(|misses| misses.to_string()));
        line
    };
    let lines: Vec<Vec<String>> = replay.rows.iter().map(line).collect();
    let mut text = fitting(style, &header, &lines, (if aware { 3 } else { 2 }, 1));
    let _ = writeln!(
        text,
        "\ncold: the first request of an expert since the cache was empty; warm: other misses in the first {} tokens; steady: all later ones",
        replay.warmup
    );
    if aware {
        text += "λ: cache-aware routing in an open loop: the hidden states stay those of the plain routing, so the misses hold for a model that does not notice\n";
    }
    if modelled {
        text += "tokens/s: a model, not a measurement: what the transfers of the misses alone would allow\n";
    }
    text
}

/// Advice with the flags to type.
#[derive(Serialize)]
pub struct WithFlags {
    budget_bytes: u64,
    expert_bytes: u64,
    tokens: u64,
    ubatch: usize,
    rows: Vec<RowWithFlags>,
}

#[derive(Serialize)]
struct RowWithFlags {
    #[serde(flatten)]
    row: AdviceRow,
    flags: String,
}

impl WithFlags {
    /// Adds the flags; `file` is the model's.
    pub fn new(advice: Advice, file: Option<&str>) -> WithFlags {
        let flags = |row: &AdviceRow| match &row.choice {
            Choice::Whole => "-ngl all".to_owned(),
            Choice::Cut { k, .. } => {
                let file = file.map_or("MODEL".to_owned(), shell_word);
                format!("moeslice run -m {file} -f TEXT --keep {k} -o CUT.gguf")
            }
            Choice::HostLayers { blocks, .. } => format!("-ngl all -ncmoe {blocks}"),
            Choice::Cache { mib, .. } => format!("-ngl all -cmoe --moe-cache-mib {mib}"),
        };
        let Advice { budget_bytes, expert_bytes, tokens, ubatch, rows, .. } = advice;
        let rows = rows.into_iter().map(|row| RowWithFlags { flags: flags(&row), row }).collect();
        WithFlags { budget_bytes, expert_bytes, tokens, ubatch, rows }
    }
}

impl WithFlags {
    /// The choices as a table; where a terminal has no room for that, their words and flags stand below their figures.
    pub fn text(&self, style: &TextStyle) -> String {
        let (budget, all) = (ByteCount(self.budget_bytes), ByteCount(self.expert_bytes));
        let head =
            format!("{all} of experts, {budget} of room for them, {} tokens of routing\n\n", self.tokens);
        if self.rows.is_empty() {
            return head + "no choice fits: not even the experts that one token uses have room\n";
        }
        let what = |row: &AdviceRow| match &row.choice {
            Choice::Whole => "all experts on the device".to_owned(),
            Choice::Cut { k, coverage_mean, coverage_worst, .. } => format!(
                "cut to {k} a layer, {} of the routing (worst layer {})",
                percent(*coverage_mean),
                percent(*coverage_worst)
            ),
            Choice::HostLayers { n, .. } => format!("experts of {n} layers in host memory"),
            Choice::Cache { decode_hit_rate, .. } => {
                let hits = decode_hit_rate.map(|rate| format!(" ({} hits in decode)", percent(rate)));
                format!("all in host memory, expert cache{}", hits.unwrap_or_default())
            }
        };
        let figures = |row: &AdviceRow| {
            vec![
                ByteCount(row.device_bytes).to_string(),
                each(row.prefill_bus_bytes),
                each(row.decode_bus_bytes),
                each(Some(row.decode_host_bytes)),
            ]
        };
        let header = ["on the device", "bus/token prefill", "decode", "host reads/token decode"];
        let whole = |RowWithFlags { row, flags }: &RowWithFlags| {
            [vec![what(row)], figures(row), vec![flags.clone()]].concat()
        };
        let whole: Vec<Vec<String>> = self.rows.iter().map(whole).collect();
        let mut text = fitting(style, &[&["choice"], &header[..], &["flags"]].concat(), &whole, (1, 1));
        if text.lines().any(|line| line.chars().count() > style.table_width()) {
            let numbered =
                |(at, of): (usize, &RowWithFlags)| [vec![(at + 1).to_string()], figures(&of.row)].concat();
            let numbered: Vec<Vec<String>> = self.rows.iter().enumerate().map(numbered).collect();
            text = fitting(style, &[&["choice"], &header[..]].concat(), &numbered, (1, 1)) + "\n";
            for (at, RowWithFlags { row, flags }) in self.rows.iter().enumerate() {
                let _ = writeln!(text, "{}  {}\n   {flags}", at + 1, what(row));
            }
        }
        // A trace of decode alone has none.
        let ubatches = match self.ubatch {
            0 => String::new(),
            n => format!(", with the trace's ubatches of {n} tokens at most"),
        };
        let _ = writeln!(
            text,
            "\nbus: bytes of experts that cross it for a token{ubatches}; host reads: bytes that the processor reads from its own memory, where it computes in decode"
        );
        head + &text
    }
}
