//! A model that runs as if some of its experts had been cut out.

use crate::arch::{GatingFunction, Mask};
use crate::llama::{Node, ObserveError, Observer, Site};
use crate::moe::{ExpertLayer, Experts, KeptError, KeptExperts, LayerKind, Role};
use crate::slice::Remap;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Writes -inf into the router nodes of the experts that do not stay, so that the whole model computes what the cut
/// one would.
///
/// Which nodes that takes is part of the table of architectures ([`crate::arch::Mask`]). Layers that look their
/// experts up by token have no scores to overwrite: there the ids themselves are replaced as in a cut table.
pub struct ExpertMask {
    sites: Vec<Site>,
    layers: BTreeMap<u32, MaskedLayer>,
    proven: bool,
    values: Vec<f32>,
    ids: Vec<i32>,
}

struct MaskedLayer {
    /// For each expert, whether it stays.
    stays: Vec<bool>,
    /// Experts that a token goes to.
    n_expert_used: usize,
    /// For layers with a table: its rewriting, and the kept ids that new ids stand for.
    table: Option<(Remap, Vec<u32>)>,
    /// The sites without which the mask has holes: of each list, one at least.
    needed: Vec<Vec<Site>>,
    reached: BTreeSet<Site>,
}

/// Why a model cannot run as if it had been cut.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MaskError {
    /// Masking an expert is not the same as removing it.
    #[error("experts of architecture {architecture} cannot be masked: {why}")]
    Impossible {
        /// `general.architecture`.
        architecture: String,
        /// The reason.
        why: &'static str,
    },
    /// No model can be cut so.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// A layer whose experts were to be masked was not seen in the graph, or not all of what selects them.
    #[error(
        "the experts of layer {layer} were not masked: while the model ran, there was no {} in its graph",
        sites.iter().map(|site| site.name()).collect::<Vec<_>>().join(" or ")
    )]
    NeverReached {
        /// The layer.
        layer: u32,
        /// The nodes, one of which was expected.
        sites: Vec<Site>,
    },
}

/// The nodes of an architecture that the table does not know: those that serve nearly all others.
const GENERAL: [Site; 3] = [Site::Logits, Site::LogitsBiased, Site::ProbsBiased];

impl ExpertMask {
    /// Masks all experts but `kept`, which is checked as for a cut.
    ///
    /// # Errors
    /// When the model cannot be cut so, or a mask would not stand for the cut.
    pub fn new(experts: &Experts, kept: &KeptExperts) -> Result<Self, MaskError> {
        kept.check(experts)?;
        let (mut sites, proven) = match experts.arch.map(|arch| arch.mask) {
            Some(Mask::Impossible(why)) => {
                return Err(MaskError::Impossible { architecture: experts.architecture.clone(), why });
            }
            Some(mask) => {
                let sites = mask.nodes().iter().filter_map(|node| Site::named(node)).collect();
                (sites, matches!(mask, Mask::Proven(_)))
            }
            None => (GENERAL.to_vec(), false),
        };
        // Such a gate selects by the logits, to which the graph gives another name once it has them.
        if experts.gate == Some(GatingFunction::SoftmaxOfSelected) {
            sites.push(Site::Probs);
        }
        let cut = experts.layers.iter().filter(|layer| layer.kind != LayerKind::Mtp).filter_map(|layer| {
            let ids = kept.layer(layer.layer).filter(|ids| ids.len() < layer.n_expert as usize)?;
            let mut stays = vec![false; layer.n_expert as usize];
            ids.iter().for_each(|&id| stays[id as usize] = true);
            let table = matches!(layer.kind, LayerKind::Hash)
                .then(|| (Remap::new(ids, layer.n_expert), ids.to_vec()));
            let masked = MaskedLayer {
                stays,
                n_expert_used: layer.n_expert_used as usize,
                needed: needed(layer, experts.gate, &sites),
                table,
                reached: BTreeSet::new(),
            };
            Some((layer.layer, masked))
        });
        let layers = cut.collect();
        Ok(Self { sites, layers, proven, values: Vec::new(), ids: Vec::new() })
    }

    /// Whether masked models of the architecture have been compared with cut ones.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// To be asked when a pass is over: in a layer that was not masked, or not at every site that selects, experts
    /// took part that were to be left out.
    ///
    /// # Errors
    /// Names the first such layer, and what was missing.
    pub fn check_reached(&self) -> Result<(), MaskError> {
        for (&layer, masked) in &self.layers {
            let missing =
                masked.needed.iter().find(|sites| !sites.iter().any(|site| masked.reached.contains(site)));
            if let Some(sites) = missing {
                return Err(MaskError::NeverReached { layer, sites: sites.clone() });
            }
        }
        Ok(())
    }
}

/// The sites of a layer without which the mask has holes, of each list one at least.
fn needed(layer: &ExpertLayer, gate: Option<GatingFunction>, sites: &[Site]) -> Vec<Vec<Site>> {
    if layer.kind == LayerKind::Hash {
        return vec![vec![Site::Topk]];
    }
    let renamed = gate == Some(GatingFunction::SoftmaxOfSelected);
    let has = |role| layer.tensor(role).is_some();
    let mut needed = Vec::new();
    // A bias is added to what was masked before it, and makes numbers of it that can be selected.
    if has(Role::RouterBias) {
        needed.push(vec![if renamed { Site::Probs } else { Site::LogitsBiased }]);
    }
    if has(Role::SelectionBias) {
        needed.push(vec![Site::ProbsBiased, Site::LogitsBiased]);
    }
    // Where nothing is added behind them, the scores go by one name or another.
    let mut scores = vec![Site::Logits];
    scores.extend(sites.iter().copied().find(|&site| site == Site::Probs));
    scores.extend((!has(Role::SelectionBias)).then_some(Site::ProbsBiased));
    needed.push(scores);
    needed
}

impl Observer for ExpertMask {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let Some((site, layer)) = node.site() else { return false };
        self.layers.get(&layer).is_some_and(|masked| match masked.table {
            Some(_) => site == Site::Topk,
            None => self.sites.contains(&site),
        })
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, layer)) = node.site() else { return Ok(()) };
        let Some(masked) = self.layers.get_mut(&layer) else { return Ok(()) };
        masked.reached.insert(site);
        let n_expert = masked.stays.len();
        let width = node.dims()[0];
        let wrong_width = |expected: usize| ObserveError::Layout {
            node: node.name().to_owned(),
            what: format!("{width} columns where {expected} were expected"),
        };
        let Some((remap, kept)) = &masked.table else {
            if width != n_expert {
                return Err(wrong_width(n_expert));
            }
            node.read_floats(&mut self.values)?;
            for scores in self.values.chunks_exact_mut(n_expert) {
                let removed = scores.iter_mut().zip(&masked.stays).filter(|(_, stays)| !**stays);
                removed.for_each(|(score, _)| *score = f32::NEG_INFINITY);
            }
            return node.write_floats(&self.values);
        };
        if width != masked.n_expert_used {
            return Err(wrong_width(masked.n_expert_used));
        }
        node.read_ids(width, &mut self.ids)?;
        for (token, row) in self.ids.chunks_exact_mut(width).enumerate() {
            let new = remap.row(row).map_err(|id| ObserveError::ExpertOutOfRange {
                layer,
                token,
                id,
                n_expert: n_expert as u32,
            })?;
            row.iter_mut().zip(new).for_each(|(id, new)| *id = kept[new as usize] as i32);
        }
        node.write_ids(&self.ids)
    }
}
