"""Watch a memory folder, and report its changed files.

Events of the operating system only make the sync prompt; the file itself decides what has changed.
A path is reported once it has been quiet for the debounce time, so that an editor's
write-temp-and-rename is one change, or after `LONGEST_GATHER_S` seconds of uninterrupted changes.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from watchdog import events
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.utils import UnsupportedLibcError

from confide_memory.documents import MEMORY_FOLDER, path_problem, to_nfc, with_plain_suffix
from confide_memory.globs import fixed_part, is_deep
from confide_proxy.sync.absence.folder_identity import seen_as
from confide_proxy.sync.folder import Folder

LOOK_S = 2.0
"""Interval in seconds of the check that the watched folder is still the same: no event reports a
disk mounted over it.
"""
LONGEST_GATHER_S = 1.0
"""Longest delay in seconds before a file that changes without pause is sent."""
RESCAN_S = 300.0
"""Interval in seconds of the comparison that makes up for events that the operating system dropped.
"""
POLL_S = 2.0
"""Interval in seconds at which folders without native events (inotify's limit reached, some network
mounts) are walked.
"""
MANY_PATHS = 1000
"""Number of pending paths beyond which the system may have dropped events: a comparison follows."""
MOST_PATHS = 10_000
"""Number of pending paths beyond which all are dropped in favour of a comparison."""
_EVENTS: list[type[events.FileSystemEvent]] = [
    *(events.DirCreatedEvent, events.DirDeletedEvent, events.DirMovedEvent, events.FileClosedEvent),
    *(events.FileCreatedEvent, events.FileDeletedEvent, events.FileModifiedEvent, events.FileMovedEvent),
]
"""Event types to request: not opens and reads, nor a folder's changed modification time, which each
save would cause.
"""


class Watcher(events.FileSystemEventHandler):
    """Watches one folder, and reports changed paths relative to it."""

    def __init__(self, folder: Folder, *, debounce_s: float) -> None:
        self._folder = folder
        self._debounce_s = debounce_s
        self._loop = asyncio.get_running_loop()
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._trees: set[str] = set()
        self._wake = asyncio.Event()
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, ObservedWatch] = {}
        self._unsure_at: float | None = None
        self._doubting: asyncio.TimerHandle | None = None
        self._ringing: asyncio.TimerHandle | None = None
        self.problem = ""
        """Why there are no file events, so that the folder is polled every `POLL_S`; "" where there
        are.
        """
        self._stamps: dict[Path, tuple[int, int] | None] = {}

    def is_stale(self) -> bool:
        """Return True if another folder is now at the path of one that is watched. Blocks briefly."""
        return any(seen_as(path) not in (None, self._stamps.get(path)) for path in list(self._watches))

    def fits(self, folder: Folder) -> bool:
        """Return True if this watcher covers the same root folder and extra globs as `folder`."""
        return (self._folder.root, self._folder.extra) == (folder.root, folder.extra)

    def start(self) -> None:
        """Start to watch the folder, or to poll it if the system provides no events. Blocks
        briefly, so call it in a worker thread.
        """
        try:
            self._observer = _observer(self._on_failure)
            # A glob such as **/*.md means the whole project, dependencies included, as the user
            # configured.
            whole = any(is_deep(glob) and not fixed_part(glob) for glob in self._folder.extra)
            self._schedule(self._folder.root, recursive=whole)
            self._schedule_trees()
            self._observer.start()
        except (OSError, RuntimeError) as error:  # no instance, watch, descriptor or thread is left
            self._poll_instead(error)

    @property
    def has_events(self) -> bool:
        """Return True if the operating system reports changes, False if the folder is polled."""
        return not self.problem

    def _poll_instead(self, error: Exception) -> None:
        # Usually inotify's limit (fs.inotify.max_user_watches). Polling still finds every change,
        # only later.
        self.problem = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__

    def _on_failure(self, error: Exception | None) -> None:
        """Handle a subfolder that cannot be watched, or dropped events (None). Called in a watchdog
        thread.
        """
        if error is not None:
            self._poll_instead(error)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._be_unsure)

    def stop(self) -> None:
        """Stop watching and end the watcher's threads. Blocks briefly."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._quiet)
        if self._observer is not None:
            self._observer.stop()  # works for a partly started one too
            if self._observer.is_alive():
                self._observer.join(1.0)

    def _quiet(self) -> None:
        for timer in (self._doubting, self._ringing):
            if timer is not None:
                timer.cancel()

    def doubt(self, seconds: float) -> None:
        """Request a comparison of the whole folder after so many seconds. It replaces an earlier
        request.
        """
        if self._doubting is not None:
            self._doubting.cancel()
        self._doubting = self._loop.call_later(seconds, self._be_unsure)

    async def changes(self) -> set[str] | None:
        """Wait for the next changes, and return their paths. None means that the whole folder must
        be compared.
        """
        patience_s = RESCAN_S if self.has_events else POLL_S
        while True:
            try:
                async with asyncio.timeout(min(LOOK_S, patience_s)):
                    await self._wake.wait()
            except TimeoutError:
                patience_s -= LOOK_S
                if patience_s <= 0 or await asyncio.to_thread(self.is_stale):
                    return None
                continue
            self._wake.clear()
            if self._trees:
                trees, self._trees = self._trees, set()
                for path in await asyncio.to_thread(self._inside, trees):
                    self._note_file(path)
            is_due = self._due_s() <= 0
            taken = self._take(time.monotonic()) if is_due else set()
            self._arm()
            if is_due:
                return taken

    def _arm(self) -> None:
        """Wake `changes` when the first path is due, not at each event: a file that the daemon
        writes here causes several.
        """
        if self._ringing is None and not self._wake.is_set() and (due_s := self._due_s()) < math.inf:
            self._ringing = self._loop.call_later(max(0.0, due_s), self._ring)

    def _ring(self) -> None:
        self._ringing = None
        if self._due_s() <= 0:
            self._wake.set()
        else:
            self._arm()  # the file changed again

    def _due_s(self) -> float:
        """Return the seconds until the next path or comparison is due; infinity if none is pending."""
        dues = [min(last + self._debounce_s, self._first[path] + LONGEST_GATHER_S) for path, last in self._last.items()]
        if self._unsure_at is not None:
            dues.append(self._unsure_at + self._debounce_s)
        return min(dues, default=math.inf) - time.monotonic()

    def _take(self, now: float) -> set[str] | None:
        is_comparison_due = self._unsure_at is not None and self._unsure_at + self._debounce_s <= now
        if is_comparison_due and not self._last:
            self._unsure_at = None
            return None
        if len(self._last) > MANY_PATHS:
            self._be_unsure()
        # Known changes go before a comparison: an event that reports a removal is better evidence
        # than a missing file.
        due = {
            path
            for path, last in self._last.items()
            if is_comparison_due or min(last + self._debounce_s, self._first[path] + LONGEST_GATHER_S) <= now
        }
        for path in due:
            del self._first[path], self._last[path]
        return due

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        """Pass a file event to the event loop. Watchdog calls this in a thread of its own."""
        for name in (event.src_path, event.dest_path):
            if name:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._note, Path(str(name)), event.is_directory, event.event_type)

    def _note(self, path: Path, is_directory: bool, event_type: str) -> None:
        try:
            relative = path.relative_to(self._folder.root).as_posix()
        except ValueError:
            return
        if not is_directory:
            if self._folder.is_watched(document := to_nfc(relative)):
                self._note_file(document)
            elif with_plain_suffix(document).endswith(".md") and path_problem(document) is not None:
                self._be_unsure()  # its name is not allowed, which a comparison reports
            return
        if event_type in ("deleted", "moved"):
            if path in self._watches and path != self._folder.root:
                # The watch ended with the folder; a new folder of the same name (a git checkout)
                # needs a new one.
                self._unschedule(path)
            # No event lists the files that disappeared with the folder: a comparison finds them.
            self._be_unsure()
        try:
            self._schedule_trees()
        except (OSError, RuntimeError) as error:
            self._poll_instead(error)
            self._be_unsure()
        if event_type in ("created", "moved"):
            # Files that were created in it before it was watched caused no events.
            self._trees.add(relative)
            self._wake.set()

    def _note_file(self, path: str) -> None:
        now = time.monotonic()
        if len(self._last) >= MOST_PATHS and path not in self._last:
            self._first.clear()
            self._last.clear()
            self._be_unsure()
        self._first.setdefault(path, now)
        self._last[path] = now
        self._arm()

    def _be_unsure(self) -> None:
        self._unsure_at = time.monotonic()
        self._arm()

    def _inside(self, trees: set[str]) -> list[str]:
        return [found.path for tree in sorted(trees) for found in self._folder.walk(below=tree)]

    def _schedule_trees(self) -> None:
        for top in {MEMORY_FOLDER, *filter(None, map(fixed_part, self._folder.extra))}:
            path = self._folder.root / self._folder.spelling_of(top)
            watch = self._watches.get(path)
            if path.is_dir() and not path.is_symlink():
                if watch is None:
                    self._schedule(path, recursive=True)
            elif watch is not None:
                self._unschedule(path)

    def _schedule(self, path: Path, *, recursive: bool) -> None:
        if self._observer is not None:
            self._stamps[path] = seen_as(path)
            self._watches[path] = self._observer.schedule(self, str(path), recursive=recursive, event_filter=_EVENTS)

    def _unschedule(self, path: Path) -> None:
        watch = self._watches.pop(path)
        if self._observer is not None:
            with suppress(KeyError):  # it ended by itself
                self._observer.unschedule(watch)


def _observer(on_failure: Callable[[Exception | None], None]) -> BaseObserver:
    """Return the system's observer of file events. Raises OSError: the system has none left."""
    if sys.platform == "linux":
        with suppress(UnsupportedLibcError):
            from confide_proxy.sync.watching.inotify import InotifyObserver

            return InotifyObserver(on_failure)
    return Observer()
