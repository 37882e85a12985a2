"""Watch folders by inotify, and report failures that the watchdog library hides.

If the system's limit is reached in a subfolder, watchdog silently continues without it; and if the
kernel drops events, it repairs its watches without a report.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

# Watchdog logs this warning, with whole objects in it, for each replaced folder, though nothing is
# wrong.
warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)

LIMITS: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of a system that has no more watches, instances, descriptors or memory. Errors of a
deleted folder are not among them.
"""

OnFailure = Callable[[Exception | None], None]
"""Callback, run in a watchdog thread: the reason why a folder cannot be watched, or None if events
were dropped.
"""


class InotifyObserver(BaseObserver):
    """A watchdog observer with an inotify instance of its own. Raises OSError if the system's limit
    of instances is reached.
    """

    def __init__(self, on_failure: OnFailure) -> None:
        self._instance = _Instance(on_failure)
        super().__init__(InotifyEmitter, inotify_fd=self._instance)

    def on_thread_start(self) -> None:
        self._instance.start()
        super().on_thread_start()

    def on_thread_stop(self) -> None:
        super().on_thread_stop()
        self._instance.stop()


class _Instance(InotifyFD):
    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        super().__init__()

    def add_callback(self, *watched: Any) -> Any:
        try:
            return super().add_callback(*watched)
        except OSError as error:
            if error.errno in LIMITS:
                self._on_failure(error)
            raise

    def handle_event(self, event: InotifyEvent) -> None:
        if event.is_queue_overflow:
            self._on_failure(None)
        super().handle_event(event)

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # no events of the folder arrive any more
            self._on_failure(error)

    def on_thread_stop(self) -> None:
        super().on_thread_stop()
        if self.ident is None:  # its thread, which would close it, could not start
            with suppress(AttributeError, OSError):
                self._close_resources()
