//! What must hold between the figures of a usage: a file that was edited or damaged breaks some of it.

use super::{ExpertSums, LayerUsage, ProfiledModel, Usage};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// From this count on, equal counts of all experts are no chance.
const EQUAL_COUNTS_ARE_SUSPECT_FROM: u64 = 8;

/// All experts of a layer were selected equally often: the mark of a routing tensor read with the wrong stride.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "layer {layer}: all {n_expert} experts were selected exactly {count} times; routers do not do that, so the routing was misread"
)]
#[non_exhaustive]
pub struct AllEqual {
    /// The layer.
    pub layer: u32,
    /// Its experts.
    pub n_expert: usize,
    /// The count of each.
    pub count: u64,
}

/// Refuses counts that are all the same.
///
/// # Errors
/// Names the layer, unless every token selects all experts or there were only a few tokens.
pub fn check_not_all_equal(layer: u32, n_expert_used: u32, sums: &ExpertSums) -> Result<(), AllEqual> {
    let [first, rest @ ..] = sums.count.as_slice() else { return Ok(()) };
    let n_expert = sums.count.len();
    let suspect = *first >= EQUAL_COUNTS_ARE_SUSPECT_FROM && (n_expert_used as usize) < n_expert;
    if suspect && rest.iter().all(|count| count == first) {
        return Err(AllEqual { layer, n_expert, count: *first });
    }
    Ok(())
}

impl Usage {
    /// Checks that the figures agree with each other.
    ///
    /// # Errors
    /// Says which layer, corpus and numbers contradict each other.
    pub fn check(&self) -> Result<(), String> {
        self.model.check()?;
        if let Some(part) = &self.run.part
            && !((1..=part.of).contains(&part.index) && part.of <= super::Part::MOST)
        {
            return Err(format!("run.part is {} of {}", part.index, part.of));
        }
        let mut tokens = BTreeMap::new();
        for corpus in &self.corpora {
            if corpus.name.chars().any(char::is_control) {
                return Err(format!("the name of corpus {:?} holds control characters", corpus.name));
            }
            if tokens.insert(corpus.name.as_str(), corpus.tokens).is_some() {
                return Err(format!("corpus {:?} is listed twice", corpus.name));
            }
        }
        if self.layers.is_empty() {
            return Err("no layer was counted".into());
        }
        if !self.layers.windows(2).all(|pair| pair[0].layer < pair[1].layer) {
            return Err("layers are not in ascending order".into());
        }
        for layer in &self.layers {
            let il = layer.layer;
            if !self.model.expert_layers.contains(&il) {
                return Err(format!("layer {il} is not among model.expert_layers"));
            }
            let n_expert = layer.total.count.len();
            if n_expert == 0 || n_expert > self.model.n_expert as usize {
                return Err(format!("layer {il}: {n_expert} experts, the model has {}", self.model.n_expert));
            }
            let used = layer.n_expert_used;
            if used == 0 || used > self.model.n_expert_used || used as usize > n_expert {
                return Err(format!(
                    "layer {il}: {used} experts used for a token, of {n_expert}; the model uses {}",
                    self.model.n_expert_used
                ));
            }
            layer.check(&tokens)?;
            check_not_all_equal(il, used, &layer.total).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl ProfiledModel {
    fn check(&self) -> Result<(), String> {
        if self.file.chars().chain(self.architecture.chars()).any(char::is_control) {
            return Err("model.file or model.architecture holds control characters".into());
        }
        if self.n_expert_used == 0 || self.n_expert_used > self.n_expert {
            return Err(format!(
                "model.n_expert_used is {}, the model has {} experts",
                self.n_expert_used, self.n_expert
            ));
        }
        let layers = &self.expert_layers;
        if !layers.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err("model.expert_layers are not in ascending order".into());
        }
        match layers.last() {
            Some(&last) if last >= self.n_layer => {
                Err(format!("model.expert_layers holds {last}, the model has {} layers", self.n_layer))
            }
            _ => Ok(()),
        }
    }
}

impl LayerUsage {
    fn check(&self, tokens: &BTreeMap<&str, u64>) -> Result<(), String> {
        let of = |corpus: &str| format!("layer {}, {corpus}", self.layer);
        self.total.check(self.n_expert_used).map_err(|what| format!("{}: {what}", of("total")))?;
        let names: BTreeSet<&str> = tokens.keys().copied().collect();
        if !self.corpora.keys().map(String::as_str).eq(names.iter().copied()) {
            return Err(format!("layer {}: its corpora are not those listed under corpora", self.layer));
        }
        let n_expert = self.total.count.len();
        let mut joined = ExpertSums::zero_like(&self.total);
        for (name, sums) in &self.corpora {
            sums.check(self.n_expert_used).map_err(|what| format!("{}: {what}", of(name)))?;
            if sums.count.len() != n_expert || sums.columns() != self.total.columns() {
                return Err(format!("{}: not as many experts, or other columns, than in total", of(name)));
            }
            let listed = tokens[name.as_str()];
            if sums.n_tokens > listed {
                return Err(format!("{}: {} tokens, the corpus has {listed}", of(name), sums.n_tokens));
            }
            joined.add(sums).ok_or_else(|| format!("{}: the sums overflow", of(name)))?;
        }
        if joined.n_tokens != self.total.n_tokens || joined.count != self.total.count {
            return Err(format!("layer {}: the corpora do not add up to the total", self.layer));
        }
        self.check_half()?;
        self.check_exact()?;
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        match (&joined.weight, &self.total.weight) {
            (Some(a), Some(b)) if !a.iter().zip(b).all(|(a, b)| close(a, b)) => Err(format!(
                "layer {}: the gate weights of the corpora do not add up to the total",
                self.layer
            )),
            _ => match (&joined.activation, &self.total.activation) {
                (Some(a), Some(b)) if !a.is_close(b) => Err(format!(
                    "layer {}: the activations of the corpora do not add up to the total",
                    self.layer
                )),
                _ => Ok(()),
            },
        }
    }
}

impl ExpertSums {
    /// Which columns there are: gate weights, activations.
    fn columns(&self) -> (bool, bool) {
        (self.weight.is_some(), self.activation.is_some())
    }

    pub(super) fn check(&self, n_expert_used: u32) -> Result<(), String> {
        let sum = self.count.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
        let wanted = self.n_tokens.checked_mul(u64::from(n_expert_used));
        match (sum, wanted) {
            (Some(sum), Some(wanted)) if sum == wanted => {}
            (Some(sum), _) => {
                return Err(format!(
                    "counts add up to {sum}, not {} tokens × {n_expert_used} experts",
                    self.n_tokens
                ));
            }
            (None, _) => return Err("counts overflow".into()),
        }
        if let Some(expert) = self.count.iter().position(|&count| count > self.n_tokens) {
            return Err(format!("expert {expert} was selected more often than there were tokens"));
        }
        if let Some(activation) = &self.activation {
            activation.check(&self.count)?;
        }
        let Some(weight) = &self.weight else { return Ok(()) };
        if weight.len() != self.count.len() {
            return Err(format!("{} gate weights for {} experts", weight.len(), self.count.len()));
        }
        for (expert, (weight, &count)) in weight.iter().zip(&self.count).enumerate() {
            if !weight.is_finite() {
                return Err(format!("the gate weight of expert {expert} is not a number"));
            }
            if count == 0 && *weight != 0.0 {
                return Err(format!("expert {expert} was never selected and has gate weight {weight}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_counts_of_all_experts_are_detected() {
        let sums = |count: Vec<u64>| ExpertSums { n_tokens: 0, count, weight: None, activation: None };
        let misread = check_not_all_equal(5, 2, &sums(vec![500; 4]));
        assert_eq!(misread, Err(AllEqual { layer: 5, n_expert: 4, count: 500 }));
        check_not_all_equal(5, 4, &sums(vec![500; 4])).unwrap();
        check_not_all_equal(5, 2, &sums(vec![2; 4])).unwrap();
        check_not_all_equal(5, 2, &sums(vec![500, 500, 499, 501])).unwrap();
    }
}
