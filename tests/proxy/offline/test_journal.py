"""What waits on a machine for the daemon: kept before it is acknowledged, in order, sealed, and lost by no crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.kills.journal_writer import CALLS, call

from confide_crypto.errors import KeyFileError
from confide_proxy.errors import JournalError, StateError
from confide_proxy.offline import journal as journals
from confide_proxy.offline.journal import Journal
from confide_proxy.offline.operations import is_empty

WRITER = Path(__file__).parents[2] / "support" / "kills" / "journal_writer.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def said(journal: Journal) -> list[str]:
    """The contents that wait, in order, as another process would find them."""
    return [entry.arguments["content"] for entry in Journal(journal.folder).waiting(frozenset("p"))]


def filled(folder: Path, count: int = 3) -> Journal:
    journal = Journal(folder)
    for number in range(count):
        journal.append(call(number))
    return journal


@pytest.mark.parametrize("is_done", [False, True])
def test_a_session_that_looked_before_the_queue_was_sent_sees_what_waits_since(folder: Path, is_done: bool) -> None:
    """Another session sends all and removes the file; the next one may get its number (ext4 gives it at once). Taken for the old file,
    what waits in it was passed over, and removed with it as if nothing did."""
    looking, sending = Journal(folder), Journal(folder)
    first, *others = [call(number) for number in range(4)]
    first = replace(first, arguments={"content": "- said at length " * 9})
    sending.append(first)
    if not is_done:
        assert looking.counts().queued == 1
    sending.remove_applied(first.id)
    if is_done:
        assert looking.counts().queued == 0
    os.link(folder / "queue", folder / "same")
    assert sending.first() is None
    os.truncate(folder / "same", 0)
    (folder / "same").rename(folder / "queue")  # so that the new file has the number, on every file system
    for entry in others:
        sending.append(entry)
    sent = []
    while entry := looking.first():
        sent.append(entry)
        looking.remove_applied(entry.id)
    assert sent == others
    assert is_empty(folder)


def test_calls_come_out_as_they_went_in(folder: Path) -> None:
    """Each whole and in order, until the daemon has it; then nothing is left on the disk."""
    assert is_empty(folder)
    assert Journal(folder).first() is None
    entry = replace(call(0), arguments={"content": "- ein „Wort“\n\n```\n\ud800\0```", "tags": [1, 2.5, None, True]})
    journal = Journal(folder)
    assert journal.append(entry) == 1
    other = call(1)
    assert journal.append(other) == 2
    assert Journal(folder).first() == entry
    assert journal.counts().queued == 2
    assert journal.counts().since == entry.at
    journal.remove_applied(entry.id)
    assert Journal(folder).first() == other
    journal.remove_applied(other.id)
    assert journal.first() is None
    assert is_empty(folder)
    assert journal.counts() == journals.JournalCounts()


def test_a_copied_journal_tells_nothing(folder: Path) -> None:
    """No word of a call is in the file, and without the key beside it nobody opens it; both are for this user alone."""
    journal = Journal(folder)
    journal.append(replace(call(0), arguments={"content": "canary-4711"}, path="memory/canary.md", project="canary"))
    data = (folder / "queue").read_bytes()
    assert b"canary" not in data
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    assert folder.stat().st_mode & 0o077 == 0
    (folder / "key").write_text("00" * 32)
    stranger = Journal(folder)
    assert stranger.first() is None
    assert stranger.counts().damaged == 1


def test_a_key_that_others_can_read_is_not_used(folder: Path) -> None:
    filled(folder, 1)
    (folder / "key").chmod(0o644)
    with pytest.raises(KeyFileError):
        Journal(folder).first()
    (folder / "key").chmod(0o600)
    (folder / "key").write_text("not a key")
    with pytest.raises(JournalError, match="damaged"):
        Journal(folder).first()


def test_cut_at_every_byte_of_the_last_record(folder: Path) -> None:
    """A power cut in the middle of a record: nothing before it is lost, it is reported, and the next record is whole."""
    journal = filled(folder, 2)
    whole = (folder / "queue").read_bytes()
    journal.append(call(2))
    longer = (folder / "queue").read_bytes()
    for length in range(len(whole), len(longer)):
        (folder / "queue").write_bytes(longer[:length])
        fresh = Journal(folder)
        kept = said(fresh)
        assert kept[:2] == ["- 0", "- 1"]
        assert kept[2:] in ([], ["- 2"] if length == len(longer) - 1 else [])
        assert fresh.counts().damaged == (0 if length in (len(whole), len(longer) - 1) else 1)
        fresh.append(call(9))
        assert said(fresh) == [*kept, "- 9"]


@pytest.mark.parametrize("damage", [b"\0" * 300, b"garbage\n", b"\xff\xfe\n\n\n"])
def test_damage_in_the_middle_costs_no_other_record(folder: Path, damage: bytes) -> None:
    """What cannot be read is counted and set aside, not thrown away, and does not keep the queue from becoming empty."""
    journal = filled(folder, 3)
    first, second, third = (folder / "queue").read_bytes().splitlines(keepends=True)
    other = b"y" if second[40:41] == b"x" else b"x"
    (folder / "queue").write_bytes(first + damage + b"\n" + second[:40] + other + second[41:] + third)
    fresh = Journal(folder)
    assert said(fresh) == ["- 0", "- 2"]
    assert fresh.counts().damaged == 2
    while entry := fresh.first():
        fresh.remove_applied(entry.id)
    assert is_empty(folder)
    assert Journal(folder).counts().damaged == 2
    assert second[41:].strip() in fresh.damaged_file.read_bytes()
    assert journal.drop_damaged() == 2
    assert Journal(folder).counts() == journals.JournalCounts()


def test_what_is_refused_is_kept_until_a_person_decides(folder: Path) -> None:
    journal = filled(folder, 3)
    entry = journal.first()
    assert entry is not None
    journal.refuse(entry, "denied", "this machine may not write there")
    assert said(journal) == ["- 1", "- 2"]
    assert Journal(folder).counts().dead == 1
    kept = Journal(folder).get(entry.id[:8])
    assert kept is not None
    assert (kept.code, kept.why, kept.arguments) == ("denied", "this machine may not write there", {"content": "- 0"})
    assert [head.code for head in journal.heads()] == ["", "", "denied"]
    assert journal.retry(entry.id) is not None
    assert said(journal) == ["- 1", "- 2", "- 0"]
    assert journal.counts().dead == 0
    assert journal.retry(entry.id) is None
    assert journal.drop(entry.id)
    assert not journal.drop(entry.id)
    assert said(journal) == ["- 1", "- 2"]


def test_a_full_journal_says_so_and_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MAX_ENTRIES", 3)
    journal = filled(folder, 3)
    with pytest.raises(JournalError, match="full"):
        journal.append(call(3))
    assert said(journal) == ["- 0", "- 1", "- 2"]
    entry = journal.first()
    assert entry is not None
    journal.remove_applied(entry.id)
    journal.append(call(3))
    monkeypatch.setattr(journals, "MAX_BYTES", 10)
    with pytest.raises(JournalError, match="full"):
        journal.append(call(4))
    assert said(journal) == ["- 1", "- 2", "- 3"]


def test_long_use_does_not_grow_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call always waits, so the file is never empty; what was taken out goes all the same, once room is needed."""
    monkeypatch.setattr(journals, "MAX_BYTES", 2_000_000)
    journal = filled(folder, 1)
    for number in range(40):
        journal.append(replace(call(number), arguments={"content": "x" * 100_000}))
        entry = journal.first()
        assert entry is not None
        journal.remove_applied(entry.id)
    assert (folder / "queue").stat().st_size < 3_000_000
    assert journal.counts().queued == 1


def test_a_full_disk_is_an_error_and_leaves_no_half_record(folder: Path) -> None:
    """The file size limit of the process stands for the disk; what was kept before is still there, and the next call is."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tests.support.kills.journal_writer import call\n"
        "from confide_proxy.offline.journal import Journal\n"
        "from confide_proxy.errors import StateError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "journal.append(call(0))\n"
        "size = (journal.folder / 'queue').stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))\n"
        "try: journal.append(call(1))\n"
        "except StateError as error: assert 'full' in error.hint; print('refused')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "journal.append(call(2))\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")
    journal = Journal(folder)
    assert said(journal) == ["- 0", "- 2"]
    assert journal.counts().damaged == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_error(folder: Path) -> None:
    journal = filled(folder, 1)
    (folder / "queue").chmod(0o400)
    with pytest.raises(StateError):
        journal.append(call(1))


def test_several_sessions_share_it(folder: Path) -> None:
    """Each record of eight writers at once is there once, and each writer's own are in order."""
    threads = [threading.Thread(target=filled, args=(folder, 10)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = said(Journal(folder))
    assert len(found) == 80
    assert all(found.count(f"- {number}") == 8 for number in range(10))


class Writer:
    """Processes that keep and send, one after the other: each is a fork, for an interpreter that starts costs more than all its steps."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, folder: Path, what: str, step: int) -> tuple[list[str], bool]:
        """One that is killed before its `step`-th system call; what it said, and whether it came to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {step} {folder}\n")
        self._process.stdin.flush()
        lines = []
        while not (line := self._process.stdout.readline()).startswith("over "):
            assert line, "the writer has ended"
            lines.append(line.rstrip("\n"))
        assert line.split()[1] in ("0", "-9"), "what it said is on stderr"
        return lines, "finished" in lines


@pytest.fixture
def writer() -> Iterator[Writer]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(WRITER)], stdin=pipe, stdout=pipe, text=True) as process:
        yield Writer(process)
        process.communicate(timeout=DEADLINE_S)


def test_killed_at_every_step_of_keeping_and_of_sending(tmp_path: Path, writer: Writer) -> None:
    """kill -9 before each write, fsync, rename and unlink: what was acknowledged is there, in order, and nothing is made twice."""
    step, is_over = 0, False
    while not is_over:
        folder = tmp_path / f"append{step}" / "journal"
        lines, is_over = writer.run(folder, "append", step)
        kept = [int(line.split()[2]) for line in lines if line.startswith("kept")]
        found = said(Journal(folder)) if folder.exists() else []
        assert found[: len(kept)] == [f"- {number}" for number in kept], step
        assert len(found) <= len(kept) + 1, "one more at most, that was on its way"
        assert not folder.exists() or Journal(folder).append(call(7)), "the next process goes on"
        step += 1
    assert step > CALLS
    step, is_over = 0, False
    while not is_over:
        folder = tmp_path / f"replay{step}" / "journal"
        journal = filled(folder, CALLS)
        order = [entry.id for entry in journal.heads()]
        _, is_over = writer.run(folder, "replay", step)
        writer.run(folder, "replay", 10**9)
        made = (folder.parent / "made").read_text().split()
        assert made == [name for number, name in enumerate(order) if number != 3], step
        assert is_empty(folder)
        assert [entry.id for entry in Journal(folder).heads()] == [order[3]], "the refused one is kept, once"
        step += 1
    assert step > CALLS


def test_an_entry_shows_no_content_where_it_is_printed() -> None:
    """An entry in a traceback or a log must not quote what was said."""
    assert "- 1" not in repr(call(1))
    assert json.dumps(call(1).arguments) not in str(call(1))
