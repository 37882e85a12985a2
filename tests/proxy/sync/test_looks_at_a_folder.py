"""What the daemon lacks of a folder is found in one walk, however many files there are."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.closed_folders import closed

from confide_memory.documents import text_hash
from confide_proxy.offline.behind import behind
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger
from confide_proxy.sync.replication.replica import Replica
from confide_proxy.sync.walk import FILE

MANY = 10_000
TEXT = "We chose postgres.\n"


class NoLink:
    """A link that no one asks: the files are compared with the ledger alone."""

    async def request(self, op: str, body: Any, **_options: Any) -> Any:
        raise AssertionError(op)

    upload = request


class Calls:
    """The calls of the system that this process makes, by their names, and of what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[str] = Counter()
        self.of: Counter[str] = Counter()
        for name in ("stat", "lstat", "open", "scandir"):
            self._count(monkeypatch, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        call = getattr(os, name)

        def counted(path: Any, *rest: Any, **named: Any) -> Any:
            self.made[name] += 1
            self.of[Path(os.fsdecode(path)).name] += 1
            return call(path, *rest, **named)

        monkeypatch.setattr(os, name, counted)


def confirm(ledger: SyncLedger, folder: Folder) -> None:
    """Note all files of the folder as confirmed, as they are."""
    for file in folder.walk():
        ledger.set(file.path, Confirmed(text_hash(TEXT), 1, file.size, file.mtime_ns))


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    root = tmp_path / "shop"
    (root / "memory").mkdir(parents=True)
    return Replica(Folder("shop", root), SyncLedger(tmp_path / "ledgers", "s", root), NoLink())


def write(replica: Replica, path: str, text: str = TEXT) -> Path:
    file = replica.folder.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_one_walk_for_ten_thousand_files(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder is listed once; what the project excludes and the ledger are read a few times in
    all, not once a file.
    """
    folders = 50
    for number in range(MANY):
        write(replica, f"memory/{number % folders}/{number}.md")
    confirm(replica.ledger, replica.folder)
    calls = Calls(monkeypatch)
    assert behind([replica]) == ((), {})
    # memory/, the root once for each spelling of MEMORY.md, and once for names that look like those of memory
    assert calls.made["scandir"] == folders + 4
    assert calls.of[FILE] <= 2
    assert calls.made["stat"] + calls.made["lstat"] + calls.made["open"] <= 4 * folders

    # And it is no less sure: one of them was saved a moment ago.
    write(replica, "memory/7/7.md", "We chose sqlite.\n")
    write(replica, "memory/new.md")
    assert sorted(behind([replica]).pending) == [("shop", "memory/7/7.md"), ("shop", "memory/new.md")]


def test_a_file_that_is_known_and_one_of_its_name_in_another_spelling(replica: Replica) -> None:
    """The decomposed one is another file, and is told of, although the composed one is known."""
    write(replica, "memory/\u00fc.md")
    write(replica, "memory/a.md")
    confirm(replica.ledger, replica.folder)
    assert behind([replica]) == ((), {})
    write(replica, "memory/u\u0308.md")
    found = behind([replica])
    assert found.pending == ()
    assert [path for _, path in found.unsent] == ["memory/u\u0308.md"]


@pytest.mark.parametrize("text", ['exclude = ["memory/b*"]\n', "not = [toml"])
def test_what_the_project_excludes_from_now_on_is_not_waited_for(replica: Replica, text: str) -> None:
    write(replica, "memory/a.md")
    confirm(replica.ledger, replica.folder)
    write(replica, "memory/b.md")
    assert behind([replica]).pending == (("shop", "memory/b.md"),)
    write(replica, FILE, text)
    assert behind([replica]).pending == ()


def test_a_project_file_that_excludes_all_by_mistake_is_told_of(replica: Replica) -> None:
    """Otherwise a search would find nothing in the files here, as if there were none."""
    write(replica, "memory/a.md")
    assert behind([replica]).unsent == {}
    write(replica, FILE, "not = [toml")
    [(name, why)] = behind([replica]).unsent.items()
    assert name == ("shop", FILE)
    assert why.startswith("is not TOML")
    write(replica, FILE, "odd = 1")
    assert behind([replica]).unsent == {}


def test_memory_that_cannot_be_read_is_told_of(replica: Replica) -> None:
    write(replica, "memory/sub/a.md")
    confirm(replica.ledger, replica.folder)
    with closed(replica.folder.root / "memory" / "sub"):
        assert behind([replica]) == ((), {("shop", "memory/sub"): "cannot be listed: Permission denied"})


def test_a_known_file_that_is_a_link_now_is_told_of(replica: Replica, tmp_path: Path) -> None:
    file = write(replica, "memory/a.md")
    confirm(replica.ledger, replica.folder)
    (tmp_path / "other.md").write_text(TEXT)
    file.unlink()
    file.symlink_to(tmp_path / "other.md")
    assert behind([replica]) == ((), {("shop", "memory/a.md"): "is a symlink"})


def test_a_file_whose_answer_did_not_come_is_waited_for(replica: Replica) -> None:
    """Also if it looks as it was confirmed."""
    write(replica, "memory/a.md")
    confirm(replica.ledger, replica.folder)
    replica.ledger.note_sent("memory/a.md", text_hash("other"))
    assert behind([replica]).pending == (("shop", "memory/a.md"),)
