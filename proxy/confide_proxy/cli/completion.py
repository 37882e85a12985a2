"""Shell completion of memory paths and project names, from the folders on this device.

Completion never calls or starts a daemon. It only lists folders, and prints nothing on errors.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import ConfideError
from confide_proxy.paths import find
from confide_proxy.sync.project_names import NameOrigin, ProjectNames
from confide_proxy.sync.walk import tree

MOST: Final = 500
"""The most names that are offered."""
_LOOKED_AT: Final = 5_000


def memory_paths(context: typer.Context, incomplete: str) -> list[str]:
    """List the memory files in the project's folder whose paths begin with the typed text."""
    root = Path(context.params.get("project") or ".")
    with suppress(OSError, ValueError):
        files = (path for path, _ in islice(tree(root, "memory", 0), _LOOKED_AT) if path.endswith(".md"))
        return list(islice((path for path in files if path.startswith(incomplete)), MOST))
    return []


def project_names(incomplete: str) -> list[str]:
    """List the names of projects that have a folder on this device and begin with the typed text."""
    with suppress(ConfideError, OSError):  # the command itself reports a broken file
        kept = ProjectNames(find().projects).all()
        known = {each.name for each in kept if each.state is not NameOrigin.FORGOTTEN}
        return sorted(name for name in known if name.startswith(incomplete))[:MOST]
    return []


_SHOWN: Final = "As confide ls or a search shows it."
PathOf = Annotated[str, typer.Argument(metavar="PATH|ID", help=_SHOWN, autocompletion=memory_paths)]
PathsOf = Annotated[
    list[str],
    typer.Argument(metavar="PATH|ID", help="Files or notes, as confide ls shows them.", autocompletion=memory_paths),
]
Meant = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH|ID",
        help="Files, folders or globs, as confide ls shows them.",
        autocompletion=memory_paths,
        show_default=False,
    ),
]
"""The arguments of a command that takes several files, or all."""
