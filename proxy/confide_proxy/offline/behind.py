"""Find the local files that the daemon lacks or has in another version: those that will be sent,
and those that cannot be sent.

The list is read from the disk and the sync ledger, which all processes of this device share. So it
does not depend on which process sends the files, or on whether any does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import ConfideError
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger, SyncReport
from confide_proxy.sync.project import Project
from confide_proxy.sync.project_names import ProjectNames
from confide_proxy.sync.replication.replica import Replica
from confide_proxy.sync.walk import FILE
from confide_proxy.sync.workspace import extra_of

MOST_FOLDERS: Final = 64
"""Most folders of other projects that are checked: the most recently used ones."""
MOST_READ: Final = 64
"""Most unconfirmed files that one check reads; further ones count as pending."""


class Behind(NamedTuple):
    """Local files that the daemon lacks.

    Attributes:
        pending: (project, path) of the files that are being sent or will be.
        unsent: (project, path) of the files that cannot be sent as they are, with the reasons.
    """

    pending: tuple[tuple[str, str], ...] = ()
    unsent: Mapping[tuple[str, str], str] = {}

    def of(self, projects: Collection[str] | None) -> Behind:
        """Return the files of these projects only; None selects all projects."""
        if projects is None:
            return self
        unsent = {name: why for name, why in self.unsent.items() if name[0] in projects}
        return Behind(tuple(name for name in self.pending if name[0] in projects), unsent)


def behind(replicas: Iterable[Replica]) -> Behind:
    """Find the files of these folders that the daemon lacks. Blocks; reads files that may have
    changed.
    """
    pending: list[tuple[str, str]] = []
    unsent: dict[tuple[str, str], str] = {}
    for replica in replicas:
        project = replica.folder.project
        try:
            waiting, why = _of(replica)
        except FolderError as error:  # it holds too many files
            unsent[project, error.path] = error.problem
        else:
            pending += ((project, path) for path in waiting if path not in why)
            unsent |= {(project, path): reason for path, reason in why.items()}
    return Behind(tuple(pending), unsent)


def _of(replica: Replica) -> tuple[list[str], dict[str, str]]:
    """Return the paths that the daemon lacks, and the reasons for those that cannot be sent."""
    folder, (waiting, passed_by) = replica.folder, replica.lacking()
    report = SyncReport()
    for path in waiting[:MOST_READ]:
        try:
            folder.read(path)
        except FolderError as error:
            report.skip(path, error)
    why = {**{item["path"]: item["reason"] for item in report.skipped}, **dict(passed_by)}
    if problem := folder.narrowing.problem():
        why[FILE] = problem  # then the folder looks as if it contained no memory
    return waiting, why


def other_folders(paths: ProxyPaths, own: str) -> dict[str, Path]:
    """Return the folders of the other projects on this device, by project name. Blocks briefly.
    Raises KeyFileError if the list of projects cannot be read or trusted.
    """
    decisions = ProjectNames(paths.projects).all()[-MOST_FOLDERS:]
    return {each.name: Path(each.home) for each in decisions if each.name != own}


def count_unsent(paths: ProxyPaths, config: ProxyConfig, space: str, folders: Mapping[str, Path]) -> dict[str, int]:
    """Count, by project, the files whose size or time differs from what the daemon confirmed.
    `folders` are folders whose files no session in this process sends. Blocks briefly.
    """
    found = {}
    for name, root in folders.items():
        with suppress(ConfideError, OSError):
            extra = extra_of(paths, config, Project(name, root, is_git=False), space)
            if count := _looks_behind(Folder(name, root, extra), SyncLedger(paths.ledgers, space, root)):
                found[name] = count
    return found


def _looks_behind(folder: Folder, ledger: SyncLedger) -> int:
    confirmed, forgotten = ledger.all(), ledger.forgotten_files()

    def is_known(path: str, size: int, mtime_ns: int) -> bool:
        known = confirmed.get(path)
        return known is not None and known.looks_like(size, mtime_ns, known.mark)

    looked = folder.look(is_known).found
    # A name with several spellings is never known above.
    return sum(file.path not in forgotten and not is_known(*file) for file in looked)
