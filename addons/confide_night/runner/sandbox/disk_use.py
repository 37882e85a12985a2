"""How much of the disk a folder takes that somebody hostile fills."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

MOST_ENTRIES: Final = 1_000_000
"""More files and folders than that count as too many bytes: to look at them would take longer than the time between two looks."""
_BLOCK: Final = 512
_MIB: Final = 2**20


class Used(NamedTuple):
    """What a folder takes. `is_hidden`: a part of it could not be looked at."""

    size_bytes: int
    is_hidden: bool


def used(folder: Path, *, most_entries: int = MOST_ENTRIES) -> Used:
    """The bytes on the disk of all that is below a folder; no link is followed. Blocks; what vanishes meanwhile does not count.

    Of a folder without rights for its owner only root sees what is in there. It is not given rights: it may be a link by then.
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
    """What the disk of a folder has left. Raises OSError."""
    return shutil.disk_usage(folder).free // _MIB


def remove(folder: Path) -> None:
    """Delete a folder that somebody hostile has filled, and who is gone; what cannot be is left. No link is followed (`shutil.rmtree`)."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir():
        return
    # Folders without rights for their owner, who is not root.
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError):
            place = waiting.pop()
            Path(place).chmod(0o700)
            with os.scandir(place) as found:
                waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(folder, ignore_errors=True)
