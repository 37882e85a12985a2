"""Two versions of front matter made one by its fields, where lines put together break it, or lose what one side alone changed.

A note whose front matter cannot be read has neither its id nor its tags, so this must not come of two edits that each were right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confide_daemon.clash import as_comments
from confide_daemon.documents import split_keeping_ends
from confide_daemon.errors import InvalidTextError
from confide_daemon.notes import front_matter


def by_fields(
    merged: Sequence[str], base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, is_clash: bool, name: str
) -> tuple[list[str], bool] | None:
    """Theirs with what ours alone changed, and as comments what gave way. Of two times of the last change the later one is right.

    Args:
        merged: what came of their lines; like the others lines of front matter with both fences, "\\n" at the end of each, or none at all.
        is_clash: something gave way in it.
        name: what the comments call ours.

    Returns:
        the lines, and whether something of ours gave way. None where `merged` has all that one side alone changed, or where one of the
        two sides does not read.
    """
    if not ours or not theirs or list(ours) == list(theirs):
        return None
    one, other, found = (front_matter.parse("".join(lines)) for lines in (ours, theirs, merged))
    if one.problem or other.problem:
        return None
    known = front_matter.parse("".join(base)).fields
    wanted: dict[str, Any] = {}
    clashing: list[str] = []
    for field in known | one.fields | other.fields:
        before, mine, incoming = (fields.get(field) for fields in (known, one.fields, other.fields))
        if field == "updated" and isinstance(mine, str) and isinstance(incoming, str):
            wanted[field] = max(mine, incoming)
        elif before not in (mine, incoming) and mine != incoming:
            clashing.append(field)
            # Two lists that were both added to.
            wanted[field] = incoming if found.problem else found.fields.get(field)
        else:
            wanted[field] = mine if incoming == before else incoming
    if (
        (clashing or not is_clash)
        and not found.problem
        and all(found.fields.get(field) == value for field, value in wanted.items())
    ):
        return None
    has_lost = any(wanted[field] != one.fields.get(field) for field in clashing)
    try:
        head = front_matter.edit("".join(theirs), wanted)
    except (front_matter.UnreadableError, InvalidTextError):
        head, has_lost = "".join(theirs), True
    lines = split_keeping_ends(head)
    gone = [line for line in ours if line not in lines]
    if not has_lost:  # but what a person says to others beside the fields
        gone = [line for line in gone if line not in base and line.lstrip().startswith("#")]
    comments = as_comments(gone, name)
    explained = [*lines[:-1], *comments, lines[-1]]
    again = front_matter.parse("".join(explained))
    is_right = again.problem is None and again.fields == front_matter.parse(head).fields
    return (explained if is_right else lines), has_lost or bool(comments)
