//! How many experts a model can keep.

use std::fmt;

use thiserror::Error;

use super::{Experts, Groups};

/// A number of experts that a model cannot keep.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot keep {k} of {n_expert} experts: {limit}{}", Nearest(*below, *above))]
#[non_exhaustive]
pub struct CountError {
    /// The number.
    pub k: u32,
    /// Experts of the model.
    pub n_expert: u32,
    /// What is against it.
    pub limit: CountLimit,
    /// The next smaller number that is possible.
    pub below: Option<u32>,
    /// The next larger one.
    pub above: Option<u32>,
}

/// What limits the number of experts that a model can keep.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CountLimit {
    /// No expert.
    #[error("at least one has to stay")]
    Zero,
    /// More than there are.
    #[error("there are not so many")]
    TooMany,
    /// Fewer than a token goes to.
    #[error("a token goes to {used} of them")]
    BelowUsed {
        /// The largest `{arch}.expert_used_count`.
        used: u32,
    },
    /// llama.cpp wants more experts than groups.
    #[error("llama.cpp needs more of them than groups, of which there are {groups}")]
    GroupCount {
        /// `{arch}.expert_group_count`.
        groups: u32,
    },
    /// Groups of unequal size.
    #[error("the {groups} groups have to keep the same number each")]
    GroupRemainder {
        /// `{arch}.expert_group_count`.
        groups: u32,
    },
    /// Groups are ranked by their two best experts.
    #[error("each of the {groups} groups needs at least 2")]
    GroupSize {
        /// `{arch}.expert_group_count`.
        groups: u32,
    },
    /// The groups that a token reaches hold fewer experts than it goes to.
    #[error("the {groups_used} groups that a token reaches would hold {reach}, and it goes to {used}")]
    GroupReach {
        /// `{arch}.expert_group_used_count`.
        groups_used: u32,
        /// Experts that they would hold together.
        reach: u32,
        /// The largest `{arch}.expert_used_count`.
        used: u32,
    },
    /// llama.cpp computes something else at a certain number of experts.
    #[error("{architecture} is another model at {count} experts: {what}")]
    SpecialCount {
        /// `general.architecture`.
        architecture: &'static str,
        /// The number, of the model or asked for.
        count: u32,
        /// What depends on it.
        what: &'static str,
    },
    /// No number is possible but all.
    #[error("a model of architecture {architecture} cannot be cut: {why}")]
    Refused {
        /// `general.architecture`.
        architecture: String,
        /// The reason.
        why: &'static str,
    },
}

const CHUNKS: &str = "it has chunk experts, which each serve a fixed run of experts";

impl Experts {
    /// Whether every layer can keep `k` experts, or all of its own where it has fewer.
    ///
    /// With groups, each of them has to keep `k / groups`. Keeping all experts is always possible.
    pub fn check_count(&self, k: u32) -> Result<(), CountError> {
        self.limit(k).map_err(|limit| CountError {
            k,
            n_expert: self.n_expert,
            limit,
            below: (1..=k.saturating_sub(1).min(self.n_expert)).rev().find(|&k| self.limit(k).is_ok()),
            above: k.checked_add(1).and_then(|k| self.next_count(k)),
        })
    }

    /// Every possible number of experts, ascending; the last is all of them.
    pub fn possible_counts(&self) -> Vec<u32> {
        (1..=self.n_expert).filter(|&k| self.limit(k).is_ok()).collect()
    }

    /// The smallest possible number that is `k` or more.
    pub fn next_count(&self, k: u32) -> Option<u32> {
        (k.max(1)..=self.n_expert).find(|&k| self.limit(k).is_ok())
    }

    /// The groups, when there are several and the architecture's router honours them. Where none are given, every
    /// expert competes with every other.
    pub fn effective_groups(&self) -> Option<Groups> {
        let honoured = self.arch.is_none_or(|arch| arch.groups);
        self.groups.filter(|groups| groups.count > 1 && honoured)
    }

    fn limit(&self, k: u32) -> Result<(), CountLimit> {
        let used = self.n_expert_used;
        match k {
            0 => return Err(CountLimit::Zero),
            k if k > self.n_expert => return Err(CountLimit::TooMany),
            k if k == self.n_expert => return Ok(()),
            _ => {}
        }
        let why = self.arch.and_then(|arch| arch.refuse).or(self.chunks.then_some(CHUNKS));
        if let Some(why) = why {
            return Err(CountLimit::Refused { architecture: self.architecture.clone(), why });
        }
        if k < used {
            return Err(CountLimit::BelowUsed { used });
        }
        if let Some(groups) = self.groups {
            self.group_limit(k, groups.count, groups.used)?;
        }
        if let Some(arch) = self.arch
            && let Some((count, what)) = arch.special_count
            && (self.n_expert == count || k == count)
        {
            return Err(CountLimit::SpecialCount { architecture: arch.architecture, count, what });
        }
        Ok(())
    }

    fn group_limit(&self, k: u32, groups: u32, groups_used: u32) -> Result<(), CountLimit> {
        if k <= groups {
            return Err(CountLimit::GroupCount { groups });
        }
        if groups <= 1 {
            return Ok(());
        }
        if !k.is_multiple_of(groups) {
            return Err(CountLimit::GroupRemainder { groups });
        }
        if k / groups < 2 {
            return Err(CountLimit::GroupSize { groups });
        }
        let (reach, used) = (groups_used * (k / groups), self.n_expert_used);
        if self.effective_groups().is_some() && reach < used {
            return Err(CountLimit::GroupReach { groups_used, reach, used });
        }
        Ok(())
    }
}

/// The end of a message: the numbers next to one that is not possible.
struct Nearest(Option<u32>, Option<u32>);

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(below), Some(above)) => write!(f, "; the nearest possible are {below} and {above}"),
            (Some(one), None) | (None, Some(one)) => write!(f, "; the nearest possible is {one}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
