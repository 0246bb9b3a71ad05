//! Experts that are kept whatever their score.

use super::PlanError;
use crate::moe::Experts;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The experts that are kept whatever their score, by layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<u32, BTreeSet<u32>>);

/// A list of pinned experts that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{part:?} is not LAYER:ID; write for example 0:17,3:5")]
#[non_exhaustive]
pub struct PinSyntaxError {
    /// The text between two commas.
    pub part: String,
}

impl FromStr for Pins {
    type Err = PinSyntaxError;

    fn from_str(text: &str) -> Result<Self, PinSyntaxError> {
        let mut pins = Pins::default();
        for part in text.split(',') {
            let pair =
                part.trim().split_once(':').and_then(|(layer, id)| Some((number(layer)?, number(id)?)));
            let (layer, id) = pair.ok_or_else(|| PinSyntaxError { part: part.into() })?;
            pins.0.entry(layer).or_default().insert(id);
        }
        Ok(pins)
    }
}

/// Digits alone, no sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().flat_map(|(layer, ids)| ids.iter().map(move |id| (layer, id)));
        for (at, (layer, id)) in pairs.enumerate() {
            write!(f, "{}{layer}:{id}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Pins {
    /// Whether no expert is pinned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These pins, and others.
    #[must_use]
    pub fn with(mut self, more: BTreeMap<u32, BTreeSet<u32>>) -> Self {
        for (layer, ids) in more {
            self.0.entry(layer).or_default().extend(ids);
        }
        self
    }

    /// Whether this expert is pinned.
    pub fn contains(&self, layer: u32, id: u32) -> bool {
        self.0.get(&layer).is_some_and(|ids| ids.contains(&id))
    }

    /// Checks that the model has every pinned expert.
    ///
    /// # Errors
    /// Names the first layer without experts, or the first id that its layer lacks.
    pub fn check(&self, experts: &Experts) -> Result<(), PlanError> {
        for (&layer, ids) in &self.0 {
            let Some(found) = experts.layer(layer) else { return Err(PlanError::PinLayer { layer }) };
            let n_expert = found.n_expert;
            if let Some(&id) = ids.range(n_expert..).next() {
                return Err(PlanError::PinId { layer, id, n_expert });
            }
        }
        Ok(())
    }

    /// Checks that a cut to `k` experts has room for every pinned expert; layers that stay whole have.
    ///
    /// # Errors
    /// Names the first layer, or group of a layer, with more pins than places.
    pub fn check_room(&self, experts: &Experts, k: u32) -> Result<(), PlanError> {
        let groups = experts.effective_groups().map_or(1, |groups| groups.count);
        for (&il, ids) in &self.0 {
            let Some(layer) = experts.layer(il).filter(|layer| layer.kept(k) < layer.n_expert) else {
                continue;
            };
            let (size, room) = (layer.n_expert / groups, k / groups);
            for group in 0..groups {
                let pins = ids.range(group * size..(group + 1) * size).count() as u32;
                if pins > room {
                    return Err(if groups == 1 {
                        PlanError::PinCount { layer: il, pins, k }
                    } else {
                        PlanError::PinGroup { layer: il, group, pins, k: room }
                    });
                }
            }
        }
        Ok(())
    }
}
