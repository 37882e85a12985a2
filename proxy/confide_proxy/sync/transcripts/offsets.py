"""How far each transcript has been sent, as the daemon last said. A cache: without it, or with a wrong one, the daemon is asked.

One file a source and space, of JSON lines that are only added to; who streams the source writes it, and `confide sync` may beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import astuple, dataclass, replace
from pathlib import Path

_COMPACT_AFTER = 1000
"""Superseded lines before the file is written anew, when it is next opened."""
_BRANCH_CHARS = 128


@dataclass(frozen=True, slots=True)
class Known:
    """How far one session is.

    Attributes:
        project: the project that it belongs to; "" while that is not known.
        branch: the branch that was named last before the offset.
        version, offset, head, mark: the daemon's state of it (PROTOCOL.md 9.5).
        is_forgotten: somebody had it deleted at the daemon; nothing of it is sent again.
        inode, size, mtime_ns: its file when there was nothing to send; 0 while there may be.
    """

    project: str = ""
    branch: str = ""
    version: int = 0
    offset: int = 0
    head: str = ""
    mark: str = ""
    is_forgotten: bool = False
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0

    def on(self, branch: str) -> Known:
        """The same, with another branch."""
        return replace(self, branch=printable(branch))


class Progress:
    """The sessions of one source in one space. Methods touch the disk briefly."""

    def __init__(self, folder: Path, space: str, source: Path) -> None:
        name = hashlib.blake2b(f"{space}\0{source}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._file = folder / f"{name}.jsonl"
        self._known: dict[str, Known] = {}
        if self._load() > len(self._known) + _COMPACT_AFTER:
            self._compact()

    def get(self, session: str) -> Known:
        """How far a session is; nothing is known of a new one."""
        return self._known.get(session, Known())

    def clear(self) -> None:
        """Nothing is known of any session, until it is set anew."""
        self._known.clear()

    def set(self, session: str, known: Known) -> None:
        """Remember it.

        Raises:
            OSError: the disk refuses; it is known all the same, as long as this object lives.
        """
        self._known[session] = known
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # One write of one whole line: O_APPEND keeps the lines of two processes apart.
            os.write(fd, _encoded(session, known))
        finally:
            os.close(fd)

    def _load(self) -> int:
        try:
            lines = self._file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return 0
        for line in lines:
            try:
                session, *values = json.loads(line)
                known = Known(*values)
            except (ValueError, TypeError):
                continue  # damaged, or of another version: the daemon is asked
            if isinstance(session, str) and _is_sound(known):
                self._known[session] = known
        return len(lines)

    def _compact(self) -> None:
        part = self._file.with_suffix(f".{os.getpid()}.tmp")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.writelines(_encoded(session, known) for session, known in self._known.items())
        part.replace(self._file)


def printable(branch: str) -> str:
    """A branch's name as it may be sent."""
    return "".join(letter for letter in branch if letter.isprintable())[:_BRANCH_CHARS]


def _encoded(session: str, known: Known) -> bytes:
    return json.dumps([session, *astuple(known)], separators=(",", ":")).encode() + b"\n"


def _is_sound(known: Known) -> bool:
    return [type(value) for value in astuple(known)] == [type(value) for value in astuple(Known())]
