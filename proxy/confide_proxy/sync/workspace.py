"""The files of one session: synchronize them, and answer the daemon's requests about them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from confide_crypto.errors import RequestError, printable
from confide_crypto.transport.inbox import Body
from confide_memory.documents import GLOBAL_PROJECT, MEMORY_FOLDER, RequestChannel, is_memory, receive_text
from confide_memory.versions import UNKNOWN
from confide_proxy import VERSION
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError, StateError
from confide_proxy.link.restore_detection import DaemonReceipts
from confide_proxy.link.services import ServiceRunner
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import FileSealer, SessionSealing
from confide_proxy.sync.absence.notice import Notice
from confide_proxy.sync.absence.rule import Meant
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger, SyncReport, notice_file
from confide_proxy.sync.project import Project, has_tracked_memory, ignore_memory, leave_out_of_package, workplace
from confide_proxy.sync.replication.file_transfer import ELSEWHERE, FORGOTTEN, Seen
from confide_proxy.sync.replication.replica import Replica
from confide_proxy.sync.walk import FILE, is_folder, is_link

log = logging.getLogger(__name__)

_MOST_NAMED = 10
"""Most files that are named in the log: a checkout of an older commit makes Confide skip hundreds
at once.
"""


class Files:
    """The folders that one link synchronizes: those of its projects (usually one), and the global
    memory. Each folder has a `Replica`.
    """

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        *served: Project,
        sealing: SessionSealing | None = None,
        on_report: Callable[[str, SyncReport, bool], None] | None = None,
        backlog: Callable[[Path], dict[str, int]] | None = None,
        on_news: Callable[[], object] = lambda: None,
        services: ServiceRunner | None = None,
    ) -> None:
        """`sealing` seals what is sent; `backlog` counts the queued calls of a journal; `on_report`
        gets, by project, the result of background work, and True for a comparison of all files;
        `on_news` is called when the daemon has news of the space's devices (commands leave it out,
        since they fetched them at their start); `services` knows the problems of this device.
        """
        self._paths = paths
        self._config = config
        self._on_report = on_report
        self._on_news = on_news
        self._services = services or ServiceRunner(paths.seats)
        self._waiting = backlog
        self.on_progress: Callable[[int, int], None] | None = None
        """Called with (files done, files in total) during a comparison that the daemon requests."""
        self._projects = {project.name: project for project in served}
        self._records = sealing.deposit if sealing else None
        self.folders = folders_of(paths, config, *served, sealing=sealing)
        self._replicas: dict[str, Replica] = {}
        self._opened_projects: set[str] = set()
        self._receipts = DaemonReceipts(paths)
        self._link: RequestChannel
        self._space = ""
        self._doubted_folders: set[Path] = set()
        self._held_projects: set[str] = set()
        self.meant_deletions: Mapping[str, Meant] = {}
        """By project: the missing files whose deletion a user has confirmed (`sync/absence/rule.py`).
        A word about one folder means no other.
        """
        self._skipped_files: dict[str, set[tuple[str, str]]] = {}
        self.failure_count = 0
        """Number of files that the last comparison could not sync though they are valid
        (`SyncReport.failure_count`).
        """
        self.skipped_files: list[dict[str, str]] = []
        """All files that the last comparison skipped, with the reasons; the response to the daemon
        has only the first ones.
        """
        self._unusable: dict[str, str] = {}
        """Folders that are left out, with the reasons (`_lesser`)."""
        self.ignored_messages: list[str] = []
        """Messages about repositories whose git ignores the memory from now on."""
        self.seen_functions: dict[str, Seen] = {}
        """By project: returns the field `seen_functions` for a note that its user has just saved."""
        self.on_ignored: Callable[[str], None] = self.ignored_messages.append
        self._to_ignore = {project.name for project in served if config.gitignore and project.is_git}

    async def open(self, link: RequestChannel, space: str) -> None:
        """Open all folders for the space to which the link has connected. Raises OSError,
        FolderError or StateError if a project's folder cannot be used.
        """
        await self.begin(link, space)
        for folder in self.folders:
            with self._lesser(folder):
                await self.open_folder(folder)

    async def begin(self, link: RequestChannel, space: str) -> None:
        """Prepare for the space to which the link has connected. Folders are opened later, by
        `open_folder`.
        """
        self._link, self._space = link, space
        self._opened_projects.clear()
        for folder, project in zip(self.folders, self._projects.values(), strict=False):
            extra = await asyncio.to_thread(extra_of, self._paths, self._config, project, space)
            if extra != folder.extra:  # the space is known only now
                self.folders[self.folders.index(folder)] = replace(folder, extra=extra)
        self._doubted_folders = await asyncio.to_thread(
            self._receipts.uncompared_folders, space, [folder.root for folder in self.folders]
        )

    def has_open(self, project: str) -> bool:
        """Return True if a project's folder was opened since the last connection."""
        return project in self._opened_projects

    async def open_folder(self, folder: Folder) -> None:
        """Open one folder: create its `Replica`. Raises OSError, FolderError or StateError if the
        folder or its ledger cannot be used.
        """
        if folder.root == self._paths.global_folder.absolute():
            await asyncio.to_thread(_make_own, self._paths.global_folder)
        served = self._projects.get(folder.project)
        ledger = await asyncio.to_thread(_ledger, self._paths, self._space, folder.root, served)
        await asyncio.to_thread(folder.sweep)
        self._replicas[folder.project] = Replica(
            folder,
            ledger,
            self._link,
            observer=self,
            records=self._records,
            own_addresses=self._config.own_addresses,
            seen=self.seen_functions.get(folder.project),
        )
        self._opened_projects.add(folder.project)

    async def compare(self, *, force: bool = False, progress: Callable[[int, int], None] | None = None) -> SyncReport:
        report = SyncReport()
        for replica in list(self._replicas.values()):
            with self._lesser(replica.folder):
                report.add(await self._compare(replica, force=force, progress=progress))
        for path, why in self._unusable.items():
            report.refuse(path, why)
        self.failure_count = report.failed
        self.skipped_files = report.skipped
        return report

    @contextmanager
    def _lesser(self, folder: Folder) -> Iterator[None]:
        """Record that the folder of the memory that all projects share cannot be used: the
        project's own files are synchronized without it.
        """
        self._unusable.pop(str(folder.root), None)
        try:
            yield
        except TimeoutError:
            raise
        except (FolderError, StateError, OSError) as error:
            if folder.project in self._projects:
                raise
            why = error.problem if isinstance(error, FolderError) else f"cannot be used: {_reason(error)}"
            self._unusable[str(folder.root)] = why

    async def _compare(
        self,
        replica: Replica,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
        is_patient: bool = False,
    ) -> SyncReport:
        root = replica.folder.root
        report = await replica.compare(
            force=force or root in self._doubted_folders,
            progress=progress,
            is_patient=is_patient,
            meant=self.meant_deletions.get(replica.folder.project, ()),
        )
        await asyncio.to_thread(replica.ledger.note_comparison)
        if root in self._doubted_folders:
            self._doubted_folders.discard(root)
            await asyncio.to_thread(
                self._receipts.record_comparison, self._space, root, again=report.again, back=report.came_back
            )
        return report

    def note_forgotten(self, project: str, paths: Iterable[str]) -> None:
        """Delete the ledger's records of files that the daemon has permanently erased. Blocks
        briefly.
        """
        if (replica := self._replicas.get(project)) is not None:
            for path in paths:
                replica.ledger.forget(path)

    @property
    def replicas(self) -> list[Replica]:
        """Return the `Replica` of each opened folder; none before the link is up."""
        return list(self._replicas.values())

    def count_confirmed(self) -> int:
        """Return the number of files that the daemon has confirmed, in the projects' own folders
        without the global memory. Blocks briefly.
        """
        return sum(replica.ledger.count() for name, replica in self._replicas.items() if name in self._projects)

    def compared_at(self) -> str | None:
        """Return the time (ISO 8601) at which a process of this device last compared the projects'
        folders, of several the earliest. None if one was never compared.
        """
        times = [replica.ledger.compared_at() for name, replica in self._replicas.items() if name in self._projects]
        known = [each for each in times if each is not None]
        if not known or len(known) < len(times):
            return None
        return datetime.fromtimestamp(min(known)).astimezone().isoformat(timespec="seconds")

    async def send_changes(self, project: str, paths: set[str] | None) -> None:
        """Send the changed files of one project's folder. With None instead of paths, compare all
        its files.

        Raises TimeoutError, after the other files are sent, if some must be compared again soon;
        and the errors of `Replica.compare`.
        """
        replica = self._replicas.get(project)
        if replica is None:
            return  # not connected yet: the comparison at the next connection finds the changes
        report = await (self._compare(replica, is_patient=True) if paths is None else replica.send_changes(paths))
        self._note_skipped(project, report, is_all=paths is None)
        self._note_held(project, replica, report)
        if self._on_report:
            self._on_report(project, report, paths is None)
        if report.is_unsettled:
            raise TimeoutError

    def _note_held(self, project: str, replica: Replica, report: SyncReport) -> None:
        if not report.is_held:
            self._held_projects.discard(project)
        elif project not in self._held_projects:
            self._held_projects.add(project)
            for sentence in replica.absence.notice.sentences(is_shared=project == GLOBAL_PROJECT):
                log.warning("%s", sentence)

    def is_held(self, project: str) -> bool:
        """Return True if files of a project's folder are missing, and will be checked again before
        their deletion is reported.
        """
        return project in self._held_projects

    async def on_gone(self, project: str) -> None:
        """Undo the deletions that were reported just before the watched folder disappeared. Raises
        the errors of `Replica.take_back`.
        """
        if project in self._replicas:
            await self._replicas[project].take_back()

    def notices(self) -> list[str]:
        """Return the notices about missing files in these folders, as sentences. Blocks briefly."""
        return notices(self._paths, *self.folders)

    def obstacles(self) -> list[str]:
        """Return what keeps files of these folders from being sent or written, as sentences. Blocks
        briefly.
        """
        found = [f"{path} {why}" for path, why in self._unusable.items()]
        return [*found, *obstacles(self._paths, *self.folders)]

    def missing(self) -> dict[str, frozenset[str]]:
        """Return, by project, the files that count as lost and would be restored; only folders that
        lack any. Blocks briefly.
        """
        found = {}
        for name, replica in self._replicas.items():
            with suppress(FolderError):  # the comparison reports it
                if lost := replica.absence.lost_files():
                    found[name] = lost
        return found

    def _note_skipped(self, project: str, report: SyncReport, *, is_all: bool) -> None:
        """Log skipped files with the reasons, each once; credentials in paths are sealed."""
        sealer = self.folders[0].sealer
        shown = sealer.seal_path if sealer is not None else printable
        skipped = {(item["path"], item["reason"]) for item in report.skipped}
        skipped = {(path, why) for path, why in skipped if why not in (ELSEWHERE, FORGOTTEN)}  # the same each time
        known = self._skipped_files.setdefault(project, set())
        new = sorted(skipped - known)
        for path, why in new[:_MOST_NAMED]:
            log.warning("a file was skipped: %s: %s", printable(shown(path)), why)
        if len(new) > _MOST_NAMED:
            log.warning("%d more files were skipped; confide sync names them", len(new) - _MOST_NAMED)
        self._skipped_files[project] = skipped if is_all else known | skipped

    async def reseal(self) -> None:
        """Send the files that would be sealed in another way now than when they were last compared,
        for example because this device has got the space's keys.
        """
        for replica in list(self._replicas.values()):
            if replica.is_sealed_otherwise:
                await self.send_changes(replica.folder.project, None)

    async def on_request(self, op: str, body: dict[str, object]) -> dict[str, object]:
        """Answer a request of the daemon. The daemon may only write a revision, ask for one file if
        it has changed, have the files compared, count unsent ones, ask in which folder the agent
        works, and announce changes of the space's devices.

        Raises RequestError if the request is another one, or if the file system fails.
        """
        try:
            if op == "apply":
                return await self._apply(body)
            if op == "flush":
                await self.flush(str(body.get("project")), str(body["path"]))
                return {}
            if op == "roster":
                self._on_news()
                return {}
            if op == "backlog":
                return await self._backlog()
            if op == "workplace":
                return await self._workplace(body)
            if op == "scan":
                report = await self.compare(force=bool(body.get("force")), progress=self.on_progress)
                return await asyncio.to_thread(self._scan_report, report)
        except FolderError as error:
            raise RequestError("invalid", str(error), error.hint) from None
        except (KeyError, TypeError, ValueError):
            raise RequestError("invalid", f"the request is not of the form that {op} takes") from None
        except TimeoutError:
            raise
        except OSError as error:  # an error of the state files, which the daemon does not need to know
            problem = f"that device cannot use its own files: {error.strerror or type(error).__name__}"
            raise RequestError("unavailable", problem, "is its disk full, or read-only?") from None
        raise _unknown()

    async def on_stream(self, op: str, params: dict[str, object], body: Body) -> dict[str, object]:
        """Answer an `apply` request, which writes a revision, if its text comes as a stream. Raises
        RequestError if it is another request, or if the file system fails.
        """
        if op != "apply":
            raise _unknown()
        return await self.on_request(op, {**params, "text": await receive_text(body)})

    def _scan_report(self, report: SyncReport) -> dict[str, Any]:
        """Return a report for the daemon, with credentials in paths sealed: a file may have been
        skipped because of its name.
        """
        answer = report.as_json()
        sealer = self.folders[0].sealer
        if sealer is not None:
            answer["skipped"] = [{**item, "path": sealer.seal_path(item["path"])} for item in answer["skipped"]]
        return answer

    async def _apply(self, body: dict[str, object]) -> dict[str, object]:
        replica = self._replicas.get(str(body.get("project")))
        if replica is None:
            raise RequestError("not_found", "this device does not keep that project here")
        answer = await replica.apply(body)
        if self._on_report and answer["applied"]:
            report = SyncReport(pulled=body["text"] is not None)
            if body["text"] is None:
                report.remove(str(body["path"]))
            self._on_report(replica.folder.project, report, False)
        return answer

    async def _backlog(self) -> dict[str, object]:
        pending = 0
        for replica in self._replicas.values():
            pending += await asyncio.to_thread(replica.pending)
        waiting = await asyncio.to_thread(self._waiting, self._paths.journal) if self._waiting else {}
        troubles = await asyncio.to_thread(self._services.problems_of, {*self._projects, GLOBAL_PROJECT})
        return {"pendingUploads": pending, **waiting, **({"troubles": troubles} if troubles else {})}

    async def _workplace(self, body: dict[str, object]) -> dict[str, object]:
        project = self._projects.get(str(body.get("project")))
        if project is None:
            raise RequestError("not_found", "this device does not work on that project here")
        sealer = self.folders[0].sealer
        return await (workplace(project, sealer.seal_path) if sealer else workplace(project))

    async def flush(self, project: str, path: str) -> None:
        """Send one file if it has changed. Raises RequestError, ConnectionLost or TimeoutError if
        it cannot be sent.
        """
        replica = self._replicas.get(project)
        if replica is not None:
            await replica.flush(path)

    async def before_write(self, folder: Folder) -> None:
        """Make git ignore a project's memory before it is first written to, if the user's
        configuration says so.
        """
        if folder.project in self._to_ignore:
            self._to_ignore.discard(folder.project)
            said = await asyncio.to_thread(_ignore_memory, folder.root)
            if said:
                self.on_ignored(said)


def _ignore_memory(root: Path) -> str:
    """Make git and npm ignore the memory of a project; return the message about it, or ""."""
    file, is_package = ignore_memory(root), leave_out_of_package(root)
    messages = [f"added memory/ to {file}: memory is not for the repository"] if file else []
    if file and has_tracked_memory(root):
        messages[0] += ", though files of it are tracked: git add -f takes a new one in, gitignore = false all of them"
    messages += ["added memory/.npmignore: memory is not for the npm package"] if is_package else []
    return "; ".join(messages)


def notices(paths: ProxyPaths, *folders: Folder) -> list[str]:
    """Return the notices about missing files in these folders, as sentences, whichever process of
    the device has written them. Blocks briefly.
    """
    found: list[str] = []
    for folder in folders:
        notice = Notice(notice_file(paths.ledgers, folder.root))
        found += notice.sentences(is_shared=folder.project == GLOBAL_PROJECT)
    return found


def obstacles(paths: ProxyPaths, *folders: Folder) -> list[str]:
    """Return what keeps files of these folders from being sent or written, as sentences: a
    `.confide.toml` that cannot be read, a `memory` that is no folder, and what the disk refused at
    the last comparison. Blocks briefly.
    """
    found: list[str] = []
    for folder in folders:
        if problem := folder.narrowing.problem():
            found.append(f"{folder.root / FILE if folder.project == GLOBAL_PROJECT else FILE} {problem}")
        if why := folder.memory_problem():
            found.append(f"{folder.root / MEMORY_FOLDER} {why}, so nothing in it is memory: put a folder there")
        found += Notice(notice_file(paths.ledgers, folder.root)).refusals()
    return found


def _unknown() -> RequestError:
    return RequestError("unavailable", f"confide {VERSION} {UNKNOWN}", "update confide on that device")


def _reason(error: StateError | OSError) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def folder_problem(folder: Path) -> str:
    """Return why a folder cannot be made, as a part of a sentence; "" if it can, or exists."""
    if not os.path.lexists(folder) or is_folder(folder):
        return ""
    return "is a link to a folder that is not there" if is_link(folder) else "is no folder"


def _make_own(folder: Path) -> None:
    """Create the folder of the global memory for this user only; restrict one that an earlier
    version left open to others.
    """
    if problem := folder_problem(folder):
        raise FolderError(str(folder), problem, hint="mount its disk, or put a folder there")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077 and not folder.is_symlink():  # the user's own symlink stays as it is
        with suppress(PermissionError):
            folder.chmod(0o700)


def folders_of(
    paths: ProxyPaths, config: ProxyConfig, *served: Project, sealing: SessionSealing | None = None
) -> list[Folder]:
    """Return the folders of these projects and of the global memory. With `sealing`, the texts read
    from them are sealed.
    """
    limit = config.max_file_kib * 1024
    sealer = FileSealer(sealing, config.secrets) if sealing else None
    folders = [
        Folder(project.name, project.root, extra_of(paths, config, project), limit, sealer=sealer) for project in served
    ]
    if all(project.name != GLOBAL_PROJECT for project in served):
        folders.append(Folder(GLOBAL_PROJECT, paths.global_folder.absolute(), (), limit, sealer=sealer))
    return folders


def extra_of(paths: ProxyPaths, config: ProxyConfig, project: Project, space: str = "") -> tuple[str, ...]:
    """Return the globs of further markdown files in a project's folder that are sent too, from the
    project's own section in the configuration.

    `space` is the space that the files are sent to; "" means the last space of this device.

    In earlier versions a global `extra` applied to every folder, so that a line for the user's own
    notes sent a client's documents. Now it applies only to folders whose extra files were sent
    before, so that an update loses nothing, and to the folder that contains the configuration file,
    if a user named that file with `--config`.
    """
    chosen = config.options_for(project.root)
    if chosen is not None:
        return chosen.extra
    if not config.extra or project.name == GLOBAL_PROJECT:
        return ()
    if paths.config.absolute().is_relative_to(project.root):
        return config.extra
    space = space or DaemonReceipts(paths).space()
    went_up = _ledger(paths, space, project.root, project).all() if space and paths.ledgers.is_dir() else {}
    return config.extra if any(not is_memory(path) for path in went_up) else ()


def _ledger(paths: ProxyPaths, space: str, root: Path, served: Project | None) -> SyncLedger:
    return SyncLedger(paths.ledgers, space, root, served.name if served is not None and served.claim else "")
