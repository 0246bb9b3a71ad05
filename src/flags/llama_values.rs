//! The values of llama.cpp's flags, read as its own tools read them.

use crate::llama::{CacheType, FlashAttention, KvOverride, KvValue, LoadMode, Numa, SplitMode};
use crate::windows::KvUnified;
use std::sync::Arc;

/// Shares of a model.
pub type Shares = Arc<[f32]>;

/// Bytes to leave free on each device.
pub type Margins = Arc<[usize]>;

/// Metadata of one `--override-kv`.
pub type Overrides = Arc<[KvOverride]>;

/// The words that llama.cpp takes for yes and no (`is_truthy` and `is_falsey` in its `common/arg.cpp`).
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "enabled" | "true" | "1" => Ok(true),
        "off" | "disabled" | "false" | "0" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

/// A flag without a value, in the environment: set by the words for yes, and by no other.
pub fn truthy(text: &str) -> Result<bool, String> {
    Ok(switch(text) == Ok(true))
}

/// `-fa`.
pub fn flash_attention(text: &str) -> Result<FlashAttention, String> {
    match text {
        "auto" | "-1" => Ok(FlashAttention::Auto),
        _ => switch(text)
            .map(|on| if on { FlashAttention::On } else { FlashAttention::Off })
            .map_err(|_| "expected on, off or auto".to_owned()),
    }
}

/// `--kv-unified`.
pub fn kv_unified(text: &str) -> Result<KvUnified, String> {
    match text {
        "auto" => Ok(KvUnified::Auto),
        _ => switch(text)
            .map(|on| if on { KvUnified::On } else { KvUnified::Off })
            .map_err(|_| "expected auto, on or off".to_owned()),
    }
}

/// Layers to put on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCount {
    /// As many as fit.
    Auto,
    /// All.
    All,
    /// So many.
    Some(u32),
}

impl LayerCount {
    /// As llama.cpp's parameters have it.
    pub fn raw(self) -> i32 {
        match self {
            LayerCount::Auto => -1,
            LayerCount::All => -2,
            LayerCount::Some(count) => i32::try_from(count).unwrap_or(i32::MAX),
        }
    }
}

/// `-ngl`.
pub fn gpu_layers(text: &str) -> Result<LayerCount, String> {
    match (text, text.parse::<i32>()) {
        ("auto", _) | (_, Ok(-1)) => Ok(LayerCount::Auto),
        ("all", _) => Ok(LayerCount::All),
        (_, Ok(count)) => Ok(u32::try_from(count).map_or(LayerCount::All, LayerCount::Some)),
        _ => Err("expected a number of layers, \"auto\" or \"all\"".to_owned()),
    }
}

/// `-t` and `-tb`: what is not above zero means all threads of the machine.
pub fn threads(text: &str) -> Result<u32, String> {
    let count: i32 = text.parse().map_err(|_| "expected a number of threads".to_owned())?;
    let all = || std::thread::available_parallelism().map_or(1, |all| all.get() as u32);
    match u32::try_from(count) {
        Ok(count @ 1..=512) => Ok(count),
        Ok(0) | Err(_) => Ok(all().min(512)),
        Ok(_) => Err("llama.cpp has at most 512 threads".to_owned()),
    }
}

/// `-sm`.
pub fn split_mode(text: &str) -> Result<SplitMode, String> {
    match text {
        "none" => Ok(SplitMode::None),
        "layer" => Ok(SplitMode::Layer),
        "row" => Ok(SplitMode::Row),
        "tensor" => Ok(SplitMode::Tensor),
        _ => Err("expected none, layer, row or tensor".to_owned()),
    }
}

/// `-ts`: numbers between commas or slashes.
pub fn shares(text: &str) -> Result<Shares, String> {
    let parts = text.split([',', '/']).filter(|part| !part.is_empty());
    let share = |part: &str| {
        let share = part.trim().parse::<f32>().ok().filter(|share| share.is_finite() && *share >= 0.0);
        share.ok_or_else(|| format!("{part:?} is not a share"))
    };
    parts.map(share).collect()
}

/// `--fit-target`: MiB between commas or slashes, as bytes.
pub fn margins(text: &str) -> Result<Margins, String> {
    let parts = text.split([',', '/']).filter(|part| !part.is_empty());
    let bytes = |part: &str| {
        let mib = part.trim().parse::<usize>().ok().and_then(|mib| mib.checked_mul(1 << 20));
        mib.ok_or_else(|| format!("{part:?} is not a number of MiB"))
    };
    parts.map(bytes).collect()
}

/// `-ctk` and `-ctv`.
pub fn cache_type(text: &str) -> Result<CacheType, String> {
    CacheType::named(text).ok_or_else(|| format!("expected one of {}", CacheType::names().join(", ")))
}

/// `-lm`.
pub fn load_mode(text: &str) -> Result<LoadMode, String> {
    match text {
        "auto" => Ok(LoadMode::Auto),
        "none" => Ok(LoadMode::None),
        "mmap" => Ok(LoadMode::Mmap),
        "mlock" => Ok(LoadMode::Mlock),
        "mmap+mlock" => Ok(LoadMode::MmapMlock),
        "dio" => Ok(LoadMode::DirectIo),
        _ => Err("expected auto, none, mmap, mlock, mmap+mlock or dio".to_owned()),
    }
}

/// `--numa`.
pub fn numa(text: &str) -> Result<Numa, String> {
    match text {
        "distribute" | "" => Ok(Numa::Distribute),
        "isolate" => Ok(Numa::Isolate),
        "numactl" => Ok(Numa::Numactl),
        _ => Err("expected distribute, isolate or numactl".to_owned()),
    }
}

/// `--override-kv`: entries between commas; what stands in double quotes is one entry.
pub fn kv_overrides(text: &str) -> Result<Overrides, String> {
    entries(text).iter().map(|entry| kv_override(entry)).collect()
}

fn entries(text: &str) -> Vec<String> {
    let (mut entries, mut quoted) = (vec![String::new()], false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => entries.push(String::new()),
            c => entries.last_mut().expect("there is one from the start").push(c),
        }
    }
    entries
}

fn kv_override(entry: &str) -> Result<KvOverride, String> {
    let wrong = || format!("{entry:?} is not KEY=TYPE:VALUE with a type of int, float, bool or str");
    let (key, typed) = entry.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)?;
    let (kind, value) = typed.split_once(':').ok_or_else(wrong)?;
    let value = match kind {
        "int" => KvValue::Int(value.parse().map_err(|_| wrong())?),
        "float" => KvValue::Float(value.parse().map_err(|_| wrong())?),
        "bool" => KvValue::Bool(value.parse().map_err(|_| wrong())?),
        "str" => KvValue::Str(value.to_owned()),
        _ => return Err(wrong()),
    };
    Ok(KvOverride { key: key.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_llama_cpp_prints_as_defaults_are_taken() {
        assert_eq!(gpu_layers("auto"), Ok(LayerCount::Auto));
        assert_eq!(gpu_layers("-1"), Ok(LayerCount::Auto));
        assert_eq!(gpu_layers("-2"), Ok(LayerCount::All));
        assert_eq!(gpu_layers("99"), Ok(LayerCount::Some(99)));
        assert_eq!(flash_attention("-1"), Ok(FlashAttention::Auto));
        assert!(threads("-1").unwrap() >= 1);
        assert_eq!(threads("3"), Ok(3));
        assert_eq!(cache_type("f16"), Ok(CacheType::F16));
        assert_eq!(load_mode("mmap+mlock"), Ok(LoadMode::MmapMlock));
        assert_eq!(numa(""), Ok(Numa::Distribute));
    }

    #[test]
    fn values_of_several_parts_are_read_part_by_part() {
        assert_eq!(shares("3,1").unwrap().as_ref(), [3.0, 1.0]);
        assert_eq!(shares("3/1").unwrap().as_ref(), [3.0, 1.0]);
        assert_eq!(margins("1024,0").unwrap().as_ref(), [1 << 30, 0]);
        assert!(shares("3,x").is_err() && shares("-1").is_err());
        let given = kv_overrides("a.b=bool:false,c=int:-3,d=\"str:x,y\",e=float:0.5").unwrap();
        let values: Vec<_> = given.iter().map(|entry| (entry.key.as_str(), entry.value.clone())).collect();
        let expected = [
            ("a.b", KvValue::Bool(false)),
            ("c", KvValue::Int(-3)),
            ("d", KvValue::Str("x,y".into())),
            ("e", KvValue::Float(0.5)),
        ];
        assert_eq!(values, expected);
        assert!(kv_overrides("a=u8:3").is_err() && kv_overrides("a").is_err());
    }

    #[test]
    fn a_switch_of_the_environment_is_set_by_the_words_for_yes_alone() {
        assert_eq!(
            ["1", "enabled", "0", "perhaps"].map(|text| truthy(text).unwrap()),
            [true, true, false, false]
        );
        assert!(switch("perhaps").is_err());
    }
}
