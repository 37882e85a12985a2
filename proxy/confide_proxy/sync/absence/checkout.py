"""Detect memory files that git has changed although the user did not mean to change them on other
devices.

Checking out a commit that does not descend from the previous one sets files back to older texts or
removes them. A sparse checkout removes files too. A stash, `git checkout .` and `git reset --hard`
replace texts that are not committed by the committed ones. A merge writes its conflicts into files.

Only git's objects and refs are read; no filter, hook or fetch that an untrusted repository
configures runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confide_memory.documents import MEMORY_FILES, MEMORY_FOLDER, to_nfc
from confide_proxy.sync.project import git_says
from confide_proxy.sync.walk import plain_file

_MOST_BYTES: Final = 16 << 20
"""Bytes of `packed-refs` that are read; it has a line for each branch and tag."""
_STALE_S: Final = 60.0
"""Age in seconds after which a lock file counts as left behind by a killed git."""
_JUST_S: Final = 0.3
"""Seconds after a write of the index in which a checkout may still be under way: git writes the
files, then the index, and `HEAD` last.
"""
_REFS: Final = "ref: "
_ENTRY: Final = re.compile(rb"\A\d+ ([0-9a-f]+) 0\t.*?\n +mtime: (\d+):(\d+)\n.*?\bsize: (\d+)\t", re.DOTALL)
"""An entry of the index, as `git ls-files --stage --debug` prints it, of a file that has no conflict."""
_MARKERS: Final = re.compile(r"^<{7} .*^={7}\r?$.*^>{7} ", re.DOTALL | re.MULTILINE)
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize %d\n"
_AMID: Final = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")


class IndexEntry(NamedTuple):
    """A file's entry in git's index: its blob id, and the time and size that the file had when git
    last wrote or compared it.
    """

    blob: str
    mtime_ns: int
    size: int


class Checkout:
    """The git working tree that contains a folder, if there is one. Methods block briefly.

    Paths are relative to the project's folder, also where memory is a repository by itself.
    """

    def __init__(self, root: Path, within: str = "") -> None:
        """`within`: the folder below `root` whose working tree is meant, and whose files are."""
        self._root = root / within
        self._prefix = f"{within}/" if within else ""
        self._places = (".",) if within else (*MEMORY_FILES, MEMORY_FOLDER)
        self._last_commits: tuple[str, str] = ("", "")
        self._changed_files: Mapping[str, str] = {}

    def head(self) -> str:
        """Return the id of the commit that is checked out; "" if the folder is not in a repository,
        or if git does not store its refs as files.
        """
        kept = self._git_folder()
        named = _first_line(kept / "HEAD") if kept is not None else ""
        return self._commit_of(named.removeprefix(_REFS)) if named.startswith(_REFS) else named

    def branch(self, name: str) -> str | None:
        """Return the id of the newest commit of a local branch, or of `remote/branch`. "" if no
        such branch exists, None if git does not store its refs as files.
        """
        kept = self._git_folder()
        if kept is None or (kept / (_first_line(kept / "commondir") or ".") / "reftable").exists():
            return None
        return self._commit_of(f"refs/heads/{name}") or self._commit_of(f"refs/remotes/{name}")

    def is_amid(self) -> bool:
        """Return True if a rebase, merge or cherry-pick waits for the user, so that the files
        belong to no commit.
        """
        kept = self._git_folder()
        return kept is not None and any((kept / name).exists() for name in _AMID)

    def stash(self) -> str:
        """Return the id of the newest stash commit, or "" if nothing is stashed."""
        return self._commit_of("refs/stash")

    def changed_files(self, before: str) -> Mapping[str, str]:
        """Return the memory files that differ between the commit `before` and `HEAD`, with their
        blob ids in `HEAD`, "" for a removed file.

        Empty if `HEAD` descends from `before`. If the present branch has no commit (`git switch
        --orphan`), all files of `before` count as removed.
        """
        now = self.head() or self._unborn()
        if not before or not now or before == now:
            return {}
        if self._last_commits != (before, now):
            is_unborn = now.startswith(_REFS)
            self._changed_files = (
                dict.fromkeys(self._memory_in(before), "") if is_unborn else self._differing(before, now)
            )
            self._last_commits = (before, now)
        return self._changed_files

    def stashed_files(self) -> frozenset[str]:
        """Return the untracked memory files that the newest stash contains."""
        return frozenset(self._memory_in("refs/stash^3"))

    def text(self, blob: str) -> str | None:
        """Return the text of a blob, or None if it cannot be read or is not UTF-8."""
        code, said = git_says(self._root, "cat-file", "blob", blob)
        with suppress(UnicodeDecodeError):
            return said.decode() if code == 0 else None
        return None

    def sparse_files(self, paths: Collection[str]) -> frozenset[str]:
        """Return the files, below the top folders of these paths, that git tracks and a sparse
        checkout leaves out of the working tree.
        """
        tops = {"."} if self._prefix else {path.partition("/")[0] for path in paths}
        asked = ("--literal-pathspecs", "ls-files", "-t", "-z", "--", *sorted(tops))
        code, said = git_says(self._root, *asked)
        told = _names(said) if code == 0 else []
        return frozenset(to_nfc(self._prefix + name[2:]) for name in told if name.startswith("S "))

    def indexed(self, path: str) -> IndexEntry | None:
        """Return the entry of a file in git's index; None if git does not track the file, or if it
        is in conflict.
        """
        code, said = git_says(
            self._root, "--literal-pathspecs", "ls-files", "--stage", "--debug", "--", self._own(path)
        )
        entry = _ENTRY.search(said) if code == 0 else None
        if entry is None:
            return None
        blob, seconds, nanoseconds, size = entry.groups()
        return IndexEntry(blob.decode(), int(seconds) * 10**9 + int(nanoseconds), int(size))

    def blob_in(self, commit: str, path: str) -> str:
        """Return the id of a file's blob in a commit; "" if the commit does not contain the file."""
        code, said = git_says(self._root, "--literal-pathspecs", "ls-tree", "-z", commit, "--", self._own(path))
        parts = said.split(b"\t")[0].split(b" ")
        return parts[2].decode() if code == 0 and len(parts) == 3 else ""

    def has_stashed(self, path: str, blob: str) -> bool:
        """Return True if the newest stash contains the file with a text other than this blob."""
        return bool(self.stash()) and self.blob_in("refs/stash", path) not in ("", blob)

    def has_committed(self, path: str, text: str, like: str) -> bool:
        """Return True if the file had this text in `HEAD` or in one of its ancestors. `like` is any
        blob id of the repository, which shows its hash algorithm.
        """
        for blob in _blobs_of(text, like):
            asked = ("log", "-1", "--format=%H", f"--find-object={blob}", "HEAD", "--", self._own(path))
            code, said = git_says(self._root, "--literal-pathspecs", *asked)
            if code == 0 and said.strip():
                return True
        return False

    def is_in_conflict(self, path: str, text: str) -> bool:
        """Return True if git has written conflict markers into a file, and the conflict is not
        resolved. Markers in a file that git does not report as in conflict do not count.
        """
        if not _MARKERS.search(text):
            return False
        code, said = git_says(self._root, "--literal-pathspecs", "ls-files", "--unmerged", "-z", "--", self._own(path))
        return code == 0 and bool(said)

    def is_busy(self) -> bool:
        """Return True while git is changing the working tree. Only after that does `HEAD` match the
        files.
        """
        kept = self._git_folder()
        for name, most_s in (("index.lock", _STALE_S), ("index", _JUST_S)):
            with suppress(OSError):
                if kept is not None and 0 <= time.time() - (kept / name).stat().st_mtime < most_s:
                    return True
        return False

    def _memory_in(self, commit: str) -> list[str]:
        """Return the memory files in a commit."""
        names = ("ls-tree", "-r", "-z", "--name-only", commit, "--", *self._places)
        code, said = git_says(self._root, *names)
        return [self._prefix + name for name in _names(said)] if code == 0 else []

    def _unborn(self) -> str:
        """Return the name of the branch that is checked out and has no commit yet; "" for any other."""
        kept = self._git_folder()
        if kept is None or (kept / (_first_line(kept / "commondir") or ".") / "reftable").exists():
            return ""
        named = _first_line(kept / "HEAD")
        return named if named.startswith(_REFS) else ""

    def _differing(self, before: str, now: str) -> Mapping[str, str]:
        if git_says(self._root, "merge-base", "--is-ancestor", before, now)[0] == 0:
            return {}  # a commit or a pull: its changes are meant
        asked = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--relative", before, now)
        code, said = git_says(self._root, *asked, "--", *self._places)
        if code:
            return {}
        parts = _names(said)
        found = {}
        for told, path in zip(parts[::2], parts[1::2], strict=False):
            blob = told.split(" ")[3] if told.count(" ") == 4 else ""
            found[self._prefix + path] = blob if blob.strip("0") else ""
        return found

    def _own(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _commit_of(self, name: str) -> str:
        kept = self._git_folder()
        if kept is None:
            return ""
        common = kept / (_first_line(kept / "commondir") or ".")
        return _first_line(common / name) or _packed_ref(common / "packed-refs", name)

    def _git_folder(self) -> Path | None:
        """Return the git directory of the working tree, or None outside of a repository."""
        for above in (self._root, *self._root.parents):
            link = above / ".git"
            if link.is_dir():
                return link
            if link.is_file():
                return above / _first_line(link).removeprefix("gitdir:").strip()
        return None


def is_written_from(blob: str, text: str) -> bool:
    """Return True if git writes a file with this text from a blob of this id, with the blob's line
    ends or with others (`core.autocrlf`, or `eol` in `.gitattributes`). The blob may be a pointer of
    Git LFS to the text.
    """
    return blob in _blobs_of(text, blob)


def forms_of(text: str) -> set[str]:
    r"""Return a text with the line ends that it has, with "\n" and with "\r\n"."""
    unix = text.replace("\r\n", "\n")
    return {text, unix, unix.replace("\n", "\r\n")}


def _blobs_of(text: str, like: str) -> set[str]:
    """Return the ids that git may give to a blob with this text: SHA-1 or SHA-256, whichever the
    blob id `like` is.
    """
    kind = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    forms = [form.encode() for form in forms_of(text)]
    forms += [_LFS_POINTER % (hashlib.sha256(data).hexdigest().encode(), len(data)) for data in forms]
    return {kind(b"blob %d\0" % len(data) + data).hexdigest() for data in forms}


def _names(said: bytes) -> list[str]:
    return [os.fsdecode(name) for name in said.split(b"\0") if name]


def _first_line(file: Path) -> str:
    try:
        return plain_file(file, 4096)[0].decode("utf-8", "surrogateescape").partition("\n")[0].strip()
    except OSError:
        return ""


def _packed_ref(file: Path, name: str) -> str:
    with suppress(OSError):
        for line in plain_file(file, _MOST_BYTES)[0].splitlines():
            commit, _, ref = line.partition(b" ")
            if os.fsdecode(ref) == name:
                return os.fsdecode(commit)
    return ""
