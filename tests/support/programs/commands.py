"""Every command of `confide`, from its own parser, with arguments that make it do something: a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    "edit": (("memory/a.md",),),
    "rm": (("memory/a.md", "--yes"),),
    "forget": (
        *(("memory/a.md", option) for option in ("--yes", "--dry-run", "--undo")),
        ("--text", "herons fish at dawn", "--yes"),
    ),
    "status": ((), ("-v",)),
    "doctor": ((),),
    "daemon start": ((),),
    "daemon stop": ((),),
    "daemon move": (("--dry-run",), ("--to", "local", "--yes")),
    "sync": (
        (),
        ("--force",),
        ("--queue", "--show"),
        ("--queue", "--retry"),
        ("--queue", "--drop", "00000000", "--yes"),
    ),
    "quickstart": ((),),
    "history": ((), ("--since", "2d"), ("memory/a.md",), ("memory/a.md", "--diff"), ("memory/a.md", "--changes")),
    "restore": (
        ("memory/a.md",),
        ("memory/*.md",),
        ("--since", "2d", "--dry-run"),
        ("memory", "--at", "1m"),
        ("--list",),
    ),
    "trust": (("memory/a.md",),),
    "stale": ((),),
    "stats": ((),),
    "fresh": (("memory/a.md",),),
    "project ls": ((), ("--folders",)),
    "project link": ((), ("other",), ("--remove", "other")),
    "project allow": ((), ("--undo", "../nowhere")),
    "device ls": ((),),
    "device invite": (("other", "--no-wait"),),
    "device approve": (("other", "--words", WORDS),),
    "device confirm": (("--words", WORDS), ("--moved",)),
    "device rm": (("other", "--yes"), ("stranger", "--yes")),
    "device lost": (("other", "--yes"), ("stranger", "--yes")),
    "device key show": ((),),
    "device key move": (("file",), ("passphrase", "--new")),
    "device key unlock": ((),),
    "device key lock": ((),),
    "device key import": (("../no-key",),),
    "device key rotate": ((),),
    "device recovery new": ((), ("--replace",)),
    "device recovery use": (("--yes",),),
    "secrets scan": ((), ("--all",), ("--stored", "--dry-run"), ("--stored", "--yes")),
    "secrets ls": ((),),
    "secrets show": ((SECRET, "--raw"),),
    "secrets name": (("npm", SECRET), ("--remove", "npm")),
    "run": (("--env", f"X={SECRET}", "--", "true"),),
    "secrets audit": ((),),
    "learn transcripts": ((), ("--forget", "session-1", "--yes")),
    "learn now": ((), ("--status",)),
    "learn ls": ((),),
    "learn keep": (("3f9a2c1b",), ("3f9a2c1b", "--edit")),
    "learn refuse": (("3f9a2c1b",), ("3f9a2c1b", "--undo")),
    "export": (("../exported",),),
    "import": (("../notes.jsonl", "--yes"),),
    "task add": (
        ("look at it",),
        ("look at it", "--schedule", "0 2 * * *", "--max-usd", "1"),
        ("--again", "0f0f0f0f"),
    ),
    "task ls": ((), ("--status", "paused")),
    **{f"task {what}": (("0f0f0f0f",),) for what in ("cancel", "accept")},
    "task show": (("0f0f0f0f",), ("0f0f0f0f", "--log")),
    "task pause": (("0f0f0f0f",), ("0f0f0f0f", "--resume")),
    "task approve": (("0f0f0f0f", "--yes"),),
    "task report": ((), ("--since", "7d")),
    "task runner": (("--init", "--print"), ("--runs",)),
    "setup": (
        (),
        ("plugin",),
        *((client, *more) for client in CLIENTS for more in ((), ("--hooks", "--allow"), ("--remove",))),
    ),
    "http approve": ((WORDS, "--yes"),),
    "http ls": ((),),
    "http rm": (("chat",),),
    "http token ls": ((),),
    "http token new": (("editor", "--scope", "write"),),
    "http token rm": (("nobody",),),
}
"""By the command's name; what a command needs to be there the caller has made.

`sync --watch` goes on until it is ended: tests/proxy/cli/test_cli_drawn_lies.py has it by itself. `task runner` alone does the same:
tests/addons/night/e2e; with `--once` it does what was ordered: tests/addons/night/runner/test_supervisor.py has a daemon that lies.
`join --pin` makes the device one of the hostile daemon's: it is how each of these tests begins.
"""
APART: Final = {
    "mcp": "an agent's client speaks to it: tests/proxy/mcp",
    "hook": "the same, and it asks no daemon: tests/e2e/hooks, tests/proxy/hooks",
    "http serve": "goes on until it is ended: tests/addons/http/e2e",
    "panel": "starts that, and opens a browser",
    "join": "takes an invite, which a hostile daemon has made: tests/proxy/cli/test_cli_drawn_lies.py",
}
AS_TEXT: Final = (("device", "key", "move"), ("device", "key", "unlock"), ("device", "key", "lock"), ("setup",))
"""Without --json."""


def has_json(line: Sequence[str]) -> bool:
    """Whether a command line can have `--json`."""
    return not any(tuple(line[: len(each)]) == each for each in AS_TEXT)


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
