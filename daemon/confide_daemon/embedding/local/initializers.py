"""The constants of an ONNX model, as they lie in its file (onnx.proto3): nothing is copied, so the system reads what is used of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from confide_daemon.embedding.local.protobuf import fields, numbers

_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER: Final = 5
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TYPES: Final[dict[int, np.dtype[Any]]] = {1: np.dtype("<f4"), 3: np.dtype("i1")}
"""TensorProto.DataType: of weights, and of what they are scaled with; the others are shapes and the like."""


def initializers(model: memoryview) -> dict[str, NDArray[Any]]:
    """The constants of 32-bit floats and of eight bits by their names, in the order of the file.

    They hold on to `model`, and floats may stand at any address.

    Raises ValueError: it is no ONNX model.
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
