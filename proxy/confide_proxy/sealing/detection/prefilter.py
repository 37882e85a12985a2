"""Check cheaply if a text may contain a credential. Most texts don't, and nothing is imported or
compiled for them.

This module lists the marks, such as `ghp_` or "password", from which each detector starts. Tests
check every finding against them.
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
"""Parts, in lower case, of names that are followed by a credential (`assignments`)."""
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
"""Words for a password in other languages, in lower case, and the English one, which some of them
use (`languages`).
"""
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
"""Marks of all detectors except `tokens`, in lower case."""
_FOUR_GROUPS: Final = 48
"""Characters of four groups of five, with room for double blanks, dashes, line numbers and
quotation marks.
"""
_GROUP: Final = re.compile(r"[0-9a-z]+")
PHRASE: Final = (
    # One after another, with commas, in quotes, in lines, or as a numbered list.
    r"(?<![a-z])[a-z]{3,8}+"
    r"(?:(?:[ \t]{1,3}|,[ \t]{1,3}|[ \t]{0,3},?\r?\n[ \t>*-]{0,8}|[\"'],\s{1,8}[\"'])(?:\d{1,2}[.):][ \t]{0,2})?[a-z]{3,8}+){11,47}+"
)
_PHRASE: Final = 12
_AROUND_WORDS: Final = "\"'`,.:()[]>*-"
SHORTEST_TOKEN: Final = 20
"""Length of an AWS access key id, the shortest token of a known form."""
_DAY: Final = re.compile(r"memory/\d{4}-\d\d-\d\d\.md")
"""The path of a daily note. It is as long as the shortest token, and nearly every store names one.
"""


def gives_reason(lowered: str) -> bool:
    """Return True if a text in lower case may contain a credential, so that it must be searched.

    It may if it contains a mark from which a detector starts, a word as long as the shortest token
    (other than the path of a daily note), a recovery code in groups, or a row of short words as in
    a seed phrase.
    """
    if is_telling(lowered):
        return True
    words = lowered.split()
    return (
        any(len(word) >= SHORTEST_TOKEN and not _DAY.fullmatch(word) for word in words)
        or may_be_phrase(words)
        or ("cr" in lowered and any(_are_groups(lowered, at) for at in places(lowered, "cr")))
    )


def may_be_phrase(words: list[str], known: Container[str] | None = None) -> bool:
    """Return True if the words may include a seed phrase: twelve words of three to eight letters in
    a row.

    Some paragraphs of prose have that. With `known`, all twelve must be in it, which prose hardly
    ever has. Only every twelfth word is checked, and its neighbours if it fits.
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
    """Return True for a word of three to eight letters, a list number or a bullet."""
    bare = word if word.isalpha() else word.strip(_AROUND_WORDS)
    if bare.isalpha():
        return 3 <= len(bare) <= 8 and (known is None or bare.lower() in known)
    return len(bare) <= 2 and (bare.isdigit() or not bare)


def _are_groups(lowered: str, at: int) -> bool:
    """Return True if four groups of five characters begin there, as in a recovery code, with any
    separators.
    """
    # A single character is a line number, not a group.
    groups = [group for group in _GROUP.findall(lowered[at : at + _FOUR_GROUPS]) if len(group) > 1][:4]
    return len(groups) == 4 and all(len(group) == 5 for group in groups)


def is_telling(lowered: str) -> bool:
    """Return True if a text in lower case contains a mark from which a detector starts. Without
    one, it can only contain tokens of a known form (`tokens`).
    """
    return any(mark in lowered for mark in _MARKS)


@cache
def compile_once(expression: str, flags: int = 0) -> re.Pattern[str]:
    """Return the compiled form of a regular expression, which is compiled at its first use."""
    return re.compile(expression, flags)


def places(text: str, mark: str) -> Iterator[int]:
    """Yield each position of `mark`, without overlaps. Searching for single strings is ten times as
    fast as one expression for all.
    """
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def lower(text: str) -> str:
    """Return the text in lower case with all positions kept: `İ`, whose lower case has two
    characters, becomes `i`.
    """
    return text.replace("\u0130", "I").lower()


def plain(text: str) -> str:
    """Return the text with typographic spaces and punctuation as ASCII and all positions kept.

    Web pages and word processors write no-break spaces after a colon. Invisible characters are
    removed before (`decoding.visible`).
    """
    return text if text.isascii() else text.translate(_PLAIN)


_PLAIN = {
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **{0xFF1A: ":", 0xFF1D: "=", 0xFF5C: "|", 0x2028: "\n", 0x2029: "\n", 0x85: "\n"},
    **{0x201C: '"', 0x201D: '"', 0x201E: '"', 0x2018: "'", 0x2019: "'", 0x201A: "'"},
}
"""Quotes included: word processors make them curly."""
