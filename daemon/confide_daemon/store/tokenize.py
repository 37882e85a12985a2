"""What programs name things by: symbols, error codes, paths, versions, ids. How they are told from words, and their parts."""

from __future__ import annotations

import re

# Words joined by the marks that identifiers, paths, versions and addresses are written with.
COMPOUND = re.compile(r"\w+(?:[.:/\\@#+\->]+\w+)*")
# A part as FTS5's `unicode61` sees it: letters and digits only.
PLAIN = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*|[0-9]+")
# Both begin with the rarest letter, to which a search through a text jumps.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|[A-Z][a-z])")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_VERSION = re.compile(r"[vV](?<=\b[vV])(\d+(?:\.\d+)+)")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th|s|k|m|am|pm|x|h|d)", re.IGNORECASE)
SHORTEST_MIXED = 4  # of letters with digits: `s01` says little, `utf8` names something


def humps(word: str) -> list[str]:
    """The parts of a word in camel case, in lower case: getUserById gives get, user, by, id; empty for any other word."""
    if not _HUMP.search(word) or not word.isascii():
        return []
    found = [part.lower() for part in _HUMPS.findall(word)]
    return found if len(found) > 1 else []


def parts(compound: str) -> list[str]:
    """The words that FTS5 makes of it, in lower case."""
    return [word.lower() for word in PLAIN.findall(compound)]


def is_name(compound: str) -> bool:
    """Whether it looks like the name of one thing, to be found as it stands, and not like a word of a sentence."""
    if "_" in compound.strip("_") or "::" in compound or "->" in compound or "@" in compound or "\\" in compound:
        return True
    pieces = parts(compound)
    if _ORDINAL.fullmatch(compound):
        return False
    mixed = any(character.isdigit() for character in compound) and any(character.isalpha() for character in compound)
    if mixed and len(compound) >= SHORTEST_MIXED:
        return True
    if "/" in compound:
        return "." in compound or len(pieces) > 2
    if "." in compound:
        return len(pieces) > 2 or all(len(part) > 1 and not part.isdigit() for part in pieces)
    found = humps(compound)
    # GitHub and iPhone are names of another kind, which a text also writes otherwise.
    return len(found) > 2 or (len(found) == 2 and compound[:2].islower())


def beside(compound: str) -> list[str]:
    """Other ways to write the same, as runs of words: the humps of camel case, a version without its v, a note without its ending."""
    others = [" ".join(found) for word in PLAIN.findall(compound) if (found := humps(word))]
    version = _VERSION.fullmatch(compound)
    if version:
        others.append(" ".join(parts(version[1])))
    if compound.endswith(".md"):
        others.append(" ".join(parts(compound)[:-1]))
    return others


def others_in(text: str) -> list[str]:
    """The other ways to write the names in a text, as runs of words."""
    # Most texts have none, and most words of the others, which matters: a search looks through a hundred.
    words = _ASCII_WORD.findall(text) if _HUMP.search(text) else []
    others = [" ".join(found) for word in words if not word.islower() and (found := humps(word))]
    return others + [" ".join(parts(version)) for version in _VERSION.findall(text)]
