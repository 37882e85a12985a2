"""Draw a graph of documents (points) and their relations (lines) as SVG. The result is the same for
the same input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from markupsafe import Markup

WIDTH: Final = 720
HEIGHT: Final = 460
_FEW: Final = 6
_SMALL: Final = (420, 250)
"""The size of the drawing for at most `_FEW` documents."""
MOST: Final = 30
"""Documents in a graph: more would be too dense to read, and the table beside it has all of them.
"""
_STEPS: Final = 60
_GRAVITY: Final = 1.4
"""The strength of the pull to the middle, which keeps unconnected parts away from the edge."""
_EDGE: Final = Markup('<line class="edge" x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"><title>{}</title></line>')
_NODE: Final = Markup(
    '<a href="{}"><circle class="node{}" cx="{:.0f}" cy="{:.0f}" r="7"/>'
    '<text class="name" x="{:.0f}" y="{:.0f}" text-anchor="middle">{}</text></a>'
)
_NAME: Final = 22
_SIGN: Final = 3.2
"""Half the width of a letter of a name, in units of the drawing."""
_SHORT_NAME: Final = 13
_MANY: Final = 15
"""Documents from which on names are cut shorter, so that they do not overlap."""


class Edge(NamedTuple):
    """A relation of one document to another, by their ids or paths."""

    one: str
    relation: str
    other: str


def draw_graph(
    names: dict[str, str], edges: Sequence[Edge], *, address: Callable[[str], str], self_: str = "", label: str
) -> Markup:
    """Draw the documents that have the most relations.

    Args:
        names: titles by id or path.
        address: returns the address of a document's page.
        self_: the document that the page is about.
    """
    degree = Counter(end for edge in edges for end in (edge.one, edge.other))
    degree[self_] += len(edges)
    kept = [identity for identity, _ in degree.most_common(MOST) if identity in names]
    lines = [edge for edge in edges if edge.one in kept and edge.other in kept]
    width, height = _SMALL if len(kept) <= _FEW else (WIDTH, HEIGHT)
    most = _NAME if len(kept) <= _MANY else _SHORT_NAME
    places = _lay_out(kept, lines, width, height, margin=_SIGN * most)
    parts: list[Markup] = []
    for edge in lines:
        ends = (*places[edge.one], *places[edge.other])
        parts.append(_EDGE.format(*ends, edge.relation.replace("_", " ")))
    for identity in kept:
        x, y = places[identity]
        name = names[identity] if len(names[identity]) <= most else f"{names[identity][: most - 1]}…"
        mark = " self" if identity == self_ else ""
        parts.append(_NODE.format(address(identity), mark, x, y, x, y + 20, name))
    kind = "small" if (width, height) == _SMALL else "large"
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        kind, width, height, label, Markup("").join(parts)
    )


def _lay_out(
    nodes: Sequence[str], edges: Sequence[Edge], width: int, height: int, *, margin: float
) -> dict[str, tuple[float, float]]:
    """Place the documents by forces (Fruchterman and Reingold, 1991): all repel each other, related
    ones attract each other, and the middle attracts all.
    """
    ideal = 0.8 * math.sqrt(width * height / max(1, len(nodes)))
    turn = math.pi * (3 - math.sqrt(5))  # begun on a spiral, where no two are at one place
    middle = complex(width / 2, height / 2)
    at = {
        node: middle + math.sqrt(n + 1) * complex(12 * math.cos(n * turn), 9 * math.sin(n * turn))
        for n, node in enumerate(nodes)
    }
    for step in range(_STEPS):
        heat = width / 8 * (1 - step / _STEPS)
        push = {}
        for node, place in at.items():
            inward = middle - place
            push[node] = _GRAVITY * complex(inward.real, inward.imag * width / height)
        for one, other in combinations(nodes, 2):
            apart = at[one] - at[other]
            force = apart * ideal * ideal / max(1.0, abs(apart) ** 2)
            push[one] += force
            push[other] -= force
        for edge in edges:
            apart = at[edge.one] - at[edge.other]
            force = apart * abs(apart) / ideal
            push[edge.one] -= force
            push[edge.other] += force
        for node in nodes:
            length = max(1e-9, abs(push[node]))
            moved = at[node] + push[node] / length * min(length, heat)
            at[node] = complex(min(width - margin, max(margin, moved.real)), min(height - 28, max(16, moved.imag)))
    return {node: (place.real, place.imag) for node, place in at.items()}
