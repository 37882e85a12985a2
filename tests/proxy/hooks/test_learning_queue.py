"""Pointers: nothing while learning is off, whole lines whoever is killed, and no more than 10,000."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.hooks import learning_queue

POINTER: dict[str, Any] = {
    "session": "s1",
    "client": "claude-code",
    "transcript": "/home/u/.claude/projects/x/s1.jsonl",
    "offset": 7,
    "event": "Stop",
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder beside a configuration that asks for suggestions."""
    (tmp_path / "proxy.toml").write_text('[learn]\nmode = "suggest"\n')
    (tmp_path / "proxy").mkdir(mode=0o700)
    return tmp_path / "proxy"


def append(state: Path, **changed: Any) -> bool:
    return learning_queue.append(state, config=state.parent / "proxy.toml", **{**POINTER, **changed})


def lines(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (state / "learn" / "pointers.jsonl").read_bytes().splitlines()]


def test_a_pointer_is_one_line_without_text(state: Path) -> None:
    """What a hook adds is read back, and the file is for its owner alone."""
    assert append(state, more={"compact_summary": "x" * 20_000, "cwd": "/home/u/app"})
    found, _lines = learning_queue.read(state)
    assert [{key: one[key] for key in POINTER} for one in found] == [POINTER]
    assert len(found[0]["more"]["compact_summary"]) == learning_queue.MORE_CHARS
    assert (state / "learn" / "pointers.jsonl").stat().st_mode & 0o777 == 0o600
    assert (state / "learn").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "config",
    [None, "", '[learn]\nmode = "off"\n', "learn = true\n", '[learn\nmode = "auto"', '[learn]\nmode = "always"\n', "é"],
)
def test_off_writes_no_file(state: Path, config: str | None) -> None:
    """Without a configuration, with one that says off, and with one that nobody can read as a yes: no file, no folder."""
    file = state.parent / "proxy.toml"
    file.unlink() if config is None else file.write_bytes(config.encode("latin-1"))
    assert not append(state)
    assert list(state.iterdir()) == []


def test_what_others_can_write_switches_nothing_on(state: Path) -> None:
    """A configuration that every user of the machine can write is no yes of this one's."""
    (state.parent / "proxy.toml").chmod(0o666)
    assert not append(state)
    assert list(state.iterdir()) == []


def test_our_own_judges_leave_no_pointer(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that a judge has started is told so by its environment, and is not learned from."""
    monkeypatch.setenv("CONFIDE_LEARNING", "1")
    assert not append(state)
    assert list(state.iterdir()) == []


def test_a_machine_that_is_not_set_up_stays_so(tmp_path: Path) -> None:
    """Without a state folder none is made."""
    (tmp_path / "proxy.toml").write_text('[learn]\nmode = "auto"\n')
    assert not append(tmp_path / "proxy")
    assert [entry.name for entry in tmp_path.iterdir()] == ["proxy.toml"]


def test_many_at_once_lose_none(state: Path) -> None:
    """Threads append while a reader forgets: each pointer that was written is read once."""
    written: list[int] = []
    seen: list[int] = []

    def hooks(first: int) -> None:
        written.extend(offset for offset in range(first, first + 50) if append(state, offset=offset))

    threads = [threading.Thread(target=hooks, args=(first,)) for first in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or learning_queue.read(state)[0]:
        found, lines = learning_queue.read(state)
        learning_queue.forget(state, lines)
        seen += [one["offset"] for one in found]
    assert len(written) > 100
    assert sorted(seen) == sorted(written)


def test_the_reader_waits_longer_than_a_hook(state: Path) -> None:
    """Where hook after hook has the lock, a hook gives up and the learner does not."""
    append(state, offset=1)
    _, lines = learning_queue.read(state)
    held = os.open(state / "learn" / "pointers.jsonl", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert not append(state, offset=2)
    release = threading.Timer(2 * learning_queue._LOCK_S, os.close, (held,))
    release.start()
    learning_queue.forget(state, lines)
    release.join()
    assert learning_queue.read(state)[0] == []


def test_a_torn_line_costs_no_other(state: Path) -> None:
    """What somebody who was killed has left half written is passed over; the next pointer stands on a line of its own."""
    append(state, offset=1)
    with (state / "learn" / "pointers.jsonl").open("ab") as file:
        file.write(b'{"at": 17')
    append(state, offset=2)
    assert [one["offset"] for one in learning_queue.read(state)[0]] == [1, 2]


def test_a_full_disk_leaves_whole_lines(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only half a line fits, or none, it is told as not written, and those before it are whole."""
    append(state, offset=1)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    assert not append(state, offset=2)

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert not append(state, offset=3)
    monkeypatch.setattr(os, "write", write)
    assert append(state, offset=4)
    assert [one["offset"] for one in lines(state)] == [1, 4]


def test_a_full_disk_forgets_nothing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the shorter file does not fit, the longer one stays."""
    append(state)
    _found, lines_read = learning_queue.read(state)

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        learning_queue.forget(state, lines_read)
    assert len(lines(state)) == 1
    assert [entry.name for entry in (state / "learn").iterdir()] == ["pointers.jsonl"]


def test_it_stays_small(state: Path) -> None:
    """Of more than 10,000 the newest stay; what is older than 30 days is not read, and goes first."""
    append(state)
    line = (state / "learn" / "pointers.jsonl").read_bytes()
    old = json.dumps({**json.loads(line), "at": 1}).encode() + b"\n"
    (state / "learn" / "pointers.jsonl").write_bytes(old * 9_000 + line * 1_000)
    assert len(learning_queue.read(state)[0]) == 1_000
    assert append(state, offset=9)
    assert len(lines(state)) == 1_001
    (state / "learn" / "pointers.jsonl").write_bytes(line * 10_000)
    assert append(state, offset=10)
    assert len(lines(state)) == 9_001
    assert lines(state)[-1]["offset"] == 10


def test_a_stopped_writer_holds_up_no_hook(state: Path) -> None:
    """Who holds the lock for longer than a hook may wait is not waited for; killed, it holds nobody up."""
    append(state)
    script = (
        "import fcntl, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "time.sleep(600)\n"
    )
    file = str(state / "learn" / "pointers.jsonl")
    with subprocess.Popen([sys.executable, "-S", "-c", script, file], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        began = time.monotonic()
        assert not append(state)
        assert time.monotonic() - began < 60  # the lock is held for ten minutes
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert append(state)


def test_it_needs_the_standard_library_alone() -> None:
    """A hook runs at every turn: this module loads json and little else, and of ours what writes a file."""
    script = "import confide_proxy.hooks.learning_queue, sys; print(*sorted(sys.modules))"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    ours = [name for name in loaded if name.startswith("confide")]
    room = ["confide_proxy", "confide_proxy.hooks", "confide_proxy.hooks.learning_queue"]
    assert ours == ["confide_crypto", "confide_crypto.atomic", "confide_crypto.portable", *room]
    assert not {"pathlib", "typing", "asyncio", "tomllib", "subprocess", "logging", "dataclasses"} & set(loaded)
