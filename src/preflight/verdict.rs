//! What is free, and whether it is enough.

use super::demand::{Demand, Share};
use crate::units::ByteCount;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Weights.
    Weights,
    /// Keys and values.
    KeysValues,
    /// Room to compute in.
    Compute,
    /// Outputs of a batch.
    Output,
}

/// A device that has less than is needed.
#[derive(Clone, Debug)]
pub struct Lack {
    /// What is needed of it.
    pub share: Share,
    /// Bytes that are free.
    pub free: u64,
}

impl Lack {
    /// What takes an eighth or more of it, the most first. Where the weights alone are too much, nothing else helps.
    pub fn largest_first(&self) -> Vec<Figure> {
        let Share { weights, keys_values, compute, output, .. } = self.share;
        if weights > self.free {
            return vec![Figure::Weights];
        }
        let mut figures = vec![
            (weights, Figure::Weights),
            (keys_values, Figure::KeysValues),
            (compute, Figure::Compute),
            (output, Figure::Output),
        ];
        figures.retain(|(bytes, _)| *bytes >= self.share.needed() / 8);
        figures.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        figures.into_iter().map(|(_, figure)| figure).collect()
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { weights, keys_values, compute, output, .. } = self.share;
        let [needed, free] = [self.share.needed(), self.free].map(ByteCount);
        write!(f, "{} has {free} free, and {needed} are needed: ", self.share.name())?;
        let parts = [
            (weights, "of weights"),
            (keys_values, "of keys and values"),
            (compute, "to compute in"),
            (output, "of outputs"),
        ];
        let parts = parts.into_iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = parts.map(|(bytes, what)| format!("{} {what}", ByteCount(bytes))).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Models and their contexts do not fit into memory.
#[derive(Debug, Error)]
#[error("{} and its contexts do not fit into memory: {}", path.display(), lacks.iter().map(Lack::to_string).collect::<Vec<_>>().join("; "))]
pub struct DoesNotFit {
    /// The model.
    pub path: PathBuf,
    /// The devices that have too little, one at least.
    pub lacks: Vec<Lack>,
}

impl Demand {
    /// Holds the demand against what the GPUs have free, and the processor's memory (`None`: it does not tell). The lacks
    /// that make it impossible, and remarks on what is merely slow or doubtful.
    pub fn check(&self, processor_free: Option<u64>) -> (Vec<Lack>, Vec<String>) {
        let of_gpus = self.shares().iter().filter_map(|share| {
            let free = share.free().filter(|free| share.needed() > *free)?;
            Some(Lack { share: share.clone(), free })
        });
        let mut lacks: Vec<Lack> = of_gpus.collect();
        let mut remarks = Vec::new();
        let (Some(free), Some(own)) = (processor_free, self.processor()) else { return (lacks, remarks) };
        let taken = own.needed();
        if taken > free {
            lacks.push(Lack { share: own, free });
            return (lacks, remarks);
        }
        if taken + own.mapped > free {
            let [mapped, left] = [own.mapped, free - taken].map(ByteCount);
            remarks.push(format!(
                "{mapped} of weights are mapped from the file, and the processor's memory has room for {left} of them: the \
                 rest is read from the disk again and again, which is slow"
            ));
        }
        for share in self.shares().iter().filter(|share| share.shares_with_processor()) {
            if taken + share.needed() > free {
                let [gpu, taken, free] = [share.needed(), taken, free].map(ByteCount);
                remarks.push(format!(
                    "{} shares the system's memory: it takes {gpu} and the processor {taken}, and {free} are free, not \
                     counting what the firmware sets apart for it",
                    share.name()
                ));
            }
        }
        (lacks, remarks)
    }

    /// What is taken of the processor's memory, by whatever device.
    fn processor(&self) -> Option<Share> {
        let own = self.shares().iter().filter(|share| share.is_of_processor());
        own.map(|share| Share { device: None, ..share.clone() }).reduce(|all, share| all.and(&share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::{Backend, Device, DeviceKind};

    const GIB: u64 = 1 << 30;

    /// A device of this kind and description, with so much free.
    fn device(kind: DeviceKind, description: &str, free: u64) -> Device {
        let mut device = Backend::start().unwrap().devices().remove(0);
        (device.name, device.description, device.kind) = ("GPU0".to_owned(), description.to_owned(), kind);
        (device.memory_free, device.memory_total) = (free, 16 * GIB);
        device
    }

    fn share(device: Option<Device>, gib: [u64; 5]) -> Share {
        let [weights, mapped, keys_values, compute, output] = gib.map(|gib| gib * GIB);
        Share { device, weights, mapped, keys_values, compute, output }
    }

    fn check(shares: Vec<Share>, free: u64) -> (Vec<String>, Vec<String>) {
        let (lacks, remarks) = Demand::from_shares(shares).check(Some(free * GIB));
        (lacks.iter().map(Lack::to_string).collect(), remarks)
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_parts() {
        let gpu = || device(DeviceKind::Gpu, "a card", 8 * GIB);
        let (lacks, remarks) = check(vec![share(Some(gpu()), [6, 0, 2, 1, 0]), share(None, [0; 5])], 4);
        let text = "GPU0 has 8.00 GiB free, and 9.00 GiB are needed: 6.00 GiB of weights, 2.00 GiB of keys and values, \
                    1.00 GiB to compute in";
        assert_eq!((lacks, remarks), (vec![text.to_owned()], vec![]));
        let fits = vec![share(Some(gpu()), [6, 0, 1, 1, 0]), share(None, [1, 0, 1, 1, 1])];
        assert_eq!(check(fits, 4), (vec![], vec![]));
    }

    #[test]
    fn processor_has_limits_too() {
        let (lacks, _) = check(vec![share(None, [1, 0, 1, 1, 2])], 4);
        assert!(lacks[0].starts_with("CPU has 4.00 GiB free, and 5.00 GiB are needed"), "{lacks:?}");
    }

    #[test]
    fn mapped_weights_may_be_larger_than_memory() {
        let (lacks, remarks) = check(vec![share(None, [0, 9, 1, 1, 0])], 8);
        assert!(lacks.is_empty() && remarks.len() == 1, "{lacks:?}");
        assert!(remarks[0].contains("9.00 GiB of weights are mapped"), "{remarks:?}");
        assert!(remarks[0].contains("room for 6.00 GiB of them"), "{remarks:?}");
        assert_eq!(check(vec![share(None, [0, 6, 1, 1, 0])], 8), (vec![], vec![]));
    }

    #[test]
    fn software_gpu_takes_the_memory_of_the_processor() {
        let gpu = device(DeviceKind::Gpu, "llvmpipe (LLVM)", 16 * GIB);
        let (lacks, _) = check(vec![share(Some(gpu), [6, 0, 1, 1, 0]), share(None, [0, 0, 0, 1, 0])], 8);
        assert!(lacks[0].starts_with("CPU has 8.00 GiB free, and 9.00 GiB are needed"), "{lacks:?}");
    }

    #[test]
    fn integrated_gpu_beyond_the_systems_memory_is_a_remark() {
        let gpu = || device(DeviceKind::IntegratedGpu, "a chip", 16 * GIB);
        let of = |free| check(vec![share(Some(gpu()), [6, 0, 1, 1, 0]), share(None, [0, 0, 0, 1, 0])], free);
        assert_eq!(of(9), (vec![], vec![]));
        let (lacks, remarks) = of(8);
        assert!(lacks.is_empty() && remarks[0].contains("GPU0 shares the system's memory"), "{remarks:?}");
    }

    #[test]
    fn device_that_does_not_tell_is_not_checked() {
        let mut silent = device(DeviceKind::Gpu, "a card", 0);
        silent.memory_total = 0;
        let demand = Demand::from_shares(vec![share(Some(silent), [6; 5]), share(None, [6; 5])]);
        assert!(demand.check(None).0.is_empty());
    }
}
