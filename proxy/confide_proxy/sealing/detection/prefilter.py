"""Whether a text is worth a closer look at all: most are not, and nothing is imported or compiled for them.

Here stands what each detector begins with, and how it looks for that. Tests hold every finding against it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from functools import cache
from typing import Final

NAME_MARKS: Final = (
    *("pass", "pwd", "token", "secret", "key", "credential", "pw", "jwt", "_pat", "psk"),
    *("contrase", "kennwort", "senha", "wachtwoord", "motdepasse"),
)
"""Of names that tell what stands behind them (`assignments`), in lower case."""
FOREIGN_MARKS: Final = (
    *(
        "contrase",
        "clave",
        "mot de passe",
        "mots de passe",
        "motdepasse",
        "kennwort",
        "passwort",
        "senha",
        "palavra-passe",
        "wachtwoord",
    ),
    *(
        "password",
        "parola",
        "hasło",
        "heslo",
        "lösenord",
        "adgangskode",
        "salasana",
        "şifre",
        "jelszó",
        "lozinka",
        "geslo",
        "kata sandi",
    ),
    *(
        "mật khẩu",
        "κωδικ",
        "парол",
        "סיסמ",
        "كلمة المرور",
        "كلمة السر",
        "पासवर्ड",
        "密码",
        "密碼",
        "口令",
        "パスワード",
        "비밀번호",
        "암호",
    ),
)
"""The word for a password in other languages, in lower case; as in some of those the English one is used (`languages`)."""
_MARKS: Final = (
    *NAME_MARKS,
    *FOREIGN_MARKS,
    *("basic", "bearer", "auth", "://", "curl ", "wget ", "http ", "skopeo ", "mysql", "redis-cli ", "login", "cred"),
    *(
        "identified by ",
        ":5432:",
        ":*:",
        "cookie:",
        "2fa",
        "totp",
        "mfa",
        "log in as ",
        "admin / ",
        "root / ",
        "sudo -s",
    ),
)
"""Of all detectors but that of tokens, in lower case."""
_FOUR_GROUPS: Final = 48
"""Characters of four groups of five, with room for double blanks, dashes, the ends of quoted lines and their numbers."""
_GROUP: Final = re.compile(r"[0-9a-z]+")
PHRASE: Final = (
    # One after another, with commas, in quotes, in lines, or as a numbered list.
    r"(?<![a-z])[a-z]{3,8}+"
    r"(?:(?:[ \t]{1,3}|,[ \t]{1,3}|[ \t]{0,3},?\r?\n[ \t>*-]{0,8}|[\"'],\s{1,8}[\"'])(?:\d{1,2}[.):][ \t]{0,2})?[a-z]{3,8}+){11,47}+"
)
_PHRASE: Final = 12
_AROUND_WORDS: Final = "\"'`,.:()[]>*-"
SHORTEST_TOKEN: Final = 20
"""An AWS access key id; no other token of a known form is shorter."""
_DAY: Final = re.compile(r"memory/\d{4}-\d\d-\d\d\.md")
"""The file of a day, whose name is as long, and which nearly every store names."""


def gives_reason(lowered: str) -> bool:
    """Whether a text in lower case may hold a credential at all: a telling word, a word as long as the shortest token that is not the name
    of a day's file, a recovery code in its groups, or so many short words in a row as a seed phrase has."""
    if is_telling(lowered):
        return True
    words = lowered.split()
    return (
        any(len(word) >= SHORTEST_TOKEN and not _DAY.fullmatch(word) for word in words)
        or may_be_phrase(words)
        or ("cr" in lowered and any(_are_groups(lowered, at) for at in places(lowered, "cr")))
    )


def may_be_phrase(words: list[str], known: Container[str] | None = None) -> bool:
    """Whether among a text's words twelve of three to eight letters may stand in a row, which prose has in some paragraphs; or twelve
    that are `known`, which it has hardly ever.

    Only every twelfth word is looked at, and what stands around it where that one fits.
    """
    for middle in range(_PHRASE - 1, len(words), _PHRASE):
        if not _fits_phrase(words[middle], known):
            continue
        first, last = middle, middle + 1
        while first and last - first < _PHRASE and _fits_phrase(words[first - 1], known):
            first -= 1
        while last < len(words) and last - first < _PHRASE and _fits_phrase(words[last], known):
            last += 1
        if last - first >= _PHRASE:
            return True
    return False


def _fits_phrase(word: str, known: Container[str] | None) -> bool:
    """Also a number, or the sign before an item."""
    bare = word if word.isalpha() else word.strip(_AROUND_WORDS)
    if bare.isalpha():
        return 3 <= len(bare) <= 8 and (known is None or bare.lower() in known)
    return len(bare) <= 2 and (bare.isdigit() or not bare)


def _are_groups(lowered: str, at: int) -> bool:
    """Whether four groups of five begin there, as a recovery code has them, whatever stands between."""
    # A group has no single character: that is the number of a line.
    groups = [group for group in _GROUP.findall(lowered[at : at + _FOUR_GROUPS]) if len(group) > 1][:4]
    return len(groups) == 4 and all(len(group) == 5 for group in groups)


def is_telling(lowered: str) -> bool:
    """Whether a text in lower case has a telling word: without one only what is known by its form can be in it (`tokens`)."""
    return any(mark in lowered for mark in _MARKS)


@cache
def compiled(expression: str, flags: int = 0) -> re.Pattern[str]:
    """An expression, compiled when a text gives the first reason to."""
    return re.compile(expression, flags)


def places(text: str, mark: str) -> Iterator[int]:
    """Where the mark stands, none over another. Searches for single strings are ten times as fast as one expression for all of them."""
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def lower(text: str) -> str:
    """The text in lower case with every character where it was: the one letter that becomes two, `İ`, is taken for an `I`."""
    return text.replace("\u0130", "I").lower()


def plain(text: str) -> str:
    """The text with the blanks and signs of other keyboards as those of ASCII, every character where it was: web pages and word
    processors put no-break spaces behind a colon. What nobody sees at all is left out before (`decoding.visible`)."""
    return text if text.isascii() else text.translate(_PLAIN)


_PLAIN = {
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **{0xFF1A: ":", 0xFF1D: "=", 0xFF5C: "|", 0x2028: "\n", 0x2029: "\n", 0x85: "\n"},
    **{0x201C: '"', 0x201D: '"', 0x201E: '"', 0x2018: "'", 0x2019: "'", 0x201A: "'"},
}
"""Quotes as well: word processors make them curly, and a password between such is in quotes all the same."""
