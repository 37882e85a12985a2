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
_WRAPPERS: Final = {
    **dict.fromkeys("nohup exec command npx bunx uvx xvfb-run caffeinate setsid unbuffer".split(), ""),  # noqa: SIM905
    **{"sudo": "ugpCDRTUrth", "doas": "uC", "env": "uC", "nice": "n", "ionice": "cn", "time": "fo", "stdbuf": "ioe"},
    **{"timeout": "ks", "watch": "n", "strace": "eop"},
}
"""Programs that run another one, with the options of each that a value follows."""
_PART: Final = re.compile(r"(?:\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|\\[\s\S]|(?!&&|(?<=&)&|[|;\n])[\s\S])+")
"""A command in a line: all up to a mark between two that is not within quotes."""
_DURATION: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_WORDS: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "("})
"""Words that may precede a command in a script."""
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash"})
_INNER: Final = re.compile(r"-[a-z]*c")
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
        if _ASSIGNED.match(words[0]) or words[0] in _WORDS:
            words = words[1:]
        elif head in _WRAPPERS:
            words = _unwrapped(head, words[1:])
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


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """Return the words behind a wrapper's own options."""
    while words and words[0].startswith("-"):
        option, *words = words
        if len(option) == 2 and option[1] in _WRAPPERS[wrapper]:
            words = words[1:]
    return words[1:] if wrapper == "timeout" and words and _DURATION.fullmatch(words[0]) else words


def commands(line: str) -> list[list[str]]:
    """Return the commands in a shell line, each as its words: the parts between `&&`, `;`, `|` and
    line ends.
    """
    found: list[list[str]] = []
    for part in _PART.findall(line[:_MOST_CHARS])[:_MOST_COMMANDS]:
        is_group = part.lstrip().startswith("(")
        words = command_words(part.strip().strip("()") if is_group else part)
        if len(words) > 2 and words[0] in _SHELLS and _INNER.fullmatch(words[1]):
            inner = words[2] if " " in words[2] else " ".join(words[2:])
            found += commands(inner.strip("\"'"))
        else:
            found.append(words)
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
