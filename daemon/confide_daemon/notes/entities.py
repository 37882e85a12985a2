"""Names that notes are about: fuzzy matches, so that one thing does not get several names."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz import fuzz, process, utils

from confide_daemon.store.rows import EntityRow
from confide_daemon.store.store import Store
from confide_daemon.store.tables.notes import folded

# Below that two names have little in common but letters.
LEAST = 60.0
# Names that quick measures put first, from which the thorough one chooses: it takes 15 ms for 10,000 of them, and all of this 3.
LOOKED_AT = 200


def matches(query: str, keys: Sequence[str], *, limit: int) -> list[tuple[str, float]]:
    """(name, similarity in 0 to 1) of those of the names that are like the query, the nearest first."""
    names = dict(enumerate(utils.default_process(key) for key in keys))
    asked = utils.default_process(query)
    if len(names) > LOOKED_AT:
        within = [place for place, name in names.items() if asked in name or name in asked][:LOOKED_AT]
        like = process.extract(asked, names, scorer=fuzz.ratio, processor=None, limit=LOOKED_AT)
        like += process.extract(asked, names, scorer=fuzz.token_sort_ratio, processor=None, limit=LOOKED_AT)
        quick = {place for _, _, place in like}
        names = {place: names[place] for place in sorted(quick.union(within))}
    found = process.extract(asked, names, scorer=fuzz.WRatio, processor=None, limit=limit, score_cutoff=LEAST)
    return [(keys[place], round(score / 100, 3)) for _, score, place in found]


def search(
    store: Store, query: str, projects: frozenset[str] | None, *, tasks: bool, limit: int
) -> list[tuple[EntityRow, float]]:
    """(entity, similarity of its name), the nearest first; of equally near ones the most written about."""
    with store.reading():
        near = dict(matches(query, store.entities.keys(projects, tasks=tasks), limit=limit))
        # Counted for these alone: to list all 10,000 takes three times as long as to find the names that are like one.
        found = [(one, near[folded(one.name)]) for one in store.entities.among(list(near), projects, tasks=tasks)]
    return sorted(found, key=lambda pair: -pair[1])[:limit]
