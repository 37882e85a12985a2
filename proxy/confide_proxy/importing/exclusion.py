"""What the folders that a file is in keep back by their `.confide.toml`: whoever asks to import it, it is not read."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from confide_proxy.project_file import FILE, Narrowing

PROBLEM = f"is excluded by {FILE}"


def is_excluded(path: Path) -> bool:
    """Whether a project above leaves this file or folder out, as its file says now."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - `Path.absolute` leaves ".." in
    return any(
        _narrowing(folder).excludes(whole.relative_to(folder).as_posix())
        for folder in whole.parents
        if os.path.lexists(folder / FILE)
    )


@lru_cache(256)
def _narrowing(folder: Path) -> Narrowing:
    return Narrowing(folder)
