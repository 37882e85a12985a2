"""Tokenization for search, on a device and on its daemon: folding of letters, detection of names,
and additional index terms.

Letters that look or sound alike are folded into one: compatibility forms (full width, ligatures,
half-width Kana), invisible marks (soft hyphens, zero-width characters), letters with another
spelling (ß and ss, đ and d, ё and е, a Greek vowel with or without its accent, Katakana and
Hiragana), digits of other scripts, and Cyrillic or Greek letters inside a Latin word. FTS5 itself
removes accents from Latin letters.

FTS5 splits words at the vowel signs of Indian scripts, and ignores emoji. So each vowel sign is
replaced by a letter of a script that is no longer in use, and each emoji by a word.

Names from programs (symbols, error codes, paths, versions, ids) are distinguished from words, and
split into their parts. Scripts without blanks between words are indexed as pairs of neighbouring
characters. FTS5's `unicode61` treats a whole sequence of Han, Kana, Hangul or Thai letters as one
word, so a word inside it would never be found (Lucene's CJKAnalyzer does the same).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from confide_memory.documents import STOP_WORDS
from confide_memory.tools.written_days import month_numbers, other_forms

# Soft hyphen, zero-width spaces and joiners, marks of direction, byte order mark, variation
# selectors, Arabic's lengthening.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U0001f3fb-\U0001f3ff\U000e0000-\U000e01ef]"
)
_WRITTEN = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE",
     "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "ħ": "h", "Ħ": "H", "ŧ": "t", "Ŧ": "T", "ı": "i", "İ": "I", "ŋ": "n",
     "ё": "е", "Ё": "Е", "ς": "σ", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ئ": "ي", "ے": "ي", "ک": "ك", "ة": "ه",
     "ۀ": "ه", "ہ": "ه", "ھ": "ه", "ۃ": "ه", "ؤ": "و", "ँ": "ं", "ঁ": "ং", "ʼ": "'", "\u2010": "-", "\u2011": "-", "−": "-"}
    | {chr(zero + digit): str(digit) for digit in range(10) for zero in (
        0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040, 0x17E0)}
    | {chr(letter): chr(letter - 0x60) for letter in range(0x30A1, 0x30F7)}
)  # fmt: skip
# Letters whose marks are not significant: Latin with several, Greek with accents; vowel points of
# Hebrew and Arabic, the dot below Indian letters, and any mark that can be stacked.
_MARKED = re.compile("[\u0180-\u024f\u0370-\u03ff\u1e00-\u1fff]")
_POINTS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u064b-\u065f\u0670\u06d6-\u06ed\u08d3-\u08ff\u093c\u09bc\u0a3c\u0abc\u0b3c\u0cbc"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
# Scripts with blanks between words, in which FTS5 splits words at vowel signs. Each sign becomes a
# hieroglyph of Anatolia, which is a letter for FTS5 as for Python.
SIGNED = re.compile("[\u0780-\u07bf\u0900-\u0dff\u0f18-\u0fbc\ua800-\uabff]")
_SIGNS = (*range(0x780, 0x7C0), *range(0x900, 0xE00), *range(0xF18, 0xFBD), *range(0xA800, 0xAC00))
_UNWRITTEN = 0x14400
_FLAGS = "\U0001f1e6-\U0001f1ff"
_EMOJI = re.compile(
    f"[{_FLAGS}]{{2}}|[{_FLAGS}\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f1e5\U0001f200-\U0001faff]"
)
# Groups of three digits with a narrow blank or an apostrophe between them.
_NARROW = re.compile("(?<=[0-9])[\u00a0\u2007\u2009\u202f\u2019](?=[0-9]{3}(?![0-9]))")
# Words with letters of several scripts, and the Cyrillic and Greek letters that look Latin.
_DISGUISED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*[\u0370-\u04ff])\w+")
_LOOKALIKES = str.maketrans(
    "авеһіјкморсԁԛѕтухАВЕНІЈКМОРСЅТУХΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυ", "abehijkmopcdqstyxABEHIJKMOPCSTYXABEZHIKMNOPTYXaikvopu"
)
_FOREIGN = re.compile("[\u0370-\u04ff]")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Å": "Aa"})
# Spellings in German names and words, but not in "queue", "value" or "toe".
_SPELLED_OUT = re.compile(r"(?<![aeiouq])(ae|oe|ue)(?=[a-z])")


def fold(text: str) -> str:
    """Return the text with one spelling for letters that have several, where FTS5 does not unify
    them itself. The order of the words stays.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _NARROW.sub("", text))
    text = _UNSEEN.sub("", text).translate(_WRITTEN)
    if _FOREIGN.search(text):
        text = _DISGUISED.sub(_in_latin, text)
    if _MARKED.search(text):
        text = "".join(_plain(letter) if _MARKED.match(letter) else letter for letter in text).translate(_WRITTEN)
    text = _POINTS.sub("", text)
    if SIGNED.search(text):
        text = text.translate(_letters_of_signs())
    return _EMOJI.sub(_name_of_emoji, text)


def _plain(letter: str) -> str:
    return _POINTS.sub("", unicodedata.normalize("NFD", letter))


def _in_latin(word: re.Match[str]) -> str:
    """Return a word of several scripts in Latin letters if all others only look different."""
    latin = word[0].translate(_LOOKALIKES)
    return word[0] if _FOREIGN.search(latin) else latin


@functools.cache
def _letters_of_signs() -> dict[int, int]:
    signs = [sign for sign in _SIGNS if unicodedata.category(chr(sign)) in ("Mn", "Mc")]
    return {sign: _UNWRITTEN + place for place, sign in enumerate(signs)}


def _name_of_emoji(emoji: re.Match[str]) -> str:
    return f" emoji{''.join(str(ord(part)) for part in emoji[0])} "


def spelled_otherwise(word: str) -> str | None:
    """Return a word with ae, oe, ue instead of ä, ö, ü, or the reverse; None if it has no other
    spelling.
    """
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
_NUMBERED = re.compile(r"([^\W\d_]{1,2})(\d{1,2})")
# Words between the kind of a thing and its number.
OF_NUMBERS = frozenset({"number", "no", "nr", "num", "id", "nummer"})
_VERSION = re.compile(r"[vV](?<=\b[vV])(\d+(?:\.\d+)+)")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th|s|k|m|am|pm|x|h|d)", re.IGNORECASE)
SHORTEST_MIXED = 4  # characters of mixed letters and digits: `s01` says little, `utf8` names something


def humps(word: str) -> list[str]:
    """Split a word in camel case into lower-case parts: getUserById gives get, user, by, id. Empty
    for any other word.
    """
    if not _HUMP.search(word) or not word.isascii():
        return []
    found = [part.lower() for part in _HUMPS.findall(word)]
    return found if len(found) > 1 else []


def parts(compound: str) -> list[str]:
    """Return the lower-case words into which FTS5 splits a compound such as `src/app.py`."""
    return [word.lower() for word in PLAIN.findall(compound)]


def is_name(compound: str) -> bool:
    """Return True if a compound looks like the name of a thing, which is searched exactly, and not
    like an ordinary word.
    """
    if "_" in compound.strip("_") or "::" in compound or "->" in compound or "@" in compound or "\\" in compound:
        return True
    pieces = parts(compound)
    if _ORDINAL.fullmatch(compound):
        return False
    if is_hash(compound):
        return True
    mixed = any(character.isdigit() for character in compound) and any(character.isalpha() for character in compound)
    if mixed and len(compound) >= SHORTEST_MIXED:
        return True
    if "/" in compound:
        return "." in compound or len(pieces) > 2
    if pieces and all(part.isdecimal() for part in pieces):
        return len(pieces) > 1  # 3.11, 10:30, 2024-001
    if "." in compound:
        return len(pieces) > 2 or all(len(part) > 1 and not part.isdigit() for part in pieces)
    found = humps(compound)
    # GitHub and iPhone are proper names, for which texts use other spellings too.
    return len(found) > 2 or (len(found) == 2 and compound[:2].islower())


# A commit hash or similar: hexadecimal, with a letter directly after a digit, unlike tickets and
# versions; or so long that it is no word.
_HASH = re.compile(r"(?=.*\d[a-f])[0-9a-f]{6,128}|(?=.*[a-f])[0-9a-f]{8,128}")
# Lengths to which programs and people shorten a hash; a query with the full hash also searches for
# these.
SHORT_HASH = range(7, 41)
# A hash that begins like a number.
_HASH_OF_DIGITS = re.compile(r"[0-9]{7}(?<![\w-].{7})[0-9]*(?=[0-9a-f]*[a-f])(?=[0-9a-f]{1,121}\b)")
_DIGITS = re.compile(r"\d+")
MANY_DIGITS = 4  # digits in a word with letters: INC0042 is one thing, sha256 a kind of things
# A day, a time, a decimal number or a version without further parts names no single thing.
_LOOSE_NUMBER = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d+[.:/]\d+")


def is_hash(word: str) -> bool:
    """Return True if a word looks like a hash or the beginning of one."""
    return _HASH.fullmatch(word) is not None


def may_go_on(word: str) -> bool:
    """Return True if a name that ends in this word may be searched as a prefix. A number may not,
    since a longer number is a different number.
    """
    return not word[-1].isdigit() or is_hash(word)


def is_identifier(compound: str) -> bool:
    """Return True if a name identifies a single thing among many, such as a ticket, an address or a
    hash. A text without it is about something else.
    """
    words = parts(compound)
    if _LOOSE_NUMBER.fullmatch(compound):
        return False
    numbers = [word for word in words if word.isdecimal()]
    if "@" in compound.strip("@") or len(numbers) > 1 or any(len(number) > 1 for number in numbers):
        return len(words) > 1 and is_name(compound)
    return any(is_hash(word) or len("".join(_DIGITS.findall(word))) >= MANY_DIGITS for word in words)


def numbered_things(compounds: Sequence[str]) -> list[tuple[str, str]]:
    """Return the things in a query that a number distinguishes, such as chapter 3, invoice no. 4472,
    KW 4, Q3 and B12, each as a pair of kind and number in lower case.
    """
    found = [(pair[1].lower(), pair[2]) for one in compounds if (pair := _NUMBERED.fullmatch(one))]
    for kind, number in pairwise(one for one in compounds if one.lower() not in OF_NUMBERS):
        is_kind = kind.isalpha() and kind.lower() not in STOP_WORDS and kind.lower() not in month_numbers()
        if is_kind and number.isdecimal():
            found.append((kind.lower(), number))
    return found


# A number in groups of three digits, and one with its unit.
GROUPED = re.compile(r"[0-9](?<![\w.,'][0-9])[0-9]{0,2}(?:[,.'][0-9]{3})+(?!\w|[.,][0-9])")
# A number with decimals behind a comma, or behind groups.
_DECIMAL = re.compile(
    r"[0-9](?<![\w.,'][0-9])(?:[0-9]{0,2}(?:(?:[,'][0-9]{3})+\.|(?:[.'][0-9]{3})+,)[0-9]{1,4}|[0-9]*,[0-9]{2}|[0-9]+,[0-9])"
    r"(?!\w|[.,][0-9])"
)
_UNIT = re.compile(r"[0-9](?<![\w.][0-9])[0-9]*(?!(?:st|nd|rd|th)\b)[A-Za-z]{1,3}\b")
# Letters that say of what kind a number is: RFC7230, SHOP1234.
_KIND = re.compile(r"\b([A-Za-z]{2,})([0-9]+)\b")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
MOST_JOINED = 40  # letters of a name that is also searched in one word


def other_spellings(compound: str) -> list[str]:
    """Return other spellings of a compound, each as words separated by blanks: the parts of camel
    case, all parts in one word, a version without its v, an address without its scheme, a number
    without its groups, a number apart from its unit or its kind (RFC7230), a note's name without
    its extension.
    """
    # 1B in an address has humps too, and says nothing alone.
    split = (humps(word) for word in PLAIN.findall(compound))
    others = [" ".join(found) for found in split if any(len(part) > 1 and part.isalpha() for part in found)]
    version = _VERSION.fullmatch(compound)
    if version:
        others.append(" ".join(parts(version[1])))
    if scheme := _SCHEME.match(compound):
        others.append(" ".join(parts(compound[scheme.end() :])))
    if compound.endswith(".md"):
        others.append(" ".join(parts(compound)[:-1]))
    if "-" in compound or "_" in compound:
        joined = "".join(parts(compound))
        is_number = joined.isdecimal() or (len(parts(compound)) == 2 and joined[-1].isdigit())
        if len(joined) <= MOST_JOINED and (joined.isalpha() or is_number):
            others.append(joined)
    # Within the whole compound: a part of an address alone would stand for any other address.
    apart = (GROUPED.sub(ungroup, compound), _UNIT.sub(_set_apart, compound), _KIND.sub(r"\1 \2", compound))
    return [*others, *(" ".join(parts(each)) for each in apart if each != compound)]


def ungroup(number: re.Match[str]) -> str:
    """Return the digits of a matched number without the separators between groups, as in 1,000."""
    return re.sub("[^0-9]", "", number[0])


def join_decimals(text: str) -> str:
    """Return the text with each number that has decimals in one spelling: 1,299.00, 1.299,00 and
    1299,00 are 1299.00.
    """
    return _DECIMAL.sub(_with_point, text)


def _with_point(number: re.Match[str]) -> str:
    whole, decimals = re.split("[.,](?=[0-9]+$)", number[0])
    return f"{re.sub('[^0-9]', '', whole)}.{decimals}"


def _numbers_in(text: str) -> list[str]:
    """Return the numbers of a text without their groups, and those that have a unit apart from it."""
    found = [ungroup(number) for number in GROUPED.finditer(text)]
    found += [" ".join(parts(_with_point(number))) for number in _DECIMAL.finditer(text)]
    return found + [_set_apart(number).lower() for number in _UNIT.finditer(text)]


def _set_apart(number: re.Match[str]) -> str:
    return re.sub("(?<=[0-9])(?=[A-Za-z])", " ", number[0])


# Numbers of phones and accounts, in the groups in which people write them. Marks stand between
# any two groups, so that a long row of digits has one reading.
_IN_GROUPS = re.compile(
    r"(?<![\w+.-])(?:"
    r"(?P<iban>[A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3}(?![A-Za-z0-9]))?)"
    r"|(?:\+|00[ -]?)(?P<abroad>[1-9][0-9]{0,14}(?:[ ()/.-]{1,4}[0-9]{1,14}){0,6})"
    r"|(?P<home>\(?0[1-9][0-9]{0,4}\)?[ /-]{1,3}[0-9]{2,8}(?:[ -][0-9]{2,8}){0,4})"
    r"|(?P<ten>\(?[2-9][0-9]{2}\)?[ .-]{1,2}[0-9]{3}[ .-][0-9]{4})"
    r")(?!\w)"
)
_TRUNK = re.compile(r"\(0\)")  # +49 (0)30 is +49 30
_FEWEST_ABROAD, _FEWEST_AT_HOME, MOST_PHONE_DIGITS = 8, 9, 15
"""Digits of a phone number, with its country and without: a day such as 03-05-2026 has eight."""
_FEWEST_IBAN = 15


def _in_one_word(number: re.Match[str]) -> list[str]:
    """Return a phone number or an IBAN as one word, the longest reading first; nothing for other numbers.

    What stands behind a number, as an extension does, may not belong to it.
    """
    if iban := number["iban"]:
        groups, least, most, before = re.split("[ -]", iban.lower()), _FEWEST_IBAN, 34, ""
    else:
        digits = _TRUNK.sub(" ", number["abroad"] or number["home"] or number["ten"])
        groups = re.findall("[0-9]+", digits)
        least = _FEWEST_ABROAD if number["abroad"] else _FEWEST_AT_HOME
        most, before = MOST_PHONE_DIGITS, "tel" if number["abroad"] else ""
    words = ("".join(groups[:count]) for count in range(len(groups), 0, -1))
    fit = [word for word in words if least <= len(word) <= most and (not iban or _is_iban(word))]
    return [before + word for word in fit]


def _is_iban(word: str) -> bool:
    """Return True if the check digits of an account number are right (ISO 13616)."""
    return int("".join(str(int(letter, 36)) for letter in word[4:] + word[:4])) % 97 == 1


def join_groups(text: str) -> str:
    """Return the text with each phone number and IBAN joined into one word, however its digits were
    grouped.
    """
    if not _DIGITS.search(text):
        return text
    return _IN_GROUPS.sub(lambda number: next(iter(_in_one_word(number)), number[0]), text)


def others_in(text: str) -> list[str]:
    """Return other spellings of the names, numbers and dates in a text, each as words separated by
    blanks.
    """
    # The check is fast since most texts have no such names, nor do most of their words: a search
    # reads a hundred texts.
    words = _ASCII_WORD.findall(text) if _HUMP.search(text) else []
    others = [" ".join(found) for word in words if not word.islower() and (found := humps(word))]
    others += [" ".join(parts(version)) for version in _VERSION.findall(text)]
    others += [run[:length] for run in _HASH_OF_DIGITS.findall(text) for length in range(7, len(run) + 1)]
    if _DIGITS.search(text):
        others += [word for number in _IN_GROUPS.finditer(text) for word in _in_one_word(number)]
    return others + _numbers_in(text) + other_forms(text)


# Thai and Lao, Burmese, Hangul letters, Khmer, Kana and related marks, Han, Hangul, half-width
# Kana, Han beyond the first plane.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
RUN = re.compile(f"[{UNSPACED}]+")


def runs(text: str) -> list[str]:
    """Return each sequence of letters in scripts without blanks between words, such as Han and
    Thai. Marks above or below letters are left out, since FTS5 splits words at them.
    """
    found = ("".join(character for character in run if character.isalnum()) for run in RUN.findall(text))
    return [run for run in found if run]


def bigrams(run: str) -> list[str]:
    """Return the pairs of neighbouring letters in `run`, in order. A single letter is returned as
    it is.
    """
    return [one + other for one, other in pairwise(run)] or [run]


def index_terms(run: str) -> list[str]:
    """Return the index terms for a sequence of letters in a script without blanks: its pairs of
    letters, and its last letter, so that every single letter begins a term.
    """
    return [*bigrams(run), run[-1]] if len(run) > 1 else [run]


def index_words(text: str) -> str:
    """Return additional terms to index with a chunk's text, for searches that FTS5 would miss
    because it treats a longer sequence as one word.

    These are the parts of camel case, versions without their v, numbers without groups or units,
    phone numbers and IBANs in one word, folded words, and pairs of letters in scripts without
    blanks. When this changes, `ChunkSettings.name` must change too: then the rows of older
    documents are rebuilt in the background.
    """
    return " ".join(dict.fromkeys(_other_spellings(text)))


def _other_spellings(text: str) -> Iterator[str]:
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
        yield " ".join(index_terms(run))
