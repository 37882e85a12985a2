"""What a schedule owes, and whether it is there at its end.

Every text that is written has a mark of its own, so that it can be looked for. A mark is owed if an agent was told that it is kept, or if a
person wrote it to a file and did not overwrite or delete that very text later; what a person throws away before anybody else saw it is
gone, as it should be.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

IS_LONG: Final = "CONFIDE_CHAOS" in os.environ
"""Then newest texts are looked at alone, where nobody throws anything away; a save that overtakes another's by microseconds looks as if."""
CLASH: Final = "<<<<<<< confide"
MARK: Final = re.compile(r"mark-\d+-end")


@dataclass(slots=True)
class Book:
    """Which marks have to be found at the end: `owed` were kept as an agent was told, `persons` wrote and did not throw away.

    Several threads write in it.
    """

    owed: set[str] = field(default_factory=set)
    persons: set[str] = field(default_factory=set)
    paths: dict[str, str] = field(default_factory=dict)
    """Of each mark, where it was written."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self, path: str) -> str:
        """A mark that nobody has used, for this file."""
        with self._lock:
            mark = f"mark-{len(self.paths)}-end"
            self.paths[mark] = path
            return mark

    def keep(self, mark: str) -> None:
        """An agent was told that it is kept."""
        with self._lock:
            self.owed.add(mark)

    def saved(self, before: str, after: str) -> None:
        """A person has put one text in another's place; what of it is new is theirs."""
        with self._lock:
            old, new = set(MARK.findall(before)), set(MARK.findall(after))
            self.persons -= old - new
            self.persons |= new - old - self.owed

    def thrown_away(self, text: str) -> None:
        """A person has overwritten or deleted this."""
        with self._lock:
            self.persons -= set(MARK.findall(text))

    def forget(self, marks: set[str]) -> None:
        """These are owed no more."""
        with self._lock:
            self.owed -= marks
            self.persons -= marks

    def only_on_disks(self, marks: set[str]) -> None:
        """A daemon that was put back has these no more: whoever overwrites them before it has them again throws them away."""
        with self._lock:
            self.persons |= self.owed & marks
            self.owed -= marks

    def check(self, final: Mapping[str, str], apart: str, history: str, *, safe: frozenset[str] = frozenset()) -> None:
        """Fail unless all that is owed is somewhere, and nothing twice in one file, but in the versions that a clash puts side by side.

        Args:
            final: the newest texts, which all machines have.
            apart: what only one machine has, since it is no document.
            history: every text that the daemon ever kept.
            safe: files from which nobody throws anything away: what was written there has to be in the newest texts.
        """
        newest = "\n".join(final.values()) + apart
        wanted = self.owed | self.persons
        lost = {mark: self.paths[mark] for mark in wanted if mark not in newest and mark not in history}
        assert not lost, f"lost: {lost}"
        # Where somebody overwrites a clash with what was one side of it, the next clash has that twice. Nobody overwrites what is safe.
        whole = {path: text for path, text in final.items() if path in safe or CLASH not in text}
        doubled = {path: mark for path, text in whole.items() for mark in MARK.findall(text) if text.count(mark) > 1}
        assert not doubled, f"twice in one file: {doubled}"
        dropped = {mark for mark in wanted if self.paths[mark] in safe and mark not in newest}
        assert not (IS_LONG and dropped), f"in the history alone: { {mark: self.paths[mark] for mark in dropped} }"
