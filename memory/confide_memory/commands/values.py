"""Conversion of command line arguments to values.

typer uses pydantic, which takes 100 ms and 12 MB to load, more than most commands need. For texts,
numbers, plain paths and choices, which all parameters of ours are, this module does the same without
it, with error messages for users; typer converts other types.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperOption


class _Plain:
    """A typer parameter whose value is converted here if its type allows it."""

    type_descriptor: Any

    def get_runtime_param(self) -> Any:
        annotation, info = self.type_descriptor.annotation, self.type_descriptor.parameter_info
        is_list = get_origin(annotation) is list
        kind = get_args(annotation)[0] if is_list else annotation
        is_plain = info.parser is None and not (info.exists or info.resolve_path or info.path_type)
        read = _reader(kind) if is_plain else None
        return super().get_runtime_param() if read is None else _ValueReader(read, is_list)  # type: ignore[misc]


class _Option(_Plain, TyperOption):
    pass


class _Argument(_Plain, TyperArgument):
    pass


@cache
def plain(parameter: Any) -> Any:
    """Return a copy of a typer parameter whose values this module converts instead of pydantic.

    It is a copy because the class of a parameter decides who converts its values, and typer chooses
    the class itself.
    """
    kind = _Option if isinstance(parameter, TyperOption) else _Argument
    made = kind.__new__(kind)
    vars(made).update(vars(parameter))
    return made


class _ValueReader(NamedTuple):
    """A converter for the value of one parameter, instead of typer's `RuntimeParam`."""

    read: Callable[[Any, Any], Any]
    is_list: bool

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value, as typer does. Raises typer.BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            return [self.read(each, param) for each in value] if self.is_list else self.read(value, param)
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise


def _reader(kind: Any) -> Callable[[Any, Any], Any] | None:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_choice, kind)
    return _READERS.get(kind)


def _choice(kind: type[Enum], value: Any, _param: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(str(each.value) for each in kind)
        raise typer.BadParameter(f"'{value}' is not one of {names}") from None


def _flag(value: Any, _param: Any) -> bool:
    return bool(value)


def _text(value: Any, _param: Any) -> str:
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        position = len(text[: error.start].encode())
        raise typer.BadParameter(f"is not UTF-8 text (byte {position})") from None
    return text


def _path(value: Any, param: Any) -> Path:
    if not str(value):
        raise typer.BadParameter("is empty")
    path = Path(value)
    info = param.type_descriptor.parameter_info
    if not info.dir_okay and path.is_dir():
        raise typer.BadParameter(f"{value} is a folder")
    if not info.file_okay and path.is_file():
        raise typer.BadParameter(f"{value} is a file")
    return path


def _whole(value: Any, param: Any) -> int:
    try:
        return int(_within(int(str(value)), param))
    except ValueError:
        raise typer.BadParameter(f"'{value}' is not a whole number") from None


def _number(value: Any, param: Any) -> float:
    try:
        return _within(float(str(value)), param)
    except ValueError:
        raise typer.BadParameter(f"'{value}' is not a number") from None


def _within(number: float, param: Any) -> float:
    least, most = param.min, param.max
    # Written so that NaN is outside.
    if not ((least is None or number >= least) and (most is None or number <= most) and number == number):
        raise typer.BadParameter(f"{number:g} is not {_bounds(least, most)}")
    return number


def _bounds(least: float | None, most: float | None) -> str:
    """Return the valid range of a number in words: `1 to 50`."""
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"{least} to {most}"


_READERS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    bool: _flag,
    str: _text,
    Path: _path,
    int: _whole,
    float: _number,
}
