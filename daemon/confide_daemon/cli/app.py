"""The command line of `confided`, for whoever runs the daemon: its commands and their lines, and how each of them ends.

Data goes to stdout and everything for the person to stderr, so commands can be piped; with `--json` the data is JSON. Each command is
imported when it is asked for. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final, NoReturn

import typer

from confide_crypto.errors import EXIT_CONFIG, EXIT_STORAGE, ConfideError
from confide_daemon import __version__
from confide_daemon.cli.console import say
from confide_daemon.entries import loaded
from confide_memory.commands.complaint import complaint
from confide_memory.commands.entries import Command, Entry, Groups
from confide_memory.commands.group import program
from confide_memory.commands.spelling import OtherWords
from confide_memory.errors import with_extra

EXIT_CODES = (
    "Exit codes: 0 ok, 1 other, 2 usage, 3 configuration, 4 keys and permissions, 5 unreachable or port in use, 6 denied or invite, "
    "7 bad input, 8 storage (disk full, not writable), 10 a backup that is not wholly proven."
)

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry("init", "service:init", "Make the data folder and its keys.", ("confided init",)),
        Entry(
            "serve",
            "service:serve",
            "Serve until told to stop (SIGTERM, Ctrl-C).",
            ("confided serve --listen 0.0.0.0:7733",),
        ),
        Entry("status", "status:status", "Show whether the daemon runs, and what it holds.", ("confided status",)),
        Entry("top", "top:top", "Show the running daemon as it works.", ("confided top", "confided top --once")),
        Entry("stop", "running:stop", "Stop the daemon of this data folder.", ("confided stop",)),
        Entry("logs", "running:logs", "Show the daemon's last log lines.", ("confided logs -n 100 -f",)),
    ),
    "Machines": (
        Entry(
            "invite",
            "invites:invite_app",
            "Print the one string with which a machine joins.",
            ("confided invite laptop --url confide://myserver:7733", "confided invite ls", "confided invite rm laptop"),
            inner={
                "make": ("confided invite laptop --url confide://myserver:7733", "confided invite ls"),
                "ls": ("confided invite ls",),
                "rm": ("confided invite rm laptop",),
            },
        ),
        Entry(
            "callers",
            "callers:callers_app",
            "List the machines that may connect; add, approve, rename and change them.",
            ("confided callers", "confided callers show laptop"),
            inner={
                "add": ("confided callers add 'x25519 … laptop'",),
                "show": ("confided callers show laptop",),
                "approve": ("confided callers approve laptop",),
                "rename": ("confided callers rename laptop desk",),
                "grant": ("confided callers grant laptop --projects app,web",),
            },
        ),
        Entry("revoke", "callers:revoke", "Shut a machine out for good.", ("confided revoke laptop",)),
        Entry("audit", "status:audit", "Show who came, and what was changed.", ("confided audit --since 2d",)),
    ),
    "Data": (
        Entry("doctor", "status:doctor", "Check everything, and put right what can be.", ("confided doctor --fix",)),
        Entry(
            "upgrade",
            "upgrade:upgrade",
            "Bring the data folder to this version, or say what that would do.",
            ("confided upgrade --check",),
        ),
        Entry("reindex", "status:reindex", "Rebuild the index from the documents.", ("confided reindex",)),
        Entry(
            "bench",
            "bench:bench",
            "Measure how well and how fast the index answers its owner's own questions.",
            ("confided bench",),
        ),
        Entry(
            "space",
            "spaces:space_app",
            "List the spaces; remove one that nobody needs any more.",
            ("confided space ls",),
            inner={"ls": ("confided space ls",), "rm": ("confided space rm old",)},
        ),
        Entry(
            "custody",
            "jobs:custody",
            "Show or change who keeps the key of a space's database.",
            ("confided custody home", "confided custody home server"),
        ),
        Entry(
            "rekey",
            "jobs:rekey",
            "Encrypt the database of a space under a new key of this server's.",
            ("confided rekey home",),
        ),
        Entry(
            "key",
            "key:key_app",
            "Show the daemon's own key, or give it a new one.",
            ("confided key show",),
            inner={
                "show": ("confided key show",),
                "rotate": ("confided key rotate --keep 30d",),
                "retire": ("confided key retire",),
            },
        ),
        Entry(
            "vault",
            "jobs:vault_app",
            "Keep sealed records in a HashiCorp Vault or an OpenBao.",
            ("confided vault move",),
            inner={"move": ("confided vault move --back",)},
        ),
        Entry("catalogue", "service:catalogue", "Print the tools as a client sees them, as JSON.", is_hidden=True),
    ),
}
"""In the order in which people need them."""

OTHER_WORDS: Final[OtherWords] = {
    "start": "serve",
    "run": "serve",
    "setup": "init",
    "install": "init",
    "quit": "stop",
    "shutdown": "stop",
    "log": "logs",
    "journal": "logs",
    "info": "status",
    "stats": "top",
    "metrics": "top",
    "monitor": "top",
    "check": ("doctor", "verify"),
    "fix": "doctor",
    "repair": "doctor",
    "add": "invite",
    "join": "invite",
    "enroll": "invite",
    "machines": "callers",
    "machine": "callers",
    "devices": "callers",
    "clients": "callers",
    "users": "callers",
    "token": "gateway",
    "http": "gateway",
    "ban": "revoke",
    "remove": ("revoke", "rm", "prune"),
    "kick": "revoke",
    "history": "audit",
    "events": "audit",
    "index": "reindex",
    "rebuild": "reindex",
    "migrate": "upgrade",
    "update": "upgrade",
    "keys": "key",
    "spaces": "space",
    # In the groups:
    "list": "ls",
    "rm": ("prune", "revoke"),
    "delete": ("rm", "prune"),
    "del": ("rm", "prune"),
    "drop": ("rm", "prune"),
    "destroy": "rm",
    "purge": ("rm", "prune"),
    "clean": "prune",
    "test": "verify",
    "prove": "verify",
    "new": "allow",
    "allow": "grant",
}
"""What people try first, and the command that does it here; where a group has no such command, the word says nothing there."""

OPTION_WORDS: Final[OtherWords] = {
    "force": "yes",
    "format": "json",
    "output": "json",
    "host": "listen",
    "port": "listen",
    "bind": "listen",
    "address": "listen",
    "dir": "data",
    "folder": "data",
    "expires": "days",
    "ttl": "days",
    "simulate": "dry-run",
    "preview": "dry-run",
}
"""The same of options, without their hyphens."""

GROUP: Final = "confide.commands.daemon"
"""The entry points by which add-ons bring their commands: each a sequence of `Command`."""


def of_addons() -> tuple[list[Command], OtherWords]:
    """Return the commands of the add-ons that are installed, and no other words for them."""
    return [command for commands in loaded(GROUP) for command in commands], {}


app = typer.Typer(
    name="confided",
    cls=program("confide_daemon.cli", COMMANDS, OTHER_WORDS, OPTION_WORDS, of_addons),
    help="Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel.",
    epilog=f"confided help COMMAND tells more of one. {EXIT_CODES}",
    add_completion="_CONFIDED_COMPLETE" in os.environ,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> NoReturn:
    """Run the command line; every failure ends with its sentence, a hint and its exit code."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        message, hint = complaint(error, "confided")
        say(f"confided: {message}\nhint: {hint}")
        sys.exit(error.exit_code)
    except typer.Abort as error:  # a question that nobody answers
        if isinstance(error.__cause__ or error.__context__, EOFError):
            say("confided: the input ended before the answer\nhint: answer it, or say --yes where the command has it")
            sys.exit(1)
        sys.exit(130)
    except ConfideError as error:
        say(f"confided: {error.with_hint}")
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0].startswith("confide"):
            raise  # a fault of ours, and no missing extra
        say(f"confided: the daemon's part is not installed here (no module {error.name})")
        say(f"hint: {with_extra('daemon')}")
        sys.exit(EXIT_CONFIG)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Nobody reads any more, and there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        if error.filename is None:
            # Most often what stdout goes to. It is not tried again when the interpreter ends, which would add its own words and exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"confided: {error.filename or 'the output'} cannot be used: {why}")
        sys.exit(EXIT_STORAGE)
    sys.exit(code if isinstance(code, int) else 0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"confided {__version__}")
        raise typer.Exit


@app.callback()
def program_itself(
    _version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Confide's daemon: it keeps the memory of your machines, searchable, behind an encrypted channel."""
