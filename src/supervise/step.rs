//! What llama.cpp is doing, as its log tells it.

use super::event::DeviceDemand;
use crate::units::ByteCount;

/// A step within a stage that takes memory or sets a device up: where a driver hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The memory of the weights is taken.
    Weights,
    /// The context is set up, with its devices.
    Context,
    /// The memory of keys and values is taken.
    KeysValues,
    /// The memory to compute in is taken.
    Compute,
}

impl Step {
    /// What a line of the log says of the step: `None` when nothing, `Some(None)` when it is over.
    pub(super) fn told_by(line: &str) -> Option<Option<Step>> {
        let (function, text) = line.split_once(": ")?;
        let text = text.trim_start();
        match function {
            "load_tensors" if text.starts_with("loading model tensors") => Some(Some(Step::Weights)),
            "load_tensors" if text.contains("model buffer size") => Some(None),
            "llama_context" if text.starts_with("n_seq_max") => Some(Some(Step::Context)),
            "llama_context" if text.contains("output buffer size") => Some(Some(Step::KeysValues)),
            "sched_reserve" if text.starts_with("reserving") => Some(Some(Step::Compute)),
            "sched_reserve" if text.starts_with("graph") || text.starts_with("reserve took") => Some(None),
            _ => None,
        }
    }

    /// The step in words, with what it takes of each device as far as that is known.
    pub(super) fn words(self, demand: &[DeviceDemand]) -> String {
        let (of, what): (fn(&DeviceDemand) -> u64, &str) = match self {
            Step::Weights => (|device| device.weights, "of weights"),
            Step::Context => return "setting the devices up".to_owned(),
            Step::KeysValues => (|device| device.keys_values, "of keys and values"),
            Step::Compute => (|device| device.compute, "to compute in"),
        };
        let takes = demand.iter().filter(|device| of(device) > 0);
        let takes: Vec<String> =
            takes.map(|device| format!("{} on {}", ByteCount(of(device)), device.device)).collect();
        match takes.as_slice() {
            [] => format!("allocating buffers {what}"),
            takes => format!("allocating buffers {what}: {}", takes.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_a_load_tells_the_steps() {
        let told = [
            (
                "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)\n",
                Some(Some(Step::Weights)),
            ),
            ("load_tensors:   CPU_Mapped model buffer size =     3.72 MiB\n", Some(None)),
            ("llama_context: n_seq_max             = 4\n", Some(Some(Step::Context))),
            ("llama_context:        CPU  output buffer size =     0.03 MiB\n", Some(Some(Step::KeysValues))),
            ("llama_kv_cache:        CPU KV buffer size =     2.00 MiB\n", None),
            ("sched_reserve: reserving ...\n", Some(Some(Step::Compute))),
            ("sched_reserve:        CPU compute buffer size =     3.77 MiB\n", None),
            ("sched_reserve: graph: nodes = 237, splits = 1\n", Some(None)),
            ("no colon", None),
        ];
        for (line, step) in told {
            assert_eq!(Step::told_by(line), step, "{line}");
        }
    }

    #[test]
    fn step_names_the_bytes_of_each_device() {
        let of = |device: &str, weights| DeviceDemand {
            device: device.into(),
            weights,
            keys_values: 0,
            compute: 0,
        };
        let demand = [of("Vulkan0", 3 << 30), of("CPU", 1 << 20)];
        let text = "allocating buffers of weights: 3.00 GiB on Vulkan0, 1.00 MiB on CPU";
        assert_eq!(Step::Weights.words(&demand), text);
        assert_eq!(Step::Compute.words(&demand), "allocating buffers to compute in");
    }
}
