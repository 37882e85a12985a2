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
from confide_memory.commands.group import Entry, Groups, program
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
        Entry(
            "open",
            "confide_panel.cli:open_page",
            "Open a file or a note in your browser.",
            ("confide open memory/deploy.md",),
        ),
        Entry("rm", "edit:rm", "Delete a file or a note on every machine.", ("confide rm memory/old.md",)),
        Entry(
            "learned",
            "confide_learn.cli.learned:learned_app",
            "Look at what was learned from your sessions, and keep it or not.",
            ("confide learned",),
            inner={
                "accept": ("confide learned accept 3f9a2c1b",),
                "edit": ("confide learned edit 3f9a2c1b",),
                "refuse": ("confide learned refuse 3f9a2c1b",),
                "undo": ("confide learned undo 3f9a2c1b",),
            },
        ),
        Entry("learn", "confide_learn.cli.learn:learn", "Learn from your sessions now.", ("confide learn --status",)),
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
            "import",
            "confide_transfer.cli.transfer:import_memories",
            "Take over notes from other programs, after a look at them.",
            ("confide import ~/notes",),
        ),
        Entry(
            "export",
            "confide_transfer.cli.transfer:export",
            "Write the whole memory into a folder, as markdown files.",
            ("confide export ~/confide-export",),
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
            "move",
            "confide_transfer.cli.move:move",
            "Move this machine's memory to a server, or back, with all its history.",
            ("confide move", "confide move --to local"),
        ),
        Entry(
            "pin",
            "join:pin",
            "Join a daemon by hand, by its address and its key.",
            ("confide pin confide://127.0.0.1:7733 KEY",),
        ),
    ),
    "Tasks for the night": (
        Entry(
            "task",
            "confide_night.cli.tasks:task_app",
            "Queue work that a runner does while nobody watches.",
            ("confide task ls",),
            inner={
                "add": (
                    'confide task add "Review what was merged today." --repo https://git.example.org/shop.git',
                    'confide task add "Update the changelog." --recipe fix --schedule "30 2 * * 1-5" --max-usd 1',
                ),
                "ls": ("confide task ls --status paused",),
                "show": ("confide task show 3f9a2c",),
                "log": ("confide task log 3f9a2c",),
                "approve": ("confide task approve 3f9a2c",),
                "pause": ("confide task pause 3f9a2c",),
                "resume": ("confide task resume 3f9a2c",),
                "run-now": ("confide task run-now 3f9a2c",),
                "cancel": ("confide task cancel 3f9a2c",),
                "accept": ("confide task accept 3f9a2c",),
            },
        ),
        Entry(
            "report",
            "confide_night.cli.tasks:report",
            "Tell what was done in the night: what needs you first.",
            ("confide report",),
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
        Entry("panel", "confide_panel.cli:panel", "Look at the memory in your browser.", ("confide panel",)),
        Entry(
            "serve",
            "confide_http.cli.local:serve",
            "Serve the memory over HTTP to programs on this machine.",
            ("confide serve",),
        ),
        Entry(
            "gateway",
            "confide_http.cli.sign_in:sign_in_app",
            "Let programs reach the space by the gateway of its server, and shut them out.",
            ("confide gateway ls",),
            inner={
                "approve": ("confide gateway approve correct-horse-battery-staple-paper-clip",),
                "ls": ("confide gateway ls",),
                "rm": ("confide gateway rm claude",),
            },
        ),
        Entry(
            "token",
            "confide_http.cli.local:token_app",
            "Say which programs may use the memory over HTTP.",
            ("confide token new editor --scope write",),
            inner={
                "new": ("confide token new editor --scope write",),
                "ls": ("confide token ls",),
                "rm": ("confide token rm editor",),
            },
        ),
        Entry(
            "runner",
            "confide_night.cli.runner:runner_app",
            "Do what was ordered for the night on this machine.",
            ("confide runner",),
            inner={
                "init": ("confide runner init",),
                "check": ("confide runner check",),
                "run": ("confide runner run",),
                "ls": ("confide runner ls",),
            },
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
    "backup": "export",
    "dump": "export",
    "migrate": "move",
    "transfer": "move",
    "suggestions": "learned",
    "learnings": "learned",
    "devices": "device",
    "machines": "device",
    "machine": "device",
    "keys": "key",
    "passphrase": "key",
    "secret": "secrets",
    "server": "serve",
    "http": "serve",
    "rest": "serve",
    "tokens": "token",
    "sessions": "transcripts",
    "pending": "queue",
    "tasks": "task",
    "cron": "task",
    "schedule": "task",
    "morning": "report",
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

app = typer.Typer(
    name="confide",
    cls=program("confide_proxy.cli", COMMANDS, OTHER_WORDS, OPTION_WORDS),
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
