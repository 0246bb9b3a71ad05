"""Build the three text corpora of the demo model, each split into a training and a held-out part.

    code  Python source        the CPython 3.11 standard library
    docs  English              the reST sources of the Python 3.11 documentation
    es    Spanish              the Reina-Valera Bible of 1909, from its SWORD module

All three come from Debian packages; README.md says how to unpack them. A document belongs to the
held-out part if the hash of its name says so, so the split does not depend on the order of files.
"""

import argparse
import hashlib
import re
import struct
import zlib
from pathlib import Path

TRAIN_BYTES = 6_000_000  # a corpus stops taking documents once it holds this much
TEST_BYTES = 400_000
MAX_SOURCE_CHARS = 300_000  # longer Python files are tables
VERSES_PER_DOCUMENT = 30

STDLIB_SKIPPED = ("dist-packages", "site-packages", "encodings/", "pydoc_data", "lib2to3/tests")
DOCS_PATH = "usr/share/doc/python3.11/html/_sources"
BIBLE_PATH = "usr/share/sword/modules/texts/ztext/spaRV1909eb"


def sha256_hex(text):
    return hashlib.sha256(text.encode()).hexdigest()


def is_held_out(name):
    """Choose 5 % of the documents by name."""
    return int(sha256_hex(name), 16) % 20 == 0


def shuffle_key(name):
    """A fixed pseudo-random order that is independent of is_held_out."""
    return sha256_hex("o" + name)


def normalise(text):
    """Unify line ends, expand tabs, drop trailing blanks and long runs of empty lines."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    text = re.sub(r"[ ]+\n", "\n", text)
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    return text.strip() + "\n"


def is_prose_or_code(text):
    """Reject stubs and files of mostly non-ASCII data."""
    non_ascii = sum(ord(char) > 127 for char in text)
    return len(text) > 400 and non_ascii < 0.02 * len(text)


def read_text(path):
    return path.read_text(encoding="utf-8", errors="replace")


def read_stdlib(root):
    documents = {}
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name.startswith(STDLIB_SKIPPED):
            continue
        text = read_text(path)
        if len(text) < MAX_SOURCE_CHARS and is_prose_or_code(text):
            documents[name] = normalise(text)
    return documents


def read_docs(root):
    documents = {}
    for path in root.rglob("*.rst.txt"):
        text = read_text(path)
        if is_prose_or_code(text):
            documents[path.relative_to(root).as_posix()] = normalise(text)
    return documents


def raw_verses(module, testament):
    """Yield (block number, OSIS markup) of each verse of a SWORD zText module.

    `.bzv` holds one 10-byte record a verse (block, offset, length), `.bzs` one 12-byte record a
    block (offset, compressed size, size), `.bzz` the zlib-compressed blocks.
    """
    blocks_index, verses_index, compressed = (
        (module / f"{testament}.{ending}").read_bytes() for ending in ("bzs", "bzv", "bzz")
    )
    blocks = {}
    for block, start, length in struct.iter_unpack("<IIH", verses_index):
        if length == 0:
            continue
        if block not in blocks:
            offset, size, _ = struct.unpack_from("<III", blocks_index, block * 12)
            blocks[block] = zlib.decompress(compressed[offset : offset + size])
        yield block, blocks[block][start : start + length].decode("utf-8", "replace")


def plain_verse(markup):
    """Strip notes and tags from a verse."""
    text = re.sub(r"<note.*?</note>", "", markup, flags=re.S)
    text = re.sub(r"<[^>]+>", " ", text)
    text = text.replace("&amp;", "&")
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" ([,.;:?!])", r"\1", text)


def read_bible(module):
    """Group the verses, one a line, into documents of 30."""
    documents = {}
    for testament in ("ot", "nt"):
        lines = []
        full_groups = 0
        for block, markup in raw_verses(module, testament):
            verse = plain_verse(markup)
            if not verse:
                continue
            lines.append(verse)
            if len(lines) == VERSES_PER_DOCUMENT:
                documents[f"{testament}{block}-{full_groups}"] = "\n".join(lines) + "\n"
                lines = []
                full_groups += 1
        if lines:
            documents[f"{testament}-last"] = "\n".join(lines) + "\n"
    return documents


def split(documents):
    """Return the training text and the held-out text of a corpus."""
    train, test = [], []
    train_bytes = 0
    for name in sorted(documents, key=shuffle_key):
        if is_held_out(name):
            test.append(documents[name])
        elif train_bytes < TRAIN_BYTES:
            train.append(documents[name])
            train_bytes += len(documents[name].encode())
    test_text = "\n".join(test).encode()[:TEST_BYTES].decode("utf-8", "ignore")
    return "\n".join(train), test_text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--packages",
        type=Path,
        default=Path("packages"),
        help="folder in which the Debian packages are unpacked (default: %(default)s)",
    )
    parser.add_argument(
        "--stdlib",
        type=Path,
        default=Path("/usr/lib/python3.11"),
        help="CPython 3.11 standard library (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        help="folder to write to (default: %(default)s)",
    )
    args = parser.parse_args()

    corpora = {
        "code": read_stdlib(args.stdlib),
        "docs": read_docs(args.packages / DOCS_PATH),
        "es": read_bible(args.packages / BIBLE_PATH),
    }
    args.data.mkdir(parents=True, exist_ok=True)
    for domain, documents in corpora.items():
        if not documents:
            parser.error(f"no documents for {domain!r}: check --stdlib and --packages")
        train, test = split(documents)
        (args.data / f"{domain}.train.txt").write_text(train, encoding="utf-8")
        (args.data / f"{domain}.test.txt").write_text(test, encoding="utf-8")
        print(
            f"{domain}: {len(documents)} documents,"
            f" {len(train.encode())} bytes to train on (sha256 {sha256_hex(train)[:12]}),"
            f" {len(test.encode())} held out"
        )


if __name__ == "__main__":
    main()
