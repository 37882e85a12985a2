"""What it means that files of a folder are missing: the one rule for everything that compares, watches or receives.

A person deletes a file or a few, and the folder around them stays as it is: the daemon is told, and all other machines delete theirs.
A clone made anew, `git clean`, an unmounted disk or a slow `rm -rf` make files go missing too, and nobody meant that other machines lose
theirs. So what goes missing is *lost*, and not deleted, where one of these holds:

- more than `MOST` files, or half of all (but at least `FEW`), are missing at one look, counting those that were told within `HOLD_S`;
- all files of the folder are missing, and it had more than one;
- the folder, its `.git`, or the folder that they were in is another one than when it was last compared, or `.git` or `memory/` is gone;
- a folder that is there holds none of the `FEW` files or more that it held.

A file whose text is in the folder under another name was renamed, and counts in none of these.

Where git took them (`checkout`), they wait until it brings them back, and so do texts that it has set back: what comes from the daemon in
between would keep git from doing so.

What is lost comes back from the daemon, or waits. Whoever watches waits for `HOLD_S` first, and for as long as the project around is
being taken apart: a file that comes back into a folder while that is removed keeps it from being removed. Deletions that were told just
before are taken back.
A person who means it says so: `confide sync --deleted`.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from confide_memory.documents import MEMORY_FOLDER
from confide_proxy.errors import FolderError
from confide_proxy.sync.absence.checkout import Checkout, blob_of
from confide_proxy.sync.absence.folder_identity import born_after, identity_of
from confide_proxy.sync.absence.notice import Notice
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import Confirmed, SyncLedger

MOST: Final = 10
"""Files that somebody deletes at once by hand; ten notes are an afternoon's tidying."""
FEW: Final = 3
"""Of so few files, half is one or two: these are deleted by hand every day."""
HOLD_S: Final = 10.0
"""What may be a loss is looked at again after so long. 60,000 small files are removed in 18 s."""
LATE_S: Final = 60.0
"""Deletions that were told up to so long before the whole folder went are of that; before another loss, those of `HOLD_S`."""
LONGEST_HOLD_S: Final = 120.0
_GOING_S: Final = 3.0
"""A folder in which something was removed this lately is still being taken apart."""
_MOST_TOLD: Final = 1000
_MOST_FOLDERS: Final = 500
"""Of memory, whose identities are kept."""
_ROOT: Final = "."
_GIT: Final = ".git"
_HEAD: Final = "HEAD"
_STASH: Final = "stash"
_TAKEN: Final = "git has another commit checked out, or has them in its stash"


def is_wholesale(missing: int, of: int) -> bool:
    """Whether so many files of so many, missing at one look, are more than somebody deletes by hand."""
    return missing > MOST or (missing >= FEW and 2 * missing >= of) or (missing == of and missing > 1)


class Verdict(NamedTuple):
    """What becomes of files that are missing. One that may be there after all, such as behind a link, is in none of the three.

    Attributes:
        deleted: a person deleted them, which the daemon is told.
        lost: they come back from the daemon.
        waiting: neither, for now.
        why: they are lost, for a person; "" where none is.
    """

    deleted: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    why: str = ""

    @property
    def kept(self) -> frozenset[str]:
        """Those that stay at the daemon."""
        return self.lost | self.waiting

    @property
    def is_loss(self) -> bool:
        """Whether some are lost, and not only taken by git or looked at once more."""
        return bool(self.kept) and self.why not in ("", _TAKEN)


class ReportedDeletion(NamedTuple):
    """A deletion that the daemon was told of: what the file held, and the revision that deleted it."""

    at: float
    path: str
    known: Confirmed
    revision: int


class Absence:
    """Judges one folder. Methods touch the disk briefly."""

    def __init__(self, folder: Folder, ledger: SyncLedger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._ledger = ledger
        self._clock = clock
        self._told: deque[ReportedDeletion] = deque(maxlen=_MOST_TOLD)
        self._renames: set[str] = set()
        """Files that were found to be renamed, and whose old names are not told of yet."""
        self._since: float | None = None
        """When something was first seen to be lost that was not looked at again since."""
        self._names: frozenset[str] = frozenset()
        """What was beside the memory at the last look."""
        self._checkout = Checkout(folder.root)
        self._dropped: deque[float] = deque(maxlen=_MOST_TOLD)
        self.notice = Notice(ledger.notice)

    def is_another(self) -> bool:
        """Whether the folder, or its repository, is another one than that of which the ledger knows."""
        before = self._ledger.folder()
        root, git = self._folder.root, self._folder.root / _GIT
        if not before:
            # A ledger from before it knew: the repository was made behind all that was confirmed.
            return self._ledger.count() > 0 and born_after(git, self._ledger.written_ns())
        now = {_ROOT: identity_of(root), _GIT: identity_of(git)}
        return any(now[name] and before.get(name) and now[name] != before[name] for name in now)

    def restart(self) -> dict[str, str]:
        """Forget what was confirmed of the other one; the hashes of that which is not in this one, by path."""
        before = self._ledger.all()
        self._ledger.restart(self._identities(()))
        self._since = None
        return {path: known.hash for path, known in before.items() if self._is_absent(path)}

    def note_looked(self, waiting: Collection[str]) -> None:
        """All was compared: note which folders these are, but for those of what waits, which may come back."""
        before = self._ledger.folder()
        now = self._identities(path for path in self._ledger.all() if path not in waiting)
        if waiting:
            now |= {name: identity for name, identity in before.items() if name not in (_HEAD, _STASH)}
        self._ledger.note_folder({**now, **self._commits(before, is_waiting=bool(waiting))})
        self._names = self._beside()
        if not waiting:
            self._since = None

    def note_commits(self) -> None:
        """What was seen to change was sent: note where git stands, unless something waits for it."""
        before = self._ledger.folder()
        if before:
            self._ledger.note_folder({**before, **self._commits(before, is_waiting=False)})

    def _commits(self, before: dict[str, str], *, is_waiting: bool) -> dict[str, str]:
        """What git has checked out and stashed, as it was when nothing waited for it to bring something back."""
        now = {_HEAD: self._checkout.head(), _STASH: self._checkout.stash()}
        if is_waiting or self._is_set_back_anywhere():
            return {name: before[name] for name in now if name in before}
        return now

    def judge(self, missing: Iterable[str], *, is_patient: bool, is_meant: bool = False) -> Verdict:
        """What it means that these are not found. `is_patient`: somebody watches, and looks again later; `is_meant`: a person says that
        all are deleted.

        Raises FolderError: the folder is not there, as on a disk that is not mounted.
        """
        root = self._folder.root
        if not root.is_dir():
            raise FolderError(str(root), "is not there", hint="nothing is taken for deleted while it is missing")
        gone = frozenset(path for path in missing if self._folder.is_missing(path))
        if is_meant or not gone:
            return Verdict(gone)
        now = self._clock()
        known = {*self._ledger.all(), *self._ledger.unanswered()}
        known = {path for path in known if self._folder.is_watched(path)}
        taken = self._taken(gone)
        if taken == gone:
            return Verdict(frozenset(), frozenset(), taken, _TAKEN)
        renamed = self._renamed(gone)
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
        # What is only read here is never written: it waits until it is there again.
        back = frozenset(path for path in lost if self._folder.is_memory(path))
        return Verdict(gone - lost, back, lost - back | taken, why)

    def is_busy(self) -> bool:
        """Whether git is just changing the folder."""
        return self._checkout.is_busy()

    def is_set_back(self, path: str) -> bool:
        """Whether a file holds what git has put there, or is gone since git took it, with a commit that does not follow upon the one
        before."""
        blob = self._moved().get(path)
        if blob is None:
            return False
        try:
            text = self._folder.own_text(path)
        except FolderError:
            return False
        return (blob_of(text, blob) if text is not None else "") == blob

    def made_from(self, path: str) -> str | None:
        """The text that such a file was edited from; None where git has put none there."""
        blob = self._moved().get(path)
        return self._checkout.text(blob) if blob else None

    def _moved(self) -> Mapping[str, str]:
        return self._checkout.moved(self._ledger.folder().get(_HEAD, ""))

    def _renamed(self, gone: frozenset[str]) -> frozenset[str]:
        """Those of the files that are missing whose text is here under another name: each such file accounts for one."""
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
        """The files that are there, with their hashes; of what was confirmed as something else that is believed."""
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

    def _taken(self, gone: frozenset[str]) -> frozenset[str]:
        """Those of the files that are missing which git took."""
        taken = frozenset(path for path in gone if self.is_set_back(path))
        stash = self._checkout.stash()
        if taken == gone or not stash or stash == self._ledger.folder().get(_STASH):
            return taken
        return taken | (gone & self._checkout.stashed())

    def _is_set_back_anywhere(self) -> bool:
        """Whether a file is not as it was agreed on, since git has set it back."""
        confirmed = self._ledger.all()
        for path in filter(self._folder.is_watched, self._moved()):
            try:
                content = self._folder.read(path)
            except FolderError:
                continue
            known = confirmed.get(path)
            is_agreed = known.matches(content.hash) if known and content else known is None and content is None
            if not is_agreed and self.is_set_back(path):
                return True
        return False

    def count_lost(self) -> int:
        """How many files are taken for lost now. Raises as `judge`."""
        missing = [path for path in self._ledger.all() if self._is_absent(path)]
        return len(self.judge(missing, is_patient=False).kept)

    def note_told(self, path: str, known: Confirmed, revision: int) -> None:
        """The daemon was told that a file is deleted, which became this revision."""
        if path in self._renames:
            self._renames.discard(path)
        else:
            self._told.append(ReportedDeletion(self._clock(), path, known, revision))

    def take_reported_deletions(self) -> list[ReportedDeletion]:
        """The deletions that were told shortly before a loss, and are of it. Each is given once."""
        is_whole = not self._folder.root.is_dir() or bool(self._whole_loss())
        since = self._clock() - (LATE_S if is_whole else HOLD_S)
        found = [told for told in self._told if told.at >= since]
        for told in found:
            self._told.remove(told)
        return found

    def _whole_loss(self) -> str:
        """Why all that is missing is lost, "" where that is to be looked at file by file."""
        if self.is_another():
            return "the folder is another one than before, such as a new clone"
        if self._ledger.folder().get(_GIT) and not identity_of(self._folder.root / _GIT):
            return "the folder's .git is gone"
        return ""

    def note_dropped(self) -> None:
        """A file was deleted here since it was deleted elsewhere: many at once are told of."""
        now = self._clock()
        self._dropped.append(now)
        lately = sum(1 for at in self._dropped if at >= now - HOLD_S)
        if is_wholesale(lately, self._ledger.count() + lately):
            self.notice.note_dropped(lately)

    def _signs(self, known: set[str], absent: set[str], now: float) -> dict[str, str]:
        """Why each of those that are lost is."""
        before, root = self._ledger.folder(), self._folder.root
        if whole := self._whole_loss():
            return dict.fromkeys(absent, whole)
        lately = {told.path for told in self._told if told.at >= now - HOLD_S} - known
        if is_wholesale(len(absent | lately), len(known | lately)):
            return dict.fromkeys(absent, "they went missing together")
        found: dict[str, str] = {}
        for folder in {above for path in absent for above in _above(path)}:
            inside = {path for path in known if path.startswith(f"{folder}/")}
            lost = inside & absent
            there = identity_of(root / self._folder.spelled(folder))
            if there and before.get(folder) not in (None, there):
                found |= dict.fromkeys(lost, f"{folder}/ is another folder than before, such as a disk's")
            elif there and lost == inside and len(inside) >= FEW:
                found |= dict.fromkeys(lost, f"{folder}/ is empty, as without its disk")
            elif not there and folder == MEMORY_FOLDER:
                found |= dict.fromkeys(lost, f"{folder}/ is gone altogether")
        return found

    def _is_held(self, now: float) -> bool:
        """Whether what is lost is to be looked at again before it comes back."""
        if self._since is None:
            self._since = now
        held_s = now - self._since
        return held_s < HOLD_S or (held_s < LONGEST_HOLD_S and self._is_going())

    def _is_disturbed(self, now: float) -> bool:
        """Whether something beside the memory went at the same time: once more, a moment later, tells whether all goes."""
        names, before = self._beside(), self._names
        if self._since is not None and now - self._since >= HOLD_S:
            self._since, self._names = None, names
            return False
        if before - names:
            self._since = self._since if self._since is not None else now
            return True
        self._names = names
        return False

    def _is_going(self) -> bool:
        """Whether the project around the memory is being taken apart."""
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

    def _beside(self) -> frozenset[str]:
        """What is in the folder itself, without memory, and what editors and git make and take away."""
        try:
            names = [entry.name for entry in self._folder.root.iterdir()]
        except OSError:
            return frozenset()
        own = {MEMORY_FOLDER, *(path for path in self._ledger.all() if "/" not in path)}
        return frozenset(name for name in names if name not in own and not name.startswith(".") and "~" not in name)

    def _is_absent(self, path: str) -> bool:
        return not os.path.lexists(self._folder.root / self._folder.spelled(path))

    def _identities(self, paths: Iterable[str]) -> dict[str, str]:
        root = self._folder.root
        folders = sorted({above for path in paths for above in _above(path)})[:_MOST_FOLDERS]
        named = {_ROOT: root, _GIT: root / _GIT, **{name: root / self._folder.spelled(name) for name in folders}}
        found = {name: identity_of(place) for name, place in named.items()}
        return {name: identity for name, identity in found.items() if identity}


def _above(path: str) -> list[str]:
    """The folders that a path is in, but for the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
