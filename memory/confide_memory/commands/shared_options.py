"""The options that commands have without a word of their own: help, and the completion of shells."""

from __future__ import annotations

import os
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Final

import typer
import typer.main

COMPLETION: Final = ("--install-completion", "--show-completion")
SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
CHOSEN_SHELL: Final = "confide_memory.commands.shell"
"""In a context's `meta`: the shell that was named behind one of the options; else it is the one in which the command runs."""


def _show_help(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


def _install(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        from typer._completion_shared import install  # late: once in a lifetime

        shell = context.meta.get(CHOSEN_SHELL)
        shell, path = install(shell=shell) if shell else install()
        typer.echo(f"the completion for {shell} is in {path}; it works in the next terminal")
        raise typer.Exit


def _show(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        from typer._completion_shared import get_completion_script

        name = str(context.find_root().info_name)
        shell = context.meta.get(CHOSEN_SHELL) or PurePath(os.environ.get("SHELL", "")).name
        shell = shell if shell in SHELLS else "bash"
        typer.echo(get_completion_script(prog_name=name, complete_var=completion_variable(name), shell=shell))
        raise typer.Exit


def completion_variable(program: str) -> str:
    """The environment variable with which a shell asks the program what may follow."""
    return f"_{program.replace('-', '_').upper()}_COMPLETE"


def _options(
    show_help: Annotated[
        bool,
        typer.Option("--help", "-h", is_eager=True, expose_value=False, callback=_show_help, help="Show this help."),
    ] = False,
    install_completion: Annotated[
        bool,
        typer.Option(
            COMPLETION[0],
            is_eager=True,
            expose_value=False,
            callback=_install,
            help="Let your shell complete what you type. A shell's name may follow.",
        ),
    ] = False,
    show_completion: Annotated[
        bool,
        typer.Option(
            COMPLETION[1],
            is_eager=True,
            expose_value=False,
            callback=_show,
            help="Print what that would write. A shell's name may follow.",
        ),
    ] = False,
) -> None:
    pass


@cache
def shared_options() -> dict[str, Any]:
    """typer's parameters by their names: `show_help`, `install_completion`, `show_completion`."""
    one = typer.Typer(add_completion=False)
    one.command()(_options)
    return {parameter.name: parameter for parameter in typer.main.get_command(one).params}
