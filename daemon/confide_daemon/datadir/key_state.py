"""The small file beside a space's database that says which key encrypts the database. It contains
no key, and nothing secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_daemon.errors import StorageError

Keeper = Literal["server", "caller"]
"""The holder of the key of a space's database: the server derives it from its master key, or the
space's devices have it.
"""
KEEPERS: Final[tuple[Keeper, ...]] = get_args(Keeper)
_HIGHEST: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class KeyName:
    keeper: Keeper  # `server`: it is derived from the master key; `caller`: the devices of the space have it
    number: int  # the server's generation, from 0, or the epoch of the space's roster, from 1


@dataclass(frozen=True, slots=True)
class Custody:
    """The record of who keeps a space's database key, and which key that is."""

    key: KeyName  # what its database is encrypted with
    # the next key during a change of the key; until the change ends, the database has one of the
    # two
    following: KeyName | None = None
    wanted_keeper: Keeper | None = None  # who is to keep it from the next opportunity on, where that is not who does
    generation: int = 0  # the highest of the server's that was ever used

    @property
    def names(self) -> tuple[KeyName, ...]:
        """The keys of which one opens the database, the more likely one first. There are two while
        the key is being changed.
        """
        return (self.key,) if self.following is None else (self.key, self.following)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record from its file. Return None if the file does not exist, which means that
        the server keeps the key, and that it is the first one.

        Raises KeyFileError if others could have written the file, or it cannot be read;
        StorageError if it is damaged, or a newer version wrote it.
        """
        if not path.exists():
            return None
        try:
            return cls.parse(read_private_file(path))
        except ValueError:
            raise StorageError(
                f"it is not known who keeps the key of a space: {path.name} is damaged, or of a newer version of confide",
                hint="restore it from a backup, or upgrade confide on this machine",
            ) from None

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse the content of such a file. Raises ValueError if it is damaged, or a newer version
        wrote it.
        """
        try:
            return cls.of_json(json.loads(data))
        except RecursionError:
            raise ValueError from None

    @classmethod
    def of_json(cls, found: Any) -> Self:
        """Build the record from the result of `to_json`. Raises ValueError if it is damaged, or a
        newer version wrote it.
        """
        try:
            if found["version"] != 1 or found["wanted"] not in (None, *KEEPERS):
                raise ValueError
            following = None if found["following"] is None else _key_name(found["following"])
            return cls(_key_name(found["key"]), following, found["wanted"], _number(found["generation"]))
        except (KeyError, TypeError):
            raise ValueError from None

    def write(self, path: Path) -> None:
        """Write the record to its file durably and atomically. Raises KeyFileError if the file
        cannot be written.
        """
        write_private_file(path, json.dumps(self.to_json()).encode() + b"\n", replace=True)

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON values, in the form that `parse` reads."""
        named = {"key": _key_name_json(self.key), "following": self.following and _key_name_json(self.following)}
        return {"version": 1, **named, "wanted": self.wanted_keeper, "generation": self.generation}


def _key_name_json(name: KeyName) -> dict[str, object]:
    return {"keeper": name.keeper, "number": name.number}


def _key_name(found: dict[str, object]) -> KeyName:
    if found["keeper"] not in KEEPERS:
        raise ValueError
    return KeyName(found["keeper"], _number(found["number"]))


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= _HIGHEST:
        raise ValueError
    return found
