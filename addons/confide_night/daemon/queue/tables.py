"""The tables of tasks, together: what the rest of the daemon's half asks, over whichever connection it works on."""

from __future__ import annotations

from confide_daemon.store.database import Database
from confide_daemon.store.store import Store
from confide_night.daemon.queue.runners import RunnerTable, TaskLogTable
from confide_night.daemon.queue.slots import SlotTable
from confide_night.daemon.queue.tasks import TaskTable


class Queue:
    """The tables of tasks over one connection to a space's database. `queue` gives those of a store."""

    def __init__(self, database: Database) -> None:
        self.tasks = TaskTable(database)
        self.slots = SlotTable(database)
        self.runners = RunnerTable(database)
        self.logs = TaskLogTable(database)


def queue(store: Store) -> Queue:
    """Return the tables of tasks of a store."""
    return store.tables(Queue)
