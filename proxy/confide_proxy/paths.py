"""The paths of the proxy's files; no other module knows their names.

If `CONFIDE_HOME` is set, everything is below it, so that several identities (and tests) fit on one
device. Otherwise Confide uses the platform's standard folders.

A shell may set `CONFIDE_HOME` or `XDG_DATA_HOME`, but agents' clients do not pass these on to the
programs that they start. Such a program would start a second memory beside the first. So Confide
notes the variables with which this device was set up, and a program without them follows that note.
If the note names several memories, none is chosen. Confide trusts the note only if no other user
can write it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto import atomic, portable

Variables = dict[str, str]

HOME_VARIABLE: Final = "CONFIDE_HOME"
_DATA: Final = "XDG_DATA_HOME"
VARIABLES: Final = (HOME_VARIABLE, _DATA, "XDG_CONFIG_HOME")
"""The environment variables that determine the memory's location."""
MOST_NOTED: Final = 8
_MOST_BYTES: Final = 32 * 1024
_MOST_CHARS: Final = 4096


_followed: Variables = {}


class _InState:
    """A descriptor for a file or folder below `ProxyPaths.state`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: ProxyPaths, _owner: type[ProxyPaths]) -> Path:
        return paths.state / self._name


@dataclass(frozen=True, slots=True)
class ProxyPaths:
    """The paths of the proxy's files.

    Attributes:
        config: the TOML file that users edit.
        state: the folder with the device's key, pins and caches; its mode is 0700.
        global_folder: the memory that all projects share.
        daemon_data: the data folder of the daemon that is started on demand.
    """

    config: Path
    state: Path
    global_folder: Path
    daemon_data: Path

    identity = _InState("identity.key")
    """The Ed25519 seed of this device."""
    next_identity = _InState("identity.next.key")
    """The seed that is about to replace `identity`; it exists only during a key rotation."""
    identity_lock = _InState("identity.lock")
    """The lock for changes of `identity` and `next_identity`."""
    link = _InState("link.json")
    """The daemon that this device has joined, and its pinned key."""
    failed_join = _InState("failed-join.json")
    """The reason why the last `confide join` failed; it exists until this device is set up."""
    client_files = _InState("client-files.json")
    """The changes by `confide setup` to clients' files, kept so that they can be undone."""
    move = _InState("move.json")
    """The target of a move of this device's memory; it exists until the move is complete."""
    left = _InState("left.json")
    """The time when the daemon reported that the memory was moved elsewhere, for the task runner.
    """
    receipt = _InState("receipt.json")
    """The last position in the daemon's space that this device has followed."""
    restores = _InState("restores.jsonl")
    """The times when the daemon was restored from an older copy of its data, and the effects on
    this device's files.
    """
    catalogue = _InState("catalogue.json")
    """The names of the daemon's tools."""
    journal = _InState("journal")
    """The queue of calls that wait for the daemon, sealed."""
    ledgers = _InState("confirmed")
    """The state of each file as the daemon has confirmed it, by folder."""
    projects = _InState("projects.jsonl")
    """The project name of each folder, and the source of that name."""
    transcripts = _InState("transcripts")
    """The progress of sending this device's session transcripts."""
    learn = _InState("learn")
    """Sources, progress and suggestions of learning; it exists only if learning is on."""
    fingerprint_key = _InState("fingerprint.key")
    """The key for this device's fingerprints of credentials."""
    known = _InState("known")
    """The keyed fingerprints of the values that this device has sealed or opened, by space."""
    secret_names = _InState("secret-names.json")
    """The names that the user gave to sealed secrets."""
    secret_uses = _InState("secret-uses.jsonl")
    """The last uses of secrets on this device, without values."""
    approvals = _InState("approvals.json")
    """The approvals of this device's terminal sessions."""
    rosters = _InState("rosters")
    """The last seen roster of each space, and the secrets of the invites that this device made."""
    forgotten = _InState("forgotten.json")
    """The records of texts that this device's spaces have forgotten, and their keys."""
    forget_receipts = _InState("forget-receipts")
    """The receipts of what was forgotten from this device."""
    briefings = _InState("briefing")
    """The last briefing of each project, for hooks (`hooks/briefings.py`)."""
    gateway = _InState("gateway")
    """The gateway's tokens, and its address."""
    seats = _InState("seats")
    """The lock files of the roles that only one process of this device may hold."""


def find(config: Path | None = None) -> ProxyPaths:
    """Return the paths for this user, or those below `CONFIDE_HOME` if that is set.

    Args:
        config: the path of the configuration file, instead of the usual one.
    """
    follow_note()
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = Path(home).expanduser().absolute()
        return ProxyPaths(config or root / "proxy.toml", root / "proxy", root / "global", root / "daemon")
    # Imported late: platformdirs costs more than all other imports that `confide mcp` needs before
    # its first response.
    import platformdirs

    data = platformdirs.user_data_path("confide")
    settings = platformdirs.user_config_path("confide")
    return ProxyPaths(config or settings / "proxy.toml", data / "proxy", data / "global", data / "daemon")


def runtime_folders() -> list[Path]:
    """Return the folders that may contain this user's runtime files: that of `XDG_RUNTIME_DIR`, and
    Linux's default.

    The default is needed because clients start servers without that variable.
    """
    said = os.environ.get("XDG_RUNTIME_DIR")
    usual = [Path(f"/run/user/{portable.user()}")] if portable.HAS_MODES else []
    return list(dict.fromkeys([*([Path(said)] if said else []), *usual]))


def follow_note() -> None:
    """Set the noted environment variables that lead to this user's only memory.

    Does nothing if the environment sets one of `VARIABLES`, or if a memory exists in the default
    folder.
    """
    if _followed and all(os.environ.get(name) == value for name, value in _followed.items()):
        return
    _followed.clear()
    # Not even if only XDG_CONFIG_HOME is set: that configuration may belong to another memory.
    if any(os.environ.get(name) for name in VARIABLES) or _is_set_up({}):
        return
    noted = [each for each in _read_noted() if _is_set_up(each)]
    if len(noted) == 1:
        _followed.update(noted[0])
        os.environ.update(_followed)


def other_memories() -> list[str]:
    """Return the folders of this user's memories, except the one that the environment variables
    lead to.
    """
    here = _place(_read_variables())
    places = {_place(each): None for each in ({}, *_read_noted()) if _is_set_up(each)}
    places.pop(here, None)
    return list(places)


def is_chosen_place() -> bool:
    """Return True if `CONFIDE_HOME` was set for this program, rather than taken from the noted
    variables.

    Users set it to keep several memories side by side.
    """
    return bool(os.environ.get(HOME_VARIABLE)) and HOME_VARIABLE not in _followed


def memory_notices() -> list[str]:
    """Return sentences for the user if the memory's location may surprise: it was found by the
    noted variables, or is one of several.
    """
    if _followed:
        names = " and ".join(_followed)
        return [f"started without {names}: the memory is in {_place(_followed)}, where this user has set it up"]
    elsewhere = other_memories() if _is_set_up(_read_variables()) else []
    if not elsewhere:
        return []
    return [
        f"another memory of this user is in {', '.join(elsewhere)}: "
        f"what is stored there is not found in this one, which is in {_place(_read_variables())}"
    ]


def remember_place() -> None:
    """Note in `homes.json` the environment variables that decide where the memory is.

    By this note, a program that is started without the variables finds the same memory. Nothing is
    noted if no memory is set up there. Raises OSError if the file cannot be written.
    """
    said = _read_variables()
    if said.keys() <= {"XDG_CONFIG_HOME"} or not _is_set_up(said):
        return  # another configuration, as in a trial, is not another memory
    noted = _read_noted()
    if said in noted:
        return

    kept = [said, *(each for each in noted if _is_set_up(each))][:MOST_NOTED]
    file = _file()
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    atomic.write(file, json.dumps(kept).encode(), is_kept=False)


def _read_variables() -> Variables:
    """Return this environment's values of `VARIABLES`; `CONFIDE_HOME` overrides the others."""
    given = {name: value for name in VARIABLES if (value := os.environ.get(name, "").strip())}
    if HOME_VARIABLE in given:
        return {HOME_VARIABLE: os.path.abspath(os.path.expanduser(given[HOME_VARIABLE]))}
    return given


def _file() -> str:
    return os.path.join(os.path.expanduser("~"), ".config", "confide", "homes.json")


def _read_noted() -> list[Variables]:
    """Return the noted sets of variables, newest first; none if another user could have written
    them.
    """
    file = _file()
    try:
        descriptor = os.open(file, os.O_RDONLY | portable.NO_WAIT | portable.NO_LINK | portable.CLOSED)
    except (OSError, ValueError):
        return []
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        is_own = (
            stat.S_ISREG(status.st_mode) and status.st_uid == portable.user() and not status.st_mode & portable.OTHERS
        )
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
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == portable.user() and not status.st_mode & portable.OTHERS_WRITE
    )


def _place(variables: Variables) -> str:
    """Return the folder of the memory that these variables lead to."""
    if home := variables.get(HOME_VARIABLE):
        return home
    if data := variables.get(_DATA):
        return os.path.join(data, "confide")
    if sys.platform == "linux":
        return os.path.expanduser("~/.local/share/confide")
    import platformdirs

    return platformdirs.user_data_dir("confide")


def _is_set_up(variables: Variables) -> bool:
    """Return True if these variables lead to a memory of this user: a joined daemon's, or that of a
    daemon on this device.
    """
    place = _place(variables)
    try:
        is_own = os.stat(place).st_uid == portable.user()
    except (OSError, ValueError):
        return False
    return is_own and (os.path.lexists(f"{place}/proxy/link.json") or os.path.exists(f"{place}/daemon"))
