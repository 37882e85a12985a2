"""What a command is doing, shown on a terminal as soon as it takes longer than people wait in silence.

Plain code instead of `rich`: loading that would lengthen by a third the wait which it tells of. A bar with numbers is `progress.py`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SILENCE_S: Final = 0.25
"""Within 0.3 s of silence something is to be seen; the rest is for a machine that is busy."""
_FRAME_S: Final = 0.1
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES: Final = "|/-\\"
_MOST_CHARS: Final = 76
_CLEAR: Final = "\r\033[K"


class Doing:
    """One line on stderr, that is gone once anything else is written. Nothing at all where stderr is no terminal or a dumb one; where a
    terminal is to have no styles a plain line for each thing, which stays."""

    def __init__(self) -> None:
        self._text = "working"
        self._told = ""
        self._is_drawn = False
        self._is_paused = False
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._began: float | None = None

    def waits_from(self, began: float | None) -> None:
        """Somebody has waited since then, as `time.monotonic`; None: since `begin`. Loading a command takes a part of their patience."""
        self._began = began

    def begin(self) -> None:
        """From here on the command works."""
        if self._thread is None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._end.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """The command is done; nothing of the line is left."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.clear()
        self._text, self._told = "working", ""

    def __call__(self, text: str) -> None:
        """This is what it does now: `starting the daemon`."""
        self._text = text[:_MOST_CHARS]

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Write something else meanwhile."""
        with self._lock:
            self.clear()
            yield

    @property
    def is_paused(self) -> bool:
        """Whether somebody is being asked: nothing is drawn meanwhile."""
        return self._is_paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Somebody is asked, or something else shows how far it is."""
        with self._lock:
            self.clear()
            before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def clear(self) -> None:
        with self._lock:
            if self._is_drawn:
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
                self._is_drawn = False

    def _run(self) -> None:
        is_animated = has_styles(sys.stderr)
        is_unicode = (getattr(sys.stderr, "encoding", None) or "").lower().replace("-", "") == "utf8"
        frames = _FRAMES if is_unicode else _PLAIN_FRAMES
        number = 0
        wait_s = SILENCE_S if self._began is None else max(0.0, self._began + SILENCE_S - time.monotonic())
        while not self._end.wait(wait_s):
            wait_s = _FRAME_S
            with self._lock:
                if self._is_paused or self._end.is_set():
                    continue
                try:
                    if is_animated:
                        sys.stderr.write(f"{_CLEAR}{frames[number % len(frames)]} {self._text}")
                        self._is_drawn = True
                    elif self._text != self._told:
                        sys.stderr.write(f"{self._text} ...\n")
                    sys.stderr.flush()
                except (OSError, ValueError):
                    return  # the terminal is gone
                self._told = self._text
                number += 1


doing: Final = Doing()
"""Of this process: a command names what it does by calling it."""


def has_styles(stream: Any) -> bool:
    """Whether what is written there may be bold or coloured (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
