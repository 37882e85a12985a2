"""Detection of Confide in a client: whether the client has the server, the hooks or the plugin,
which has both, and whether it loads them.

An entry in a file may be ineffective: it may call a URL, be disabled, or be hidden by another
entry, and a plugin's folder may be missing. Each of these is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from confide_proxy.clients import client_files, hooks, jsonc, server_entry, toml_tables
from confide_proxy.clients.known_clients import NAME, KnownClient, claude_folder
from confide_proxy.clients.rules import claude_settings
from confide_proxy.errors import SetupError

_INSTRUCTIONS: Final = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md", "QWEN.md")
_IMPORT: Final = re.compile(r"(?:^|(?<=\s))@(\S*\b(?:memory/\S+|memory\.md))", re.IGNORECASE | re.MULTILINE)
"""`@path`, an import in Claude Code, Gemini CLI and Qwen Code."""


@dataclass(frozen=True, slots=True)
class Start:
    """An entry for the server `confide` in a client's file.

    Attributes:
        file: the file.
        below: the keys above the group of servers, if it isn't at the top.
        command: the program that the entry starts; "" if none.
        arguments: the arguments of the program.
        address: the host that the entry calls; "" if none.
        off: the file that disables the entry; "" if it is enabled.
        environment: the variables that the entry passes to the program.
    """

    file: Path
    command: str
    arguments: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    address: str = ""
    off: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Presence:
    """The state of Confide in a client.

    Attributes:
        starts: the entries for the server, in the client's order of preference.
        hooked: the files with Confide's hooks.
        hooks_off: the file that disables all hooks; "" if they are enabled.
        has_plugin: True if the client loads the plugin or extension.
        lost_plugin: folders of the plugin that the settings name but that do not exist.
        lost_hooks: files of hooks that the settings name but that do not exist.
    """

    starts: tuple[Start, ...]
    hooked: tuple[Path, ...]
    has_plugin: bool
    hooks_off: str = ""
    lost_plugin: tuple[Path, ...] = ()
    lost_hooks: tuple[Path, ...] = ()

    @property
    def is_set_up(self) -> bool:
        return bool(self.starts) or self.has_plugin

    @property
    def has_hooks(self) -> bool:
        """Return True if the client runs Confide's hooks."""
        return (bool(self.hooked) or self.has_plugin) and not self.hooks_off and not self.lost_hooks


def look(client: KnownClient, project: Path) -> Presence:
    """Return the state of Confide in a client, from the project's and the user's files.

    Raises SetupError if one of the files is not in the client's format.
    """
    starts = tuple(start for file, below in places(client, project) for start in _starts(client, project, file, below))
    hooked = [
        file
        for file in dict.fromkeys(hooks.file(client, project, for_user=for_user) for for_user in (False, True))
        if file is not None and any(map(client_files.is_in, _hooks_of(client, project, file)))
    ]
    is_on = _has_plugin(client, project)
    lost_plugin = tuple(_lost_plugin(client)) if is_on else ()
    lost = tuple(each for file in hooked for each in _lost_hooks(client, file))
    return Presence(starts, tuple(hooked), is_on and not lost_plugin, _hooks_off(client, project), lost_plugin, lost)


def importing(project: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files with instructions for agents that import memory files, each with its first
    import. With such an import, everyone who writes to that memory could give the agent orders.
    """
    own = (claude_folder() / "CLAUDE.md", Path.home() / ".gemini" / "GEMINI.md")
    for file in (*(project / name for name in _INSTRUCTIONS), *own):
        try:
            found = _IMPORT.search(client_files.read(file) or "")
        except SetupError:
            continue
        if found is not None:
            yield file, found[1]


def places(client: KnownClient, project: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """Return the files that may contain a client's servers, in its order of preference, each with
    the keys above its group of servers.
    """
    found: dict[tuple[Path, tuple[str, ...]], None] = {}
    if client.name == "claude-code":
        # `claude mcp add` writes here if no scope is given.
        found = dict.fromkeys((client.of_user(), ("projects", str(each))) for each in _tops(project))
    found |= dict.fromkeys((client.file(project, for_user=for_user), ()) for for_user in (False, True))
    return list(found)


def _tops(project: Path) -> Iterator[Path]:
    """Yield the possible names of a project in Claude Code: the folder itself, its resolved path,
    and its repository.
    """
    yield project
    yield (real := project.resolve())
    yield from (each for each in (real, *real.parents) if (each / ".git").exists())


def _starts(client: KnownClient, project: Path, file: Path, below: tuple[str, ...]) -> Iterator[Start]:
    document = _read(client, file)
    servers = jsonc.at(document, (*below, client.group))
    if servers is not None and not isinstance(servers, dict):
        raise SetupError(f"{file} does not hold an object of {client.group}", hint="fix it by hand")
    entry = (servers or {}).get(NAME)
    if entry is None:
        return
    off = str(file) if server_entry.is_off(entry) else _switched_off(client, project, file, below)
    address = server_entry.address(entry)
    command = server_entry.command(entry)
    # A client rejects an entry with both, or calls the address.
    command_line = "" if address else str(command)
    environment = server_entry.environment_of(entry, client.environment_key)
    yield Start(file, command_line, server_entry.arguments(entry), below, address or "", off, environment)


def _switched_off(client: KnownClient, project: Path, file: Path, below: tuple[str, ...]) -> str:
    """Return the file by which the client ignores an existing entry; "" if none."""
    if client.name == "gemini":
        for each in (client.file(project, for_user=False), client.of_user()):
            said = _object(client, each).get("mcp")
            excluded, allowed = (said.get(key) if isinstance(said, dict) else None for key in ("excluded", "allowed"))
            is_out = isinstance(excluded, list) and NAME in excluded
            if is_out or (isinstance(allowed, list) and allowed and NAME not in allowed):
                return str(each)
    if client.name == "claude-code":
        of_project = file == client.file(project, for_user=False) and not below
        for each in _claude_settings(project):
            rejected = _object(client, each).get("disabledMcpjsonServers")
            if of_project and isinstance(rejected, list) and NAME in rejected:
                return str(each)
        for top in _tops(project):
            said = jsonc.at(_object(client, client.of_user()), ("projects", str(top)))
            for key in ("disabledMcpServers", *(["disabledMcpjsonServers"] if of_project else [])):
                off = said.get(key) if isinstance(said, dict) else None
                if isinstance(off, list) and NAME in off:
                    return str(client.of_user())
    return ""


def _hooks_off(client: KnownClient, project: Path) -> str:
    """Return the file that disables all hooks; "" if none."""
    if client.name == "claude-code":
        for file in _claude_settings(project):
            if _object(client, file).get("disableAllHooks") is True:
                return str(file)
    if client.name == "codex":
        features = _object(client, client.of_user()).get("features")
        if isinstance(features, dict) and (features.get("hooks") is False or features.get("codex_hooks") is False):
            return str(client.of_user())
    if client.name == "gemini":
        for file in (client.file(project, for_user=False), client.of_user()):
            for group in ("hooksConfig", "tools"):
                said = _object(client, file).get(group)
                key = "enabled" if group == "hooksConfig" else "enableHooks"
                if isinstance(said, dict) and said.get(key) is False:
                    return str(file)
    return ""


def _claude_settings(project: Path) -> list[Path]:
    own = [claude_settings(project, for_user=for_user) for for_user in (True, False)]
    return [own[0], project / ".claude" / "settings.json", own[1]]


def _hooks_of(client: KnownClient, project: Path, file: Path) -> list[Any]:
    found = [each for for_user in (False, True) for each in hooks.hooks(client, project, NAME, for_user=for_user)]
    return [each for each in found if each.file == file]


def _lost_hooks(client: KnownClient, file: Path) -> Iterator[Path]:
    """Yield the script that OpenCode would load, if it is missing."""
    if client.name != "opencode":
        return
    plugins = _object(client, file).get("plugin")
    for item in plugins if isinstance(plugins, list) else ():
        if hooks.is_our_script(item):
            place = item[0] if isinstance(item, list) else item
            script = Path(unquote(urlsplit(place).path))
            if not script.is_file():
                yield script


def _lost_plugin(client: KnownClient) -> Iterator[Path]:
    """Yield the folder from which the client reads the plugin, if it is missing."""
    match client.name:
        case "claude-code":
            known = _json(claude_folder() / "plugins" / "known_marketplaces.json")
            installed = _json(claude_folder() / "plugins" / "installed_plugins.json")
            for name in jsonc.at(installed, ("plugins",)) or {}:
                plugin, _, market = name.partition("@")
                said = jsonc.at(known, (market, "source"))
                place = said.get("path") if isinstance(said, dict) and said.get("source") == "directory" else None
                if plugin == NAME and isinstance(place, str) and not Path(place).is_dir():
                    yield Path(place)
        case "gemini":
            folder = Path.home() / ".gemini" / "extensions" / NAME
            link = _json(folder / ".gemini-extension-install.json")
            place = link.get("source") if link.get("type") == "link" else None
            if folder.is_symlink() and not folder.exists():
                yield folder.readlink()
            elif isinstance(place, str) and not Path(place).is_dir():
                yield Path(place)


def _json(file: Path) -> dict[str, object]:
    try:
        found = jsonc.read(client_files.read(file) or "")
    except (SetupError, jsonc.JsoncError):
        return {}
    return found if isinstance(found, dict) else {}


def _has_plugin(client: KnownClient, project: Path) -> bool:
    match client.name:
        case "claude-code":
            said: dict[str, object] = {}
            for file in _claude_settings(project):
                enabled = _object(client, file).get("enabledPlugins")
                said |= enabled if isinstance(enabled, dict) else {}
            return _is_on(said, lambda value: value is True)
        case "codex":
            plugins = _object(client, client.of_user()).get("plugins")
            return isinstance(plugins, dict) and _is_on(
                plugins, lambda value: isinstance(value, dict) and value.get("enabled") is not False
            )
        case "gemini":
            folder = Path.home() / ".gemini" / "extensions" / NAME
            return folder.is_dir() or folder.is_symlink()
    return False


def _is_on(plugins: Mapping[str, object], is_on: Any) -> bool:
    return any(is_on(value) for name, value in plugins.items() if name.partition("@")[0] == NAME)


def _object(client: KnownClient, file: Path) -> dict[str, object]:
    """Read an auxiliary file; an unreadable one counts as empty."""
    try:
        return _read(client, file)
    except SetupError:
        return {}


def _read(client: KnownClient, file: Path) -> dict[str, Any]:
    text = client_files.read(file) or ""
    try:
        document = toml_tables.read(text) if client.is_toml else jsonc.read(text)
    except (jsonc.JsoncError, toml_tables.TomlError) as error:
        raise SetupError(f"{file} {error}", hint="fix it by hand") from error
    if not isinstance(document, dict):
        raise SetupError(f"{file} does not hold an object", hint="fix it by hand")
    return document
