"""Reads the constants (weights) of an ONNX model from its file (onnx.proto3) without copying them,
so that the system loads only the pages that are used.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from confide_daemon.embedding.local.protobuf import fields, numbers

_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER: Final = 5
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TYPES: Final[dict[int, np.dtype[Any]]] = {1: np.dtype("<f4"), 3: np.dtype("i1")}
"""TensorProto.DataType values of weights and their scales; other types are shapes and the like."""


def initializers(model: memoryview) -> dict[str, NDArray[Any]]:
    """Return the float32 and 8-bit constants of an ONNX model by name, in the order of the file.

    The arrays share the memory of `model`, and floats may be unaligned.

    Raises ValueError if the file is not an ONNX model.
    """
    found: dict[str, NDArray[Any]] = {}
    for part in fields(model):
        if part.number == _MODEL_GRAPH and part.content is not None:
            for entry in fields(part.content):
                if entry.number == _GRAPH_INITIALIZER and entry.content is not None:
                    _add(found, entry.content)
    return found


def _add(found: dict[str, NDArray[Any]], tensor: memoryview) -> None:
    name, kind, shape, raw = "", 0, list[int](), None
    for part in fields(tensor):
        if part.number == _TENSOR_DIMS:
            shape += [part.value] if part.content is None else numbers(part.content)
        elif part.number == _TENSOR_TYPE:
            kind = part.value
        elif part.number == _TENSOR_NAME and part.content is not None:
            name = str(part.content, "utf-8")
        elif part.number == _TENSOR_RAW:
            raw = part.content
    if raw is not None and kind in _TYPES:
        found[name] = np.frombuffer(raw, dtype=_TYPES[kind]).reshape(shape)
