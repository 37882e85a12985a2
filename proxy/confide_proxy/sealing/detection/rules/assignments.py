"""Find values after a name that indicates a credential: in code, environment files, YAML, JSON,
XML, command lines and sentences.

The name is searched in the lower-case text, then the operator, then the value. Each has a limit on
its length, so that the cost is linear in the length of any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.key_names import promise_of
from confide_proxy.sealing.detection.plausibility import Context, judge_value
from confide_proxy.sealing.detection.prefilter import NAME_MARKS, compile_once, places

_MAX_NAME_CHARS: Final = 48
_REST_OF_NAME: Final = r"[\w-]{0,40}+"
_OPERATOR: Final = (
    # Characters that close the name: quotes (also escaped), subscript brackets, Markdown emphasis.
    r"(?P<close>[\\\"'`\])*]{0,6}+)(?:"
    # A name/value pair, as in Kubernetes, Terraform and many APIs.
    r"(?P<pair>[\s,:{]{1,60}+(?:(?:type|description|sensitive)[ \t]{0,4}=[ \t]{0,4}(?:\w{1,30}+|\"[^\"\n]{0,100}+\")\s{1,20}+){0,3}"
    r"[\"']?(?:value|default|plaintext)[\"']?[ \t]{0,4}[:=])"
    # A type stands between a colon and an equals sign.
    r"|[ \t]{0,20}(?P<sign>=>|:=|\?=|\+=|===?|!==?|->|:[ \t]{0,4}[a-z&][a-z_.'\[\]|?<> ]{0,40}?[ \t]{0,4}=(?![=>])|::?|=|\|)"
    # Its purpose may stand between: "password for staging is", "token (CI):".
    r"|(?P<spoken>(?:[ \t]\([^()\n]{1,40}+\)|[ \t](?:for|of|on|to|at)[ \t][\w.'-]{1,40}+(?:[ \t][\w.'-]{1,40}+){0,2}?)?"
    r"(?::|[ \t]{1,3}(?:(?:is|was|ist|lautet|has[ \t]been)(?:[ \t](?:now|(?:re)?set[ \t]to|changed[ \t]to))?|changed[ \t]to)"
    r"(?::|[ \t]{1,3})|[ \t]{1,3}[-–—][ \t]{1,3}))"
    r"|(?P<xml>>)|(?P<attribute>[ \t]{1,4}value[ \t]{0,2}=)"
    r"|(?P<call>,|\((?=[\"'`]))|(?P<option>[ \t]{1,4}(?=[^\s=-])))"
    r"[ \t]{0,20}[*]{0,2}[ \t]{0,2}"
)
_HOWS: Final = ("pair", "sign", "spoken", "xml", "attribute", "call", "option")
_NEXT_LINE: Final = r"(?:[|>][+-]?)?[ \t]{0,4}(?:\r?\n){1,2}(?:[ \t]{0,40}```\w{0,10}\r?\n)?[ \t]{0,40}"
_WRAPPER: Final = (
    r"(?:(?:String::from|Some|SecretStr|SecretString::new|Secret|Buffer\.from|str|bytes|to_secret)\(|\{)(?=[\"'`])"
)
_BEFORE: Final = (
    r"(?:api|app|auth|access|refresh|bearer|client|secret|private|public|signing|encryption|master|license|deploy|webhook"
    r"|bot)[ .]$"
)
"""Words that belong to a name although no hyphen joins them: "API key", `api.key`."""
_REVERSED: Final = (
    r"(?:^|[\s(])(?P<quote>[\"'`]?)(?P<value>[^\s\"'`]{6,128}+)(?P=quote)"
    r"[ \t]as[ \t](?:the|my|our|your|its|an?)[ \t](?:\w{1,20}[ \t]){0,2}$"
)
_QUOTED: Final = (
    # The quotes themselves may be escaped, as in JSON inside of JSON; in others a backslash escapes
    # what follows it.
    r"(?:[@$rbu]|br)?(?:(?P<outer>\\{1,3}[\"'`])(?P<escaped>(?:(?!(?P=outer))[^\n]){1,512}?)(?P=outer)"
    r"|(?P<quote>[\"'`])(?P<value>(?:(?!(?P=quote))[^\n\\]|\\.){1,512}?)(?P=quote))"
)
_BARE: Final = r"[^\s\"'`<>]{1,512}+"
_CUT: Final = r"[^,;&|(){}\[\]\\\"'`<>\s]{1,512}+"
_CODE: Final = r"[A-Za-z_][\w.]{0,80}[(\[{]|[(\[{]"
_CODE_ENDS: Final = (";", ",", ")")
_IN_CODE: Final = r"\\[nrt\"']|&[\w.]{1,40}="
_LINE: Final = (
    r"^[ \t>+#*-]{0,40}(?:(?:export|set|setx|env|arg|let|const|var|val|declare(?: -\w)?)[ \t]{1,4})?[\w.$:-]{0,60}$"
)
_WORDS: Final = r"^[\w \t.,/>*+#-]{0,60}$"
"""Text before a name in a note: "- the new password: …"."""
_NESTED: Final = r"--[a-z-]{2,20}[ =][\w.,=-]{0,30}$"
"""`--set auth.password=…`"""
_COMPARED: Final = ("==", "===", "!=", "!==", "->")


def find(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each value that is a credential, judged by its name and its own form. `lowered` is the
    text in lower case with the same positions.
    """
    behind = 0
    for at in sorted(at for mark in NAME_MARKS for at in places(lowered, mark)):
        if at < behind:
            continue
        rest = compile_once(_REST_OF_NAME).match(lowered, at)
        behind = name_end = rest.end() if rest else at
        operator = compile_once(_OPERATOR).match(lowered, name_end)
        begin = begin_of(text, lowered, at)
        # Behind "::" it is the name of a type.
        promise = None if text.startswith("::", max(0, begin - 2)) else promise_of(text[begin:name_end])
        if promise is None:
            continue
        for found in (_value(text, begin, operator) if operator else None, _value_before(text, begin)):
            sure = judge_value(text[found[0] : found[1]], text[begin:name_end], promise, found[2]) if found else None
            if found and sure:
                behind = max(behind, found[1])
                yield SecretFinding(sure[0], found[0], found[1], sure[1], "assignment")
                break


def begin_of(text: str, lowered: str, at: int) -> int:
    least = max(0, at - _MAX_NAME_CHARS)
    while at > least and (text[at - 1].isalnum() or text[at - 1] in "_-"):
        at -= 1
    if at and text[at - 1] == "\\" and text[at : at + 1] in ("n", "t", "r"):
        return at + 1  # the escape isn't part of the name: `\npassword=`
    if at and text[at - 1] in " ." and (word := compile_once(_BEFORE).search(lowered[max(0, at - 12) : at])):
        return at - len(word[0])
    return at + 2 if text.startswith("-D", at) else at


def _value_before(text: str, begin: int) -> tuple[int, int, Context] | None:
    """Find a value before its name: "use … as the password"."""
    near = max(0, begin - 200)
    if " as " not in text[max(0, begin - 60) : begin]:
        return None
    match = compile_once(_REVERSED, re.IGNORECASE).search(text[near:begin])
    if match is None:
        return None
    return near + match.start("value"), near + match.end("value"), Context("said", bool(match["quote"]), is_line=False)


def _value(text: str, begin: int, operator: re.Match[str]) -> tuple[int, int, Context] | None:
    """Return the span and context of the value after an operator; None without a value, or if it is
    an expression.
    """
    how, sign, at = _how(text, begin, operator), operator["sign"] or "", operator.end()
    if how is None:
        return None
    if (sign == ":" or how == "pair") and (line_end := compile_once(_NEXT_LINE).match(text, at)):
        at = line_end.end()
        how = "pair"
    if wrapper := compile_once(_WRAPPER).match(text, at):
        at = wrapper.end()
    if quoted := compile_once(_QUOTED, re.IGNORECASE).match(text, at):
        group = "value" if quoted["value"] is not None else "escaped"
        return *quoted.span(group), Context(how, is_quoted=True, is_line=False)
    if how in ("call", "attribute") or (how == "sign" and sign in _COMPARED):
        return None
    return _bare_value(text, begin, operator, how, at)


def _bare_value(text: str, begin: int, operator: re.Match[str], how: str, at: int) -> tuple[int, int, Context] | None:
    """Return the span and context of an unquoted value that begins at `at`, or None."""
    bare, sign = compile_once(_BARE).match(text, at), operator["sign"] or ""
    if bare is None:
        return None
    stop = bare.end()
    is_whole = text[stop : stop + 1] in ("", "\n", "\r") or text[stop : stop + 2] == " #"
    if how == "pair":
        if not is_whole or bare[0].endswith(":"):
            return None
        is_line = True
    else:
        is_line = (
            is_whole and sign in (":", "=") and not operator["close"].strip("*") and _begins_line(text, begin, sign)
        )
    is_spoken = how in ("spoken", "said")
    if not is_spoken and (not is_line or _is_code(bare[0])):
        cut = compile_once(_CUT).match(text, at)
        if cut is None or text[cut.end() : cut.end() + 1] in ("(", "[", "{"):
            return None  # a call, a subscript
        stop = cut.end()
    if not is_spoken and text[at:stop].endswith(("...", "…")):
        return None  # truncated by its author
    while stop > at and text[stop - 1] in (",;.:!?)" if is_spoken else ",;.*"):
        stop -= 1
    return (at, stop, Context(how, is_quoted=False, is_line=is_line)) if stop > at else None


def _is_code(value: str) -> bool:
    """Return True for a part of an expression, or of a string with escapes or parameters."""
    if value.endswith(_CODE_ENDS) or compile_once(_CODE).match(value):
        return True
    return ("\\" in value or "&" in value) and compile_once(_IN_CODE).search(value) is not None


def _how(text: str, begin: int, operator: re.Match[str]) -> str | None:
    """Return the kind of operator, also judged by the text before the name; None if they don't fit."""
    how = next(each for each in _HOWS if operator[each] is not None)
    if how == "option":
        return _operator_kind(text, begin)
    if operator["sign"] == "=" and _is_parameter(text, begin):
        return "option"
    if operator["sign"] == "->" and not operator["close"] and operator[0].startswith((" ", "\t")):
        return "spoken"
    is_unfit = (how == "xml" and "<" not in text[max(0, begin - 40) : begin]) or (
        operator["call"] == "," and not operator["close"]
    )
    return None if is_unfit else how


def _begins_line(text: str, begin: int, sign: str) -> bool:
    before = text[max(0, begin - 100) : begin]
    line = before[before.rfind("\n") + 1 :]
    return compile_once(_LINE, re.IGNORECASE).match(line) is not None or (
        sign == ":" and compile_once(_WORDS).match(line) is not None
    )


def _is_parameter(text: str, begin: int) -> bool:
    """Return True if a name before `=` is a parameter of a command, an address or a connection
    string, or a variable in capitals before a command.
    """
    if text.startswith("--", begin) or text[max(0, begin - 1) : begin] in (";", "&", "?"):
        return True
    before = text[max(0, begin - 60) : begin]
    if compile_once(_NESTED).search(before):
        return True
    is_capital = text[begin : begin + 4].isupper() and not before.endswith(("(", ", "))
    return is_capital or "user=" in before or "host=" in before or "dbname=" in before


def _operator_kind(text: str, begin: int) -> str:
    """Return the kind of operator for a name and value separated by a blank only: `--token …`, `ENV
    TOKEN …`, .netrc, or a sentence.
    """
    before = text[max(0, begin - 80) : begin]
    if text.startswith("-", begin) or before.endswith(("-", "ENV ", "setx ", "#define ")):
        return "option"
    return "spoken" if "login " in before and "machine " in before else "said"
