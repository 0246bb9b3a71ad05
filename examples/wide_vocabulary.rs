//! Writes the demo model with a vocabulary as wide as that of large models: `wide_vocabulary OUT.gguf 150000`.
//!
//! The added tokens are never produced by a text; their embeddings (and, being tied, their rows of the LM head) are
//! copies of existing ones. What a pass costs with a head of that size can be measured with it.

use moeslice::gguf::{self, Model, OwnedValue, TensorInfo, ValueType};
use std::io::BufWriter;
use std::path::Path;

/// `LLAMA_TOKEN_TYPE_UNUSED` of llama.cpp's `include/llama.h`.
const UNUSED: i32 = 5;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, out, wanted] = arguments.as_slice() else {
        anyhow::bail!("usage: wide_vocabulary OUT.gguf TOKENS");
    };
    let wanted: usize = wanted.parse()?;
    let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf"))?;
    let mut metadata = model.metadata().clone();
    let have =
        metadata.get("tokenizer.ggml.tokens").and_then(|v| v.as_array()).map_or(0, |a| a.len() as usize);
    anyhow::ensure!(wanted >= have, "the demo model has {have} tokens already");

    let mut extend =
        |key: &str, kind: ValueType, added: &dyn Fn(usize) -> OwnedValue| -> anyhow::Result<()> {
            let array = metadata.get(key).and_then(|value| value.as_array());
            let array = array.ok_or_else(|| anyhow::anyhow!("the demo model has no {key}"))?;
            let values = array.iter().map(OwnedValue::from).chain((have..wanted).map(added)).collect();
            metadata.set(key, OwnedValue::Array(kind, values));
            Ok(())
        };
    extend("tokenizer.ggml.tokens", ValueType::String, &|id| OwnedValue::String(format!("<unused{id}>")))?;
    extend("tokenizer.ggml.token_type", ValueType::I32, &|_| OwnedValue::I32(UNUSED))?;
    if metadata.contains("qwen3moe.vocab_size") {
        metadata.set("qwen3moe.vocab_size", u32::try_from(wanted)?);
    }

    let mut tensors = Vec::new();
    for tensor in model.tensors() {
        let mut info = tensor.info.clone();
        let mut bytes = vec![0; usize::try_from(info.bytes())?];
        model.read_exact_at(tensor, 0, &mut bytes)?;
        if info.name == "token_embd.weight" {
            let row = bytes.len() / have;
            bytes = bytes.iter().copied().cycle().take(row * wanted).collect();
            info = TensorInfo::new(info.name, vec![info.dims[0], wanted as u64], info.ty)?;
        }
        tensors.push((info, bytes));
    }
    let mut file = BufWriter::new(std::fs::File::create(out)?);
    gguf::write_model(&mut file, &metadata, &tensors)?;
    Ok(())
}
