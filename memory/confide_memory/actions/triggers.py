"""Triggers of notes: the files, commands and errors that make a note relevant to an action of an
agent.

Both ends use this module. The daemon reads the triggers of stored texts; the proxy reads those of
an agent's tool call and looks for notes with the same trigger. An entry that describes a failure in
its own words has no such trigger; for these, the proxy compares weighted words (`failure_terms`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from confide_memory import front_matter
from confide_memory.actions import failure_terms
from confide_memory.actions.error_messages import FAILS, MAX_KEY, QUOTED, codes, signature, skeleton
from confide_memory.actions.shell_commands import command_words
from confide_memory.forms import MAX_TRIGGERS
from confide_memory.markdown_blocks import FENCE, is_item

PATH: Final = "path"
COMMAND: Final = "command"
ERROR: Final = "error"
FAILURE: Final = "failure"

MAX_ENTRY: Final = 4096  # characters of an entry that are read
MAX_READ: Final = 64 * 1024  # characters of a text in which named files are looked for
MAX_SHOWN: Final = 600  # characters of its text that are kept to be shown
_MOST_ENTRIES: Final = 2000  # of one document

_EXTENSION: Final = re.compile(
    r"(?:[\w@.+-]+/)*[\w@+-][\w@.+-]*\.(?:py|pyi|ipynb|js|jsx|ts|tsx|mjs|cjs|vue|svelte|go|rs|java|kt|kts|scala|rb|php|c|h|cc|cpp|hpp|"
    r"cs|swift|m|lua|ex|exs|erl|hs|clj|dart|zig|sh|bash|zsh|fish|ps1|sql|html|css|scss|json|jsonc|toml|ya?ml|ini|cfg|conf|env|"
    r"xml|md|mdx|rst|txt|lock|proto|graphql|gql|tf|hcl|gradle|cmake|mk|prisma|csv|service)"
)
_FOLDER: Final = re.compile(r"(?:[\w@.+-]+/)+[\w@.+-]*")
_NAMED: Final = frozenset(
    {"Makefile", "Dockerfile", "Procfile", "Jenkinsfile", "Gemfile", "Rakefile", "Justfile", "Caddyfile", "go.mod"}
)
_PLACE: Final = re.compile(r"(?::\d+(?:-\d+|:\d+)?|#[\w.$-]+)$")
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]{1,200})`(?!`)")
_BARE: Final = re.compile(r"(?<![\w/.@:`-])[\w@.+-]+(?:/[\w@.+-]+)*(?![\w/@-])")

_PLACED: Final = re.compile(r"(?<![\w@.+/:~-])[\w@.+-]+(?:/[\w@.+-]+)*(?:#[\w.$-]+|:\d+(?:-\d+)?)?")

_CAUTION: Final = re.compile(
    r"\b(?:never|don't|do not|doesn't|does not|must(?: not)?|mustn't|always|careful(?:ly)?|avoid|beware|pitfalls?|gotchas?|"
    r"caveats?|warning|watch out|instead|breaks?|broke|broken|otherwise|unless|only (?:with|after|if|when|by|in|from|through|via)|"
    r"because|requires?|needs?|has to|have to|first|before|after|not (?:run|use|edit|change|touch|call)|"
    r"forbidden|deprecated|generated|by hand|decided|decision|we (?:use|chose|keep)|fix(?:ed|es)?|solved|workaround|helps|helped|"
    r"nie|niemals|nicht|immer|vorsicht|statt|muss|müssen|kein|keine|jamais|toujours|attention|nunca|siempre|cuidado)\b",
    re.IGNORECASE,
)
_CAUTIOUS: Final = frozenset(
    """pitfall pitfalls gotcha gotchas decision decisions warning warnings convention conventions lesson lessons fix fixes
    bug bugs troubleshooting rule rules caveat caveats constraint constraints howto runbook""".split()  # noqa: SIM905
)
"""Types, categories and tags of notes that say what to mind."""


_MESSAGE: Final = re.compile(
    r"\b(?:[\w.]*(?:Error|Exception|error|fatal|panic)|[a-z]+_[a-z_]+|[A-Z][a-z]+(?:[A-Z][a-z]+)+):\s.{8,}"
)
"""A message that a text has without quotes."""
_CLAUSE: Final = re.compile(r"\s[-–—]+>?\s|[:;.,]\s|\s\(")
_MOST_CLAUSES: Final = 6
_LEAST_MESSAGE: Final = 8
_LEAST_SENTENCE: Final = 3
_SENTENCE: Final = frozenset(
    {"a", "an", "are", "be", "been", "by", "does", "has", "in", "is", "not", "of", "the", "to", "was", "you"}
)
_MARK: Final = re.compile(r"\A\s*(?:[-*+]|\d{1,9}[.)])\s+")


_LONE: Final = frozenset(
    {"mypy", "pytest", "ruff", "eslint", "prettier", "tsc", "terraform", "alembic", "psql", "redis-cli"}
)
"""Programs whose name alone is a command that a note can be about."""


_MOST_COMMANDS: Final = 3
_MOST_ERRORS: Final = 4
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n|;\s|:\s|\s(?:→|->|—)\s")
_FAILED: Final = re.compile(
    r"\b(?:fail(?:s|ed|ing)?|dies|died|breaks?|broke|hangs?|hung|crash(?:es|ed)?|exit(?:s|ed)?|errors?|complains|aborts|stops|times out"
    r"|cannot|can't|could not|couldn't|does not|doesn't|won't|refuses|ends with|throws)\b",
    re.IGNORECASE,
)
_NEXT: Final = re.compile(r"^\s+(?:(?:often|sometimes|always|now|still|there|here|then|also|on \w+|in \w+)\s+){0,2}")
"""Words between a command and what it does."""
_CODE_LIKE: Final = re.compile(r"\b[A-Z][A-Z_]*\d*\b")
_SAYS: Final = re.compile(
    r"\b(?:errors?|exception|fail(?:ed|ure)?|fatal|panic(?:ked)?|cannot|can't|could not|couldn't|unable|refused|denied|not found|invalid"
    r"|missing|unexpected|timed out|no such file|no module|does not|doesn't|undefined|forbidden|unauthorized|expired|conflict|mismatch)\b"
    r"|\w(?:Error|Exception)\b",
    re.IGNORECASE,
)
_NO_MESSAGE: Final = re.compile(r"^\s*(?:[$#|>]|//|--)|\s# |[{}=]|…")
"""A line of a shell, of a table, a comment, code, or a message with gaps."""
_NEVER: Final = re.compile(r"\b(?:never|don't|do not|avoid|careful with)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
_OF: Final = re.compile(r"(?<!by )\b(?:in|of|from|during|when|while|if|after)\s+(?:running\s+)?$", re.IGNORECASE)


class Trigger(NamedTuple):
    """A trigger: its kind (PATH, COMMAND or ERROR), and the normalized file, command or error
    message.
    """

    kind: str
    key: str


TOLD: Final = Trigger(FAILURE, "words")
"""The one trigger of an entry that has no other, and describes a failure in words of its own."""
_RARE: Final = 2


@dataclass(frozen=True, slots=True)
class StatedEntry:
    """A part of a document that has triggers: a whole note, or a paragraph or list item of another
    file.

    Attributes:
        line, last_line: its first and its last line in the document, from 1.
        text: the beginning of its text, to be shown.
        triggers: its triggers, without duplicates.
        terms: if the entry describes a failure in its own words, its terms (`failure_terms`); else
            empty.
    """

    line: int
    last_line: int
    text: str
    triggers: tuple[Trigger, ...]
    terms: frozenset[str] = frozenset()


def order(entries: Sequence[StatedEntry]) -> list[float]:
    """Return a sort key for each entry of a memory, for use when there are too many entries to
    keep.

    Entries that name a file, command or error sort first. The others follow, those with the most
    rare terms first.
    """
    counts = Counter(term for entry in entries for term in entry.terms)
    return [-sum(counts[term] <= _RARE for term in entry.terms) if entry.terms else -math.inf for entry in entries]


# -- stored texts -------------------------------------------------------------------------------------------------


def entries(text: str) -> list[StatedEntry]:
    """Return the entries of a document that have triggers. Never raises.

    Triggers are stated by the front matter fields `about`, `command` and `error`. A text also
    states as triggers the files and commands that it names in words of caution such as "never", and
    each error message that it quotes.
    """
    parts = front_matter.parse(text)
    fields = parts.fields
    stated = [*_in_fields(fields)]
    above = parts.head.count("\n")
    if "id" in fields or stated:
        return _note(parts.body, fields, stated, above)
    is_cautious = _is_cautious(fields)
    found: list[StatedEntry] = []
    for line, entry in _blocks(parts.body):
        found += _entry(above + line, entry, _triggers(entry, is_cautious=is_cautious))
    return found


def _note(body: str, fields: dict[str, object], stated: list[Trigger], above: int) -> list[StatedEntry]:
    """Return a note as one entry, if it has triggers."""
    read = body[:MAX_ENTRY]
    triggers = _first([*stated, *_triggers(read, is_cautious=_is_cautious(fields))])
    leading = len(body) - len(body.lstrip())
    return _entry(above + 1 + body[:leading].count("\n"), body, triggers)


def _entry(line: int, text: str, triggers: tuple[Trigger, ...]) -> list[StatedEntry]:
    """Return the entry of a text that has triggers, or describes a failure; none of another one."""
    text = text.strip()
    last, shown = line + text.count("\n"), text[:MAX_SHOWN]
    if triggers:
        return [StatedEntry(line, last, shown, triggers)]
    terms = failure_terms.of_note(shown)
    return [StatedEntry(line, last, shown, (TOLD,), frozenset(terms.weights))] if terms else []


def _is_cautious(fields: dict[str, object]) -> bool:
    said: list[object] = [fields.get("type"), fields.get("category")]
    tags = fields.get("tags")
    said += tags if isinstance(tags, list) else re.split(r"[,\s]+", tags) if isinstance(tags, str) else []
    return any(isinstance(word, str) and word.strip().lstrip("#").casefold() in _CAUTIOUS for word in said)


def _in_fields(fields: dict[str, object]) -> Iterator[Trigger]:
    """Yield the triggers of the fields `about`, `command` and `error`."""
    for one in _texts(fields.get("about")):
        if not one.startswith("git:") and (path := path_key(_PLACE.sub("", one))):
            yield Trigger(PATH, path)
    for one in _texts(fields.get("command")):
        if words := command_words(one):
            yield Trigger(COMMAND, " ".join(words)[:MAX_KEY])
    for one in _texts(fields.get("error")):
        yield from (
            Trigger(ERROR, key) for key in (*codes(one), signature(one) or skeleton(one, with_names=True)) if key
        )


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item.strip()[:1000] for item in items if isinstance(item, str) and item.strip()]


def _triggers(entry: str, *, is_cautious: bool) -> tuple[Trigger, ...]:
    """Return the triggers that an entry's text states."""
    found: list[Trigger] = []
    fenced, prose = _split_fences(entry)
    spans = _SPAN.findall(prose)
    quoted = [match[0] for match in (*_SPAN.finditer(prose), *QUOTED.finditer(prose))]
    for text in (*fenced, *(one[1:-1] for one in quoted if one[0] != "`" or _is_message(one))):
        found += _errors(text, is_quoted=True)
    if not found and (match := _MESSAGE.search(prose)):
        found += _errors_in(match[0])
    found += [Trigger(ERROR, code) for code in codes(entry)]
    if is_cautious or _CAUTION.search(prose):
        for span in spans:
            found += [] if _is_message(span) else _in_span(span)
        found += [Trigger(PATH, path) for word in _BARE.findall(_SPAN.sub(" ", prose)) if (path := _bare_path(word))]
        for line in fenced:
            if (words := command_words(line.removeprefix("$ "))) and line.startswith("$ "):
                found.append(Trigger(COMMAND, " ".join(words)[:MAX_KEY]))
    return _first(found)


def _in_span(span: str) -> list[Trigger]:
    """Return the file or the command that a code span names."""
    span = span.strip()
    plain = _PLACE.sub("", span)
    if " " not in span and (path := _bare_path(plain) or (_FOLDER.fullmatch(plain) and path_key(plain))):
        return [Trigger(PATH, path)]
    words = command_words(span)
    if len(words) > 1 or (words and span == words[0] and span in _LONE):
        return [Trigger(COMMAND, " ".join(words)[:MAX_KEY])]
    return []


def _bare_path(word: str) -> str:
    return path_key(word) if _EXTENSION.fullmatch(word) or word in _NAMED else ""


def _is_message(span: str) -> bool:
    """Return True if code is a message, since it says that something failed, or is a sentence; other
    code may be a command.
    """
    words = span.strip("`").casefold().split()
    return bool(FAILS.search(span)) or (len(words) > _LEAST_SENTENCE and not _SENTENCE.isdisjoint(words))


def _errors(text: str, *, is_quoted: bool = False) -> list[Trigger]:
    """Return the message in a quoted text, if it is one that says what failed."""
    key = signature(text, is_quoted=is_quoted) if len(text) >= _LEAST_MESSAGE else ""
    return [Trigger(ERROR, key)] if key else []


def _errors_in(text: str) -> list[Trigger]:
    """Return the messages with which an unquoted text may begin: nothing says where the message ends
    and the remark on it begins, so each end of a clause may be the one.
    """
    ends = [match.start() for match in _CLAUSE.finditer(text)][:_MOST_CLAUSES]
    return [trigger for end in (*ends, len(text)) for trigger in _errors(text[:end])]


def _first(found: Iterable[Trigger]) -> tuple[Trigger, ...]:
    return tuple(dict.fromkeys(found))[:MAX_TRIGGERS]


def _split_fences(entry: str) -> tuple[list[str], str]:
    """Return the lines of fenced code, and the rest."""
    fence, fenced, prose = "", [], []
    for line in _MARK.sub("", entry[:MAX_ENTRY], count=1).split("\n"):
        if mark := FENCE.match(line):
            fence = "" if fence and line.strip().startswith(fence) else fence or mark[1]
        elif fence:
            fenced.append(line.strip())
        else:
            prose.append(line)
    return fenced, "\n".join(prose)


def _blocks(body: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and top list items of a text, each with its first line from 1. Fenced
    code goes with the paragraphs before and behind it, which say what it is.
    """
    lines = body.split("\n")
    start, kept, fence, count = 1, list[str](), "", 0
    is_behind_fence = False
    for number, line in enumerate(lines, 1):
        mark = FENCE.match(line)
        is_open = bool(fence or mark)
        if mark:
            is_behind_fence = bool(fence) and line.strip().startswith(fence)
            fence = "" if is_behind_fence else fence or mark[1]
        elif line.strip():
            is_behind_fence = False
        is_blank = not line.strip() and not _is_beside_fence(lines, number, is_behind_fence)
        if not is_open and (is_blank or _is_start(line)):
            if kept:
                yield start, "\n".join(kept).rstrip()[:MAX_ENTRY]
                count += 1
                if count == _MOST_ENTRIES:
                    return
            kept = []
        if not line.startswith("#") and (line.strip() or kept):
            start = start if kept else number
            kept.append(line)
    if kept:
        yield start, "\n".join(kept).rstrip()[:MAX_ENTRY]


def _is_start(line: str) -> bool:
    return line.startswith("#") or (is_item(line) and not line[:1].isspace())


def _is_beside_fence(lines: Sequence[str], number: int, is_behind: bool) -> bool:
    """Return True if the blank line with this number (from 1) stands between fenced code and a
    paragraph.
    """
    return is_behind or (number < len(lines) and FENCE.match(lines[number]) is not None)


# -- new notes ----------------------------------------------------------------------------------------------------


def trigger_fields(text: str) -> dict[str, str | list[str]]:
    """Return the front matter fields `command` and `error` for a new note with this text.

    `command` lists the commands that, according to the text, fail or must not be run; `error` lists
    the keys of the errors that it quotes. A field without values is left out.
    """
    read = text[:MAX_ENTRY]
    fenced, prose = _split_fences(read)
    commands, errors = list[str](), list[str]()
    for sentence in _SENTENCE_END.split(prose):
        has_failed = bool(_FAILED.search(sentence))
        for match in _SPAN.finditer(sentence):
            words = command_words(match[1])
            is_named = len(words) > 1 or (bool(words) and match[1] in _LONE)
            before, behind = sentence[: match.start()], sentence[match.end() :]
            is_it = _NEVER.search(before) or (
                has_failed and (_OF.search(before) or _FAILED.match(_NEXT.sub("", behind)))
            )
            if is_named and is_it and not _is_message(match[1]) and "(sealed:" not in match[1]:
                commands.append(" ".join(words)[:MAX_KEY])
        own = codes(sentence)
        if own and (has_failed or FAILS.search(_CODE_LIKE.sub(" ", sentence))):
            errors += own
    quoted = [match[0][1:-1] for match in (*_SPAN.finditer(prose), *QUOTED.finditer(prose))]
    for message in (*fenced, *quoted):
        if _SAYS.search(_CODE_LIKE.sub(" ", message)) and not _NO_MESSAGE.search(message):
            errors += codes(message) or [trigger.key for trigger in _errors(message, is_quoted=True)]
    found = {"command": commands[:_MOST_COMMANDS], "error": list(dict.fromkeys(errors))[:_MOST_ERRORS]}
    return {
        name: values[0] if len(values) == 1 else list(dict.fromkeys(values)) for name, values in found.items() if values
    }


def places(text: str) -> list[str]:
    """Return the files that a text names, without duplicates, each with the position that the text
    gives for it: `src/auth.py#login`, `src/db.py:10-40`.
    """
    found = (word.rstrip(".") for word in _PLACED.findall(text[:MAX_READ]))
    return list(dict.fromkeys(word for word in found if _bare_path(_PLACE.sub("", word))))


def path_key(path: str) -> str:
    """Return a relative path in a normalized form for comparison, or "" if the path is not relative
    or leads out of its folder.
    """
    parts = [part for part in path.replace("\\", "/").strip().split("/") if part not in ("", ".")]
    if not parts or ".." in parts or path.startswith(("/", "~")) or len(path) > MAX_KEY or "://" in path:
        return ""
    return "/".join(parts)


def is_path(key: str, edited: str) -> bool:
    """Return True if `key`, a file or folder that a note names, includes the edited file.

    It does if it is the file itself, a folder around it, or only the file's name without a folder.
    `edited` is relative to the project's root.
    """
    if edited == key or edited.startswith(f"{key}/"):
        return True
    return "/" not in key and edited.endswith(f"/{key}") and (bool(_EXTENSION.fullmatch(key)) or key in _NAMED)
