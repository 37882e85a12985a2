"""Credentials as HTTP carries them: `Authorization: Basic` and `Bearer` (RFC 7617, RFC 6750), a registry's `"auth"`, and signed JSON Web
Tokens (RFC 7519): three parts of base64url, of which the first is a JSON object that names an algorithm."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from confide_proxy.sealing.detection.entropy import is_random
from confide_proxy.sealing.detection.false_positives import is_placeholder, is_sample
from confide_proxy.sealing.detection.finding import Finding, compiled
from confide_proxy.sealing.detection.tokens import starts_word

_FLAGS: Final = re.IGNORECASE | re.ASCII
_BASIC: Final = r"basic(?:[ \t]|%20|\\u0020){1,3}([A-Za-z0-9+/_-]{8,400}+={0,2})(?![A-Za-z0-9])"
_BEARER: Final = r"(?:[ \t]|%20|\\u0020){1,3}(?:token=)?[\"']?([A-Za-z0-9_~+/.=:-]{16,4000}+)(?![A-Za-z0-9])"
_SCHEMES: Final = (
    r"authorization[\\\"'\])]{0,4}[ \t]{0,4}[:=,][ \t]{0,4}[\\\"'`f]{0,4}"
    r"(?:token|apikey|api-key|ssws|sso-key|geniekey)(?![a-z])"
)
_DOCKER: Final = r"\"auth\"\s{0,4}:\s{0,4}\"([A-Za-z0-9+/]{8,400}+={0,2})\""
_RFC_EXAMPLE: Final = "open sesame"
"""Aladdin's password in RFC 7617, which every document on the subject shows."""
_JWT_MARK: Final = "eyJ"
"""`{"` in base64."""
_JWT: Final = r"eyJ[A-Za-z0-9_-]{8,2000}+(?:\.[A-Za-z0-9_-]{0,8000}+){2,4}+"


def find(text: str, lowered: str) -> Iterator[Finding]:
    """Every credential of these forms. `lowered` is the same text in lower case, character by character."""
    for at in _words(lowered, "basic"):
        if (match := compiled(_BASIC, _FLAGS).match(text, at)) and _is_pair(match[1]):
            yield Finding("basic-auth", *match.span(1), 0.9, "header")
    carried = [at + len("bearer") for at in _words(lowered, "bearer")]
    for at in _words(lowered, "authorization"):
        if scheme := compiled(_SCHEMES, _FLAGS).match(text, at):
            carried.append(scheme.end())
    for at in carried:
        if (match := compiled(_BEARER, _FLAGS).match(text, at)) and _is_token(match[1]):
            yield Finding("bearer-token", *match.span(1), 0.85, "header")
    if '"auth"' in text:
        for match in compiled(_DOCKER, re.ASCII).finditer(text):
            if _is_pair(match[1]):
                yield Finding("basic-auth", *match.span(1), 0.9, "header")


def _words(text: str, mark: str) -> Iterator[int]:
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
    is_pair = bool(colon and password) and pair.decode("utf-8").isprintable()
    return is_pair and user.lower() != password.lower() and not is_placeholder(password) and password != _RFC_EXAMPLE


def find_jwts(text: str) -> Iterator[Finding]:
    """Every signed or encrypted token; one without a signature, and the one that every tutorial shows, are none."""
    at = text.find(_JWT_MARK)
    while at >= 0:
        match = compiled(_JWT).match(text, at) if starts_word(text, at) else None
        at = text.find(_JWT_MARK, match.end() if match else at + 1)
        if match is None:
            continue
        parts = match[0].split(".")
        header, body = _decoded(parts[0]), _decoded(parts[1])
        if not isinstance(header, dict) or header.get("alg") in (None, "none"):
            continue
        if len(parts[-1]) < 20 or (isinstance(body, dict) and body.get("sub") == "1234567890"):
            continue
        yield Finding("jwt", match.start(), match.end(), 0.9, "jwt", _JWT_MARK)


def _decoded(part: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None
