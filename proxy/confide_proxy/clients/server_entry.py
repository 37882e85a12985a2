"""A client's entry for the server `confide`, merged with what the user has added to the entry.

An entry either starts a program or calls an address. A client that finds both rejects its whole
file, or calls the address, so the two are never merged. An entry that calls an address, or starts
another program (`ssh`, `docker`), belongs to the user. It is replaced as a whole if the user says
so, and otherwise left alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from confide_proxy.clients import jsonc, toml_tables

_ADDRESSES: Final = ("url", "httpUrl", "serverUrl", "server_url")
"""Keys that clients use for an address."""
_REMOTE: Final = frozenset({"http", "sse", "ws", "websocket", "remote", "streamable-http", "streamablehttp"})
_PROGRAM: Final = "confide"


def address(entry: Any) -> str | None:
    """Return the host that an entry calls, without parts of its URL that may be secret; None if the
    entry calls none.
    """
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
    """Return the program that an entry starts; None if it starts none."""
    found = entry.get("command") if isinstance(entry, dict) else None
    if isinstance(found, dict):  # of an older Zed
        found = found.get("path")
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, str) else None


def arguments(entry: Any) -> tuple[str, ...]:
    """Return the arguments of an entry's program."""
    if not isinstance(entry, dict):
        return ()
    said = entry.get("command")
    found = said[1:] if isinstance(said, list) else (said if isinstance(said, dict) else entry).get("args")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def is_off(entry: Any) -> bool:
    """Return True if the entry contains a field that disables it."""
    return isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False)


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """The entry for the server `confide` in a client's file; a `ConfigEntry`.

    Attributes:
        value: the entry's content except its environment variables.
        environment: the variables that decide which memory the program uses. Other variables in the
            file's entry stay.
        key: the client's key for an entry's environment variables.
        has_comments: True if the client accepts comments in that file.
        replaces: True if the user agreed to replace an entry of their own.
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
        """Return the entry's content in the file's present text; None without an entry. Raises
        JsoncError or TomlError if the text has another format.
        """
        return jsonc.at(toml_tables.read(text) if self.is_toml else jsonc.read(text), self.path)

    def is_anothers(self, text: str) -> str | None:
        """Describe an entry that is the user's own and not Confide's, by the host that it calls or
        the program that it starts. Return None if there is no such entry.

        Raises JsoncError or TomlError if the file's text has another format.
        """
        found = self.of(text)
        if self._is_mixed(found):
            return None
        if (host := address(found)) is not None:
            return f"calls {host}"
        program = command(found)
        return f"starts {program}" if program and not _is_own(program) else None

    def kept(self, text: str, variables: Collection[str]) -> str | None:
        """Describe what the user has added to Confide's entry, and what stays when it is written
        again: arguments, and those variables that are in `variables`. Return None if there is
        nothing.

        Raises JsoncError or TomlError if the file's text has another format.
        """
        found = self.of(text)
        if self.replaces or self.is_anothers(text) is not None or command(found) is None:
            return None
        args = arguments(found)
        stays = {*variables} - self.environment.keys()
        parts = [f"{name}={value}" for name, value in environment_of(found, self.key).items() if name in stays]
        parts += [shlex.join(args[1:])] if args[:1] == ("mcp",) and args[1:] else []
        return " ".join(parts) or None

    def add_to(self, text: str) -> str:
        if not self.is_toml and not self.has_comments and not jsonc.is_plain(text):
            raise jsonc.JsoncError("is not readable as JSON")
        old = self.of(text)
        is_anothers = self.is_anothers(text) is not None
        if is_anothers and not self.replaces:
            return text
        is_dropped = is_anothers or self._is_mixed(old)
        new = self._merge({} if is_dropped or not isinstance(old, dict) else old)
        if new == old:
            return text
        if not self.is_toml:
            return jsonc.put(text, self.path, new)
        return toml_tables.put(toml_tables.drop(text, self.path) if is_dropped else text, self._tables(old, new))

    def remove_from(self, text: str) -> str:
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

    def _merge(self, old: dict[str, object]) -> dict[str, object]:
        """Merge Confide's values over the present ones: arguments after `mcp` stay, and a disabled
        entry is enabled.
        """
        new = {**old, **self.value}
        args = old.get("args")
        if isinstance(args, list) and args[:1] == ["mcp"] and "args" in self.value:
            new["args"] = args
        words, own = old.get("command"), self.value.get("command")
        if isinstance(words, list) and isinstance(own, list) and words[1:2] == ["mcp"]:
            new["command"] = [*own[:1], *words[1:]]
        if new.get("disabled") is True:
            del new["disabled"]
        if new.get("enabled") is False:
            new["enabled"] = True
        if self.environment:
            had = old.get(self.key)
            new[self.key] = {**(had if isinstance(had, dict) else {}), **self.environment}
        return new

    def _tables(self, old: Any, new: dict[str, object]) -> dict[tuple[str, ...], dict[str, object]]:
        """Return the keys to write; tables below the entry, such as its tools, are ignored."""
        had = old if isinstance(old, dict) else {}
        return {self.path: {key: value for key, value in new.items() if key in self.value or had.get(key) != value}}

    @staticmethod
    def _is_mixed(entry: Any) -> bool:
        """Return True if an earlier version has added the program to an entry that calls an
        address; no client accepts that.
        """
        program = command(entry)
        return address(entry) is not None and program is not None and _is_own(program)


def _is_own(program: str) -> bool:
    return PurePath(program.replace("\\", "/")).name.lower().removesuffix(".exe") == _PROGRAM


def environment_of(entry: Any, key: str) -> Mapping[str, str]:
    """Return the environment variables of an entry; `key` is the client's key for them."""
    found = entry.get(key) if isinstance(entry, dict) else None
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
