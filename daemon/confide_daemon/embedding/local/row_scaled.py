"""A table of an ONNX model that stays in eight bits: its rows become floats when they are looked up, not all of them when it is loaded.

The packaged model has its weights as `Mul(Cast(quantized), scale)`. ONNX Runtime computes that once, when it loads, and so makes 47 MB of
floats of the 12 MB of word embeddings, of which a question needs a few rows. Looked up first and scaled then, each number is the same, bit
for bit: `Mul(Cast(Gather(quantized, ids)), Gather(scale, ids))`.
"""

from __future__ import annotations

from dataclasses import replace

from confide_daemon.embedding.local.graph import Graph, Part, with_graph


def looked_up_first(model: bytes) -> bytes:
    """The model with each table of which only rows are used scaled behind its lookup; the same bytes where it has none such.

    Raises ValueError: it is no ONNX model.
    """
    return with_graph(model, _rewritten)


def _rewritten(content: memoryview) -> list[Part]:
    graph = Graph.read(content)
    for place, lookup, scaled in graph.scaled("Gather", 0):
        ids, found = lookup.inputs[1], lookup.outputs[0]
        rows, floats, scales = (f"{found}/{part}" for part in ("rows", "floats", "scales"))
        nodes = [
            replace(lookup, inputs=(scaled.table, ids), outputs=(rows,)),
            replace(scaled.cast, inputs=(rows,), outputs=(floats,)),
            replace(lookup, inputs=(scaled.scale, ids), outputs=(scales,)),
            replace(scaled.mul, inputs=(floats, scales), outputs=(found,)),
        ]
        graph.replace(place, nodes, without=scaled)
    return graph.written()
