"""How many sealed records are in a vault, for a command that looks after a data folder whose daemon.toml names none."""

from __future__ import annotations

from confide_crypto.errors import ConfideError
from confide_daemon.custody import standing
from confide_daemon.custody.custodian import Custodian
from confide_daemon.paths import DataFolder
from confide_daemon.state import open_state
from confide_daemon.store.sqlite import SqliteStore


def stranded(folder: DataFolder, space_id: str) -> int:
    """Those of a space; of one whose key its machines keep, what the running daemon has seen when it was opened.

    Raises:
        ConfideError: the folder cannot be read.
    """
    state = open_state(folder)
    try:
        _, key = Custodian(space_id, folder, state.master).opening_key()
        store = SqliteStore.open(folder.space(space_id), key, writer=False, now=0.0)
    except ConfideError:
        # It is locked for us; or cannot be opened, and whoever checks the database tells of that.
        told = standing.read(folder.standing).get(space_id)
        return told.stranded if told is not None else 0
    finally:
        state.close()
    try:
        return store.sealed_count_at(is_placed=True)
    except ConfideError:
        return 0  # of a version without them, or damaged
    finally:
        store.close()
