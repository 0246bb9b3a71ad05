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
/// The sum of a softmax depends in its last bits on where its terms stand, and quantised models make more of that in every
/// layer. So where the processor computes it, the softmax is computed once more over just the scores that stay: the cut
/// file then gives the same numbers in every bit.
///
/// Which nodes that takes is part of the table of architectures ([`crate::arch::Mask`]). Layers that look their
/// experts up by token have no scores to overwrite: there the ids themselves are replaced as in a cut table.
pub struct ExpertMask {
    sites: Vec<Site>,
    layers: BTreeMap<u32, MaskedLayer>,
    proven: bool,
    values: Vec<f32>,
    ids: Vec<i32>,
    /// Whether the gate weights are a softmax of the scores that are masked.
    by_softmax: bool,
    /// The layer whose scores were masked last, and those of them that stay, row by row.
    staying: Option<(u32, Vec<f32>)>,
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
        let by_softmax = experts.gate == Some(GatingFunction::Softmax) && !sites.contains(&Site::Probs);
        let (values, ids) = (Vec::new(), Vec::new());
        Ok(Self { sites, layers, proven, values, ids, by_softmax, staying: None })
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
            None if site == Site::Probs && self.by_softmax => node.is_softmax_in_host_memory(),
            None => self.sites.contains(&site),
        })
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, layer)) = node.site() else { return Ok(()) };
        let Some(masked) = self.layers.get_mut(&layer) else { return Ok(()) };
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
            if site == Site::Probs && self.by_softmax {
                return match self.staying.take() {
                    Some((of, staying)) if of == layer => write_softmax(node, staying, &masked.stays),
                    _ => Ok(()),
                };
            }
            masked.reached.insert(site);
            node.read_floats(&mut self.values)?;
            let mut staying = self.staying.take().map_or_else(Vec::new, |(_, staying)| staying);
            staying.clear();
            for scores in self.values.chunks_exact_mut(n_expert) {
                for (score, &stays) in scores.iter_mut().zip(&masked.stays) {
                    if stays {
                        staying.push(*score);
                    } else {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
            self.staying = Some((layer, staying));
            return node.write_floats(&self.values);
        };
        masked.reached.insert(site);
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

/// Writes the softmax of the scores that stay into a node of all experts' probabilities.
fn write_softmax(node: &mut Node<'_>, mut staying: Vec<f32>, stays: &[bool]) -> Result<(), ObserveError> {
    let kept = stays.iter().filter(|&&stays| stays).count();
    node.softmax(&mut staying, kept)?;
    let rows = staying.len() / kept.max(1);
    let mut probabilities = staying.into_iter();
    let rows = std::iter::repeat_n(stays, rows).flatten();
    let values: Vec<f32> =
        rows.map(|&stays| if stays { probabilities.next().unwrap_or(0.0) } else { 0.0 }).collect();
    // Another number of rows than were masked is refused here.
    node.write_floats(&values)
}
