"""What a revision changed, in a line: how many lines, which fields, under which headings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from confide_memory import front_matter
from confide_memory.markdown import headings

MAX_COMPARED = 1024 * 1024  # characters of both texts
MAX_NAMED = 5
MAX_NAME = 60


@dataclass(frozen=True, slots=True)
class Comparison:
    """`fields` and `under` (headings) are those that changed, in their order."""

    added: int
    removed: int
    fields: tuple[str, ...] = ()
    under: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"+{self.added} -{self.removed} lines"]
        parts += [f"fields {_listed(self.fields)}"] if self.fields else []
        parts += [f"under {_listed(self.under)}"] if self.under else []
        return "; ".join(parts)


def compare(before: str, after: str) -> Comparison | None:
    """What is different, lines counted wherever they stand: one that was moved is none. None where the texts are too large."""
    if len(before) + len(after) > MAX_COMPARED:
        return None
    old, new = front_matter.parse(before), front_matter.parse(after)
    names = list(dict.fromkeys([*old.fields, *new.fields]))
    fields = [name for name in names if old.fields.get(name, ...) != new.fields.get(name, ...)]
    added, under_new = _only(new.body, old.body)
    removed, under_old = _only(old.body, new.body)
    head_added, head_removed = _only(new.head, old.head)[0], _only(old.head, new.head)[0]
    under = tuple(dict.fromkeys([*under_new, *under_old]))
    return Comparison(added + head_added, removed + head_removed, tuple(fields), under)


def _only(text: str, other: str) -> tuple[int, list[str]]:
    """How many lines are in this text alone, and the headings they stand under."""
    there = Counter(other.splitlines())
    titles = {heading.line: heading.title for heading in headings(text)}
    count, under, title = 0, [], ""
    for number, line in enumerate(text.splitlines()):
        title = titles.get(number, title)
        if there[line] > 0:
            there[line] -= 1
        elif line.strip():
            count += 1
            under += [title] if title else []
    return count, under


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(name[:MAX_NAME] for name in names[:MAX_NAMED])
    return f"{shown}, ..." if len(names) > MAX_NAMED else shown
