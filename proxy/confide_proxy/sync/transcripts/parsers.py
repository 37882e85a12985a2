"""What a parser of transcripts is, and what all of them need: one line in, at most one message out.

A parser keeps no state, so that reading can begin at any line. What it must not pass on: outputs of tools (a call is one line), thinking,
what the client or Confide itself put into the conversation, and the conversations that an agent has with agents of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from confide_memory.documents import parsed

Role = Literal["user", "assistant"]

MAX_MENTION_CHARS = 160
_BRANCH_CHARS = 128
_TELLING = ("command", "cmd", "file_path", "notebook_path", "path", "pattern", "url", "query", "description")
"""What says best which call it was, in this order. Other arguments may be whole files."""
_INJECTED = re.compile(
    r"(?:<|&lt;)(confide-memory|system-reminder|hook_context)\b(?:[^<>&]|&(?!gt;))*(?:>|&gt;).*?(?:<|&lt;)/\1(?:>|&gt;)",
    re.DOTALL,
)
"""Some clients escape what a hook says."""
_CUT_OFF = re.compile(
    r"^(?:<|&lt;)(?:confide-memory|system-reminder|hook_context)\b(?:[^<>&]|&(?!gt;))*(?:>|&gt;).*",
    re.DOTALL | re.MULTILINE,
)
"""One that is not closed goes on to the end; in the middle of a line it is only talked about."""
_SURROGATES = re.compile("[\0\ud800-\udfff]")
_STORED = re.compile(
    r"^Stored in (?P<path>[^\n]{1,512}?) \[(?P<project>[^\]\n]{1,256})\](?: as note \S{1,200})?, revision (?P<revision>\d{1,9})\b"
    r"|^The note \S{1,200} in (?P<path2>[^\n]{1,512}?) \[(?P<project2>[^\]\n]{1,256})\] [^\n]{1,64}: revision (?P<revision2>\d{1,9})\b",
    re.MULTILINE,
)
_MOST_HEAD = 4096
_CONFIDE = re.compile(r"(?:^|__|_)confide(?:_\w+?)?__(\w+)$")


class UnknownLineError(ValueError):
    """A line that is broken, or of a kind that the parser does not know."""


class ToolOutcome(NamedTuple):
    """How a call went.

    Attributes:
        call: the client's id of it.
        failed: whether the tool says so.
        stored: (project, path, revision) where it says that it has stored something, in the words of Confide's own tools. Any tool may say
            that: who asks looks at which one was called.
    """

    call: str
    failed: bool
    stored: tuple[str, str, int] | None = None


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """What a line says, "" where it does not say. Without a text it is no message, but may say where the session is.

    Attributes:
        role: who speaks; None where nobody does.
        text: markdown, without NUL and lone surrogates.
        time: ISO 8601 in UTC to the second.
        session: its id as the line has it.
        cwd: the working folder.
        calls: tools that it calls: the client's id of each, and its line in the text.
        outcomes: how calls went that were made before. What tools say beside that is not read.
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
    """One format.

    Attributes:
        agent: its name, in the configuration and in the names of documents: lower-case letters and hyphens.
        variable: of the environment; it names the client's folder.
        default: that folder, below the home folder, where it does not.
        inner: where in it the transcripts are.
        depth: how many folders deep the files lie, at most.
        session_of: the session that a file (relative to that folder) holds: letters, digits, _ and - only; None if it is no transcript.
        parse: what a line says. Raises UnknownLineError: it is broken, or of an unknown kind.
    """

    agent: str
    variable: str
    default: str
    inner: str
    depth: int
    session_of: Callable[[Path], str | None]
    parse: Callable[[bytes], ParsedLine]

    def home(self) -> Path:
        """Where the client keeps its transcripts, unless the configuration names another folder."""
        said = os.environ.get(self.variable)
        return (Path(said).expanduser() if said else Path.home() / self.default) / self.inner


def record_of(line: bytes) -> dict[str, object]:
    """The JSON object of a line. Raises UnknownLineError: it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UnknownLineError("not JSON") from None
    if not isinstance(record, dict):
        raise UnknownLineError("not a JSON object")
    return record


def text_in(table: Mapping[str, object], key: str) -> str:
    """A string of a record, "" where it has none there."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def cleaned(text: str) -> str:
    """The text without what the client or Confide put into it, fit to be sent."""
    return sendable(_CUT_OFF.sub("", _INJECTED.sub("", text))).strip()


def sendable(text: str) -> str:
    """The text with "\\n" for line ends, and a replacement character for what no document may hold."""
    return _SURROGATES.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


def utc(time: str) -> str:
    """An ISO 8601 time in UTC, to the second; "" where it is none."""
    moment = parsed(time)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment and moment.year >= 1970 else ""


def branch_name(branch: str) -> str:
    """A branch's name as it may be sent."""
    return "".join(letter for letter in branch if letter.isprintable())[:_BRANCH_CHARS]


def mention(tool: str, arguments: Any) -> str:
    """One line that says which tool was called, and with what, in short; nothing of what it answered."""
    if own := _CONFIDE.search(tool):
        return f"[tool confide {own[1]}]"  # what was stored is in the memory already
    said = arguments if isinstance(arguments, str) else ""
    if isinstance(arguments, dict):
        values = (arguments.get(key) for key in _TELLING)
        said = next((shown for value in values if (shown := _shown(value))), "")
    line = _line(sendable(said))
    name = " ".join(sendable(tool).split())[:64] or "unnamed"
    return f"[tool {name}: {line}]" if line else f"[tool {name}]"


def stored_in(answer: Any) -> tuple[str, str, int] | None:
    """What `ToolOutcome.stored` says, of an answer that is a text or a list of blocks; as `memory_store` and `memory_update` word it."""
    if isinstance(answer, list):
        answer = next((text_in(block, "text") for block in answer if isinstance(block, dict)), "")
    found = _STORED.search(answer, 0, _MOST_HEAD) if isinstance(answer, str) else None
    if found is None:
        return None
    path, project, revision = (found[name] or found[f"{name}2"] for name in ("path", "project", "revision"))
    return sendable(project), sendable(path), int(revision)


def _line(said: str) -> str:
    """One short line. It ends before a credential that would not be known for one in it any more: half of it, or what had several lines."""
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


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        # ["bash", "-lc", "make test"]: the command is the last one.
        return str(value[-1]) if len(value) == 3 and value[1] in ("-lc", "-c") else " ".join(value)
    return value if isinstance(value, str) else ""
