"""A transcript's file: its whole lines from an offset on, what is sent of them at once, and what tells it from another one.

No symlink is followed: not to a folder, not to a file. Lines over `MAX_LINE_BYTES` are passed over without being held.
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

from confide_memory.documents import iso
from confide_proxy.errors import BlockedError
from confide_proxy.sync.transcripts.parsers import Parser, UnknownLineError, branch_name
from confide_proxy.sync.walk import descended, listed

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Sealer, Secret

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A line with a pasted image has a few MiB; what is longer says nothing that a search could find."""
MAX_FILES = 50_000
_CHUNK = 256 * 1024
_HEAD_BYTES = 4096
_MARK_BYTES = 1024
BATCH_BYTES: Final = 100_000
BATCH_MESSAGES: Final = 50
MOST_MESSAGES: Final = 200
"""A long transcript goes up in larger steps: every one of them makes the daemon's searches read anew what they had in memory."""
SCAN_BYTES: Final = 1024 * 1024
"""Of a transcript's bytes most are outputs of tools. So much is read for one batch, however little comes of it."""
MAX_TEXT_CHARS: Final = 64 * 1024
"""A longer message is a pasted file: its beginning says what it is."""
_LONGEST_PLACEHOLDER: Final = 128


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript as a walk saw it, unread. `path` is absolute."""

    path: Path
    session: str
    inode: int
    size: int
    mtime_ns: int


def found_below(root: Path, parser: Parser) -> tuple[list[TranscriptFile], list[Path]]:
    """The transcripts below a folder, the newest first, one file a session; and the folders that were looked into.

    What cannot be read is passed over.
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
            continue  # gone since the folder was listed
        file = TranscriptFile(path, session, status.st_ino, status.st_size, status.st_mtime_ns)
        if stat.S_ISREG(status.st_mode) and (session not in found or found[session].mtime_ns < file.mtime_ns):
            found[session] = file
    return sorted(found.values(), key=lambda file: -file.mtime_ns)[:MAX_FILES], folders


def looked_at(file: TranscriptFile) -> TranscriptFile | None:
    """The same file as it is now; None if it is gone."""
    try:
        status = file.path.lstat()
    except OSError:
        return None
    return replace(file, inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _entries(root: Path, depth: int, folders: list[Path], folder: str = "") -> Iterator[tuple[Path, os.DirEntry[str]]]:
    folders.append(root / folder)
    for path, entry in listed(root, folder):
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _entries(root, depth - 1, folders, path)
        elif not entry.is_symlink():
            yield root / path, entry


@contextmanager
def opened(root: Path, path: Path) -> Iterator[int]:
    """A descriptor of a file below `root`. Raises OSError: it is gone, behind a symlink, no regular file, or may not be read."""
    *folders, name = path.relative_to(root).parts
    with descended(root, folders) as parent:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(None, "not a regular file")
        yield fd
    finally:
        os.close(fd)


def whole_lines(fd: int, begin: int) -> Iterator[tuple[int, bytes | None]]:
    """(where it ends, the line without its newline) from an offset on; None in place of one that is too long.

    A last line without a newline is still being written, and left out.
    """
    position = begin
    rest = bytearray()
    is_skipping = False
    while chunk := os.pread(fd, _CHUNK, position):
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
    """What tells this file from others: a hash of its first line, or of the beginning of it; "" while that is not whole."""
    data = os.pread(fd, _HEAD_BYTES, 0)
    end = data.find(b"\n")
    if end < 0 and len(data) < _HEAD_BYTES:
        return ""
    return _digest(data if end < 0 else data[: end + 1])


def mark_of(fd: int, offset: int) -> str:
    """What tells whether the file was rewritten: a hash of what stands right before the offset; "" at 0 and behind the file's end."""
    begin = max(0, offset - _MARK_BYTES)
    data = os.pread(fd, offset - begin, begin)
    return _digest(data) if data and len(data) == offset - begin else ""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass(slots=True)
class OutgoingBatch:
    """The messages between two offsets, as they are sent (PROTOCOL.md 9.5); the daemon has to have the records of `secrets` first.

    Attributes:
        branch: the branch that was named last, as it is called here.
        skipped: lines that were broken, unknown or too long, or that the policy does not let out.
        is_full: there may be more behind it.
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
        """Whether it is large enough to be sent, though more may come soon."""
        return self.is_full or len(self.messages) >= BATCH_MESSAGES or self.end - self.begin >= BATCH_BYTES


def collect(fd: int, parser: Parser, begin: int, sealer: Sealer, *, branch: str, mtime: float) -> OutgoingBatch:
    """The next batch of a file, sealed. `mtime`, in seconds since 1970, stands in for times that the lines do not say. Blocks.

    Raises OSError: the file cannot be read; KeyFileError: as `Sealer.seal`.
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
                text = _sealed(entry.text, sealer, batch)
                if text is None:
                    batch.skipped += 1
                else:
                    if batch.branch not in branches:
                        branches[batch.branch] = branch_name(_sealed(batch.branch, sealer, batch) or "")
                    said = {"role": entry.role, "text": text, "time": time, "branch": branches[batch.branch]}
                    batch.messages.append(said)
                    size += len(text.encode())
        if len(batch.messages) >= MOST_MESSAGES or size >= BATCH_BYTES or end - begin >= SCAN_BYTES:
            batch.is_full = True
            break
    return batch


def origin_of(fd: int, parser: Parser) -> tuple[str, str] | None:
    """(the session's working folder, the branch), "" where its first lines do not name them; None while these are not written yet."""
    cwd = branch = ""
    end = 0
    for entry, end in _parsed(fd, parser):
        cwd, branch = cwd or entry.cwd, branch or entry.branch
        if cwd or end >= SCAN_BYTES:
            break
    return (cwd, branch_name(branch)) if cwd or end >= SCAN_BYTES else None


def _parsed(fd: int, parser: Parser) -> Iterator[tuple[Any, int]]:
    for end, line in whole_lines(fd, 0):
        try:
            if line and line.strip():
                yield parser.parse(line), end
        except UnknownLineError:
            continue


def _sealed(text: str, sealer: Sealer, batch: OutgoingBatch) -> str | None:
    """A message as it goes out; None where the policy does not let it."""
    try:
        # Before it is cut, which could leave half of a credential that is not known for one any more.
        sealed = sealer.seal(text, "transcripts", is_sensitive=False)
    except BlockedError:
        return None
    batch.secrets.update(sealed.secrets)
    return _shortened(sealed.text)


def _shortened(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    from confide_crypto.sealing.placeholder import STANDIN

    end = MAX_TEXT_CHARS
    # A part of a placeholder stands for nothing, and no search finds it.
    for found in STANDIN.finditer(text, max(0, end - _LONGEST_PLACEHOLDER)):
        if found.start() < end < found.end():
            end = found.start()
    return f"{text[:end]}\n\n[… {len(text) - end} more characters]"
