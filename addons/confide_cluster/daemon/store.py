"""Implements the daemon's interface for logs (`confide_daemon.store.logs`) with PostgreSQL. The
driver is loaded with the first connection pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from confide_cluster.daemon.log.configured import open_engine
from confide_cluster.daemon.spaces import node_bootstrap
from confide_cluster.settings import NodeConfig, StoreConfig
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store import logs

if TYPE_CHECKING:
    from confide_cluster.daemon.spaces.leases import SpaceLeases


class Postgres:
    """Creates the logs and leases of a daemon in the PostgreSQL of `[store]`."""

    def __init__(self, settings: StoreConfig, *, address: str = "") -> None:
        """`address`: at which other nodes reach this one."""
        self.settings = settings
        self._address = address

    @classmethod
    def from_config(cls, config: DaemonConfig) -> Postgres | None:
        """Return the store that `[store]` configures, or None."""
        settings = config.table(StoreConfig)
        return cls(settings, address=config.table(NodeConfig).address) if settings.url else None

    def join(self, folder: DataFolder) -> None:
        """Synchronize the data folder with PostgreSQL before it is served (`node_bootstrap.join`)."""
        node_bootstrap.join(folder, self)

    def registry(
        self,
        path: Path,
        key: bytes,
        *,
        schema: int,
        upgrade: Callable[[apsw.Connection], None],
        goes_on: Callable[[apsw.Connection, apsw.Connection], bool],
        carry_over: Callable[[apsw.Connection, apsw.Connection], None],
    ) -> logs.RegistryLog:
        """Return the log of the registry. Raises StorageError if the driver is not installed."""
        engine = open_engine(self.settings, most=2)
        from confide_cluster.daemon.log.shared import SharedLog  # needs the driver, which is there by now

        return SharedLog(engine, path, key, schema=schema, upgrade=upgrade, goes_on=goes_on, carry_over=carry_over)

    def leases(self, folder: DataFolder) -> SpaceLeases:
        """Return the object that manages the leases of a daemon. Raises StorageError if the driver
        is not installed.
        """
        engine = open_engine(self.settings)
        from confide_cluster.daemon.spaces.leases import SpaceLeases  # needs the driver too

        return SpaceLeases(self.settings, folder, engine, address=self._address)

    def rotate(self, folder: DataFolder, *, keep_s: float) -> Keys:
        """Give the daemon a new identity on all nodes (`node_bootstrap.rotate`)."""
        return node_bootstrap.rotate(folder, self, keep_s=keep_s)

    def retire(self, folder: DataFolder) -> str | None:
        """End the daemon's previous identity on all nodes (`node_bootstrap.retire`)."""
        return node_bootstrap.retire(folder, self)

    @contextmanager
    def forgetting(self) -> Iterator[Callable[[str], None]]:
        """Yield the function that deletes the log of a space by its id. Raises EngineError, before
        anything is deleted, if PostgreSQL is unavailable.
        """
        engine = open_engine(self.settings)
        from confide_cluster.daemon import relocation  # needs the driver too

        engine.ready()
        try:
            yield lambda space_id: relocation.forget(engine, space_id)
        finally:
            engine.close()
