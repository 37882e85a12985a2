"""What a shell offers at Tab behind a command: paths of this project's memory, and names of projects, as this machine knows them.

A Tab asks no daemon and starts none, reads folders alone, and says nothing where something is wrong.
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
"""Of names that are offered, and of files that are looked at for each."""
_LOOKED_AT: Final = 5_000


def memory_paths(context: typer.Context, incomplete: str) -> list[str]:
    """Files of memory below the project's folder that begin like it."""
    root = Path(context.params.get("project") or ".")
    with suppress(OSError, ValueError):
        files = (path for path, _ in islice(tree(root, "memory", 0), _LOOKED_AT) if path.endswith(".md"))
        return list(islice((path for path in files if path.startswith(incomplete)), MOST))
    return []


def project_names(incomplete: str) -> list[str]:
    """Projects that this machine has a folder of."""
    with suppress(ConfideError, OSError):  # what is wrong with that file is said by the command itself
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
"""What a command is about that takes several files, or all."""
