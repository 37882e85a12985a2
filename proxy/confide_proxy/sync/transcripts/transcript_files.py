"""Read transcript files: find them, read complete lines from an offset on, collect batches to send,
and compute hashes that identify a file.

No symlink to a folder or file is followed. Lines over `MAX_LINE_BYTES` are skipped without being
kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto import portable
from confide_crypto.sealing.placeholder import STANDIN
from confide_memory.documents import iso
from confide_proxy import folder_access
from confide_proxy.errors import BlockedError
from confide_proxy.sync.transcripts.parsers import Parser, UnknownLineError, branch_name
from confide_proxy.sync.walk import list_entries, open_descending

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Sealer, Secret

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Longest line in bytes: one with a pasted image has a few MiB; a longer one contains nothing that
a search could find.
"""
MAX_FILES = 50_000
_CHUNK = 256 * 1024
_HEAD_BYTES = 4096
_MARK_BYTES = 1024
BATCH_BYTES: Final = 100_000
BATCH_MESSAGES: Final = 50
MOST_MESSAGES: Final = 200
"""Most messages in a batch. A long transcript is sent in large batches, since each one makes the
daemon's searches reload what they had in memory.
"""
SCAN_BYTES: Final = 1024 * 1024
"""Most bytes to read for one batch, however few messages they contain: most bytes of a transcript
are outputs of tools.
"""
MAX_TEXT_CHARS: Final = 64 * 1024
"""Longest message in characters: a longer one is a pasted file, which its beginning describes."""
_LONGEST_PLACEHOLDER: Final = 128


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript file that was found but not read yet. `path` is absolute."""

    path: Path
    session: str
    inode: int
    size: int
    mtime_ns: int


def found_below(root: Path, parser: Parser) -> tuple[list[TranscriptFile], list[Path]]:
    """Return the transcripts below a folder, newest first, one file per session; and the folders
    that were searched.

    Unreadable files and folders are skipped.
    """
    found: dict[str, TranscriptFile] = {}
    folders: list[Path] = []
    for path, entry in _entries(root, parser.depth, folders):
        session = parser.session_of(path.relative_to(root))
        if session is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # deleted since the folder was listed
        file = TranscriptFile(path, session, status.st_ino, status.st_size, status.st_mtime_ns)
        if stat.S_ISREG(status.st_mode) and (session not in found or found[session].mtime_ns < file.mtime_ns):
            found[session] = file
    return sorted(found.values(), key=lambda file: -file.mtime_ns)[:MAX_FILES], folders


def looked_at(file: TranscriptFile) -> TranscriptFile | None:
    """Return the same file with its present size and time; None if it was deleted."""
    try:
        status = file.path.lstat()
    except OSError:
        return None
    return replace(file, inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _entries(root: Path, depth: int, folders: list[Path], folder: str = "") -> Iterator[tuple[Path, os.DirEntry[str]]]:
    folders.append(root / folder)
    for path, entry in list_entries(root, folder):
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _entries(root, depth - 1, folders, path)
        elif not entry.is_symlink():
            yield root / path, entry


@contextmanager
def open_below(root: Path, path: Path) -> Iterator[int]:
    """Open a file below `root`, and yield its file descriptor.

    Raises OSError if the file was deleted, a part of its path is a symlink, it is not a regular
    file, or it cannot be read.
    """
    *folders, name = path.relative_to(root).parts
    with open_descending(root, folders) as parent:
        fd = folder_access.open_file(parent, name, os.O_RDONLY | portable.NO_WAIT)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(None, "not a regular file")
        yield fd
    finally:
        os.close(fd)


def whole_lines(fd: int, begin: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line from the offset `begin` on, without its newline, after the offset of its end.
    A line that is too long is replaced by None.

    A last line without a newline is still being written, and left out.
    """
    position = begin
    rest = bytearray()
    is_skipping = False
    while chunk := portable.read_at(fd, _CHUNK, position):
        first = 0
        while (end := chunk.find(b"\n", first)) >= 0:
            rest += chunk[first:end]
            is_skipping |= len(rest) > MAX_LINE_BYTES
            first = end + 1
            yield position + first, None if is_skipping else bytes(rest)
            rest.clear()
            is_skipping = False
        rest += chunk[first:]
        if len(rest) > MAX_LINE_BYTES:
            is_skipping = True
            rest.clear()
        position += len(chunk)


def head_of(fd: int) -> str:
    """Return a hash that identifies the file: of its first line, or of its beginning if that line
    is long. "" while the first line is incomplete.
    """
    data = portable.read_at(fd, _HEAD_BYTES, 0)
    end = data.find(b"\n")
    if end < 0 and len(data) < _HEAD_BYTES:
        return ""
    return _digest(data if end < 0 else data[: end + 1])


def mark_of(fd: int, offset: int) -> str:
    """Return a hash of the bytes right before the offset, to detect that the file was rewritten. ""
    if the offset is 0 or after the file's end.
    """
    begin = max(0, offset - _MARK_BYTES)
    data = portable.read_at(fd, offset - begin, begin)
    return _digest(data) if data and len(data) == offset - begin else ""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass(slots=True)
class OutgoingBatch:
    """The messages of a transcript between two offsets, in the form in which they are sent
    (PROTOCOL.md 9.5). The daemon must get the encrypted records of `secrets` before.

    Attributes:
        branch: the git branch that was named last, in its local spelling.
        skipped: the number of lines that were damaged, unknown, too long, or blocked by the policy.
        is_full: True if more messages may follow after this batch.
    """

    begin: int
    end: int
    branch: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    skipped: int = 0
    is_full: bool = False
    secrets: set[Secret] = field(default_factory=set)

    @property
    def is_due(self) -> bool:
        """Return True if the batch is large enough to be sent at once."""
        return self.is_full or len(self.messages) >= BATCH_MESSAGES or self.end - self.begin >= BATCH_BYTES


def collect(fd: int, parser: Parser, begin: int, sealer: Sealer, *, branch: str, mtime: float) -> OutgoingBatch:
    """Read the next batch of messages from a file and seal them. `mtime`, in seconds since 1970, is
    used as the time of lines without one. Blocks.

    Raises OSError if the file cannot be read, and KeyFileError as `Sealer.seal` does.
    """
    batch = OutgoingBatch(begin, begin, branch)
    time = iso(max(0.0, mtime))
    size = 0
    branches: dict[str, str] = {"": ""}
    for end, line in whole_lines(fd, begin):
        batch.end = end
        try:
            if line is None:
                raise UnknownLineError("too long")
            entry = parser.parse(line) if line.strip() else None
        except UnknownLineError:
            batch.skipped += 1
            entry = None
        if entry is not None:
            time = entry.time or time
            batch.branch = branch_name(entry.branch) or batch.branch
            if entry.role and entry.text:
                text = _seal_text(entry.text, sealer, batch)
                if text is None:
                    batch.skipped += 1
                else:
                    if batch.branch not in branches:
                        branches[batch.branch] = branch_name(_seal_text(batch.branch, sealer, batch) or "")
                    said = {"role": entry.role, "text": text, "time": time, "branch": branches[batch.branch]}
                    batch.messages.append(said)
                    size += len(text.encode())
        if len(batch.messages) >= MOST_MESSAGES or size >= BATCH_BYTES or end - begin >= SCAN_BYTES:
            batch.is_full = True
            break
    return batch


def origin_of(fd: int, parser: Parser) -> tuple[str, str] | None:
    """Return the working folder and the git branch of the session in a file, "" for each that its
    first lines do not name. None while these lines are not written yet.
    """
    cwd = branch = ""
    end = 0
    for entry, end in _parse_lines(fd, parser):
        cwd, branch = cwd or entry.cwd, branch or entry.branch
        if cwd or end >= SCAN_BYTES:
            break
    return (cwd, branch_name(branch)) if cwd or end >= SCAN_BYTES else None


def _parse_lines(fd: int, parser: Parser) -> Iterator[tuple[Any, int]]:
    for end, line in whole_lines(fd, 0):
        try:
            if line and line.strip():
                yield parser.parse(line), end
        except UnknownLineError:
            continue


def _seal_text(text: str, sealer: Sealer, batch: OutgoingBatch) -> str | None:
    """Return a sealed message; None if the policy blocks it."""
    try:
        # Before the text is cut, which could leave an undetectable half of a credential.
        sealed = sealer.seal(text, "transcripts", is_sensitive=False)
    except BlockedError:
        return None
    batch.secrets.update(sealed.secrets)
    return _shorten(sealed.text)


def _shorten(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    end = MAX_TEXT_CHARS
    # A cut placeholder is useless, and no search finds it.
    for found in STANDIN.finditer(text, max(0, end - _LONGEST_PLACEHOLDER)):
        if found.start() < end < found.end():
            end = found.start()
    return f"{text[:end]}\n\n[… {len(text) - end} more characters]"
