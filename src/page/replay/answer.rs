//! The head of the page: what was replayed, and which cache misses least.

use super::ReplayPage;
use super::series::{is_optimum, label, room, speed};
use crate::cache::PolicyKind;
use crate::page::markup;
use crate::replay::RunResult;
use crate::report::wording::{digits, grouped, layers, percent, percent_up};
use crate::units::ByteCount;

impl ReplayPage<'_> {
    pub(super) fn header(&self) -> String {
        let trace = self.trace;
        let mut experts: Vec<u32> = trace.layers.iter().map(|layer| layer.n_expert).collect();
        experts.sort_unstable();
        let experts = match (experts.first(), experts.last()) {
            (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
            (_, most) => most.copied().unwrap_or(0).to_string(),
        };
        let model = trace.model.as_ref().map_or(self.file, |model| &model.file);
        let architecture =
            trace.model.as_ref().map_or(String::new(), |model| format!("{}, ", model.architecture));
        let sub = format!(
            "{architecture}{} of {experts} experts; routing of {}",
            layers(trace.layers.len()),
            self.file
        );
        markup::header("What a cache of experts would have to fetch", model, &sub)
    }

    /// The cache that misses least among the largest of its kind that can be built.
    fn best(&self) -> Option<&RunResult> {
        let built = || self.replay.rows.iter().filter(|row| !is_optimum(row));
        let of_layers = built().any(|row| row.capacity.is_some());
        let kind = || built().filter(move |row| row.capacity.is_some() == of_layers);
        let size = |row: &RunResult| row.capacity.map_or(row.capacity_bytes, u64::from);
        let largest = kind().map(size).max()?;
        kind().filter(|row| size(row) == largest).min_by(|a, b| b.all.hit_rate.total_cmp(&a.all.hit_rate))
    }

    pub(super) fn answer(&self) -> String {
        let (claim, sub) = match self.best() {
            Some(best) => (self.claim(best), self.bound(best)),
            None => self.of_the_curve(),
        };
        let without_script = "The charts are drawn by a script, which is switched off here. The tables have all that they show.";
        markup::answer(&claim, &sub, &self.tiles(), without_script)
    }

    fn claim(&self, best: &RunResult) -> String {
        let room_of_best = room(best);
        let is_other = |row: &&RunResult| !is_optimum(row) && room(row) == room_of_best;
        let others = self.replay.rows.iter().filter(is_other).count();
        let least = if others > 1 { ", least of the policies here" } else { "" };
        format!(
            "With room for {room_of_best}, {} misses {} of the accesses{least}.",
            label(best),
            percent_up(1.0 - best.all.hit_rate)
        )
    }

    /// What no policy could do better than, where it was asked for.
    fn bound(&self, best: &RunResult) -> String {
        // A policy that leaves misses out of the cache can miss less than the optimum of those that let each in.
        let lets_in = best.policy.parse::<PolicyKind>().is_ok_and(PolicyKind::fills_on_demand);
        let of_its_kind = if lets_in { PolicyKind::Belady } else { PolicyKind::BeladyBypass };
        let is_optimum = |row: &&RunResult| row.policy == of_its_kind.name() && room(row) == room(best);
        let optimum = self.replay.rows.iter().find(is_optimum);
        match optimum {
            Some(row) => {
                // With other choices, or experts fetched before they are asked for, a cache can miss less than the optimum.
                let aware = best.cache_aware.as_ref().is_some_and(|aware| aware.lambda > 0.0);
                let the = if aware || best.prefetch.is_some() { "Without that, the" } else { "The" };
                format!(
                    "{the} optimum, which knows what comes, misses {} at this size.",
                    percent_up(1.0 - row.all.hit_rate)
                )
            }
            None => format!(
                "{} of its misses are the first use of an expert, which no policy avoids.",
                percent(best.cold_misses as f64 / best.all.counts.misses.max(1) as f64)
            ),
        }
    }

    fn of_the_curve(&self) -> (String, String) {
        let Some(curve) = &self.replay.curve else { return ("Nothing was replayed.".into(), String::new()) };
        let cold = curve.cold_misses as f64 / curve.requests.max(1) as f64;
        let half = curve.points.iter().find(|point| point.hit_rate >= 0.5);
        let claim = match half {
            Some(point) => format!(
                "With {} experts of each layer, lru misses less than half of the accesses.",
                point.capacity
            ),
            None => "At no size does lru hit half of the accesses.".into(),
        };
        (
            claim,
            format!(
                "{} of the accesses are the first use of an expert, which no cache avoids.",
                percent_up(cold)
            ),
        )
    }

    fn tiles(&self) -> Vec<(&'static str, String, String)> {
        let mut tiles = Vec::new();
        let replay = self.replay;
        let phases = replay.rows.first().map_or(String::new(), |row| {
            format!("{} read, {} written", grouped(row.prefill.tokens()), grouped(row.decode.tokens()))
        });
        tiles.push(("Text", format!("{} tokens", grouped(replay.tokens)), phases));
        if replay.working_set_bytes > 0 {
            tiles.push((
                "One token",
                ByteCount(replay.working_set_bytes).to_string(),
                "of experts, over all layers".into(),
            ));
        }
        let Some(best) = self.best() else { return tiles };
        let decode = best.decode.tokens() > 0;
        let (part, words) = if decode { (&best.decode, "written") } else { (&best.all, "read") };
        if self.trace.has_bytes() {
            let bytes = ByteCount(part.bytes_per_token.round() as u64).to_string();
            tiles.push(("To fetch", bytes, format!("for a token that is {words}, by {}", best.policy)));
        } else {
            let misses = digits(part.misses_per_token);
            tiles.push((
                "To fetch",
                format!("{misses} experts"),
                format!("for a token that is {words}, by {}", best.policy),
            ));
        }
        if let Some(rate) = part.tokens_per_second {
            tiles.push((
                "Speed, modelled",
                format!("{} tokens/s", speed(rate)),
                format!("at most, for tokens that are {words}"),
            ));
        }
        tiles
    }
}
