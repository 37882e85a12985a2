"""Find the lines of memory files that another person has committed: they came with a clone, a pull
or a merge (docs/agents.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.sealing.placeholder import STANDIN
from confide_proxy.sync.folder import Content
from confide_proxy.sync.project import WARY

Lines = tuple[int, int]
"""First and last line, counted from 1."""

_DEADLINE_S: Final = 10.0
"""Seconds for one git command; finding authors may read a long history."""
_REST_S: Final = 60.0
"""Seconds without further git commands after one timed out, so that many files do not each wait for
it.
"""
_MOST_BYTES: Final = 2**24
"""Largest committed file whose authors are looked up, in bytes."""
_HEADS: Final = ("HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD")
"""Commits whose lines a file may have; the last two exist while a conflict is being resolved."""
_CONVERTED: Final = ("filter", "ident", "working-tree-encoding")
"""Attributes by which git writes another text into a file than was committed; the other person may
have set them.
"""
_ALONE: Final = (*WARY, "-c", "protocol.allow=never", "--no-replace-objects", "--literal-pathspecs", "--no-pager")
"""Options that keep git from fetching, starting programs or replacing objects, whatever the
repository configures.
"""
_BLAME: Final = (
    *("-c", "blame.showRoot=false", "blame", "--porcelain", "--no-textconv"),
    # Also those of the configuration: it may name commits that are to be passed over.
    "--ignore-revs-file=",
    # Changed indentation and moved lines keep their commit.
    *("-w", "-M"),
)
"""A command that the repository cannot make attribute lines to other commits than they come from."""
_OBJECT: Final = re.compile(rb"([0-9a-f]{40,64}) (?:commit|blob) (\d+)")
_AUTHOR: Final = re.compile(rb"^<.*>$", re.MULTILINE)
_LINE: Final = re.compile(rb"([0-9a-f]{40,64}) \d+ \d+(?: \d+)?")


class _NoAnswerError(Exception):
    """Git failed."""


class Commits:
    """Asks git who committed the lines of the files in one folder. Methods block."""

    def __init__(self, addresses: Collection[str] = ()) -> None:
        """`addresses`: e-mail addresses that the user commits with, beside those that git has
        configured.
        """
        self._addresses = frozenset(map(_fold_address, addresses))
        self._histories: dict[Path, _History] = {}
        self._rests_until = 0.0

    def by_others(self, file: Path, content: Content) -> list[Lines]:
        """Return the lines of a file that another person has committed, given the file's content;
        all lines if git does not answer.
        """
        top = next((above for above in file.parents if os.path.lexists(above / ".git")), None)
        if top is None:
            return []
        lines = content.text.split("\n")
        if time.monotonic() < self._rests_until:
            return [(1, len(lines))]
        try:
            return _by_others(file, lines, self._addresses, self._histories.setdefault(top, _History()))
        except FileNotFoundError:
            return []  # no git on this device, or the file was just deleted
        except subprocess.TimeoutExpired:
            self._rests_until = time.monotonic() + _REST_S
        except (OSError, ValueError, _NoAnswerError):
            pass
        return [(1, len(lines))]


def is_whole(content: Content, lines: Collection[Lines]) -> bool:
    """Return True if `lines` include every line of the content that contains a letter or digit."""
    left = content.text.split("\n")
    for first, last in lines:
        left[first - 1 : last] = [""] * (last - first + 1)
    return bool(lines) and not any(map(_has_words, left))


class _History:
    """The authors of a repository's commits, as far as they have been read: mostly the user alone."""

    def __init__(self) -> None:
        self._heads: set[str] = set()
        self._authors: set[str] = set()

    def authors(self, file: Path, heads: Collection[str]) -> Collection[str]:
        """Return the addresses of all authors up to these commits, and maybe of others; "" among
        them if the history is too long to be read.
        """
        if new := set(heads) - self._heads:
            given = "\n".join([*new, *(f"^{head}" for head in self._heads)])
            try:
                told = _git(file, "rev-list", "--ignore-missing", "--format=<%ae>", "--stdin", given=given)
                self._authors.update(map(_address, {each[0] for each in _AUTHOR.finditer(told)}))
            except subprocess.TimeoutExpired:
                self._authors.add("")
            self._heads = new
        return self._authors


def _by_others(file: Path, lines: Sequence[str], addresses: frozenset[str], history: _History) -> list[Lines]:
    heads = _commits_of(file)
    if not heads:
        return []
    own = (addresses | _own_addresses(file)) - {""}
    if own.issuperset(history.authors(file, heads)) and not _is_shallow(file):
        return []
    committed = [line for head in heads for line in _blame(file, head)]
    own_commits = _own_commits(file, committed, own)
    mine = {each.text for each in committed if each.commit in own_commits}
    theirs = {each.text for each in committed if _has_words(each.text)} - mine
    if not theirs:
        return []
    if _is_converted(file):
        return [(1, len(lines))]
    return _ranges(number for number, line in enumerate(lines, 1) if _is_among(line, theirs, mine))


def _own_commits(file: Path, committed: Sequence[_CommittedLine], own: Collection[str]) -> set[bytes]:
    """Return those of the commits of these lines whose author has one of the addresses `own`."""
    authors = _authors(file, {each.commit for each in committed})
    found = {commit for commit, address in authors.items() if address in own}
    if any(each.is_boundary and each.commit in found for each in committed) and _is_shallow(file):
        # The oldest commit of a shallow clone seems to have written whatever was there before it.
        found -= {each.commit for each in committed if each.is_boundary}
    return found


def _is_converted(file: Path) -> bool:
    """Return True if an attribute makes git write another text than was committed."""
    told = _git(file, "check-attr", "-z", *_CONVERTED, "--", file.name).split(b"\0")
    return any(value not in (b"unspecified", b"unset") for value in told[2::3])


def _ranges(numbers: Iterable[int]) -> list[Lines]:
    """Return the ranges of ascending line numbers."""
    # Successive numbers have the same distance from their place.
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    return [(run[0], run[-1]) for run in runs]


def _is_among(line: str, theirs: Collection[str], mine: Collection[str]) -> bool:
    """Return True for a line of theirs, and for one with a sealed credential, which is not
    committed in this form.
    """
    text = line.strip()
    return text in theirs or (text not in mine and STANDIN.search(text) is not None)


def _has_words(line: str) -> bool:
    return any(map(str.isalnum, line))


def _commits_of(file: Path) -> list[str]:
    """Return the ids of those of `_HEADS` that have the file."""
    given = "".join(f"{head}\n{head}:./{file.name}\n" for head in _HEADS)
    try:
        told = _git(file, "cat-file", "--batch-check", given=given).splitlines()
    except _NoAnswerError as error:
        if str(error).startswith("fatal: not a git repository"):
            return []
        raise
    found = [_OBJECT.fullmatch(line) for line in told]
    pairs = [(head, blob) for head, blob in zip(found[::2], found[1::2], strict=True) if head and blob]
    if any(int(blob[2]) > _MOST_BYTES for _, blob in pairs):
        raise _NoAnswerError
    return [head[1].decode() for head, _ in pairs]


class _CommittedLine(NamedTuple):
    """A line without surrounding blanks, and the commit that it comes from."""

    commit: bytes
    is_boundary: bool
    text: str


def _blame(file: Path, head: str) -> Iterator[_CommittedLine]:
    """Yield the lines of a committed file."""
    told = _git(file, *_BLAME, head, "--", file.name)
    commit, boundaries = b"", set()
    for line in told.split(b"\n"):
        if line.startswith(b"\t"):
            yield _CommittedLine(commit, commit in boundaries, line.decode("utf-8", "replace").strip())
        elif line == b"boundary":
            boundaries.add(commit)
        elif found := _LINE.fullmatch(line):
            commit = found[1]


def _authors(file: Path, commits: Collection[bytes]) -> dict[bytes, str]:
    """Return the e-mail address of each commit's author, as it was committed: a `.mailmap` is the
    repository's.
    """
    given = b"\n".join(sorted(commits)).decode()
    told = _git(file, "rev-list", "--no-walk=unsorted", "--format=<%ae>", "--stdin", given=given).splitlines()
    pairs = zip(told[::2], told[1::2], strict=True)
    return {line.removeprefix(b"commit "): _address(address) for line, address in pairs}


def _own_addresses(file: Path) -> frozenset[str]:
    """Return the e-mail addresses for commits of this user: of the user's and the repository's
    settings, or else the one that git makes up.
    """
    try:
        told = _git(file, "config", "-z", "--get-regexp", r"^(user|author)\.email$")
        return frozenset(_fold_address(os.fsdecode(each.partition(b"\n")[2])) for each in told.split(b"\0") if each)
    except _NoAnswerError:
        pass
    try:
        found = re.search(rb"<([^<>]+)>", _git(file, "var", "GIT_AUTHOR_IDENT"))
    except _NoAnswerError:
        return frozenset()
    return frozenset([_fold_address(os.fsdecode(found[1]))] if found else ())


def _address(told: bytes) -> str:
    return _fold_address(os.fsdecode(told[1:-1]))


def _fold_address(address: str) -> str:
    return address.strip().casefold()


def _is_shallow(file: Path) -> bool:
    return _git(file, "rev-parse", "--is-shallow-repository").strip() != b"false"


def _git(file: Path, *arguments: str, given: str = "") -> bytes:
    """Run git in the file's folder and return the output: in nested repositories the inner one
    answers. Raises _NoAnswerError.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "LC_ALL": "C",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
    }
    command = ["git", *_ALONE, "-C", os.fspath(file.parent), *arguments]
    done = subprocess.run(
        command, input=os.fsencode(given), capture_output=True, timeout=_DEADLINE_S, check=False, env=env
    )
    if done.returncode:
        raise _NoAnswerError(os.fsdecode(done.stderr[:200]))
    return done.stdout
