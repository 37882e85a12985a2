"""Private files and folders when somebody else has been there, or the disk will not have it (PROTOCOL.md 2.5)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from confide_crypto.errors import KeyFileError
from confide_crypto.keys import private_files
from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import (
    check_private_dir,
    check_private_file,
    read_private_file,
    remove_private_file,
    rename_private_file,
    write_private_file,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "identity.key"


def test_a_file_that_is_exchanged_for_a_link_between_look_and_open_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look is at the open file itself, and a link is not followed."""
    write_private_file(path, b"mine")
    theirs = path.with_name("theirs")
    write_private_file(theirs, b"theirs")

    def look_then_lose(checked: Path) -> None:
        check_private_file(checked)
        checked.unlink()
        checked.symlink_to(theirs)

    monkeypatch.setattr(private_files, "check_private_file", look_then_lose)
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_private_file(path)


def test_a_file_that_is_opened_up_between_look_and_open_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_private_file(path, b"mine")

    def look_then_loosen(checked: Path) -> None:
        check_private_file(checked)
        checked.chmod(0o644)

    monkeypatch.setattr(private_files, "check_private_file", look_then_loosen)
    with pytest.raises(KeyFileError, match="open to other users"):
        read_private_file(path)


def test_a_file_of_another_user_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever put it there knows what is in it, whatever its mode."""
    write_private_file(path, b"theirs")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    for look in (check_private_file, read_private_file):
        with pytest.raises(KeyFileError, match="belongs to another user"):
            look(path)
    with pytest.raises(KeyFileError, match="belongs to another user"):
        check_private_dir(path.parent)


def test_a_file_that_is_far_too_large_is_not_read_whole(path: Path) -> None:
    write_private_file(path, b"x" * 100)
    assert read_private_file(path, most_bytes=100) == b"x" * 100
    with pytest.raises(KeyFileError, match="far too large"):
        read_private_file(path, most_bytes=99)


def test_a_folder_is_looked_at_before_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: no such file"):
        check_private_dir(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyFileError, match="is not a folder") as caught:
        check_private_dir(tmp_path / "file")
    assert "mv " in (caught.value.hint or "")
    tmp_path.chmod(0o750)
    with pytest.raises(KeyFileError, match="open to other users"):
        check_private_dir(tmp_path)
    tmp_path.chmod(0o700)
    check_private_dir(tmp_path)


def test_renaming_replaces_and_says_what_cannot_be(path: Path) -> None:
    write_private_file(path, b"new")
    target = path.with_name("old.key")
    write_private_file(target, b"old")
    rename_private_file(path, target)
    assert read_private_file(target) == b"new"
    assert not path.exists()
    with pytest.raises(KeyFileError, match="cannot be renamed: no such file"):
        rename_private_file(path, target)
    assert read_private_file(target) == b"new"


def test_removing_twice_is_removing_once(path: Path) -> None:
    write_private_file(path, b"old")
    remove_private_file(path)
    assert not path.exists()
    remove_private_file(path)
    with pytest.raises(KeyFileError, match="cannot be deleted"):
        remove_private_file(path.parent)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_seed_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Identity(bytes(length))
