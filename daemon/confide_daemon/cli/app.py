"""The command line of `confided`, for whoever runs the daemon: its commands and their lines, and how each of them ends.

Data goes to stdout and everything for the person to stderr, so commands can be piped; with `--json` the data is JSON. Each command is
imported when it is asked for. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final, NoReturn

import typer

from confide_crypto.errors import EXIT_CONFIG, ConfideError
from confide_daemon import __version__
from confide_daemon.cli.console import remark, say
from confide_daemon.entry_points import loaded
from confide_daemon.errors import StorageError
from confide_memory.commands import command_runner, group
from confide_memory.commands.entries import Command, Entry, Groups
from confide_memory.commands.spelling import OtherWords, Words
from confide_memory.errors import with_extra

EXIT_CODES = (
    "Exit codes: 0 ok, 1 other, 2 usage, 3 configuration, 4 keys and permissions, 5 unreachable or port in use, 6 denied or invite, "
    "7 bad input, 8 storage (disk full, not writable), 10 a backup that is not wholly proven."
)

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry("init", "service", "Make the data folder and its keys."),
        Entry(
            "serve", "service", "Serve until told to stop (SIGTERM, Ctrl-C).", "confided serve --listen 0.0.0.0:7733"
        ),
        Entry("status", "status", "Show whether the daemon runs, and what it holds."),
        Entry("top", "top", "Show the running daemon as it works.", "confided top --once"),
        Entry("stop", "running", "Stop the daemon of this data folder."),
        Entry("logs", "running", "Show the daemon's last log lines.", "confided logs -n 100 -f"),
    ),
    "Machines": (
        Entry(
            "invite",
            "invites:invite_app",
            "Print the one string with which a machine joins.",
            "confided invite laptop --url confide://myserver:7733\nconfided invite ls\nconfided invite rm laptop",
        ),
        Entry(
            "callers",
            "callers:callers_app",
            "List the machines that may connect; add, approve, rename and change them.",
            "confided callers show laptop",
        ),
        Entry("revoke", "callers", "Shut a machine out for good.", "confided revoke laptop"),
        Entry("audit", "status", "Show who came, and what was changed.", "confided audit --since 2d"),
    ),
    "Data": (
        Entry("doctor", "status", "Check everything, and put right what can be.", "confided doctor --fix"),
        Entry(
            "upgrade",
            "upgrade",
            "Bring the data folder to this version, or say what that would do.",
            "confided upgrade --check",
        ),
        Entry("reindex", "status", "Rebuild the index from the documents."),
        Entry("bench", "bench", "Measure how well and how fast the index answers its owner's own questions."),
        Entry("space", "spaces:space_app", "List the spaces; remove one that nobody needs any more."),
        Entry(
            "custody",
            "jobs",
            "Show or change who keeps the key of a space's database.",
            "confided custody home\nconfided custody home server",
        ),
        Entry(
            "rekey", "jobs", "Encrypt the database of a space under a new key of this server's.", "confided rekey home"
        ),
        Entry("key", "key:key_app", "Show the daemon's own key, or give it a new one."),
        Entry("vault", "jobs:vault_app", "Keep sealed records in a HashiCorp Vault or an OpenBao."),
        Entry("catalogue", "service", "Print the tools as a client sees them, as JSON.", is_hidden=True),
    ),
}
"""In the order in which people need them."""

WORDS: Final[Words] = {
    "serve": "start run",
    "init": "setup install",
    "stop": "quit shutdown",
    "logs": "log journal",
    "status": "info",
    "top": "stats metrics monitor",
    "doctor": "check fix repair",
    "verify": "check test prove",
    "invite": "add join enroll",
    "callers": "machines machine devices clients users",
    "gateway": "token http",
    "revoke": "ban remove kick rm",
    "rm": "remove delete del drop destroy purge",
    "prune": "remove rm delete del drop purge clean",
    "audit": "history events",
    "reindex": "index rebuild",
    "upgrade": "migrate update",
    "key": "keys",
    "space": "spaces",
    "ls": "list",
    "allow": "new",
    "grant": "allow",
}
"""A command, and what people try first for it; where a group has no such command, the words say nothing there."""

OPTION_WORDS: Final[Words] = {
    "yes": "force",
    "json": "format output",
    "listen": "host port bind address",
    "data": "dir folder",
    "days": "expires ttl",
    "dry-run": "simulate preview",
}
"""The same of options, without their hyphens."""

GROUP: Final = "confide.commands.daemon"
"""The entry points by which add-ons bring their commands: each a sequence of `Command`."""


def of_addons() -> tuple[list[Command], OtherWords]:
    """Return the commands of the add-ons that are installed, and no other words for them."""
    return [command for commands in loaded(GROUP) for command in commands], {}


app = group.app(
    "confided",
    "confide_daemon.cli",
    COMMANDS,
    (WORDS, OPTION_WORDS),
    of_addons,
    help="Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel.",
    epilog=f"confided help COMMAND tells more of one. {EXIT_CODES}",
)


def main() -> NoReturn:
    """Run the command line; every failure ends with its sentence, a hint and its exit code."""
    sys.exit(command_runner.run(app, "confided", remark, _known))


def _known(error: Exception) -> ConfideError | None:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("confide"):
        found = ConfideError(
            f"the daemon's part is not installed here (no module {error.name})", hint=with_extra("daemon")
        )
        found.exit_code = EXIT_CONFIG
        return found
    if isinstance(error, OSError):
        if error.filename is None:
            # Most often what stdout goes to. It is not tried again when the interpreter ends, which would add its own words and exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        why = error.strerror or type(error).__name__
        return StorageError(f"{error.filename or 'the output'} cannot be used: {why}")
    return None


def _version(wanted: bool) -> None:
    if wanted:
        say(f"confided {__version__}")
        raise typer.Exit


@app.callback()
def program_itself(
    _version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel."""
