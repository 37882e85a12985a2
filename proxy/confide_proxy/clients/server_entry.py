"""A client's entry of the server `confide`: how it is put beside what else the entry says, and what of it another transport excludes.

An entry either starts a program or calls an address. A client that finds both refuses its whole file, or calls the address; so the two are
never merged. An entry that calls an address is a person's: it is replaced as a whole where they said so, and left alone otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from confide_proxy.clients import jsonc, toml_tables

_ADDRESSES: Final = ("url", "httpUrl", "serverUrl", "server_url")
"""The keys by which clients know an address."""
_REMOTE: Final = frozenset({"http", "sse", "ws", "websocket", "remote", "streamable-http", "streamablehttp"})
_PROGRAM: Final = "confide"


def address(entry: Any) -> str | None:
    """The host that an entry calls, without what may be secret in an address; None: it calls none."""
    if not isinstance(entry, dict):
        return None
    for key in _ADDRESSES:
        if isinstance(said := entry.get(key), str):
            try:
                found = urlsplit(said)
                return f"{found.scheme}://{found.hostname or ''}{f':{found.port}' if found.port else ''}"
            except ValueError:
                return "an address"
    kind = entry.get("type")
    return "an address" if isinstance(kind, str) and kind.lower().replace("_", "-") in _REMOTE else None


def command(entry: Any) -> str | None:
    """The program that an entry starts; None: it starts none."""
    found = entry.get("command") if isinstance(entry, dict) else None
    if isinstance(found, dict):  # of an older Zed
        found = found.get("path")
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, str) else None


def arguments(entry: Any) -> tuple[str, ...]:
    """What an entry says behind its program."""
    if not isinstance(entry, dict):
        return ()
    said = entry.get("command")
    found = said[1:] if isinstance(said, list) else (said if isinstance(said, dict) else entry).get("args")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def is_off(entry: Any) -> bool:
    """Whether the entry itself is switched off."""
    return isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The entry, as an `Entry` of `clients.config_entries`.

    Attributes:
        value: what it says but for the environment.
        environment: variables that decide which memory the program uses; others that an entry has stay.
        key: what the client calls an entry's environment.
        has_comments: whether the client reads comments in that file.
        replaces: a person said that an entry which calls an address may go.
    """

    file: Path
    path: tuple[str, ...]
    value: Mapping[str, Any]
    environment: Mapping[str, str]
    key: str = "env"
    is_toml: bool = False
    has_comments: bool = True
    replaces: bool = False

    def of(self, text: str) -> Any:
        """What the file says now. Raises JsoncError, TomlError."""
        return jsonc.at(toml_tables.read(text) if self.is_toml else jsonc.read(text), self.path)

    def is_anothers(self, text: str) -> str | None:
        """The host that a person's own entry calls; None where there is none such. Raises as `of`."""
        found = self.of(text)
        return None if self._is_mixed(found) else address(found)

    def added(self, text: str) -> str:
        if not self.is_toml and not self.has_comments and not jsonc.is_plain(text):
            raise jsonc.JsoncError("is not readable as JSON")
        old = self.of(text)
        is_remote = address(old) is not None
        if is_remote and not self.replaces and not self._is_mixed(old):
            return text
        new = self._merged({} if is_remote or not isinstance(old, dict) else old)
        if new == old:
            return text
        if not self.is_toml:
            return jsonc.put(text, self.path, new)
        return toml_tables.put(toml_tables.drop(text, self.path) if is_remote else text, self._tables(old, new))

    def removed(self, text: str) -> str:
        old = self.of(text)
        if old is None or self.is_anothers(text) is not None:
            return text
        without = toml_tables.drop(text, self.path) if self.is_toml else jsonc.drop(text, self.path)
        if not self._is_mixed(old):
            return without
        left = {key: value for key, value in old.items() if key not in ("command", "args")}
        return toml_tables.put(without, {self.path: left}) if self.is_toml else jsonc.put(text, self.path, left)

    def is_in(self, text: str) -> bool:
        return self.of(text) is not None and self.is_anothers(text) is None

    def _merged(self, old: dict[str, object]) -> dict[str, object]:
        """Ours over what is there: arguments behind `mcp` stay, and a switch that keeps it off goes."""
        new = {**old, **self.value}
        args = old.get("args")
        if isinstance(args, list) and args[:1] == ["mcp"] and "args" in self.value:
            new["args"] = args
        if new.get("disabled") is True:
            del new["disabled"]
        if new.get("enabled") is False:
            new["enabled"] = True
        if self.environment:
            had = old.get(self.key)
            new[self.key] = {**(had if isinstance(had, dict) else {}), **self.environment}
        return new

    def _tables(self, old: Any, new: dict[str, object]) -> dict[tuple[str, ...], dict[str, object]]:
        """The keys that are to be written; those of tables below it, such as its tools, are not looked at."""
        had = old if isinstance(old, dict) else {}
        return {self.path: {key: value for key, value in new.items() if key in self.value or had.get(key) != value}}

    @staticmethod
    def _is_mixed(entry: Any) -> bool:
        """Whether an earlier version put our program into an entry that calls an address: such a one works in no client."""
        program = command(entry)
        return address(entry) is not None and program is not None and PurePath(program).name == _PROGRAM


def environment_of(entry: Any, key: str) -> Mapping[str, str]:
    """The variables of an entry."""
    found = entry.get(key) if isinstance(entry, dict) else None
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
