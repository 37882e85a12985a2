"""The commands of `confide`, for people: their names and lines, and how each of them ends.

Every command talks to the daemon through the same tunnel and the same tools as an agent does. Each is imported when it is asked for, since
people wait for it: a new one is a function in the module of its family, and an entry here. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from confide_crypto.errors import ConfideError, LinkError
from confide_memory.commands import command_runner, group
from confide_memory.commands.doing import doing
from confide_memory.commands.entries import Command, Entry, Groups
from confide_memory.commands.spelling import OtherWords, Words
from confide_proxy import VERSION
from confide_proxy import paths as places
from confide_proxy.cli.console import RECODE, CommandContext, remark, say
from confide_proxy.config import load as load_config
from confide_proxy.errors import ConfigError, FolderError, InputError

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry("quickstart", "sync", "Set up this machine alone, and index the project in this folder."),
        Entry("join", "join", "Use the memory on a server: join it with an invite."),
        Entry(
            "setup", "setup:setup_app", "Tell your agent's program how to start Confide.", "confide setup claude-code"
        ),
        Entry("status", "status", "Show whether the daemon can be reached, and what it holds."),
        Entry("doctor", "doctor", "Check this machine and your agent's programs on it.", "confide doctor --fix"),
    ),
    "Memory": (
        Entry("search", "search", "Find what was stored, by meaning and by words.", 'confide search "why postgres"'),
        Entry(
            "store",
            "notes",
            "Keep a text: in today's log, in a file that you name, or as a note.",
            'confide store "we chose postgres for its row locks"\n'
            'confide store "Use tabs." --title "Code style" --tag style\n'
            "git log -1 --format=%B | confide store - --path memory/releases.md",
        ),
        Entry("read", "search", "Print a file of the memory.", "confide read memory/deploy.md --from 10 --lines 5"),
        Entry("ls", "listing", "List the files and notes, last changed first.", "confide ls --tag style"),
        Entry("log", "listing", "Show what changed lately, and on which machine.", "confide log --since 2d"),
        Entry("edit", "edit", "Open a file or a note in your editor, and send it.", "confide edit memory/deploy.md"),
        Entry("rm", "edit", "Delete a file or a note on every machine.", "confide rm memory/old.md"),
        Entry("projects", "history", "List the projects of the memory."),
        Entry("link", "history", "Search another project together with this one.", "confide link backend"),
        Entry("unlink", "history", "Search another project with this one no more.", "confide unlink backend"),
    ),
    "Files and history": (
        Entry("sync", "sync", "Send what was changed here, fetch what was changed elsewhere."),
        Entry(
            "watch",
            "watch",
            "Keep folders the same as the daemon's memory while no agent runs.",
            "confide watch ~/app ~/site",
        ),
        Entry(
            "history",
            "history",
            "List the revisions of a file, or what one changed.",
            "confide history memory/deploy.md --diff",
        ),
        Entry("deleted", "history", "List the files that were deleted and can be restored."),
        Entry(
            "restore",
            "restore",
            "Bring back deleted files, or an older text of one.",
            "confide restore memory/deploy.md --revision 3\nconfide restore --since 1h",
        ),
        Entry(
            "forget",
            "forget",
            "Take files or a whole project off the daemon for good.",
            "confide forget Private\nconfide forget --project vault",
        ),
        Entry(
            "trust",
            "trust",
            "Trust what a file or a note says now, so that agents may be shown it unasked.",
            "confide trust memory/notes/deploy.md",
        ),
        Entry("project", "projects:project_app", "Choose which folder here has which project's name."),
        Entry("transcripts", "history:transcript_app", "List or forget the transcripts of your sessions."),
    ),
    "Machines and keys": (
        Entry("device", "device:device_app", "Manage the machines that can open what is sealed."),
        Entry("key", "keys:key_app", "Show, move, lock or change the key of this machine."),
        Entry("recovery", "recovery:recovery_app", "Make a recovery code for the day when all machines are lost."),
        Entry(
            "pin",
            "join",
            "Join a daemon by hand, by its address and its key.",
            "confide pin confide://127.0.0.1:7733 KEY",
        ),
    ),
    "Secrets": (
        Entry("scan", "scan", "Look for passwords and keys in what would be sent."),
        Entry("secrets", "secrets:secrets_app", "List or show what is sealed, or seal what is stored in clear."),
    ),
    "Service": (
        Entry("start", "local_daemon", "Start the daemon of this machine."),
        Entry("stop", "local_daemon", "Stop the daemon of this machine."),
        Entry("queue", "queue:queue_app", "Show what waits on this machine for the daemon."),
        Entry("mcp", "mcp", "Serve an agent over MCP; the agent's program runs this.", "confide mcp --project ~/app"),
        Entry("hook", "hook", "Answer one event of your agent's program; that program runs this."),
    ),
}
"""In the order in which people need them."""

WORDS: Final[Words] = {
    "store": "add remember save put write note",
    "search": "find grep query ask recall",
    "read": "cat show get view",
    "join": "login connect enroll",
    "quickstart": "init up",
    "setup": "install configure config",
    "status": "info",
    "doctor": "check diagnose",
    "stop": "quit shutdown",
    "history": "revisions diff",
    "restore": "undelete revert undo",
    "deleted": "trash",
    "sync": "push pull reindex",
    "device": "devices machines machine",
    "key": "keys passphrase",
    "secrets": "secret",
    "transcripts": "sessions",
    "queue": "pending",
    "ls": "list files notes tags",
    "log": "changes",
    "rm": "remove delete del revoke",
    "new": "create",
    "retry": "retry-all",
}
"""A command, and what people try first for it; where a group has no such command, the words say nothing there."""

OPTION_WORDS: Final[Words] = {
    "limit": "max count number results top",
    "yes": "force",
    "all-projects": "all",
    "since": "after from",
    "path": "file",
    "title": "name",
    "days": "expires ttl",
    "json": "format output",
    "dry-run": "simulate preview",
}
"""The same of options, without their hyphens."""


def of_addons() -> tuple[list[Command], OtherWords]:
    """The commands that add-ons bring, and what people type for them."""
    from confide_proxy.addons import installed  # a command of the core needs none of them

    found = installed()
    words = {word: name for addon in found for word, name in addon.other_words.items()}
    return [command for addon in found for command in addon.commands], words


app = group.app(
    "confide",
    "confide_proxy.cli",
    COMMANDS,
    (WORDS, OPTION_WORDS),
    of_addons,
    help="Private, lasting memory for coding agents.",
    epilog="confide help COMMAND tells more of one; docs/commands.md has the exit codes.",
)


def main(began: float | None = None) -> NoReturn:
    """Run the command line; every failure ends with a sentence and its exit code. `began`: when the process did, as `time.monotonic`."""
    doing.waits_from(began)
    try:
        code = command_runner.run(app, "confide", remark, _known)
    finally:
        doing.end()
    sys.exit(code)


def _known(error: Exception) -> ConfideError | None:
    match error:
        case UnicodeEncodeError() if error.encoding != "utf-8":
            where = f"the output cannot be written in this terminal's encoding, {error.encoding}"
            return InputError(where, hint="use a UTF-8 locale: LC_ALL=C.UTF-8")
        case UnicodeEncodeError():
            # An argument of a command that passes it on unlooked at: a folder's name, say.
            at = len(error.object[: error.start].encode("utf-8", "surrogateescape"))
            return InputError(f"what was given is not UTF-8 text (byte {at})", hint=RECODE)
        case TimeoutError():
            return LinkError("the daemon did not answer in time", hint="confide status shows whether it can be reached")
        case FileNotFoundError():
            # Most often the folder that the terminal stands in was deleted.
            where = str(error.filename or "the working directory")
            return FolderError(where, "is not there", hint="cd to a folder that exists")
        case OSError():
            why = error.strerror or type(error).__name__
            return FolderError(str(error.filename or "a file"), f"cannot be used: {why}")
    return None


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"confide {VERSION}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The configuration file.", dir_okay=False)
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    paths = places.find(config)
    if config is not None and not config.exists():
        raise ConfigError(
            config, "is not there", hint="without --config the usual one is read, and there need not be one"
        )
    context.obj = CommandContext(paths, load_config(paths.config))
