"""Finding credentials in a text: a cheap look first, then only those detectors whose marks are there.

The cost grows with the text's length and nothing else: no expression may run further than the bound it names, so that a text made to be
hard (a megabyte of `eyJ`) costs no more than a multiple of any other. Nothing is imported or compiled before a text gives a reason to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confide_proxy.secrets.finding import Finding

REPEATED_FROM = 0.75
REPEATED_CHARS = 8
"""A shorter password may be a word that stands elsewhere for something else."""
LONGEST_REPEATED = 4096
SHORTEST_TOKEN = 20
"""An AWS access key id; no other token of a known form is shorter."""
REASONS = (
    *(
        "pass",
        "pwd",
        "token",
        "secret",
        "key",
        "credential",
        "pw",
        "jwt",
        "_pat",
        "psk",
        "contrase",
        "kennwort",
        "senha",
        "wachtwoord",
    ),
    *(
        "motdepasse",
        "basic",
        "bearer",
        "auth",
        "://",
        "curl ",
        "wget ",
        "http ",
        "skopeo ",
        "mysql",
        "redis-cli ",
        "login",
        "cred",
    ),
    *("identified by ", ":5432:", ":*:"),
)
"""What each detector but that of tokens begins with, in lower case; tests hold every one of its findings against this."""


def scan(text: str, least: float = 0.0) -> list[Finding]:
    """The credentials in a text, in its order, none over another.

    Args:
        least: the confidence (0 to 1) from which on they count; from 0.5 on, lone random strings are not even looked for.
    """
    text = plain(text)
    lowered = lower(text)
    if not gives_reason(lowered):
        return []
    from confide_proxy.secrets import addresses, assignments, headers, jwt, logins, lone_strings, private_keys, tokens
    from confide_proxy.secrets.finding import resolved

    found = [
        *tokens.find(text),
        *private_keys.find(text),
        *jwt.find(text),
        *addresses.find(text),
        *headers.find(text, lowered),
        *logins.find(text, lowered),
        *assignments.find(text, lowered),
    ]
    if least <= lone_strings.CONFIDENCE:
        found += lone_strings.find(text)
    found = [each for each in found if each.confidence >= least]
    return resolved([*found, *_repeated(text, found)])


def _repeated(text: str, found: list[Finding]) -> Iterator[Finding]:
    """The same values where nothing says what they are: a password that is set in one line and used in another."""
    from confide_proxy.secrets.finding import Finding
    from confide_proxy.secrets.plausibility import is_unmistakable
    from confide_proxy.secrets.repeats import Repeats
    from confide_proxy.secrets.tokens import starts_word

    values: dict[str, Finding] = {}
    for each in found:
        value = text[each.start : each.end]
        is_long = REPEATED_CHARS <= each.length <= LONGEST_REPEATED
        if each.confidence >= REPEATED_FROM and is_long and value not in values and is_unmistakable(value):
            values[value] = each
    if not values:
        return
    places = Repeats(values).find(text, lambda at: starts_word(text, at), lambda at: not text[at : at + 1].isalnum())
    for start, end in places:
        first = values[text[start:end]]
        yield Finding(first.kind, start, end, first.confidence, "repeated", first.prefix)


def gives_reason(lowered: str) -> bool:
    """Whether a text in lower case may hold a credential at all: a telling word, or a word as long as the shortest token."""
    return any(reason in lowered for reason in REASONS) or any(len(word) >= SHORTEST_TOKEN for word in lowered.split())


def lower(text: str) -> str:
    """The text in lower case with every character where it was: the one letter that becomes two, `İ`, is taken for an `I`."""
    return text.replace("\u0130", "I").lower()


def plain(text: str) -> str:
    """The text with the blanks and signs of other keyboards as those of ASCII, every character where it was: web pages and word
    processors put no-break spaces behind a colon, and some editors a byte order mark before a text."""
    return text if text.isascii() else text.translate(_PLAIN)


_PLAIN = {
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200C), 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF), " "),
    **{0xFF1A: ":", 0xFF1D: "=", 0xFF5C: "|", 0x2028: "\n", 0x2029: "\n", 0x85: "\n"},
    **{0x201C: '"', 0x201D: '"', 0x201E: '"', 0x2018: "'", 0x2019: "'", 0x201A: "'"},
}
"""Quotes as well: word processors make them curly, and a password between such is in quotes all the same."""
