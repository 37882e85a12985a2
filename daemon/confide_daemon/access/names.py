"""Names that people give to callers and spaces: they stand in logs, in lists and beside what a caller wrote."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from confide_daemon.errors import BadNameError

MAX_NAME_CHARS = 48
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_SPAN = re.compile(r"(\d{1,6})\s*([smhd])")
_SPAN_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_TTL_S = 30 * 86400
LONGEST_SPAN_S = 3650 * 86400
# `confided invite ls` and `confided invite rm` are commands.
RESERVED_NAMES = ("ls", "rm")


def check_name(text: str, what: str) -> str:
    """`text`, if it can name a caller or a space.

    Raises:
        BadNameError: empty, too long, with characters other than letters, digits, dots, hyphens and underscores, or a command's.
    """
    if what == "machine" and text in RESERVED_NAMES:
        raise BadNameError(
            f"'{text}' cannot name a machine: confided invite {text} is a command", hint="choose another name"
        )
    if len(text) > MAX_NAME_CHARS or not _NAME.fullmatch(text):
        shown = "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_NAME_CHARS])
        raise BadNameError(
            f"'{shown}' cannot name a {what}",
            hint=f"use up to {MAX_NAME_CHARS} letters, digits, dots, hyphens and underscores, as in laptop-2",
        )
    return text


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A valid name like `wanted` that is not taken: cleaned, and numbered if need be."""
    clean = _FOREIGN.sub("-", wanted).strip("-._")[: MAX_NAME_CHARS - 4] or "machine"
    names = set(taken)
    number = 1
    candidate = clean
    while candidate in names:
        number += 1
        candidate = f"{clean}-{number}"
    return candidate


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def parse_ttl(text: str) -> float:
    """Seconds of a time such as `15m`, `1h` or `2d`.

    Raises:
        BadNameError: it is none, or longer than 30 days.
    """
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_TTL_S:
        raise BadNameError(f"'{text[:20]}' is not a time to live", hint="use 90s, 15m, 1h or 2d; at most 30d")
    return seconds


def parse_span(text: str) -> float:
    """Seconds of a time such as `1h`, `2d` or `90d`, of at most ten years.

    Raises:
        BadNameError: it is none.
    """
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_SPAN_S:
        raise BadNameError(f"'{text[:20]}' is not a length of time", hint="use 1h, 2d or 90d; at most 3650d")
    return seconds


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text.strip().lower())
    return float(int(match[1]) * _SPAN_S[match[2]]) if match else 0.0
