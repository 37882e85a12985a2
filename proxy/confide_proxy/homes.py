"""Which variables lead to this user's memory: noted at one place under HOME, for programs that are started with few of them.

A shell may say `CONFIDE_HOME` or `XDG_DATA_HOME`, and the clients of agents pass neither on. A session that believed its environment alone
would begin a second memory beside the first. So whoever sets this machine up notes the variables that it was done with, and a program that
has none of them, and finds no memory without, goes by that note. Where several are noted nobody can say which is meant.

Only what this user alone can write is believed. Hooks load this too, so it imports next to nothing.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    Variables = dict[str, str]

HOME_VARIABLE: Final = "CONFIDE_HOME"
_DATA: Final = "XDG_DATA_HOME"
VARIABLES: Final = (HOME_VARIABLE, _DATA, "XDG_CONFIG_HOME")
"""Which decide where a memory is."""
MOST_NOTED: Final = 8
_MOST_BYTES: Final = 32 * 1024
_MOST_CHARS: Final = 4096

_followed: Variables = {}


def follow() -> None:
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


def others() -> list[str]:
    """The places of this user's memories that the environment does not lead to."""
    here = _place(_said())
    places = {_place(each): None for each in ({}, *_noted()) if _is_set_up(each)}
    places.pop(here, None)
    return list(places)


def is_chosen() -> bool:
    """Whether somebody chose where the memory is, for this program alone: `CONFIDE_HOME` is for several beside each other."""
    return bool(os.environ.get(HOME_VARIABLE)) and HOME_VARIABLE not in _followed


def notices() -> list[str]:
    """What a person should know of where the memory is."""
    if _followed:
        names = " and ".join(_followed)
        return [f"started without {names}: the memory is in {_place(_followed)}, where this user has set it up"]
    elsewhere = others() if _is_set_up(_said()) else []
    if not elsewhere:
        return []
    return [
        f"another memory of this user is in {', '.join(elsewhere)}: "
        f"what is stored there is not found in this one, which is in {_place(_said())}"
    ]


def remember() -> None:
    """Note the variables of this environment, where they lead to a memory that is set up. Raises OSError: it cannot be written."""
    said = _said()
    if said.keys() <= {"XDG_CONFIG_HOME"} or not _is_set_up(said):
        return  # a configuration of its own, as in a trial, is no memory of its own
    noted = _noted()
    if said in noted:
        return
    import json
    import secrets

    kept = [said, *(each for each in noted if _is_set_up(each))][:MOST_NOTED]
    file = _file()
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    part = f"{file}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as written:
            json.dump(kept, written)
        os.replace(part, file)
    except OSError:
        os.unlink(part)
        raise


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
    import json

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
