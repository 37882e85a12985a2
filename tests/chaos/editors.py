"""How programs save a person's text, and what else people do with files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.chaos.book import Book

HOW: Final = ("in place", "by rename", "aside", "slowly", "same time")
"""Emptied and written anew; by a new file in its place; after the old one was set aside, as vim does; in parts; with the time it had."""
_TRIES = 20
_PARTS = 5
_PART_S = 0.03


def text_of(file: Path) -> str:
    """What a file holds; "" where there is none."""
    try:
        return file.read_bytes().decode()
    except OSError:  # none, or a folder of that name
        return ""


def save(file: Path, change: Callable[[str], str], how: str, book: Book) -> None:
    """Have the file hold what `change` makes of its text. An editor that finds that the file has changed meanwhile takes that up."""
    for _ in range(_TRIES):
        was, before = _looks(file), text_of(file)
        after = change(before)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
        if _looks(file) != was:
            continue
        try:
            if _save(file, after.encode(), how, was):
                book.saved(before, after)
                return
        except OSError:
            return  # a folder has its name just now


def _save(file: Path, data: bytes, how: str, was: tuple[int, int, int] | None) -> bool:
    match how:
        case "by rename":
            part = file.with_name(f".{file.name}.swp")
            part.write_bytes(data)
            if _looks(file) != was:
                return False
            part.replace(file)
        case "aside" if was:
            backup = file.with_name(f"{file.name}~")
            file.rename(backup)
            file.write_bytes(data)
            backup.unlink()
        case "slowly":
            step = max(1, len(data) // _PARTS)
            with file.open("wb", buffering=0) as written:
                for start in range(0, len(data), step):
                    written.write(data[start : start + step])
                    time.sleep(_PART_S)
        case _:
            file.write_bytes(data)
            if how == "same time" and was:
                os.utime(file, ns=(was[2], was[2]))
    return True


def _looks(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def delete(file: Path, book: Book) -> None:
    """Throw a file away."""
    before = text_of(file)
    with suppress(OSError):
        file.unlink()
        book.thrown_away(before)


def rename(file: Path, target: Path, book: Book) -> None:
    """Give a file, or a folder, another name; a file that has it goes."""
    if not file.exists() or file == target or target.is_dir() or file in target.parents:
        return
    if file.is_dir() and target.exists():
        return
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        gone = "" if target.exists() and target.samefile(file) else text_of(target)
        file.rename(target)
        book.thrown_away(gone)


def swap(file: Path, kind: int, book: Book) -> None:
    """Something else has a file's name for a moment: a folder, a link, nothing. Then there is nothing, or again what was."""
    before = text_of(file)
    if not file.is_file():
        return
    with suppress(OSError):
        file.unlink()
        match kind % 3:
            case 0:
                book.thrown_away(before)
                file.mkdir()
                (file / "in.md").write_text("in a folder of that name\n")
                time.sleep(0.2)
                shutil.rmtree(file)
            case 1:
                book.thrown_away(before)
                file.symlink_to("/etc/hostname")
                time.sleep(0.2)
                file.unlink()
            case _:  # taken out of the bin: it is the same file for whoever did it
                time.sleep(0.05 * kind)
                try:
                    with file.open("xb") as again:
                        again.write(before.encode())
                except FileExistsError:
                    book.thrown_away(before)  # another machine's has come in its place
