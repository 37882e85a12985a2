"""Every command of `confide`, from its own parser, with arguments that make it do something: a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer
import typer.main
from typer.core import TyperGroup

from confide_proxy.cli.app import app
from confide_proxy.clients.known_clients import CLIENTS

SECRET: Final = "(sealed:github-token:" + "0f" * 16 + ")"
WORDS: Final = "-".join(["abandon"] * 6)

ARGUMENTS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "search": (("heron",), ("heron", "--explain"), ("heron", "--all-projects")),
    "read": (("memory/a.md",),),
    "store": (("- herons fish at dawn",), ("herons fish", "--tag", "birds")),
    "ls": ((), ("--tag", "x"), ("--all",)),
    "log": ((), ("--since", "2d")),
    "edit": (("memory/a.md",),),
    "rm": (("memory/a.md", "--yes"),),
    "status": ((), ("-v",)),
    "doctor": ((),),
    "start": ((),),
    "stop": ((),),
    "sync": ((), ("--force",)),
    "quickstart": ((),),
    "history": (("memory/a.md",), ("memory/a.md", "--diff")),
    "deleted": ((),),
    "restore": (("memory/a.md",), ("memory/*.md",), ("--since", "2d", "--dry-run")),
    "forget": (("memory/a.md", "--yes"), ("memory/a.md", "--dry-run"), ("memory/a.md", "--undo")),
    "trust": (("memory/a.md",),),
    "projects": ((),),
    "link": ((), ("other",)),
    "unlink": (("other",),),
    "queue": (("--show",),),
    "queue retry": ((),),
    "queue drop": (("00000000", "--yes"),),
    "device ls": ((),),
    "device invite": (("other", "--no-wait"),),
    "device approve": (("other", "--words", WORDS),),
    "device confirm": (("--words", WORDS), ("--moved",)),
    "device rm": (("other", "--yes"), ("stranger", "--yes")),
    "key show": ((),),
    "key move": (("file",),),
    "key unlock": ((),),
    "key lock": ((),),
    "key passphrase": ((),),
    "key import": (("../no-key",),),
    "key rotate": ((),),
    "project ls": ((),),
    "project allow": ((),),
    "project forget": (("../nowhere",),),
    "recovery new": ((), ("--replace",)),
    "recovery use": (("--yes",),),
    "secrets rescan": (("--dry-run",), ("--yes",)),
    "secrets ls": ((),),
    "secrets show": ((SECRET, "--raw"),),
    "transcripts list": ((),),
    "transcripts forget": (("session-1", "--yes"),),
    "export": (("../exported",),),
    "import": (("../notes.jsonl", "--yes"),),
    "scan": ((), ("--all",)),
    "task add": (("look at it",), ("look at it", "--schedule", "0 2 * * *", "--max-usd", "1")),
    "task ls": ((), ("--status", "paused")),
    **{f"task {what}": (("0f0f0f0f",),) for what in ("show", "log", "pause", "resume", "run-now", "cancel", "accept")},
    "task approve": (("0f0f0f0f", "--yes"),),
    "report": ((), ("--since", "7d")),
    "learn": ((), ("--status",)),
    "learned": ((),),
    **{f"learned {what}": (("3f9a2c1b",),) for what in ("accept", "edit", "refuse", "undo")},
    "setup": ((),),
    "setup plugin": ((),),
    **{f"setup {client}": ((), ("--hooks", "--allow"), ("--remove",)) for client in CLIENTS},
    "move": (("--dry-run",), ("--to", "local", "--yes")),
    "gateway approve": ((WORDS, "--yes"),),
    "gateway ls": ((),),
    "gateway rm": (("chat",),),
    "runner init": (("--print",),),
    "runner ls": ((),),
    "token ls": ((),),
    "token new": (("editor", "--scope", "write"),),
    "token rm": (("nobody",),),
}
"""By the command's name; what a command needs to be there the caller has made."""
APART: Final = {
    "mcp": "an agent's client speaks to it: tests/proxy/mcp",
    "hook": "the same, and it asks no daemon: tests/e2e/hooks, tests/proxy/hooks",
    "watch": "goes on until it is ended: tests/proxy/cli/test_cli_drawn_lies.py has it by itself",
    "serve": "the same: tests/addons/http/e2e",
    "runner": "the same: tests/addons/night/e2e",
    "runner run": "does what was ordered: tests/addons/night/runner/test_supervisor.py has a daemon that lies",
    "runner check": "asks no daemon, and tries a sandbox: tests/addons/night/e2e",
    "panel": "starts that, and opens a browser",
    "open": "the same",
    "join": "takes an invite, which a hostile daemon has made: the same",
    "pin": "makes the machine one of the hostile daemon's: it is how each of these tests begins",
}
AS_TEXT: Final = frozenset(
    {
        *("key move", "key unlock", "key lock", "key passphrase"),
        *("setup", "setup plugin", *(f"setup {client}" for client in CLIENTS)),
    }
)
"""Without --json."""


def names() -> set[str]:
    """Of all that the parser has; a group that does something by itself counts too."""
    return set(_walk(typer.main.get_command(app), ()))


def every() -> list[tuple[str, ...]]:
    """All command lines."""
    assert names() == ARGUMENTS.keys() | APART.keys(), names() ^ (ARGUMENTS.keys() | APART.keys())
    return [(*name.split(), *given) for name, each in ARGUMENTS.items() for given in each]


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    commands = inner_commands(command)
    if path and (not commands or command.invoke_without_command):
        yield " ".join(path)
    for name, inner in commands.items():
        yield from _walk(inner, (*path, name))


def inner_commands(command: Any) -> dict[str, Any]:
    """The commands of a group by their names; none of what is no group."""
    if not isinstance(command, TyperGroup):
        return {}
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}
