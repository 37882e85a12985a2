"""What a person is told of a command that was written wrongly: what is wrong with it, and what was probably meant."""

from __future__ import annotations

from typing import Any, Final

import typer

from confide_memory.commands.spelling import meant

TYPED: Final = "confide_memory.commands.typed"
"""In a context's `meta`: what was typed behind the command that was parsed last."""
_DASHES: Final = "-\N{EN DASH}\N{EM DASH}"
"""With what options begin; a text that was copied from a page has the longer ones."""


def complaint(error: typer.TyperException, program: str) -> tuple[str, str]:
    """What a person is told of a command of `program` that was written wrongly, and a hint."""
    context, hint = getattr(error, "ctx", None), getattr(error, "hint", None)
    if hint is None:
        hint = f"{context.command_path.rstrip() if context is not None else program} --help"
        near = _near(error, context) if context is not None else None
        hint = f"did you mean {near}? {hint}" if near else hint
    if isinstance(error, typer.BadParameter) and error.message:
        name = _spelled(error)
        return (f"{name}: {error.message}" if name else error.message).rstrip("."), hint
    message = error.message or error.format_message()
    return (message[:1].lower() + message[1:]).rstrip("."), hint


def long_options(command: Any) -> list[str]:
    """The options of a command that begin with two hyphens."""
    names = (name for each in command.params for name in (*each.opts, *each.secondary_opts))
    return [name for name in names if name.startswith("--")]


def _near(error: typer.TyperException, context: Any) -> str | None:
    """The option that was probably meant, or where it belongs."""
    names, typed = long_options(context.command), context.meta.get(TYPED, ())
    # As other programs have them: -json.
    if whole := next((each for each in typed if each[:1] == "-" and f"-{each}" in names), None):
        return f"-{whole}"
    if hasattr(error, "possibilities"):  # there is no such option
        return _option(str(getattr(error, "option_name", "")), names, context)
    if "unexpected extra argument" in str(error.message):
        return next((name for each in typed if (name := f"--{each.lstrip(_DASHES)}") in names), None)
    return None


def _option(name: str, names: list[str], context: Any) -> str | None:
    if not name.startswith("--"):
        other = name.swapcase()
        return other if any(other in each.opts for each in context.command.params) else None
    words = getattr(context.find_root().command, "option_words", {})
    if found := meant(name.removeprefix("--"), [each.removeprefix("--") for each in names], words):
        return f"--{found}"
    # An option stands behind its command.
    return f"{context.command_path} COMMAND {name[:40]}" if getattr(context.command, "commands", None) else None


def _spelled(error: typer.BadParameter) -> str:
    """The parameter that is wrong, as a person writes it."""
    if error.param_hint is not None:
        return str(error.param_hint) if isinstance(error.param_hint, str) else max(error.param_hint, key=len)
    if error.param is None:
        return ""
    options = [option for option in error.param.opts if option.startswith("-")]
    return max(options, key=len) if options else str(error.param.metavar or error.param.name)
