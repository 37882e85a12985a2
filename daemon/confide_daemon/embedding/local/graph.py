"""The graph of an ONNX model, as much of it as is needed to change how the model computes: its nodes and its constants (onnx.proto3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from confide_daemon.embedding.local.protobuf import fields, framed, head, number_field, numbers

MODEL_GRAPH: Final = 7
GRAPH_NODE: Final = 1
GRAPH_INITIALIZER: Final = 5
GRAPH_INPUT: Final = 11
TENSOR_DIMS, TENSOR_TYPE, TENSOR_NAME, TENSOR_RAW = 1, 2, 8, 9
INT8: Final = 3
"""TensorProto.DataType"""
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OP = 1, 2, 3, 4

Part = bytes | memoryview


def with_graph(model: bytes, change: Callable[[memoryview], list[Part]]) -> bytes:
    """The model with its graph changed; the same bytes where `change` gives nothing.

    Raises ValueError: it is no ONNX model.
    """
    parts: list[Part] = []
    has_changed = False
    for found in fields(memoryview(model)):
        changed = change(found.content) if found.number == MODEL_GRAPH and found.content is not None else []
        parts += [head(MODEL_GRAPH, sum(map(len, changed))), *changed] if changed else [found.whole]
        has_changed = has_changed or bool(changed)
    return b"".join(parts) if has_changed else model


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant of the graph, without its numbers."""

    name: str
    type: int
    shape: tuple[int, ...]

    @classmethod
    def read(cls, content: memoryview) -> Tensor:
        name, kind, shape = "", 0, []
        for found in fields(content):
            if found.number == TENSOR_DIMS:
                shape += [found.value] if found.content is None else list(numbers(found.content))
            elif found.number == TENSOR_TYPE:
                kind = found.value
            elif found.number == TENSOR_NAME and found.content is not None:
                name = str(found.content, "utf-8")
        return cls(name, kind, tuple(shape))

    def as_input(self) -> bytes:
        """The field of a graph that declares it an input too, which a caller could give in its place (ValueInfoProto)."""
        shape = b"".join(framed(1, number_field(1, size)) for size in self.shape)
        kind = framed(1, number_field(1, self.type) + framed(2, shape))
        return framed(GRAPH_INPUT, framed(1, self.name.encode()) + framed(2, kind))


@dataclass(frozen=True, slots=True)
class Node:
    """What a node is called by, and all else of it as it came."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rest: bytes = b""

    @classmethod
    def read(cls, content: memoryview) -> Node:
        names: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _NODE_NAME: [], _NODE_OP: []}
        rest = []
        for found in fields(content):
            if found.number in names and found.content is not None:
                names[found.number].append(str(found.content, "utf-8"))
            else:
                rest.append(bytes(found.whole))
        return cls("".join(names[_NODE_OP]), tuple(names[_NODE_INPUT]), tuple(names[_NODE_OUTPUT]), b"".join(rest))

    def framed(self) -> bytes:
        named = [(_NODE_INPUT, name) for name in self.inputs] + [(_NODE_OUTPUT, name) for name in self.outputs]
        content = b"".join(framed(number, name.encode()) for number, name in [*named, (_NODE_OP, self.op)])
        # Without its own name, which is for people, and which no two may have.
        return framed(GRAPH_NODE, content + self.rest)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A constant in eight bits that the graph makes floats of: `Mul(Cast(table), scale)`, for one node alone."""

    cast: Node
    mul: Node

    @property
    def table(self) -> str:
        return self.cast.inputs[0]

    @property
    def scale(self) -> str:
        return self.mul.inputs[1]


@dataclass(slots=True)
class Graph:
    """The nodes by their places among the graph's fields, and what stands in the place of some."""

    parts: list[tuple[int, memoryview]]  # number and bytes of each field
    nodes: dict[int, Node]
    tensors: dict[str, Tensor]
    replaced: dict[int, list[Node]] = field(default_factory=dict)
    added: list[bytes] = field(default_factory=list)
    _made_by: dict[str, Node] = field(default_factory=dict)
    _users: dict[str, list[Node]] = field(default_factory=dict)

    @classmethod
    def read(cls, content: memoryview) -> Graph:
        found = list(fields(content))
        nodes = {
            place: Node.read(part.content)
            for place, part in enumerate(found)
            if part.number == GRAPH_NODE and part.content is not None
        }
        tensors = [
            Tensor.read(part.content) for part in found if part.number == GRAPH_INITIALIZER and part.content is not None
        ]
        graph = cls([(part.number, part.whole) for part in found], nodes, {tensor.name: tensor for tensor in tensors})
        for node in nodes.values():
            graph._made_by |= dict.fromkeys(node.outputs, node)
            for name in node.inputs:
                graph._users.setdefault(name, []).append(node)
        return graph

    def scaled(self, op: str, operand: int) -> Iterator[tuple[int, Node, Scaled]]:
        """(place, node, what it takes) of each node of this kind whose operand is a scaled constant of its own."""
        for place, node in self.nodes.items():
            mul = self._made_by.get(node.inputs[operand]) if node.op == op and len(node.inputs) > operand else None
            cast = self._made_by.get(mul.inputs[0]) if mul is not None and mul.op == "Mul" else None
            if mul is None or cast is None or cast.op != "Cast" or mul.inputs[1] in self._made_by:
                continue
            if self._users[mul.outputs[0]] == [node] and self._users[cast.outputs[0]] == [mul]:
                yield place, node, Scaled(cast, mul)

    def replace(self, place: int, nodes: list[Node], *, without: Scaled) -> None:
        """Puts nodes in the place of one, and leaves out those that scaled what it took."""
        self.replaced[place] = nodes
        gone = (without.cast, without.mul)
        self.replaced |= {other: [] for other, node in self.nodes.items() if node in gone}

    def written(self) -> list[Part]:
        """The graph, in parts; none where nothing was changed."""
        if not self.replaced:
            return []
        parts: list[Part] = []
        for place, (_, whole) in enumerate(self.parts):
            parts += [node.framed() for node in self.replaced[place]] if place in self.replaced else [whole]
        return [*parts, *self.added]
