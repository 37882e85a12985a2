"""What the daemon answers to a command's request, held against the form that was agreed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from confide_proxy.errors import UnfitAnswerError


def records(answer: Mapping[str, Any], key: str, **kinds: type) -> list[dict[str, Any]]:
    """The list of records at `key`, each with values of these kinds and nothing else; texts are made printable.

    Raises:
        UnfitAnswerError: it is not that.
    """
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UnfitAnswerError
    return [{name: value(item, name, kind) for name, kind in kinds.items()} for item in found]


def value(answer: Mapping[str, Any], key: str, kind: type) -> Any:
    """One value of this kind; a text is made printable.

    Raises:
        UnfitAnswerError: it is not there, or of another kind.
    """
    found = answer.get(key)
    if type(found) is not kind:
        raise UnfitAnswerError
    return printable(found) if isinstance(found, str) else found


def names(answer: Mapping[str, Any], key: str) -> list[str]:
    """The list of texts at `key`.

    Raises:
        UnfitAnswerError: it is not that.
    """
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UnfitAnswerError
    return [printable(item) for item in found]


def printable(text: str) -> str:
    """A peer's text as a terminal may show it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def local_time(text: str) -> str:
    """A time of the daemon's (ISO 8601), for people here."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        raise UnfitAnswerError from None
