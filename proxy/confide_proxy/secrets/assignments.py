"""Values that stand behind a telling name: in code, environment files, YAML, JSON, XML, on command lines, and in a sentence.

The name is looked for in the text in lower case, then the operator, then the value, each with a bound on how far it may reach, so that
the cost of a text is a fixed one for each character, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from confide_proxy.secrets.finding import Finding
from confide_proxy.secrets.names import promise_of
from confide_proxy.secrets.plausibility import Place, judged

MARKS: Final = (
    *("pass", "pwd", "token", "secret", "key", "credential", "_pw", "-pw", "jwt", "_pat"),
    *("contrase", "kennwort", "senha", "wachtwoord", "motdepasse"),
)
"""Of names, in lower case."""

_MAX_NAME_CHARS: Final = 48
_REST_OF_NAME: Final = r"[\w-]{0,40}+"
_OPERATOR: Final = (
    # What closes the name: quotes (escaped ones too), brackets of a subscript, emphasis of markdown.
    r"(?P<close>[\\\"'`\])*]{0,6}+)(?:"
    # Between a colon and an equals sign is a type.
    r"[ \t]{0,20}(?P<sign>=>|:=|\?=|\+=|===?|!==?|->|:[ \t]{0,4}[a-z&][a-z_.'\[\]|?<> ]{0,40}?[ \t]{0,4}=(?![=>])|::?|=|\|)"
    r"|(?P<spoken>[ \t]{1,3}(?:is|was|ist|lautet)(?:[ \t]now)?(?::|[ \t]{1,3}))"
    r"|(?P<xml>>)|(?P<attribute>[ \t]{1,4}value[ \t]{0,2}=)|(?P<call>,)|(?P<option>[ \t]{1,4}(?=[^\s=-])))"
    r"[ \t]{0,20}[*]{0,2}[ \t]{0,2}"
)
_HOWS: Final = ("sign", "spoken", "xml", "attribute", "call", "option")
_QUOTED: Final = (
    # Quotes may be escaped, as in JSON inside of JSON; a backslash inside escapes what follows it, unless that is the end.
    r"(?:[@$rbu]|br)?(?P<quote>\\{0,3}(?:\"|'|`))"
    r"(?P<value>(?:(?!(?P=quote))[^\n\\]|\\(?!(?P=quote)).|\\(?=(?P=quote))(?!\"|'|`)){1,512}?)(?P=quote)"
)
_BARE: Final = r"[^\s\"'`<>]{1,512}+"
_CUT: Final = r"[^,;&|(){}\[\]\\\"'`<>\s]{1,512}+"
_CODE: Final = r"^[A-Za-z_][\w.]{0,80}[(\[{]|^[(\[{]|[;,)]$|\\[nrt\"']"
_LINE: Final = (
    r"^[ \t>+#*-]{0,40}(?:(?:export|set|setx|env|arg|let|const|var|val|declare(?: -\w)?)[ \t]{1,4})?[\w.$:-]{0,60}$"
)
_COMPARED: Final = ("==", "===", "!=", "!==", "->")


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@cache
def _insensitive(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE)


def find(text: str, lowered: str) -> Iterator[Finding]:
    """Every value that its name and its looks make a credential. `lowered` is the text in lower case, character by character."""
    behind = 0
    for at in _marks(lowered):
        if at < behind:
            continue
        rest = _compiled(_REST_OF_NAME).match(lowered, at)
        behind = name_end = rest.end() if rest else at
        told = _compiled(_OPERATOR).match(lowered, name_end)
        begin = _begin(text, at)
        # Behind "::" it is the name of a type.
        promise = promise_of(text[begin:name_end]) if told and not text.startswith("::", max(0, begin - 2)) else None
        if told is None or promise is None:
            continue
        found = _value(text, begin, name_end, told)
        if found is None:
            continue
        start, end, place = found
        sure = judged(text[start:end], text[begin:name_end], promise, place)
        if sure is not None:
            behind = end
            yield Finding(sure[0], start, end, sure[1], "assignment")


def _marks(lowered: str) -> list[int]:
    """Where a name may stand, in order. Searches for single strings are ten times as fast as one for all of them."""
    found = []
    for mark in MARKS:
        at = lowered.find(mark)
        while at >= 0:
            found.append(at)
            at = lowered.find(mark, at + len(mark))
    return sorted(found)


def _begin(text: str, at: int) -> int:
    least = max(0, at - _MAX_NAME_CHARS)
    while at > least and (text[at - 1].isalnum() or text[at - 1] in "_-"):
        at -= 1
    # An escape is no letter of the name: `\npassword=`.
    return at + 1 if at and text[at - 1] == "\\" and text[at : at + 1] in ("n", "t", "r") else at


def _value(text: str, begin: int, end: int, told: re.Match[str]) -> tuple[int, int, Place] | None:
    """Where the value is, and how it was put there; None where there is none, or it is an expression."""
    how = next(each for each in _HOWS if told[each] is not None)
    if not _is_told(text, begin, end, how, told["close"]):
        return None
    at = told.end()
    before = text[max(0, begin - 100) : begin]
    line = before[before.rfind("\n") + 1 :]
    is_line = how == "sign" and not told["close"].strip("*") and _insensitive(_LINE).search(line) is not None
    if quoted := _insensitive(_QUOTED).match(text, at):
        return *quoted.span("value"), Place(how, is_quoted=True, is_line=False)
    bare = _compiled(_BARE).match(text, at)
    if bare is None or how in ("call", "attribute") or (told["sign"] in _COMPARED and not is_line):
        return None
    stop = bare.end()
    is_whole = text[stop : stop + 1] in ("", "\n", "\r") or text[stop : stop + 2] == " #"
    is_line = is_line and is_whole and told["sign"] in (":", "=")
    if how != "spoken" and (not is_line or _compiled(_CODE).search(bare[0])):
        cut = _compiled(_CUT).match(text, at)
        if cut is None or text[cut.end() : cut.end() + 1] in ("(", "[", "{"):
            return None  # a call, a subscript
        stop = cut.end()
    while stop > at and text[stop - 1] in (",;.:!?)" if how == "spoken" else ",;.*"):
        stop -= 1
    return (at, stop, Place(how, is_quoted=False, is_line=is_line)) if stop > at else None


def _is_told(text: str, begin: int, end: int, how: str, close: str) -> bool:
    """Whether what stands before the name fits the operator: `<password>`, `--password`, "password" in quotes before a comma."""
    if how == "xml":
        return "<" in text[max(0, begin - 40) : begin]
    if how == "option":
        is_option = text[begin:end].startswith("-") or text[max(0, begin - 2) : begin].endswith("-")
        return is_option or "login " in text[max(0, begin - 80) : begin]  # a .netrc
    return how != "call" or bool(close)
