"""inotify as a watcher needs it: it reports what watchdog keeps to itself.

Where the system's limit is reached below a folder that is watched, watchdog goes on without the folders that it could not have; and where
the kernel drops events, it repairs its own watches and tells nobody.
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

# It warns of each folder that is replaced, with the objects of its own written out in full, and nothing is wrong then.
warnings.filterwarnings("ignore", message="Callback with id", category=RuntimeWarning)

LIMITS: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What the system answers where it has no more watches, instances or descriptors. A folder that is gone by now is no matter."""

OnFailure = Callable[[Exception | None], None]
"""Told in a thread: why a folder cannot be watched, or None where events were dropped."""


class InotifyObserver(BaseObserver):
    """watchdog's observer over one instance of inotify of its own. Raises OSError: there is none to be had."""

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
        except Exception as error:  # nothing is heard of the folder any more
            self._on_failure(error)

    def on_thread_stop(self) -> None:
        super().on_thread_stop()
        if self.ident is None:  # no thread was to be had, which would have closed it
            with suppress(AttributeError, OSError):
                self._close_resources()
