//! The lines of the charts: one a policy and way of routing, over capacities of one kind.

use crate::replay::{Replay, RunResult};
use crate::report::wording::{digits, grouped};
use crate::units::ByteCount;
use serde::Serialize;

/// The looks of lines: colours that people who see few of them tell apart, and dashes for those who see none.
const LOOKS: [&str; 15] = [
    "c0",
    "c1",
    "c2",
    "c3",
    "c4",
    "c5",
    "c0 dashed",
    "c1 dashed",
    "c2 dashed",
    "c3 dashed",
    "c4 dashed",
    "c5 dashed",
    "c0 dotted",
    "c1 dotted",
    "c2 dotted",
];

/// The look of what no cache can do better than.
const OPTIMA: [&str; 2] = ["ink dotted", "ink dashed"];

/// Caches of one kind of room.
#[derive(Serialize)]
pub(super) struct Chart {
    /// Whether the room is so many experts of each layer; bytes of all layers together otherwise.
    of_layers: bool,
    pub(super) series: Vec<Series>,
    /// Whether the exact curve of lru belongs to it.
    curve: bool,
}

/// One line.
#[derive(Serialize)]
pub(super) struct Series {
    pub(super) label: String,
    class: &'static str,
    pub(super) points: Vec<Point>,
}

/// One cache.
#[derive(Serialize)]
pub(super) struct Point {
    /// Experts of each layer, or bytes.
    pub(super) x: u64,
    /// Place of its row in the replay.
    pub(super) row: usize,
}

impl Chart {
    pub(super) fn title(&self) -> &'static str {
        match self.of_layers {
            true => "A cache for each layer, by the experts that it holds",
            false => "One cache for all layers, by its size",
        }
    }

    pub(super) fn is_of_layers(&self) -> bool {
        self.of_layers
    }

    /// What the lines are: class and words.
    pub(super) fn key(&self) -> Vec<(&str, &str)> {
        let mut key: Vec<(&str, &str)> =
            self.series.iter().map(|series| (series.class, series.label.as_str())).collect();
        if self.curve {
            key.push(("faint", "lru at every size, the whole trace"));
        }
        key
    }

    /// The sizes, ascending.
    pub(super) fn stops(&self) -> Vec<u64> {
        let mut stops: Vec<u64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.x)).collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

/// The charts of a replay: one a kind of room.
pub(super) fn charts(replay: &Replay) -> Vec<Chart> {
    let chart = |of_layers: bool| {
        let series = lines(replay, of_layers);
        let curve = of_layers && replay.curve.is_some();
        (!series.is_empty() || curve).then_some(Chart { of_layers, series, curve })
    };
    [true, false].into_iter().filter_map(chart).collect()
}

fn lines(replay: &Replay, of_layers: bool) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    let mut looks = LOOKS.iter().cycle();
    let mut optima = OPTIMA.iter().cycle();
    for (row, run) in replay.rows.iter().enumerate() {
        if run.capacity.is_some() != of_layers {
            continue;
        }
        let point = Point { x: run.capacity.map_or(run.capacity_bytes, u64::from), row };
        let label = label(run);
        match found.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(point),
            None => {
                let looks = if is_optimum(run) { &mut optima } else { &mut looks };
                let class = looks.next().expect("a cycle has no end");
                found.push(Series { label, class, points: vec![point] });
            }
        }
    }
    found.iter_mut().for_each(|series| series.points.sort_by_key(|point| point.x));
    found
}

/// Whether a row is a bound, and no cache that can be built.
pub(super) fn is_optimum(run: &RunResult) -> bool {
    run.policy.parse::<crate::cache::PolicyKind>().is_ok_and(|policy| policy.is_optimum())
}

/// The name of a policy with what else was asked of it.
pub(super) fn label(run: &RunResult) -> String {
    let aware = run.cache_aware.as_ref().map_or(String::new(), |aware| format!(", λ = {}", aware.lambda));
    let ahead = run.prefetch.as_ref();
    let ahead =
        ahead.map_or(String::new(), |plan| format!(", fetches {} ahead ({})", plan.experts, plan.place));
    format!("{}{aware}{ahead}", run.policy)
}

/// The room of a cache in words.
pub(super) fn room(run: &RunResult) -> String {
    match run.capacity {
        Some(capacity) => format!("{capacity} experts a layer"),
        None => ByteCount(run.capacity_bytes).to_string(),
    }
}

/// Tokens a second.
pub(super) fn speed(rate: f64) -> String {
    if rate < 1000.0 { digits(rate) } else { grouped(rate.round() as u64) }
}
