"""Give secrets to a command as private files, in memory where the system allows it, and delete them
when the command has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confide_crypto import portable
from confide_proxy.paths import runtime_folders

_FOLDER: Final = "confide-run-"


@contextlib.contextmanager
def private_files(values: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Write these values to private files, and yield the files' paths by the same names; delete the
    files at the end.
    """
    if not values:
        yield {}
        return
    base = next((each for each in _memory_folders() if os.access(each, os.W_OK | os.X_OK)), Path(tempfile.gettempdir()))
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=base))
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        paths = {}
        for name, value in values.items():
            path = folder / name
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(value)
            paths[name] = str(path)
        yield paths
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _memory_folders() -> list[Path]:
    """Return the folders whose files are in memory, where there are any."""
    return [*runtime_folders(), Path("/dev/shm")] if sys.platform == "linux" else []  # noqa: S108


def _sweep(base: Path) -> None:
    """Remove the files of runs that were killed."""
    for each in base.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            held = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(held).st_uid == portable.user():
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(each, ignore_errors=True)
            finally:
                os.close(held)
