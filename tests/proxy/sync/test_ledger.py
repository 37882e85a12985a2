"""What the daemon has confirmed, remembered over restarts, shared by processes, and lost without harm."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from confide_memory.documents import MAX_SENT
from confide_proxy.sync.ledger import Confirmed, SyncLedger

STATE = Confirmed("h", 3, 10, 99)
OTHER = Confirmed("i", 4, 11, 100)


def test_remembers_by_space_and_folder(tmp_path: Path) -> None:
    """Another space or another folder knows nothing of it."""
    SyncLedger(tmp_path, "space", tmp_path).set("memory/a.md", STATE)
    again = SyncLedger(tmp_path, "space", tmp_path)
    assert again.all() == {"memory/a.md": STATE}
    assert again.get("memory/a.md") == STATE
    assert SyncLedger(tmp_path, "other", tmp_path).all() == {}
    assert SyncLedger(tmp_path, "space", tmp_path / "x").all() == {}
    again.forget("memory/a.md")
    assert again.get("memory/a.md") is None


def test_two_sessions_see_each_others_lines(tmp_path: Path) -> None:
    """A process learns what another has confirmed since, also when a third has compacted the file."""
    first, second = SyncLedger(tmp_path, "s", tmp_path), SyncLedger(tmp_path, "s", tmp_path)
    first.set("memory/a.md", STATE)
    assert second.get("memory/a.md") == STATE
    second.set("memory/a.md", OTHER)
    assert first.get("memory/a.md") == OTHER
    for number in range(1100):
        first.set("memory/b.md", Confirmed("h", number, 1, 1))
    size = next(tmp_path.glob("*.jsonl")).stat().st_size
    assert len(SyncLedger(tmp_path, "s", tmp_path).all()) == 2
    assert next(tmp_path.glob("*.jsonl")).stat().st_size < size / 100
    second.set("memory/c.md", STATE)
    assert set(first.all()) == {"memory/a.md", "memory/b.md", "memory/c.md"}


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe garbage\n", b'["memory/x.md", 1]\n', b'{"a":1}\n', b"[[[[\n", b'["memory/cut.md","h",1']
)
def test_damage_costs_a_comparison_at_most(tmp_path: Path, damage: bytes) -> None:
    """A line that cannot be read is passed over; the others count."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    ledger.set("memory/a.md", STATE)
    with next(tmp_path.glob("*.jsonl")).open("ab") as file:
        file.write(damage)
    assert SyncLedger(tmp_path, "s", tmp_path).all() == {"memory/a.md": STATE}
    # What is confirmed behind it is not lost with it.
    SyncLedger(tmp_path, "s", tmp_path).set("memory/b.md", OTHER)
    assert SyncLedger(tmp_path, "s", tmp_path).all() == {"memory/a.md": STATE, "memory/b.md": OTHER}


def test_threads_of_one_process_miss_no_line(tmp_path: Path) -> None:
    """Files are read and confirmed in several threads at once; a line that one has read must not move another one past the next."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    paths = [f"memory/{number}.md" for number in range(2000)]

    def confirm(path: str) -> None:
        ledger.set(path, Confirmed("h" * 64, 1, 1, 1))
        assert ledger.get(path)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(confirm, paths))
    finally:
        sys.setswitchinterval(interval)
    assert ledger.all().keys() == set(paths)


def test_how_a_file_was_sealed_is_remembered_and_older_lines_are_read(tmp_path: Path) -> None:
    """A line of before sealing says nothing of it, so the file is read again once."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    ledger.set("memory/a.md", STATE)
    sealed = Confirmed("h", 3, 10, 99, "k1", "own")
    ledger.set("memory/b.md", sealed)
    again = SyncLedger(tmp_path, "s", tmp_path)
    assert again.all() == {"memory/a.md": STATE, "memory/b.md": sealed}
    assert STATE.looks_like(10, 99, "")
    assert not STATE.looks_like(10, 99, "k1")
    assert sealed.looks_like(10, 99, "k1")
    assert [sealed.matches(digest) for digest in ("h", "own", "", "x")] == [True, True, False, False]
    assert not STATE.matches("")


def test_what_was_sent_without_an_answer_outlives_a_process(tmp_path: Path) -> None:
    """Oldest first, until the file is confirmed or gone; also where all was written anew."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    for path in ("memory/a.md", "memory/b.md", "memory/c.md"):
        for digest in ("one", "two", "one"):
            ledger.note_sent(path, digest)
    ledger.set("memory/a.md", STATE)
    ledger.forget("memory/b.md")
    for number in range(1100):
        ledger.set("memory/d.md", Confirmed("h", number, 1, 1))
    for again in (SyncLedger(tmp_path, "s", tmp_path), SyncLedger(tmp_path, "s", tmp_path)):
        assert again.unanswered_files() == {"memory/c.md"}
        assert again.sent_hashes("memory/c.md") == ("two", "one")
        assert set(again.all()) == {"memory/a.md", "memory/d.md"}
    for number in range(100):
        ledger.note_sent("memory/c.md", str(number))
    assert ledger.sent_hashes("memory/c.md") == tuple(map(str, range(100 - MAX_SENT, 100)))


def test_a_new_file_with_the_number_of_the_old_one_is_read_from_its_beginning(tmp_path: Path) -> None:
    """A disk gives the number of a file that is gone out again, as to the second compaction after it."""
    ledger = SyncLedger(tmp_path, "s", tmp_path)
    ledger.set("memory/a.md", STATE)
    ledger.note_sent("memory/b.md", "0" * 64)
    assert ledger.unanswered_files()
    (file,) = tmp_path.glob("*.jsonl")
    other = SyncLedger(tmp_path / "other", "s", tmp_path)
    for name in "cdefgh":
        other.set(f"memory/{name}.md", OTHER)
    (made,) = (tmp_path / "other").glob("*.jsonl")
    file.write_bytes(made.read_bytes())  # in place, as no program does: the number stays for certain
    assert ledger.all() == other.all()
    assert not ledger.unanswered_files()
    file.write_bytes(made.read_bytes()[: made.read_bytes().index(b"\n") + 1])
    assert set(ledger.all()) == {"memory/c.md"}
