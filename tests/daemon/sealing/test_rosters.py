"""The rosters in the registry: whatever is brought, only what devices have signed in order is kept, and of two that race one wins."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import Clock
from tests.support.crypto import freeze
from tests.support.daemon.registries import KEY
from tests.support.sealing.rosters import (
    DESKTOP,
    KEYS,
    LAPTOP,
    NOW,
    PHONE,
    device,
    encoded,
    flipped,
    founded,
    resigned,
    shared,
)

from confide_crypto import errors
from confide_crypto.errors import ConfideError
from confide_crypto.sealing import roster as roster_rules
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import MAX_ENTRY_BYTES, Card
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites, JoinedInvite, Refused
from confide_daemon.errors import StorageError, TakenError
from confide_daemon.sealing.rosters import MAX_WAITING, Pairings, Rosters
from confide_daemon.store.database import connect

VECTORS = freeze.frozen("rosters")
CHAINS = {case["name"]: [bytes.fromhex(one) for one in case["chain"]] for case in VECTORS if case["reads"] == "roster"}
ENTRIES = [case for case in VECTORS if case["reads"] == "entry"]


@pytest.fixture
def home(registry: Registry) -> str:
    """The id of a space with laptop and desktop for callers."""
    for name, identity in (("laptop", LAPTOP), ("desktop", DESKTOP)):
        registry.add_caller(identity.public_key, Grants(name), space="home", added_by="line")
    return registry.spaces()["home"]


def bring(rosters: Rosters, space_id: str, entries: Iterable[bytes]) -> Roster:
    for entry in entries:
        roster, is_new, _ = rosters.extend(space_id, entry, by="laptop")
        assert is_new
    return roster


def test_a_chain_is_kept_and_read_again_by_another_process(registry: Registry, home: str, tmp_path: Path) -> None:
    rosters = Rosters(registry)
    assert rosters.current(home) is None
    roster, keys = shared()
    bring(rosters, home, encoded(roster))
    other = Registry.open(tmp_path / "registry.db", KEY)
    assert Rosters(other).current(home) == roster
    rotated, _ = roster.rotate(DESKTOP, keys, now=NOW + 9)
    Rosters(other).extend(home, encoded(rotated)[-1], by="desktop")
    other.close()
    # What another process has added is seen at once.
    assert rosters.current(home) == rotated


def test_an_entry_that_leaves_no_room_for_removals_is_refused(
    registry: Registry, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the machine that brings it thinks of that: else a thief fills the list, and nobody can be removed any more."""
    rosters = Rosters(registry)
    roster, keys = shared()
    fuller = roster.add(LAPTOP, device(PHONE), keys, now=NOW)
    removed, _ = roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW)
    monkeypatch.setattr(roster_rules, "MAX_ENTRIES", len(fuller.entries) + 1)
    bring(rosters, home, encoded(roster))
    with pytest.raises(errors.OversizedRosterError):
        rosters.extend(home, encoded(fuller)[-1], by="laptop")
    assert rosters.current(home) == roster
    assert rosters.extend(home, encoded(removed)[-1], by="laptop")[:2] == (removed, True)


def test_an_entry_that_is_there_is_answered_as_it_was(registry: Registry, home: str) -> None:
    """Its answer may have been lost on the way."""
    rosters = Rosters(registry)
    roster, _ = shared()
    bring(rosters, home, encoded(roster))
    for entry in encoded(roster):
        assert rosters.extend(home, entry, by="laptop") == (roster, False, ())


@pytest.mark.parametrize("case", ENTRIES, ids=lambda case: case["name"])
def test_no_bad_entry_is_kept(registry: Registry, home: str, case: dict[str, Any]) -> None:
    """Every kind of them: what a stranger, a removed device, a careless device or a daemon of another space might bring."""
    rosters = Rosters(registry)
    before = bring(rosters, home, CHAINS[case["known"]])
    if case["error"] == "ReplayedEntryError":
        assert rosters.extend(home, bytes.fromhex(case["entry"]), by="laptop")[:2] == (before, False)
    else:
        with pytest.raises(ConfideError) as caught:
            rosters.extend(home, bytes.fromhex(case["entry"]), by="laptop")
        assert type(caught.value).__name__ == case["error"]
    assert Rosters(registry).current(home) == before
    with registry.reading() as database:
        assert database.execute("SELECT count(*) FROM roster_entries").get == len(before.entries)


def test_a_removed_device_changes_nothing_any_more(registry: Registry, home: str) -> None:
    rosters = Rosters(registry)
    roster, keys = shared()
    without, _ = roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW + 5)
    bring(rosters, home, encoded(without))
    entry = resigned(without.entries[-1], DESKTOP, number=4, previous=without.head, signer=DESKTOP.public_key)
    with pytest.raises(errors.RemovedSignerError):
        rosters.extend(home, entry, by="desktop")
    # Nor does a history in which it was never removed.
    forked, _ = roster.rotate(DESKTOP, keys, now=NOW + 6)
    with pytest.raises(errors.ForkedRosterError):
        rosters.extend(home, encoded(forked)[-1], by="desktop")


def test_bits_on_the_way_are_noticed(registry: Registry, home: str) -> None:
    rosters = Rosters(registry)
    roster, keys = founded()
    bring(rosters, home, encoded(roster))
    added = encoded(roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW + 1))[-1]
    for bad in flipped(added, range(0, 8 * len(added), 509)):
        with pytest.raises(errors.RosterError):
            rosters.extend(home, bad, by="laptop")
    with pytest.raises(errors.OversizedRosterError):
        rosters.extend(home, bytes(MAX_ENTRY_BYTES + 1), by="laptop")
    assert rosters.current(home) == roster
    assert rosters.extend(home, added, by="laptop")[1]


def test_one_of_many_that_race_wins(registry: Registry, home: str, tmp_path: Path) -> None:
    """Threads and processes: the others are told that they come too late, and their entries are nowhere."""
    roster, keys = shared()
    bring(Rosters(registry), home, encoded(roster))
    others = [Registry.open(tmp_path / "registry.db", KEY) for _ in range(3)]
    desks = [Rosters(one) for one in (registry, *others, *others)]
    entries = [encoded(roster.rotate(DESKTOP, keys, now=NOW + number)[0])[-1] for number in range(len(desks))]
    start, outcomes = threading.Barrier(len(desks)), list[str]()

    def run(desk: Rosters, entry: bytes) -> None:
        start.wait()
        try:
            outcomes.append(str(desk.extend(home, entry, by="desktop")[1]))
        except errors.ForkedRosterError:
            outcomes.append("late")

    threads = [threading.Thread(target=run, args=pair) for pair in zip(desks, entries, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["True", *["late"] * (len(desks) - 1)]
    found = [desk.current(home) for desk in desks]
    assert all(one == found[0] for one in found)
    assert found[0] is not None
    assert len(found[0].entries) == len(roster.entries) + 1
    for one in others:
        one.close()


def test_spaces_have_nothing_to_do_with_each_other(registry: Registry, home: str) -> None:
    """The same chain in another space is that space's own; what follows there does not follow here."""
    registry.add_caller(PHONE.public_key, Grants("phone"), space="away", added_by="line")
    away = registry.spaces()["away"]
    rosters = Rosters(registry)
    roster, _ = shared()
    bring(rosters, home, encoded(roster))
    assert rosters.current(away) is None
    with pytest.raises(errors.MissingEntryError):
        rosters.extend(away, encoded(roster)[-1], by="phone")
    theirs, _ = Roster.create(PHONE, "phone", now=NOW)
    bring(rosters, away, encoded(theirs))
    with pytest.raises(errors.ForeignEntryError):
        rosters.extend(away, encoded(roster)[-1], by="phone")
    assert rosters.current(home) == roster
    assert rosters.current(away) == theirs


def test_what_was_changed_on_the_disk_is_not_believed(registry: Registry, home: str, tmp_path: Path) -> None:
    """Somebody with the key of the registry cannot put a device into a roster; the daemon says so instead of serving it."""
    roster, _ = shared()
    bring(Rosters(registry), home, encoded(roster))
    connection = connect(tmp_path / "registry.db", KEY, writer=True)
    entry = resigned(roster.entries[-1], PHONE, signer=PHONE.public_key)
    connection.execute("UPDATE roster_entries SET entry = ? WHERE number = 2", (entry,))
    connection.close()
    with pytest.raises(StorageError, match=home):
        Rosters(registry).current(home)


def test_what_happens_to_devices_is_in_the_audit_log(registry: Registry, home: str) -> None:
    roster, keys = shared()
    roster, _ = roster.remove(LAPTOP, DESKTOP.public_key, keys, now=NOW + 3)
    bring(Rosters(registry), home, encoded(roster))
    told = [(one.caller, one.detail) for one in registry.audit_entries() if one.event == "devices"]
    assert told == [
        ("laptop", "founded, with its first device; 1 in epoch 1"),
        ("laptop", "one added; 2 in epoch 1"),
        ("laptop", "new epoch; 2 in epoch 2"),
        ("laptop", "one removed; 1 in epoch 3"),
    ]


# Who waits


def test_who_waits_is_who_may_connect_and_is_on_no_roster(registry: Registry, home: str, clock: Clock) -> None:
    pairings = Pairings(registry)
    roster, keys = founded()
    for number in range(MAX_WAITING + 3):
        key = bytes([number]) * 32
        registry.add_caller(key, Grants(f"m{number}"), space="home", added_by="line", expires_at=clock.now + 100)
        pairings.ask(home, key, b"card", None)
    card = Card.of(DESKTOP).encode()
    registry.revoke("m0")
    pairings.ask(home, DESKTOP.public_key, card, b"request")
    pairings.ask(home, LAPTOP.public_key, Card.of(LAPTOP).encode(), None)
    waiting = pairings.waiting(home, roster)
    assert [one.name for one in waiting] == [f"m{number}" for number in range(1, MAX_WAITING + 1)]
    clock.now += 200
    (one,) = pairings.waiting(home, roster)
    assert (one.name, one.card, one.request) == ("desktop", card, b"request")
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW)
    assert not pairings.waiting(home, roster)
    without, _ = roster.remove(LAPTOP, DESKTOP.public_key, KEYS, now=NOW)
    assert not pairings.waiting(home, without)


def test_an_answer_belongs_to_the_request_that_it_answers(registry: Registry, home: str) -> None:
    pairings, key, card = Pairings(registry), DESKTOP.public_key, Card.of(DESKTOP).encode()
    assert not pairings.answer(home, key, b"too early")
    assert pairings.ask(home, key, card, None) == (None, True)
    assert not pairings.answer(home, key, b"nobody asked by a secret")
    assert pairings.ask(home, key, card, b"first") == (None, True)
    assert pairings.answer(home, key, b"answer")
    assert pairings.ask(home, key, card, b"first") == (b"answer", False)
    assert pairings.ask(home, key, card, None) == (b"answer", False)
    assert pairings.answer_of(home, key) == b"answer"
    assert pairings.answer_of("another space", key) is None
    assert not pairings.answer("another space", key, b"from elsewhere")
    assert pairings.ask(home, key, card, b"second") == (None, True)


# Invites that callers make


def add(registry: Registry, number: int, alias: str = "phone", by: bytes = LAPTOP.public_key, **said: Any) -> bytes:
    """A caller's invite; its id."""
    options = {"scope": "write", "ttl_s": 900, **said}
    identity = bytes([number]) * 16
    Invites(registry).add_for(by, identity, bytes(32), alias=alias, **options)
    return identity


def test_an_invite_gives_what_its_maker_has_and_ends_with_it(registry: Registry, home: str, clock: Clock) -> None:
    narrow = Grants("narrow", "write", frozenset({"a"}), frozenset({"memory"}))
    registry.add_caller(PHONE.public_key, narrow, space="home", added_by="line", expires_at=clock.now + 600)
    identity = add(registry, 1, "tablet", PHONE.public_key, scope="read", ttl_s=10_000)
    (entry,) = Invites(registry).open_ones()
    assert (entry.expires_at, entry.caller_expires_at, entry.space) == (clock.now + 600, clock.now + 600, "home")
    joined = Invites(registry).join(identity, b"t" * 32)
    assert isinstance(joined, JoinedInvite)
    assert joined.caller.grants == Grants("tablet", "read", frozenset({"a"}), frozenset({"memory"}))
    told = [one.detail for one in registry.audit_entries() if one.event == "invited"]
    assert told[-1] is not None
    assert told[-1].endswith("by narrow")


@pytest.mark.parametrize("change", ["revoked", "narrowed", "moved"])
def test_an_invite_does_not_outlive_the_rights_of_its_maker(registry: Registry, home: str, change: str) -> None:
    """Or a stolen machine would come back under another name."""
    identity = add(registry, 1)
    if change == "revoked":
        registry.revoke("laptop")
    elif change == "narrowed":
        registry.grant("laptop", lambda caller: (Grants("laptop", "read"), None))
    else:
        Invites(registry).add(b"m" * 16, bytes(32), Grants("laptop-2"), space="away", ttl_s=900)
        assert isinstance(Invites(registry).join(b"m" * 16, LAPTOP.public_key), JoinedInvite)
    outcome = Invites(registry).join(identity, b"t" * 32)
    assert isinstance(outcome, Refused)


def test_an_invite_follows_its_maker_to_a_new_key(registry: Registry, home: str) -> None:
    identity = add(registry, 1)
    registry.name_successor(LAPTOP.public_key, b"s" * 32, session="x")
    registry.succeed(b"s" * 32)
    assert add(registry, 1, by=b"s" * 32) == identity
    registry.revoke("laptop")
    assert isinstance(Invites(registry).join(identity, b"t" * 32), Refused)


def test_no_caller_takes_anothers_name_or_invite(registry: Registry, home: str) -> None:
    Invites(registry).add(b"o" * 16, bytes(32), Grants("office"), space="office", ttl_s=900)
    for alias in ("desktop", "laptop"):
        with pytest.raises(TakenError):
            add(registry, 1, alias)
    first = add(registry, 2)
    with pytest.raises(TakenError):
        add(registry, 3, by=DESKTOP.public_key)
    with pytest.raises(TakenError):
        add(registry, 2, "tablet", DESKTOP.public_key)
    with pytest.raises(TakenError):
        add(registry, ord("o"), "office")
    # Its own it may make anew, and then the first string is of no use.
    second = add(registry, 4)
    assert isinstance(Invites(registry).join(first, b"t" * 32), Refused)
    assert isinstance(Invites(registry).join(second, b"t" * 32), JoinedInvite)
    with pytest.raises(TakenError):
        add(registry, 4, "again")


def test_a_caller_has_a_few_open_invites(registry: Registry, home: str, clock: Clock) -> None:
    for number in range(8):
        add(registry, number, f"m{number}")
    with pytest.raises(TakenError):
        add(registry, 9, "m9")
    add(registry, 10, "m7")
    clock.now += 1000
    add(registry, 11, "m11")
    assert len(Invites(registry).open_ones()) == 1
