"""Runs a program's command line. A failure is printed as one sentence, and the exit code shows the
kind of error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from confide_crypto.errors import ConfideError
from confide_memory.commands.group import CommandGroup, long_options
from confide_memory.commands.spelling import nearest_name

_DASHES: Final = "-\N{EN DASH}\N{EM DASH}"
"""Characters that begin an option; text copied from a web page may have the longer ones."""


def run(
    app: typer.Typer, name: str, remark: Callable[[str], None], known: Callable[[Exception], ConfideError | None]
) -> int:
    """Run the command line of this process and return its exit code.

    Args:
        name: the name of the program, for messages.
        remark: a function that writes a line to stderr.
        known: a function that converts an error that is not Confide's own. If it returns None, the
            error is a bug and is raised.
    """
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        message, hint = complaint(error, name)
        remark(f"{name}: {message}\nhint: {hint}")
        return error.exit_code
    except typer.Abort as error:  # a question without an answer
        if isinstance(error.__cause__ or error.__context__, EOFError):
            remark(f"{name}: the input ended before the answer\nhint: answer it, or say --yes where the command has it")
            return 1
        return 130
    except Exception as error:
        told = error if isinstance(error, ConfideError) else known(error)
        if told is None:
            raise
        remark(f"{name}: {told.with_hint}")
        return told.exit_code
    return code if isinstance(code, int) else 0


def complaint(error: typer.TyperException, name: str) -> tuple[str, str]:
    """Return the error message and the hint for a mistake in a command line of the program `name`."""
    context, hint = getattr(error, "ctx", None), getattr(error, "hint", None)
    if hint is None:
        hint = f"{context.command_path.rstrip() if context is not None else name} --help"
        near = _option_meant(error, context) if context is not None else None
        if near:
            hint = f"did you mean {near}? {hint}"
        elif context is not None and hasattr(error, "possibilities") and _takes_arguments(context):
            hint = f"{hint}, or {context.command_path} -- … for a text that begins with -"
    if isinstance(error, typer.BadParameter) and error.message:
        where = _parameter_name(error)
        return (f"{where}: {error.message}" if where else error.message).rstrip("."), hint
    message = error.message or error.format_message()
    return (message[:1].lower() + message[1:]).rstrip("."), hint


def _takes_arguments(context: Any) -> bool:
    return any(param.param_type_name == "argument" for param in context.command.params)


def _option_meant(error: typer.TyperException, context: Any) -> str | None:
    """Return the option that was probably meant, or the command that it belongs to."""
    typed = getattr(error, "option_name", "") if hasattr(error, "possibilities") else ""
    names = long_options(context)
    if typed.startswith("--"):
        if found := nearest_name(typed.removeprefix("--"), names, context.find_root().command.option_words):
            return f"--{found}"
        # An option follows its command.
        return f"{context.command_path} COMMAND {typed[:40]}" if isinstance(context.command, CommandGroup) else None
    left = error.message.partition("unexpected extra argument(s) (")[2].rstrip(")").split()
    return next((f"--{word}" for each in left if (word := each.lstrip(_DASHES)) in names), None)


def _parameter_name(error: typer.BadParameter) -> str:
    """Return the wrong parameter as a user types it."""
    if error.param_hint is not None:
        return str(error.param_hint) if isinstance(error.param_hint, str) else max(error.param_hint, key=len)
    if error.param is None:
        return ""
    options = [option for option in error.param.opts if option.startswith("-")]
    return max(options, key=len) if options else str(error.param.metavar or error.param.name.upper())
