"""Passwords beside a user's name, with nothing that calls them so: `curl -u shop:…`, `Credentials("shop", "…")`, "login: shop / …"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.names import promise_of
from confide_proxy.secrets.placeholders import is_placeholder
from confide_proxy.secrets.plausibility import Place, judged

_VALUE: Final = r"(?P<quote>[\"']?)(?P<value>[^\s\"']{4,200})(?P=quote)(?=\s|$|\))"
_PAIR: Final = r"(?P<user>[^\s:\"']{1,80}):(?P<value>[^\s\"']{4,200})"
_OPTIONS: Final = r"[^\n]{0,400}?[ \t]"
_COMMANDS: Final = {
    "curl ": rf"{_OPTIONS}(?:-u|--user)(?:[ \t]+|=)(?P<quote>[\"']?){_PAIR}(?P=quote)(?=\s|$)",
    "wget ": rf"{_OPTIONS}--(?:http-|ftp-)?password=?{_VALUE}",
    "http ": rf"{_OPTIONS}(?:-a|--auth)[ \t]+{_PAIR}(?=\s|$)",
    "skopeo ": rf"{_OPTIONS}--(?:src-|dest-)?creds(?:[ \t]+|=){_PAIR}(?=\s|$)",
    "sshpass ": rf"-p[ \t]*{_VALUE}",
    "mysql": rf"(?:dump|admin|import)?[ \t]{_OPTIONS}-p(?P<value>[^\s\"'=-][^\s\"']{{4,100}})(?=\s|$)",
    "redis-cli ": rf"(?:{_OPTIONS})?-a[ \t]+{_VALUE}",
    " login ": rf"(?:{_OPTIONS})?-p[ \t]+{_VALUE}",
    "-pass": rf"(?:in|out)?[ \t]+pass:{_VALUE}",
}
"""What stands behind the name of a command; `value` is the password."""
_CALL: Final = r"\(?[\"'][^\"'\n]{1,80}+[\"'],[ \t]{0,4}[\"'](?P<value>[^\"'\s]{5,200}+)[\"']"
_CALLS: Final = ("auth=(", "Auth(", "Credential(", "Credentials(", ".login(")
_SQL: Final = r"[\"'](?P<value>[^\"'\s]{5,200}+)[\"']"
_SAID: Final = r"s?(?:[ \t]{0,4}:|[ \t]is)[ \t]{0,4}[\"'`]?[\w.@+-]{1,60}+[\"'`]?[ \t]{0,3}[/|:][ \t]{0,3}(?P<value>[^\s\"'`/]{6,100}+)"
_SAYINGS: Final = ("creds", "credential", "login", "/password", "/pass", "/pw")
_PGPASS: Final = r"^[\w.*-]{1,100}:(?:\d{4,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<value>\S{6,100})$"


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.MULTILINE)


def find(text: str, lowered: str) -> Iterator[Finding]:
    """Every such password."""
    for command, expression in _COMMANDS.items():
        for match in _behind(text, command, expression):
            user = match["user"] if "user" in match.re.groupindex else ""
            # Digits alone are rather a port: `ssh -p 2222`.
            if not is_placeholder(match["value"]) and match["value"] != user and not match["value"].isdecimal():
                yield Finding("password", *match.span("value"), 0.85, "login")
    for call in _CALLS:
        yield from _plausible(_behind(text, call, _CALL), "call")
    yield from _plausible(_behind(text, "identified by ", _SQL, lowered), "call")
    for saying in _SAYINGS:
        yield from _plausible(_behind(text, saying, _SAID, lowered), "spoken")
    if ":5432:" in text or ":*:" in text:
        yield from _plausible(_compiled(_PGPASS).finditer(text), "sign")


def _behind(text: str, mark: str, expression: str, lowered: str | None = None) -> Iterator[re.Match[str]]:
    """The matches right behind a mark."""
    searched = text if lowered is None else lowered
    at = searched.find(mark)
    while at >= 0:
        begin = at + len(mark)
        if match := _compiled(expression).match(text, begin):
            yield match
        at = searched.find(mark, begin)


def _plausible(matches: Iterator[re.Match[str]], how: str) -> Iterator[Finding]:
    promise = promise_of("password")
    for match in matches:
        if promise and judged(match["value"], "password", promise, Place(how, is_quoted=how == "call", is_line=False)):
            yield Finding("password", *match.span("value"), 0.75, "login")
