"""Whether a memory file is what a stranger has committed: it came with a clone, and nobody has changed it here (docs/agents.md)."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Final

from confide_memory.documents import text_hash
from confide_proxy.sync.folder import Content
from confide_proxy.sync.project import WARY

_DEADLINE_S: Final = 10.0
"""For one question; a long history is read through."""
_REST_S: Final = 60.0
"""After a git that did not answer nobody asks it again for so long, so that not each of many files waits for it."""
_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
"""Attributes by which git writes another text into a file than was committed; a stranger may have set them."""
_ALONE: Final = (*WARY, "-c", "protocol.allow=never", "--no-replace-objects", "--literal-pathspecs", "--no-pager")
"""Nothing is fetched, started or put in the place of what is asked for, whatever the repository's own configuration says."""
_LONE_LINE_END: Final = re.compile(rb"(?<!\r)\n")


class _NoAnswerError(Exception):
    """Git failed, or took too long."""


class Commits:
    """Asks git about the files of one folder. Methods block."""

    def __init__(self) -> None:
        self._rests_until = 0.0

    def has_a_strangers(self, file: Path, content: Content) -> bool:
        """Whether a file, which holds this, is as somebody else has committed it; True as well where git gives no answer."""
        if not any(os.path.lexists(above / ".git") for above in file.parents):
            return False
        if time.monotonic() < self._rests_until:
            return True
        try:
            return _is_a_strangers(file, content)
        except FileNotFoundError:
            return False  # no git on this machine, or the file has just gone
        except subprocess.TimeoutExpired:
            self._rests_until = time.monotonic() + _REST_S
            return True
        except (OSError, ValueError, _NoAnswerError):
            return True


def _is_a_strangers(file: Path, content: Content) -> bool:
    committed = _committed(file)
    if committed is None:
        return False
    blob, size = committed
    if _author(file) == _own_address(file):
        return False
    # No line end takes bytes away, so a larger one is another text.
    if size <= content.size and _is_same(_git(file, "cat-file", "blob", blob), content):
        return True
    # Else it was changed here, unless git itself wrote it otherwise than it was committed.
    told = _git(file, "check-attr", "-z", *_CONVERTED, "--", file.name).split(b"\0")
    return any(value not in (b"unspecified", b"unset") for value in told[2::3])


def _committed(file: Path) -> tuple[str, int] | None:
    """The blob that the newest commit has for a file, and its size; None where it has none, or there is no repository."""
    try:
        told = _git(file, "cat-file", "--batch-check", given=f"HEAD:./{file.name}\n").split()
    except _NoAnswerError as error:
        if str(error).startswith("fatal: not a git repository"):
            return None
        raise
    return (told[0].decode(), int(told[2])) if len(told) == 3 and told[1] == b"blob" else None


def _author(file: Path) -> str:
    """The address of who wrote the last commit that changed a file."""
    told = _git(file, "rev-list", "-1", "--format=%ae", "HEAD", "--", file.name).splitlines()
    return os.fsdecode(told[1]).strip().casefold() if len(told) > 1 else ""


def _own_address(file: Path) -> str | None:
    """The address that a commit from here would have; None where git knows none."""
    try:
        found = re.search(rb"<([^<>]+)>", _git(file, "var", "GIT_AUTHOR_IDENT"))
    except _NoAnswerError:
        return None
    return os.fsdecode(found[1]).strip().casefold() if found else None


def _is_same(committed: bytes, content: Content) -> bool:
    texts = (committed, _LONE_LINE_END.sub(b"\r\n", committed))
    return content.own_hash in {"", *(text_hash(text.decode("utf-8", "replace")) for text in texts)}


def _git(file: Path, *arguments: str, given: str = "") -> bytes:
    """What git says of a file, whose folder it is asked in: a repository within another one answers for its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", *_ALONE, "-C", os.fspath(file.parent), *arguments]
    done = subprocess.run(
        command, input=os.fsencode(given), capture_output=True, timeout=_DEADLINE_S, check=False, env=env
    )
    if done.returncode:
        raise _NoAnswerError(os.fsdecode(done.stderr[:200]))
    return done.stdout
