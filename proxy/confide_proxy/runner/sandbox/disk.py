"""How much of the disk a folder takes that somebody hostile fills."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

MOST_ENTRIES: Final = 1_000_000
"""More files and folders than that count as too many bytes: to look at them would take longer than the time between two looks."""
_BLOCK: Final = 512
_MIB: Final = 2**20


def used_bytes(folder: Path, *, most_entries: int = MOST_ENTRIES) -> int:
    """The bytes on the disk of all that is below a folder; no link is followed. Blocks; what vanishes meanwhile does not count."""
    total, entries = 0, 0
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                entries += 1
                if entries > most_entries:
                    return 2**62
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def free_mib(folder: Path) -> int:
    """What the disk of a folder has left. Raises OSError."""
    return shutil.disk_usage(folder).free // _MIB


def remove(folder: Path) -> None:
    """Delete a folder that somebody hostile has filled; what cannot be is left. No link is followed (`shutil.rmtree`)."""

    def opened(_function: object, path: str, _error: object) -> None:
        # A folder without rights for its owner; a user who is not root needs them.
        place = Path(path)
        with contextlib.suppress(OSError):
            place.parent.chmod(0o700)
            if place.is_dir() and not place.is_symlink():
                place.chmod(0o700)
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink()

    with contextlib.suppress(OSError):
        shutil.rmtree(folder, onerror=opened)
