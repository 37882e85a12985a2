"""The WordPiece tokenizer of the packaged model. It converts a text to lower case without accents,
and then finds the longest word pieces of the vocabulary.

It gives the same result as Hugging Face's `tokenizers` with this vocabulary, without that library
and its hub client, which take 12 MB of memory and 32 MB of disk.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

UNKNOWN, FIRST, LAST = 100, 101, 102
"""The numbers of special tokens: an unknown word, and the two ends of a text."""
_SPECIAL: Final = {"[PAD]": 0, "[UNK]": UNKNOWN, "[CLS]": FIRST, "[SEP]": LAST, "[MASK]": 103}
"""Special tokens, which a text may contain literally."""
_SPLIT: Final = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
_WORD: Final = re.compile(r"[^ \x00]+|\x00.")
_MARK: Final = "\0"
"""Marks a character that is a word of its own; a cleaned text never contains it."""
_LONGEST: Final = 100
"""Longest word, in letters; a longer one is unknown."""
_CHINESE: Final = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff"
    "\U0002f800-\U0002fa1f]"
)
"""Characters that are words by themselves (`_is_chinese_char` of BERT)."""
_LOST: Final = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
"""Characters that the tokenizer drops although they are a text's own: icons of private use, and what
stands for bytes that no encoding could read. Texts of these alone would all be the same.
"""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text as a sequence of tokens.

    Attributes:
        numbers: the numbers of the tokens, including those that mark the beginning and the end.
        is_understood: True if most letters of the text are known to a model of words in Latin
            letters.
    """

    numbers: list[int]
    is_understood: bool

    @property
    def known_tokens(self) -> list[int]:
        """Return the tokens without unknown ones. All unknown words share one token, which would
        make unrelated texts similar.
        """
        return [number for number in self.numbers if number != UNKNOWN]


class WordPiece:
    """A WordPiece tokenizer with the vocabulary of the packaged model. Usable from any thread."""

    def __init__(self, described: bytes, *, most: int) -> None:
        """Args:
        described: a `tokenizer.json` of an uncased BERT model.
        most: maximum number of tokens, including both ends; the rest of a text is ignored.
        """
        self._vocabulary: dict[str, int] = json.loads(described)["model"]["vocab"]
        self._most = most - 2

    def cut(self, text: str) -> Cut:
        """Return the tokens of a text."""
        numbers, spans = list[int](), list[tuple[int, int]]()
        for start, part, number in _parts(text):
            if number is not None:
                numbers.append(number)
                spans.append((start, start + len(part)))
            else:
                self._add(part, start, numbers, spans)
            if len(numbers) >= self._most:
                break
        del numbers[self._most :]
        is_understood = (text.isascii() and UNKNOWN not in numbers) or _is_understood(text, numbers, spans)
        return Cut([FIRST, *numbers, LAST], is_understood)

    def _add(self, part: str, start: int, numbers: list[int], spans: list[tuple[int, int]]) -> None:
        """Append the tokens, and their spans in the text, of a part that begins at `start`."""
        plain = part.translate(_LETTERS)
        places = list(range(start, start + len(plain)))
        if len(plain) != len(part) or not part.isascii():
            places = [start + at for at, letter in enumerate(part) for _ in letter.translate(_LETTERS)]
        for word in _WORD.finditer(plain):
            at = word.start() + word[0].startswith(_MARK)
            for size, number in self._pieces(plain[at : word.end()]):
                numbers.append(number)
                spans.append((places[at], places[at + size - 1] + 1))
                at += size
            if len(numbers) >= self._most:
                return

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Return the tokens of a word: each one's length in letters, and its number."""
        whole = self._vocabulary.get(word)
        if whole is not None:
            return [(len(word), whole)]
        found = []
        at = 0
        while at < len(word) <= _LONGEST:
            for end in range(len(word), at, -1):
                number = self._vocabulary.get(f"##{word[at:end]}" if at else word[:end])
                if number is not None:
                    found.append((end - at, number))
                    at = end
                    break
            else:
                break
        return found if at == len(word) else [(len(word), UNKNOWN)]


class _Letters(dict[int, str]):
    """The replacement of each letter, computed on demand for `str.translate`."""

    def __missing__(self, code: int) -> str:
        made = self[code] = _plain(chr(code))
        return made


def _plain(letter: str) -> str:
    """Return a letter in lower case without accents; a blank for a separator, nothing for an
    invisible one.
    """
    kind = unicodedata.category(letter)
    if letter in "\t\n\r" or kind[0] == "Z":
        return " "
    if letter == "\ufffd" or kind in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if _CHINESE.match(letter) is not None:
        return f" {_mark_sign(letter)} "
    parts = [part for part in unicodedata.normalize("NFD", letter) if unicodedata.category(part) != "Mn"]
    return "".join(map(_mark_sign, "".join(part.lower() for part in parts)))


def _mark_sign(letter: str) -> str:
    is_sign = letter in string.punctuation or unicodedata.category(letter)[0] == "P"
    return _MARK + letter if is_sign else letter


_LETTERS: Final = _Letters()


def _parts(text: str) -> Iterator[tuple[int, str, int | None]]:
    """Yield the parts of a text with their start, and a number if the part is a special token."""
    start = 0
    for part in _SPLIT.split(text):
        yield start, part, _SPECIAL.get(part)
        start += len(part)


def _is_understood(text: str, numbers: list[int], spans: list[tuple[int, int]]) -> bool:
    """Return True if most letters of a text mean something to a model of Latin words.

    Letters in unknown tokens do not, nor do dropped characters and single letters of other scripts:
    an English vocabulary has a few thousand of them, and texts spelled in them are all similar to
    any other text of that script.
    """
    letters = foreign = len(_LOST.findall(text))
    for number, (start, end) in zip(numbers, spans, strict=False):  # there may be more spans than fit
        piece = text[start:end]
        is_unknown = number == UNKNOWN
        if is_unknown or piece.isalnum():
            letters += len(piece)
            if is_unknown or (len(piece) == 1 and not piece.isascii() and not is_latin(piece)):
                foreign += len(piece)
    return 2 * foreign <= letters


def is_latin(letter: str) -> bool:
    """Return True if a letter belongs to the Latin script. A model of English words reads it
    without its accents.
    """
    return unicodedata.name(letter, "").startswith("LATIN ")


def is_mostly_latin(text: str) -> bool:
    """Return an approximation of `Cut.is_understood` that needs no vocabulary. Used for vectors
    that were stored before that check existed.
    """
    if text.isascii():
        return True
    others = [
        letter
        for letter in text
        if not letter.isascii() and (unicodedata.category(letter)[0] in "LMS" or _LOST.match(letter))
    ]
    foreign = sum(not is_latin(letter) for letter in others)
    return 2 * foreign <= sum(letter.isalnum() for letter in text if letter.isascii()) + len(others)
