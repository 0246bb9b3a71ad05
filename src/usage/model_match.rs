//! Whether a usage is that of the model at hand.

use std::path::Path;

use super::{ProfiledModel, Usage, UsageError};
use crate::moe::{Identity, RouterMatch};

/// How a model relates to a usage file that is to be used with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelMatch {
    /// The very file that was profiled (or a split or merged copy of it).
    Same,
    /// Other bytes with the same routers: another quantisation of the same model.
    SameRouters,
    /// Routers that agree to the precision of the coarser type: another quantisation, its routers included.
    ConvertedRouters,
}

impl ModelMatch {
    /// What to tell the user, if anything.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            ModelMatch::Same => None,
            ModelMatch::SameRouters => {
                Some("made with other bytes of this model, such as another quantisation: same routers")
            }
            ModelMatch::ConvertedRouters => Some(
                "made with another quantisation of this model, whose routers were converted as well: they agree to the \
                 precision of the coarser type",
            ),
        }
    }
}

impl Usage {
    /// How the model at hand is related to the one that was profiled. The paths serve the message alone.
    ///
    /// # Errors
    /// When it is another model, or a cut of it: its routers differ.
    pub fn model_match(
        &self,
        identity: &Identity,
        usage: &Path,
        model: &Path,
    ) -> Result<ModelMatch, UsageError> {
        // A fine-tune can share metadata and tensor table with its base: the routers decide.
        let profiled = (self.model.router_hash.as_str(), self.model.router_sketch.as_ref());
        let at_hand = (identity.router_hash.as_str(), identity.router_sketch.as_ref());
        let stated = ProfiledModel::new(Path::new(&self.model.file), identity);
        let same_shape =
            (&self.model.architecture, self.model.n_layer, self.model.n_expert, &self.model.expert_layers)
                == (&stated.architecture, stated.n_layer, stated.n_expert, &stated.expert_layers);
        match RouterMatch::of(profiled, at_hand) {
            Some(RouterMatch::Same) if !same_shape => {
                let what = "what it says of its model is not true of the model with these routers".into();
                Err(UsageError::Inconsistent { path: usage.into(), what })
            }
            Some(RouterMatch::Same) if self.model.fingerprint == identity.fingerprint => Ok(ModelMatch::Same),
            Some(RouterMatch::Same) => Ok(ModelMatch::SameRouters),
            Some(RouterMatch::Converted) if same_shape => Ok(ModelMatch::ConvertedRouters),
            _ => Err(UsageError::OtherModel {
                usage: usage.into(),
                profiled: self.model.file.clone(),
                model: model.into(),
            }),
        }
    }
}
