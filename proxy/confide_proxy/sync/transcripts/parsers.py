"""The interface of transcript parsers, and their common functions. A parser takes one line of a
transcript and returns at most one message.

A parser keeps no state, so that reading can start at any line. It must not return outputs of tools
(a call is one line), thinking, texts that the client or Confide itself inserted, and conversations
of an agent with its subagents.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from confide_memory.actions.error_messages import message_in
from confide_memory.documents import parse_time

Role = Literal["user", "assistant"]

MAX_MENTION_CHARS = 160
_BRANCH_CHARS = 128
_TELLING = ("command", "cmd", "file_path", "notebook_path", "path", "pattern", "url", "query", "description")
"""Arguments that identify a call best, in this order. Others may be whole files."""
_INJECTED = re.compile(
    r"(?:<|&lt;)(confide-memory|system-reminder|hook_context)\b(?:[^<>&]|&(?!gt;))*(?:>|&gt;).*?(?:<|&lt;)/\1(?:>|&gt;)",
    re.DOTALL,
)
"""Texts that hooks inserted; some clients escape them."""
_CUT_OFF = re.compile(
    r"^(?:<|&lt;)(?:confide-memory|system-reminder|hook_context)\b(?:[^<>&]|&(?!gt;))*(?:>|&gt;).*",
    re.DOTALL | re.MULTILINE,
)
"""An inserted block without an end extends to the end of the text; in the middle of a line it is
only a mention.
"""
_SURROGATES = re.compile("[\0\ud800-\udfff]")
_STORED = re.compile(
    r"^Stored in (?P<path>[^\n]{1,512}?) \[(?P<project>[^\]\n]{1,256})\](?: as note \S{1,200})?, revision (?P<revision>\d{1,9})\b"
    r"|^The note \S{1,200} in (?P<path2>[^\n]{1,512}?) \[(?P<project2>[^\]\n]{1,256})\] [^\n]{1,64}: revision (?P<revision2>\d{1,9})\b",
    re.MULTILINE,
)
_MOST_HEAD = 4096
_FETCHES = re.compile(r"\b(?:curl|wget|lynx|w3m|https?://|(?:gh|glab)\s)", re.IGNORECASE)
_CONFIDE = re.compile(r"(?:mcp__)?(?:plugin_confide_)?confide__(\w+)")


class UnknownLineError(ValueError):
    """A line of a transcript is damaged, or of a kind that the parser does not know."""


class ToolOutcome(NamedTuple):
    """The result of a tool call in a transcript.

    Attributes:
        call: the client's id of the call.
        failed: True if the tool reported an error.
        stored: (project, path, revision) of a document, if the result says in the words of
            Confide's own tools that it was stored. Any tool may say so: the caller must check which
            tool was called.
        error: the line in a failed call's result that says what has failed; "" if there is none. It
            is used for learning on this device, and is no part of a message.
    """

    call: str
    failed: bool
    stored: tuple[str, str, int] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """The contents of a line of a transcript; fields that it lacks are "". A line without text is
    no message, but may name the session's working folder.

    Attributes:
        role: the speaker; None if the line is no message.
        text: markdown, without NUL and lone surrogates.
        time: ISO 8601 in UTC to the second.
        session: the session id in the line.
        cwd: the working folder.
        calls: the tool calls in it: the client's id of each, and its line in the text.
        outcomes: the results of earlier calls. Other output of tools is not read.
    """

    role: Role | None = None
    text: str = ""
    time: str = ""
    branch: str = ""
    session: str = ""
    cwd: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[ToolOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Parser:
    """The format of a client's transcripts, and where they are.

    Attributes:
        agent: the client's name in the configuration and in the names of documents: lower-case
            letters and hyphens.
        variable: the environment variable that names the client's folder.
        default: the client's folder below the home folder, if the variable is not set.
        inner: the folder of the transcripts in the client's folder.
        depth: the deepest level of subfolders that contain transcripts.
        session_of: returns the session id of a file, given its path below the folder of the
            transcripts: letters, digits, _ and - only. None if the file is not a transcript.
        parse: parses a line. Raises UnknownLineError if it is damaged or of an unknown kind.
    """

    agent: str
    variable: str
    default: str
    inner: str
    depth: int
    session_of: Callable[[Path], str | None]
    parse: Callable[[bytes], ParsedLine]

    def home(self) -> Path:
        """Return the default folder of the client's transcripts, used unless the configuration
        names another one.
        """
        said = os.environ.get(self.variable)
        return (Path(said).expanduser() if said else Path.home() / self.default) / self.inner


def record_of(line: bytes) -> dict[str, object]:
    """Return the JSON object in a line. Raises UnknownLineError if the line is not a JSON object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UnknownLineError("not JSON") from None
    if not isinstance(record, dict):
        raise UnknownLineError("not a JSON object")
    return record


def text_in(table: Mapping[str, object], key: str) -> str:
    """Return the string under a key of a record; "" if there is no such string."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def clean_text(text: str) -> str:
    """Return a text of a transcript without what the client or Confide has inserted, in a form that
    may be sent.
    """
    return sendable(_CUT_OFF.sub("", _INJECTED.sub("", text))).strip()


def sendable(text: str) -> str:
    """Return a text in a form that documents may contain: line ends are "\\n", and forbidden
    characters are replaced.
    """
    return _SURROGATES.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


def utc(time: str) -> str:
    """Convert an ISO 8601 time to UTC, to the second; "" if it is invalid."""
    moment = parse_time(time)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment and moment.year >= 1970 else ""


def branch_name(branch: str) -> str:
    """Return a git branch's name in the form in which it may be sent."""
    return "".join(letter for letter in branch if letter.isprintable())[:_BRANCH_CHARS]


def mention(tool: str, arguments: Any) -> str:
    """Return one line for a tool call, with the tool's name and its main argument, shortened. It
    does not contain the result.
    """
    if own := _CONFIDE.fullmatch(tool):
        return f"[tool confide {own[1]}]"  # the stored text is in the memory already
    said = arguments if isinstance(arguments, str) else ""
    if isinstance(arguments, dict):
        values = (arguments.get(key) for key in _TELLING)
        said = next((shown for value in values if (shown := _command_text(value))), "")
    whole = sendable(said)
    line = _line(whole)
    if line.endswith("…") and _FETCHES.search(line) is None and (fetches := _FETCHES.search(whole)):
        # The part that was cut off shows that the agent read text of others. An address may be a
        # credential.
        line += f" {fetches[0].strip()}…" if "/" not in fetches[0] else " http://…"
    name = " ".join(sendable(tool).split())[:64] or "unnamed"
    return f"[tool {name}: {line}]" if line else f"[tool {name}]"


def stored_in(answer: Any) -> tuple[str, str, int] | None:
    """Return (project, path, revision) of the document that a tool's result says was stored, in the
    words of `memory_store` and `memory_update`; None if it says no such thing. The result is a text
    or a list of blocks.
    """
    if isinstance(answer, list):
        answer = next((text_in(block, "text") for block in answer if isinstance(block, dict)), "")
    found = _STORED.search(answer, 0, _MOST_HEAD) if isinstance(answer, str) else None
    if found is None:
        return None
    path, project, revision = (found[name] or found[f"{name}2"] for name in ("path", "project", "revision"))
    return sendable(project), sendable(path), int(revision)


def error_in(answer: Any) -> str:
    """Return the line that says what has failed in the result of a failed tool call; "" if there is
    none. The result is a text or a list of blocks.
    """
    if isinstance(answer, list):
        answer = "\n".join(text_in(block, "text") for block in answer if isinstance(block, dict))
    return message_in(sendable(answer)) if isinstance(answer, str) else ""


def _line(said: str) -> str:
    """Shorten a text to one line. It ends before a credential that could not be detected in it any
    more, being cut or spread over lines.
    """
    from confide_proxy.sealing.detection import scanner

    line = " ".join(said.split())
    if len(line) > MAX_MENTION_CHARS:
        line = line[: MAX_MENTION_CHARS - 1] + "…"
    if line == said:
        return line
    known = {(found.start, found.end): found.confidence for found in scanner.scan(line)}
    for found in scanner.scan(said):
        begin = len(" ".join(f"{said[: found.start]}.".split())) - 1
        if begin >= MAX_MENTION_CHARS - 1:
            break
        if known.get((begin, begin + found.end - found.start), -1.0) < found.confidence:
            return line[:begin] + "…"
    return line


def _command_text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        # ["bash", "-lc", "make test"]: the last argument is the command.
        return str(value[-1]) if len(value) == 3 and value[1] in ("-lc", "-c") else " ".join(value)
    return value if isinstance(value, str) else ""
