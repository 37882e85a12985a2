"""What of Confide a client has already: the server, hooks, or the plugin, which has both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confide_proxy.clients import files, hooks, jsonc, toml_tables
from confide_proxy.clients.known import NAME, Client
from confide_proxy.clients.rules import claude_settings
from confide_proxy.errors import SetupError


@dataclass(frozen=True, slots=True)
class Presence:
    """Attributes:
    starts: the files with the server's entry, each with the program that it starts.
    hooked: the files with hooks of ours.
    has_plugin: whether the client has the plugin, or the extension, switched on.
    """

    starts: tuple[tuple[Path, str], ...]
    hooked: tuple[Path, ...]
    has_plugin: bool

    @property
    def is_set_up(self) -> bool:
        return bool(self.starts) or self.has_plugin

    @property
    def has_hooks(self) -> bool:
        return bool(self.hooked) or self.has_plugin


def look(client: Client, project: Path) -> Presence:
    """What a client has, in the project's files and the user's. Raises SetupError: one of them is not what the client reads."""
    places = dict.fromkeys(client.file(project, for_user=for_user) for for_user in (False, True))
    starts = [(file, command) for file in places if (command := command_of(client, file)) is not None]
    hooked = [
        file
        for file in dict.fromkeys(hooks.file(client, project, for_user=for_user) for for_user in (False, True))
        if file is not None and any(map(files.is_in, _hooks_of(client, project, file)))
    ]
    return Presence(tuple(starts), tuple(hooked), _has_plugin(client, project))


def command_of(client: Client, file: Path) -> str | None:
    """The program that a file's entry starts; None where it has no entry. Raises SetupError."""
    servers = _read(client, file).get(client.group)
    if servers is not None and not isinstance(servers, dict):
        raise SetupError(f"{file} does not hold an object of {client.group}", hint="mend it by hand")
    entry = (servers or {}).get(NAME)
    if entry is None:
        return None
    command = entry.get("command") if isinstance(entry, dict) else None
    return str(command[0] if isinstance(command, list) and command else command)


def _hooks_of(client: Client, project: Path, file: Path) -> list[Any]:
    found = [each for for_user in (False, True) for each in hooks.hooks(client, project, NAME, for_user=for_user)]
    return [each for each in found if each.file == file]


def _has_plugin(client: Client, project: Path) -> bool:
    match client.name:
        case "claude-code":
            said: dict[str, Any] = {}
            shared = project / ".claude" / "settings.json"
            for file in (claude_settings(project, for_user=True), shared, claude_settings(project, for_user=False)):
                enabled = _object(client, file).get("enabledPlugins")
                said |= enabled if isinstance(enabled, dict) else {}
            return _is_on(said, lambda value: value is True)
        case "codex":
            plugins = _object(client, client.of_user()).get("plugins")
            return isinstance(plugins, dict) and _is_on(
                plugins, lambda value: isinstance(value, dict) and value.get("enabled") is not False
            )
        case "gemini":
            return (Path.home() / ".gemini" / "extensions" / NAME).is_dir()
    return False


def _is_on(plugins: Mapping[str, Any], is_on: Any) -> bool:
    return any(is_on(value) for name, value in plugins.items() if name.partition("@")[0] == NAME)


def _object(client: Client, file: Path) -> dict[str, Any]:
    """A file that only says something beside; one that cannot be read says nothing."""
    try:
        return _read(client, file)
    except SetupError:
        return {}


def _read(client: Client, file: Path) -> dict[str, Any]:
    text = files.read(file) or ""
    try:
        document = toml_tables.read(text) if client.is_toml else jsonc.read(text)
    except (jsonc.JsoncError, toml_tables.TomlError) as error:
        raise SetupError(f"{file} {error}", hint="mend it by hand") from error
    if not isinstance(document, dict):
        raise SetupError(f"{file} does not hold an object", hint="mend it by hand")
    return document
