//! The rows, as `llama-bench` writes them: Markdown, CSV, JSON, or one JSON object a line.

use super::run::{BenchOptions, Measured, ModelBench};
use super::statistics::{deviation, median};
use crate::llama::{Backend, DeviceKind, FlashAttention, Placement};
use crate::units::ByteCount;
use serde_json::{Map, Value, json};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// In which form rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A table for people.
    #[default]
    Markdown,
    /// One row a test, with a header.
    Csv,
    /// A list of objects.
    Json,
    /// An object a line.
    JsonLines,
}

/// No format of that name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no format is called {text:?}; there are md, csv, json and jsonl")]
pub struct FormatError {
    /// What was asked for.
    pub text: String,
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "md" => Ok(Self::Markdown),
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            _ => Err(FormatError { text: text.to_owned() }),
        }
    }
}

impl Format {
    /// The text of `benches`, whose ratios are against the first of them.
    pub fn text(self, benches: &[ModelBench], options: &BenchOptions, backend: &Backend) -> String {
        let objects = || objects(benches, options, backend);
        match self {
            Self::Markdown => markdown(benches),
            Self::Csv => csv(&objects()),
            Self::Json => crate::json::to_text(&objects()),
            Self::JsonLines => {
                objects().iter().map(|object| Value::Object(object.clone()).to_string() + "\n").collect()
            }
        }
    }
}

/// One object a test, with the fields of `llama-bench` that have a meaning here, and ours behind them.
fn objects(benches: &[ModelBench], options: &BenchOptions, backend: &Backend) -> Vec<Map<String, Value>> {
    let devices = backend.devices();
    let named = |gpu: bool| {
        let kind = |kind| gpu == matches!(kind, DeviceKind::Gpu | DeviceKind::IntegratedGpu);
        let names: Vec<String> = devices
            .iter()
            .filter(|device| kind(device.kind))
            .map(|device| device.description.clone())
            .collect();
        names.join(", ")
    };
    let settings = &options.settings;
    let attention = match settings.flash_attention {
        FlashAttention::Auto => -1,
        FlashAttention::Off => 0,
        FlashAttention::On => 1,
    };
    let row = |bench: &ModelBench, measured: &Measured| {
        let speeds: Vec<f64> = measured.nanoseconds.iter().map(|&ns| speed(measured, ns)).collect();
        let times: Vec<f64> = measured.nanoseconds.iter().map(|&ns| ns as f64).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let (avg_ns, avg_ts) = (mean(&times), mean(&speeds));
        let placement = &bench.subject.placement;
        let object = json!({
            "build_version": backend.version(),
            "cpu_info": named(false),
            "gpu_info": named(true),
            "model_filename": bench.subject.path.to_string_lossy(),
            "model_type": bench.description,
            "model_size": bench.size,
            "model_n_params": bench.n_params,
            "n_batch": options.batch_size,
            "n_ubatch": options.ubatch_size,
            "n_threads": settings.threads_batch,
            "type_k": settings.cache_k.to_string(),
            "type_v": settings.cache_v.to_string(),
            "n_gpu_layers": placement.gpu_layers,
            "split_mode": format!("{:?}", placement.split_mode).to_lowercase(),
            "main_gpu": placement.main_gpu,
            "no_kv_offload": !settings.kv_offload,
            "flash_attn": attention,
            "devices": named_devices(placement),
            "tensor_split": tensor_split(placement),
            "tensor_buft_overrides": overrides(placement),
            "embeddings": false,
            "no_op_offload": u8::from(!settings.op_offload),
            "no_host": placement.no_host,
            "repack": !placement.no_repack,
            "n_prompt": measured.test.n_prompt,
            "n_gen": measured.test.n_gen,
            "n_depth": 0,
            "test_time": time(measured.begun),
            "avg_ns": avg_ns.round() as u64,
            "stddev_ns": deviation(&times, avg_ns).round() as u64,
            "avg_ts": avg_ts,
            "stddev_ts": deviation(&speeds, avg_ts),
            "samples_ns": measured.nanoseconds,
            "samples_ts": speeds,
        });
        let ours = json!({
            "name": bench.subject.name,
            "test": measured.test.name(),
            "median_ts": measured.speed().map(|speed| speed.median),
            "ratio": ratio(benches, bench, measured),
            "load_seconds": bench.load_seconds,
            "file_bytes": bench.subject.file_bytes,
            "device_bytes": bench.device_bytes.iter().map(|(name, bytes)| json!({ "device": name, "bytes": bytes })).collect::<Vec<_>>(),
            "peak_bytes": bench.peak_bytes,
        });
        let fields = |value: Value| match value {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        fields(object).into_iter().chain(fields(ours)).collect()
    };
    benches
        .iter()
        .flat_map(|bench| bench.tests.iter().map(move |measured| (bench, measured)))
        .map(|(b, m)| row(b, m))
        .collect()
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

fn overrides(placement: &Placement) -> String {
    let each: Vec<String> =
        placement.overrides.iter().map(|(pattern, buffer)| format!("{pattern}={}", buffer.name)).collect();
    if each.is_empty() { "none".into() } else { each.join(";") }
}

fn speed(measured: &Measured, nanoseconds: u64) -> f64 {
    let tokens = measured.test.n_prompt + measured.test.n_gen;
    f64::from(tokens) * 1e9 / nanoseconds.max(1) as f64
}

/// The median speed over that of the first model in the same test.
fn ratio(benches: &[ModelBench], bench: &ModelBench, measured: &Measured) -> Option<f64> {
    let at = bench.tests.iter().position(|other| other.test == measured.test)?;
    let first = benches.first()?.tests.get(at)?.speed()?.median;
    Some(measured.speed()?.median / first)
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

/// The names of the columns that people read.
pub const COLUMNS: [&str; 8] =
    ["model", "size", "test", "median t/s", "mean ± sd", "ratio", "load s", "peak"];

/// What people read: a row a test.
pub fn rows(benches: &[ModelBench]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for bench in benches {
        let mut loads = bench.load_seconds.clone();
        loads.sort_by(f64::total_cmp);
        let load = if loads.is_empty() { 0.0 } else { median(&loads) };
        for measured in &bench.tests {
            let Some(speed) = measured.speed() else { continue };
            rows.push(vec![
                bench.subject.name.clone(),
                ByteCount(bench.subject.file_bytes).to_string(),
                measured.test.name(),
                format!("{:.2}", speed.median),
                format!("{:.2} ± {:.2}", speed.mean, speed.deviation),
                ratio(benches, bench, measured).map_or(String::new(), |ratio| format!("{ratio:.3}")),
                format!("{load:.2}"),
                bench.peak_bytes.map_or("–".to_owned(), |bytes| ByteCount(bytes).to_string()),
            ]);
        }
    }
    rows
}

fn markdown(benches: &[ModelBench]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&COLUMNS.map(str::to_owned)) + "|---|" + &"---:|".repeat(COLUMNS.len() - 1) + "\n";
    for row in rows(benches) {
        let escaped: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &line(&escaped);
    }
    text
}

fn csv(objects: &[Map<String, Value>]) -> String {
    let Some(first) = objects.first() else { return String::new() };
    let flat = |value: &&Value| !value.is_array();
    let names: Vec<&String> = first.iter().filter(|(_, value)| flat(value)).map(|(name, _)| name).collect();
    let header: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
    let mut text = header.join(",") + "\n";
    for object in objects {
        let cells: Vec<String> = names
            .iter()
            .map(|name| match &object[*name] {
                Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
                Value::Null => String::new(),
                other => format!("\"{other}\""),
            })
            .collect();
        text += &(cells.join(",") + "\n");
    }
    text
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

    #[test]
    fn format_of_another_name_is_refused_with_those_there_are() {
        assert_eq!("jsonl".parse(), Ok(Format::JsonLines));
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("md, csv, json and jsonl"));
    }

    #[test]
    fn csv_quotes_what_is_text() {
        let object = json!({ "a": "x \"y\", z", "b": 1.5, "c": null, "d": [1] });
        let Value::Object(object) = object else { unreachable!() };
        assert_eq!(csv(&[object]), "a,b,c\n\"x \"\"y\"\", z\",\"1.5\",\n");
    }
}
