"""Passwords inside of addresses: `postgres://shop:…@db/shop`, and any other URL with a user and a password (RFC 3986, 3.2.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.placeholders import is_placeholder
from confide_proxy.secrets.randomness import is_random

MARK: Final = "://"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]{1,30}$"
_AUTHORITY: Final = (
    # The password may hold a bare "@" or "#", as people write it: what stands behind the last "@" before the path is the host.
    r"([^\s:/?#@\"'`<>\\|]{0,100}+):([^\s/\"'`<>\\|]{3,200})@(\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9_.*-]{1,200}+)(?=[:/?#,\s\"'`)\]};<>\\|]|$|\.\s|\.$)"
)
_LONE_USER: Final = r"([A-Za-z0-9_-]{20,255}+)@[A-Za-z0-9.-]{4,200}"
"""In place of the user, as GitHub and others take it."""
_HEX: Final = r"[0-9a-f]+$"
_WEB: Final = frozenset({"http", "https", "ftp", "git", "svn", "ws", "wss", "git+https", "ftps", "ssh", "sftp"})
_EXAMPLES: Final = ("example.com", "example.org", "example.net", ".example", "foo.com", "bar.com")
"""Reserved for documents (RFC 2606, 3), or used as if they were."""


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def find(text: str) -> Iterator[Finding]:
    """Every password in an address."""
    at = text.find(MARK)
    while at >= 0:
        begin = at + len(MARK)
        # Most addresses have no "@" in reach: a search for it costs less than the expression.
        if text.find("@", begin, begin + 400) >= 0 and (found := _found(text, at, begin)):
            yield found
        at = text.find(MARK, begin)


def _found(text: str, at: int, begin: int) -> Finding | None:
    lone = _compiled(_LONE_USER).match(text, begin)
    # Of other schemes the user is a name, and hex digits are an id.
    if (
        lone
        and text.startswith("http", max(0, at - 5))
        and is_random(lone[1], 20)
        and not _compiled(_HEX).match(lone[1])
    ):
        return Finding("url-password", lone.start(1), lone.end(1), 0.85, "address")
    match = _compiled(_AUTHORITY).match(text, begin)
    scheme = _compiled(_SCHEME).search(text[max(0, at - 32) : at])
    if not match or not scheme:
        return None
    user, password, host = match.groups()
    name = scheme[0].lower()
    is_numbered = password.split("@")[0].isdigit() and len(password) < 6  # rather a port
    # `cvs://:pserver:…`, `github://org:repo@…`: other things that are written with colons.
    is_name = (not user and ":" in password) or (len(password) < 5 and password.isalpha() and password.islower())
    if (
        is_numbered
        or is_name
        or password.lower() in (user.lower(), name)
        or is_placeholder(password)
        or "://" in password
    ):
        return None
    if (
        host.lower().endswith(_EXAMPLES)
        or ("{" in password and "}" in password)
        or "%(" in password
        or "$" in password[:1]
    ):
        return None
    confidence = 0.85 if name in _WEB else 0.9
    return Finding(
        "url-password" if name in _WEB else "connection-string", match.start(2), match.end(2), confidence, "address"
    )
