"""Where the system gives a watcher less than it asks for, all of the folder is polled, and why is said."""

from __future__ import annotations

import asyncio
import errno
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_proxy.sync.folder import Folder
from confide_proxy.sync.watching.watcher import Watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def folder(root: Path) -> Folder:
    (root / "memory/x/y/z").mkdir(parents=True)
    return Folder("shop", root)


@pytest.mark.parametrize("deep", ["memory", "memory/x", "memory/x/y/z"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
async def test_a_limit_that_is_reached_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: str, code: int
) -> None:
    """The folders above it are watched, it is not, and watchdog says nothing: nobody may rely on events then."""
    from watchdog.observers.inotify_c import InotifyFD

    whole = InotifyFD.add_callback

    def limited(self: InotifyFD, path: bytes, *rest: Any) -> Any:
        if path == bytes(tmp_path / deep):
            raise OSError(code, "no more of them")
        return whole(self, path, *rest)

    monkeypatch.setattr(InotifyFD, "add_callback", limited)
    watcher = Watcher(folder(tmp_path), debounce_s=0.01)
    await asyncio.to_thread(watcher.start)
    try:
        assert watcher.problem == "no more of them"
        async with asyncio.timeout(DEADLINE_S):
            assert await watcher.changes() is None
    finally:
        await asyncio.to_thread(watcher.stop)


async def test_a_folder_that_is_gone_by_now_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from watchdog.observers.inotify_c import InotifyFD

    whole = InotifyFD.add_callback

    def gone(self: InotifyFD, path: bytes, *rest: Any) -> Any:
        if path.endswith(b"/z"):
            raise OSError(errno.ENOENT, "no such file")
        return whole(self, path, *rest)

    monkeypatch.setattr(InotifyFD, "add_callback", gone)
    watcher = Watcher(folder(tmp_path), debounce_s=0.01)
    await asyncio.to_thread(watcher.start)
    try:
        assert watcher.has_events
        (tmp_path / "memory/a.md").write_text("- a\n")
        async with asyncio.timeout(DEADLINE_S):
            assert await watcher.changes() == {"memory/a.md"}
    finally:
        await asyncio.to_thread(watcher.stop)


def watching_descriptors() -> set[str]:
    """Those of this process that inotify has given it."""
    names = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            names[entry.name] = str(entry.readlink())
    return {name for name, target in names.items() if "inotify" in target}


async def test_threads_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no events; and nothing stays open for it."""
    import threading

    def refused(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watcher = Watcher(folder(tmp_path), debounce_s=0.01)
    before = watching_descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        watcher.start()
        watcher.stop()
    assert watcher.problem == "can't start new thread"
    assert not watching_descriptors() - before  # a watcher of a test before may close its own meanwhile


async def test_events_that_the_kernel_dropped_are_made_up_for(tmp_path: Path) -> None:
    from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, Mask

    watcher = Watcher(folder(tmp_path), debounce_s=0.01)
    await asyncio.to_thread(watcher.start)
    try:
        instance: Any = watcher._observer
        overflow = InotifyEvent(-1, Mask(InotifyConstants.IN_Q_OVERFLOW), 0, b"")
        await asyncio.to_thread(instance._instance.handle_event, overflow)
        async with asyncio.timeout(DEADLINE_S):
            assert await watcher.changes() is None
        assert watcher.has_events
    finally:
        await asyncio.to_thread(watcher.stop)
