"""The texts that this machine would send: the files of a project's memory and of the global one, and transcripts if they are switched on.

Also the texts of files that a person names. Nothing is sent in here, and no daemon is needed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confide_proxy import projects
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError
from confide_proxy.folder import MAX_FILES, Folder
from confide_proxy.paths import Paths
from confide_proxy.project_file import Narrowing
from confide_proxy.projects import Project

_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A text on its way out.

    Attributes:
        source: `files` or `transcripts`, as the policy names them.
        path: as a person finds it: below the project's folder, or absolute.
        text: what would be sent; not in the repr.
        line: the line of the file that the text begins in.
        is_one_line: all of the text is written in that one line, as in a transcript.
    """

    source: str
    path: str
    text: str = field(repr=False)
    line: int = 1
    is_one_line: bool = False


@dataclass(slots=True)
class Passed:
    """What was passed over: (path, reason)."""

    named: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, reason: str) -> None:
        """One more."""
        self.named.append((path, reason))


def of_project(paths: Paths, config: ProxyConfig, project: Project, passed: Passed) -> Iterator[Outgoing]:
    """All that would be sent from a project's folder, from the global one, and of the transcripts on this machine. Blocks.

    Raises:
        FolderError: a folder holds more files than are sent.
    """
    limit = config.max_file_kib * 1024
    folders = [Folder(project.name, project.root, config.extra, limit)]
    if project.name != projects.GLOBAL:
        folders.append(Folder(projects.GLOBAL, paths.global_folder.absolute(), (), limit))
    for folder in folders:
        for found in folder.walk():
            shown = found.path if folder.root == project.root else str(folder.root / found.path)
            try:
                content = folder.read(found.path)
            except FolderError as error:
                passed.add(shown, error.problem)
                continue
            if content is not None:
                yield Outgoing("files", shown, content.text)
    for agent in dict.fromkeys(config.transcripts):
        yield from _transcripts(agent, config, passed)


def _transcripts(agent: str, config: ProxyConfig, passed: Passed) -> Iterator[Outgoing]:
    from confide_proxy.transcripts.batches import place_of
    from confide_proxy.transcripts.parsers import UnknownLineError, parser_of
    from confide_proxy.transcripts.reading import found_below, opened, whole_lines
    from confide_proxy.transcripts.source import AS_EXCLUDED
    from confide_proxy.transcripts.stream import folder_of

    parser = parser_of(agent)
    root = folder_of(parser, config)
    kept_back: dict[str, bool] = {}
    for file in found_below(root, parser)[0]:
        try:
            with opened(root, file.path) as fd:
                cwd = (place_of(fd, parser) or ("", ""))[0]
                if cwd.startswith("/") and cwd not in kept_back:
                    kept_back[cwd] = Narrowing(projects.identify(Path(cwd)).root).excludes(AS_EXCLUDED)
                if kept_back.get(cwd):
                    continue
                for number, (_, line) in enumerate(whole_lines(fd, 0), start=1):
                    try:
                        entry = parser.parse(line) if line and line.strip() else None
                    except UnknownLineError:
                        continue
                    if entry is not None and entry.role and entry.text:
                        # All of it, though its beginning alone is sent: what stands behind says what is a credential there.
                        yield Outgoing("transcripts", str(file.path), entry.text, number, is_one_line=True)
        except OSError as error:
            passed.add(str(file.path), f"cannot be read: {error.strerror or type(error).__name__}")


def of_files(named: list[Path], config: ProxyConfig, passed: Passed) -> Iterator[Outgoing]:
    """The texts of files, and of all in folders but hidden ones, whether they are sent or not. Links in a folder are not followed. Blocks.

    Raises:
        FolderError: one that is named is not there.
    """
    seen = 0
    for path in named:
        if not path.exists():
            raise FolderError(str(path), "is not there")
        for file in _below(path) if path.is_dir() else (path,):
            seen += 1
            if seen > MAX_FILES:
                raise FolderError(str(path), f"holds more than {MAX_FILES:,} files")
            try:
                yield Outgoing("files", str(file), _read(file, config.max_file_kib * 1024))
            except ValueError as error:
                passed.add(str(file), str(error))
            except OSError as error:
                passed.add(str(file), f"cannot be read: {error.strerror or type(error).__name__}")


def _below(folder: Path) -> Iterator[Path]:
    for inner, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            file = Path(inner, name)
            if stat.S_ISREG(file.lstat().st_mode):
                yield file


def _read(file: Path, limit: int) -> str:
    """Raises ValueError, whose text is for people, where it is not the text of a memory."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError("is not a regular file")
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"is larger than {limit // 1024:,} KiB")
    if b"\0" in data:
        raise ValueError("is not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
