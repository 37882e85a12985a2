"""Which spaces of a running daemon are locked, written beside its address for the commands of its operator. It holds nothing secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import read_private_file, write_private_file

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a space stands whose machines keep its key.

    Attributes:
        is_locked: none of them has brought it.
        locks_at: when it will be forgotten if nobody comes, seconds since 1970; None while somebody is connected.
        stranded: how many of its sealed records are in a vault that is not configured any more, as far as the daemon has seen.
    """

    is_locked: bool
    locks_at: float | None
    stranded: int = 0


class StandingFile:
    """The file of one daemon, from its start to its end. It is written beside everything else, and behind it."""

    def __init__(self, path: Path, standings: Callable[[], Mapping[str, Standing]]) -> None:
        """`standings`: asked for what is to be written, by the ids of the spaces."""
        self._path = path
        self._standings = standings
        self._written: Mapping[str, Standing] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_due = False

    def changed(self) -> None:
        """Something may stand otherwise now."""
        self._is_due = True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """The daemon ends."""
        if self._writing is not None:
            await self._writing
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    async def _write(self) -> None:
        while self._is_due:
            self._is_due = False
            standings = dict(self._standings())
            if standings == self._written:
                continue
            said = {space_id: [one.is_locked, one.locks_at, one.stranded] for space_id, one in standings.items()}
            try:
                await asyncio.to_thread(write_private_file, self._path, json.dumps(said).encode(), replace=True)
                self._written = standings
            except KeyFileError as error:
                log.warning("which spaces are locked could not be written down: %s", error)


def read(path: Path) -> dict[str, Standing]:
    """What the running daemon has written, by the ids of the spaces; nothing where it cannot be read, or none serves."""
    try:
        found = json.loads(read_private_file(path))
        return {str(space_id): Standing(bool(said[0]), said[1], *said[2:3]) for space_id, said in found.items()}
    except (KeyFileError, ValueError, TypeError, LookupError, AttributeError):
        return {}
