"""Measures and deletes folders that a hostile process may have filled."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

MOST_ENTRIES: Final = 1_000_000
"""Most files and folders that are counted; more count as too many bytes, since counting them would
take longer than the interval between two checks.
"""
_BLOCK: Final = 512
_MIB: Final = 2**20


class Used(NamedTuple):
    """The disk usage of a folder. `is_hidden` is True if a part of it was unreadable, so that the
    usage is higher.
    """

    size_bytes: int
    is_hidden: bool


def measure(folder: Path, *, most_entries: int = MOST_ENTRIES) -> Used:
    """Return the bytes on disk below a folder, without following links. Blocks. Files that vanish
    meanwhile do not count.

    Only root can read a folder that denies its owner access. Its mode is not changed, since it may
    have become a link by then.
    """
    total, entries, is_hidden = 0, 0, False
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > most_entries:
                        return Used(2**62, is_hidden)
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except PermissionError:
            is_hidden = True
        except OSError:
            continue
    return Used(total, is_hidden)


def free_mib(folder: Path) -> int:
    """Return the free space of a folder's disk, in MiB. Raises OSError."""
    return shutil.disk_usage(folder).free // _MIB


def remove(folder: Path) -> None:
    """Delete a folder that a hostile process, which has ended, may have filled. Follows no links
    (`shutil.rmtree`); what cannot be deleted stays.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir():
        return
    # Make folders accessible that deny their owner access.
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError):
            place = waiting.pop()
            Path(place).chmod(0o700)
            with os.scandir(place) as found:
                waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(folder, ignore_errors=True)
