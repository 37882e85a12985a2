"""Agents' clients that start Confide: where each keeps its servers, and how an entry is put there or taken away, and nothing else changed.

Formats as read in the clients themselves (Claude Code 2.1, Codex 0.169, Gemini CLI 0.61, OpenCode 1.18) or in their documents (Cursor, VS
Code). Files with comments in them are not rewritten: the entry is shown for pasting.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confide_proxy.cli.console import replace_file
from confide_proxy.errors import SetupError, SetupStorageError

NAME: Final = "confide"
_BY_HAND: Final = "mend it, or paste the entry by hand"
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    Attributes:
        name: as the command line has it.
        title: as its makers write it.
        programs: what it is called on PATH.
        of_user, of_project: its configuration; the latter from the project's folder, None where it has none for a project.
        group: the key of the file below which servers stand.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    of_user: Callable[[], Path]
    of_project: Callable[[Path], Path] | None
    group: str

    @property
    def is_toml(self) -> bool:
        return self.name == "codex"

    def file(self, project: Path, *, for_user: bool) -> Path:
        """Its configuration of one project, or of the user: the user's, too, where it has no other."""
        return self.of_user() if for_user or self.of_project is None else self.of_project(project)

    def entry(self, program: str) -> dict[str, Any]:
        """What its file says of Confide."""
        if self.name == "opencode":
            return {"type": "local", "command": [program, "mcp"], "enabled": True}
        plain: dict[str, Any] = {"command": program, "args": ["mcp"]}
        return {"type": "stdio", **plain} if self.name == "vscode" else plain

    def is_here(self) -> bool:
        """Whether this user seems to have it."""
        return any(shutil.which(program) for program in self.programs) or self.of_user().exists()

    def shown(self, program: str) -> str:
        """The entry as it may be pasted."""
        entry = self.entry(program)
        return _section(entry) if self.is_toml else json.dumps({self.group: {NAME: entry}}, indent=2)


def _home(*parts: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*parts)


def _below(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _settings(*parts: str) -> Path:
    said = os.environ.get("XDG_CONFIG_HOME")
    return (Path(said) if said else Path.home() / ".config").joinpath(*parts)


def _vscode() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Code/User/mcp.json"
    return _settings("Code", "User", "mcp.json")


def _codex() -> Path:
    said = os.environ.get("CODEX_HOME")
    return (Path(said) if said else Path.home() / ".codex") / "config.toml"


CLIENTS: Final = {
    each.name: each
    for each in (
        Client("claude-code", "Claude Code", ("claude",), _home(".claude.json"), _below(".mcp.json"), "mcpServers"),
        Client("codex", "Codex", ("codex",), _codex, None, "mcp_servers"),
        Client(
            *("gemini", "Gemini CLI", ("gemini",), _home(".gemini", "settings.json")),
            *(_below(".gemini", "settings.json"), "mcpServers"),
        ),
        Client(
            "cursor", "Cursor", ("cursor",), _home(".cursor", "mcp.json"), _below(".cursor", "mcp.json"), "mcpServers"
        ),
        Client("vscode", "VS Code", ("code",), _vscode, _below(".vscode", "mcp.json"), "servers"),
        Client(
            *("opencode", "OpenCode", ("opencode",), lambda: _settings("opencode", "opencode.json")),
            *(_below("opencode.json"), "mcp"),
        ),
    )
}


def program() -> str:
    """The absolute path by which a client starts this `confide`: desktop programs do not have the shell's PATH.

    The name on PATH where it leads to this very program, since that one stays over updates. Raises SetupError: there is none.
    """
    on_path = shutil.which(NAME)
    own = Path(sys.executable).with_name(NAME)
    if on_path is not None and (not own.exists() or Path(on_path).resolve() == own.resolve()):
        return str(Path(on_path).absolute())
    if own.exists():
        return str(own)
    raise SetupError(
        "the program confide is not on PATH", hint="install it so that `which confide` finds it, and try again"
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A configuration file as it is and as it would be."""

    path: Path
    before: str
    after: str

    @property
    def is_one(self) -> bool:
        """Whether anything would change."""
        return self.before != self.after

    def write(self) -> None:
        """Put it in place. Raises SetupStorageError: the disk, or this user's rights on it, do not let it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, self.after)
        except OSError as error:
            raise SetupStorageError(
                f"{self.path} cannot be written: {error.strerror or type(error).__name__}"
            ) from error


def added(client: Client, path: Path, command: str) -> Change:
    """The file with the entry. What else an entry of that name says, such as its environment, stays.

    Raises SetupError: the file is not what the client reads, and is left as it was.
    """
    before, document = _read(client, path)
    servers = _servers(client, path, document)
    old = servers.get(NAME)
    entry = {**(old if isinstance(old, dict) else {}), **client.entry(command)}
    if old == entry:
        return Change(path, before, before)
    if not client.is_toml:
        servers[NAME] = entry
        document[client.group] = servers
        return Change(path, before, _written(document, before))
    if old is not None:
        raise SetupError(
            f"{path} has another entry {NAME} already", hint="take it away with --remove first, or mend it by hand"
        )
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    return _checked(
        Change(path, before, f"{before}{gap}{_section(entry)}"), {**document, client.group: {**servers, NAME: entry}}
    )


def removed(client: Client, path: Path) -> Change:
    """The file without the entry. Raises SetupError: as `added`."""
    before, document = _read(client, path)
    servers = _servers(client, path, document)
    if NAME not in servers:
        return Change(path, before, before)
    rest = {name: each for name, each in servers.items() if name != NAME}
    left = {name: each for name, each in document.items() if name != client.group}
    left = {**document, client.group: rest} if rest else left
    if not client.is_toml:
        return Change(path, before, _written(left, before))
    lines: list[str] = []
    is_ours = False
    for line in before.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            header = line.strip().strip("[]").replace('"', "")
            is_ours = header == f"{client.group}.{NAME}" or header.startswith(f"{client.group}.{NAME}.")
        if not is_ours:
            lines.append(line)
    return _checked(Change(path, before, "".join(lines)), left)


def command_of(client: Client, path: Path) -> str | None:
    """The program that a file's entry starts; None where it has no entry. Raises SetupError: as `added`."""
    entry = _servers(client, path, _read(client, path)[1]).get(NAME)
    if entry is None:
        return None
    command = entry.get("command") if isinstance(entry, dict) else None
    return str(command[0] if isinstance(command, list) and command else command)


def _read(client: Client, path: Path) -> tuple[str, dict[str, Any]]:
    try:
        data = path.read_bytes() if path.exists() else b""
        if len(data) > _MOST_BYTES:
            raise ValueError
        text = data.decode("utf-8")
        document = (tomllib.loads(text) if client.is_toml else json.loads(text)) if text.strip() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{path} is not readable as {'TOML' if client.is_toml else 'JSON'}", hint=_BY_HAND) from error
    if not isinstance(document, dict):
        raise SetupError(f"{path} does not hold an object of {client.group}", hint=_BY_HAND)
    return text, document


def _servers(client: Client, path: Path, document: dict[str, Any]) -> dict[str, Any]:
    servers = document.get(client.group, {})
    if not isinstance(servers, dict):
        raise SetupError(f"{path} does not hold an object of {client.group}", hint=_BY_HAND)
    return dict(servers)


def _written(document: dict[str, Any], before: str) -> str:
    """JSON, indented as the file was. ASCII, so that half a surrogate pair in somebody else's entry comes through as it was."""
    found = _INDENT.search(before)
    return json.dumps(document, indent=found[1] if found else 2) + "\n"


def _section(entry: dict[str, Any]) -> str:
    # A JSON string is a basic string of TOML as well.
    return f"[mcp_servers.{NAME}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())


def _checked(change: Change, wanted: dict[str, Any]) -> Change:
    """Text that was put together by hand is read as the client reads it, before it takes the place of anything."""
    try:
        is_right = tomllib.loads(change.after) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise SetupError(f"{change.path} is written in a way that cannot be changed safely", hint=_BY_HAND)
    return change
