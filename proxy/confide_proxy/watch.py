"""Changes in memory folders, as they happen.

The operating system's events only make the sync prompt; truth is found by looking at the file. Events are gathered until a path has been
quiet for the debounce time, so that an editor's write-temp-and-rename is one change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from confide_proxy.folder import MEMORY_FOLDER, Folder, fixed_part

log = logging.getLogger(__name__)

LONGEST_GATHER_S = 1.0
"""A file that never rests is still sent this often."""
RESCAN_S = 300.0
"""A comparison this often makes up for events that the operating system dropped."""
POLL_S = 2.0
"""Without native events (inotify's limit reached, some network mounts) folders are walked this often."""
_QUIET_EVENTS = frozenset({"opened", "closed_no_write"})


class Watcher(FileSystemEventHandler):
    """The changed paths of one folder, relative to its root."""

    def __init__(self, folder: Folder, *, debounce_s: float) -> None:
        self._folder = folder
        self._debounce_s = debounce_s
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._observer: BaseObserver = Observer()
        self._watches: dict[Path, ObservedWatch] = {}
        self._is_unsure = False
        self.has_events = True

    def start(self) -> None:
        """Begin to watch; blocks briefly, so call it in a worker thread."""
        try:
            self._folder.root.mkdir(parents=True, exist_ok=True)
            # A glob such as **/*.md means the whole project, dependencies and all: it was asked for.
            whole = any("/" in glob and not fixed_part(glob) for glob in self._folder.extra)
            self._schedule(self._folder.root, recursive=whole)
            self._schedule_trees()
            self._observer.start()
        except OSError as error:
            self._poll_instead(error)

    def _poll_instead(self, error: OSError) -> None:
        # Most often inotify's limit (fs.inotify.max_user_watches). Polling keeps the promise, only slower.
        log.warning("no file events for a memory folder (%s); looking every %.0f s", error.strerror, POLL_S)
        self.has_events = False

    def stop(self) -> None:
        """End the watching thread."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join(1.0)

    async def changes(self) -> AsyncIterator[set[str] | None]:
        """Sets of changed paths; None means that anything may have changed."""
        while True:
            try:
                async with asyncio.timeout(RESCAN_S if self.has_events else POLL_S):
                    await self._woken.wait()
            except TimeoutError:
                yield None
                continue
            self._woken.clear()
            if self._is_unsure:
                self._is_unsure = False
                self._pending.clear()
                yield None
            elif self._pending:  # not so when the gathering before took in what woke us now
                yield await self._gather()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called in watchdog's thread."""
        if event.event_type in _QUIET_EVENTS:
            return
        for name in (event.src_path, event.dest_path):
            if name:
                self._loop.call_soon_threadsafe(self._note, Path(str(name)), event.is_directory, event.event_type)

    def _note(self, path: Path, is_directory: bool, event_type: str) -> None:
        try:
            relative = path.relative_to(self._folder.root).as_posix()
        except ValueError:
            return
        if is_directory:
            if event_type in ("deleted", "moved") and path in self._watches and path != self._folder.root:
                # The watch went with the folder; one of the same name (a git checkout) needs a new one.
                self._observer.unschedule(self._watches.pop(path))
            if event_type in ("deleted", "moved"):
                # No event tells which files went with it: a comparison does.
                self._is_unsure = True
                self._woken.set()
            try:
                self._schedule_trees()
            except OSError as error:
                self._poll_instead(error)
                self._is_unsure = True
                self._woken.set()
            if relative == MEMORY_FOLDER or relative.startswith(f"{MEMORY_FOLDER}/"):
                for file in self._folder.walk():
                    if file.path.startswith(f"{relative}/"):
                        self._pending.setdefault(file.path, time.monotonic())
        elif self._folder.is_watched(relative):
            self._pending[relative] = time.monotonic()
        if self._pending:
            self._woken.set()

    async def _gather(self) -> set[str]:
        started = time.monotonic()
        while (quiet := time.monotonic() - max(self._pending.values())) < self._debounce_s:
            if time.monotonic() - started > LONGEST_GATHER_S:
                break
            await asyncio.sleep(self._debounce_s - quiet)
        paths = set(self._pending)
        self._pending.clear()
        return paths

    def _schedule_trees(self) -> None:
        for top in {MEMORY_FOLDER, *filter(None, map(fixed_part, self._folder.extra))}:
            path = self._folder.root / top
            watch = self._watches.get(path)
            if path.is_dir() and not path.is_symlink():
                if watch is None:
                    self._schedule(path, recursive=True)
            elif watch is not None:
                self._observer.unschedule(watch)
                del self._watches[path]

    def _schedule(self, path: Path, *, recursive: bool) -> None:
        self._watches[path] = self._observer.schedule(self, str(path), recursive=recursive)
