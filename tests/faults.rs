//! A device that throws, as a driver does whose device is lost: no exception crosses into Rust, what happened reaches the
//! caller, and nothing that waits for the device is touched again.
#![cfg(feature = "llama")]

use moeslice::llama::faulty::{Fault, arm};
use moeslice::llama::{
    Backend, Batch, Context, ContextOptions, ContextSettings, Model, ModelPart, Node, ObserveError, Observer,
    PassOutputs, Placement, Site,
};
use moeslice::progress::{Interrupt, Silent};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Faults are those of the whole process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    arm(&[]);
    guard
}

/// The demo model, all of it on the faulty device.
fn model() -> Model {
    let backend = Backend::start().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf");
    let devices = Some(vec![backend.faulty_device()]);
    let placement = Placement { devices, gpu_layers: 99, ..Placement::default() };
    let model = Model::load(backend, &demo, &placement, &mut Silent, Interrupt::NEVER).unwrap();
    assert!(model.uses_gpu(), "the model is on the device");
    model
}

fn context(model: &Model, outputs: PassOutputs) -> Context<'_> {
    let options = ContextOptions {
        n_ctx: 64,
        n_seq: 1,
        n_batch: 64,
        n_ubatch: 64,
        kv_unified: false,
        outputs,
        part: ModelPart::Trunk,
        settings: ContextSettings::default(),
    };
    Context::new(model, &options).unwrap()
}

fn batch() -> Batch {
    let mut batch = Batch::new();
    batch.push(0, 0, &[1, 2, 3, 4, 5]);
    batch
}

/// Reads the ids that each layer selects, and writes its logits back as they are.
#[derive(Default)]
struct ReadsAndWrites {
    /// Faults that begin with the first node that is seen.
    faults: Vec<Fault>,
    read: usize,
}

impl Observer for ReadsAndWrites {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        matches!(node.site(), Some((Site::Topk | Site::Logits, _)))
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        arm(&self.faults);
        if matches!(node.site(), Some((Site::Topk, _))) {
            let mut ids = Vec::new();
            node.read_ids(node.dims()[0], &mut ids)?;
            self.read += ids.len();
            return Ok(());
        }
        let mut values = Vec::new();
        if !self.faults.contains(&Fault::Write) {
            return node.read_floats(&mut values);
        }
        values.resize(node.dims().iter().product(), 0.0);
        node.write_floats(&values)
    }
}

#[test]
fn a_device_without_faults_computes() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::Logits);
    let mut observer = ReadsAndWrites::default();
    context.decode(&mut batch(), &mut observer).unwrap();
    assert_eq!(observer.read, 4 * 4 * 5);
    assert!(context.logits(4).unwrap().unwrap().iter().all(|logit| logit.is_finite()));
    context.clear().unwrap();
}

#[test]
fn a_failure_while_computing_is_told_and_the_context_is_left_alone() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::Logits);
    let mut observer = ReadsAndWrites { faults: vec![Fault::Compute], read: 0 };
    let error = context.decode(&mut batch(), &mut observer).unwrap_err().to_string();
    assert!(error.contains("faulty::compute: ErrorDeviceLost") && error.contains("5 tokens"), "{error}");
    arm(&[Fault::Synchronize]);
    // Freeing the context would wait for the device, and end the process.
    drop(context);
    drop(model);
}

#[test]
fn a_failure_to_wait_for_the_device_is_told() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::None);
    arm(&[Fault::Synchronize]);
    let faults = vec![Fault::Synchronize];
    let error =
        context.decode(&mut batch(), &mut ReadsAndWrites { faults, read: 0 }).unwrap_err().to_string();
    assert!(error.contains("faulty::synchronize: ErrorDeviceLost"), "{error}");
}

#[test]
fn a_failed_read_or_write_names_the_node() {
    for (fault, words) in
        [(Fault::Read, ["faulty::read", "ffn_moe_"]), (Fault::Write, ["faulty::write", "ffn_moe_logits-0"])]
    {
        let _guard = lock();
        let model = model();
        let mut context = context(&model, PassOutputs::None);
        let mut observer = ReadsAndWrites { faults: vec![fault], read: 0 };
        let error = context.decode(&mut batch(), &mut observer).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        drop(context);
    }
}

#[test]
fn both_failures_are_told_when_two_happened() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::None);
    let mut observer = ReadsAndWrites { faults: vec![Fault::Read, Fault::Compute], read: 0 };
    let error = context.decode(&mut batch(), &mut observer).unwrap_err().to_string();
    assert!(error.contains("faulty::read") && error.contains("faulty::compute"), "{error}");
}

#[test]
fn a_failure_between_batches_is_told() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::Logits);
    context.decode(&mut batch(), &mut ReadsAndWrites::default()).unwrap();
    arm(&[Fault::Clear]);
    let error = context.clear().unwrap_err().to_string();
    assert!(error.contains("faulty::clear: ErrorDeviceLost"), "{error}");
    arm(&[Fault::Synchronize]);
    let error = context.logits(0).unwrap_err().to_string();
    assert!(error.contains("faulty::synchronize"), "{error}");
    let error = context.state(0).unwrap_err().to_string();
    assert!(error.contains("faulty::synchronize"), "{error}");
    drop(context);
}

#[test]
fn a_pooled_embedding_of_a_lost_device_is_an_error() {
    let _guard = lock();
    let model = model();
    let mut context = context(&model, PassOutputs::None);
    context.decode(&mut batch(), &mut ReadsAndWrites::default()).unwrap();
    assert!(context.embedding(0).unwrap().is_some());
    arm(&[Fault::Synchronize]);
    let error = context.embedding(0).unwrap_err().to_string();
    assert!(error.contains("faulty::synchronize"), "{error}");
}
