"""The clients that `confide setup` knows: where each keeps its servers, rules and hooks, for a
project and for a user.

The formats were read in the clients themselves (Claude Code 2.1, Codex 0.169, Gemini CLI 0.61,
OpenCode 1.18) or in their documentation (Cursor, VS Code, Zed).
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
"""Read by `paths`, like the variables below."""
_XDG: Final = {"XDG_DATA_HOME": ".local/share", "XDG_CONFIG_HOME": ".config"}
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
OWN_VARIABLES: Final = frozenset((HOME_VARIABLE, *_XDG, *_CERTIFICATES))
"""Variables that `surroundings` may add to an entry."""


def which_memory(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those environment variables that decide which memory Confide uses (`paths.find`);
    empty for the default memory.
    """
    if home := environment.get(HOME_VARIABLE):
        return {HOME_VARIABLE: str(Path(home).expanduser().absolute())}
    said = {name: environment.get(name, "").strip() for name in _XDG}
    return {
        name: str(Path(value).absolute())
        for name, value in said.items()
        if value and Path(value).absolute() != Path.home() / _XDG[name]
    }


def surroundings() -> dict[str, str]:
    """Return the environment variables that a client's entry has to set for Confide. Clients pass
    few variables on, and a client started from a desktop does not have the shell's.
    """
    certificates = {name: os.environ[name] for name in _CERTIFICATES if os.environ.get(name)}
    return {**which_memory(os.environ), **certificates}


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client that `confide setup` knows.

    Attributes:
        name: its name on the command line.
        title: its name as its makers write it.
        programs: the names of its program on PATH.
        of_user: returns the path of the user's configuration file.
        of_project: returns the path of a project's configuration file from the project's folder;
            None if the client has none for projects.
        group: the key in that file below which the servers are.
        has_comments: True if it accepts comments in that file, which is JSON.
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
        """Return the path of the client's configuration file for a project or, with `for_user`, for
        the user. If the client has none for projects, return the user's.
        """
        found = self.of_user() if for_user or self.of_project is None else self.of_project(project)
        # OpenCode reads either name, and users with comments in the file use the other one.
        other = found.with_suffix(".jsonc")
        return other if self.name == "opencode" and other.exists() and not found.exists() else found

    def entry(self, program: str) -> dict[str, Any]:
        """Return the content of the client's entry for the server `confide`; `program` is the
        absolute path of the command.
        """
        if self.name == "opencode":
            return {"type": "local", "command": [program, "mcp"], "enabled": True}
        plain: dict[str, object] = {"command": program, "args": ["mcp"]}
        return {"type": "stdio", **plain} if self.name == "vscode" else plain

    @property
    def environment_key(self) -> str:
        """Return the client's key for the environment variables of an entry."""
        return "environment" if self.name == "opencode" else "env"

    def server(self, file: Path, program: str, *, below: tuple[str, ...] = (), replaces: bool = False) -> ServerEntry:
        """Return the entry for the server `confide` in one of the client's files.

        Args:
            program: the absolute path of the command.
            below: the keys above the group of servers, if it isn't at the top of the file.
            replaces: the user agreed to replace an entry of their own.
        """
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
        """Return True if this user seems to have the client installed."""
        return any(shutil.which(program) for program in self.programs) or self.of_user().exists()

    def entry_text(self, program: str) -> str:
        """Return the client's entry as text that a user can paste into the file."""
        text = self.server(Path(), program).add_to("")
        return text.rstrip() if self.is_toml else json.dumps(json.loads(text), indent=2)


def home(*parts: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*parts)


def below(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def settings(*parts: str) -> Path:
    """Return a path below the folder of the user's settings (XDG_CONFIG_HOME)."""
    return _folder_from("XDG_CONFIG_HOME", ".config").joinpath(*parts)


def claude_folder() -> Path:
    """Return the folder of Claude Code's user settings."""
    return Path(plugin_answers.claude_folder())


def codex_folder() -> Path:
    return _folder_from("CODEX_HOME", ".codex")


def _folder_from(variable: str, usual: str) -> Path:
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
    """Return the absolute path by which a client starts this `confide`. Programs that are started
    from a desktop do not have the shell's PATH.

    A `confide` on PATH is preferred if it leads to this very program, since its path survives
    updates. Raises SetupError if there is no such program.
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
