"""Files of the project as they are read for notes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.freshness.note_ties import ProjectTies, TieState
from confide_proxy.freshness.project_files import MAX_BYTES, SETTLED_NS, FileStamp, OpenedFile, UncheckedError


def test_a_look_right_after_a_change_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk whose times are as coarse as can be, an edit of the same size leaves every time as it was."""
    coarse = FileStamp(1, 6, time.time_ns(), time.time_ns())
    assert not coarse.is_settled
    assert not coarse._replace(mtime_ns=0).is_settled
    assert FileStamp(1, 6, 0, time.time_ns() - 2 * SETTLED_NS).is_settled

    class CoarseFile(OpenedFile):
        def __init__(self, root: Path, path: str) -> None:
            super().__init__(root, path)
            self.stamp = coarse

    monkeypatch.setattr("confide_proxy.freshness.note_ties.OpenedFile", CoarseFile)
    keys = SpaceKeys.generate()
    ties = ProjectTies(tmp_path, lambda: keys)
    (tmp_path / "a.py").write_text("x = 1\n")
    seen = ties.seen_for_parts(["a.py"])
    for text, state in (("x = 1\n", TieState.FRESH), ("x = 2\n", TieState.CHANGED), ("x = 1\n", TieState.FRESH)):
        (tmp_path / "a.py").write_text(text)
        verdict = ties.verdict(seen, until=time.monotonic() + 60)
        assert verdict is not None
        assert verdict.state is state


def test_what_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * MAX_BYTES)
    with OpenedFile(tmp_path, "a.txt") as file:
        assert len(file.read()) == MAX_BYTES
    with OpenedFile(tmp_path, "a.txt") as file, (tmp_path / "a.txt").open("ab") as growing:
        growing.write(b"x")
        growing.flush()
        with pytest.raises(UncheckedError, match="larger"):
            file.read()
    for path in ("none.txt", "a.txt/below"):
        with pytest.raises(FileNotFoundError):
            OpenedFile(tmp_path, path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a.txt")
    for path in ("folder", "link"):
        with pytest.raises(UncheckedError):
            OpenedFile(tmp_path, path)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for path in ("none.txt", "folder", "link", "a.txt"):
        with pytest.raises((UncheckedError, FileNotFoundError)):
            OpenedFile(tmp_path, path)
    assert (len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0) == before
