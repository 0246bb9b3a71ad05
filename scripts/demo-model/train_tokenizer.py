"""Train the byte-level BPE tokenizer of the demo model and encode the corpora with it.

The pre-tokenizer is that of GPT-2, which llama.cpp calls `gpt-2`. The token ids go to
`<domain>.<part>.u16`, little-endian 16-bit integers.
"""

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DOMAINS = ("code", "docs", "es")
END_OF_TEXT = "<|endoftext|>"
MAX_TOKEN_LENGTH = 16
CHARS_PER_DOMAIN = 2_000_000  # equal shares, so that no domain owns the merges
TRAINING_SLICE = 100_000
ENCODING_SLICE = 200_000


def train_tokenizer(texts, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=MAX_TOKEN_LENGTH,
    )
    slices = [
        texts[domain][start : start + TRAINING_SLICE]
        for start in range(0, CHARS_PER_DOMAIN, TRAINING_SLICE)
        for domain in DOMAINS
    ]
    tokenizer.train_from_iterator(slices, trainer)
    return tokenizer


def encode_in_slices(tokenizer, text):
    """Encode a long text piece by piece, cut after line ends, to bound the memory."""
    ids = []
    start = 0
    while start < len(text):
        end = min(len(text), start + ENCODING_SLICE)
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        ids += tokenizer.encode(text[start:end]).ids
        start = end
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        help="folder with the corpora, takes tokenizer.json too (default: %(default)s)",
    )
    parser.add_argument("--vocab-size", type=int, default=2048, help="default: %(default)s")
    args = parser.parse_args()

    texts = {
        (domain, part): (args.data / f"{domain}.{part}.txt").read_text(encoding="utf-8")
        for domain in DOMAINS
        for part in ("train", "test")
    }
    tokenizer = train_tokenizer(
        {domain: texts[domain, "train"] for domain in DOMAINS}, args.vocab_size
    )
    tokenizer.save(str(args.data / "tokenizer.json"))
    print(f"vocabulary: {tokenizer.get_vocab_size()} tokens")

    for (domain, part), text in texts.items():
        if part == "test":
            # In one piece, so that the ids equal those that llama.cpp computes for the file.
            ids = tokenizer.encode(text).ids
        else:
            ids = encode_in_slices(tokenizer, text)
        np.array(ids, dtype="<u2").tofile(args.data / f"{domain}.{part}.u16")
        bytes_per_token = len(text.encode()) / len(ids)
        print(f"{domain}.{part}: {len(ids)} tokens, {bytes_per_token:.3f} bytes a token")


if __name__ == "__main__":
    main()
