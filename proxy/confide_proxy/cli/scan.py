"""The command `confide secrets scan`: find credentials in files to be sent or in stored texts
(docs/secrets.md). It never prints a value.

It reads the files of a project's memory and the global one, transcripts if they are switched on,
and files that the user names. It sends nothing, and needs no daemon. `--allow` adds a fingerprint
to `proxy.toml`, and keeps the user's text in that file otherwise.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from confide_crypto import portable
from confide_crypto.errors import EXIT_INPUT, printable
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.cli import own_config
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    command,
    count_noun,
    folder_of,
    note,
    remark,
    say,
)
from confide_proxy.config import Policy, ProxyConfig, is_fingerprint, policy_of
from confide_proxy.errors import FolderError
from confide_proxy.link import founding
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.detection import scanner
from confide_proxy.sealing.sealer import Fingerprints, load_fingerprints
from confide_proxy.sync import project as projects
from confide_proxy.sync.folder import MAX_FILES, Folder
from confide_proxy.sync.project import Project
from confide_proxy.sync.transcripts.parsers import UnknownLineError
from confide_proxy.sync.transcripts.source import AS_EXCLUDED, PARSERS
from confide_proxy.sync.transcripts.transcript_files import found_below, open_below, origin_of, whole_lines
from confide_proxy.sync.transcripts.transcript_streamer import folder_of as transcripts_of
from confide_proxy.sync.walk import FILE, Narrowing
from confide_proxy.sync.workspace import extra_of, folder_problem

FOUND: Final = 9
"""The exit code if a credential was found that the policy does not allow (docs/commands.md)."""
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})
_SECTION: Final = re.compile(r"^[ \t]*\[[ \t]*secrets[ \t]*\][ \t]*(?:#[^\n]*)?(?:\n|\Z)", re.MULTILINE)
_NEXT: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LIST: Final = re.compile(r"^[ \t]*allow[ \t]*=[ \t]*\[", re.MULTILINE)
_NO_TEXT: Final = "is not text"


class SkippedFile(NamedTuple):
    """A file or folder that was not searched, with the reason for users.

    Attributes:
        is_unknown: True if it may hold a text, so that "no credentials" is not known of it.
    """

    path: str
    reason: str
    is_unknown: bool = True


Passed = list[SkippedFile]


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """A text that would be sent to the daemon.

    Attributes:
        source: `files` or `transcripts`, as in the policy for credentials.
        path: the path of its file, relative to the project's folder, or absolute.
        line: the line of the file in which the text begins.
        is_one_line: True if all of the text is in that one line of the file, as in transcripts.
    """

    source: str
    path: str
    text: str = field(repr=False)
    line: int = 1
    is_one_line: bool = False


@command
def scan(
    here: CommandContext,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files or folders; what would be sent, if left out.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show too what is let through: less certain, or allowed by you.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="FINGERPRINT", help="Let this one through from now on.", show_default=False),
    ] = None,
    is_stored: Annotated[
        bool, typer.Option("--stored", help="Look through what the daemon has stored, and seal what is in clear.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --stored: only look, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --stored: seal without asking.")] = False,
    project: ProjectDir = Path(),
    as_json: bool = False,
) -> Output:
    """Search outgoing or stored texts for passwords and keys; their values are never shown."""
    if is_stored:
        if paths or everything or allow:
            raise typer.BadParameter(
                "goes with no path, --all or --allow: it looks through everything", param_hint="--stored"
            )
        from confide_proxy.cli.secrets import scan_stored  # only this needs the daemon

        return asyncio.run(scan_stored(here, project, dry_run=dry_run, yes=yes, as_json=as_json))
    if dry_run or yes:
        raise typer.BadParameter("goes with --stored", param_hint="--dry-run" if dry_run else "--yes")
    if allow:
        return _allow(here, allow)
    return _scan_outgoing(here, paths or [], project, shows_all=everything)


def _scan_outgoing(here: CommandContext, paths: list[Path], project: Path, *, shows_all: bool) -> Output:
    """Search files, or without paths what would be sent of the project, for credentials.

    Args:
        shows_all: show those too that are let through.
    """
    passed: Passed = []
    texts = (
        of_files([path.expanduser() for path in paths], here.config, passed)
        if paths
        else of_project(here.paths, here.config, projects.identify(folder_of(project)).grant(), passed)
    )
    # Loading fingerprints stores their key, and a device that is not set up stores nothing.
    key = here.paths.fingerprint_key
    prints = load_fingerprints(key) if founding.is_set_up(here.paths) or key.exists() else None
    count = 0
    seen: list[dict[str, Any]] = []
    for text in texts:
        count += 1
        seen += _sights(text, here.config.secrets, prints)
    held = [sight for sight in seen if sight["action"] != "allow"]
    shown = seen if shows_all else held
    unknown = sum(skipped.is_unknown for skipped in passed)

    def print_text() -> None:
        for sight in shown:
            say(
                f"{printable(sight['path'])}:{sight['line']}  {sight['kind']}  {sight['confidence']:.2f}  {sight['action']}  "
                f"{sight['prefix']}… ({sight['length']:,} characters)  {sight['fingerprint']}"
            )
        for skipped in passed:
            remark(f"skipped {printable(skipped.path)}: {skipped.reason}")
        more = len(seen) - len(shown)
        are, them = ("is", "it") if more == 1 else ("are", "them")
        rest = f"; {more:,} more {are} let through (--all shows {them})" if more else ""
        if shown and prints is None:
            note(
                "--allow needs fingerprints, which exist once this device is set up: confide quickstart or confide join"
            )
        found = count_noun(len(held), "credential") if held else "no credentials"
        not_known = f"; {count_noun(unknown, 'path')} not searched" if unknown else ""
        remark(f"{found} in {count_noun(count, 'text')}{rest}{not_known}")

    data = {
        "texts": count,
        "findings": shown,
        "letThrough": len(seen) - len(held),
        "skipped": [{"path": skipped.path, "reason": skipped.reason} for skipped in passed],
    }
    return Output(data, print_text, exit_code=FOUND if held else EXIT_INPUT if unknown else 0)


def _allow(here: CommandContext, given: list[str]) -> Output:
    given = [each.strip().lower() for each in given]
    if not all(is_fingerprint(each) for each in given):
        raise typer.BadParameter(
            "a fingerprint has 24 hex digits, as confide secrets scan prints them", param_hint="--allow"
        )
    file = here.paths.config
    added = [each for each in dict.fromkeys(given) if add(file, each)]
    message = f"allowed in {file}: {', '.join(added) or 'nothing: it was allowed already'}"
    return Output({"allowed": added, "file": str(file)}, message)


def _sights(text: OutgoingText, policy: Policy, prints: Fingerprints | None) -> Iterator[dict[str, object]]:
    line, behind = text.line, 0
    for finding in scanner.outside(text.text, scanner.scan(text.text)):
        if not text.is_one_line:
            line += text.text.count("\n", behind, finding.start)
            behind = finding.start
        fingerprint = prints.of(finding.kind, text.text[finding.start : finding.end]) if prints else ""
        yield {
            "path": text.path,
            "line": line,
            "source": text.source,
            "kind": finding.kind,
            "confidence": finding.confidence,
            "action": policy.action(text.source, finding.confidence, fingerprint),
            "prefix": finding.prefix,
            "length": finding.length,
            "fingerprint": fingerprint,
        }


def of_project(paths: ProxyPaths, config: ProxyConfig, project: Project, passed: Passed) -> Iterator[OutgoingText]:
    """Yield the texts that would be sent to the daemon: those of a project's memory, of the global
    memory, and of transcripts. Blocks.

    Args:
        passed: collects the files that are skipped, with the reasons.

    Raises FolderError if a folder has more files than are sent.
    """
    limit = config.max_file_kib * 1024
    folders = [Folder(project.name, project.root, extra_of(paths, config, project), limit)]
    if project.name != GLOBAL_PROJECT:
        folders.append(Folder(GLOBAL_PROJECT, paths.global_folder.absolute(), (), limit))
    for folder in folders:
        if problem := folder_problem(folder.root):
            passed.append(SkippedFile(str(folder.root), problem))
        listing = folder.look()
        passed += [SkippedFile(_shown(folder, project, path), why) for path, why in listing.unread.items()]
        broken = folder.narrowing.problem()  # other notices are about one line of the file
        notices = [(_shown(folder, project, FILE), notice) for notice in folder.narrowing.notices()]
        passed += [SkippedFile(path, notice, notice == broken) for path, notice in notices]
        for found in listing.found:
            shown = _shown(folder, project, found.path)
            try:
                content = folder.read(found.path)
            except FolderError as error:
                passed.append(SkippedFile(shown, error.problem))
                continue
            if content is not None:
                yield OutgoingText("files", shown, content.text)
    for agent in dict.fromkeys(config.transcripts):
        yield from _transcripts(agent, config, passed)


def _shown(folder: Folder, project: Project, path: str) -> str:
    return path if folder.root == project.root else str(folder.root / path)


def _transcripts(agent: str, config: ProxyConfig, passed: Passed) -> Iterator[OutgoingText]:
    parser = PARSERS[agent]
    root = transcripts_of(parser, config)
    kept_back: dict[str, bool] = {}
    for file in found_below(root, parser)[0]:
        try:
            with open_below(root, file.path) as fd:
                cwd = (origin_of(fd, parser) or ("", ""))[0]
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
                        # The whole text, though only its beginning is sent: the rest may identify a
                        # credential there.
                        yield OutgoingText("transcripts", str(file.path), entry.text, number, is_one_line=True)
        except OSError as error:
            passed.append(SkippedFile(str(file.path), f"cannot be read: {error.strerror or type(error).__name__}"))


def of_files(named: list[Path], config: ProxyConfig, passed: Passed) -> Iterator[OutgoingText]:
    """Yield the texts of the named files and folders, even if they would not be sent. Hidden files
    and symbolic links in folders are skipped. Blocks.

    Args:
        passed: collects the files that are skipped, with the reasons.

    Raises FolderError if a named path does not exist.
    """
    seen = 0
    for path in named:
        if not path.exists():
            raise FolderError(
                str(path), "is not there", hint="name a file or a folder, or none for all that would be sent"
            )
        for file in _below(path, passed) if path.is_dir() else (path,):
            seen += 1
            if seen > MAX_FILES:
                raise FolderError(str(path), f"holds more than {MAX_FILES:,} files")
            try:
                yield OutgoingText("files", str(file), _read(file, config.max_file_kib * 1024))
            except ValueError as error:
                passed.append(SkippedFile(str(file), str(error), str(error) != _NO_TEXT or file == path))
            except OSError as error:
                passed.append(SkippedFile(str(file), f"cannot be read: {error.strerror or type(error).__name__}"))


def _below(folder: Path, passed: Passed) -> Iterator[Path]:
    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            passed.append(SkippedFile(str(error.filename), f"cannot be listed: {error.strerror}"))

    for inner, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            file = Path(inner, name)
            try:
                is_file = stat.S_ISREG(file.lstat().st_mode)
            except FileNotFoundError:
                continue  # deleted since the folder was listed
            except OSError:
                is_file = True  # reading it reports the reason
            if is_file:
                yield file


def _read(file: Path, limit: int) -> str:
    """Return a file's text; raise ValueError with a message for users if it is not fit for memory."""
    with open(os.open(file, os.O_RDONLY | portable.NO_WAIT | portable.CLOSED), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ValueError("is not a regular file")
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"is larger than {limit // 1024:,} KiB")
    if b"\0" in data and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(_NO_TEXT)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def add(path: Path, fingerprint: str) -> bool:
    """Add a fingerprint to those of the allowed values in `proxy.toml`. Return False if it is there
    already.

    Raises ConfigError if the file cannot be read or parsed, and StateError if it cannot be written;
    it is unchanged then.
    """
    text, table = own_config.read(path)
    section = table.get("secrets", {})
    allowed = policy_of(path, section).allow
    if fingerprint in allowed:
        return False
    wanted = table | {"secrets": section | {"allow": [fingerprint, *allowed]}}
    by_hand = f'add "{fingerprint}" to allow in its section [secrets] by hand'
    own_config.write(path, _with(text, fingerprint), wanted, by_hand=by_hand)
    return True


def _with(text: str, fingerprint: str) -> str:
    section = _SECTION.search(text)
    if section is None:
        return own_config.with_section(text, f'[secrets]\nallow = ["{fingerprint}"]')
    following = _NEXT.search(text, section.end())
    listed = _LIST.search(text, section.end(), following.start() if following else len(text))
    if listed is None:
        head = text[: section.end()]
        return f'{head}{"" if head.endswith(chr(10)) else chr(10)}allow = ["{fingerprint}"]\n{text[section.end() :]}'
    rest = text[listed.end() :]
    if rest.lstrip().startswith("]"):
        return f'{text[: listed.end()]}"{fingerprint}"{rest.lstrip()}'
    if line := re.match(r"[ \t]*\n([ \t]*)", rest):
        return f'{text[: listed.end()]}\n{line[1]}"{fingerprint}",{rest}'
    return f'{text[: listed.end()]}"{fingerprint}", {rest}'
