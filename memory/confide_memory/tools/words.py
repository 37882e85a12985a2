"""Tokenization for search, on a device and on its daemon: folding of letters, detection of names,
and additional index terms.

Letters that look or sound alike are folded into one: compatibility forms (full width, ligatures,
half-width Kana), invisible marks (soft hyphens, zero-width characters), letters with another
spelling (ß and ss, đ and d, ё and е, a Greek vowel with or without its accent). FTS5 itself removes
accents from Latin letters.

Names from programs (symbols, error codes, paths, versions, ids) are distinguished from words, and
split into their parts. Scripts without blanks between words are indexed as pairs of neighbouring
characters: FTS5's `unicode61` treats a whole run of Han, Kana, Hangul or Thai letters as one word,
so a word inside it would never be found (Lucene's CJKAnalyzer does the same).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

# Soft hyphen, zero-width spaces and joiners, marks of direction, byte order mark, variation
# selectors, Arabic's lengthening.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_WRITTEN = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE",
     "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "ħ": "h", "Ħ": "H", "ŧ": "t", "Ŧ": "T", "ı": "i", "ŋ": "n", "ё": "е", "Ё": "Е",
     "ς": "σ", "أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه"}
)  # fmt: skip
# Letters whose marks are not significant: Latin with several, Greek with accents; vowel points of
# Hebrew and Arabic.
_MARKED = re.compile("[\u0370-\u03ff\u1e00-\u1fff]")
_POINTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Å": "Aa"})
# Spellings in German names and words, but not in "queue", "value" or "toe".
_SPELLED_OUT = re.compile(r"(?<![aeiouq])(ae|oe|ue)(?=[a-z])")


def fold(text: str) -> str:
    """Return the text with one spelling of each letter, where FTS5 does not do that itself. Words
    keep their order.
    """
    if text.isascii():
        return text
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).translate(_WRITTEN)
    if _MARKED.search(text):
        text = "".join(_plain(letter) if _MARKED.match(letter) else letter for letter in text).translate(_WRITTEN)
    return _POINTS.sub("", text)


def _plain(letter: str) -> str:
    return _POINTS.sub("", unicodedata.normalize("NFD", letter))


def spelled_otherwise(word: str) -> str | None:
    """Return a word with ae, oe, ue for ä, ö, ü, or the reverse; None if it has no other spelling."""
    out = word.translate(_UMLAUTS)
    if out != word:
        return out
    if word.isascii() and len(word) > SHORTEST_SPELLED and _SPELLED_OUT.search(word):
        return _SPELLED_OUT.sub(lambda pair: {"ae": "ä", "oe": "ö", "ue": "ü"}[pair[0]], word)
    return None


SHORTEST_SPELLED = 4
# Words joined by the punctuation of identifiers, paths, versions and addresses.
COMPOUND = re.compile(r"\w+(?:[.:/\\@#+\->]+\w+)*")
# A word as FTS5's `unicode61` sees it: letters and digits only.
PLAIN = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*|[0-9]+")
# Both patterns begin with the rarest letter, which makes a search through a text fast.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|[A-Z][a-z])")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_VERSION = re.compile(r"[vV](?<=\b[vV])(\d+(?:\.\d+)+)")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th|s|k|m|am|pm|x|h|d)", re.IGNORECASE)
SHORTEST_MIXED = 4  # characters of mixed letters and digits: `s01` says little, `utf8` names something


def humps(word: str) -> list[str]:
    """Return the parts of a word in camel case, in lower case: getUserById gives get, user, by, id.
    Empty for any other word.
    """
    if not _HUMP.search(word) or not word.isascii():
        return []
    found = [part.lower() for part in _HUMPS.findall(word)]
    return found if len(found) > 1 else []


def parts(compound: str) -> list[str]:
    """Return the words into which FTS5 splits a compound, in lower case."""
    return [word.lower() for word in PLAIN.findall(compound)]


def is_name(compound: str) -> bool:
    """Return True if a compound looks like the name of a thing, which is searched exactly, not like
    a word of a sentence.
    """
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
    # GitHub and iPhone are proper names, for which texts use other spellings too.
    return len(found) > 2 or (len(found) == 2 and compound[:2].islower())


# A commit hash or similar: hexadecimal, with a letter directly after a digit, unlike tickets and
# versions.
_HASH = re.compile(r"(?=.*\d[a-f])[0-9a-f]{6,64}")
# Lengths to which programs shorten a hash; a query with the full hash also searches for these.
SHORT_HASH = range(7, 13)
_DIGITS = re.compile(r"\d+")
MANY_DIGITS = 4  # digits in a word with letters: INC0042 is one thing, sha256 a kind of things


def is_hash(word: str) -> bool:
    """Return True if a word looks like a hash or the beginning of one."""
    return _HASH.fullmatch(word) is not None


def may_go_on(word: str) -> bool:
    """Return True if a name that ends in this word may be searched as a prefix: a longer number is
    another number.
    """
    return not word[-1].isdigit() or is_hash(word)


def is_identifier(compound: str) -> bool:
    """Return True if a name identifies one of many things, so that a text without it is about
    another: a ticket, an address, a hash.
    """
    words = parts(compound)
    numbers = [word for word in words if word.isdecimal()]
    if len(numbers) > 1 or any(len(number) > 1 for number in numbers):
        return len(words) > 1 and is_name(compound)
    return any(is_hash(word) or len("".join(_DIGITS.findall(word))) >= MANY_DIGITS for word in words)


def beside(compound: str) -> list[str]:
    """Return other spellings as word sequences: the parts of camel case, a version without its v, a
    note's name without its extension.
    """
    others = [" ".join(found) for word in PLAIN.findall(compound) if (found := humps(word))]
    version = _VERSION.fullmatch(compound)
    if version:
        others.append(" ".join(parts(version[1])))
    if compound.endswith(".md"):
        others.append(" ".join(parts(compound)[:-1]))
    return others


def others_in(text: str) -> list[str]:
    """Return the other spellings of the names in a text, as word sequences."""
    # The check is fast since most texts have no such names, nor do most of their words: a search
    # reads a hundred texts.
    words = _ASCII_WORD.findall(text) if _HUMP.search(text) else []
    others = [" ".join(found) for word in words if not word.islower() and (found := humps(word))]
    return others + [" ".join(parts(version)) for version in _VERSION.findall(text)]


# Thai and Lao, Burmese, Hangul letters, Khmer, Kana and related marks, Han, Hangul, half-width
# Kana, Han beyond the first plane.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
RUN = re.compile(f"[{UNSPACED}]+")


def runs(text: str) -> list[str]:
    """Return the runs of letters of scripts without blanks. Marks above or below letters are left
    out, since FTS5 splits words at them.
    """
    found = ("".join(character for character in run if character.isalnum()) for run in RUN.findall(text))
    return [run for run in found if run]


def bigrams(run: str) -> list[str]:
    """Return the pairs of neighbouring letters of a run, in order; a run of one letter gives
    itself.
    """
    return [one + other for one, other in pairwise(run)] or [run]


def indexed(run: str) -> list[str]:
    """Return the index terms of a run: its pairs, and its last letter, so that every single letter
    begins a term.
    """
    return [*bigrams(run), run[-1]] if len(run) > 1 else [run]


def index_words(text: str) -> str:
    """Return the terms to index beside a chunk's text, for the parts of what FTS5 treats as one
    word.

    These are the parts of camel case, versions without their v, and pairs of letters in scripts
    without blanks. When this changes, `ChunkSettings.name` must change too: then the rows of older
    documents are rebuilt in the background.
    """
    return " ".join(dict.fromkeys(_beside(text)))


def _beside(text: str) -> Iterator[str]:
    yield from others_in(text)
    if text.isascii():
        return
    plain = fold(text)
    if plain != text:
        as_written = set(parts(unicodedata.normalize("NFC", text)))
        yield from (word for word in parts(RUN.sub(" ", plain)) if word not in as_written)
        yield from others_in(plain)
        text = plain
    if not RUN.search(text):
        return
    for compound in COMPOUND.findall(text):
        if RUN.search(compound):
            yield from parts(RUN.sub(" ", compound))
    for run in runs(text):
        # One entry for each run: its pairs must stay neighbours, or a word of three letters would
        # not be found.
        yield " ".join(indexed(run))
