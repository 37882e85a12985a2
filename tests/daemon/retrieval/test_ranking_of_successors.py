"""What supersedes what, at any number of removes and in circles: against a plain look at all ways."""

from __future__ import annotations

import random

from confide_daemon.retrieval.search.ranking import NoteSuccession
from confide_daemon.store.rows import Supersession


def links_of(pairs: set[tuple[int, int]]) -> list[Supersession]:
    return [Supersession(older, newer, f"id{newer}", "", "", "proj") for older, newer in sorted(pairs)]


def test_order_is_that_of_a_plain_look_at_all_ways() -> None:
    rng = random.Random(4)
    for _ in range(200):
        count = rng.randint(2, 9)
        pairs = {tuple(rng.sample(range(count), 2)) for _ in range(rng.randint(0, 14))}
        reached = {(one, other) for one, other in pairs}
        for middle in range(count):
            reached |= {(a, d) for a, b in reached for c, d in reached if b == c == middle}
        above = {one: {b for a, b in reached if a == one and (b, one) not in reached} for one in range(count)}
        links = NoteSuccession(links_of({(one, other) for one, other in pairs}))
        for one in range(count):
            assert set(links.above(one)) == above[one]
        shown = rng.sample(range(count), rng.randint(1, count))
        split = rng.randint(0, len(shown))
        ahead, beside = shown[:split], shown[split:]
        assert links.newest(ahead, beside) == [one for one in ahead if above[one].isdisjoint(shown)]
        assert set(links.ahead_of(beside)) == {other for one in beside for other in above[one]} - set(beside)
        order = [shown[place] for place in links.arrange(shown)]
        assert sorted(order) == sorted(shown)
        for place, one in enumerate(order):
            assert above[one].isdisjoint(order[place + 1 :])


def test_a_line_of_a_thousand_notes_ends_at_the_newest() -> None:
    links = NoteSuccession(links_of({(number, number + 1) for number in range(1000)}))
    assert len(links.above(0)) == 1000
    assert links.newest(links.ahead_of([0]), beside=[0]) == [1000]
    assert links.newest([500, 1000], beside=[]) == [1000]


def test_many_ways_between_the_same_notes_are_gone_once() -> None:
    """Level by level and link by link there are more ways through these than could ever be gone."""
    pairs = {(number, number + step) for number in range(300) for step in range(1, 60)}
    links = NoteSuccession(links_of(pairs))
    assert len(links.above(0)) == 300 + 58
    assert [links.arrange([0, 100, 200])[-1], len(links.newest(list(range(359)), []))] == [0, 59]
