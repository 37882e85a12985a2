"""What a folder holds against what was confirmed of it: which files there are, which differ, and which are really deleted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from confide_memory.document_path import MEMORY_FILES, MEMORY_FOLDER
from confide_proxy.errors import FolderError
from confide_proxy.sync.folder import Content, Folder, Found
from confide_proxy.sync.ledger import UNREAD, Confirmed, Ledger
from confide_proxy.sync.report import SyncReport

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Secret


@dataclass(slots=True)
class Scan:
    """The files of a folder, as a scan found them.

    Attributes:
        entries: (path, hash, base) of each file that was found.
        in_clear: the paths of those that are to get placeholders in the place of what they hold in clear.
        secrets: what was sealed in those that were read.
    """

    entries: list[tuple[str, str, int]] = field(default_factory=list)
    in_clear: list[str] = field(default_factory=list)
    secrets: dict[Secret, None] = field(default_factory=dict, repr=False)


def scan(
    folder: Folder, found: list[Found], ledger: Ledger, confirmed: dict[str, Confirmed], force: bool, report: SyncReport
) -> Scan:
    """What the files that were found hold.

    Files that look unchanged, and were sealed as they would be now, are not read unless `force` says so. One that was touched and holds
    what it had is noted in the ledger as it looks now.
    """
    scanned = Scan()
    mark = folder.mark
    for file in found:
        known = confirmed.get(file.path)
        base = known.revision if known else 0
        if known and not force and known.looks_like(file.size, file.mtime_ns, mark):
            scanned.entries.append((file.path, known.hash, base))
            continue
        content = readable(folder, file.path, report)
        if content is None:
            continue
        is_waiting = is_withheld(folder, known, content)
        if folder.sealer is not None and is_waiting:
            report.skipped.append({"path": file.path, "reason": folder.sealer.why_withheld()})
        if known and (known.matches(content.hash) or is_waiting):
            scanned.entries.append((file.path, known.hash, base))
        else:
            scanned.entries.append((file.path, content.hash, base))
        scanned.secrets.update(dict.fromkeys(content.secrets))
        note_touched(ledger, file.path, known, content)
        if is_in_clear(folder, file.path, content):
            scanned.in_clear.append(file.path)
    return scanned


def is_withheld(folder: Folder, known: Confirmed | None, content: Content) -> bool:
    """Whether a file waits for keys: others of the space have it sealed, or in clear as it once was, and would have it redacted."""
    if folder.sealer is None or known is None or not content.is_waiting or known.matches(content.hash):
        return False
    # Confirmed as it would be sealed now, it is redacted there already.
    return known.mark != content.mark or bool(known.own)


def check_sendable(folder: Folder, path: str, known: Confirmed | None, content: Content) -> None:
    """Raise FolderError for such a file."""
    if folder.sealer is not None and is_withheld(folder, known, content):
        raise FolderError(path, folder.sealer.why_withheld())


def is_in_clear(folder: Folder, path: str, content: Content) -> bool:
    """Whether a file is to get placeholders in the place of what it holds in clear."""
    return folder.sealer is not None and folder.sealer.is_replaced(content.values) and folder.is_memory(path)


def is_confirmed(known: Confirmed | None, content: Content) -> bool:
    """Whether a file is as it was confirmed."""
    return known is not None and known.matches(content.hash)


def is_less(known: Confirmed | None, content: Content) -> bool:
    """Whether what can go out of a file now, without keys, is less than what was confirmed of it."""
    return known is not None and content.is_waiting and known.hash != content.hash


def confirmed_as(content: Content, digest: str, revision: int) -> Confirmed:
    """What is known of a file once the daemon has a text with the hash `digest` for it."""
    if content.is_to_be_sent:
        return Confirmed(digest, revision, UNREAD, content.mtime_ns, content.mark)
    own = content.hash if content.hash != digest else ""
    return Confirmed(digest, revision, content.size, content.mtime_ns, content.mark, own)


def note_touched(ledger: Ledger, path: str, known: Confirmed | None, content: Content) -> None:
    """Have the looks of a file that was saved with the text that it had, so that it is neither read again nor counted as unsent."""
    is_touched = known is not None and not known.looks_like(content.size, content.mtime_ns, content.mark)
    if known and is_touched and known.matches(content.hash) and ledger.get(path) == known:
        ledger.set(path, replace(known, size=content.size, mtime_ns=content.mtime_ns, mark=content.mark))


def deleted_of(folder: Folder, missing: dict[str, Confirmed], report: SyncReport) -> list[tuple[str, int]]:
    """Which of the files that the walk did not find are really deleted: other machines will delete theirs.

    A file behind a symlink, a folder that may not be entered, or a project folder that is not there (an unmounted disk) is not.
    """
    if missing and not folder.root.is_dir():
        raise FolderError(str(folder.root), "is not there", hint="nothing is taken for deleted while it is missing")
    if _is_swept_away(folder, missing):
        return []
    skipped = {item["path"] for item in report.skipped}
    deleted = []
    for path, state in missing.items():
        if path not in skipped and folder.is_missing(path):
            deleted.append((path, state.revision))
    return deleted


def _is_swept_away(folder: Folder, missing: dict[str, Confirmed]) -> bool:
    """Whether all memory is missing at once, its folder with it, and nobody saw it go: a project cloned anew rather than a wish to
    delete everything everywhere. It comes back from the daemon.
    """
    root = folder.root
    return any(path.startswith(f"{MEMORY_FOLDER}/") for path in missing) and not any(
        os.path.lexists(root / name) for name in (*MEMORY_FILES, MEMORY_FOLDER)
    )


def readable(folder: Folder, path: str, report: SyncReport) -> Content | None:
    """The file's text; None where there is none, or none that can be read, which the report then says."""
    try:
        return folder.read(path)
    except FolderError as error:
        report.skipped.append({"path": path, "reason": error.problem})
        return None
