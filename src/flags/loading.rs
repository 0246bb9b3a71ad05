//! Loading a model as the flags say.

use super::llama::LlamaFlags;
use super::llama_values::LayerCount;
use super::preflight::Contexts;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::gguf;
use crate::llama::{
    Backend, ContextOptions, Device, Fit, LlamaError, Model, ModelPart, PassOutputs, Placement,
};
use crate::moe::MoeModel;
use crate::preflight::Demand;
use crate::progress::{Interrupt, Unit, stage};
use crate::windows::WindowOptions;
use std::path::Path;

/// A loaded model, and what it runs on.
pub struct Loaded {
    /// llama.cpp.
    pub backend: &'static Backend,
    /// The devices that compute.
    pub devices: Vec<String>,
    /// The model.
    pub model: Model,
}

/// Where a model goes.
pub struct Placed<'m> {
    /// llama.cpp.
    pub backend: &'static Backend,
    /// The devices that compute.
    pub devices: Vec<Device>,
    /// The file; of several shards, the first.
    pub path: &'m Path,
    /// Where its tensors go.
    pub placement: Placement,
}

impl LlamaFlags {
    /// Starts llama.cpp and loads the model of these files, once it is known that it and its contexts fit into memory; with
    /// `mtp`, its blocks of multi-token prediction too.
    pub fn load_model(
        &self,
        model: &MoeModel,
        mtp: bool,
        (console, interrupt): (Console, Interrupt),
        contexts: Contexts<'_>,
    ) -> Result<Loaded, Failure> {
        self.load_model_beside(model, mtp, (console, interrupt), contexts, &Demand::default())
    }

    /// As [`LlamaFlags::load_model`], when `others` are to be there at the same time.
    pub fn load_model_beside(
        &self,
        model: &MoeModel,
        mtp: bool,
        (console, interrupt): (Console, Interrupt),
        contexts: Contexts<'_>,
        others: &Demand,
    ) -> Result<Loaded, Failure> {
        let Placed { backend, devices, path, placement } = self.place(model, mtp, console)?;
        if !self.no_memory_check {
            let demand = self.demand(backend, path, &placement, contexts, (console, interrupt))?;
            if let Some(mut demand) = demand {
                demand.add(others);
                self.check_memory(path, &demand, console)?;
            }
        }
        let devices = devices.into_iter().map(|device| device.name).collect();
        let loaded = self.load(backend, path, &placement, console, interrupt)?;
        let (asked, trained) = (self.window(&model.file), loaded.n_ctx_train());
        if asked > trained {
            console.remark(&format!(
                "windows of {asked} tokens (-c) are longer than the {trained} that the model was trained on"
            ));
        }
        Ok(Loaded { backend, devices, model: loaded })
    }

    /// Starts llama.cpp and finds out where the model goes, as much of it on the GPUs as fits.
    pub fn place<'m>(&self, model: &'m MoeModel, mtp: bool, console: Console) -> Result<Placed<'m>, Failure> {
        let backend = self.start()?;
        let placement = Placement { mtp, ..self.placement(backend, console)? };
        let devices = self.devices(backend, &placement);
        let path = model.files().next().unwrap_or(model.path());
        let placement = self.fitted(backend, path, &placement, console)?;
        Ok(Placed { backend, devices, path, placement })
    }

    /// Sizes and settings of a pass over windows of `model`.
    pub fn windows(&self, model: &gguf::Model, interrupt: Interrupt) -> WindowOptions {
        WindowOptions {
            ctx_size: self.window(model),
            batch_size: self.batch_size,
            ubatch_size: self.ubatch_size,
            kv_unified: self.kv_unified,
            settings: self.settings(interrupt),
        }
    }

    /// The placement with as much of the model on the GPUs as fits.
    fn fitted(
        &self,
        backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        console: Console,
    ) -> Result<Placement, Failure> {
        let asked = placement.clone();
        let open = self.gpu_layers == LayerCount::Auto;
        if !self.fit || !open || !self.devices(backend, placement).iter().any(Device::is_gpu) {
            return Ok(asked);
        }
        // The larger of the contexts that a pass may make: a window, or an ubatch of several.
        let n_ubatch =
            if self.ubatch_size == 0 { self.batch_size } else { self.ubatch_size.min(self.batch_size) };
        let n_ctx = if self.ctx_size == 0 { 0 } else { self.ctx_size.max(n_ubatch) };
        let context = ContextOptions {
            n_ctx,
            n_seq: 1,
            n_batch: self.batch_size,
            n_ubatch,
            kv_unified: true,
            outputs: PassOutputs::None,
            part: ModelPart::Trunk,
            settings: self.settings(Interrupt::NEVER),
        };
        match asked.fitted(backend, path, &context, &self.fit_target).map_err(Failure::running)? {
            Fit::Fits(fitted) => {
                console.detail(&format!(
                    "--fit: {} layers on the GPU, {} patterns of tensors elsewhere",
                    if fitted.gpu_layers < 0 { "all".to_owned() } else { fitted.gpu_layers.to_string() },
                    fitted.overrides.len()
                ));
                Ok(fitted)
            }
            Fit::DoesNotFit(why) => {
                console.detail(&format!("--fit changes nothing: {why}"));
                Ok(asked)
            }
        }
    }

    /// Loads the model, with a progress bar.
    fn load(
        &self,
        backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        console: Console,
        interrupt: Interrupt,
    ) -> Result<Model, Failure> {
        let model = stage(&mut *console.progress(), "loading", Unit::Percent, |progress| {
            Model::load(backend, path, placement, progress, interrupt)
        });
        let model = model.map_err(|error| match error {
            LlamaError::Interrupted => Failure::Interrupted,
            error @ LlamaError::Load { .. } => Failure::input(error),
            error @ (LlamaError::TooManyShares { .. }
            | LlamaError::TooLong { .. }
            | LlamaError::Nul { .. }) => Failure::Arguments(error.into()),
            error => Failure::running(error),
        })?;
        for variable in backend.variables() {
            console.detail(&format!(
                "{variable} is set: a software driver of Vulkan is in use, which fails with half precision"
            ));
        }
        Ok(model)
    }
}
