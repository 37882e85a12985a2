"""How the text of an argument becomes its value.

typer asks pydantic, which takes longer to load than most commands run. For texts, numbers and plain paths, all but a few of the parameters,
this does the same without it, and says what is wrong in words for people; anything else goes typer's way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import typer


class Value:
    """Takes the place of typer's own conversion of one parameter."""

    def __init__(self, parameter: Any) -> None:
        self._slow: Callable[[], Any] = parameter.get_runtime_param
        annotation = parameter.type_descriptor.annotation
        self._is_list = get_origin(annotation) is list
        self._kind = get_args(annotation)[0] if self._is_list else annotation
        self._read = _READERS.get(self._kind)
        info = parameter.type_descriptor.parameter_info
        if info.parser is not None or (self._kind is Path and (info.exists or info.resolve_path or info.path_type)):
            self._read = None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """As typer's. Raises typer.BadParameter."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._read is None:
            return self._slow().coerce(value, param=param, ctx=ctx)
        if self._is_list:
            return [self._one(each, param, ctx) for each in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        assert self._read is not None
        try:
            return self._read(value, param)
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise


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
    # Written so that what is not a number is outside.
    if not ((least is None or number >= least) and (most is None or number <= most) and number == number):
        raise typer.BadParameter(f"{number:g} is not {bounds(param)}")
    return number


def bounds(parameter: Any) -> str:
    """What a number may be, in words: `1 to 50`; "" where it may be anything."""
    least, most = parameter.min, parameter.max
    if least is None and most is None:
        return ""
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"{least} to {most}"


_READERS: Final[dict[Any, Callable[[Any, Any], Any]]] = {str: _text, Path: _path, int: _whole, float: _number}
