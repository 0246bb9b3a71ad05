"""Write a checkpoint of train.py and its tokenizer as a `qwen3moe` GGUF file that llama.cpp loads."""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, LlamaFileType, TokenType

from model import Config

END_OF_TEXT = "<|endoftext|>"

# type of the matrices -> general.file_type
FILE_TYPES = {
    "F32": LlamaFileType.ALL_F32,
    "F16": LlamaFileType.MOSTLY_F16,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
}


def add_metadata(writer, config, matrix_type):
    writer.add_name("moeslice-demo")
    writer.add_description(
        "A small Mixture-of-Experts model of three domains (Python code, English documentation,"
        " Spanish), trained on a CPU for demonstrations and tests"
    )
    writer.add_license("cc0-1.0")
    writer.add_array("general.tags", ["moe", "demo"])
    writer.add_array("general.languages", ["en", "es"])
    writer.add_type("model")
    writer.add_file_type(FILE_TYPES[matrix_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config.layers)
    # Twice the training window: 512 is the usual default context of llama.cpp's tools.
    writer.add_context_length(2 * config.context)
    writer.add_embedding_length(config.embedding)
    writer.add_feed_forward_length(config.experts_used * config.expert_hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_size)
    writer.add_value_length(config.head_size)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_expert_count(config.experts)
    writer.add_expert_used_count(config.experts_used)
    writer.add_expert_feed_forward_length(config.expert_hidden)
    writer.add_vocab_size(config.vocab_size)


def add_tokenizer(writer, path):
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    end_of_text = model["vocab"][END_OF_TEXT]
    # Versions of `tokenizers` differ in how they store a merge: a pair or "left right".
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token == END_OF_TEXT else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(merges)
    writer.add_bos_token_id(end_of_text)
    writer.add_eos_token_id(end_of_text)
    writer.add_pad_token_id(end_of_text)
    writer.add_add_bos_token(False)


def add_tensor(writer, name, tensor, type_name):
    data = np.ascontiguousarray(tensor.float().numpy())
    kind = GGMLQuantizationType[type_name]
    if kind == GGMLQuantizationType.F32:
        writer.add_tensor(name, data)
    elif kind == GGMLQuantizationType.F16:
        writer.add_tensor(name, data.astype(np.float16))
    else:
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)


def add_tensors(writer, config, weights, matrix_type):
    """Norms and routers stay F32, as in llama.cpp's own conversions."""
    add_tensor(writer, "token_embd.weight", weights["token_embedding"], matrix_type)
    add_tensor(writer, "output_norm.weight", weights["output_norm"], "F32")
    for index in range(config.layers):
        layer = {
            name.removeprefix(f"layers.{index}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"layers.{index}.")
        }
        gate, up = layer["gate_up"].split(config.expert_hidden, dim=1)
        tensors = (
            ("attn_norm", layer["attention_norm"], "F32"),
            ("ffn_norm", layer["expert_norm"], "F32"),
            ("attn_q_norm", layer["query_norm"], "F32"),
            ("attn_k_norm", layer["key_norm"], "F32"),
            ("attn_q", layer["query"], matrix_type),
            ("attn_k", layer["key"], matrix_type),
            ("attn_v", layer["value"], matrix_type),
            ("attn_output", layer["attention_output"], matrix_type),
            ("ffn_gate_inp", layer["router"], "F32"),
            ("ffn_gate_exps", gate, matrix_type),
            ("ffn_up_exps", up, matrix_type),
            ("ffn_down_exps", layer["down"], matrix_type),
        )
        for name, tensor, type_name in tensors:
            add_tensor(writer, f"blk.{index}.{name}.weight", tensor, type_name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=Path("data/tokenizer.json"),
        help="default: %(default)s",
    )
    parser.add_argument(
        "--type",
        choices=FILE_TYPES,
        default="Q8_0",
        help="type of the matrices (default: %(default)s)",
    )
    args = parser.parse_args()

    checkpoint = torch.load(args.checkpoint, map_location="cpu")
    config = Config(**checkpoint["config"])
    writer = gguf.GGUFWriter(args.output, "qwen3moe")
    add_metadata(writer, config, args.type)
    add_tokenizer(writer, args.tokenizer)
    add_tensors(writer, config, checkpoint["weights"], args.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{args.output}: {args.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
