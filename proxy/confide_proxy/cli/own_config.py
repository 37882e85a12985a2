"""Edits of this device's configuration file that keep the rest of the user's text."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from confide_proxy.clients.client_files import replace
from confide_proxy.errors import ConfigError, StateError


def read(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a configuration file and its parsed content; both are empty if there is no
    file.

    Raises ConfigError if it cannot be parsed.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig") if file.exists() else ""
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(file, f"cannot be read: {type(error).__name__}", hint="fix it, and try again") from None


def with_section(text: str, section: str) -> str:
    """Return a configuration file's text with a section appended."""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{section}\n"


def write(file: Path, text: str, wanted: dict[str, Any], *, by_hand: str) -> None:
    """Write a configuration file, but only if the new text parses to `wanted`.

    Args:
        wanted: the parsed content that the text must have.
        by_hand: what the user can do instead, for the hint of the error.

    Raises ConfigError, and leaves the file unchanged, if the text parses to something else;
    StateError if the file cannot be written.
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
