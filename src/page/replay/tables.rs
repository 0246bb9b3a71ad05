//! What the charts show, as tables, and every figure of each cache.

use super::series::{Chart, label, room, speed};
use super::{Part, ReplayPage};
use crate::page::markup::{Row, Table, section};
use crate::replay::{PartResult, RunResult};
use crate::report::wording::{capital, digits, grouped, percent_up};
use crate::units::ByteCount;

/// Points of the exact curve that a table shows.
const CURVE_ROWS: usize = 32;

impl ReplayPage<'_> {
    /// One part of the trace: policies over sizes.
    pub(super) fn part_table(&self, chart: &Chart, part: Part) -> String {
        if chart.series.is_empty() {
            return String::new();
        }
        let stops = chart.stops();
        let words = |stop: &u64| match chart.is_of_layers() {
            true => stop.to_string(),
            false => ByteCount(*stop).to_string(),
        };
        let row = |series: &super::series::Series| {
            let cell = |stop: &u64| {
                let point = series.points.iter().find(|point| point.x == *stop);
                let run = point.and_then(|point| self.replay.rows.get(point.row));
                run.map_or("–".into(), |run| self.cell((part.of)(run)))
            };
            Row::new([series.label.clone()].into_iter().chain(stops.iter().map(cell)).collect())
        };
        let what = if self.transfers.is_some() {
            "share that misses, tokens/s modelled"
        } else {
            "share that misses"
        };
        let caption = format!("{}: {what}", capital(part.words));
        let table = Table {
            caption: &caption,
            head: ["policy".to_owned()].into_iter().chain(stops.iter().map(words)).collect(),
            rows: chart.series.iter().map(row).collect(),
            left: 1,
        };
        table.folded(&format!("{} as a table", capital(part.words)))
    }

    fn cell(&self, part: &PartResult) -> String {
        if part.counts.requests == 0 {
            return "–".into();
        }
        let speed = part.tokens_per_second.map_or(String::new(), |rate| format!(", {}/s", speed(rate)));
        format!("{}{speed}", percent_up(1.0 - part.hit_rate))
    }

    /// The exact curve of lru.
    pub(super) fn curve_table(&self) -> String {
        let Some(curve) = &self.replay.curve else { return String::new() };
        let every = curve.points.len().div_ceil(CURVE_ROWS).max(1);
        let shown =
            curve.points.iter().enumerate().filter(|(at, _)| at % every == 0 || at + 1 == curve.points.len());
        let row = |(_, point): (usize, &crate::replay::CurvePoint)| {
            Row::new(vec![
                point.capacity.to_string(),
                percent_up(1.0 - point.hit_rate),
                grouped(point.misses),
            ])
        };
        let table = Table {
            caption: "lru, the whole trace: experts of each layer in its cache",
            head: ["experts", "share that misses", "misses"].map(str::to_owned).to_vec(),
            rows: shown.map(row).collect(),
            left: 0,
        };
        table.folded("lru at every size as a table")
    }

    /// Every cache with all of its figures.
    pub(super) fn caches(&self) -> String {
        let rows = &self.replay.rows;
        if rows.is_empty() {
            return String::new();
        }
        let ahead = rows.iter().any(|row| row.prefetch.is_some());
        let modelled = self.transfers.is_some();
        let mut head =
            vec!["policy", "room", "misses", "steady", "misses/token", "bytes/token prefill", "decode"];
        if ahead {
            head.extend(["fetched ahead, useful", "wasted"]);
        }
        if modelled {
            head.extend(["tokens/s prefill", "decode"]);
        }
        head.extend(["cold", "warm", "steady misses"]);
        let row = |row: &RunResult| self.cache_row(row, ahead, modelled);
        let table = Table {
            caption: "Each cache, over the whole trace unless its column says otherwise",
            head: head.into_iter().map(str::to_owned).collect(),
            rows: rows.iter().map(row).collect(),
            left: 1,
        };
        let turns = self.turns();
        let note = format!(
            "Misses are cold at the first use of an expert since the cache was empty, warm among the first {} tokens, steady after \
             them.{}",
            self.replay.warmup,
            if rows.iter().any(|row| row.cache_aware.as_ref().is_some_and(|aware| aware.lambda > 0.0)) {
                " With λ, experts in the cache are preferred, in an open loop: the model does not notice in the replay."
            } else {
                ""
            }
        );
        section("caches", "Each cache", &note, &[table.html(), turns].concat())
    }

    fn cache_row(&self, row: &RunResult, ahead: bool, modelled: bool) -> Row {
        let bytes = |part: &PartResult| match part.counts.bytes {
            0 if part.counts.misses > 0 || part.counts.tokens == 0 => "–".to_owned(),
            _ => ByteCount(part.bytes_per_token.round() as u64).to_string(),
        };
        let share = |part: &PartResult| match part.counts.requests {
            0 => "–".to_owned(),
            _ => percent_up(1.0 - part.hit_rate),
        };
        let mut cells = vec![
            label(row),
            row.capacity.map_or_else(|| room(row), |capacity| format!("{capacity}/layer")),
            share(&row.all),
            share(&row.steady),
            digits(row.all.misses_per_token),
            bytes(&row.prefill),
            bytes(&row.decode),
        ];
        if ahead {
            let counts = row.prefetch.as_ref().map(|ahead| ahead.counts);
            let bytes = |bytes: Option<u64>| bytes.map_or("–".into(), |bytes| ByteCount(bytes).to_string());
            cells.push(bytes(counts.map(|counts| counts.useful_bytes)));
            cells.push(bytes(counts.map(|counts| counts.wasted_bytes)));
        }
        if modelled {
            cells.extend(
                [&row.prefill, &row.decode].map(|part| part.tokens_per_second.map_or("–".into(), speed)),
            );
        }
        cells.extend([row.cold_misses, row.warm_misses, row.steady_misses].map(grouped));
        Row::new(cells)
    }

    /// By turn of the conversation, where there is more than one.
    fn turns(&self) -> String {
        let rows = &self.replay.rows;
        let n = rows.iter().map(|row| row.turns.len()).max().unwrap_or(0);
        if n < 2 {
            return String::new();
        }
        let row = |row: &RunResult| {
            let cache = format!("{}, {}", label(row), room(row));
            let turn = |at: usize| row.turns.get(at).map_or("–".into(), |part| self.cell(part));
            Row::new([cache].into_iter().chain((0..n).map(turn)).collect())
        };
        let table = Table {
            caption: "Share that misses, by turn of the conversation",
            head: ["cache".to_owned()]
                .into_iter()
                .chain((1..=n).map(|turn| format!("turn {turn}")))
                .collect(),
            rows: rows.iter().map(row).collect(),
            left: 1,
        };
        table.folded("By turn of the conversation")
    }
}
