"""The commands of `confide`, for people.

Every command talks to the daemon through the same tunnel and the same tools as an agent does. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from confide_crypto.errors import ConfideError, LinkError
from confide_proxy import VERSION
from confide_proxy import paths as places
from confide_proxy.cli import (
    device_confirm,
    device_removal,
    devices,
    history,
    join,
    keys,
    projects,
    recovery,
    scan,
    search,
    secrets,
    status,
    sync,
    transfer,
)
from confide_proxy.cli.console import Here, ProjectDir, TakesRevision, out, remark
from confide_proxy.config import load as load_config
from confide_proxy.errors import FolderError

app = typer.Typer(
    name="confide",
    help="Private, lasting memory for coding agents.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Run the command line; every failure ends with a sentence and its exit code."""
    try:
        app()
    except ConfideError as error:
        _fail(error)
    except TimeoutError:
        hint = "confide status shows whether it can be reached"
        _fail(LinkError("the daemon did not answer in time", hint=hint))
    except FileNotFoundError as error:
        # Most often the folder that the terminal stands in was deleted.
        where = str(error.filename or "the working directory")
        _fail(FolderError(where, "is not there", hint="cd to a folder that exists"))
    except OSError as error:
        _fail(FolderError(str(error.filename or "a file"), f"cannot be used: {error.strerror or type(error).__name__}"))
    sys.exit(0)


def _fail(error: ConfideError) -> NoReturn:
    remark(f"confide: {error.with_hint}")
    sys.exit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"confide {VERSION}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", help="The configuration file.", dir_okay=False)] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    paths = places.find(config)
    context.obj = Here(paths, load_config(paths.config))


def mcp(context: typer.Context, project: ProjectDir = Path()) -> None:
    """Serve MCP on stdin and stdout; an agent's client runs this."""
    from confide_proxy.mcp import stdio

    here: Here = context.obj
    sys.exit(stdio.run(["--project", str(project), "--config", str(here.paths.config)]))


# In the order in which people are shown them.
app.command()(sync.watch)
app.command()(transfer.export)
app.command()(history.history)
app.command()(history.deleted)
app.command(cls=TakesRevision)(history.restore)
app.command("import")(transfer.import_memories)
app.command()(history.projects)
app.command()(history.link)
app.command()(history.unlink)
app.command()(scan.scan)
app.command()(mcp)
app.command()(join.join)
app.command()(join.pin)
app.command()(search.search)
app.command(cls=TakesRevision)(search.read)
app.command(cls=search.TakesListItems)(search.store)
app.command()(status.status)
app.command()(sync.sync)
app.command()(sync.quickstart)
devices.device_app.command("confirm")(device_confirm.device_confirm)
devices.device_app.command("rm")(device_removal.device_rm)
app.add_typer(devices.device_app, name="device")
app.add_typer(keys.key_app, name="key")
app.add_typer(projects.project_app, name="project")
app.add_typer(status.queue_app, name="queue")
app.add_typer(recovery.recovery_app, name="recovery")
app.add_typer(secrets.secrets_app, name="secrets")
app.add_typer(history.transcript_app, name="transcripts")
app.add_typer(join.setup_app, name="setup")
