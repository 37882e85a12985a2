"""Which snapshots may go: in restic's words, and only where a proven one stands for them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from confide_backup.daemon.backup_schedule import Keep, ScheduledSnapshot, let_go

DAY = 86_400
FIRST = 1_763_856_000  # 2025-11-23, a Sunday, UTC
KEEP = Keep(7, 5, 12)


def snapshot(
    number: int, at: int, *, content: bytes = b"", proven: bool = True, sound: bool = True
) -> ScheduledSnapshot:
    """One of one space."""
    is_proven = frozenset({"a"} if proven and sound else ())
    return ScheduledSnapshot(f"s{number}", number, at, sound, is_proven, {"a": content or str(number).encode()})


def kept(there: list[ScheduledSnapshot], keep: Keep = KEEP) -> list[int]:
    gone = set(let_go(there, keep))
    return [one.number for one in there if one.id not in gone]


def test_a_year_of_nights_leaves_days_weeks_and_months() -> None:
    """As `restic forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12` would, one a night."""
    there: list[ScheduledSnapshot] = []
    for night in range(400):
        there.append(snapshot(night, FIRST + night * DAY))
        gone = set(let_go(there, KEEP))
        there = [one for one in there if one.id not in gone]
    numbers = [one.number for one in there]
    assert numbers[-7:] == [393, 394, 395, 396, 397, 398, 399]
    assert 17 <= len(numbers) <= 7 + 5 + 12
    months = {(one.at - FIRST) // (31 * DAY) for one in there}
    assert len(months) >= 11


def test_of_one_day_the_newest_stays() -> None:
    assert kept([snapshot(0, FIRST), snapshot(1, FIRST + 60), snapshot(2, FIRST + 120)]) == [2]


def test_one_that_is_not_proven_lets_nothing_go() -> None:
    there = [snapshot(0, FIRST), snapshot(1, FIRST + 60, sound=False), snapshot(2, FIRST + 120, sound=False)]
    assert kept(there) == [0, 1, 2]
    assert kept([*there, snapshot(3, FIRST + 180)]) == [3]


def test_what_was_locked_and_has_changed_since_keeps_what_was_proven() -> None:
    """The newest has a space that nobody could open; the older one is the last that is known to be good."""
    there = [snapshot(0, FIRST), snapshot(1, FIRST + 60, proven=False)]
    assert kept(there) == [0, 1]
    assert kept([there[0], replace(there[1], contents=there[0].contents)]) == [0, 1]  # the newest that is wholly proven
    assert kept([there[0], replace(there[1], proven=frozenset({"a"}))]) == [1]


def test_a_space_that_is_gone_keeps_nothing() -> None:
    two = replace(snapshot(0, FIRST), contents={"a": b"0", "b": b"0"}, proven=frozenset({"a", "b"}))
    assert kept([two, snapshot(1, FIRST + 60)]) == [1]


def test_with_nothing_to_keep_nothing_goes() -> None:
    assert kept([snapshot(0, FIRST), snapshot(1, FIRST + 60)], Keep(0, 0, 0)) == [0, 1]


def test_a_clock_that_jumps_back_does_not_make_the_newest_old() -> None:
    """What counts as newest is counted, not dated."""
    there = [snapshot(0, FIRST + 90 * DAY), snapshot(1, FIRST), snapshot(2, FIRST + DAY)]
    assert kept(there, Keep(1, 0, 0)) == [2]


@given(
    st.lists(
        st.tuples(st.integers(0, 60 * DAY), st.booleans(), st.booleans(), st.sampled_from([b"x", b"y", b""])),
        max_size=25,
    ),
    st.builds(Keep, st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)),
)
def test_the_newest_proven_one_never_goes(drawn: list[tuple[int, bool, bool, bytes]], keep: Keep) -> None:
    """Whatever the clock said, and whatever was locked: and letting go once more lets nothing go."""
    there = [
        snapshot(number, FIRST + at, content=content, proven=proven, sound=sound)
        for number, (at, proven, sound, content) in enumerate(drawn)
    ]
    gone = set(let_go(there, keep))
    staying = [one for one in there if one.id not in gone]
    whole = [one for one in there if one.is_sound and one.proven]
    if whole:
        assert whole[-1] in staying
    for one in there:
        if one.id in gone:
            assert any(
                other.is_sound and other.number > one.number and (other.proven or other.contents == one.contents)
                for other in staying
            )
    assert not set(let_go(staying, keep)) - gone
