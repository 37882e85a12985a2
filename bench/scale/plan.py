"""How much of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it.

    Attributes:
        open_each: spaces that a node has open at once.
        seconds: of everyday load.
        stage_s: after so long a stage ends where it is, and says how far it came.
        connections: of a node.
    """

    spaces: int = 100_000
    nodes: int = 8
    open_each: int = 256
    seconds: float = 60.0
    stage_s: float = 100.0
    connections: int = 6
    idle: int = 100  # connections that are held at once, to be weighed
    small: int = 100  # snapshots of empty spaces
    large: int = 4
    large_mib: float = 26.0  # of a file with 10,000 pieces
    callers: int = 10_000  # that the registry has, to see how it grows
