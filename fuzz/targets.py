"""What is fuzzed, by name. Each gets a million of ten million executions at least, the slowest ones no more; they begin first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from fuzz import bodies, frames, handshakes, sealing, texts


@dataclass(frozen=True, slots=True)
class Target:
    """One function under fuzzing.

    Attributes:
        run: takes an input; raises only for a bug.
        seeds: the inputs to begin with.
        share: of all executions, in percent.
        max_length: of an input, in bytes.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    share: int
    max_length: int


TARGETS: Final = {
    "key_line": Target(texts.key_line, texts.key_line_seeds, 10, 300),
    "invite": Target(texts.invite, texts.invite_seeds, 10, 400),
    "message1": Target(handshakes.message1, handshakes.seeds1, 10, 1400),
    "message2": Target(handshakes.message2, handshakes.seeds2, 10, 1300),
    "message3": Target(handshakes.message3, handshakes.seeds3, 10, 600),
    "sealing": Target(sealing.sealing, sealing.seeds, 10, 600),
    "frames": Target(frames.frames, frames.seeds, 20, 1000),
    "bodies": Target(bodies.bodies, bodies.seeds, 20, 6000),
}
