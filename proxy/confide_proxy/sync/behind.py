"""What a folder holds that the daemon has not got, or not as it is: on its way, or not to be sent at all.

It is read off the disk and the ledger, which all processes of this machine share: whoever sends the files, and whether anybody does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final, NamedTuple

from confide_proxy.errors import FolderError
from confide_proxy.sync.folder import Folder, Found
from confide_proxy.sync.ledger import Confirmed, Ledger, SyncReport, note_touched, readable

MOST_READ: Final = 64
"""Files that nobody has confirmed, of which one look reads so many: those beyond count as on their way."""


class Behind(NamedTuple):
    """Of some folders.

    Attributes:
        pending: (project, path) of the files that are on their way, or will be.
        unsent: the same of those that cannot be sent as they are, and why.
    """

    pending: tuple[tuple[str, str], ...] = ()
    unsent: Mapping[tuple[str, str], str] = {}

    def of(self, projects: Collection[str] | None) -> Behind:
        """Of these projects alone; None: of all."""
        if projects is None:
            return self
        unsent = {name: why for name, why in self.unsent.items() if name[0] in projects}
        return Behind(tuple(name for name in self.pending if name[0] in projects), unsent)


def _never(_path: str) -> bool:
    return False


def behind(folder: Folder, ledger: Ledger, is_set_back: Callable[[str], bool] = _never) -> Behind:
    """List what of a folder is behind. Blocks; reads the files that look changed. Raises FolderError: it holds too many files.

    `is_set_back`: whether git has put a file's text there, which is no edit (`absence.rule`).
    """
    confirmed, forgotten = ledger.all(), ledger.forgotten()
    waiting = [
        file
        for file in folder.walk()
        if file.path not in forgotten and is_pending(folder, ledger, file, confirmed.get(file.path), is_set_back)
    ]
    report = SyncReport()
    for file in islice((file for file in waiting), MOST_READ):
        try:
            folder.read(file.path)
        except FolderError as error:
            report.skip(file.path, error)
    unsent = {(folder.project, item["path"]): item["reason"] for item in report.skipped}
    unsent |= {(folder.project, path): why for path, why in folder.passed_by()}
    pending = ((folder.project, file.path) for file in waiting)
    return Behind(tuple(name for name in pending if name not in unsent), unsent)


def is_pending(
    folder: Folder,
    ledger: Ledger,
    file: Found,
    known: Confirmed | None,
    is_set_back: Callable[[str], bool] = _never,
) -> bool:
    """Whether a file holds something else than the daemon has confirmed, and not what git has set it back to."""
    if known is None or ledger.sent(file.path):
        return True
    if known.looks_like(file.size, file.mtime_ns, folder.mark):
        return False
    content = readable(folder, file.path, SyncReport())
    if content is None or not known.matches(content.hash):
        return not is_set_back(file.path)
    note_touched(ledger, file.path, known, content)
    return False


def looks_behind(folder: Folder, ledger: Ledger) -> int:
    """How many files of a folder that this session does not serve look so, by their stat alone. Blocks. Raises as `behind`."""
    confirmed, forgotten = ledger.all(), ledger.forgotten()
    return sum(
        file.path not in forgotten
        and ((known := confirmed.get(file.path)) is None or not known.looks_like(file.size, file.mtime_ns, known.mark))
        for file in folder.walk()
    )
