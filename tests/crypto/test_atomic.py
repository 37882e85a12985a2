"""A file that is replaced is the old one or the new one, and nothing is left beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from confide_crypto import atomic


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """With the mode that was asked for, and not through a link at its place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    file = tmp_path / "file"
    file.symlink_to(elsewhere)
    atomic.write(file, b"new")
    assert not file.is_symlink()
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert elsewhere.read_bytes() == b"mine"


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_breaks_off_leaves_the_old_one(tmp_path: Path, is_kept: bool) -> None:
    """And nothing beside it."""
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def break_off() -> None:
        with atomic.replacing(file, is_kept=is_kept) as opened:
            opened.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        break_off()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"old"}


def test_a_new_one_takes_no_place_of_another(tmp_path: Path) -> None:
    """Whoever made it meanwhile keeps it."""
    file = tmp_path / "file"

    def come_late() -> None:
        with atomic.replacing(file, is_new=True) as opened:
            opened.write(b"ours")
            file.write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        come_late()
    assert file.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_alone_is_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    atomic.write("file", b"new", is_kept=False)
    atomic.write("file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"newer"
