"""Passwords next to a user name or in a credential header.

They occur in commands and calls (`curl -u shop:…`, `Credentials("shop", "…")`, "login: shop / …"),
in URLs with a user and a password (RFC 3986, 3.2.1), in `Authorization: Basic` and `Bearer` (RFC
7617, RFC 6750), and in a registry's `"auth"`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final

from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.key_names import promise_of
from confide_proxy.sealing.detection.plausibility import (
    Context,
    is_placeholder,
    is_random,
    is_sample,
    is_wordy,
    judge_value,
)
from confide_proxy.sealing.detection.prefilter import compile_once, places

_QUOTED: Final = r"(?P<quote>[\"']?)(?P<value>[^\s\"']{4,200})(?P=quote)"
_VALUE: Final = rf"{_QUOTED}(?=\s|$|\))"
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
"""Expressions for the text after a command's name; the group `value` is the password."""
_CALL: Final = r"\(?[\"'][^\"'\n]{1,80}+[\"'],[ \t]{0,4}[\"'](?P<value>[^\"'\s]{5,200}+)[\"']"
_CALLS: Final = ("auth=(", "Auth(", "Credential(", "Credentials(", ".login(")
_SQL: Final = r"[\"'](?P<value>[^\"'\s]{5,200}+)[\"']"
_SAID: Final = r"s?(?:[ \t]{0,4}:|[ \t]is)[ \t]{0,4}[\"'`]?[\w.@+-]{1,60}+[\"'`]?[ \t]{0,3}[/|:][ \t]{0,3}(?P<value>[^\s\"'`/]{6,100}+)"
_SAYINGS: Final = ("creds", "credential", "login", "/password", "/pass", "/pw")
_LONGEST_COOKIE: Final = 4096
_COOKIE: Final = (
    r"(?<![\w.-])[\w.-]{0,20}?(?:session|sess|sid|auth|token|jwt|login|remember)[\w.-]{0,20}+="
    r"(?P<value>[A-Za-z0-9%._~+/=-]{20,2000}+)"
)
_WITH: Final = {
    "log in as ": rf"[\w.@-]{{1,60}} with (?:the )?(?:password )?{_VALUE}",
    "login as ": rf"[\w.@-]{{1,60}} with (?:the )?(?:password )?{_VALUE}",
    "admin / ": _VALUE,
    "root / ": _VALUE,
    "echo ": rf"(?:-n[ \t]+)?{_QUOTED}[ \t]*\|[ \t]*sudo[ \t]+-S",
}
_SEED: Final = r"[\w -]{0,20}?[ \t]{0,3}(?::|=|[ \t]is)[ \t]{0,3}[\"'`]?(?P<value>[A-Z2-7]{16,64})(?![A-Za-z0-9])"
_SEEDS: Final = ("2fa", "totp", "mfa", "authenticator")
_BARE_KEY: Final = r"[\"']?[ \t]{0,3}(?::|=|[ \t]is)?[ \t]{0,3}[\"'`]?(?:0x)?(?P<value>[0-9a-fA-F]{64})(?![0-9a-zA-Z])"
_BARE_KEYS: Final = ("private key", "privatekey", "private_key")
_PGPASS: Final = r"^[\w.*-]{1,100}:(?:\d{4,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<value>\S{6,100})$"

_URL_MARK: Final = "://"
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]{1,30}$"
_AUTHORITY: Final = (
    # The password may contain an unescaped "@" or "#": the host follows the last "@" before the
    # path.
    r"([^\s:/?#@\"'`<>\\|]{0,100}+):([^\s/\"'`<>\\|]{3,200})@(\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9_.*-]{1,200}+)(?=[:/?#,\s\"'`)\]};<>\\|]|$|\.\s|\.$)"
)
_LONE_USER: Final = r"([A-Za-z0-9_-]{20,255}+)@[A-Za-z0-9.-]{4,200}"
"""A token instead of the user name, as GitHub and others accept."""
_HEX: Final = r"[0-9a-f]+$"
_WEB: Final = frozenset({"http", "https", "ftp", "git", "svn", "ws", "wss", "git+https", "ftps", "ssh", "sftp"})
_EXAMPLES: Final = ("example.com", "example.org", "example.net", ".example", "foo.com", "bar.com")
"""Host names reserved for documentation (RFC 2606, 3), or used for it."""
_NO_HOSTS: Final = frozenset(
    {
        "host",
        "hostname",
        "hostspec",
        "myhost",
        "server",
        "servername",
        "myserver",
        "address",
        "ip",
        "dbhost",
        "db_host",
        "somehost",
    }
)
"""Host names that are placeholders, so the password beside one is a placeholder too."""
_FLAGS: Final = re.IGNORECASE | re.ASCII
_BASIC: Final = r"basic(?:[ \t]|%20|\\u0020){1,3}([A-Za-z0-9+/_-]{8,400}+={0,2})(?![A-Za-z0-9])"
_BEARER: Final = r"(?:[ \t]|%20|\\u0020){1,3}(?:token=)?[\"']?([A-Za-z0-9_~+/.=:-]{16,4000}+)(?![A-Za-z0-9])"
_SCHEMES: Final = (
    r"authorization[\\\"'\])]{0,4}[ \t]{0,4}[:=,][ \t]{0,4}[\\\"'`f]{0,4}"
    r"(?:token|apikey|api-key|ssws|sso-key|geniekey)(?![a-z])"
)
_DOCKER: Final = r"\"auth\"\s{0,4}:\s{0,4}\"([A-Za-z0-9+/]{8,400}+={0,2})\""
_RFC_EXAMPLE: Final = "open sesame"
"""Aladdin's password in RFC 7617, which many documents quote."""


def find(text: str, lowered: str) -> Iterator[SecretFinding]:
    for command, expression in _COMMANDS.items():
        for match in _behind(text, command, expression):
            user = match["user"] if "user" in match.re.groupindex else ""
            # Digits alone are more likely a port: `ssh -p 2222`.
            if not is_placeholder(match["value"]) and match["value"] != user and not match["value"].isdecimal():
                yield SecretFinding("password", *match.span("value"), 0.85, "login")
    for call in _CALLS:
        yield from _plausible(_behind(text, call, _CALL), "call")
    yield from _plausible(_behind(text, "identified by ", _SQL, lowered), "call")
    for saying in _SAYINGS:
        yield from _plausible(_behind(text, saying, _SAID, lowered), "spoken")
    if ":5432:" in text or ":*:" in text:
        yield from _plausible(compile_once(_PGPASS, re.MULTILINE).finditer(text), "sign")


def find_in_sayings(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield session cookies, seeds of one-time codes (RFC 6238), private keys without their first
    and last lines, and passwords in a sentence or a shell pipe.
    """
    for mark, expression in _WITH.items():
        yield from _plausible(_behind(text, mark, expression, lowered), "spoken")
    for kind, marks, expression in (("totp-seed", _SEEDS, _SEED), ("private-key", _BARE_KEYS, _BARE_KEY)):
        for match in (match for mark in marks for match in _behind(text, mark, expression, lowered)):
            if len(set(match["value"])) >= 8 and not is_wordy(match["value"]) and not is_sample(match["value"]):
                yield SecretFinding(kind, *match.span("value"), 0.8, "login")
    for begin, end in _cookies(text, lowered):
        for match in compile_once(_COOKIE, re.IGNORECASE).finditer(text, begin, end):
            if is_random(match["value"].rstrip("="), 20) and not is_placeholder(match["value"]):
                yield SecretFinding("session-cookie", *match.span("value"), 0.8, "header")


def _cookies(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines that may hold cookies, without overlaps."""
    begin = end = -1
    for at in places(lowered, "cookie:"):
        if at > end:
            if end >= 0:
                yield begin, end
            begin = at
        line_end = text.find("\n", max(at, end), at + _LONGEST_COOKIE)
        end = line_end if line_end >= 0 else at + _LONGEST_COOKIE
    if end >= 0:
        yield begin, end


def _behind(text: str, mark: str, expression: str, lowered: str | None = None) -> Iterator[re.Match[str]]:
    for at in places(text if lowered is None else lowered, mark):
        if match := compile_once(expression, re.MULTILINE).match(text, at + len(mark)):
            yield match


def _plausible(matches: Iterator[re.Match[str]], how: str) -> Iterator[SecretFinding]:
    promise = promise_of("password")
    for match in matches:
        if promise and judge_value(
            match["value"], "password", promise, Context(how, is_quoted=how == "call", is_line=False)
        ):
            yield SecretFinding("password", *match.span("value"), 0.75, "login")


def find_in_urls(text: str) -> Iterator[SecretFinding]:
    for at in places(text, _URL_MARK):
        begin = at + len(_URL_MARK)
        # Most URLs have no "@" near: searching for it costs less than the expression.
        if text.find("@", begin, begin + 400) >= 0 and (found := _url_password(text, at, begin)):
            yield found


def _url_password(text: str, at: int, begin: int) -> SecretFinding | None:
    lone = compile_once(_LONE_USER).match(text, begin)
    # In other schemes the user is a name; hex digits are an id.
    if (
        lone
        and text.startswith("http", max(0, at - 5))
        and is_random(lone[1], 20)
        and not compile_once(_HEX).match(lone[1])
    ):
        return SecretFinding("url-password", lone.start(1), lone.end(1), 0.85, "address")
    match = compile_once(_AUTHORITY).match(text, begin)
    scheme = compile_once(_SCHEME).search(text[max(0, at - 32) : at])
    if not match or not scheme:
        return None
    user, password, host = match.groups()
    name = scheme[0].lower()
    is_numbered = password.split("@")[0].isdigit() and len(password) < 6  # more likely a port
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
        or host.lower() in _NO_HOSTS
        or ("{" in password and "}" in password)
        or "%(" in password
        or "$" in password[:1]
    ):
        return None
    confidence = 0.85 if name in _WEB else 0.9
    return SecretFinding(
        "url-password" if name in _WEB else "connection-string", match.start(2), match.end(2), confidence, "address"
    )


def find_in_headers(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each credential of an HTTP header or a registry configuration. `lowered` is the text in
    lower case with the same positions.
    """
    for at in _at_words(lowered, "basic"):
        if (match := compile_once(_BASIC, _FLAGS).match(text, at)) and _is_pair(match[1]):
            yield SecretFinding("basic-auth", *match.span(1), 0.9, "header")
    carried = [at + len("bearer") for at in _at_words(lowered, "bearer")]
    for at in _at_words(lowered, "authorization"):
        if scheme := compile_once(_SCHEMES, _FLAGS).match(text, at):
            carried.append(scheme.end())
    for at in carried:
        match = compile_once(_BEARER, _FLAGS).match(text, at)
        if match and not is_sample(match[1]) and not is_placeholder(match[1]) and is_random(match[1].rstrip("=")):
            yield SecretFinding("bearer-token", *match.span(1), 0.85, "header")
    if '"auth"' in text:
        for match in compile_once(_DOCKER, re.ASCII).finditer(text):
            if _is_pair(match[1]):
                yield SecretFinding("basic-auth", *match.span(1), 0.9, "header")


def _at_words(text: str, mark: str) -> Iterator[int]:
    return (at for at in places(text, mark) if at == 0 or not text[at - 1].isalnum())


def _is_pair(value: str) -> bool:
    """Return True for base64 of a user name and a password."""
    try:
        pair = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if {"-", "_"} & set(value) else None)
        user, colon, password = pair.decode("utf-8").partition(":")
    except ValueError:
        return False
    is_pair = bool(colon and password) and pair.decode("utf-8").isprintable()
    return is_pair and user.lower() != password.lower() and not is_placeholder(password) and password != _RFC_EXAMPLE
