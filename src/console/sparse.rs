//! Progress for a log: seldom a line, where no terminal shows a bar.

use crate::progress::Unit;
use crate::units::ByteCount;
use std::time::{Duration, Instant};

/// Between two lines, and before the first.
const PAUSE: Duration = Duration::from_secs(60);

/// A stage of which a line is told at each tenth of the way, at most one a minute.
pub struct Sparse {
    stage: String,
    unit: Unit,
    begun: Instant,
    last: Instant,
    tenth: u64,
}

impl Sparse {
    /// A stage that begins.
    pub fn new(stage: &str, unit: Unit, now: Instant) -> Sparse {
        Sparse { stage: stage.to_owned(), unit, begun: now, last: now, tenth: 0 }
    }

    /// What to say of how far the stage has come, when it is time.
    pub fn line(&mut self, (done, total): (u64, u64), now: Instant) -> Option<String> {
        let share = done.min(total) as f64 / total.max(1) as f64;
        let tenth = (share * 10.0) as u64;
        if tenth <= self.tenth || done >= total || now.duration_since(self.last) < PAUSE {
            return None;
        }
        (self.tenth, self.last) = (tenth, now);
        let left = now.duration_since(self.begun).as_secs_f64() * (1.0 - share) / share;
        let counts = match self.unit {
            Unit::Tokens => format!(", {done} of {total} tokens"),
            Unit::Bytes => format!(", {} of {}", ByteCount(done), ByteCount(total)),
            Unit::Percent => String::new(),
        };
        let minutes = (left / 60.0).ceil();
        Some(format!("{}: {:.0} %{counts}, about {minutes} min left", self.stage, share * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a stage of 100 steps, each of so many seconds.
    fn lines(seconds: u64) -> Vec<String> {
        let begin = Instant::now();
        let mut sparse = Sparse::new("profiling", Unit::Tokens, begin);
        let at = |step: u64| begin + Duration::from_secs(seconds * step);
        (1..=100).filter_map(|step| sparse.line((step * 10, 1000), at(step))).collect()
    }

    #[test]
    fn long_stage_is_told_at_each_tenth() {
        let told = lines(60);
        assert_eq!(told.len(), 9, "{told:?}");
        assert_eq!(told[3], "profiling: 40 %, 400 of 1000 tokens, about 60 min left");
    }

    #[test]
    fn no_two_lines_stand_within_a_minute() {
        let told = lines(2);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("30 %") && told[1].contains("60 %") && told[2].contains("90 %"), "{told:?}");
        assert!(lines(0).is_empty(), "a short stage says nothing");
    }
}
