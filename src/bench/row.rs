//! One test of one model as a row, with the fields of `llama-bench` in its order, and ours behind them.

use super::run::{BenchOptions, Measured, ModelBench};
use super::statistics::deviation;
use crate::json::Json;
use crate::llama::{Backend, ContextSettings, DeviceKind, FlashAttention, Placement};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// A row. The names, their meaning and their order are those of `tools/llama-bench` of the pinned llama.cpp, up to
/// `samples_ts`.
#[derive(Serialize)]
struct BenchRow {
    build_commit: &'static str,
    build_number: u32,
    cpu_info: String,
    gpu_info: String,
    backends: String,
    model_filename: String,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_batch: u32,
    n_ubatch: u32,
    n_threads: u32,
    cpu_mask: &'static str,
    cpu_strict: bool,
    poll: u32,
    type_k: String,
    type_v: String,
    n_gpu_layers: i32,
    n_cpu_moe: u32,
    split_mode: String,
    main_gpu: i32,
    no_kv_offload: bool,
    flash_attn: i32,
    devices: String,
    tensor_split: String,
    tensor_buft_overrides: String,
    load_mode: &'static str,
    lazy_mode: &'static str,
    embeddings: bool,
    no_op_offload: u8,
    no_host: bool,
    repack: bool,
    fit_target: u32,
    fit_min_ctx: u32,
    n_prompt: u32,
    n_gen: u32,
    n_depth: u32,
    test_time: String,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    build_version: String,
    name: String,
    test: String,
    median_ts: Option<f64>,
    ratio: Option<f64>,
    load_seconds: Vec<f64>,
    file_bytes: u64,
    device_bytes: Vec<DeviceBytes>,
    peak_bytes: Option<u64>,
}

/// What a model took of a device's memory.
#[derive(Serialize)]
struct DeviceBytes {
    device: String,
    bytes: u64,
}

/// The row of `measured`, a test of `bench`, which is one of `benches`.
pub(super) fn row(
    benches: &[ModelBench],
    (bench, measured): (&ModelBench, &Measured),
    options: &BenchOptions,
    backend: &Backend,
) -> Json {
    let settings = &options.settings;
    let placement = &bench.subject.placement;
    let speeds: Vec<f64> = measured.nanoseconds.iter().map(|&ns| speed(measured, ns)).collect();
    let times: Vec<f64> = measured.nanoseconds.iter().map(|&ns| ns as f64).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (avg_ns, avg_ts) = (mean(&times), mean(&speeds));
    let row = BenchRow {
        // The pinned source comes without its history, of which these would be.
        build_commit: "unknown",
        build_number: 0,
        cpu_info: processors(backend, false),
        gpu_info: processors(backend, true),
        backends: backends(backend),
        model_filename: bench.subject.path.to_string_lossy().into_owned(),
        model_type: bench.description.clone(),
        model_size: bench.size,
        model_n_params: bench.n_params,
        n_batch: options.batch_size,
        n_ubatch: options.ubatch_size,
        // One token alone has threads of its own.
        n_threads: if measured.test.n_prompt > 1 { settings.threads_batch } else { settings.threads },
        // Those of the pool that every context here has.
        cpu_mask: "0x0",
        cpu_strict: false,
        poll: ContextSettings::poll(),
        type_k: settings.cache_k.to_string(),
        type_v: settings.cache_v.to_string(),
        n_gpu_layers: placement.gpu_layers,
        n_cpu_moe: options.n_cpu_moe,
        split_mode: format!("{:?}", placement.split_mode).to_lowercase(),
        main_gpu: placement.main_gpu,
        no_kv_offload: !settings.kv_offload,
        flash_attn: match settings.flash_attention {
            FlashAttention::Auto => -1,
            FlashAttention::Off => 0,
            FlashAttention::On => 1,
        },
        devices: named_devices(placement),
        tensor_split: tensor_split(placement),
        tensor_buft_overrides: overrides(placement, options.n_cpu_moe),
        load_mode: placement.load_mode.name(),
        lazy_mode: "auto", // llama.cpp's own, which nothing here changes
        embeddings: false,
        no_op_offload: u8::from(!settings.op_offload),
        no_host: placement.no_host,
        repack: !placement.no_repack,
        // Nothing is fitted: every model lies as the flags say.
        fit_target: 0,
        fit_min_ctx: 0,
        n_prompt: measured.test.n_prompt,
        n_gen: measured.test.n_gen,
        n_depth: 0,
        test_time: time(measured.begun),
        avg_ns: avg_ns.round() as u64,
        stddev_ns: deviation(&times, avg_ns).round() as u64,
        avg_ts,
        stddev_ts: deviation(&speeds, avg_ts),
        samples_ns: measured.nanoseconds.clone(),
        samples_ts: speeds,
        build_version: backend.version(),
        name: bench.subject.name.clone(),
        test: measured.test.name(),
        median_ts: measured.speed().map(|speed| speed.median),
        ratio: ratio(benches, bench, measured),
        load_seconds: bench.load_seconds.clone(),
        file_bytes: bench.subject.file_bytes,
        device_bytes: (bench.device_bytes.iter())
            .map(|(device, bytes)| DeviceBytes { device: device.clone(), bytes: *bytes })
            .collect(),
        peak_bytes: bench.peak_bytes,
    };
    let text = serde_json::to_string(&row).expect("a row is JSON");
    serde_json::from_str(&text).expect("what was written is JSON")
}

fn speed(measured: &Measured, nanoseconds: u64) -> f64 {
    let tokens = measured.test.n_prompt + measured.test.n_gen;
    f64::from(tokens) * 1e9 / nanoseconds.max(1) as f64
}

/// The median speed over that of the first model in the same test.
pub(super) fn ratio(benches: &[ModelBench], bench: &ModelBench, measured: &Measured) -> Option<f64> {
    let at = bench.tests.iter().position(|other| other.test == measured.test)?;
    let first = benches.first()?.tests.get(at)?.speed()?.median;
    Some(measured.speed()?.median / first)
}

/// A value as it stands in a table: yes and no are digits, as in `llama-bench`.
pub(super) fn cell(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        Json::Bool(value) => u8::from(*value).to_string(),
        other => other.to_text(),
    }
}

/// The graphics processors, or the others.
fn processors(backend: &Backend, gpu: bool) -> String {
    let devices = backend.devices().into_iter();
    let wanted =
        devices.filter(|device| gpu == matches!(device.kind, DeviceKind::Gpu | DeviceKind::IntegratedGpu));
    wanted.map(|device| device.description).collect::<Vec<_>>().join(", ")
}

/// What computes besides the processor, or the processor. Other machines count once one of them takes part.
fn backends(backend: &Backend) -> String {
    let (remote, mut names): (Vec<String>, Vec<String>) =
        backend.names().into_iter().filter(|name| name != "CPU").partition(|name| name.starts_with("RPC"));
    let takes_part = backend.devices().iter().any(|device| device.name.starts_with("RPC"));
    names.extend(remote.into_iter().filter(|_| takes_part));
    if names.is_empty() { "CPU".into() } else { names.join(",") }
}

fn named_devices(placement: &Placement) -> String {
    match placement.devices.as_deref() {
        None => "auto".into(),
        Some([]) => "none".into(),
        Some(devices) => devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join("/"),
    }
}

fn tensor_split(placement: &Placement) -> String {
    let shares: Vec<String> = placement.tensor_split.iter().map(|share| format!("{share:.2}")).collect();
    if shares.is_empty() { "0.00".into() } else { shares.join("/") }
}

/// Tensors that lie elsewhere, but for the experts of the first layers, which `n_cpu_moe` tells of.
fn overrides(placement: &Placement, n_cpu_moe: u32) -> String {
    let told: Vec<String> = (0..n_cpu_moe).map(Placement::experts_of).collect();
    let others = placement.overrides.iter().filter(|(pattern, _)| !told.contains(pattern));
    let each: Vec<String> = others.map(|(pattern, buffer)| format!("{pattern}={}", buffer.name)).collect();
    if each.is_empty() { "none".into() } else { each.join(";") }
}

/// `2026-01-31T12:00:00Z`, by the proleptic Gregorian calendar.
fn time(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March: the leap day is their last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_is_that_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_772_323_199, "2026-02-28T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
