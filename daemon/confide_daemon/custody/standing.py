"""Which spaces of a running daemon are locked, written beside its address for the commands of its operator. It holds nothing secret."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys import read_private_file, write_private_file

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a space stands whose machines keep its key.

    Attributes:
        is_locked: none of them has brought it.
        locks_at: when it will be forgotten if nobody comes, seconds since 1970; None while somebody is connected.
    """

    is_locked: bool
    locks_at: float | None


class StandingFile:
    """The file of one daemon, from its start to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, Standing] = {}

    def write(self, standings: Mapping[str, Standing]) -> None:
        """Writes what has changed, in under a millisecond; a disk that is full keeps nobody from working."""
        if standings == self._written:
            return
        said = {space_id: [one.is_locked, one.locks_at] for space_id, one in standings.items()}
        try:
            write_private_file(self._path, json.dumps(said).encode(), replace=True)
            self._written = dict(standings)
        except KeyFileError as error:
            log.warning("which spaces are locked could not be written down: %s", error)

    def remove(self) -> None:
        """The daemon ends."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Standing]:
    """What the running daemon has written, by the ids of the spaces; nothing where it cannot be read, or none serves."""
    try:
        found = json.loads(read_private_file(path))
        return {str(space_id): Standing(bool(said[0]), said[1]) for space_id, said in found.items()}
    except (KeyFileError, ValueError, TypeError, LookupError, AttributeError):
        return {}
