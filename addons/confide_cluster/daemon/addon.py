"""Declares to the daemon what this add-on brings: the other nodes, the replication of each space,
and checks of `confided doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Final

from confide_cluster.settings import NodeConfig, StoreConfig
from confide_crypto.errors import ConfideError
from confide_daemon import config as configuration
from confide_daemon.addons import Addon, Check, Peers, PeersHost
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DaemonPaths
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space

# A tenth of the limit between nodes (PROTOCOL.md 12.2).
MOST_APART_S: Final = 60.0


class Cluster(Addon):
    """The add-on for several daemons over spaces with logs in PostgreSQL."""

    def space(self, space: Space, config: DaemonConfig) -> Iterable[SpacePart]:
        """Return the task that replicates a space in the background."""
        if space.outbox is None:
            return ()
        from confide_cluster.daemon.spaces.replication import Shipping

        return (Shipping(space.threads, space.outbox, space.index),)

    def peers(self, daemon: PeersHost) -> Peers | None:
        """Return the access to other nodes if `[store]` is set, else None."""
        if daemon.spaces.leases is None:
            return None
        from confide_cluster.daemon.nodes import Nodes
        from confide_cluster.daemon.spaces.leases import SpaceLeases

        assert isinstance(daemon.spaces.leases, SpaceLeases)
        return Nodes(daemon, daemon.spaces.leases)

    def files_of_session(self, config: DaemonConfig) -> int:
        """Return the number of file descriptors that a session needs: one more if sessions are
        forwarded, for the channel to the node that holds the space.
        """
        return 1 if config.table(NodeConfig).listen else 0

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Check that PostgreSQL answers, how safe its commits are, and whether it has lost data."""
        if not configuration.load(paths.config).table(StoreConfig).url:
            return ()
        follow("trying the store")
        return _store(paths)


def _store(found: DaemonPaths) -> Iterator[Check]:
    """Check that the logs' database answers, how safe its commits are, and if it has lost data."""
    from confide_cluster.daemon.log.configured import durability, open_engine, standing_of

    try:
        with closing(open_engine(configuration.load(found.config).table(StoreConfig))) as engine:
            engine.ready()
            standing = standing_of(engine)
            standby, is_forced, version, is_copy, commit, connected = standing["settings"]
    except ConfideError as error:
        yield Check("store", str(error), error.hint)
        return
    safe = durability(standby=standby, is_forced=is_forced, commit=commit, connected=connected)
    said = f"PostgreSQL {version}: {safe}"
    if is_copy:
        yield Check(
            "store", "url leads to a standby, which takes no writes", "say target_session_attrs=read-write in url"
        )
    elif not is_forced:
        yield Check("store", said, "set fsync = on in postgresql.conf")
    elif standby and commit == "local":
        yield Check("store", said, "ALTER ROLE ... RESET synchronous_commit, or the same of the database")
    elif standby and not connected:
        yield Check("store", said, "is the standby running? until it is, nothing new is acknowledged")
    else:
        yield Check("store", detail=said)
    if abs(standing["ahead_s"]) > MOST_APART_S:
        yield Check(
            "clock",
            f"that of PostgreSQL is {standing['ahead_s']:+.0f} s off this machine's",
            "set both right: nodes take each other's sessions only where their clocks agree within ten minutes",
        )
    if had := sorted(path.name for path in found.data.root.glob("registry.db.ahead*")):
        yield Check(
            "what the store has lost of the registry",
            f"it was put back to an earlier state, and no new device is let in; kept in the data folder: {', '.join(had[:3])}",
            "see with confided device and confided audit what is missing; then: confided store --accept",
        )
    if back := sorted(path.name for path in found.data.spaces.glob("*.db.put-back")):
        yield Check(
            "spaces that the store was put back for",
            f"{len(back)} are not opened, since this machine has more of them",
            "find out who has put PostgreSQL back; confided store --accept goes on from what it has",
        )
    if kept := sorted(path.name for path in found.data.spaces.glob("*.db.ahead*")):
        yield Check(
            "what the store has lost",
            f"{len(kept)} kept in the folder of the spaces: {', '.join(kept[:3])}",
            "devices send what they have when they next compare (confide sync); then move these files away",
        )
