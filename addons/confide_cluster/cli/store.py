"""`confided store`: shows the PostgreSQL that stores the logs of the spaces, and moves spaces into
it or out of it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Annotated, Any

import typer

from confide_cluster.daemon.log.configured import durability, open_engine, standing_of
from confide_cluster.daemon.spaces import node_bootstrap
from confide_cluster.daemon.store import Postgres
from confide_cluster.settings import StoreConfig
from confide_crypto.errors import EXIT_CONFIG, ConfideError
from confide_daemon.access.registry import open_master
from confide_daemon.cli.console import CommandContext, Output, command, remark, say
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import AlreadyServedError, BadNameError, ConfigError


@command
def store(
    here: CommandContext,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Move all spaces into the store at this address.")
    ] = None,
    to_files: Annotated[
        bool, typer.Option("--to-files", help="Move all spaces out of the store, into files alone.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Continue with a store that was restored to an earlier state.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option("--release", metavar="SPACE", help="Take a space from its node, so that another can have it."),
    ] = None,
) -> Output:
    """Show the PostgreSQL store of a cluster, or move spaces into it or out of it.

    Shows the nodes, which of them holds each space, how much a new holder has to apply, and how
    safe commits are. A move compares what arrives, and needs all daemons to be stopped. After
    --accept the store opens spaces again, and new devices may connect; run it on each node.
    --release loses nothing.
    """
    if sum((to is not None, to_files, accept, release is not None)) > 1:
        raise typer.BadParameter("use one of --to, --to-files, --accept and --release")
    if to is not None or to_files:
        return _move(here, to)
    if accept:
        return _accept(here)
    if release is not None:
        return _release(here, release)
    return _status(here)


def _status(here: CommandContext) -> Output:
    config = here.config().table(StoreConfig)
    _require(config.url)
    with here.open_state() as state, closing(open_engine(config)) as engine:
        from confide_cluster.daemon.log.log_snapshot import PUT_BACK  # needs the driver, which is there by now

        engine.ready()
        found = standing_of(engine)
        names = {space_id: name for name, space_id in state.registry.spaces().items()}
        ahead = sorted(path.name for path in state.folder.spaces.glob("*.db.ahead*"))
        ahead += sorted(path.name for path in state.folder.root.glob("registry.db.ahead*"))
        refused = [path.name.partition(".")[0] for path in sorted(state.folder.spaces.glob(f"*{PUT_BACK}"))]
    refused = [names.get(space_id, space_id) for space_id in refused] + ["registry"] * any(
        "registry" in one for one in ahead
    )
    standby, is_forced, version, is_copy, commit, connected = found["settings"]
    nodes = [
        {"node": node, "version": said, "seenAgoS": round(ago, 1), "address": address or None}
        for node, said, ago, address in found["nodes"]
    ]
    registry = found["registry"]
    spaces = [_log_row(names, *log) for log in found["logs"]]
    fields = {
        "postgres": version,
        "waitsForStandby": standby and commit != "local",
        "forcesToDisk": is_forced,
        "isStandby": is_copy,
        "nodes": nodes,
        "registry": None if registry is None else {"entries": registry[0], "behindSnapshot": registry[1]},
        "spaces": spaces,
        "kept": ahead,
        "putBack": refused,
    }

    def print_text() -> None:
        said = durability(standby=standby, is_forced=is_forced, commit=commit, connected=connected)
        say(f"PostgreSQL {version}: {said}")
        for one in nodes:
            at = f" at {one['address']}" if one["address"] else ""
            say(f"node {one['node']}{at}: confided {one['version']}, seen {one['seenAgoS']:.1f} s ago")
        if registry is not None:
            say(f"registry: {registry[0]} entries, {registry[1]} behind its snapshot")
        for space in spaces:
            holder = "no node holds it" if space["node"] is None else f"held by node {space['node']}"
            say(
                f"{space['space']}: {holder}; {space['entries']} entries, {space['behindSnapshot']} behind its snapshot"
            )
        for name in ahead:
            remark(f"kept: {name} has data that the store has lost")
        for name in refused:
            remark(f"restored to an earlier state: {name}; find out why, then run: confided store --accept")

    return Output(fields, print_text)


def _move(here: CommandContext, to: str | None) -> Output:
    """Move all spaces into the store at the address `to`, or out of the store for None."""
    to_files = to is None
    config = here.config().table(StoreConfig)
    if to is not None:
        config = replace(config, url=to)
        if (problem := config.problem()) is not None:
            raise ConfigError(here.paths.config, "has an unusable address for [store]", hint=problem[1])
    _require(config.url)
    folder = here.paths.data
    open_master(folder)  # before a lock is made in a folder that is no data folder
    lock = DaemonLock.take(folder.lock)
    if lock is None:
        raise AlreadyServedError(folder.root)
    try:
        engine = open_engine(config)
        from confide_cluster.daemon import relocation  # which needs the driver, as this line has found out by now

        work = relocation.to_files if to_files else relocation.to_store
        if to_files and folder.node.exists():
            node_bootstrap.join(folder, Postgres(config))  # all spaces, also those that were added on another node
        with here.open_state() as state, here.progress() as bar:
            done = work(state, engine, config.lease_s, follow=lambda name: bar.step(name, 0, 0))
        (node_bootstrap.leave if to_files else node_bootstrap.join)(folder, Postgres(config))
    finally:
        lock.release()
    where = "files" if to_files else "store"
    lines = [f"moved: {name}" for name in done.moved_spaces] + [f"already there: {name}" for name in done.there]
    if not lines:
        lines = ["there is no space yet"]
    then = "remove url from [store] in daemon.toml" if to_files else "set it as url of [store] in daemon.toml"
    return Output(
        {"to": where, "moved": done.moved_spaces, "there": done.there},
        lines,
        [f"next: {then}, then run: confided serve"],
    )


def _accept(here: CommandContext) -> Output:
    from confide_cluster.daemon.log import log_snapshot  # needs the driver

    _require(here.config().table(StoreConfig).url)
    with here.open_state() as state:
        assert state.registry.shared is not None
        registry = state.registry.shared.accept()
        names = {space_id: name for name, space_id in state.registry.spaces().items()}
        spaces = [names.get(space_id, space_id) for space_id in log_snapshot.accept(state.folder.spaces)]
    lines = [f"accepted: the registry; the copy from here is kept as {path.name}" for path in registry]
    lines += [f"accepted: {name}; the copy from here is kept beside it when it is opened" for name in spaces]
    return Output(
        {"registry": [path.name for path in registry], "spaces": spaces},
        lines or ["nothing to accept: the store was not restored"],
    )


def _release(here: CommandContext, space: str) -> Output:
    config = here.config().table(StoreConfig)
    _require(config.url)
    with here.open_state() as state:
        known = state.registry.spaces()
    if space not in known:
        raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(known) or 'none'}")
    with closing(open_engine(config)) as engine:
        engine.ready()
        # The lease number goes up too: it fences the former holder, if that is alive.
        freed = "UPDATE log SET holder = NULL, lease = lease + 1 WHERE id = %(id)s AND holder IS NOT NULL"
        count, _ = engine.run(freed, {"id": known[space]})
    said = f"released: {space}" if count else f"no node holds {space}"
    return Output({"space": space, "released": bool(count)}, [said])


def _log_row(
    names: dict[str, str], space_id: str, lease: int, holder: int | None, head: int, base: int, size: int
) -> dict[str, Any]:
    standing = {"lease": lease, "node": holder, "entries": head, "behindSnapshot": head - base, "bytes": size}
    return {"space": names.get(space_id, space_id), **standing}


def _require(url: str) -> None:
    if not url:
        error = ConfideError("daemon.toml names no store", hint="set url of [store]; see docs/cluster.md")
        error.exit_code = EXIT_CONFIG
        raise error
