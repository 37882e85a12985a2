"""Signed JSON Web Tokens (RFC 7519): three parts of base64url, of which the first is a JSON object that names an algorithm."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.tokens import starts_word

MARK: Final = "eyJ"
"""`{"` in base64."""
_FORM: Final = r"eyJ[A-Za-z0-9_-]{8,2000}+(?:\.[A-Za-z0-9_-]{0,8000}+){2,4}+"


@cache
def _compiled() -> re.Pattern[str]:
    return re.compile(_FORM)


def find(text: str) -> Iterator[Finding]:
    """Every signed or encrypted token; one without a signature, and the one that every tutorial shows, are none."""
    at = text.find(MARK)
    while at >= 0:
        match = _compiled().match(text, at) if starts_word(text, at) else None
        at = text.find(MARK, match.end() if match else at + 1)
        if match is None:
            continue
        parts = match[0].split(".")
        header, body = _decoded(parts[0]), _decoded(parts[1])
        if not isinstance(header, dict) or header.get("alg") in (None, "none"):
            continue
        if len(parts[-1]) < 20 or (isinstance(body, dict) and body.get("sub") == "1234567890"):
            continue
        yield Finding("jwt", match.start(), match.end(), 0.9, "jwt", MARK)


def _decoded(part: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None
