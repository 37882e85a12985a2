"""The text of `--help`: plain, so that it reads the same in a terminal, a pipe and a screen reader; in a terminal headings are bold."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from confide_memory.commands.values import bounds

_WIDEST: Final = 100
"""Columns: longer lines are hard to read, however wide the terminal is."""
_NARROWEST: Final = 40
_LEFT: Final = 30
"""Columns of what is explained; what is longer has its explanation on the next line."""
_KINDS: Final = {int: "N", float: "NUMBER", Path: "PATH"}

Rows = Sequence[tuple[str, str]]


def page(context: typer.Context, sections: Iterable[tuple[str, Rows]] = ()) -> str:
    """The help of the context's command; `sections` are commands in groups, each with its line."""
    command: Any = context.command
    width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))
    parts = [usage(context, width)]
    if command.help:
        parts.append(_paragraphs(command.help, width))
    arguments = [_argument(each) for each in command.params if _is_argument(each) and each.help]
    options = [_option(each) for each in command.get_params(context) if not _is_argument(each) and not each.hidden]
    for heading, rows in (*sections, ("Arguments", arguments), ("Options", options)):
        if rows:
            parts.append(f"{_heading(heading)}\n{_table(rows, width)}")
    if command.epilog:
        parts.append(_paragraphs(command.epilog, width))
    return "\n\n".join(parts)


def usage(context: typer.Context, width: int = _WIDEST) -> str:
    """How a command is written: `Usage: confide search [OPTIONS] QUERY`."""
    command: Any = context.command
    path = context.command_path.rstrip()  # a command that its group takes for granted has no word of its own
    pieces = ["[OPTIONS]", *(argument_name(each) for each in command.params if _is_argument(each))]
    if getattr(command, "commands", None):
        pieces.append("[COMMAND]" if command.invoke_without_command else "COMMAND")
    lines = textwrap.wrap(" ".join(pieces), max(width - len(f"Usage: {path} "), _NARROWEST // 2))
    indent = "\n" + " " * len(f"Usage: {path} ")
    return f"{_heading('Usage:')} {path} {indent.join(lines)}"


def argument_name(parameter: Any) -> str:
    """As it stands in the usage: `QUERY`, `[PATH]...`."""
    if parameter.metavar:
        return str(parameter.metavar)
    name = parameter.name.upper().replace("_", "-")
    name = name if parameter.required else f"[{name}]"
    return f"{name}..." if parameter.nargs == -1 else name


def example(*commands: str) -> str:
    """The end of a command's help: how it is written."""
    heading = "Example" if len(commands) == 1 else "Examples"
    return "\n  ".join((f"{heading}:", *commands))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _argument(parameter: Any) -> tuple[str, str]:
    return argument_name(parameter), _explained(parameter)


def _option(parameter: Any) -> tuple[str, str]:
    short = [each for each in parameter.opts if not each.startswith("--")]
    long = [each for each in parameter.opts if each.startswith("--")]
    names = ", ".join([*short, *long])
    if not short:
        names = f"    {names}"
    if parameter.is_flag:
        return " / ".join([names, *parameter.secondary_opts]), _explained(parameter)
    return f"{names} {_option_value(parameter, long or short)}", _explained(parameter)


def _option_value(parameter: Any, names: Sequence[str]) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    descriptor = parameter.type_descriptor
    if descriptor.choices:
        return "|".join(str(getattr(each, "value", each)) for each in descriptor.choices)
    name = max(names, key=len).lstrip("-").rsplit("-", 1)[-1].upper()
    return name if descriptor.annotation not in (int, float) else _KINDS[descriptor.annotation]


def _explained(parameter: Any) -> str:
    more = [bounds(parameter)] if bounds(parameter) else []
    shown = parameter.show_default
    if isinstance(shown, str):
        more.insert(0, f"default: {shown}")
    elif shown and parameter.default:
        more.insert(0, f"default: {parameter.default}")
    text = (parameter.help or "").strip()
    return f"{text} ({'; '.join(more)})" if more else text


def _table(rows: Rows, width: int) -> str:
    left = min(max(len(name) for name, _ in rows), _LEFT)
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(width - left - 4, _NARROWEST // 2)) or [""]
        if len(name) > left:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:<{left}}  {wrapped.pop(0)}".rstrip())
        lines += [f"{'':{left + 4}}{line}" for line in wrapped]
    return "\n".join(lines)


def _paragraphs(text: str, width: int) -> str:
    """Paragraphs filled anew, but for those with indented lines."""
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if "\n " in part else textwrap.fill(part, width) for part in parts)


def _heading(text: str) -> str:
    return f"\033[1m{text}\033[0m" if has_styles(sys.stdout) else text


def has_styles(stream: Any) -> bool:
    """Whether what is written there may be bold or coloured (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
