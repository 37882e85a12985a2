"""Logs in PostgreSQL, as the core asks for them (`confide_daemon.store.logs`). The driver is loaded by what opens a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from confide_cluster.daemon.log.configured import open_engine
from confide_cluster.daemon.spaces import joining
from confide_daemon.config import StoreConfig
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.store import logs

if TYPE_CHECKING:
    from confide_cluster.daemon.spaces.leases import Leases


class Postgres:
    """The PostgreSQL that `[store]` names."""

    join = staticmethod(joining.join)
    rotate = staticmethod(joining.rotate)
    retire = staticmethod(joining.retire)

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
    ) -> logs.RegistryLog:
        """Return the log of the registry. Raises StorageError: the driver is not installed."""
        engine = open_engine(config, most=2)
        from confide_cluster.daemon.log.shared import SharedLog  # needs the driver, which is there by now

        return SharedLog(engine, path, key, schema=schema, upgrade=upgrade, goes_on=goes_on, carry_over=carry_over)

    def leases(self, config: StoreConfig, folder: DataFolder, *, address: str = "") -> Leases:
        """Return the leases of a daemon. Raises StorageError: the driver is not installed."""
        engine = open_engine(config)
        from confide_cluster.daemon.spaces.leases import Leases  # needs the driver too

        return Leases(config, folder, engine, address=address)

    @contextmanager
    def forgetting(self, config: StoreConfig) -> Iterator[Callable[[str], None]]:
        """Give what removes the log of a space. Raises EngineError before anything is removed."""
        engine = open_engine(config)
        from confide_cluster.daemon import relocation

        engine.ready()
        try:
            yield lambda space_id: relocation.forget(engine, space_id)
        finally:
            engine.close()
