//! What models and contexts take of each device.

use crate::llama::{Context, ContextOptions, Device, DeviceKind, LlamaError, LoadMode, Model, PassOutputs};

/// A context that is to run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its sizes and settings.
    pub context: ContextOptions,
    /// Tokens of a batch that leave something behind, at most.
    pub outputs: u32,
}

impl Wanted {
    /// A context of which all tokens of a batch leave something behind.
    pub fn all_outputs(context: ContextOptions) -> Wanted {
        Wanted { outputs: context.n_batch, context }
    }

    /// Bytes of the buffer that llama.cpp keeps outputs in. It begins with a row for each sequence, of all that a row can
    /// hold, and grows with the batches: `llama_context::output_reserve`. It never shrinks.
    fn output_bytes(&self, n_vocab: u64, n_embd: u64) -> u64 {
        let n_seq = u64::from(self.context.n_seq.max(1));
        let rows = u64::from(self.outputs).max(n_seq);
        let (at_first, later) = match self.context.outputs {
            PassOutputs::Logits => (n_vocab * n_seq, n_vocab * rows),
            PassOutputs::None => ((n_vocab + n_embd) * n_seq, n_embd * rows),
        };
        // A state for every token of a batch.
        let states = if self.context.part == crate::llama::ModelPart::TrunkWithStates {
            n_embd * u64::from(self.context.n_batch)
        } else {
            0
        };
        at_first.max(later + states) * size_of::<f32>() as u64
    }
}

/// Bytes of the memory of a device.
#[derive(Clone, Debug)]
pub struct Share {
    /// The GPU; `None` for the processor.
    pub device: Option<Device>,
    /// Weights that are loaded.
    pub weights: u64,
    /// Weights that are mapped from the file: the system can drop them and read them again.
    pub mapped: u64,
    /// Keys and values, and the states of sequences.
    pub keys_values: u64,
    /// Room to compute in.
    pub compute: u64,
    /// Outputs of a batch.
    pub output: u64,
}

impl Share {
    fn none(device: Option<Device>) -> Share {
        Share { device, weights: 0, mapped: 0, keys_values: 0, compute: 0, output: 0 }
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        self.device.as_ref().map_or("CPU", |device| &device.name)
    }

    /// Bytes that are taken for good.
    pub fn needed(&self) -> u64 {
        self.weights + self.keys_values + self.compute + self.output
    }

    /// Bytes that are free on the GPU; `None` for the processor and for a GPU that does not tell.
    pub fn free(&self) -> Option<u64> {
        let device = self.device.as_ref()?;
        (device.memory_total > 0).then_some(device.memory_free)
    }

    /// Whether what it takes is the processor's memory in the end.
    pub(super) fn is_of_processor(&self) -> bool {
        self.device.as_ref().is_none_or(Device::is_software)
    }

    /// Whether what it takes may be the processor's memory in the end: the firmware may have set some apart.
    pub(super) fn shares_with_processor(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.kind == DeviceKind::IntegratedGpu)
    }

    /// Both at the same time.
    pub(super) fn and(self, other: &Share) -> Share {
        Share {
            device: self.device,
            weights: self.weights + other.weights,
            mapped: self.mapped + other.mapped,
            keys_values: self.keys_values + other.keys_values,
            compute: self.compute + other.compute,
            output: self.output + other.output,
        }
    }
}

/// What is taken of each device, the GPUs first and the processor last.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    shares: Vec<Share>,
}

impl Demand {
    /// What `model` takes, which is planned alone, and what its contexts do. Those of one phase are there at the same time,
    /// the phases come one after the other.
    ///
    /// # Errors
    /// When llama.cpp cannot plan a context.
    pub fn of(model: &Model, load_mode: LoadMode, phases: &[Vec<Wanted>]) -> Result<Demand, LlamaError> {
        let (n_vocab, n_embd) = (model.vocab().len() as u64, model.n_embd_out() as u64);
        let mapped = match load_mode {
            LoadMode::Auto => model.maps(),
            LoadMode::Mmap => true,
            // What is locked cannot be dropped.
            LoadMode::None | LoadMode::Mlock | LoadMode::MmapMlock | LoadMode::DirectIo => false,
        };
        let mut all = Demand::default();
        for phase in phases {
            let mut demand = Demand::default();
            for (at, wanted) in phase.iter().enumerate() {
                for held in Context::new(model, &wanted.context)?.memory()? {
                    let share = demand.share_of(held.device.as_ref());
                    if at == 0 {
                        *(if mapped && held.host { &mut share.mapped } else { &mut share.weights }) +=
                            held.weights;
                    }
                    share.keys_values += held.keys_values;
                    share.compute += held.compute;
                }
                demand.share_of(None).output += wanted.output_bytes(n_vocab, n_embd);
            }
            all.raise_to(demand);
        }
        all.shares.sort_by_key(|share| share.device.is_none());
        Ok(all)
    }

    /// The shares of the devices.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Adds what another model takes, which is there at the same time.
    pub fn add(&mut self, other: &Demand) {
        for share in &other.shares {
            let own = self.share_of(share.device.as_ref());
            *own = own.clone().and(share);
        }
        self.shares.sort_by_key(|share| share.device.is_none());
    }

    /// Takes the larger share of each device.
    fn raise_to(&mut self, other: Demand) {
        for share in other.shares {
            let own = self.share_of(share.device.as_ref());
            if share.needed() >= own.needed() {
                *own = share;
            }
        }
    }

    fn share_of(&mut self, device: Option<&Device>) -> &mut Share {
        let name = device.map(|device| &device.name);
        let found =
            self.shares.iter().position(|share| share.device.as_ref().map(|device| &device.name) == name);
        let at = found.unwrap_or_else(|| {
            self.shares.push(Share::none(device.cloned()));
            self.shares.len() - 1
        });
        &mut self.shares[at]
    }
}

#[cfg(test)]
impl Demand {
    pub(super) fn from_shares(shares: Vec<Share>) -> Demand {
        Demand { shares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(bytes: [u64; 3]) -> Demand {
        let [weights, keys_values, compute] = bytes;
        Demand { shares: vec![Share { weights, keys_values, compute, ..Share::none(None) }] }
    }

    fn figures(demand: &Demand) -> [u64; 3] {
        let share = &demand.shares()[0];
        [share.weights, share.keys_values, share.compute]
    }

    #[test]
    fn phases_that_follow_each_other_take_what_the_largest_does() {
        let mut all = Demand::default();
        for phase in [[5, 1, 1], [5, 3, 2], [5, 2, 2]] {
            all.raise_to(share(phase));
        }
        assert_eq!(figures(&all), [5, 3, 2]);
    }

    #[test]
    fn models_side_by_side_take_what_both_do() {
        let mut both = share([5, 3, 2]);
        both.add(&share([7, 1, 0]));
        assert_eq!(figures(&both), [12, 4, 2]);
        assert_eq!(both.shares().len(), 1);
    }
}
