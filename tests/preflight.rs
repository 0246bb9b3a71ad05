//! What is planned before a model is loaded is what llama.cpp then takes.
#![cfg(feature = "llama")]

#[path = "support/isolated.rs"]
mod isolated;

use moeslice::llama::{
    Backend, Batch, CacheType, Context, ContextOptions, ContextSettings, Device, LoadMode, Model, ModelPart,
    PassOutputs, Placement,
};
use moeslice::preflight::{Demand, Share, Wanted};
use moeslice::progress::{Interrupt, Silent};
use std::path::{Path, PathBuf};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf")
}

fn load(placement: &Placement) -> Model {
    let backend = Backend::start().unwrap();
    Model::load(backend, &demo(), placement, &mut Silent, Interrupt::NEVER).unwrap()
}

fn placement(load_mode: LoadMode) -> Placement {
    Placement { devices: Some(Vec::new()), load_mode, ..Placement::default() }
}

fn planned(placement: &Placement, wanted: &[Wanted]) -> Demand {
    let model = load(&Placement { planned: true, ..placement.clone() });
    Demand::of(&model, placement.load_mode, &[wanted.to_vec()]).unwrap()
}

fn options(outputs: PassOutputs, n_seq: u32, n_batch: u32) -> ContextOptions {
    ContextOptions {
        n_ctx: 128,
        n_seq,
        n_batch,
        n_ubatch: n_batch.min(64),
        kv_unified: false,
        outputs,
        part: ModelPart::Trunk,
        settings: ContextSettings::default(),
    }
}

/// Bytes that are taken of a device: weights, keys and values, room to compute in, outputs.
type Taken = [u64; 4];

/// What llama.cpp takes once the context has computed a full batch: of the GPU named so, or of the processor.
fn taken(placement: &Placement, wanted: &Wanted, gpu: Option<&str>) -> Taken {
    let model = load(placement);
    let mut context = Context::new(&model, &wanted.context).unwrap();
    let mut batch = Batch::new();
    let (n_seq, n_batch) = (wanted.context.n_seq, wanted.context.n_batch);
    let n_each = n_batch / n_seq;
    for sequence in 0..n_seq {
        let tokens: Vec<i32> = (0..n_each as i32).collect();
        let n_outputs = (wanted.outputs / n_seq) as usize;
        batch.push_with_outputs(sequence, 0, &tokens, n_each as usize - n_outputs..n_each as usize);
    }
    context.compute(&mut batch).unwrap();
    let mut found = [0, 0, 0, if gpu.is_none() { context.output_bytes() } else { 0 }];
    for held in context.memory().unwrap() {
        if held.device.as_ref().map(|device| device.name.as_str()) == gpu {
            found[0] += held.weights;
            found[1] += held.keys_values;
            found[2] += held.compute;
        }
    }
    found
}

fn of(share: &Share) -> Taken {
    [share.weights + share.mapped, share.keys_values, share.compute, share.output]
}

fn share(demand: &Demand, gpu: Option<&str>) -> Share {
    let is_it = |share: &&Share| share.device.as_ref().map(|device| device.name.as_str()) == gpu;
    demand.shares().iter().find(is_it).expect("the device takes part").clone()
}

/// Panics unless both are the same but for a hundredth.
fn assert_near(planned: Taken, taken: Taken, what: &str) {
    for (planned, taken) in planned.into_iter().zip(taken) {
        assert!(planned.abs_diff(taken) * 100 <= taken, "{what}: planned {planned}, taken {taken}");
    }
}

#[test]
fn plan_of_processor_is_what_llama_cpp_takes() {
    let many = |outputs, n_seq, n_batch| Wanted::all_outputs(options(outputs, n_seq, n_batch));
    let settings =
        ContextSettings { cache_k: CacheType::F32, cache_v: CacheType::F32, ..ContextSettings::default() };
    let states = ContextOptions { part: ModelPart::TrunkWithStates, ..options(PassOutputs::Logits, 1, 64) };
    let cases = [
        ("nothing is left behind", many(PassOutputs::None, 4, 256)),
        ("more sequences than tokens", many(PassOutputs::None, 64, 64)),
        ("logits", many(PassOutputs::Logits, 4, 256)),
        (
            "logits of every second token",
            Wanted { context: options(PassOutputs::Logits, 2, 128), outputs: 64 },
        ),
        ("logits of the last token", Wanted { context: options(PassOutputs::Logits, 1, 128), outputs: 1 }),
        ("wider keys", Wanted::all_outputs(ContextOptions { settings, ..options(PassOutputs::None, 1, 64) })),
        (
            "a shared store",
            Wanted::all_outputs(ContextOptions { kv_unified: true, ..options(PassOutputs::None, 8, 128) }),
        ),
        ("states", Wanted::all_outputs(states)),
    ];
    for (name, wanted) in cases {
        for mode in [LoadMode::Auto, LoadMode::None] {
            let placement = placement(mode);
            let demand = planned(&placement, std::slice::from_ref(&wanted));
            let own = share(&demand, None);
            assert_near(of(&own), taken(&placement, &wanted, None), name);
            assert_eq!(own.mapped > 0, mode == LoadMode::Auto, "{name}");
        }
    }
}

#[test]
fn pass_without_outputs_keeps_no_logits_of_its_batch() {
    let bytes = |outputs, n_batch| {
        let wanted = Wanted::all_outputs(options(outputs, 1, n_batch));
        taken(&placement(LoadMode::Auto), &wanted, None)[3]
    };
    let model = load(&placement(LoadMode::Auto));
    let (n_vocab, n_embd) = (model.vocab().len() as u64, model.n_embd_out() as u64);
    assert_eq!(bytes(PassOutputs::Logits, 128), 128 * n_vocab * 4);
    // A row for the one sequence, when the context is made.
    assert_eq!(bytes(PassOutputs::None, 128), (128 * n_embd).max(n_vocab + n_embd) * 4);
    assert!(bytes(PassOutputs::None, 128) * 2 < bytes(PassOutputs::Logits, 128));
}

#[test]
fn planned_model_takes_no_memory_of_its_weights() {
    let model = load(&Placement { planned: true, ..placement(LoadMode::None) });
    let context = Context::new(&model, &options(PassOutputs::Logits, 1, 64)).unwrap();
    let before = moeslice::sys::peak_memory().unwrap();
    let large = ContextOptions { n_ctx: 1 << 22, ..options(PassOutputs::None, 1, 64) };
    let held = Context::new(&model, &large).unwrap().memory().unwrap();
    let planned: u64 = held.iter().map(|held| held.keys_values).sum();
    assert!(planned > 1 << 30, "{planned}");
    assert!(moeslice::sys::peak_memory().unwrap() - before < planned / 4);
    drop(context);
}

#[test]
fn contexts_of_one_phase_add_up_and_phases_do_not() {
    let wanted = |n_batch| Wanted::all_outputs(options(PassOutputs::Logits, 1, n_batch));
    let placement = placement(LoadMode::None);
    let of = |wanted: &[Wanted]| of(&share(&planned(&placement, wanted), None));
    let [one, other, both] = [of(&[wanted(64)]), of(&[wanted(128)]), of(&[wanted(64), wanted(128)])];
    assert_eq!(both[0], one[0], "the weights are there once");
    for at in 1..4 {
        assert_eq!(both[at], one[at] + other[at]);
    }
    let model = load(&Placement { planned: true, ..placement.clone() });
    let phases = [vec![wanted(64)], vec![wanted(128)]];
    let in_turn = Demand::of(&model, LoadMode::None, &phases).unwrap();
    assert_eq!(self::of(&share(&in_turn, None)), other);
}

#[test]
fn less_than_is_planned_is_refused_with_the_numbers() {
    let wanted = Wanted::all_outputs(options(PassOutputs::Logits, 4, 256));
    let demand = planned(&placement(LoadMode::None), &[wanted]);
    let needed = share(&demand, None).needed();
    assert!(demand.check(Some(needed)).0.is_empty());
    let (lacks, _) = demand.check(Some(needed - 1));
    assert_eq!((lacks.len(), lacks[0].free), (1, needed - 1));
    assert_eq!(lacks[0].share.needed(), needed);
}

#[test]
#[ignore = "compiling shaders for llvmpipe takes a while"]
fn plan_of_vulkan_is_what_llama_cpp_takes() {
    let out = isolated::run("child", "vulkan", &[("GGML_VK_VISIBLE_DEVICES", "0")]);
    println!("{}", out.unwrap_or_else(|error| panic!("{error}")));
}

/// What the tests above run in a process of its own, where llama.cpp sees the device.
#[test]
#[ignore = "does nothing by itself"]
fn child() {
    if isolated::task().is_none() {
        return;
    }
    let devices: Vec<Device> =
        Backend::start().unwrap().devices().into_iter().filter(Device::is_gpu).collect();
    let gpu = devices.first().expect("a Vulkan device").name.clone();
    for layers in [99, 2] {
        let placement = Placement {
            devices: Some(devices.clone()),
            gpu_layers: layers,
            load_mode: LoadMode::None,
            ..Placement::default()
        };
        let wanted = Wanted::all_outputs(options(PassOutputs::None, 2, 64));
        let demand = planned(&placement, std::slice::from_ref(&wanted));
        for name in [Some(gpu.as_str()), None] {
            let (planned, taken) = (of(&share(&demand, name)), taken(&placement, &wanted, name));
            println!("{layers} layers, {name:?}: planned {planned:?}, taken {taken:?}");
            assert_near(planned, taken, &format!("{layers} layers, {name:?}"));
        }
    }
}
