"""A status line on the terminal that shows what a command is doing if it takes longer than a
moment.

It does not use `rich`, since loading `rich` would lengthen the wait by a third. The module
`progress` shows bars with numbers.
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
"""Seconds before the line appears. Users should see something within 0.3 s; the rest is for a busy
computer.
"""
_FRAME_S: Final = 0.1
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES: Final = "|/-\\"
_MOST_CHARS: Final = 76
_CLEAR: Final = "\r\033[K"


class Doing:
    """A status line on stderr that is erased before other output.

    On a terminal without styles each new text is printed as a plain line and stays. Nothing is
    printed if stderr is not a terminal or a dumb one.
    """

    def __init__(self) -> None:
        self._text = "working"
        self._line = ""
        self._is_drawn = False
        self._is_paused = False
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._began: float | None = None

    def waits_from(self, began: float | None) -> None:
        """Set the time at which the user began to wait, in seconds of `time.monotonic`, since
        loading the command is part of the wait. None means that the wait begins with the call of
        `begin`.
        """
        self._began = began

    def begin(self) -> None:
        """Start to show the status line."""
        if self._thread is None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._end.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Erase the status line and stop showing it."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.clear()
        self._text, self._line = "working", ""

    def __call__(self, text: str) -> None:
        """Set the text to show: `starting the daemon`."""
        self._text = text[:_MOST_CHARS]

    @contextmanager
    def erase(self) -> Iterator[None]:
        """Erase the status line while the `with` block writes other output."""
        with self._lock:
            self.clear()
            yield

    @property
    def is_paused(self) -> bool:
        """True while `pause` hides the status line."""
        return self._is_paused

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the status line during the `with` block, while the user is asked or other progress
        is shown.
        """
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
                    elif self._text != self._line:
                        sys.stderr.write(f"{self._text} ...\n")
                    sys.stderr.flush()
                except (OSError, ValueError):
                    return  # the terminal was closed
                self._line = self._text
                number += 1


doing: Final = Doing()
"""The status line of this process; a command calls it with what it does."""


def has_styles(stream: Any) -> bool:
    """Return True if output to this stream may use bold text and colours (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
