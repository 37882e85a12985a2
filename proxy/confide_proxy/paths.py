"""Where the proxy keeps its files.

With `CONFIDE_HOME` set everything lives below it, so that several identities (and tests) fit on one machine; otherwise the
platform's standard folders are used. A program that was started without these variables goes by the note of those that this machine was
set up with: a shell may say `CONFIDE_HOME` or `XDG_DATA_HOME`, and the clients of agents pass neither on. A session that believed its
environment alone would begin a second memory beside the first. Where several are noted nobody can say which is meant. Only what this user
alone can write is believed. Only this module knows the names.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto import atomic

Variables = dict[str, str]

HOME_VARIABLE: Final = "CONFIDE_HOME"
_DATA: Final = "XDG_DATA_HOME"
VARIABLES: Final = (HOME_VARIABLE, _DATA, "XDG_CONFIG_HOME")
"""Which decide where a memory is."""
MOST_NOTED: Final = 8
_MOST_BYTES: Final = 32 * 1024
_MOST_CHARS: Final = 4096


_followed: Variables = {}


class _InState:
    """A file or a folder below `ProxyPaths.state`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: ProxyPaths, _owner: type[ProxyPaths]) -> Path:
        return paths.state / self._name


@dataclass(frozen=True, slots=True)
class ProxyPaths:
    """The proxy's places on disk.

    Attributes:
        config: the TOML file that people edit.
        state: identity, pins, caches; mode 0700.
        global_folder: the memory that all projects share.
        daemon_data: the data folder of the daemon that is started on demand.
    """

    config: Path
    state: Path
    global_folder: Path
    daemon_data: Path

    identity = _InState("identity.key")
    """The Ed25519 seed of this machine."""
    next_identity = _InState("identity.next.key")
    """The seed that is about to become this machine's; there for a moment of a rotation only."""
    identity_lock = _InState("identity.lock")
    """Held by whoever changes those two."""
    link = _InState("link.json")
    """Which daemon this machine has joined, and its pinned key."""
    failed_join = _InState("failed-join.json")
    """Why the last `confide join` failed, until this machine is set up."""
    client_files = _InState("client-files.json")
    """What `confide setup` has written into clients' files, so that it can be taken away again."""
    move = _InState("move.json")
    """Where this machine's memory is being moved to, until it is there."""
    left = _InState("left.json")
    """When its daemon said that the memory was moved away from there, for the runner."""
    receipt = _InState("receipt.json")
    """How far this machine has followed its daemon's space."""
    restores = _InState("restores.jsonl")
    """When the daemon was put back to an older copy of its data, and what became of this machine's files."""
    catalogue = _InState("catalogue.json")
    """The names of the tools that the daemon has."""
    journal = _InState("journal")
    """What waits on this machine for the daemon, sealed."""
    ledgers = _InState("confirmed")
    """What the daemon has confirmed of each file, by folder."""
    projects = _InState("projects.jsonl")
    """Which folder has which project's name, and by whose word."""
    transcripts = _InState("transcripts")
    """How far the transcripts of this machine's sessions have been sent."""
    learn = _InState("learn")
    """Where to learn from, how far that is done, and what was found; there only where learning is on."""
    fingerprint_key = _InState("fingerprint.key")
    """The key of this machine's names for credentials."""
    known = _InState("known")
    """The keyed names of the values that this machine has sealed or opened, by space."""
    rosters = _InState("rosters")
    """What this machine has seen of the devices of its spaces, and the secrets of the invites that it made."""
    gateway = _InState("gateway")
    """The tokens of the gateway, and where it listens."""
    seats = _InState("seats")
    """Locks that say which process of this machine does what only one should do."""


def find(config: Path | None = None) -> ProxyPaths:
    """The paths for this user, or below `CONFIDE_HOME`; `config` overrides the configuration file alone."""
    follow_note()
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = Path(home).expanduser().absolute()
        return ProxyPaths(config or root / "proxy.toml", root / "proxy", root / "global", root / "daemon")
    # Imported late: platformdirs costs more than everything else that `confide mcp` needs before it answers.
    import platformdirs

    data = platformdirs.user_data_path("confide")
    settings = platformdirs.user_config_path("confide")
    return ProxyPaths(config or settings / "proxy.toml", data / "proxy", data / "global", data / "daemon")


def runtime_folders() -> list[Path]:
    """Where this user's runtime files may be: where the environment says, and where Linux has them. Clients start servers without it."""
    said = os.environ.get("XDG_RUNTIME_DIR")
    usual = Path(f"/run/user/{os.geteuid()}")
    return list(dict.fromkeys([*([Path(said)] if said else []), usual]))


def follow_note() -> None:
    """Set the variables that lead to the one memory of this user, where the environment names none and there is none without."""
    if _followed and all(os.environ.get(name) == value for name, value in _followed.items()):
        return
    _followed.clear()
    # Not where only the configuration's place is said: it would be another one's.
    if any(os.environ.get(name) for name in VARIABLES) or _is_set_up({}):
        return
    noted = [each for each in _noted() if _is_set_up(each)]
    if len(noted) == 1:
        _followed.update(noted[0])
        os.environ.update(_followed)


def other_memories() -> list[str]:
    """The places of this user's memories that the environment does not lead to."""
    here = _place(_said())
    places = {_place(each): None for each in ({}, *_noted()) if _is_set_up(each)}
    places.pop(here, None)
    return list(places)


def is_chosen_place() -> bool:
    """Whether somebody chose where the memory is, for this program alone: `CONFIDE_HOME` is for several beside each other."""
    return bool(os.environ.get(HOME_VARIABLE)) and HOME_VARIABLE not in _followed


def memory_notices() -> list[str]:
    """What a person should know of where the memory is."""
    if _followed:
        names = " and ".join(_followed)
        return [f"started without {names}: the memory is in {_place(_followed)}, where this user has set it up"]
    elsewhere = other_memories() if _is_set_up(_said()) else []
    if not elsewhere:
        return []
    return [
        f"another memory of this user is in {', '.join(elsewhere)}: "
        f"what is stored there is not found in this one, which is in {_place(_said())}"
    ]


def remember_place() -> None:
    """Note the variables of this environment, where they lead to a memory that is set up. Raises OSError: it cannot be written."""
    said = _said()
    if said.keys() <= {"XDG_CONFIG_HOME"} or not _is_set_up(said):
        return  # a configuration of its own, as in a trial, is no memory of its own
    noted = _noted()
    if said in noted:
        return

    kept = [said, *(each for each in noted if _is_set_up(each))][:MOST_NOTED]
    file = _file()
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    atomic.write(file, json.dumps(kept).encode(), is_kept=False)


def _said() -> Variables:
    """The variables of this environment that decide."""
    given = {name: value for name in VARIABLES if (value := os.environ.get(name, "").strip())}
    if HOME_VARIABLE in given:
        return {HOME_VARIABLE: os.path.abspath(os.path.expanduser(given[HOME_VARIABLE]))}
    return given


def _file() -> str:
    return os.path.join(os.path.expanduser("~"), ".config", "confide", "homes.json")


def _noted() -> list[Variables]:
    """What was noted, the newest first; nothing where others could have written it."""
    file = _file()
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return []
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        data = opened.read(_MOST_BYTES + 1) if is_own and _is_own_folder(os.path.dirname(file)) else b""
    try:
        found = json.loads(data) if data and len(data) <= _MOST_BYTES else []
    except (ValueError, RecursionError):
        return []
    return [each for each in found if _is_fit(each)][:MOST_NOTED] if isinstance(found, list) else []


def _is_fit(noted: object) -> bool:
    if not isinstance(noted, dict) or not noted or not noted.keys() <= set(VARIABLES):
        return False
    return all(
        isinstance(value, str) and os.path.isabs(value) and len(value) <= _MOST_CHARS and "\0" not in value
        for value in noted.values()
    )


def _is_own_folder(folder: str) -> bool:
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _place(variables: Variables) -> str:
    """The folder of the memory that these variables lead to."""
    if home := variables.get(HOME_VARIABLE):
        return home
    if data := variables.get(_DATA):
        return os.path.join(data, "confide")
    if sys.platform == "linux":
        return os.path.expanduser("~/.local/share/confide")
    import platformdirs

    return platformdirs.user_data_dir("confide")


def _is_set_up(variables: Variables) -> bool:
    """Whether there is a memory of this user's: a daemon was joined, or one of its own may run there."""
    place = _place(variables)
    try:
        is_own = os.stat(place).st_uid == os.geteuid()
    except (OSError, ValueError):
        return False
    return is_own and (os.path.lexists(f"{place}/proxy/link.json") or os.path.exists(f"{place}/daemon"))
