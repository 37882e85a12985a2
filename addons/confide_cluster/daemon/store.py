"""Logs in PostgreSQL, as the core asks for them (`confide_daemon.store.logs`). The driver is loaded by what opens a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from confide_cluster.daemon.log.configured import open_engine
from confide_cluster.daemon.spaces.leases import Leases
from confide_daemon.config import StoreConfig
from confide_daemon.datadir.identity import Keys
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store.logs import RegistryLog


class Postgres:
    """The PostgreSQL that `[store]` names."""

    def join(self, folder: DataFolder, config: StoreConfig) -> None:
        """As `joining.join`."""
        from confide_cluster.daemon.spaces import joining

        joining.join(folder, config)

    def registry(
        self,
        config: StoreConfig,
        path: Path,
        key: bytes,
        *,
        schema: int,
        upgrade: Callable[[apsw.Connection], None],
        goes_on: Callable[[apsw.Connection, apsw.Connection], bool],
        carry_over: Callable[[apsw.Connection, apsw.Connection], None],
    ) -> RegistryLog:
        """Return the log of the registry. Raises StorageError: the driver is not installed."""
        engine = open_engine(config, most=2)
        from confide_cluster.daemon.log.shared import SharedLog  # needs the driver, which is there by now

        return SharedLog(engine, path, key, schema=schema, upgrade=upgrade, goes_on=goes_on, carry_over=carry_over)

    def leases(self, config: StoreConfig, folder: DataFolder, *, address: str = "") -> Leases:
        """Return the leases of a daemon. Raises StorageError: the driver is not installed."""
        return Leases(config, folder, open_engine(config), address=address)

    def rotate(self, folder: DataFolder, config: StoreConfig, *, keep_s: float) -> Keys:
        """As `joining.rotate`."""
        from confide_cluster.daemon.spaces import joining

        return joining.rotate(folder, config, keep_s=keep_s)

    def retire(self, folder: DataFolder, config: StoreConfig) -> str | None:
        """As `joining.retire`."""
        from confide_cluster.daemon.spaces import joining

        return joining.retire(folder, config)

    @contextmanager
    def forgetting(self, config: StoreConfig) -> Iterator[Callable[[str], None]]:
        """Give what removes the log of a space. Raises EngineError before anything is removed."""
        from confide_cluster.daemon import relocation

        engine = open_engine(config)
        engine.ready()
        try:
            yield lambda space_id: relocation.forget(engine, space_id)
        finally:
            engine.close()
