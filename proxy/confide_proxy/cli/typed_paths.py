"""Conversion of paths that a user types to paths of memory, which are relative to the project's
folder.

A user may type an absolute path, copy one from an editor, or complete one in a subfolder. Such a
path names a file that exists, so the answer "there is no such memory" would be wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

from confide_memory.note_names import is_id
from confide_proxy.cli.console import CommandContext, folder_of
from confide_proxy.errors import InputError
from confide_proxy.sync import project as projects


def to_project_path(here: CommandContext, project: Path, said: str) -> str:
    """Convert a typed path, folder or glob to one relative to the folder of the project or of the
    global memory. The id of a note is returned unchanged.

    A relative path is returned as it is, unless it contains `..`, or exists in the current folder
    and not in the project's.

    Args:
        project: the folder of `--project`.

    Raises InputError if an absolute path, or one with `..`, leads outside of both folders;
    typer.BadParameter if `project` is no folder.
    """
    typed = _expand_home(said)
    is_relative = not typed.is_absolute() and ".." not in typed.parts
    if not said.strip() or is_id(said) or (is_relative and not os.path.lexists(typed)):
        return said
    root = projects.identify(folder_of(project)).root
    if is_relative and os.path.lexists(root / typed):
        return said
    place = Path(os.path.normpath(Path.cwd() / typed))
    tops = (root, here.paths.global_folder)
    for form in (place, place.parent.resolve() / place.name):
        for top in (*tops, *(top.resolve() for top in tops)):
            if form.is_relative_to(top):
                return f"{form.relative_to(top).as_posix()}{'/' if said.endswith('/') else ''}"
    if is_relative:
        return said
    raise InputError(f"{said} is not in the project's folder, {root}", hint="for another project: --project DIR")


def _expand_home(said: str) -> Path:
    try:
        return Path(said).expanduser()
    except RuntimeError:  # the home folder of an unknown user
        return Path(said)
