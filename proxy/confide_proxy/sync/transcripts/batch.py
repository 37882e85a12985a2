"""What is sent at once: the messages of some whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confide_memory.timestamps import iso
from confide_proxy.errors import BlockedError
from confide_proxy.sync.transcripts.files import whole_lines
from confide_proxy.sync.transcripts.parsers import Parser, UnknownLineError, branch_name

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Sealer, Secret

BATCH_BYTES: Final = 100_000
BATCH_MESSAGES: Final = 50
MOST_MESSAGES: Final = 200
"""A long transcript goes up in larger steps: every one of them makes the daemon's searches read anew what they had in memory."""
SCAN_BYTES: Final = 1024 * 1024
"""Of a transcript's bytes most are outputs of tools. So much is read for one batch, however little comes of it."""
MAX_TEXT_CHARS: Final = 64 * 1024
"""A longer message is a pasted file: its beginning says what it is."""
_LONGEST_PLACEHOLDER: Final = 128


@dataclass(slots=True)
class Batch:
    """The messages between two offsets.

    Attributes:
        messages: as they are sent (PROTOCOL.md 9.5).
        skipped: lines that were broken, unknown or too long, or that the policy does not let out.
        branch: the branch that was named last, as it is called here.
        is_full: there may be more behind it.
        secrets: the daemon has to have their records before it has the messages.
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


def collect(fd: int, parser: Parser, begin: int, sealer: Sealer, *, branch: str, mtime: float) -> Batch:
    """The next batch of a file, sealed. `mtime`, in seconds since 1970, stands in for times that the lines do not say. Blocks.

    Raises:
        OSError: the file cannot be read.
        KeyFileError: as `Sealer.seal`.
    """
    batch = Batch(begin, begin, branch)
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
    for entry, end in _entries(fd, parser):
        cwd, branch = cwd or entry.cwd, branch or entry.branch
        if cwd or end >= SCAN_BYTES:
            break
    return (cwd, branch_name(branch)) if cwd or end >= SCAN_BYTES else None


def _entries(fd: int, parser: Parser) -> Iterator[tuple[Any, int]]:
    for end, line in whole_lines(fd, 0):
        try:
            if line and line.strip():
                yield parser.parse(line), end
        except UnknownLineError:
            continue


def _sealed(text: str, sealer: Sealer, batch: Batch) -> str | None:
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
