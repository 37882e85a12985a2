"""The command line of `confided`, for operators: all commands with their summaries, and the exit
code of each failure.

Data is printed on stdout and all messages on stderr, so commands can be piped; with `--json` the
data is JSON. Each command's module is imported only when the command is used. Exit codes:
docs/commands.md.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final, NoReturn

import typer

from confide_crypto.errors import EXIT_CONFIG, ConfideError
from confide_daemon import __version__
from confide_daemon.cli.console import remark, say
from confide_daemon.cli.renamed_commands import MOVED
from confide_daemon.entry_points import load_group
from confide_daemon.errors import StorageError
from confide_memory.commands import command_runner, group
from confide_memory.commands.entries import Command, Entry, Groups
from confide_memory.commands.spelling import OtherWords, Words
from confide_memory.errors import with_extra

EXIT_CODES = (
    "Exit codes: 0 ok, 1 other, 2 usage, 3 configuration, 4 keys and permissions, 5 unreachable or port in use, 6 denied or invite, "
    "7 bad input, 8 storage (disk full, not writable), 10 a backup that is not fully verified."
)

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry("init", "service", "Make the data folder and its keys."),
        Entry("serve", "service", "Run the daemon until SIGTERM or Ctrl-C.", "confided serve --listen 0.0.0.0:7733"),
        Entry(
            "status",
            "status",
            "Show whether the daemon runs and what it holds, watch it work, or read its log.",
            "confided status --watch\nconfided status --log -n 100 -f",
        ),
        Entry("stop", "running", "Stop the daemon of this data folder."),
    ),
    "Devices": (
        Entry(
            "invite",
            "invites",
            "Invite a device: print the string that it joins with, or list the open invites.",
            "confided invite laptop --url confide://myserver:7733\nconfided invite\nconfided invite --cancel laptop",
        ),
        Entry(
            "device",
            "",
            "List, add, approve, change and remove the devices that may connect.",
            "confided device ls laptop\nconfided device rm laptop",
            commands=(
                Entry(
                    "ls",
                    "callers:devices",
                    "List the devices that may connect, or show everything about one.",
                    "confided device ls\nconfided device ls laptop",
                ),
                Entry(
                    "add",
                    "callers:add",
                    "Add a device by its public key line, without an invite.",
                    "confided device add 'x25519 … laptop'",
                ),
                Entry(
                    "approve",
                    "callers:approve",
                    "Approve a device that has joined, by the six words that it shows.",
                    "confided device approve laptop",
                ),
                Entry(
                    "edit",
                    "callers:edit",
                    "Change the name of a device, or what it may do.",
                    "confided device edit laptop desk\nconfided device edit laptop --projects app,web",
                ),
                Entry("rm", "callers:remove", "Remove a device for good.", "confided device rm laptop"),
            ),
            default="ls",
        ),
        Entry("audit", "status", "Show who connected, and what was changed.", "confided audit --since 2d"),
    ),
    "Data": (
        Entry("doctor", "status", "Check everything, and repair what can be repaired.", "confided doctor --fix"),
        Entry(
            "upgrade",
            "upgrade",
            "Upgrade the data folder to this version, or show what that would do.",
            "confided upgrade --check",
        ),
        Entry(
            "space",
            "",
            "List, index, measure and remove spaces, and manage their keys.",
            "confided space ls\nconfided space reindex --space home",
            commands=(
                Entry("ls", "spaces:list_spaces", "List the spaces: devices, size, and who keeps the database key."),
                Entry("rm", "spaces:remove", "Delete a space and all that it holds.", "confided space rm old"),
                Entry(
                    "reindex", "status", "Rebuild the index from the documents.", "confided space reindex --space home"
                ),
                Entry("bench", "bench", "Measure the quality and the speed of search with your own questions."),
                Entry(
                    "key",
                    "jobs:space_key",
                    "Show or change who keeps the key of a space's database, or make a new one.",
                    "confided space key home\nconfided space key home server\nconfided space key home --new",
                ),
            ),
            default="ls",
        ),
        Entry(
            "key",
            "key",
            "Show the daemon's own key, or give it a new one.",
            "confided key\nconfided key --new --keep 30d\nconfided key --end-old",
        ),
        Entry("vault", "jobs:vault_app", "Keep sealed records in HashiCorp Vault or OpenBao."),
        Entry("catalogue", "service", "Print the tools as a client sees them, as JSON.", is_hidden=True),
    ),
}
"""The commands, in the order in which users need them."""

WORDS: Final[Words] = {
    "serve": "start run",
    "init": "setup install",
    "stop": "quit shutdown",
    "status": "info stats metrics monitor log journal",
    "doctor": "check fix repair",
    "verify": "check test prove",
    "invite": "add join enroll",
    "http": "token oauth",
    "rm": "remove delete del drop destroy purge ban kick",
    "device": "machines machine devices clients users caller remove ban kick rm",
    "audit": "history events",
    "space": "spaces index rebuild",
    "upgrade": "migrate update",
    "key": "keys",
    "ls": "list",
    "allow": "new",
    "edit": "rename grant",
}
"""Words that users try first for a command; ignored in a group that has no such command."""

OPTION_WORDS: Final[Words] = {
    "yes": "force",
    "json": "format output",
    "listen": "host port bind address",
    "data": "dir folder",
    "days": "expires ttl",
    "dry-run": "simulate preview",
}
"""The same for options, without their hyphens."""

GROUP: Final = "confide.commands.daemon"
"""The entry point group through which add-ons register commands: each a sequence of `Command`."""


def addon_commands() -> tuple[list[Command], OtherWords]:
    """Return the commands that installed add-ons define, together with an empty table of further
    words for them.
    """
    return [command for commands in load_group(GROUP) for command in commands], {}


app = group.app(
    "confided",
    "confide_daemon.cli",
    COMMANDS,
    (WORDS, OPTION_WORDS),
    addon_commands,
    help="Confide's daemon: it keeps the memory of your devices, searchable, behind an encrypted channel.",
    epilog=f"Run `confided help COMMAND` for details. {EXIT_CODES}",
    moved=MOVED,
)


def main() -> NoReturn:
    """Run the command line. Every failure prints its message and a hint, and ends the process with
    its exit code.
    """
    sys.exit(command_runner.run(app, "confided", remark, _as_known_error))


def _as_known_error(error: Exception) -> ConfideError | None:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("confide"):
        found = ConfideError(
            f"the daemon's part is not installed here (no module {error.name})", hint=with_extra("daemon")
        )
        found.exit_code = EXIT_CONFIG
        return found
    if isinstance(error, OSError):
        if error.filename is None:
            # Usually stdout's target. Keep the interpreter from flushing again at its end, with its
            # own message and exit code.
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
    """Confide's daemon: it keeps the memory of your devices, searchable, behind an encrypted
    channel.
    """
