"""Shell commands: reads them as notes name them and as agents run them, so that both can be
compared.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

_MOST_CHARS: Final = 8000  # of a line of a shell
_MOST_COMMANDS: Final = 16  # in one line of a shell
_PROGRAM: Final = re.compile(r"[a-z][a-z0-9._+-]{0,31}")
_WRAPPERS: Final = frozenset(
    {"sudo", "time", "nohup", "nice", "env", "exec", "command", "npx", "bunx", "uvx", "xvfb-run", "stdbuf"}
)
_RUNNERS: Final = frozenset(
    {("python", "-m"), ("python3", "-m")}
    | {
        ("uv", "run"),
        ("poetry", "run"),
        ("pipenv", "run"),
        ("pnpm", "exec"),
        ("pnpm", "dlx"),
        ("yarn", "dlx"),
        ("bundle", "exec"),
        ("npm", "exec"),
        ("hatch", "run"),
        ("pdm", "run"),
    }
)
_READERS: Final = frozenset(
    """cat bat less more head tail grep egrep rg ag ack zgrep find fd ls tree sed awk cut sort uniq wc jq yq diff column echo printf
    strings xxd nl tac journalctl dmesg man tldr history which type stat file env printenv pwd tee""".split()  # noqa: SIM905
)
_READING: Final = frozenset(
    {("git", word) for word in ("log", "show", "diff", "grep", "blame", "status", "stash")}
    | {("docker", "inspect"), ("kubectl", "describe"), ("gh", "issue"), ("gh", "pr"), ("gh", "run")}
)
"""Commands with their first argument that show text which others have written."""
_ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*=")
_PROSE: Final = frozenset({"a", "an", "the", "is", "are", "it", "this", "that", "we", "you", "not", "no", "as"})


def command_words(line: str) -> list[str]:
    """Return the words of a command: its program without the folder, and its arguments. Variable
    assignments and wrappers such as `sudo` are removed. Empty if the line is not a command.
    """
    try:
        words = shlex.split(line[:1000], comments=True)
    except ValueError:
        words = line[:1000].split()
    while words:
        head = words[0].rsplit("/", 1)[-1]
        if _ASSIGNED.match(words[0]) or head in _WRAPPERS:
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[1:]
        elif (head, *words[1:2]) in _RUNNERS:
            words = words[2:]
        else:
            break
    if not words:
        return []
    words[0] = words[0].rsplit("/", 1)[-1]
    if not _PROGRAM.fullmatch(words[0]) or words[0] in _PROSE:
        return []
    return words


def commands(line: str) -> list[list[str]]:
    """Return the commands in a shell line, each as its words: the parts between `&&`, `;`, `|` and
    line ends.
    """
    found = [command_words(part) for part in re.split(r"&&|\|\|?|;|\n", line[:_MOST_CHARS])[:_MOST_COMMANDS]]
    return [words for words in found if words and words[0] != "cd"]


def only_read(run: Sequence[Sequence[str]]) -> bool:
    """Return True if all commands only show stored text, such as `cat` and `git log`. An error
    message in their output is then part of that text and no failure of theirs.
    """
    return bool(run) and all(
        words[0] in _READERS or "logs" in words[1:4] or (len(words) > 1 and (words[0], words[1]) in _READING)
        for words in run
    )


def is_command(key: str, run: Sequence[Sequence[str]]) -> bool:
    """Return True if one of the commands in `run` matches `key`, a command from a note: the same
    program with all of the note's arguments in the same order. More arguments are allowed.
    """
    wanted = key.split()
    for words in run:
        if words[0] != wanted[0]:
            continue
        rest = iter(words[1:])
        if all(any(_is_argument(one, word) for word in rest) for one in wanted[1:]):
            return True
    return False


def _is_argument(wanted: str, given: str) -> bool:
    return wanted == given or given.startswith(f"{wanted}=") or (wanted.startswith("<") and wanted.endswith(">"))
