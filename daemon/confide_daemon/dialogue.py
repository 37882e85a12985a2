"""A session's messages as markdown. Pure functions; what is added never changes how the lines before it are read.

    # Claude Code session of 2026-11-21

    Began 14:03 UTC on branch main; session 0a6afc57-2f31-4cb4-8ff0-01247f50c64c.

    ## User 14:03

    Why did we choose postgres?

    ## Assistant 14:03

    [tool Grep: postgres]

A heading stands before each change of speaker, and at least every ten minutes, so that the pieces that are cut at headings say who
spoke, and when. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from confide_daemon.markdown import FENCE, HEADING, structure

ROLES = ("user", "assistant")
_SAME_BREATH_S = 600.0
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_BRANCH = re.compile(
    r"^(?:## \w+ [\d: -]+ \(branch |Began \d\d:\d\d UTC on branch )(.+?)(?:\)|; session [\w-]+\.)$", re.MULTILINE
)
_MAY_SWALLOW = re.compile(r"^ {0,3}(?:<|`{3}|~{3})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: of `ROLES`.
        text: markdown, whatever it holds.
        time: in UTC.
        branch: "" where it is not known.
    """

    role: str
    text: str
    time: datetime
    branch: str = ""


def title(agent: str, session: str, first: Message, part: int) -> str:
    """How a document of a session begins."""
    name = " ".join(word.capitalize() for word in agent.split("-"))
    branch = f" on branch {first.branch}" if first.branch else ""
    more = f", part {part}" if part > 1 else ""
    day, clock = first.time.date().isoformat(), _clock(first.time)
    return f"# {name} session of {day}{more}\n\nBegan {clock} UTC{branch}; session {session}.\n"


def rendered(messages: Sequence[Message], *, day: str, branch: str) -> str:
    """The lines to add for these messages: those of one breath share a heading, the first always has one.

    Args:
        day: of the document, ISO; a message of another one says its own.
        branch: what the document said last (`branch_in`).
    """
    pieces = []
    role = ""
    heading_at = messages[0].time if messages else None
    for message in messages:
        has_moved = bool(message.branch) and message.branch != branch
        assert heading_at is not None
        if message.role != role or has_moved or abs((message.time - heading_at).total_seconds()) > _SAME_BREATH_S:
            own_day = message.time.date().isoformat()
            clock = _clock(message.time) if own_day == day else f"{own_day} {_clock(message.time)}"
            pieces.append(
                f"\n## {message.role.capitalize()} {clock}{f' (branch {message.branch})' if has_moved else ''}\n"
            )
            heading_at, role = message.time, message.role
        branch = message.branch or branch
        pieces.append(f"\n{body(message.text)}\n")
    return "".join(pieces)


def branch_in(text: str) -> str:
    """The branch that a document's last heading, or else its beginning, names; "" where none does."""
    named = _BRANCH.findall(text)
    return named[-1] if named else ""


def body(text: str) -> str:
    """A message's text so that it stands below its own heading and ends with itself: its headings go two levels down, a fence that it
    leaves open is closed, and one that would swallow what follows all the same is shown as it is, as code."""
    lines: list[str] = []
    fence = ""
    for line in text.strip("\n").split("\n"):
        mark = FENCE.match(line)
        if fence:
            if mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif found := HEADING.match(line):
            line = f"{'#' * min(6, len(found[1]) + 2)} {found[2].strip()}"
        elif _UNDERLINE.match(line) and lines and lines[-1].strip():
            lines.append("")  # below a blank line it underlines nothing
        lines.append(line)
    if fence:
        lines.append(fence)
    whole = "\n".join(lines)
    if _MAY_SWALLOW.search(whole) and not _ends_with_itself(whole):
        return "\n".join("    " + line for line in text.strip("\n").split("\n"))
    return whole


def _ends_with_itself(text: str) -> bool:
    """Whether a heading right below the text is one."""
    lines = text.count("\n") + 2
    return any(heading.line == lines and heading.level == 2 for heading in structure(f"{text}\n\n## End\n")[1])


def _clock(moment: datetime) -> str:
    return moment.strftime("%H:%M")
