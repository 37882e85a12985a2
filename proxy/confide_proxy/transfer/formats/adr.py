"""Architecture decision records: how they are known, and what they say of their status and of each other.

The forms of Michael Nygard's template (adr-tools) and of MADR (https://adr.github.io/madr/) are read.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from confide_proxy.transfer.formats.sections import Section, plain

_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "architecture-decisions"})
_NAMED = re.compile(r"adr[-_ ]?\d.*\.md|adr-.+\.md", re.IGNORECASE)
_NUMBERED = re.compile(r"\d{2,8}[-_ ].+\.md", re.IGNORECASE)
_STATUS_LINE = re.compile(r"^\s*(?:[-*+]\s+)?\**status\**\s*:\**\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_DATE_LINE = re.compile(r"^\s*(?:[-*+]\s+)?\**date\**\s*:\**\s*(\d{4}-\d{2}-\d{2})", re.IGNORECASE | re.MULTILINE)
_WORDS = (
    "accepted",
    "proposed",
    "superseded",
    "deprecated",
    "rejected",
    "amended",
    "implemented",
    "approved",
    "draft",
    "done",
)
_LINKED = re.compile(
    r"(superseded|replaced|supersedes|replaces)(?:\s+by)?\b[^\n(]{0,200}\(([^()\s]{1,200}\.md)\)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a decision record says of itself.

    Attributes:
        date: YYYY-MM-DD.
        supersedes, superseded_by: other records, as paths like its own.
    """

    status: str | None
    date: str | None
    supersedes: tuple[str, ...]
    superseded_by: tuple[str, ...]


def is_decision(path: str, found: list[Section]) -> bool:
    """Whether the file is a decision record, by its name or by its headings."""
    *folders, name = path.split("/")
    if is_template(path):
        return False
    if _NAMED.fullmatch(name) or (_NUMBERED.fullmatch(name) and folders and folders[-1].lower() in _FOLDERS):
        return True
    own = {section.headings[-1].lower() for section in found if section.headings}
    has_context = any(heading.startswith("context") for heading in own)
    has_decision = any(heading.startswith("decision") for heading in own)
    return has_context and has_decision and ("status" in own or "consequences" in own or "considered options" in own)


def is_template(path: str) -> bool:
    """Whether the file is what decision records are begun from."""
    *folders, name = path.lower().split("/")
    return "template" in name and (bool(folders and folders[-1] in _FOLDERS) or name.startswith("adr"))


def decision_of(path: str, text: str, found: list[Section], status: object) -> Decision:
    """What the record at `path` says; `status` is what its front matter gives."""
    told = str(status) if isinstance(status, str) else ""
    section = next((one.text for one in found if one.headings and one.headings[-1].lower() == "status"), "")
    line = _STATUS_LINE.search(text[:2000])
    about = "\n".join((told, section, line[1] if line else ""))
    date = _DATE_LINE.search(text[:2000])
    supersedes: list[str] = []
    superseded_by: list[str] = []
    for word, target in _LINKED.findall(about):
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        (superseded_by if word.lower().endswith("d") else supersedes).append(named)
    return Decision(
        _status(told or section or (line[1] if line else "")),
        date[1] if date else None,
        tuple(dict.fromkeys(supersedes)),
        tuple(dict.fromkeys(superseded_by)),
    )


def _status(text: str) -> str | None:
    """One word where it is one of the usual ones; of several lines the last that says one, as adr-tools adds them."""
    lines = [plain(line.strip().lstrip("-*+ ")) for line in text.split("\n")]
    lines = [line for line in lines if line]
    known = [line.split()[0].lower().strip(".,:;") for line in lines]
    usual = [word for word in known if word in _WORDS]
    if usual:
        return "superseded" if "superseded" in usual else usual[0]
    return lines[0][:60] if lines else None
