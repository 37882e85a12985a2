"""A table of an ONNX model that stays in eight bits: its rows become floats when they are looked up, not all of them when it is loaded.

The packaged model has its weights as `Mul(Cast(quantized), scale)`. ONNX Runtime computes that once, when it loads, and so makes 47 MB of
floats of the 12 MB of word embeddings, of which a question needs a few rows. Looked up first and scaled then, each number is the same, bit
for bit: `Mul(Cast(Gather(quantized, ids)), Gather(scale, ids))`. What is multiplied with as a whole stays as the runtime makes it.

A model is a message of protocol buffers (onnx.proto3); only what names its nodes is read here, and the rest copied. The package `onnx`,
which could do the same, weighs 17 MB and is not for a daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

# Fields of onnx.proto3, and the wire types of protocol buffers that it uses.
_MODEL_GRAPH = 7
_GRAPH_NODE = 1
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP = 1, 2, 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def looked_up_first(model: bytes) -> bytes:
    """The model with each table of which only rows are used scaled behind its lookup; the same bytes where it has none such.

    Raises ValueError: it is no ONNX model.
    """
    parts: list[bytes | memoryview] = []
    has_changed = False
    for number, whole, content in _fields(memoryview(model)):
        graph = _rewritten(content) if number == _MODEL_GRAPH and content is not None else []
        parts += [_head(_MODEL_GRAPH, sum(map(len, graph))), *graph] if graph else [whole]
        has_changed = has_changed or bool(graph)
    return b"".join(parts) if has_changed else model


@dataclass(frozen=True, slots=True)
class _Node:
    """What a node is called by, and all else of it as it came."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rest: bytes

    @classmethod
    def read(cls, content: memoryview) -> _Node:
        names: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _NODE_NAME: [], _NODE_OP: []}
        rest = []
        for number, whole, value in _fields(content):
            if number in names and value is not None:
                names[number].append(str(value, "utf-8"))
            else:
                rest.append(bytes(whole))
        return cls("".join(names[_NODE_OP]), tuple(names[_NODE_INPUT]), tuple(names[_NODE_OUTPUT]), b"".join(rest))

    def framed(self) -> bytes:
        named = [(_NODE_INPUT, name) for name in self.inputs] + [(_NODE_OUTPUT, name) for name in self.outputs]
        content = b"".join(_framed(number, name.encode()) for number, name in [*named, (_NODE_OP, self.op)])
        # Without its own name, which is for people, and which no two may have.
        return _framed(_GRAPH_NODE, content + self.rest)


def _rewritten(graph: memoryview) -> list[bytes | memoryview]:
    """The graph with such lookups, in parts; none where it has no such table."""
    fields = list(_fields(graph))
    nodes = {
        place: _Node.read(content)
        for place, (number, _, content) in enumerate(fields)
        if number == _GRAPH_NODE and content is not None
    }
    made_by = {name: node for node in nodes.values() for name in node.outputs}
    users: dict[str, list[_Node]] = {}
    for node in nodes.values():
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    replaced: dict[int, list[_Node]] = {}
    for place, lookup in nodes.items():
        scaled = made_by.get(lookup.inputs[0]) if lookup.op == "Gather" and lookup.inputs else None
        cast = made_by.get(scaled.inputs[0]) if scaled is not None and scaled.op == "Mul" else None
        if scaled is None or cast is None or cast.op != "Cast" or scaled.inputs[1] in made_by:
            continue
        if users[scaled.outputs[0]] != [lookup] or users[cast.outputs[0]] != [scaled]:
            continue
        table, scale, ids, found = cast.inputs[0], scaled.inputs[1], lookup.inputs[1], lookup.outputs[0]
        rows, floats, scales = (f"{found}/{part}" for part in ("rows", "floats", "scales"))
        replaced[place] = [
            replace(lookup, inputs=(table, ids), outputs=(rows,)),
            replace(cast, inputs=(rows,), outputs=(floats,)),
            replace(lookup, inputs=(scale, ids), outputs=(scales,)),
            replace(scaled, inputs=(floats, scales), outputs=(found,)),
        ]
        replaced |= {other: [] for other, node in nodes.items() if node in (scaled, cast)}
    parts: list[bytes | memoryview] = []
    for place, (_, whole, _) in enumerate(fields if replaced else ()):
        parts += [node.framed() for node in replaced[place]] if place in replaced else [whole]
    return parts


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview | None]]:
    """(number, all of the field, what it holds where that has a length) of each field of a message. Raises ValueError."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        content = None
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            content = message[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("not a message of protocol buffers")
        if at > len(message):
            raise ValueError("a message of protocol buffers that is cut off")
        yield tag >> 3, message[start:at], content


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number of protocol buffers that does not end")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _framed(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    """What stands before the bytes of a field."""
    made = bytearray()
    for value in (number << 3 | _BYTES, length):
        while value > 0x7F:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        made.append(value)
    return bytes(made)
