//! Whether a model and its contexts fit into memory, asked before it is loaded.

use super::llama::LlamaFlags;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::llama::{Backend, Device, DeviceKind, LlamaError, Model, Placement};
use crate::preflight::{Demand, DoesNotFit, PLANNING, Wanted};
use crate::progress::{Interrupt, Silent, Unit, stage};
use crate::supervise;
use crate::sys::available_memory;
use std::path::Path;

/// Says which contexts a command makes of a model, which is planned alone: the phases of its work, and what is there at the
/// same time in each.
pub type Contexts<'a> = &'a mut dyn FnMut(&Model) -> Result<Vec<Vec<Wanted>>, Failure>;

impl LlamaFlags {
    /// What the model at `path`, placed so, and its contexts take of each device. Nothing of it is taken.
    pub fn plan(
        &self,
        backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        contexts: Contexts<'_>,
        interrupt: Interrupt,
    ) -> Result<Demand, Failure> {
        let planned = Placement { planned: true, ..placement.clone() };
        let model = Model::load(backend, path, &planned, &mut Silent, interrupt)?;
        let phases = contexts(&model)?;
        Ok(Demand::of(&model, placement.load_mode, &phases)?)
    }

    /// As [`LlamaFlags::plan`]; `None` when llama.cpp cannot plan it, for a reason that the loading tells.
    pub fn demand(
        &self,
        backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        contexts: Contexts<'_>,
        (console, interrupt): (Console, Interrupt),
    ) -> Result<Option<Demand>, Failure> {
        let planned = stage(&mut *console.progress(), PLANNING, Unit::Percent, |_| {
            self.plan(backend, path, placement, contexts, interrupt)
        });
        match planned {
            Ok(demand) => Ok(Some(demand)),
            Err(Failure::Running(error)) if error.is::<LlamaError>() => {
                console.detail(&format!("how much memory is needed cannot be planned: {error}"));
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Refuses a demand that is more than what is free.
    pub fn check_memory(&self, path: &Path, demand: &Demand, console: Console) -> Result<(), Failure> {
        supervise::tell_demand(demand);
        let (lacks, remarks) = demand.check(available_memory());
        remarks.iter().for_each(|text| console.remark(text));
        if lacks.is_empty() {
            Ok(())
        } else {
            Err(Failure::running(DoesNotFit { path: path.to_owned(), lacks }))
        }
    }
}

/// Bytes that are free on a device. What llama.cpp says of the processor knows neither what others use nor limits.
pub fn free_on(device: &Device) -> u64 {
    let of_processor = (device.kind == DeviceKind::Cpu).then(available_memory).flatten();
    of_processor.unwrap_or(device.memory_free)
}
