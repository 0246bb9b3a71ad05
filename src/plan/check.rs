//! Whether a plan, which may have been written by hand, fits a model.

use super::{Plan, PlanFault, PlanFileError};
use crate::moe::{Experts, Identity};
use crate::usage::ModelMatch;
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
    ) -> Result<ModelMatch, PlanFileError> {
        let model_match = match &self.source {
            Some(source) if source.router_hash != identity.router_hash => {
                let planned = source.file.clone();
                return Err(PlanFileError::OtherModel { path: path.into(), planned, model: model.into() });
            }
            Some(source) if source.fingerprint != identity.fingerprint => ModelMatch::SameRouters,
            _ => ModelMatch::Same,
        };
        let fault = |fault| PlanFileError::Fault { path: path.into(), fault };
        let kept = self.keep.check(experts).map_err(|error| fault(error.into()))?;
        let as_stated = |(layer, ids): (u32, &[u32])| {
            experts.layer(layer).is_some_and(|layer| ids.len() == layer.kept(self.k) as usize)
        };
        if !self.keep.iter().all(as_stated) {
            return Err(fault(PlanFault::Count { stated: self.k, kept }));
        }
        Ok(model_match)
    }
}
