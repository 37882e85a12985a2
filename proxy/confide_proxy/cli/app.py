"""The commands of `confide`: their names and help lines, and the handling of their errors.

Every command uses the same link and the same tools as an agent. Commands are imported on demand,
since users wait for them. A new command is a function in the module of its family, and an entry in
this module. docs/commands.md lists the exit codes.
"""

from __future__ import annotations

import errno
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
from confide_proxy.cli.old_spellings import MOVED
from confide_proxy.config import load as load_config
from confide_proxy.errors import ConfigError, FolderError, InputError

COMMANDS: Final[Groups] = {
    "Start here": (
        Entry("quickstart", "sync", "Set up this device without a server, and index this folder."),
        Entry("join", "join", "Use the memory on a server: join it with an invite."),
        Entry(
            "setup",
            "setup",
            "Configure your agent's program to start Confide.",
            "confide setup claude-code --write --hooks\nconfide setup",
        ),
        Entry("status", "status", "Show whether the daemon is reachable, and what it holds."),
        Entry("doctor", "doctor", "Check this device, its files and your agent's programs.", "confide doctor --fix"),
    ),
    "Memory": (
        Entry("search", "search", "Find notes by meaning and by words.", 'confide search "why postgres"'),
        Entry(
            "store",
            "notes",
            "Store a text: in today's log, in a file, or as a note.",
            'confide store "we chose postgres for its row locks"\n'
            'confide store "Use tabs." --title "Code style" --tag style\n'
            "git log -1 --format=%B | confide store - --path memory/releases.md",
        ),
        Entry("read", "reading", "Print a file or a note.", "confide read memory/deploy.md --from 10 --lines 5"),
        Entry("ls", "listing", "List the files and notes, last changed first.", "confide ls --tag style"),
        Entry("edit", "edit", "Open a file or a note in your editor, then send it.", "confide edit memory/deploy.md"),
        Entry(
            "rm",
            "edit",
            "Delete files or notes on every device.",
            "confide rm memory/old.md",
        ),
        Entry(
            "forget",
            "forget",
            "Remove files, notes or a text everywhere, for good, with a receipt.",
            "confide forget Private\nconfide forget --project vault --dry-run\n"
            "echo 'the old plan of ours' | confide forget --text - --yes",
        ),
        Entry(
            "trust",
            "trust",
            "Vouch for a note, so that it may be added to prompts automatically.",
            "confide trust memory/notes/deploy.md",
        ),
        Entry("stale", "stale", "List notes about files and functions that have changed since, or are missing."),
        Entry("fresh", "stale", "Confirm that notes are true as they are.", "confide fresh memory/notes/deploy.md"),
        Entry(
            "learn",
            "",
            "Review what Confide learned from your sessions.",
            commands=(
                Entry(
                    "transcripts",
                    "transcript_list:transcripts",
                    "List the sessions whose transcripts are sent, or delete one.",
                    "confide learn transcripts\nconfide learn transcripts --forget 0199c2f4",
                ),
            ),
        ),
    ),
    "Files and history": (
        Entry(
            "sync",
            "sync",
            "Send what changed here, and receive what changed elsewhere.",
            "confide sync\nconfide sync --watch ~/app ~/site\nconfide sync --queue",
        ),
        Entry(
            "history",
            "history",
            "List what changed lately, or the revisions of a file.",
            "confide history --since 2d\nconfide history memory/deploy.md --diff",
        ),
        Entry(
            "restore",
            "restore",
            "Bring back deleted files, or an older revision of one.",
            "confide restore --list\nconfide restore memory/deploy.md --revision 3\nconfide restore --since 1h",
        ),
        Entry(
            "project",
            "",
            "List projects, and choose which of them share memory.",
            commands=(
                Entry("ls", "projects", "List the projects of the memory, or your project folders."),
                Entry(
                    "link",
                    "projects",
                    "Search two projects together, or stop that.",
                    "confide project link backend\nconfide project link --remove backend",
                ),
                Entry(
                    "allow",
                    "projects",
                    "Let a folder be the project whose name it claims, or undo that.",
                    "confide project allow\nconfide project allow --undo ~/old-app",
                ),
            ),
        ),
    ),
    "Devices and secrets": (
        Entry(
            "device",
            "",
            "Manage the devices that can decrypt your secrets.",
            commands=(
                Entry("ls", "devices:device_ls", "List the devices, and those that wait for approval."),
                Entry(
                    "invite",
                    "devices:device_invite",
                    "Print an invite for a new device, then wait for it.",
                    "confide device invite phone",
                ),
                Entry(
                    "approve",
                    "devices:device_approve",
                    "Add a device that waits, by the six words that it shows.",
                    "confide device approve phone",
                ),
                Entry("confirm", "device_confirm:device_confirm", "Confirm the list of devices, by six words."),
                Entry(
                    "rm",
                    "device_removal:device_rm",
                    "Remove a device and its access, and seal all secrets again without it.",
                    "confide device rm phone",
                ),
                Entry(
                    "lost",
                    "device_removal:device_lost",
                    "Shut out a lost or stolen device, and list the secrets to change.",
                    "confide device lost phone",
                ),
                Entry(
                    "key",
                    "",
                    "Show, move, lock or replace the key of this device.",
                    commands=(
                        Entry("show", "keys:key_show", "Print this device's public key line and its six words."),
                        Entry(
                            "move",
                            "keys:key_move",
                            "Keep the key in a file, in the keyring, or under a passphrase.",
                            "confide device key move keyring\nconfide device key move passphrase --new",
                        ),
                        Entry("unlock", "keys:key_unlock", "Unlock the key with its passphrase, for a while."),
                        Entry("lock", "keys:key_lock", "Lock the key again at once."),
                        Entry(
                            "import",
                            "keys:key_import",
                            "Use an existing Ed25519 key for this device.",
                            "confide device key import ~/.ssh/id_ed25519",
                        ),
                        Entry("rotate", "keys:key_rotate", "Replace the key with a new one, also on the daemon."),
                    ),
                ),
                Entry(
                    "recovery",
                    "",
                    "Make or use a recovery code, for when all devices are lost.",
                    commands=(
                        Entry("new", "recovery:recovery_new", "Make a recovery code, and print it once."),
                        Entry(
                            "use", "recovery:recovery_use", "Make this device one of the space with a recovery code."
                        ),
                    ),
                ),
            ),
        ),
        Entry(
            "run",
            "secret_run:run",
            "Run a command that uses sealed secrets, and mask them in what it prints.",
            "confide run --env NPM_TOKEN=secret:npm-token -- npm publish\n"
            "confide run --file KUBECONFIG=secret:7a1c -- kubectl get pods\n"
            "confide run --stdin secret:registry -- docker login --username me --password-stdin registry.example.com",
        ),
        Entry(
            "secrets",
            "",
            "Find passwords and keys in your memory, and show the sealed ones.",
            commands=(
                Entry(
                    "scan",
                    "scan",
                    "Look for passwords and keys in what would be sent, or is stored.",
                    "confide secrets scan\nconfide secrets scan --stored --dry-run",
                ),
                Entry("ls", "secrets:list_secrets", "List the sealed secrets and their files, never their values."),
                Entry(
                    "name",
                    "secrets:name_secret",
                    "Give a sealed secret a name on this device, or take it back.",
                    "confide secrets name npm-token 4f2a\nconfide secrets name --remove npm-token",
                ),
                Entry(
                    "show",
                    "secrets",
                    "Decrypt one sealed secret, and print it.",
                    "confide secrets show '(sealed:github-token:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f)'",
                ),
                Entry(
                    "audit", "secret_uses:audit", "List which commands and agents used which secrets, without values."
                ),
            ),
        ),
    ),
    "Service": (
        Entry(
            "daemon",
            "",
            "Start or stop the daemon of this device.",
            commands=(
                Entry("start", "local_daemon", "Start this device's own daemon."),
                Entry("stop", "local_daemon", "Stop this device's own daemon."),
            ),
        ),
        Entry(
            "mcp",
            "mcp",
            "Serve an agent over MCP; the agent's program runs this.",
            "confide mcp --project ~/app",
            is_hidden=True,
        ),
        Entry("hook", "hook", "Answer one event of your agent's program; that program runs this.", is_hidden=True),
    ),
}
"""The commands, in the order in which users need them."""

EVERYDAY: Final = (
    "quickstart",
    "join",
    "setup",
    "status",
    "doctor",
    "search",
    "store",
    "read",
    "ls",
    "restore",
    "sync",
    "panel",
)
"""The commands that `confide --help` shows; `confide help all` shows the rest."""

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
    "history": "revisions diff changes",
    "restore": "undelete revert undo trash",
    "sync": "push pull reindex pending",
    "device": "devices machines machine",
    "key": "keys passphrase",
    "secrets": "secret",
    "learn": "sessions",
    "ls": "list files notes tags",
    "rm": "remove delete del revoke",
    "new": "create",
}
"""Words that users try first for a command; ignored in a group that has no such command."""

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
"""The same for options, without their hyphens."""


def of_addons() -> tuple[list[Command], OtherWords]:
    """Return the commands of the installed add-ons, and a table from other words that users type to
    these commands.
    """
    from confide_proxy.addons import installed  # commands of the core need no add-ons

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
    epilog="Run `confide help COMMAND` for details, `confide help all` for all commands.",
    moved=MOVED,
    everyday=EVERYDAY,
)


def main(began: float | None = None) -> NoReturn:
    """Run the command line. Every failure prints a sentence and sets an exit code.

    Args:
        began: when the process started, on the clock of `time.monotonic`.
    """
    doing.waits_from(began)
    try:
        code = command_runner.run(app, "confide", remark, _as_known_error)
    finally:
        doing.end()
    sys.exit(code)


_OF_THE_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def _as_known_error(error: Exception) -> ConfideError | None:
    match error:
        case UnicodeEncodeError() if error.encoding != "utf-8":
            where = f"the output cannot be written in this terminal's encoding, {error.encoding}"
            return InputError(where, hint="use a UTF-8 locale: LC_ALL=C.UTF-8")
        case UnicodeEncodeError():
            # An argument that the command passes on unchecked, such as a folder's name.
            at = len(error.object[: error.start].encode("utf-8", "surrogateescape"))
            return InputError(f"what was given is not UTF-8 text (byte {at})", hint=RECODE)
        case TimeoutError():
            return LinkError("the daemon did not answer in time", hint="confide status shows whether it can be reached")
        case FileNotFoundError():
            # Usually the terminal's working directory was deleted.
            where = str(error.filename or "the working directory")
            return FolderError(where, "is not there", hint="cd to a folder that exists")
        case OSError():
            why = error.strerror or type(error).__name__
            hint = "is the disk full, or read-only?" if error.errno in _OF_THE_DISK else None
            return FolderError(str(error.filename or "a file"), f"cannot be used: {why}", hint=hint)
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
