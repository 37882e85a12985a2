"""The commands of `confide`, for people: their names and lines, and how each of them ends.

Every command talks to the daemon through the same tunnel and the same tools as an agent does. Each is imported when it is asked for, since
people wait for it: a new one is a function in the module of its family, and an entry here. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from confide_crypto.errors import ConfideError, LinkError
from confide_memory.commands.complaint import complaint
from confide_memory.commands.entries import Command, Entry, Groups
from confide_memory.commands.group import program
from confide_memory.commands.spelling import OtherWords
from confide_proxy import VERSION
from confide_proxy import paths as places
from confide_proxy.cli.console import RECODE, Here, remark, say
from confide_proxy.cli.doing import doing
from confide_proxy.config import load as load_config
from confide_proxy.errors import ConfigError, FolderError, InputError

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry(
            "quickstart",
            "sync:quickstart",
            "Set up this machine alone, and index the project in this folder.",
            ("confide quickstart",),
        ),
        Entry("join", "join:join", "Use the memory on a server: join it with an invite.", ("confide join",)),
        Entry(
            "setup",
            "setup:setup_app",
            "Tell your agent's program how to start Confide.",
            ("confide setup claude-code",),
        ),
        Entry(
            "status", "status:status", "Show whether the daemon can be reached, and what it holds.", ("confide status",)
        ),
        Entry(
            "doctor", "doctor:doctor", "Check this machine and your agent's programs on it.", ("confide doctor --fix",)
        ),
    ),
    "Memory": (
        Entry(
            "search",
            "search:search",
            "Find what was stored, by meaning and by words.",
            ('confide search "why postgres"',),
        ),
        Entry(
            "store",
            "notes:store",
            "Keep a text: in today's log, in a file that you name, or as a note.",
            (
                'confide store "we chose postgres for its row locks"',
                'confide store "Use tabs." --title "Code style" --tag style',
                "git log -1 --format=%B | confide store - --path memory/releases.md",
            ),
        ),
        Entry(
            "read", "search:read", "Print a file of the memory.", ("confide read memory/deploy.md --from 10 --lines 5",)
        ),
        Entry("ls", "listing:ls", "List the files and notes, last changed first.", ("confide ls --tag style",)),
        Entry("log", "listing:log", "Show what changed lately, and on which machine.", ("confide log --since 2d",)),
        Entry(
            "edit",
            "edit:edit",
            "Open a file or a note in your editor, and send it.",
            ("confide edit memory/deploy.md",),
        ),
        Entry("rm", "edit:rm", "Delete a file or a note on every machine.", ("confide rm memory/old.md",)),
        Entry("projects", "history:projects", "List the projects of the memory.", ("confide projects",)),
        Entry("link", "history:link", "Search another project together with this one.", ("confide link backend",)),
        Entry("unlink", "history:unlink", "Search another project with this one no more.", ("confide unlink backend",)),
    ),
    "Files and history": (
        Entry("sync", "sync:sync", "Send what was changed here, fetch what was changed elsewhere.", ("confide sync",)),
        Entry(
            "watch",
            "sync:watch",
            "Keep folders the same as the daemon's memory while no agent runs.",
            ("confide watch ~/app ~/site",),
        ),
        Entry(
            "history",
            "history:history",
            "List the revisions of a file, or what one changed.",
            ("confide history memory/deploy.md --diff",),
        ),
        Entry(
            "deleted", "history:deleted", "List the files that were deleted and can be restored.", ("confide deleted",)
        ),
        Entry(
            "restore",
            "restore:restore",
            "Bring back deleted files, or an older text of one.",
            ("confide restore memory/deploy.md --revision 3", "confide restore --since 1h"),
        ),
        Entry(
            "forget",
            "forget:forget",
            "Take files or a whole project off the daemon for good.",
            ("confide forget Private", "confide forget --project vault"),
        ),
        Entry(
            "trust",
            "trust:trust",
            "Trust what a file or a note says now, so that agents may be shown it unasked.",
            ("confide trust memory/notes/deploy.md",),
        ),
        Entry(
            "project",
            "projects:project_app",
            "Choose which folder here has which project's name.",
            ("confide project ls",),
            inner={
                "ls": ("confide project ls",),
                "allow": ("confide project allow",),
                "forget": ("confide project forget ~/old-app",),
            },
        ),
        Entry(
            "transcripts",
            "history:transcript_app",
            "List or forget the transcripts of your sessions.",
            ("confide transcripts list",),
            inner={
                "list": ("confide transcripts list",),
                "forget": ("confide transcripts forget 0199c2f4",),
            },
        ),
    ),
    "Machines and keys": (
        Entry(
            "device",
            "device:device_app",
            "Manage the machines that can open what is sealed.",
            ("confide device ls",),
            inner={
                "ls": ("confide device ls",),
                "invite": ("confide device invite phone",),
                "approve": ("confide device approve phone",),
                "confirm": ("confide device confirm",),
                "rm": ("confide device rm phone",),
            },
        ),
        Entry(
            "key",
            "keys:key_app",
            "Show, move, lock or change the key of this machine.",
            ("confide key show",),
            inner={
                "show": ("confide key show",),
                "move": ("confide key move keyring",),
                "unlock": ("confide key unlock",),
                "lock": ("confide key lock",),
                "passphrase": ("confide key passphrase",),
                "import": ("confide key import ~/.ssh/id_ed25519",),
                "rotate": ("confide key rotate",),
            },
        ),
        Entry(
            "recovery",
            "recovery:recovery_app",
            "Make a recovery code for the day when all machines are lost.",
            ("confide recovery new",),
            inner={"new": ("confide recovery new",), "use": ("confide recovery use",)},
        ),
        Entry(
            "pin",
            "join:pin",
            "Join a daemon by hand, by its address and its key.",
            ("confide pin confide://127.0.0.1:7733 KEY",),
        ),
    ),
    "Secrets": (
        Entry("scan", "scan:scan", "Look for passwords and keys in what would be sent.", ("confide scan",)),
        Entry(
            "secrets",
            "secrets:secrets_app",
            "List or show what is sealed, or seal what is stored in clear.",
            ("confide secrets ls",),
            inner={
                "ls": ("confide secrets ls",),
                "show": ("confide secrets show '(sealed:github-token:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f)'",),
                "rescan": ("confide secrets rescan --dry-run",),
            },
        ),
    ),
    "Service": (
        Entry("start", "local_daemon:start", "Start the daemon of this machine.", ("confide start",)),
        Entry("stop", "local_daemon:stop", "Stop the daemon of this machine.", ("confide stop",)),
        Entry(
            "queue",
            "queue:queue_app",
            "Show what waits on this machine for the daemon.",
            ("confide queue",),
            inner={"retry": ("confide queue retry",), "drop": ("confide queue drop 1a2b3c4d",)},
        ),
        Entry(
            "mcp",
            "mcp:mcp",
            "Serve an agent over MCP; the agent's program runs this.",
            ("confide mcp --project ~/app",),
        ),
        Entry(
            "hook", "hook:hook", "Answer one event of your agent's program; that program runs this.", ("confide hook",)
        ),
    ),
}
"""In the order in which people need them."""

OTHER_WORDS: Final[OtherWords] = {
    "add": "store",
    "remember": "store",
    "save": "store",
    "put": "store",
    "write": "store",
    "find": "search",
    "grep": "search",
    "query": "search",
    "ask": "search",
    "recall": "search",
    "cat": "read",
    "show": "read",
    "get": "read",
    "view": "read",
    "login": "join",
    "connect": "join",
    "enroll": "join",
    "init": "quickstart",
    "up": "quickstart",
    "install": "setup",
    "configure": "setup",
    "config": "setup",
    "info": "status",
    "check": "doctor",
    "diagnose": "doctor",
    "quit": "stop",
    "shutdown": "stop",
    "revisions": "history",
    "undelete": "restore",
    "revert": "restore",
    "undo": "restore",
    "trash": "deleted",
    "push": "sync",
    "pull": "sync",
    "reindex": "sync",
    "devices": "device",
    "machines": "device",
    "machine": "device",
    "keys": "key",
    "passphrase": "key",
    "secret": "secrets",
    "sessions": "transcripts",
    "pending": "queue",
    # In the groups:
    "list": "ls",
    "files": "ls",
    "notes": "ls",
    "note": "store",
    "tags": "ls",
    "changes": "log",
    "diff": "history",
    "remove": "rm",
    "delete": "rm",
    "del": "rm",
    "create": "new",
    "revoke": "rm",
    "retry-all": "retry",
}
"""What people try first, and the command that does it here; where a group has no such command, the word says nothing there."""

OPTION_WORDS: Final[OtherWords] = {
    "max": "limit",
    "count": "limit",
    "number": "limit",
    "results": "limit",
    "top": "limit",
    "force": "yes",
    "all": "all-projects",
    "after": "since",
    "from": "since",
    "file": "path",
    "name": "title",
    "expires": "days",
    "ttl": "days",
    "format": "json",
    "output": "json",
    "simulate": "dry-run",
    "preview": "dry-run",
}
"""The same of options, without their hyphens."""


def of_addons() -> tuple[list[Command], OtherWords]:
    """The commands that add-ons bring, and what people type for them."""
    from confide_proxy.addons import installed  # a command of the core needs none of them

    found = installed()
    words = {word: name for addon in found for word, name in addon.other_words.items()}
    return [command for addon in found for command in addon.commands], words


app = typer.Typer(
    name="confide",
    cls=program("confide_proxy.cli", COMMANDS, OTHER_WORDS, OPTION_WORDS, of_addons),
    help="Private, lasting memory for coding agents.",
    epilog="confide help COMMAND tells more of one; docs/commands.md has the exit codes.",
    # Only where a shell asks what may follow: it takes typer's classes for shells, and costs every start a little.
    add_completion="_CONFIDE_COMPLETE" in os.environ,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(began: float | None = None) -> NoReturn:
    """Run the command line; every failure ends with a sentence and its exit code. `began`: when the process did, as `time.monotonic`."""
    doing.waits_from(began)
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        message, hint = complaint(error, "confide")
        remark(f"confide: {message}\nhint: {hint}")
        sys.exit(error.exit_code)
    except typer.Abort as error:  # a question that nobody answers
        if isinstance(error.__cause__ or error.__context__, EOFError):
            remark("confide: the input ended before the answer")
            sys.exit(1)
        sys.exit(130)
    except ConfideError as error:
        _fail(error)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            where = f"the output cannot be written in this terminal's encoding, {error.encoding}"
            _fail(InputError(where, hint="use a UTF-8 locale: LC_ALL=C.UTF-8"))
        # An argument of a command that passes it on unlooked at: a folder's name, say.
        at = len(error.object[: error.start].encode("utf-8", "surrogateescape"))
        _fail(InputError(f"what was given is not UTF-8 text (byte {at})", hint=RECODE))
    except TimeoutError:
        hint = "confide status shows whether it can be reached"
        _fail(LinkError("the daemon did not answer in time", hint=hint))
    except FileNotFoundError as error:
        # Most often the folder that the terminal stands in was deleted.
        where = str(error.filename or "the working directory")
        _fail(FolderError(where, "is not there", hint="cd to a folder that exists"))
    except OSError as error:
        _fail(FolderError(str(error.filename or "a file"), f"cannot be used: {error.strerror or type(error).__name__}"))
    finally:
        doing.end()
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: ConfideError) -> NoReturn:
    remark(f"confide: {error.with_hint}")
    sys.exit(error.exit_code)


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
    context.obj = Here(paths, load_config(paths.config))
