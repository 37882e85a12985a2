"""Detection of memory files that another person has committed: they came with a clone and are
unchanged here (docs/agents.md).
"""

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
"""Seconds for one git command; finding an author may read a long history."""
_REST_S: Final = 60.0
"""Seconds without further git commands after one timed out, so that many files do not each wait for
it.
"""
_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
"""Attributes by which git writes another text into a file than was committed; the other person may
have set them.
"""
_ALONE: Final = (*WARY, "-c", "protocol.allow=never", "--no-replace-objects", "--literal-pathspecs", "--no-pager")
"""Options that keep git from fetching, starting programs or replacing objects, whatever the
repository configures.
"""
_LONE_LINE_END: Final = re.compile(rb"(?<!\r)\n")


class _NoAnswerError(Exception):
    """Git failed."""


class Commits:
    """Queries to git about the files of one folder. Methods block."""

    def __init__(self) -> None:
        self._rests_until = 0.0

    def has_a_strangers(self, file: Path, content: Content) -> bool:
        """Return True if a file with this content is as another person committed it, and also if
        git does not answer.
        """
        if not any(os.path.lexists(above / ".git") for above in file.parents):
            return False
        if time.monotonic() < self._rests_until:
            return True
        try:
            return _is_a_strangers(file, content)
        except FileNotFoundError:
            return False  # no git on this device, or the file was just deleted
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
    # Converting line ends only adds bytes, so a blob that is larger is another text.
    if size <= content.size and _is_same(_git(file, "cat-file", "blob", blob), content):
        return True
    # Otherwise it was changed here, unless git itself converted it at checkout.
    told = _git(file, "check-attr", "-z", *_CONVERTED, "--", file.name).split(b"\0")
    return any(value not in (b"unspecified", b"unset") for value in told[2::3])


def _committed(file: Path) -> tuple[str, int] | None:
    """Return id and size of a file's blob in `HEAD`; None without such a blob or repository."""
    try:
        told = _git(file, "cat-file", "--batch-check", given=f"HEAD:./{file.name}\n").split()
    except _NoAnswerError as error:
        if str(error).startswith("fatal: not a git repository"):
            return None
        raise
    return (told[0].decode(), int(told[2])) if len(told) == 3 and told[1] == b"blob" else None


def _author(file: Path) -> str:
    """Return the e-mail address of the author of the last commit that changed a file, or ""."""
    told = _git(file, "rev-list", "-1", "--format=%ae", "HEAD", "--", file.name).splitlines()
    return os.fsdecode(told[1]).strip().casefold() if len(told) > 1 else ""


def _own_address(file: Path) -> str | None:
    """Return the e-mail address for commits of this user; None if git has none configured."""
    try:
        found = re.search(rb"<([^<>]+)>", _git(file, "var", "GIT_AUTHOR_IDENT"))
    except _NoAnswerError:
        return None
    return os.fsdecode(found[1]).strip().casefold() if found else None


def _is_same(committed: bytes, content: Content) -> bool:
    texts = (committed, _LONE_LINE_END.sub(b"\r\n", committed))
    return content.own_hash in {"", *(text_hash(text.decode("utf-8", "replace")) for text in texts)}


def _git(file: Path, *arguments: str, given: str = "") -> bytes:
    """Run git in the file's folder and return the output: in nested repositories the inner one
    answers. Raises _NoAnswerError.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", *_ALONE, "-C", os.fspath(file.parent), *arguments]
    done = subprocess.run(
        command, input=os.fsencode(given), capture_output=True, timeout=_DEADLINE_S, check=False, env=env
    )
    if done.returncode:
        raise _NoAnswerError(os.fsdecode(done.stderr[:200]))
    return done.stdout
