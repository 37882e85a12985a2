"""What a command adds to the configuration of this machine, with all else in the file left as a person wrote it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from confide_proxy.clients.client_files import replace
from confide_proxy.errors import ConfigError, StateError


def read(file: Path) -> tuple[str, dict[str, Any]]:
    """The text of a configuration, and what it says; both are empty where there is none. Raises ConfigError: it cannot be understood."""
    try:
        text = file.read_bytes().decode("utf-8") if file.exists() else ""
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(file, f"cannot be read: {type(error).__name__}", hint="fix it, and try again") from None


def with_section(text: str, section: str) -> str:
    """The text with a section at its end."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{section}\n"


def write(file: Path, text: str, wanted: dict[str, Any], *, by_hand: str) -> None:
    """Write a configuration that says what is `wanted`. Otherwise it is left as it was.

    Raises ConfigError: the text says something else, with what a person does `by_hand` as its hint; StateError: it cannot be written.
    """
    try:
        is_right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ConfigError(file, "is not written so that it can be added to", hint=by_hand)
    try:
        file.resolve().parent.mkdir(parents=True, exist_ok=True)
        replace(file, text)
    except OSError as error:
        raise StateError(file, error) from error
