//! The two halves of the texts apart: whether half as much text would have said the same.

use super::{ExpertSums, LayerUsage, Usage};
use std::collections::BTreeMap;

impl Usage {
    /// The usage of the first half of the windows of each corpus, and that of the second; `None` where a layer that
    /// routed tokens does not know them apart.
    pub fn halves(&self) -> Option<[Usage; 2]> {
        let mut layers = [Vec::with_capacity(self.layers.len()), Vec::with_capacity(self.layers.len())];
        for layer in self.layers.iter().filter(|layer| layer.total.n_tokens > 0) {
            for (layers, half) in layers.iter_mut().zip(layer.halves()?) {
                layers.push(half);
            }
        }
        let of = |layers: Vec<LayerUsage>| {
            let mut corpora = self.corpora.clone();
            for corpus in &mut corpora {
                let tokens = layers.iter().filter_map(|layer| layer.corpora.get(&corpus.name));
                corpus.tokens = tokens.map(|sums| sums.n_tokens).max().unwrap_or(0);
            }
            (!layers.is_empty()).then(|| Usage { corpora, layers, ..self.clone() })
        };
        let [first, second] = layers;
        Some([of(first)?, of(second)?])
    }
}

impl LayerUsage {
    fn halves(&self) -> Option<[LayerUsage; 2]> {
        let first = self.half.as_ref()?;
        let second: BTreeMap<String, ExpertSums> = self
            .corpora
            .iter()
            .map(|(name, sums)| Some((name.clone(), sums.without(first.get(name)?)?)))
            .collect::<Option<_>>()?;
        let halves = [self.with(first.clone())?, self.with(second)?];
        halves.iter().all(|half| half.total.n_tokens > 0).then_some(halves)
    }

    /// This layer with the sums of `corpora` in place of its own; `None` when they overflow, as edited gate weights may.
    fn with(&self, corpora: BTreeMap<String, ExpertSums>) -> Option<LayerUsage> {
        let mut total = ExpertSums::zero(self.total.count.len(), self.total.weight.is_some());
        corpora.values().try_for_each(|sums| total.add(sums))?;
        Some(LayerUsage {
            layer: self.layer,
            n_expert_used: self.n_expert_used,
            total,
            corpora,
            half: None,
            exact: None,
        })
    }

    /// Checks the first half of the windows against all of them.
    pub(super) fn check_half(&self) -> Result<(), String> {
        let Some(half) = &self.half else { return Ok(()) };
        if !half.keys().eq(self.corpora.keys()) {
            return Err(format!(
                "layer {}: the corpora of its half are not those listed under corpora",
                self.layer
            ));
        }
        for (name, sums) in half {
            let of = || format!("layer {}, half of {name}", self.layer);
            sums.check(self.n_expert_used).map_err(|what| format!("{}: {what}", of()))?;
            if self.corpora[name].without(sums).is_none() {
                return Err(format!("{}: more than the whole, or other columns", of()));
            }
        }
        Ok(())
    }

    /// Adds the halves of two usages of one layer, where both know them; corpora that one of them lacks are added as
    /// they are. `None` where one does not know them, or a sum overflows.
    pub(super) fn join_halves(
        a: Option<&BTreeMap<String, ExpertSums>>,
        b: Option<&BTreeMap<String, ExpertSums>>,
    ) -> Option<BTreeMap<String, ExpertSums>> {
        let mut joined = a?.clone();
        for (name, sums) in b? {
            match joined.get_mut(name) {
                Some(sum) => sum.add(sums)?,
                None => drop(joined.insert(name.clone(), sums.clone())),
            }
        }
        Some(joined)
    }
}

impl ExpertSums {
    /// What is left when `part` is taken away; `None` where it is no part of this. What differences of gate weights
    /// lose in rounding is far below what any ranking rests on.
    fn without(&self, part: &ExpertSums) -> Option<ExpertSums> {
        if part.count.len() != self.count.len() || part.weight.is_some() != self.weight.is_some() {
            return None;
        }
        let count: Option<Vec<u64>> =
            self.count.iter().zip(&part.count).map(|(all, part)| all.checked_sub(*part)).collect();
        let count = count?;
        let weight = self.weight.as_ref().zip(part.weight.as_ref()).map(|(all, part)| {
            let left = all.iter().zip(part).map(|(all, part)| all - part);
            left.zip(&count).map(|(left, &count)| if count == 0 { 0.0 } else { left }).collect()
        });
        let activation = self.activation.as_ref().zip(part.activation.as_ref());
        let activation = activation.map(|(all, part)| all.without(part, &count));
        Some(ExpertSums { n_tokens: self.n_tokens.checked_sub(part.n_tokens)?, count, weight, activation })
    }
}

#[cfg(test)]
mod tests {
    use crate::usage::{ExpertSums, Usage, test_usage};
    use std::collections::BTreeMap;

    /// One layer of four experts, two used; the first half of `dev` is 4 of its 10 tokens.
    fn usage() -> Usage {
        let weight: &[f64] = &[5.0, 3.0, 2.0, 0.0];
        let mut usage = test_usage::usage(2, &[("dev", 10)], &[(1, &[(&[10, 6, 4, 0], Some(weight))])]);
        let half = ExpertSums {
            n_tokens: 4,
            count: vec![4, 4, 0, 0],
            weight: Some(vec![2.0, 2.0, 0.0, 0.0]),
            activation: None,
        };
        usage.layers[0].half = Some(BTreeMap::from([("dev".into(), half)]));
        usage
    }

    #[test]
    fn halves_add_up_to_the_whole() {
        let usage = usage();
        usage.check().unwrap();
        let [first, second] = usage.halves().unwrap();
        assert_eq!(first.layers[0].total.count, [4, 4, 0, 0]);
        assert_eq!((second.layers[0].total.n_tokens, second.corpora[0].tokens), (6, 6));
        assert_eq!(second.layers[0].total.count, [6, 2, 4, 0]);
        assert_eq!(second.layers[0].total.weight.as_deref(), Some(&[3.0, 1.0, 2.0, 0.0][..]));
        second.check().unwrap();
    }

    #[test]
    fn usage_without_halves_gives_none() {
        let mut usage = usage();
        usage.layers[0].half = None;
        usage.check().unwrap();
        assert_eq!(usage.halves(), None);
    }

    #[test]
    fn half_that_is_all_or_nothing_gives_none() {
        let mut usage = usage();
        usage.layers[0].half = Some(usage.layers[0].corpora.clone());
        usage.check().unwrap();
        assert_eq!(usage.halves(), None);
    }

    #[test]
    fn half_that_is_more_than_the_whole_is_refused() {
        let mut usage = usage();
        usage.layers[0].half.as_mut().unwrap().get_mut("dev").unwrap().count = vec![4, 2, 0, 2];
        let error = usage.check().unwrap_err();
        assert!(error.contains("layer 1, half of dev: more than the whole"), "{error}");
    }

    #[test]
    fn half_of_another_corpus_is_refused() {
        let mut usage = usage();
        let half = usage.layers[0].half.as_mut().unwrap();
        let sums = half.remove("dev").unwrap();
        half.insert("pm".into(), sums);
        assert!(usage.check().unwrap_err().contains("not those listed"));
    }
}
