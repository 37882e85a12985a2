"""The commands `confided init`, `confided serve`, and `confided catalogue`, whose output is shipped
with the proxy.

Modules that load the store and the models are imported late, because a daemon that is started on
demand first checks whether another one holds the lock.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from confide_crypto.keys.private_files import make_private_dir
from confide_daemon import config
from confide_daemon.cli.console import CommandContext, Config, Data, Output, command, remark, say
from confide_daemon.datadir import log_file, paths
from confide_daemon.datadir.credentials import MASTER, credential
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import AlreadyServedError, DataFolderError

log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """The format in which log lines are written: text or JSON."""

    TEXT = "text"
    JSON = "json"


LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
ON_DEMAND_WAIT_S = 5.0


@command
def init(here: CommandContext) -> Output:
    """Make the data folder and its keys."""
    from confide_crypto.keys.identity import Identity, format_daemon_key
    from confide_daemon.access.registry import create

    here.config()
    found = here.paths
    is_new = create(found.data)
    key = format_daemon_key(Identity.load(found.data.identity).static_key)

    def print_text() -> None:
        say(f"{'made' if is_new else 'already there'}: {found.data.root}")
        say(f"daemon key: {key}")
        say(f"configuration: {found.config}{'' if found.config.exists() else ' (does not exist; defaults apply)'}")
        if is_new:
            remark("Back up identity.key and master.key: without master.key the data cannot be read.")
            remark("Next, to serve your network: confided serve --listen 0.0.0.0:7733   (default: only this machine)")
            remark("Then, in another terminal: confided invite laptop --url confide://THIS-HOST:7733")

    return Output(
        {"data": str(found.data.root), "config": str(found.config), "key": key, "created": is_new}, print_text
    )


def serve(
    config_file: Config = None,
    data: Data = None,
    listen: Annotated[str | None, typer.Option("--listen", help="host:port.", show_default="127.0.0.1:7733")] = None,
    on_demand: Annotated[
        bool,
        typer.Option(
            "--on-demand", help="Serve only this machine, on a free port, and end when no device is connected."
        ),
    ] = False,
    idle_exit: Annotated[
        int | None,
        typer.Option("--idle-exit", min=1, help="With --on-demand: seconds without a connection until it ends."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="The format of the log: text, or a JSON object a line.")
    ] = LogFormat.TEXT,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Upgrade an older data folder without a snapshot first.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every call, never its content.")] = False,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C."""
    logging.getLogger("confide_daemon").setLevel(logging.DEBUG if verbose else logging.INFO)
    for foreign in ("mcp", "anyio", "asyncio", "websockets"):
        # Their log records quote messages of clients.
        logging.getLogger(foreign).setLevel(logging.CRITICAL)
    found = paths.find(config=config_file, data=data)
    handler = log_file.handler(found.data.log)
    handler.setFormatter(_formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    settings = config.load(found.config, must_exist=config_file is not None)
    lock = _take(found.data, on_demand=on_demand, has_store=bool(settings.tables) and _has_store(settings))
    if lock is None:
        return
    log.info("configuration: %s", found.config if found.config.exists() else f"none at {found.config}; defaults apply")
    misplaced = found.data.root / found.config.name
    if misplaced.exists() and misplaced.resolve() != found.config.resolve():
        log.warning("%s is ignored; the configuration file is %s", misplaced, found.config)
    # The modules stay loaded: collecting garbage would be an eighth of the start. `daemon_process`
    # enables it again.
    gc.disable()
    # Imported late: a second daemon on demand ends before this import.
    from confide_daemon.server import daemon_process

    if not on_demand and sys.stderr.isatty():
        remark(f"confided serves at {listen or settings.server.listen}; Ctrl-C stops it")
        remark("Next, in another terminal: confided invite laptop --url confide://THIS-HOST:PORT")
    daemon_process.run(
        found.data,
        settings,
        config_file=found.config,
        listen=listen,
        idle_exit_s=idle_exit,
        on_demand=on_demand,
        wants_snapshot=not no_snapshot,
    )
    lock.release()


def _formatter(wanted: LogFormat) -> logging.Formatter:
    if wanted is LogFormat.TEXT:
        return logging.Formatter(LOG_FORMAT)
    # Imported late: it is rarely used, and a daemon on demand has to start fast.
    from confide_daemon.cli.log_objects import LogObjects

    return LogObjects()


def _has_store(settings: config.DaemonConfig) -> bool:
    from confide_daemon.store.logs import log_store

    return log_store(settings) is not None


def _take(folder: paths.DataFolder, *, on_demand: bool, has_store: bool = False) -> Any:
    """Take the lock of the data folder; return None if another daemon that was started on demand
    serves already.

    `has_store`: a store may hold what the folder lacks besides the master key.
    """
    if on_demand or (has_store and (folder.master.exists() or credential(MASTER) is not None)):
        make_private_dir(folder.root)
    elif not folder.identity.exists():
        raise DataFolderError(folder.root, "is not set up", hint="run: confided init")
    deadline = time.monotonic() + ON_DEMAND_WAIT_S
    while True:
        try:
            lock = DaemonLock.take(folder.lock)
        except OSError as error:
            raise DataFolderError(folder.root, f"cannot be written: {(error.strerror or '').lower()}") from error
        if lock is not None:
            return lock
        if not on_demand:
            raise AlreadyServedError(folder.root)
        # The holder of the lock has written its address, or will soon, or has removed it because it
        # is ending: then this process takes over.
        if folder.address.exists() or time.monotonic() >= deadline:
            return None
        time.sleep(0.05)


def catalogue(toolsets: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Print the tools as a client sees them, as JSON.

    The proxy ships this.
    """
    from confide_daemon.server.mcp import tool_calls

    say(json.dumps(tool_calls.catalogue(toolsets or ["core"]), indent=1, sort_keys=True, ensure_ascii=False))
