"""A graph of relations: notes as points, what they state of each other as lines. Pure, and the same for the same notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

WIDTH: Final = 720
HEIGHT: Final = 460
_FEW: Final = 6
_SMALL: Final = (420, 250)
"""A sheet for so few notes, that they do not lie in a void."""
MOST: Final = 30
"""Notes: more could not be told apart, and the table beside it has them all."""
_STEPS: Final = 60
_GRAVITY: Final = 1.4
"""How much all are drawn to the middle: what hangs together with nothing else does not drift to the edge."""
_NODE: Final = Markup(
    '<a href="{}"><circle class="node{}" cx="{:.0f}" cy="{:.0f}" r="7"/>'
    '<text class="name" x="{:.0f}" y="{:.0f}" text-anchor="middle">{}</text></a>'
)
_NAME: Final = 22
_SIGN: Final = 3.2
"""Half of the room that a sign of a name takes, which stands below its point."""
_SHORT_NAME: Final = 13
_MANY: Final = 15
"""Notes from which on names are shorter, or they would lie on each other."""


class Edge(NamedTuple):
    """What a note, by its id, states of another one."""

    one: str
    relation: str
    other: str


def drawn(
    names: dict[str, str], edges: Sequence[Edge], *, address: Callable[[str], str], self_: str = "", label: str
) -> Markup:
    """The graph of the notes that have most relations.

    Args:
        names: titles by id.
        self_: the note that the page is about.
    """
    degree = Counter(end for edge in edges for end in (edge.one, edge.other))
    degree[self_] += len(edges)
    kept = [identity for identity, _ in degree.most_common(MOST) if identity in names]
    lines = [edge for edge in edges if edge.one in kept and edge.other in kept]
    width, height = _SMALL if len(kept) <= _FEW else (WIDTH, HEIGHT)
    most = _NAME if len(kept) <= _MANY else _SHORT_NAME
    places = _laid(kept, lines, width, height, margin=_SIGN * most)
    parts: list[Markup] = []
    for edge in lines:
        (x1, y1), (x2, y2) = places[edge.one], places[edge.other]
        parts.append(
            Markup(
                '<line class="edge" x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"><title>{}</title></line>'
            ).format(x1, y1, x2, y2, edge.relation.replace("_", " "))
        )
    for identity in kept:
        x, y = places[identity]
        name = names[identity] if len(names[identity]) <= most else f"{names[identity][: most - 1]}…"
        mark = " self" if identity == self_ else ""
        parts.append(_NODE.format(address(identity), mark, x, y, x, y + 20, name))
    inner = Markup("").join(parts)
    kind = "small" if (width, height) == _SMALL else "large"
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        kind, width, height, label, inner
    )


def _laid(
    nodes: Sequence[str], edges: Sequence[Edge], width: int, height: int, *, margin: float
) -> dict[str, tuple[float, float]]:
    """Places by forces (Fruchterman and Reingold, 1991): all push each other away, those that a line joins pull, and so does the middle."""
    count = max(1, len(nodes))
    ideal = 0.8 * math.sqrt(width * height / count)
    turn = math.pi * (3 - math.sqrt(5))  # begun on a spiral, where no two are at one place
    at = {
        node: [
            width / 2 + 12 * math.sqrt(n + 1) * math.cos(n * turn),
            height / 2 + 9 * math.sqrt(n + 1) * math.sin(n * turn),
        ]
        for n, node in enumerate(nodes)
    }
    for step in range(_STEPS):
        heat = width / 8 * (1 - step / _STEPS)
        push = {
            node: [_GRAVITY * (width / 2 - x), _GRAVITY * width / height * (height / 2 - y)]
            for node, (x, y) in at.items()
        }
        for n, one in enumerate(nodes):
            for other in nodes[n + 1 :]:
                dx, dy = at[one][0] - at[other][0], at[one][1] - at[other][1]
                squared = max(1.0, dx * dx + dy * dy)
                force = ideal * ideal / squared
                push[one][0] += dx * force
                push[one][1] += dy * force
                push[other][0] -= dx * force
                push[other][1] -= dy * force
        for edge in edges:
            dx, dy = at[edge.one][0] - at[edge.other][0], at[edge.one][1] - at[edge.other][1]
            force = math.hypot(dx, dy) / ideal
            push[edge.one][0] -= dx * force
            push[edge.one][1] -= dy * force
            push[edge.other][0] += dx * force
            push[edge.other][1] += dy * force
        for node in nodes:
            x, y = push[node]
            length = max(1e-9, math.hypot(x, y))
            moved = min(length, heat)
            at[node][0] = min(width - margin, max(margin, at[node][0] + x / length * moved))
            at[node][1] = min(height - 28, max(16, at[node][1] + y / length * moved))
    return {node: (x, y) for node, (x, y) in at.items()}
