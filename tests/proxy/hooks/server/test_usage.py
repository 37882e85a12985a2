"""The counters of shown and used notes: what counts as a use, what a file holds, and that no session, kill or disk loses or doubles any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from confide_proxy.hooks.server import usage
from confide_proxy.hooks.server.usage import ShownNote, UsageFile, UsageState

NOTE = ShownNote("shop", "memory/notes/use-row-locks-4f2a9c1b.md", "mem_4f2a9")
LOG = ShownNote("shop", "memory/2026-11-20.md")
NOW = 1_700_000_000.0


def shown(state: UsageState, *notes: ShownNote, event: str = usage.PROMPT, times: int = 1, now: float = NOW) -> None:
    for _ in range(times):
        state.show(event, notes or (NOTE,), tokens=40, now=now)


def of(state: UsageState, note: ShownNote = NOTE) -> usage.NoteUsage:
    return state.notes[f"{note.project}\0{note.path}"]


@pytest.mark.parametrize(
    "text",
    [
        "As mem_4f2a9 says, I take row locks.",
        "see `memory/notes/use-row-locks-4f2a9c1b.md`.",
        "cat /home/ann/shop/memory/notes/use-row-locks-4f2a9c1b.md | head",
        "(use-row-locks-4f2a9c1b)",
    ],
)
def test_a_note_that_an_agent_names_is_used_once(text: str) -> None:
    """By id, path or file name; a second mention counts again only after a second showing."""
    state = UsageState()
    shown(state)
    assert state.mention("shop", text, NOW + 60)
    assert not state.mention("shop", text, NOW + 61)
    assert (of(state).used, of(state).showings, state.total(30, NOW)[usage.PROMPT].used) == (1, 1, 1)
    shown(state, now=NOW + 90)
    assert state.mention("shop", text, NOW + 91)
    assert of(state).used == 2


@pytest.mark.parametrize(
    "text",
    [
        "mem_4f2a9c is another one",
        "xmem_4f2a9",
        "use-row-locks",
        "memory/2026-11-20.mdx",
        "2026-11-20 was a Friday",
        "",
    ],
)
def test_a_part_of_a_name_is_no_use(text: str) -> None:
    state = UsageState()
    shown(state, NOTE, LOG)
    assert not state.mention("shop", text, NOW)
    # A path of another project may be the same; long after it was shown, a name has another reason.
    assert not state.mention("other", "memory/2026-11-20.md", NOW)
    assert not state.mention("shop", "mem_4f2a9", NOW + usage.OPEN_S)


def test_an_answer_after_the_end_of_its_session_is_counted(tmp_path: Path) -> None:
    """By the hook itself, which knows the session alone: what that one was shown, and nothing that another was."""
    file = UsageFile(tmp_path)
    for note, session in ((NOTE, "one"), (LOG, "other")):
        by = usage.session_of(session)
        file.add(
            lambda state, note=note, by=by: state.show(usage.PROMPT, [note], tokens=1, now=time.time(), session=by)
        )  # type: ignore[misc]
    file.flush()
    usage.mention(tmp_path, "one", f"see {NOTE.path} and {LOG.path}")
    state = UsageFile(tmp_path).refresh()
    assert (of(state).used, of(state, LOG).used) == (1, 0)


def test_reading_and_changing_are_uses_and_deleting_ends_the_counters() -> None:
    """An agent names a note by its id, by its path or by the path's end; what was never shown is only read."""
    state = UsageState()
    shown(state, NOTE, LOG)
    assert state.read("shop", ["mem_4f2a9"], NOW)
    assert state.use("shop", ["memory/2026-11-20.md:3-7"], NOW)
    assert state.read("shop", ["use-row-locks-4f2a9c1b.md"], NOW)
    assert (of(state).used, of(state).read, of(state, LOG).used) == (1, 2, 1)
    for name in ("memory/never.md", "", "mem_4f2a", "mem_row_1_9f2a9c1b", "4f2a9"):
        assert not state.read("shop", [name], NOW), name
    assert state.read("shop", ["mem_use-row-locks_1_4f2a9c1b"], NOW)
    assert state.use("shop", ["2026-11-20"], NOW)
    assert not state.read("other", ["memory/2026-11-20.md"], NOW)
    assert not state.forget("other", [LOG.path])
    assert not state.forget("shop", ["2026-11-20.md"])
    assert state.forget("shop", ["mem_4f2a9"])
    assert not state.forget("other", [])
    assert state.forget("shop", [])
    assert state.notes == {}


def test_a_failure_that_comes_again_takes_its_use_back() -> None:
    """A note for a failure counts as used until the same failure comes again; a mention after that counts."""
    state = UsageState()
    for _ in range(2):
        state.show(usage.FAILURE, [NOTE], tokens=40, now=NOW, is_covered=True)
    assert (of(state).used, of(state).unused) == (2, 0)
    assert state.again("shop", NOTE.path, NOW)
    note = of(state)
    assert (note.used, note.again, note.unused) == (1, 1, 1)
    assert state.total(30, NOW)[usage.FAILURE].used == 1
    assert state.mention("shop", "mem_4f2a9", NOW)
    assert (note.used, note.unused) == (2, 0)
    assert not state.again("shop", "memory/unknown.md", NOW)


def test_what_hooks_showed_often_and_nobody_used_sinks_and_one_use_brings_it_back() -> None:
    state = UsageState()
    shown(state, times=usage.SINKS_AFTER - 1)
    shown(state, event=usage.SEARCH, times=20)  # the agent's own question
    assert not of(state).is_sunk
    shown(state)
    assert of(state).is_sunk
    state.read("shop", [NOTE.id], NOW)
    assert not of(state).is_sunk
    shown(state, times=usage.SINKS_AFTER - 1)
    assert not of(state).is_sunk


def test_a_search_knows_a_note_by_its_id_alone() -> None:
    """Its counters become those of the note's path, and the other way round."""
    state = UsageState()
    by_id = ShownNote("shop", "", NOTE.id)
    for first, second in ((by_id, NOTE), (NOTE, by_id)):
        shown(state, first, event=usage.SEARCH)
        shown(state, second)
        assert list(state.notes) == [f"shop\0{NOTE.path}"]
    assert of(state).shown == {usage.SEARCH: 2, usage.PROMPT: 2}


def test_old_and_many_counters_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_NOTES", 3)
    state = UsageState()
    shown(state, now=NOW - usage.KEPT_DAYS * 86_400)
    for number in range(5):
        shown(state, ShownNote("shop", f"memory/{number}.md"), now=NOW + number)
    state.prune(NOW + 10)
    assert list(state.notes) == [f"shop\0memory/{number}.md" for number in (2, 3, 4)]
    assert len(state.days) == 1
    assert state.total(30, NOW)[usage.PROMPT].notes == 5


def test_a_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names notes have: the oldest go, so that it can be read again."""
    monkeypatch.setattr(usage.time, "time", lambda: NOW + 100)
    monkeypatch.setattr(usage, "MOST_BYTES", 8192)
    file = UsageFile(tmp_path)
    for number in range(50):
        note = ShownNote("shop", f"memory/{number:02}-{'x' * 2000}.md")
        file.add(lambda state, note=note, at=NOW + number: state.show(usage.PROMPT, [note], tokens=1, now=at))  # type: ignore[misc]
    file.flush()
    assert (tmp_path / "hooks" / usage.FILE).stat().st_size <= usage.MOST_BYTES
    kept = sorted(UsageFile(tmp_path).refresh().notes)
    assert kept
    assert kept[-1].startswith("shop\0memory/49")


def test_a_file_holds_no_words(tmp_path: Path) -> None:
    """Ids, paths, days and numbers; it is this user's alone."""
    file = UsageFile(tmp_path)
    file.add(lambda state: state.show(usage.PROMPT, [NOTE], tokens=40, now=NOW + 1))
    file.add(lambda state: state.mention("shop", "mem_4f2a9: the wombat sleeps", NOW + 2))
    file.flush()
    path = tmp_path / "hooks" / usage.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"wombat" not in path.read_bytes()
    assert UsageFile(tmp_path).refresh().encode() == file.state.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"[" * 100_000,
        b'{"notes": 7, "days": {"x": 7}}',
        b'{"notes": {"shop\\u0000a.md": {"project": "shop", "path": "a.md", "used": -1, "shown": {"prompt": "x", "y": 1}, "at": "z"}}}',
        b'{"notes": {"wrong key": {"project": "shop", "path": "a.md"}}, "days": {"2026-01-01": {"prompt": {"times": 1e999}}}}',
    ],
)
def test_a_damaged_file_is_started_over(tmp_path: Path, content: bytes) -> None:
    """Whatever is in it: what is new is counted, and nothing is raised."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / usage.FILE).write_bytes(content)
    file = UsageFile(tmp_path)
    file.refresh()
    file.add(lambda state: state.show(usage.PROMPT, [NOTE], tokens=40, now=NOW))
    file.flush()
    state = UsageFile(tmp_path).refresh()
    assert all(note.used >= 0 and note.at >= 0 for note in state.notes.values())
    json.loads((tmp_path / "hooks" / usage.FILE).read_bytes())


def test_sessions_that_count_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds to what the others wrote; one that finds the lock taken for long keeps its changes for the next time."""
    monkeypatch.setattr(usage.time, "time", lambda: NOW)
    monkeypatch.setattr(usage, "LOCK_S", 60.0)

    def session() -> None:
        file = UsageFile(tmp_path)
        for _ in range(20):
            file.add(lambda state: state.show(usage.PROMPT, [NOTE], tokens=1, now=NOW))
            file.flush()

    threads = [threading.Thread(target=session) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert of(UsageFile(tmp_path).refresh()).showings == 80

    from confide_proxy.locks import lock_file, try_lock

    monkeypatch.setattr(usage, "LOCK_S", 0.0)
    held = lock_file(tmp_path / "hooks" / f"{usage.FILE}.lock")
    assert try_lock(held)
    file = UsageFile(tmp_path)
    file.add(lambda state: state.show(usage.PROMPT, [NOTE], tokens=1, now=NOW))
    file.flush()
    os.close(held)
    file.flush()
    assert of(UsageFile(tmp_path).refresh()).showings == 81


def test_a_disk_that_refuses_keeps_changes_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage.time, "time", lambda: NOW)
    file = UsageFile(tmp_path)
    file.add(lambda state: state.show(usage.PROMPT, [NOTE], tokens=1, now=NOW))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(usage.atomic, "write", refuse)
        file.flush()
    assert file.refresh().notes == {}
    file.flush()
    assert of(file.state).showings == 1


def test_a_killed_session_leaves_whole_counters(tmp_path: Path) -> None:
    """At whichever moment: what is on the disk is what some flush wrote."""
    script = (
        "import sys; from confide_proxy.hooks.server import usage\n"
        "note = usage.ShownNote('shop', 'memory/a.md')\n"
        "file = usage.UsageFile(sys.argv[1])\n"
        "for n in range(10**6):\n"
        "    file.add(lambda s: s.show('prompt', [note], tokens=1, now=usage.time.time()))\n"
        "    file.flush()\n"
        "    n == 5 and print('running', flush=True)\n"
    )
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            running.stdout.readline()
            running.kill()
    state = UsageFile(tmp_path).refresh()
    (note,) = state.notes.values()
    assert note.showings >= 18
    assert sum(day[usage.PROMPT].notes for day in state.days.values()) == note.showings
