"""Normalized error messages: two failures with the same cause get the same text, because paths,
numbers, times, hex digits and quoted names are removed from it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final

MAX_KEY: Final = 200  # characters of a key
MAX_OUTPUT: Final = 64 * 1024
"""Characters of a tool's output that are read: its start and its end."""
_MOST_LINE: Final = 2000

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]?(?:\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
)
_PATH: Final = re.compile(r"(?:[A-Za-z]:)?(?:[\w.@~+-]*[\\/])+[\w.@~+-]*")
_HEX: Final = re.compile(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)[0-9a-f]{7,})\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![A-Za-z_\d])[-+]?\d[\d.,_:]*(?:\s?(?:ms|s|kb|mb|gb|%))?\b")
QUOTED: Final = re.compile(
    r"(?<!\w)'[^'\n]{1,200}'(?!\w)|\"[^\"\n]{1,200}\"|`[^`'\n]{1,200}'(?!\w)|`[^`\n]{1,200}`|‘[^’\n]{1,200}’|“[^”\n]{1,200}”"
)
"""A name in quotes, those of Ruby and of older GNU programs included: `name'."""
_PREFIX: Final = re.compile(r"^\s*(?:E\s{2,}|npm (?:ERR!|error)\s|\[?(?:ERROR|FATAL)\]?\s)\s*")
_MARKS: Final = re.compile(r"[\s^~|>=*_#-]+")

FAILS: Final = re.compile(
    r"(?i:(?:\b|_)(?:error|exception|failed|failure|fatal|panic|panicked|traceback|cannot|can't|could not|couldn't|unable|denied|"
    r"refused|not found|no such|undefined|unresolved|unexpected|invalid|mismatch|conflict|timed? ?out|timeout|"
    r"missing|unknown|rejected|wrong|bad|unauthorized|forbidden|expired|locked|violates|duplicate|corrupt(?:ed)?|exceed(?:s|ed)|overflow|"
    r"reset by peer|already (?:exists|in use|allocated|running)|not (?:allowed|supported|permitted)|no (?:matches|space)|"
    r"abort(?:ed)?|segmentation fault|core dumped|killed|exit (?:code|status)|exited with)\b)"
    r"|\b[A-Z]\w*(?:Error|Exception|Warning)\b|\bE[A-Z]{3,}\b|\b[A-Z]{2,}\d{3,}\b|\bERR_\w+",
)
_FAULT: Final = (
    "ERR|ERROR|FAIL|FAILED|FAILURE|EXCEPTION|INVALID|DENIED|TIMEOUT|EXCEEDED|CONFLICT|NOT|NO|LOCKED|EXPIRED|"
    "REFUSED|MISSING|MISMATCH|BAD|UNKNOWN|ABORTED|VERR|DISABLED|UNSUPPORTED|UNAVAILABLE|EMPTY|FULL"
)
_DATA: Final = re.compile(
    r"\s*(?:\[?[{\"']|\||\d+(?: times\b|\|)|<\w|(?:[-*+]|\d+\.) |#{1,6} |//|\S+:\d+:\s*(?:[-*#]|//) )"
)
"""The start of a line of data, of markdown or of a comment: a failure in it happened elsewhere."""
_LAST_LINES: Final = 4
_SUCCESS: Final = re.compile(
    r"\b(?:\d+ (?:tests? )?pass(?:ed|ing)|all went well"
    r"|success(?:ful(?:ly)?)?|succeeded|completed|finished|compiled|up to date|all checks passed|done|ok)\b|✓|✔|✨",
    re.IGNORECASE,
)
_NO_FAULT: Final = re.compile(
    r"\b(?:no|0|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|failed|failing|problems?)\b", re.IGNORECASE
)
_FAULTS: Final = re.compile(
    r"\b(?:\d+ (?:errors?|fail(?:ed|ures?|ing))|fail(?:ed|ure)|error|fatal|panic(?:ked)?|aborted|killed|not successful)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    rf"\b(?:(?=[A-Z0-9_]*(?:(?<![A-Z0-9])(?:{_FAULT})(?![A-Z0-9])))[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
    r"|E[A-Z]{4,}|[A-Z]{1,6}\d{3,6}|[A-Z]{2,8}-\d{5}|[A-Z][a-z]\w*(?:[A-Z][a-z0-9]+)+(?:Error|Exception))\b"
)
"""Codes of compilers, databases and systems, and names of exceptions: `TS2742`, `ERR_SSL`, `EADDRINUSE`."""
USUAL_CODES: Final = frozenset(
    {"ENOENT", "EACCES", "EPERM", "EEXIST", "EPIPE", "ERROR", "EXCEPTION", "ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND"}
    | {"HY000", "HTTP404", "HTTP500", "UTF-8", "SHA256", "SHA1", "RFC2119", "ISO8601", "BASE64", "AES256"}
    | {
        "RuntimeError",
        "AssertionError",
        "TypeError",
        "ValueError",
        "KeyError",
        "ModuleNotFoundError",
        "FileNotFoundError",
    }
    | {"AttributeError", "IndexError", "ImportError", "NameError", "SyntaxError", "ReferenceError", "RangeError"}
    | {"PermissionError", "CalledProcessError", "NullPointerException", "IllegalArgumentException", "TimeoutError"}
)
"""Codes that many failures share: they say nothing about the cause without their message."""
_USUAL_WORDS: Final = frozenset(
    """a an and any as at attribute be build but by call can't cannot code command could couldnt denied directory
    err error exception exit exited failed failure fatal file for found from has have if import imports in is it key
    last line make module most name named no not npm object of on or out path permission process recent returned run
    running script status such task test tests the this timed timeout to traceback type undefined unexpected
    unknown value was with x abort aborted you we are were trying tried please see there""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
"""Words of messages that many failures share."""
_NEARLY_ALL: Final = 0.8
_LEAST_WORDS: Final = 2
_SPECIFIC: Final = 4
"""Words of a message that are not usual, which it needs to say what failed: where it quotes no
name, and where the names are left out.
"""


def skeleton(message: str, *, with_names: bool = False) -> str:
    """Return the part of an error message that is the same in every failure of its kind, as one
    line in lower case.

    Paths, numbers, times and hex digits are removed. Quoted names are removed too; if `with_names`
    is true, they stay, without their quotes.
    """
    text = _PREFIX.sub("", _ANSI.sub("", message[:_MOST_LINE]))
    text = _TIME.sub(" ", text)
    text = QUOTED.sub((lambda match: f" {match[0][1:-1]} ") if with_names else " ? ", text)
    text = _PATH.sub(" ", text)
    text = _HEX.sub(" ", text)
    text = _NUMBER.sub(" ", text)
    text = _MARKS.sub(" ", text.casefold())
    return " ".join(word for word in text.split() if word == "?" or any(map(str.isalnum, word)))[:MAX_KEY].strip(
        " ?:.,;"
    )


def signature(message: str, *, is_quoted: bool = False) -> str:
    """Return the key by which two error messages are compared, or "" if the message is so common
    that it identifies no cause.

    The key is the `skeleton` of the message without quoted names if that is specific enough, else
    with them. If the message quotes a name, or a note quotes the message (`is_quoted`), one
    specific word is enough. A message that contains no word for a failure needs two.
    """
    plain, named = skeleton(message), skeleton(message, with_names=True)
    has_fault = bool(FAILS.search(message))
    if len(_specific(plain)) >= (_LEAST_WORDS if has_fault and "?" not in plain else _SPECIFIC):
        return plain
    least = _LEAST_WORDS if not has_fault else 1
    is_whole = len(named.split()) > (_LEAST_WORDS if has_fault else _SPECIFIC)
    is_own = is_quoted or named != plain
    return named if is_own and is_whole and len(_specific(named)) >= least and (has_fault or is_quoted) else ""


def _specific(key: str) -> set[str]:
    """Return the words of a skeleton that not every failure has."""
    words = {word.strip("?:;,.()[]{}!'\"") for word in key.split()}
    return {
        word
        for word in words
        if len(word) > 1 and word not in _USUAL_WORDS and not word.endswith(("error", "exception"))
    }


# Each failure looks at all keys in turn, so a cache that holds fewer than a memory has never hits.
@lru_cache(8192)
def _specific_of_key(key: str) -> frozenset[str]:
    return frozenset(_specific(key))


def codes(text: str) -> list[str]:
    """Return the error codes and exception names in a text that identify a failure without their
    message, such as `EADDRINUSE`. Common ones such as `ENOENT` are left out.
    """
    return [code for code in dict.fromkeys(_CODE.findall(text)) if code not in USUAL_CODES and len(code) <= MAX_KEY]


def says_success(output: str) -> bool:
    """Return True if one of the last lines of an output reports success, and no line after it
    reports a failure.
    """
    last = [_NO_FAULT.sub("all went well", line) for line in lines(output[-4096:]) if line.strip()][-_LAST_LINES:]
    for line in reversed(last):
        if _FAULTS.search(line):
            return False
        if _SUCCESS.search(line):
            return True
    return False


def lines(output: str) -> list[str]:
    """Return the lines of a tool's output without colour codes. Each state of a progress line
    counts as a line. Of a long output, only the start and the end are used.
    """
    if len(output) > MAX_OUTPUT:
        output = f"{output[: MAX_OUTPUT // 4]}\n{output[-3 * MAX_OUTPUT // 4 :]}"
    return [_ANSI.sub("", line[:_MOST_LINE]) for line in output.replace("\r", "\n").split("\n")]


def message_in(output: str) -> str:
    """Return the last line of a failed tool's output that says what has failed, at most `MAX_KEY`
    characters, or "" if no line does. Prefixes such as `npm ERR!` are removed.
    """
    said = [line.strip() for line in lines(output) if FAILS.search(line) and (signature(line) or codes(line))]
    return " ".join(_PREFIX.sub("", said[-1]).split())[:MAX_KEY] if said else ""


class FailedOutput:
    """The error messages in the output of a tool that has failed, prepared for comparison with
    notes.
    """

    def __init__(self, output: str, *, is_sure: bool = True) -> None:
        """Of a long output its start and its end are read. Unless it `is_sure` that the tool has
        failed, only lines that say so count, and no data.
        """
        found: dict[str, None] = {}
        for line in dict.fromkeys(lines(output)):
            if line.strip() and (is_sure or (FAILS.search(line) and not _DATA.match(line))):
                found[f" {skeleton(line)} "] = None
                found[f" {skeleton(line, with_names=True)} "] = None
                found.update(dict.fromkeys(f" {code} " for code in codes(line)))
        self.text = "\n".join(found)
        """Each line's skeletons, with names and without, and its codes as they are written."""
        self._lines_of: dict[str, set[int]] = {}
        for number, line in enumerate(found):
            for word in _specific(line):
                self._lines_of.setdefault(word, set()).add(number)

    def has(self, key: str) -> bool:
        """Return True if `key`, an error message or code from a note, occurs in the output.

        It must occur in whole words, or nearly all of its specific words must be in one line, since
        versions and shells change the wording.
        """
        return self._has_words(key) or self._has_most(key)

    def _has_words(self, key: str) -> bool:
        at = self.text.find(key)
        while at >= 0:
            before, after = self.text[at - 1 : at], self.text[at + len(key) : at + len(key) + 1]
            if not before.isalnum() and not after.isalnum():
                return True
            at = self.text.find(key, at + 1)
        return False

    def _has_most(self, key: str) -> bool:
        words = _specific_of_key(key)
        if len(words) < _SPECIFIC or words.isdisjoint(self._lines_of):
            return False
        counts = Counter(line for word in words for line in self._lines_of.get(word, ()))
        return max(counts.values()) >= _NEARLY_ALL * len(words)
