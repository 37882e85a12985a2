"""What the commands share: their common options, and how they speak (data to stdout, the rest to stderr)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

ProjectDir = Annotated[Path, typer.Option("--project", "-p", help="The project's folder.", show_default="here")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def folder_of(project: Path) -> Path:
    """The folder that `--project` names, absolute. Raises typer.BadParameter where it is none."""
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is not a folder", param_hint="--project")
    return project.absolute()


def print_json(value: Any) -> None:
    """A command's data for programs."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
