"""What of Confide a client has already, and whether it loads it: the server, hooks, or the plugin, which has both.

What stands in a file is not what a client does: an entry may call an address, be switched off, or be one of several of which the client
takes another; a plugin's folder may be gone. So each of these is looked at.
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
"""`@path`, as Claude Code, Gemini CLI and Qwen Code write it."""


@dataclass(frozen=True, slots=True)
class Start:
    """One entry of the server.

    Attributes:
        below: where in the file the group of servers is, if not at the top.
        command: the program that it starts; "" where it starts none.
        arguments: what stands behind it.
        address: the host that it calls; "" where it calls none.
        off: by what it is switched off; "" where it is on.
        environment: the variables that it hands to the program.
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
    """Attributes:
    starts: the entries of the server, the one that the client takes first.
    hooked: the files with hooks of ours.
    hooks_off: by what all hooks are switched off; "" where they are on.
    has_plugin: whether the client loads the plugin, or the extension.
    lost_plugin: the folder that it is to be read from, which is not there.
    lost_hooks: files that the hooks are in, and that are not there.
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
        """Whether the client runs them."""
        return (bool(self.hooked) or self.has_plugin) and not self.hooks_off and not self.lost_hooks


def look(client: KnownClient, project: Path) -> Presence:
    """What a client has, in the project's files and the user's. Raises SetupError: one of them is not what the client reads."""
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
    """The files of a person's orders that import memory, each with what it imports first: whoever writes there gives orders."""
    own = (claude_folder() / "CLAUDE.md", Path.home() / ".gemini" / "GEMINI.md")
    for file in (*(project / name for name in _INSTRUCTIONS), *own):
        try:
            found = _IMPORT.search(client_files.read(file) or "")
        except SetupError:
            continue
        if found is not None:
            yield file, found[1]


def places(client: KnownClient, project: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """The files with servers, in the order in which the client takes the first, each with the keys above its group of servers."""
    found: dict[tuple[Path, tuple[str, ...]], None] = {}
    if client.name == "claude-code":
        # What `claude mcp add` writes where nobody names a scope.
        found = dict.fromkeys((client.of_user(), ("projects", str(each))) for each in _tops(project))
    found |= dict.fromkeys((client.file(project, for_user=for_user), ()) for for_user in (False, True))
    return list(found)


def _tops(project: Path) -> Iterator[Path]:
    """A folder as Claude Code may call its project: as it is, resolved, and its repository."""
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
    # What calls an address as well is refused by the client, or calls it.
    command_line = "" if address else str(command)
    environment = server_entry.environment_of(entry, client.environment_key)
    yield Start(file, command_line, server_entry.arguments(entry), below, address or "", off, environment)


def _switched_off(client: KnownClient, project: Path, file: Path, below: tuple[str, ...]) -> str:
    """The file by which the client leaves out an entry that is there; "" for none."""
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
    """The file by which all hooks are off; "" for none."""
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
    """The script that OpenCode is to load, and a hook's program, where they are not there any more."""
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
    """The folder from which the client reads the plugin, where it is gone."""
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


def _json(file: Path) -> dict[str, Any]:
    try:
        found = jsonc.read(client_files.read(file) or "")
    except (SetupError, jsonc.JsoncError):
        return {}
    return found if isinstance(found, dict) else {}


def _has_plugin(client: KnownClient, project: Path) -> bool:
    match client.name:
        case "claude-code":
            said: dict[str, Any] = {}
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


def _object(client: KnownClient, file: Path) -> dict[str, Any]:
    """A file that only says something beside; one that cannot be read says nothing."""
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
