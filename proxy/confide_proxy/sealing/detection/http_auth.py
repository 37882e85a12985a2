"""Credentials as HTTP carries them: `Authorization: Basic` and `Bearer` (RFC 7617, RFC 6750), and a registry's `"auth"`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.placeholders import is_placeholder, is_sample
from confide_proxy.secrets.randomness import is_random

_BASIC: Final = r"basic(?:[ \t]|%20|\\u0020){1,3}([A-Za-z0-9+/_-]{8,400}+={0,2})(?![A-Za-z0-9])"
_BEARER: Final = r"(?:[ \t]|%20|\\u0020){1,3}(?:token=)?[\"']?([A-Za-z0-9_~+/.=:-]{16,4000}+)(?![A-Za-z0-9])"
_SCHEMES: Final = (
    r"authorization[\\\"'\])]{0,4}[ \t]{0,4}[:=,][ \t]{0,4}[\\\"'`f]{0,4}"
    r"(?:token|apikey|api-key|ssws|sso-key|geniekey)(?![a-z])"
)
_DOCKER: Final = r"\"auth\"\s{0,4}:\s{0,4}\"([A-Za-z0-9+/]{8,400}+={0,2})\""
_RFC_EXAMPLE: Final = "open sesame"
"""Aladdin's password in RFC 7617, which every document on the subject shows."""


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.MULTILINE | re.ASCII)


def find(text: str, lowered: str) -> Iterator[Finding]:
    """Every credential of these forms. `lowered` is the same text in lower case, character by character."""
    for at in _places(lowered, "basic"):
        if (match := _insensitive(_BASIC).match(text, at)) and _is_pair(match[1]):
            yield Finding("basic-auth", *match.span(1), 0.9, "header")
    carried = [at + len("bearer") for at in _places(lowered, "bearer")]
    for at in _places(lowered, "authorization"):
        if scheme := _insensitive(_SCHEMES).match(text, at):
            carried.append(scheme.end())
    for at in carried:
        if (match := _insensitive(_BEARER).match(text, at)) and _is_token(match[1]):
            yield Finding("bearer-token", *match.span(1), 0.85, "header")
    if '"auth"' in text:
        for match in _compiled(_DOCKER).finditer(text):
            if _is_pair(match[1]):
                yield Finding("basic-auth", *match.span(1), 0.9, "header")


@cache
def _insensitive(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE | re.ASCII)


def _places(text: str, mark: str) -> Iterator[int]:
    """Where the mark begins a word."""
    at = text.find(mark)
    while at >= 0:
        if at == 0 or not text[at - 1].isalnum():
            yield at
        at = text.find(mark, at + len(mark))


def _is_token(value: str) -> bool:
    return not is_sample(value) and not is_placeholder(value) and is_random(value.rstrip("="))


def _is_pair(value: str) -> bool:
    """Whether it is base64 of a user and a password."""
    try:
        pair = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if {"-", "_"} & set(value) else None)
        user, colon, password = pair.decode("utf-8").partition(":")
    except ValueError:
        return False
    is_told = bool(colon and password) and pair.decode("utf-8").isprintable()
    return is_told and user.lower() != password.lower() and not is_placeholder(password) and password != _RFC_EXAMPLE
