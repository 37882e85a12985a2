"""What somebody who ends TLS can do to a frame, once, at a chosen place of a session."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests.support.network.tls_relay import BINARY, CLOSE, Direction, Frame, Passage

Change = Callable[[Frame, Frame | None], list[Frame]]
"""What goes on in place of a frame; the second one is the frame before it in the same direction."""

POLITE_CLOSE = Frame(CLOSE, (1000).to_bytes(2, "big"))


def flip_a_bit(frame: Frame, _before: Frame | None) -> list[Frame]:
    """Anywhere in it, another one each time."""
    changed = bytearray(frame.payload)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return [Frame(frame.opcode, bytes(changed))]


CHANGES: dict[str, Change] = {
    "flip": flip_a_bit,
    "drop": lambda frame, _before: [],
    "double": lambda frame, _before: [frame, frame],
    "replay": lambda frame, before: [frame, before or frame],
    "swap": lambda frame, before: [],  # see `Once`: what was held back follows behind the next one
    "cut short": lambda frame, _before: [Frame(BINARY, frame.payload[:-1])],
    "shorter bucket": lambda frame, _before: (
        [Frame(BINARY, frame.payload[:272])] if len(frame.payload) > 272 else [Frame(BINARY, b"")]
    ),
    "longer": lambda frame, _before: [Frame(BINARY, frame.payload + b"\0")],
    "inject": lambda frame, _before: [Frame(BINARY, random.randbytes(272)), frame],
    "text": lambda frame, _before: [Frame(1, b"hello"), frame],
    "polite close": lambda frame, _before: [POLITE_CLOSE],
    "close behind": lambda frame, _before: [frame, POLITE_CLOSE],
}


class Once:
    """An edit for a relay: makes one change, to the frame that comes after `skip` others from now on."""

    def __init__(self, name: str, direction: Direction, *, skip: int = 0) -> None:
        self.made = threading.Event()
        self.passage: Passage | None = None
        self._change = CHANGES[name]
        self._is_swap = name == "swap"
        self._direction = direction
        self._skip = skip
        self._held: Frame | None = None
        self._before: Frame | None = None

    def __call__(self, passage: Passage, direction: Direction, frame: Frame) -> list[Frame] | None:
        if direction != self._direction or (self.passage is not None and passage is not self.passage):
            return None
        if self.made.is_set():
            held, self._held = self._held, None
            return [frame, held] if held else None
        before, self._before = self._before, frame
        if self._skip:
            self._skip -= 1
            return None
        self.passage = passage
        self._held = frame if self._is_swap else None
        self.made.set()
        return self._change(frame, before)
