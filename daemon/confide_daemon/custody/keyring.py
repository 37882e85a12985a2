"""The keys of databases that the daemon can use now: those that it derives, and those that machines have handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confide_daemon.custody.custody import KeyName
from confide_daemon.master import MasterKey


class Keyring:
    """In memory only. What machines have handed over is held until it is forgotten; the repr shows nothing."""

    def __init__(self, master: MasterKey) -> None:
        self._master = master
        self._held: dict[str, dict[int, bytes]] = {}

    def key(self, space_id: str, name: KeyName) -> bytes | None:
        """The key of that name, 32 bytes; None where only a machine has it."""
        if name.keeper == "server":
            return self._master.space_key(space_id, name.number)
        return self._held.get(space_id, {}).get(name.number)

    def hold(self, space_id: str, keys: Mapping[int, bytes]) -> None:
        """Keys by their epochs, from a machine."""
        self._held.setdefault(space_id, {}).update(keys)

    def forget(self, space_id: str, *, but: Iterable[int] = ()) -> None:
        """Those of a space, except for some epochs."""
        kept = {epoch: key for epoch, key in self._held.pop(space_id, {}).items() if epoch in set(but)}
        if kept:
            self._held[space_id] = kept
