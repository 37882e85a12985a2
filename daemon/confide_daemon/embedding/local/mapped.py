"""Constants of an ONNX model that stay in its file: the runtime maps them, where it would copy them twice.

ONNX knows data outside of the model, at an offset in a file beside it. Here that file is the model's own, and the place is where the bytes
stand in it already. So the system reads what is used, may drop it again, and shares it among all who have the file open.
"""

from __future__ import annotations

from typing import Final

from confide_daemon.embedding.local.graph import GRAPH_INITIALIZER, INT8, MODEL_GRAPH, TENSOR_RAW, Tensor
from confide_daemon.embedding.local.protobuf import Field, fields, framed, head, number_field

_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_EXTERNAL: Final = 1
"""TensorProto.DataLocation"""
_LEAST_BYTES: Final = 64 * 1024
"""Of a constant: what is smaller is not worth a mapping."""


def left_in_file(model: memoryview, name: str) -> bytes:
    """The model without its large constants of eight bits: it names their places in the file of that name, which holds all of it.

    Numbers of more bytes are not left there, since nothing in a file says that they begin where a processor wants them to.

    Raises ValueError: it is no ONNX model.
    """
    parts: list[bytes] = []
    for part in fields(model):
        if part.number != MODEL_GRAPH or part.content is None:
            parts.append(bytes(part.whole))
            continue
        graph = [_left(found, part.start + found.start, name) for found in fields(part.content)]
        parts += [head(MODEL_GRAPH, sum(map(len, graph))), *graph]
    return b"".join(parts)


def _left(found: Field, start: int, name: str) -> bytes:
    """A field of the graph, whose content begins there in the file."""
    if found.number != GRAPH_INITIALIZER or found.content is None or Tensor.read(found.content).type != INT8:
        return bytes(found.whole)
    tensor = list(fields(found.content))
    data = next((part for part in tensor if part.number == TENSOR_RAW and part.content is not None), None)
    if data is None or data.content is None or len(data.content) < _LEAST_BYTES:
        return bytes(found.whole)
    said = {"location": name, "offset": str(start + data.start), "length": str(len(data.content))}
    entries = [
        framed(_TENSOR_EXTERNAL, framed(1, key.encode()) + framed(2, value.encode())) for key, value in said.items()
    ]
    kept = [bytes(part.whole) for part in tensor if part.number != TENSOR_RAW]
    return framed(GRAPH_INITIALIZER, b"".join([*kept, *entries, number_field(_TENSOR_LOCATION, _EXTERNAL)]))
