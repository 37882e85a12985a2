"""What each import has stored is remembered on this device: bounded, whole or left out, and of the space that it was made into."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_transfer.local.import_log import KEPT, ImportLog, newest


def test_the_newest_of_a_space_is_found_with_all_its_notes(tmp_path: Path) -> None:
    assert newest(tmp_path, "home") is None
    for number, space in enumerate(("home", "home", "other")):
        log = ImportLog(tmp_path, space, [f"NOTES-{number}.md"])
        log.add("shop", [])  # nothing new: nothing to undo
        log.add("shop", [f"mem_{number}a", f"mem_{number}b"])
        log.add("global", [f"mem_{number}c"])
    ImportLog(tmp_path, "home", ["nothing.md"]).add("shop", [])
    last = newest(tmp_path, "home")
    assert last is not None
    assert (last.sources, last.count, last.undone) == (["NOTES-1.md"], 3, "")
    assert last.ids == {"shop": ["mem_1a", "mem_1b"], "global": ["mem_1c"]}
    assert last.file.stat().st_mode & 0o077 == 0
    last.record_undo()
    again = newest(tmp_path, "home")
    assert again is not None
    assert again.undone


def test_few_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        ImportLog(tmp_path, "home", [str(number)]).add("shop", ["mem_a"])
    assert len(list((tmp_path / "imports").iterdir())) == KEPT
    last = newest(tmp_path, "home")
    assert last is not None
    assert last.sources == [str(KEPT + 2)]


@pytest.mark.parametrize("tail", [b'{"project": "shop", "ids": ["mem_', b"\xff\xfe", b"[]", b'{"ids": 7}', b"null"])
def test_a_line_that_a_crash_has_cut_short_is_left_out(tmp_path: Path, tail: bytes) -> None:
    ImportLog(tmp_path, "home", ["NOTES.md"]).add("shop", ["mem_a"])
    (file,) = (tmp_path / "imports").iterdir()
    file.write_bytes(file.read_bytes() + tail)
    last = newest(tmp_path, "home")
    assert last is not None
    assert last.ids == {"shop": ["mem_a"]}


def test_no_import_ends_because_it_cannot_be_remembered(tmp_path: Path) -> None:
    (tmp_path / "imports").write_text("a file where the folder should be")
    ImportLog(tmp_path, "home", ["NOTES.md"]).add("shop", ["mem_a"])
    assert newest(tmp_path, "home") is None
