"""The clients that `confide setup` knows: where each keeps its servers, its rules and its hooks, for a project and for a user.

Formats as read in the clients themselves (Claude Code 2.1, Codex 0.169, Gemini CLI 0.61, OpenCode 1.18) or in their documents (Cursor, VS
Code, Zed).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confide_proxy.clients import plugin_answers
from confide_proxy.clients.server_entry import ServerEntry
from confide_proxy.errors import SetupError

NAME: Final = "confide"
HOME_VARIABLE: Final = "CONFIDE_HOME"
"""As `paths` reads it, and those below."""
_XDG: Final = {"XDG_DATA_HOME": ".local/share", "XDG_CONFIG_HOME": ".config"}
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
OWN_VARIABLES: Final = frozenset((HOME_VARIABLE, *_XDG, *_CERTIFICATES))
"""What `surroundings` may have an entry say."""


def which_memory(environment: Mapping[str, str]) -> dict[str, str]:
    """Of an environment what decides which memory a program of ours uses (`paths.find`); nothing where that is the usual one."""
    if home := environment.get(HOME_VARIABLE):
        return {HOME_VARIABLE: str(Path(home).expanduser().absolute())}
    said = {name: environment.get(name, "").strip() for name in _XDG}
    return {
        name: str(Path(value).absolute())
        for name, value in said.items()
        if value and Path(value).absolute() != Path.home() / _XDG[name]
    }


def surroundings() -> dict[str, str]:
    """What an entry has to say of this environment: clients pass few variables on, and those on a desktop have not the shell's."""
    certificates = {name: os.environ[name] for name in _CERTIFICATES if os.environ.get(name)}
    return {**which_memory(os.environ), **certificates}


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One client.

    Attributes:
        name: as the command line has it.
        title: as its makers write it.
        programs: what it is called on PATH.
        of_user, of_project: its configuration; the latter from the project's folder, None where it has none for a project.
        group: the key of the file below which servers stand.
        has_comments: whether it reads JSON with comments there.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    of_user: Callable[[], Path]
    of_project: Callable[[Path], Path] | None
    group: str
    has_comments: bool = True

    @property
    def is_toml(self) -> bool:
        return self.name == "codex"

    def file(self, project: Path, *, for_user: bool) -> Path:
        """Its configuration of one project, or of the user: the user's, too, where it has no other."""
        found = self.of_user() if for_user or self.of_project is None else self.of_project(project)
        # OpenCode reads either name, and people with comments in it use the other one.
        other = found.with_suffix(".jsonc")
        return other if self.name == "opencode" and other.exists() and not found.exists() else found

    def entry(self, program: str) -> dict[str, Any]:
        """What its file says of Confide."""
        if self.name == "opencode":
            return {"type": "local", "command": [program, "mcp"], "enabled": True}
        plain: dict[str, object] = {"command": program, "args": ["mcp"]}
        return {"type": "stdio", **plain} if self.name == "vscode" else plain

    @property
    def environment_key(self) -> str:
        """What it calls the environment of an entry."""
        return "environment" if self.name == "opencode" else "env"

    def server(self, file: Path, program: str, *, below: tuple[str, ...] = (), replaces: bool = False) -> ServerEntry:
        """The entry as it is put into a file. `below`: where the group of servers is, if not at the top."""
        return ServerEntry(
            file,
            (*below, self.group, NAME),
            self.entry(program),
            surroundings(),
            self.environment_key,
            is_toml=self.is_toml,
            has_comments=self.has_comments,
            replaces=replaces,
        )

    def is_here(self) -> bool:
        """Whether this user seems to have it."""
        return any(shutil.which(program) for program in self.programs) or self.of_user().exists()

    def shown(self, program: str) -> str:
        """The entry as it may be pasted."""
        text = self.server(Path(), program).added("")
        return text.rstrip() if self.is_toml else json.dumps(json.loads(text), indent=2)


def home(*parts: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*parts)


def below(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def settings(*parts: str) -> Path:
    """A file below the user's folder for settings, as XDG has it."""
    return _said("XDG_CONFIG_HOME", ".config").joinpath(*parts)


def claude_folder() -> Path:
    """Where Claude Code keeps the user's settings."""
    return Path(plugin_answers.claude_folder())


def codex_folder() -> Path:
    return _said("CODEX_HOME", ".codex")


def _said(variable: str, usual: str) -> Path:
    said = os.environ.get(variable)
    return Path(said) if said else Path.home() / usual


def _claude_code() -> Path:
    return (claude_folder() if os.environ.get("CLAUDE_CONFIG_DIR") else Path.home()) / ".claude.json"


def _vscode() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Code/User/mcp.json"
    return settings("Code", "User", "mcp.json")


CLIENTS: Final = {
    each.name: each
    for each in (
        KnownClient(
            *("claude-code", "Claude Code", ("claude",), _claude_code, below(".mcp.json"), "mcpServers"),
            has_comments=False,
        ),
        KnownClient("codex", "Codex", ("codex",), lambda: codex_folder() / "config.toml", None, "mcp_servers"),
        KnownClient(
            *("gemini", "Gemini CLI", ("gemini",), home(".gemini", "settings.json")),
            *(below(".gemini", "settings.json"), "mcpServers"),
        ),
        KnownClient(
            *("opencode", "OpenCode", ("opencode",), lambda: settings("opencode", "opencode.json")),
            *(below("opencode.json"), "mcp"),
        ),
        KnownClient(
            "cursor", "Cursor", ("cursor",), home(".cursor", "mcp.json"), below(".cursor", "mcp.json"), "mcpServers"
        ),
        KnownClient("vscode", "VS Code", ("code",), _vscode, below(".vscode", "mcp.json"), "servers"),
        KnownClient(
            *("zed", "Zed", ("zed", "zeditor"), lambda: settings("zed", "settings.json")),
            *(below(".zed", "settings.json"), "context_servers"),
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
