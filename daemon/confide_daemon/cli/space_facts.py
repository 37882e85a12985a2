"""Who keeps the keys of the databases, and what of them is in a vault, as an operator is told it by a command beside the daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from confide_crypto.errors import ConfideError, KeyFileError
from confide_daemon.access.bootstrap import State, open_state
from confide_daemon.datadir import locked_spaces
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import StorageError
from confide_daemon.sealing.rescan import UnsealedCounts
from confide_daemon.sealing.rosters import Rosters
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.store import Store


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """One space.

    Attributes:
        custody: who keeps its key; None while there is nothing that it could open.
        wanted: who is to keep it from the next opportunity on, where that is somebody else.
        number: the server's generation, or the epoch whose key the database has.
        epoch: the newest of the roster, 0 where there is none.
        devices: how many are on the roster, recovery codes included.
        is_locked: whether a machine has to bring the key before it can be used.
        is_changing: whether the key is being changed, or was when the daemon ended.
        unsealed: credentials that a machine has last seen stored in clear; None where nobody has looked.
        locks_at: when the key will be forgotten if nobody comes, seconds since 1970; None while somebody is connected, or nobody has it.
        problem: why nobody can tell, where nobody can.
    """

    custody: Keeper | None
    wanted: Keeper | None
    number: int
    epoch: int
    devices: int
    is_locked: bool
    is_changing: bool
    unsealed: int | None
    locks_at: float | None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a script reads it."""
        return {
            "custody": self.custody,
            "wanted": self.wanted,
            "keyEpoch" if self.custody == "caller" else "generation": self.number,
            "epoch": self.epoch,
            "devices": self.devices,
            "locked": self.is_locked,
            "changing": self.is_changing,
            "locksAt": self.locks_at,
            "unsealed": self.unsealed,
            "problem": self.problem,
        }

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.custody is None:
            said = "nothing is stored yet"
        elif self.custody == "server":
            said = f"this server keeps its key (generation {self.number})"
        elif not self.number:
            said = "its machines will keep its key; none has connected yet"
            if self.epoch:
                said = "it waits for one of its machines: they keep its key"
        else:
            said = f"its machines keep its key (epoch {self.number}); {'locked' if self.is_locked else 'unlocked'}"
        if self.locks_at is not None:
            said += f" until {time.strftime('%Y-%m-%d %H:%M', time.localtime(self.locks_at))} if nobody connects"
        if self.is_changing:
            said += "; being changed"
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        said += f"; {devices}, epoch {self.epoch}" if self.epoch else "; no devices yet"
        if self.unsealed:
            said += f"; {self.unsealed} {'credential' if self.unsealed == 1 else 'credentials'} in clear"
        return said


def facts_of(state: State, *, is_served: bool) -> dict[str, SpaceFacts]:
    """Every space, by its name.

    Args:
        is_served: whether a daemon answers: one that was killed leaves behind what it has told of its spaces.

    Raises:
        StorageError: the registry cannot be read.
    """
    rosters, counts = Rosters(state.registry), UnsealedCounts(state.registry)
    folder = state.folder
    standings = locked_spaces.read(folder.standing) if is_served else {}
    found = {}
    for name, space_id in state.registry.spaces().items():
        try:
            written = Custody.read(folder.custody(space_id))
            roster = rosters.current(space_id)
            epoch = roster.epoch if roster is not None else 0
            is_theirs = written is None and Custodian(space_id, folder, state.master).is_of_machines(epoch)
        except (StorageError, KeyFileError) as error:
            # One space of which nobody can tell must not hide the others.
            found[name] = SpaceFacts(None, None, 0, 0, 0, False, False, None, None, str(error))
            continue
        custody = written or Custody(KeyName("caller" if is_theirs else "server", 0))
        stands = standings.get(space_id)
        counted = counts.of(space_id)
        found[name] = SpaceFacts(
            custody=custody.key.keeper if written or folder.space(space_id).exists() else None,
            wanted=custody.wanted,
            number=custody.key.number,
            epoch=epoch,
            devices=len(roster.devices) if roster is not None else 0,
            is_locked=custody.key.keeper == "caller" and (stands is None or stands.is_locked),
            is_changing=custody.following is not None,
            unsealed=counted.findings if counted is not None else None,
            locks_at=stands.locks_at if stands is not None and not stands.is_locked else None,
        )
    return found


def stranded(folder: DataFolder, space_id: str) -> int:
    """How many sealed records of a space are in a vault, where daemon.toml names none.

    Of a space whose key its machines keep, what the running daemon has seen when it was opened.

    Raises:
        ConfideError: the folder cannot be read.
    """
    state = open_state(folder)
    try:
        _, key = Custodian(space_id, folder, state.master).opening_key()
        store = Store.open(folder.space(space_id), key, writer=False, now=0.0)
    except ConfideError:
        # It is locked for us; or cannot be opened, and whoever checks the database tells of that.
        told = locked_spaces.read(folder.standing).get(space_id)
        return told.stranded if told is not None else 0
    finally:
        state.close()
    try:
        return store.sealed_records.count_at(is_placed=True)
    except ConfideError:
        return 0  # of a version without them, or damaged
    finally:
        store.close()
