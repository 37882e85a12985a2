"""Decide if missing files of a folder were deleted or lost. Comparison, watching and incoming
revisions all use this rule.

When a user deletes a few files, and the folder around them stays as it is, Confide reports the
deletion to the daemon, and all other devices delete theirs. A new clone, `git clean`, an unmounted
disk or a slow `rm -rf` make files go missing too, but no user meant other devices to lose theirs.
So missing files count as *lost*, not deleted, in each of these cases:

- more than `MOST` files, or half of all (but at least `FEW`), are missing at one look, including
  those that were reported as deleted within `HOLD_S`;
- all files of the folder are missing, and it had more than one;
- the folder, its `.git`, or the folder that contained them has another identity than at the last
  comparison, or `.git` or `memory/` is missing;
- a folder exists, but contains none of its `FEW` or more files.

A file whose text is in the folder under another name was renamed, and counts in none of these
cases.

Files that git removed (`checkout`, also a sparse one) wait until git restores them, and so do texts
that git has set back: a revision from the daemon, written in between, would prevent git from
restoring them. If git replaced a text by the committed one and keeps no copy, as `git checkout .`
does, the daemon's text comes back after `LONGEST_HOLD_S`: programs such as pre-commit put changes
aside by themselves, and apply them again. So do the texts of files that are empty all at once, as
after a power cut.

Lost files are restored from the daemon, or wait. A watching process waits for `HOLD_S` first, and
longer while the project around is being removed: a file that is restored into a folder during its
removal makes the removal fail. Deletions that were reported just before the loss are undone. A user
who does mean to delete the files confirms it: `confide sync --deleted`.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from itertools import chain
from typing import Final, NamedTuple

from confide_memory.documents import MEMORY_FOLDER, text_hash
from confide_proxy.errors import FolderError
from confide_proxy.sync.absence.checkout import Checkout, forms_of, is_written_from
from confide_proxy.sync.absence.folder_identity import born_after, identity_of
from confide_proxy.sync.absence.notice import Notice
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger

MOST: Final = 10
"""Most files that a user deletes by hand at once; tidying up ten notes takes an afternoon."""
FEW: Final = 3
"""With fewer missing files, "half of all" does not count as a loss: users delete one or two by hand
every day.
"""
HOLD_S: Final = 10.0
"""Seconds after which a possible loss is checked again. Removing 60,000 small files takes 18 s."""
LATE_S: Final = 60.0
"""Age in seconds up to which reported deletions count as part of a loss of the whole folder; for
other losses it is `HOLD_S`.
"""
LONGEST_HOLD_S: Final = 120.0
_GOING_S: Final = 3.0
"""Seconds since the last change of a subfolder in which the project counts as being removed."""
_MOST_TOLD: Final = 1000
_MOST_FOLDERS: Final = 500
"""Folders of memory whose identities are recorded."""
_ROOT: Final = "."
_GIT: Final = ".git"
_HEAD: Final = "HEAD"
_STASH: Final = "stash"
_INNER: Final = f"{MEMORY_FOLDER}/.git/"
"""Begins the names of what is recorded of a repository that memory is by itself."""
_TAKEN: Final = "git has another commit checked out, has them in its stash, or leaves them out of a sparse checkout"


def is_wholesale(missing: int, of: int) -> bool:
    """Return True if `missing` files out of `of`, all found missing at once, are more than a user
    deletes by hand.
    """
    return missing > MOST or (missing >= FEW and 2 * missing >= of) or (missing == of and missing > 1)


Meant = Collection[str] | None
"""The missing files whose deletion a user has confirmed; None for all files that are missing."""


class Verdict(NamedTuple):
    """The decision about missing files: deleted, lost, or not decided yet. A file that may still
    exist, such as one behind a symlink, is in none of the three sets.

    Attributes:
        deleted: files that a user deleted; their deletion is reported to the daemon.
        lost: files that were lost, and are restored from the daemon.
        waiting: files to decide about later.
        why: the reason why files are lost or wait, for users; "" if there are none.
    """

    deleted: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    why: str = ""

    @property
    def kept_files(self) -> frozenset[str]:
        """The missing files that the daemon keeps, because they are lost or not decided about yet."""
        return self.lost | self.waiting

    @property
    def is_loss(self) -> bool:
        """True if there are signs that files were lost, even if that will be checked again. False
        if a user deleted the missing files, git removed them, or nothing shows a loss yet.
        """
        return bool(self.kept_files) and self.why not in ("", _TAKEN)


class GitChange(Enum):
    """A change that git made to a file, whose text now differs from the one that the daemon last
    confirmed.

    Attributes:
        NONE: nothing; a user wrote the text.
        SET_BACK: git replaced the text by that of another commit, or removed the file with it.
        STASHED: git moved the text into the stash, and replaced it by the committed one.
        JUST_PUT_BACK: git replaced the text by the committed one a moment ago, or in the middle of
            a rebase, so it may still restore the text.
        PUT_BACK: git replaced the text by the committed one, and kept no copy.
        CONFLICT: git wrote the conflicts of a merge into the file.
    """

    NONE = auto()
    SET_BACK = auto()
    STASHED = auto()
    JUST_PUT_BACK = auto()
    PUT_BACK = auto()
    CONFLICT = auto()


class ReportedDeletion(NamedTuple):
    """A deletion of a file that was reported to the daemon: the time, the path, the file's last
    confirmed state, and the revision that deleted it.
    """

    at: float
    path: str
    known: Confirmed
    revision: int


class Absence:
    """Decides, for one folder, if missing files were deleted or lost. Methods access the disk
    briefly.
    """

    def __init__(self, folder: Folder, ledger: SyncLedger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._ledger = ledger
        self._clock = clock
        self._reported: deque[ReportedDeletion] = deque(maxlen=_MOST_TOLD)
        self._renames: set[str] = set()
        """Renamed files whose old names have not been reported as deleted yet."""
        self._since: float | None = None
        """When a possible loss was first seen, on the instance's clock; None if none is open."""
        self._names: frozenset[str] = frozenset()
        """Names of the other entries in the folder at the last look."""
        self._checkouts = {"": Checkout(folder.root), _INNER: Checkout(folder.root, MEMORY_FOLDER)}
        self._removal_times: deque[float] = deque(maxlen=_MOST_TOLD)
        self._came_back: deque[float] = deque(maxlen=_MOST_TOLD)
        self._emptied: dict[str, float] = {}
        """When files were last judged to be empty all at once, by path."""
        self._put_back: dict[str, str] = {}
        """Blob ids of the texts that git put back, by path: the bases of edits until one is sent."""
        self.notice = Notice(ledger.notice)

    def is_another(self) -> bool:
        """Return True if the path now leads to another folder, or to another `.git`, than the
        ledger has recorded.
        """
        before = self._ledger.folder()
        root, git = self._folder.root, self._folder.root / _GIT
        if not before:
            # A ledger of an earlier version has no identities: compare the age of the repository
            # with the ledger's last write.
            return self._ledger.count() > 0 and born_after(git, self._ledger.written_ns())
        now = {_ROOT: identity_of(root), _GIT: identity_of(git)}
        return any(now[name] and before.get(name) and now[name] != before[name] for name in now)

    def restart(self) -> dict[str, str]:
        """Clear the records of the folder that was at the path before. Return the files that the
        new folder lacks: their paths, with the hashes of the texts that the daemon last confirmed.
        """
        before = self._ledger.all()
        self._ledger.restart(self._identities(()))
        self._since = None
        return {path: known.hash for path, known in before.items() if self._is_absent(path)}

    def note_looked(self, waiting: Collection[str]) -> None:
        """Record the identity of the folder and of its subfolders after all files were compared.
        While files are in `waiting`, earlier records stay, since these files may come back.
        """
        before = self._ledger.folder()
        now = self._identities(path for path in self._ledger.all() if path not in waiting)
        if waiting:
            commits = {key + name for key in self._checkouts for name in (_HEAD, _STASH)}
            now |= {name: identity for name, identity in before.items() if name not in commits}
        self._ledger.note_folder({**now, **self._commits(before, is_waiting=bool(waiting))})
        self._names = self._other_entries()
        if not waiting:
            self._since = None

    def note_commits(self) -> None:
        """Record git's `HEAD` and stash after changed files were sent. While a file waits for git
        to restore it, the earlier records stay.
        """
        before = self._ledger.folder()
        if before:
            self._ledger.note_folder({**before, **self._commits(before, is_waiting=False)})

    def _commits(self, before: dict[str, str], *, is_waiting: bool) -> dict[str, str]:
        """Return `HEAD` and the stash to record: the previous ones while a file waits for git to
        restore it.
        """
        now: dict[str, str] = {}
        for key, checkout in self._present():
            now |= {key + _HEAD: checkout.head(), key + _STASH: checkout.stash()}
        if is_waiting or self._is_set_back_anywhere():
            return {name: before[name] for name in now if name in before}
        return now

    def judge(self, missing: Iterable[str], *, is_patient: bool, meant: Meant = ()) -> Verdict:
        """Decide if missing files were deleted or lost.

        Args:
            missing: paths of the files that were not found.
            is_patient: True if the caller watches the folder and will check again; files may then
                be left to decide about later.
            meant: the files whose deletion a user has confirmed.

        Raises FolderError if the folder itself is missing, as on an unmounted disk.
        """
        root = self._folder.root
        if not root.is_dir():
            raise FolderError(str(root), "is not there", hint="nothing is taken for deleted while it is missing")
        gone = frozenset(path for path in missing if self._folder.is_missing(path))
        if not gone:
            return Verdict()
        if meant is None:
            # Even then: what a sparse checkout leaves out of the disk is in the repository as before.
            left_out = self._outside_of_sparse_checkouts(gone)
            return Verdict(gone - left_out, frozenset(), left_out, _TAKEN if left_out else "")
        said = gone.intersection(meant)
        # The others went missing together with these, so they count as lost with them.
        verdict = self._judge(gone - said, is_patient) if gone - said else Verdict()
        return verdict._replace(deleted=verdict.deleted | said)

    def _judge(self, gone: frozenset[str], is_patient: bool) -> Verdict:
        """Decide about missing files of which no user has said anything."""
        now = self._clock()
        known = {*self._ledger.all(), *self._ledger.unanswered_files()}
        known = {path for path in known if self._folder.is_watched(path)}
        taken = self._removed_by_git(gone)
        if taken == gone:
            return Verdict(frozenset(), frozenset(), taken, _TAKEN)
        renamed = self._find_renamed(gone)
        gone -= taken
        known -= taken | renamed
        signs = self._signs(known, {path for path in known if self._is_absent(path)}, now)
        lost = gone & signs.keys()
        why = signs[min(lost)] if lost else _TAKEN if taken else ""
        if not lost:
            if is_patient and self._is_disturbed(now):
                return Verdict(frozenset(), frozenset(), gone | taken, why)
            return Verdict(gone, frozenset(), taken, why)
        if is_patient and self._is_held(now):
            return Verdict(frozenset(), frozenset(), gone | taken, why)
        # Confide never writes to files outside of memory (globs of `extra`): these wait until they
        # come back.
        back = frozenset(path for path in lost if self._folder.is_memory(path))
        return Verdict(gone - lost, back, lost - back | taken, why)

    def is_busy(self) -> bool:
        """Return True while git is changing the folder."""
        return any(checkout.is_busy() for _key, checkout in self._present())

    def change_by_git(self, path: str) -> GitChange:
        """Return what git did to a file whose text differs from the one that the daemon last
        confirmed. Reads the file and runs git commands.

        For files outside the memory (`extra` in the configuration) the result is always NONE, since
        Confide only reads them.
        """
        if not self._folder.is_memory(path):
            return GitChange.NONE
        try:
            text = self._folder.own_text(path)
        except FolderError:
            return GitChange.NONE
        moved = self._checkout_changes().get(path)
        if moved is not None and (not moved if text is None else is_written_from(moved, text)):
            return GitChange.SET_BACK
        if text is None:
            return GitChange.NONE
        spelled = self._folder.spelling_of(path)
        key, checkout = self._of(path)
        if checkout.is_in_conflict(spelled, text):
            return GitChange.CONFLICT
        commit = self._ledger.folder().get(key + _HEAD, "")
        if not commit or self._ledger.get(path) is None:
            return GitChange.NONE
        # A user who types the committed text again leaves a file that is newer than git's index.
        entry = checkout.indexed(spelled)
        if entry is None or not is_written_from(entry.blob, text):
            return GitChange.NONE
        try:
            state = os.lstat(self._folder.root / spelled)
        except OSError:
            return GitChange.NONE  # removed since, which has an event of its own
        is_of_git = (entry.mtime_ns, entry.size) == (state.st_mtime_ns, state.st_size)
        # What a commit or a pull since the last look changed is meant.
        if not is_of_git or checkout.blob_in(commit, spelled) != entry.blob:
            return GitChange.NONE
        self._put_back[path] = entry.blob
        if checkout.has_stashed(spelled, entry.blob):
            return GitChange.STASHED
        is_recent = 0 <= time.time() - state.st_mtime < LONGEST_HOLD_S
        return GitChange.JUST_PUT_BACK if is_recent or checkout.is_amid() else GitChange.PUT_BACK

    def is_committed(self, path: str, text: str) -> bool:
        """Return True if git replaced a file's text although that text is also in the present
        commit or in an earlier one. Then no text is lost, and the user meant the change.
        """
        like = self._put_back.get(path, "")
        return bool(like) and self._of(path)[1].has_committed(self._folder.spelling_of(path), text, like)

    def note_agreed(self, path: str) -> None:
        """Record that this device and the daemon have the same text of a file again, so that git's
        earlier change to it no longer matters.
        """
        self._put_back.pop(path, None)

    def is_set_back(self, path: str) -> bool:
        """Return True if git replaced a file's text or removed the file, and can restore it: by
        checking out a commit that does not descend from the one before, or by a stash.
        """
        return self.change_by_git(path) in (GitChange.SET_BACK, GitChange.STASHED)

    def is_emptied(self, path: str) -> bool:
        """Return True if the file is one of many memory files that became empty at once: more than
        a user empties by hand.
        """
        confirmed = self._ledger.all()
        if not self._folder.is_memory(path) or not (known := confirmed.get(path)) or not known.size:
            return False
        now = self._clock()
        # Files are judged side by side: those that have their texts again count as well.
        emptied = {other for other, at in self._emptied.items() if at >= now - HOLD_S}
        for other, was in confirmed.items():
            with suppress(OSError):
                if was.size and not os.lstat(self._folder.root / self._folder.spelling_of(other)).st_size:
                    emptied.add(other)
            if len(emptied) > MOST:
                break
        if not is_wholesale(len(emptied), len(confirmed)):
            return False
        self._emptied = dict.fromkeys(emptied, now)
        return True

    def note_came_back(self, why: str) -> None:
        """Record that the daemon's newest text replaced the text of a file, because no user meant
        to change it. The notice says how many such files there were within `HOLD_S` seconds. `why`
        is the reason, as a part of a sentence.
        """
        with self.notice.turn:
            now = self._clock()
            self._came_back.append(now)
            self.notice.note_came_back(sum(1 for at in self._came_back if at >= now - HOLD_S), why)

    def made_from(self, path: str) -> str | None:
        """Return the text that git wrote into a file when it set the text back or stashed it. It is
        the base of the user's later edits. None if git wrote no text.
        """
        checkout = self._of(path)[1]
        blob = self._checkout_changes().get(path, self._put_back.get(path))
        if blob is not None or not checkout.stash():
            return checkout.text(blob) if blob else None
        known, spelled = self._ledger.get(path), self._folder.spelling_of(path)
        stashed = checkout.text(checkout.blob_in("refs/stash", spelled)) if known else None
        if known is None or stashed is None or known.hash not in map(text_hash, forms_of(stashed)):
            return None
        entry = checkout.indexed(spelled)
        return checkout.text(entry.blob) if entry else None

    def _checkout_changes(self) -> Mapping[str, str]:
        before = self._ledger.folder()
        found: dict[str, str] = {}
        for key, checkout in self._present():
            found |= checkout.changed_files(before.get(key + _HEAD, ""))
        return found

    def _present(self) -> list[tuple[str, Checkout]]:
        """Return the working trees that memory files are in: the project's, and one that memory is by
        itself; each after the beginning of the names of its records.
        """
        inner = self._folder.root / MEMORY_FOLDER
        is_inner = os.path.lexists(inner / _GIT) and not inner.is_symlink()
        return [(key, checkout) for key, checkout in self._checkouts.items() if is_inner or not key]

    def _of(self, path: str) -> tuple[str, Checkout]:
        """Return the working tree that a file is in, after the beginning of the names of its records."""
        return self._present()[-1 if path.startswith(f"{MEMORY_FOLDER}/") else 0]

    def _find_renamed(self, gone: frozenset[str]) -> frozenset[str]:
        """Return those missing files whose text exists here under another name. Each present file
        accounts for one missing file.
        """
        confirmed = self._ledger.all()
        wanted = {known.hash for path, known in confirmed.items() if path in gone}
        here = Counter(
            digest for path, digest in self._hashes(confirmed, wanted) if digest in wanted and path not in gone
        )
        found = set()
        for path in sorted(gone & confirmed.keys()):
            if here[confirmed[path].hash] > 0:
                here[confirmed[path].hash] -= 1
                found.add(path)
        self._renames = (self._renames & gone) | found
        return frozenset(found)

    def _hashes(self, confirmed: Mapping[str, Confirmed], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield path and hash of each present file. Confirmed files are not read: they keep their
        confirmed hash.
        """
        if not wanted:
            return
        for file in self._folder.walk():
            known = confirmed.get(file.path)
            if known is not None:
                yield file.path, known.hash
                continue
            with suppress(FolderError):
                if (content := self._folder.read(file.path)) is not None:
                    yield file.path, content.hash

    def _removed_by_git(self, gone: frozenset[str]) -> frozenset[str]:
        """Return those missing files that git removed, by a checkout, a sparse one or a stash."""
        taken = frozenset(path for path in gone if self.is_set_back(path))
        taken |= self._outside_of_sparse_checkouts(gone)
        for key, checkout in self._present():
            stash = checkout.stash()
            if taken != gone and stash and stash != self._ledger.folder().get(key + _STASH):
                taken |= gone & checkout.stashed_files()
        return taken

    def _outside_of_sparse_checkouts(self, gone: frozenset[str]) -> frozenset[str]:
        """Return those missing files that git tracks, and leaves out of a sparse checkout."""
        return gone.intersection(chain.from_iterable(checkout.sparse_files(gone) for _key, checkout in self._present()))

    def _is_set_back_anywhere(self) -> bool:
        """Return True if git has set back any file to a text that is not the confirmed one."""
        confirmed = self._ledger.all()
        for path in filter(self._folder.is_watched, self._checkout_changes()):
            try:
                content = self._folder.read(path)
            except FolderError:
                continue
            known = confirmed.get(path)
            is_agreed = known.matches(content.hash) if known and content else known is None and content is None
            if not is_agreed and self.is_set_back(path):
                return True
        return False

    def lost_files(self) -> frozenset[str]:
        """Return the files that count as lost now, or are not decided about. Raises FolderError if
        the folder itself is missing.
        """
        missing = [path for path in self._ledger.all() if self._is_absent(path)]
        return self.judge(missing, is_patient=False).kept_files

    def note_told(self, path: str, known: Confirmed, revision: int) -> None:
        """Record that the deletion of a file was reported to the daemon and became `revision`.
        `known` is the file's last confirmed state.
        """
        if path in self._renames:
            self._renames.discard(path)
        else:
            self._reported.append(ReportedDeletion(self._clock(), path, known, revision))

    def take_reported_deletions(self) -> list[ReportedDeletion]:
        """Return the deletions that were reported so lately that they belong to the present loss,
        and forget them.
        """
        is_whole = not self._folder.root.is_dir() or bool(self._whole_loss())
        since = self._clock() - (LATE_S if is_whole else HOLD_S)
        found = [told for told in self._reported if told.at >= since]
        for told in found:
            self._reported.remove(told)
        return found

    def _whole_loss(self) -> str:
        """Return the reason why all missing files are lost; "" if each is judged by itself."""
        if self.is_another():
            return "the folder is another one than before, such as a new clone"
        if self._ledger.folder().get(_GIT) and not identity_of(self._folder.root / _GIT):
            return "the folder's .git is missing"
        return ""

    def note_dropped(self) -> None:
        """Count a file that was deleted because another device deleted it. Write a notice if there
        were many within `HOLD_S` seconds.
        """
        with self.notice.turn:
            now = self._clock()
            self._removal_times.append(now)
            lately = sum(1 for at in self._removal_times if at >= now - HOLD_S)
            if is_wholesale(lately, self._ledger.count() + lately):
                self.notice.note_dropped(lately)

    def _signs(self, known: set[str], absent: set[str], now: float) -> dict[str, str]:
        """Map each lost file to the reason, a text for users."""
        before, root = self._ledger.folder(), self._folder.root
        if whole := self._whole_loss():
            return dict.fromkeys(absent, whole)
        lately = {told.path for told in self._reported if told.at >= now - HOLD_S} - known
        if is_wholesale(len(absent | lately), len(known | lately)):
            return dict.fromkeys(absent, "they went missing together")
        found: dict[str, str] = {}
        for folder in {above for path in absent for above in _above(path)}:
            inside = {path for path in known if path.startswith(f"{folder}/")}
            lost = inside & absent
            there = identity_of(root / self._folder.spelling_of(folder))
            if there and before.get(folder) not in (None, there):
                found |= dict.fromkeys(lost, f"{folder}/ is another folder than before, such as a disk's")
            elif there and lost == inside and len(inside) >= FEW:
                found |= dict.fromkeys(lost, f"{folder}/ is empty, as without its disk")
            elif not there and folder == MEMORY_FOLDER:
                found |= dict.fromkeys(lost, f"{folder}/ is missing altogether")
        return found

    def _is_held(self, now: float) -> bool:
        """Return True if a loss is to be checked again before files are restored."""
        if self._since is None:
            self._since = now
        held_s = now - self._since
        return held_s < HOLD_S or (held_s < LONGEST_HOLD_S and self._is_going())

    def _is_disturbed(self, now: float) -> bool:
        """Return True if entries beside the memory disappeared at the same time: a check a moment
        later shows if the whole folder is being removed.
        """
        names, before = self._other_entries(), self._names
        if self._since is not None and now - self._since >= HOLD_S:
            self._since, self._names = None, names
            return False
        if before - names:
            self._since = self._since if self._since is not None else now
            return True
        self._names = names
        return False

    def _is_going(self) -> bool:
        """Return True if the project around the memory is being removed."""
        try:
            with os.scandir(self._folder.root) as entries:
                since = time.time() - _GOING_S
                return any(
                    entry.is_dir(follow_symlinks=False)
                    and not entry.name.startswith(".")
                    and entry.name != MEMORY_FOLDER
                    and entry.stat(follow_symlinks=False).st_mtime > since
                    for entry in entries
                )
        except OSError:
            return True

    def _other_entries(self) -> frozenset[str]:
        """Return the names of the folder's other entries, without memory, hidden files and editors'
        backups.
        """
        try:
            names = [entry.name for entry in self._folder.root.iterdir()]
        except OSError:
            return frozenset()
        own = {MEMORY_FOLDER, *(path for path in self._ledger.all() if "/" not in path)}
        return frozenset(name for name in names if name not in own and not name.startswith(".") and "~" not in name)

    def _is_absent(self, path: str) -> bool:
        return not os.path.lexists(self._folder.root / self._folder.spelling_of(path))

    def _identities(self, paths: Iterable[str]) -> dict[str, str]:
        root = self._folder.root
        folders = sorted({above for path in paths for above in _above(path)})[:_MOST_FOLDERS]
        named = {_ROOT: root, _GIT: root / _GIT, **{name: root / self._folder.spelling_of(name) for name in folders}}
        found = {name: identity_of(place) for name, place in named.items()}
        return {name: identity for name, identity in found.items() if identity}


def _above(path: str) -> list[str]:
    """Return the folders that contain `path`, outermost first, without the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
