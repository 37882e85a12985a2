"""Finding credentials in a text: a cheap look first, then only those detectors whose marks are there.

The cost grows with the text's length and nothing else: no expression may run further than the bound it names, so that a text made to be
hard (a megabyte of `eyJ`) costs no more than a multiple of any other. Nothing is imported or compiled before a text gives a reason to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide_proxy.secrets.finding import Finding

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
    return resolved([each for each in found if each.confidence >= least])


def gives_reason(lowered: str) -> bool:
    """Whether a text in lower case may hold a credential at all: a telling word, or a word as long as the shortest token."""
    return any(reason in lowered for reason in REASONS) or any(len(word) >= SHORTEST_TOKEN for word in lowered.split())


def lower(text: str) -> str:
    """The text in lower case with every character where it was: the one letter that becomes two, `İ`, is taken for an `I`."""
    return text.replace("\u0130", "I").lower()
