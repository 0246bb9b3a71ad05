//! A few weights of every router, by which a model is recognised when its routers were converted to another type.
//!
//! The hash of the routers is another one then, and the weights agree to the precision of the coarser type alone.

use serde::{Deserialize, Serialize};

use super::{Experts, MoeError, Role};
use crate::gguf::{GgufError, Metadata, Model, OwnedValue, Tensor, TensorType, ValueType};

/// Weights of each router, spread evenly from its first to its last.
const SAMPLES: u64 = 16;

/// Weights around each sample whose largest sets the step of a quantised type: a block of Q8_0.
const BLOCK: u64 = 32;

/// Beginning of the metadata keys of a sketch.
const KEY: &str = "moeslice.router_sketch.";

/// Weights of one router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerSketch {
    /// Index of the block.
    pub layer: u32,
    /// The type that the router is stored in.
    #[serde(rename = "type")]
    pub ty: String,
    /// 16 weights, spread evenly from the first to the last: number `i` is that at `i * (elements - 1) / 15`, rounded
    /// down.
    pub values: Vec<f32>,
    /// The largest absolute weight of the 32 that each lies among.
    pub block_max: Vec<f32>,
}

/// Weights of all routers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct RouterSketch(Vec<LayerSketch>);

/// Only finite weights are ever taken into a sketch.
impl Eq for RouterSketch {}

/// How the routers of two models compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterMatch {
    /// The same bytes.
    Same,
    /// Converted to another type: the same to the precision of the coarser one.
    Converted,
}

impl RouterMatch {
    /// How the routers of two models compare, each given by its hash and, where there is one, its sketch; `None` when
    /// they are others.
    pub fn of(
        (hash, sketch): (&str, Option<&RouterSketch>),
        (other_hash, other_sketch): (&str, Option<&RouterSketch>),
    ) -> Option<Self> {
        if hash == other_hash {
            return Some(Self::Same);
        }
        let converted = sketch?.is_converted(other_sketch?);
        converted.then_some(Self::Converted)
    }
}

impl RouterSketch {
    /// The sketch of a model; `None` when a router is of a type that none is made of, or holds what is not a number.
    pub(super) fn of(model: &Model, experts: &Experts) -> Result<Option<Self>, MoeError> {
        let mut layers = Vec::with_capacity(experts.layers.len());
        for layer in &experts.layers {
            let Some(router) = layer.tensor(Role::RouterWeight) else { continue };
            match sample(model, &model.tensors()[router.index], layer.layer)? {
                Some(sketch) => layers.push(sketch),
                None => return Ok(None),
            }
        }
        Ok((!layers.is_empty()).then_some(Self(layers)))
    }

    /// Each router's weights.
    pub fn layers(&self) -> &[LayerSketch] {
        &self.0
    }

    /// Whether the other sketch is of the same routers in another type.
    fn is_converted(&self, other: &Self) -> bool {
        if self.0.len() != other.0.len() || self.0.iter().zip(&other.0).all(|(a, b)| a.ty == b.ty) {
            return false;
        }
        // Weights that vanish in the rounding say nothing: half of them have to be well above it.
        let (mut telling, mut all) = (0_usize, 0_usize);
        for (a, b) in self.0.iter().zip(&other.0) {
            let of_one_length = [&a.block_max, &b.values, &b.block_max];
            if a.layer != b.layer || of_one_length.iter().any(|list| list.len() != a.values.len()) {
                return false;
            }
            for at in 0..a.values.len() {
                let (x, y) = (f64::from(a.values[at]), f64::from(b.values[at]));
                let largest = f64::from(a.block_max[at]).max(f64::from(b.block_max[at]));
                let value = x.abs().max(y.abs());
                let rounding = match (rounding(&a.ty, value, largest), rounding(&b.ty, value, largest)) {
                    _ if a.ty == b.ty => 0.0,
                    (Some(a), Some(b)) => a + b,
                    _ => return false,
                };
                // Written so that what is not a number agrees with nothing.
                let agrees = (x - y).abs() <= rounding;
                if !agrees {
                    return false;
                }
                all += 1;
                telling += usize::from(value > 4.0 * rounding && value > 0.0);
            }
        }
        telling * 2 >= all && all > 0
    }

    /// The sketch in a file's metadata.
    pub(super) fn read(metadata: &Metadata) -> Option<Self> {
        let array = |name: &str| metadata.get(&format!("{KEY}{name}"))?.as_array();
        let layers = array("layers")?.to_u64s()?;
        let types: Vec<String> =
            array("types")?.iter().map(|ty| ty.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        let numbers = array("values")?.iter().map(|number| number.as_f64().map(|number| number as f32));
        let numbers: Vec<f32> = numbers.collect::<Option<_>>()?;
        let samples = SAMPLES as usize;
        if types.len() != layers.len() || numbers.len() != layers.len().checked_mul(2 * samples)? {
            return None;
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let layer = |((layer, ty), numbers): ((u64, String), &[f32])| {
            let (values, block_max) = numbers.split_at(samples);
            let layer = u32::try_from(layer).ok()?;
            Some(LayerSketch { layer, ty, values: values.to_vec(), block_max: block_max.to_vec() })
        };
        let layers: Option<Vec<_>> =
            layers.into_iter().zip(types).zip(numbers.chunks_exact(2 * samples)).map(layer).collect();
        layers.map(Self)
    }

    /// Writes the sketch into a file's metadata in place of the one they hold.
    pub(super) fn write_into(&self, metadata: &mut Metadata) {
        let array = |ty, values| OwnedValue::Array(ty, values);
        let layers = self.0.iter().map(|layer| OwnedValue::U32(layer.layer)).collect();
        let types = self.0.iter().map(|layer| OwnedValue::String(layer.ty.clone())).collect();
        let numbers = self.0.iter().flat_map(|layer| layer.values.iter().chain(&layer.block_max));
        let numbers = numbers.map(|&number| OwnedValue::F32(number)).collect();
        metadata.set(&format!("{KEY}layers"), array(ValueType::U32, layers));
        metadata.set(&format!("{KEY}types"), array(ValueType::String, types));
        metadata.set(&format!("{KEY}values"), array(ValueType::F32, numbers));
    }

    /// Takes the sketch that a file's metadata hold out of them.
    pub(super) fn remove_from(metadata: &mut Metadata) {
        for name in ["layers", "types", "values"] {
            metadata.remove(&format!("{KEY}{name}"));
        }
    }
}

/// How far rounding to a type moves a weight of this size at most, among weights whose largest is `largest`.
fn rounding(ty: &str, value: f64, largest: f64) -> Option<f64> {
    Some(match ty {
        "F32" => 0.0,
        // Half of the last of 11 bits; below the smallest normal number half of the step there.
        "F16" => value / 2048.0 + 2_f64.powi(-25),
        // Some converters cut off where others round: the whole of the last of 8 bits.
        "BF16" => value / 128.0,
        // Half a step of 1/127 of the largest, and what the largest itself may have lost as a BF16 before.
        "Q8_0" => largest * (1.0 / 254.0 + 1.0 / 256.0),
        _ => return None,
    })
}

fn sample(model: &Model, tensor: &Tensor, layer: u32) -> Result<Option<LayerSketch>, GgufError> {
    let elements = tensor.info.elements();
    let mut sketch = LayerSketch {
        layer,
        ty: tensor.info.ty.name().to_owned(),
        values: Vec::with_capacity(SAMPLES as usize),
        block_max: Vec::with_capacity(SAMPLES as usize),
    };
    for at in 0..SAMPLES {
        // In 128 bits, as no model has so many weights that it would matter, and a file may say so.
        let element = (u128::from(at) * u128::from(elements - 1) / u128::from(SAMPLES - 1)) as u64;
        let start = element - element % BLOCK;
        let Some(block) = block(model, tensor, start, (elements - start).min(BLOCK))? else {
            return Ok(None);
        };
        if block.iter().any(|weight| !weight.is_finite()) {
            return Ok(None);
        }
        sketch.values.push(block[(element - start) as usize]);
        sketch.block_max.push(block.iter().fold(0.0, |largest, weight| largest.max(weight.abs())));
    }
    Ok(Some(sketch))
}

/// `count` weights of a tensor from `start` on, which is a multiple of [`BLOCK`].
fn block(model: &Model, tensor: &Tensor, start: u64, count: u64) -> Result<Option<Vec<f32>>, GgufError> {
    let (offset, len) = match tensor.info.ty {
        TensorType::F32 => (4 * start, 4 * count),
        TensorType::F16 | TensorType::BF16 => (2 * start, 2 * count),
        TensorType::Q8_0 => (start / BLOCK * 34, 34),
        _ => return Ok(None),
    };
    let mut bytes = vec![0; len as usize];
    model.read_exact_at(tensor, offset, &mut bytes)?;
    let halves = || bytes.as_chunks::<2>().0.iter().map(|&half| u16::from_le_bytes(half));
    Ok(Some(match tensor.info.ty {
        TensorType::F32 => {
            bytes.as_chunks::<4>().0.iter().map(|&weight| f32::from_le_bytes(weight)).collect()
        }
        TensorType::F16 => halves().map(f32_of_f16).collect(),
        TensorType::BF16 => halves().map(|half| f32::from_bits(u32::from(half) << 16)).collect(),
        _ => {
            let scale = f32_of_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
            bytes[2..].iter().map(|&step| scale * f32::from(step as i8)).collect()
        }
    }))
}

fn f32_of_f16(half: u16) -> f32 {
    let (sign, exponent, fraction) = (half >> 15, (half >> 10) & 0x1f, f32::from(half & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests;
