"""The command line of the daemon: what its operator does.

Data goes to stdout, everything said about it to stderr. Heavy parts are imported in the commands that need them, so that a daemon that is
started on demand can look at its lock first.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Annotated, Any

import typer

from confide_crypto.errors import EXIT_CONFIG, EXIT_STORAGE, ConfideError
from confide_daemon import __version__, config
from confide_daemon.cli import bench, callers, invites, jobs, running, status
from confide_daemon.cli.console import Config, Data, Here, Output, command, say
from confide_daemon.cli.key import key_app
from confide_daemon.datadir import log_file, paths

EXIT_CODES = (
    "Exit codes: 0 ok, 1 other, 2 usage, 3 configuration, 4 keys and permissions, 5 unreachable or port in use, 6 denied or invite, "
    "7 bad input, 8 storage (disk full, not writable)."
)
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
ON_DEMAND_WAIT_S = 5.0

app = typer.Typer(
    name="confided",
    help="Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(key_app, name="key")


def main() -> None:
    """Run the command line; every failure ends with its sentence, a hint and its exit code."""
    try:
        app()
    except ConfideError as error:
        say(f"confided: {error.with_hint}")
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0].startswith("confide"):
            raise  # a fault of ours, and no missing extra
        say(f"confided: the daemon's part is not installed here (no module {error.name})")
        say("hint: install confide with its extra daemon: pip install '.[daemon]' in the clone")
        sys.exit(EXIT_CONFIG)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        why = error.strerror or type(error).__name__
        if error.filename is None:
            # Most often what stdout goes to. It is not tried again when the interpreter ends, which would add its own words and exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"confided: {error.filename or 'the output'} cannot be used: {why}")
        sys.exit(EXIT_STORAGE)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"confided {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel."""


@app.command()
@command
def init(here: Here) -> Output:
    """Make the data folder and its keys."""
    from confide_crypto.keys.identity import Identity, format_daemon_key
    from confide_daemon.access.registry import create

    here.config()
    found = here.paths
    is_new = create(found.data)
    key = format_daemon_key(Identity.load(found.data.identity).static_key)

    def tell() -> None:
        typer.echo(f"{'made' if is_new else 'already there'}: {found.data.root}")
        typer.echo(f"daemon key: {key}")
        if is_new:
            say("Back up identity.key and master.key: without master.key the data cannot be read.")
            say(
                "Next, for machines on the network: confided serve --listen 0.0.0.0:7733   (default: this machine alone)"
            )
            say("and in another terminal: confided invite laptop --url confide://THIS-HOST:7733")

    return Output({"data": str(found.data.root), "config": str(found.config), "key": key, "created": is_new}, tell)


@app.command()
def serve(
    config_file: Config = None,
    data: Data = None,
    listen: Annotated[str | None, typer.Option("--listen", help="host:port.", show_default="127.0.0.1:7733")] = None,
    on_demand: Annotated[
        bool,
        typer.Option("--on-demand", help="For this machine alone: a free port, and an end when nobody is connected."),
    ] = False,
    idle_exit: Annotated[
        int | None,
        typer.Option("--idle-exit", min=1, help="Seconds without a connection until an on-demand daemon ends."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every call (never its content).")] = False,
) -> None:
    """Serve until told to stop (SIGTERM, Ctrl-C)."""
    logging.getLogger("confide_daemon").setLevel(logging.DEBUG if verbose else logging.INFO)
    for foreign in ("mcp", "anyio", "asyncio", "websockets"):
        # Their records quote messages; ours say what an operator needs.
        logging.getLogger(foreign).setLevel(logging.CRITICAL)
    found = paths.find(config=config_file, data=data)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, handlers=[log_file.handler(found.data.log)])
    settings = config.load(found.config, must_exist=config_file is not None)
    lock = _take(found.data, on_demand=on_demand)
    if lock is None:
        return
    # Only now, since a second daemon on demand should be gone before it has loaded anything.
    from confide_daemon.server import process

    if not on_demand and sys.stderr.isatty():
        say(f"confided serves at {listen or settings.server.listen}; Ctrl-C stops it")
        say("Next, in another terminal: confided invite laptop --url confide://THIS-HOST:PORT")
    process.run(found.data, settings, listen=listen, idle_exit_s=idle_exit, on_demand=on_demand)
    lock.release()


def _take(folder: paths.DataFolder, *, on_demand: bool) -> Any:
    """The data folder's lock; None where another daemon that was started on demand serves already."""
    from confide_crypto.keys.files import make_private_dir
    from confide_daemon.datadir.instance import DaemonLock
    from confide_daemon.errors import AlreadyServedError, DataFolderError

    if on_demand:
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
        # The holder has an address, or is about to write it, or has just taken it away to end: then this one takes over.
        if folder.address.exists() or time.monotonic() >= deadline:
            return None
        time.sleep(0.05)


app.add_typer(invites.invite_app, name="invite")
app.command()(callers.revoke)
app.add_typer(callers.callers_app, name="callers")
app.command()(status.audit)
app.command()(status.reindex)
app.command()(status.status)
app.command()(status.doctor)
app.command()(running.stop)
app.command()(running.logs)
app.command()(bench.bench)
app.command()(jobs.custody)
app.command()(jobs.rekey)
app.add_typer(jobs.vault_app, name="vault")


@app.command(hidden=True)
def catalogue(toolsets: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Print the tools as a client sees them, as JSON; the proxy ships this."""
    from confide_daemon.server import tool_calls

    typer.echo(json.dumps(tool_calls.catalogue(toolsets or ["core"]), indent=1, sort_keys=True, ensure_ascii=False))
