"""What the commands share: their common options, and how they speak (data to stdout, the rest to stderr)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

ProjectDir = Annotated[Path, typer.Option("--project", "-p", help="The project's folder.", show_default="here")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class TakesRevision(TyperCommand):
    """A command with a `--revision`, which is easily written as a bare number behind the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            hint = f"; for an older text: --revision {rest[0]}" if rest[0].isdecimal() else ""
            ctx.fail(f"unexpected argument: {' '.join(rest)}{hint}")
        return rest


def folder_of(project: Path) -> Path:
    """The folder that `--project` names, absolute. Raises typer.BadParameter where it is none."""
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is not a folder", param_hint="--project")
    return project.absolute()


def print_json(value: Any) -> None:
    """A command's data for programs."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
