//! Whether a plan, which may have been written by hand, fits a model.

use super::choose::groups;
use super::{KeepLists, Plan, PlanFault, PlanFileError};
use crate::moe::{ExpertLayer, Experts, Identity, LayerKind};
use crate::profile::Kinship;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

impl Plan {
    /// Checks the plan against the model that it is to be used with; the paths serve the messages alone. A plan that
    /// names no source counts as one for this model.
    ///
    /// # Errors
    /// When it was made for another model, or does not fit this one: see [`PlanFault`].
    pub fn check(
        &self,
        experts: &Experts,
        identity: &Identity,
        path: &Path,
        model: &Path,
    ) -> Result<Kinship, PlanFileError> {
        let kinship = match &self.source {
            Some(source) if source.router_hash != identity.router_hash => {
                let planned = source.file.clone();
                return Err(PlanFileError::OtherModel { path: path.into(), planned, model: model.into() });
            }
            Some(source) if source.fingerprint != identity.fingerprint => Kinship::SameRouters,
            _ => Kinship::Same,
        };
        let fault = |fault| PlanFileError::Fault { path: path.into(), fault };
        let (layer, kept) = check_lists(&self.keep, experts).map_err(fault)?;
        if self.k != kept {
            return Err(fault(PlanFault::Count { stated: self.k, layer, kept }));
        }
        Ok(kinship)
    }
}

/// Checks the kept experts of every layer; the lists must be ascending. Gives the number kept, and a layer that keeps
/// so many.
///
/// # Errors
/// The first fault.
pub fn check_lists(keep: &KeepLists, experts: &Experts) -> Result<(u32, u32), PlanFault> {
    if let Some(&layer) = keep.keys().find(|&&layer| experts.layer(layer).is_none()) {
        let layers: Vec<String> = experts.layers.iter().map(|layer| layer.layer.to_string()).collect();
        return Err(PlanFault::ExtraLayer { layer, layers: layers.join(", ") });
    }
    let mut lists = Vec::with_capacity(experts.layers.len());
    for layer in &experts.layers {
        let (il, n_expert) = (layer.layer, layer.n_expert);
        let ids = keep.get(&il).ok_or(match layer.kind {
            LayerKind::NextN => PlanFault::MissingNextN { layer: il, n_expert },
            _ => PlanFault::MissingLayer { layer: il, n_expert },
        })?;
        if let Some(&id) = ids.iter().find(|&&id| id >= n_expert) {
            return Err(PlanFault::Id { layer: il, id, n_expert });
        }
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(PlanFault::Twice { layer: il, id: pair[1] });
        }
        lists.push((layer, ids));
    }
    let Some((other, k)) = number_kept(&lists) else {
        return Err(PlanFault::MissingLayer { layer: 0, n_expert: experts.n_expert });
    };
    for &(layer, ids) in &lists {
        let (il, kept, wanted) = (layer.layer, ids.len(), layer.kept(k) as usize);
        if kept == wanted {
            continue;
        }
        return Err(if layer.n_expert <= k {
            PlanFault::SmallLayer { layer: il, kept, n_expert: layer.n_expert, k, other }
        } else {
            PlanFault::Uneven { layer: il, kept, wanted, other }
        });
    }
    experts.check_keep(k)?;
    let groups = groups(experts);
    for &(layer, ids) in lists.iter().filter(|(layer, ids)| ids.len() < layer.n_expert as usize) {
        let (size, wanted) = (layer.n_expert / groups, (k / groups) as usize);
        for group in 0..groups {
            let kept = ids.iter().filter(|&&id| id / size == group).count();
            if kept != wanted {
                return Err(PlanFault::UnevenGroups { layer: layer.layer, group, kept, wanted });
            }
        }
    }
    Ok((other, k))
}

/// The number that most of the largest layers keep, which no shortage of experts limits, and the first of these.
fn number_kept(lists: &[(&ExpertLayer, &Vec<u32>)]) -> Option<(u32, u32)> {
    let largest = lists.iter().map(|(layer, _)| layer.n_expert).max()?;
    let mut by_number: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for (layer, ids) in lists.iter().filter(|(layer, _)| layer.n_expert == largest) {
        by_number.entry(ids.len()).or_insert((0, layer.layer)).0 += 1;
    }
    let (&k, &(_, layer)) = by_number.iter().max_by_key(|(_, (layers, first))| (*layers, Reverse(*first)))?;
    // No list is longer than its layer, whose experts are counted by a u32.
    Some((layer, k as u32))
}
