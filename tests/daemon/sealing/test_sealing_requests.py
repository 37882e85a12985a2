"""Machines make, extend and read the roster and the sealed records of their space over real connections; the daemon opens none of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.rosters import device, resigned

from confide_crypto.errors import ConfideError, RequestError, WrongKeyError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.pairing import DeviceInvite, parse_invite
from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import MAX_ENTRY_BYTES, Card
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_crypto.transport.open_channel import Connection
from confide_daemon.server.requests import devices
from confide_daemon.server.requests import sealing_requests as record_requests

NOW = 1_800_000_000


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path) as running:
        yield running


def wire(data: bytes) -> str:
    """As binary values go."""
    return base64.b64encode(data).decode()


class Member(Machine):
    """A caller's machine with what a proxy does about sealing."""

    def __init__(self, connection: Connection, identity: Identity) -> None:
        super().__init__(connection)
        self.identity = identity

    async def found(self, name: str = "laptop") -> tuple[Roster, SpaceKeys]:
        """Begin the space's roster."""
        roster, keys = Roster.create(self.identity, name, now=NOW)
        await self.extend(roster)
        return roster, keys

    async def extend(self, roster: Roster) -> dict[str, Any]:
        """Bring the newest entry."""
        return await self.bring(roster.entries[-1].encode())

    async def bring(self, entry: bytes) -> dict[str, Any]:
        """Bring an entry."""
        return await self.request("extend", {"entry": wire(entry)})

    async def roster(self) -> Roster:
        """All of it, as the daemon serves it, checked as a device checks it."""
        answer = await self.request("roster", {"from": 0})
        read = Roster.read(base64.b64decode(entry) for entry in answer["entries"])
        assert (read.pin.number, read.head.hex()) == (answer["number"], answer["head"])
        return read

    async def keep(self, *records: SealedRecord) -> None:
        """Store records. Whether any of them was new is not said: a narrow caller could try guesses by it."""
        answer = await self.request("records", {"records": [wire(one.encode()) for one in records]})
        assert answer == {"stored": len(records)}

    async def record(self, secret_id: bytes) -> SealedRecord:
        """One of them."""
        return SealedRecord.parse(base64.b64decode((await self.request("record", {"id": secret_id.hex()}))["record"]))

    async def refused(self, op: str, body: dict[str, Any]) -> str:
        """The code of the refusal."""
        with pytest.raises(RequestError) as caught:
            await self.request(op, body)
        assert str(caught.value)
        return caught.value.code

    async def refusal_or_none(self, op: str, body: dict[str, Any]) -> str | None:
        """The code of the refusal; None if it is answered."""
        try:
            await self.request(op, body)
        except RequestError as error:
            return error.code
        return None

    async def news(self) -> dict[str, Any]:
        """What the daemon tells next of the roster."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.roster_news.get()


async def member(daemon: Serving, name: str = "laptop", space: str = "home", **rights: Any) -> Member:
    """A machine of a space, connected."""
    return await back(daemon, daemon.enroll(name, space=space, **rights))


async def back(daemon: Serving, identity: Identity) -> Member:
    """The same machine again."""
    return await Member(await daemon.connect_in_time(identity), identity).__aenter__()


async def members(daemon: Serving, *names: str) -> list[Member]:
    """Several machines of one space."""
    return [await member(daemon, name) for name in names]


async def leave(*machines: Member) -> None:
    for one in machines:
        await one.__aexit__(None, None, None)


async def pair(old: Member, new: Member, roster: Roster, keys: SpaceKeys, name: str) -> Roster:
    """The old machine takes the new one in."""
    roster = roster.add(old.identity, device(new.identity, name), keys, now=NOW)
    await old.extend(roster)
    return roster


def secret(keys: SpaceKeys, number: int = 0, *, kind: str = "password") -> SealedRecord:
    """A secret's record."""
    return SealedRecord.seal(keys, kind, b"hunter %d" % number)


# The roster


async def test_a_space_is_founded_extended_and_read_by_its_machines(daemon: Serving) -> None:
    laptop, desktop = await member(daemon), await member(daemon, "desktop")
    unfounded = await laptop.request("roster", {"from": 0})
    assert {
        key: unfounded[key] for key in ("entries", "number", "head", "custody", "isLocked", "needs", "waiting")
    } == {
        "entries": [],
        "number": -1,
        "head": "",
        "custody": "server",
        "isLocked": False,
        "needs": [],
        "waiting": [],
    }
    assert (await laptop.attach())["sealing"] == {
        "number": -1,
        "head": "",
        "epoch": 0,
        "custody": "server",
        "needs": [],
    }
    roster, keys = await laptop.found()
    roster = await pair(laptop, desktop, roster, keys, "desktop")
    roster, keys = roster.rotate(laptop.identity, keys, now=NOW)
    assert await laptop.extend(roster) == {"number": 2}
    assert await laptop.extend(roster) == {"number": 2}  # its answer was lost
    seen = await desktop.roster()
    assert seen == roster
    assert seen.open(WrapKey(desktop.identity)).epochs == keys.epochs
    assert (await desktop.attach())["sealing"] == {
        "number": 2,
        "head": roster.head.hex(),
        "epoch": 2,
        "custody": "server",
        "needs": [],
    }
    assert len((await desktop.request("roster", {"from": 2}))["entries"]) == 1
    assert (await desktop.request("roster", {"from": 3}))["entries"] == []
    await leave(laptop, desktop)


@pytest.mark.parametrize("rights", [{"projects": {"a"}}, {"sources": {"memory"}}])
async def test_who_reaches_a_part_of_a_space_does_not_begin_its_devices(
    daemon: Serving, rights: dict[str, Any]
) -> None:
    """It would have the say on who opens the secrets of all of it. Where nobody else is there, somebody has to."""
    narrow, laptop = await member(daemon, "narrow", **rights), await member(daemon)
    theirs, _ = Roster.create(narrow.identity, "narrow", now=NOW)
    assert await narrow.refused("extend", {"entry": wire(theirs.entries[0].encode())}) == "denied"
    daemon.state.registry.revoke("laptop")
    await narrow.extend(theirs)
    await leave(narrow, laptop)


async def test_a_machine_founds_with_itself_and_with_the_right_to_write(daemon: Serving) -> None:
    laptop, reader = await member(daemon), await member(daemon, "reader", scope="read")
    theirs, _ = Roster.create(reader.identity, "reader", now=NOW)
    genesis = {"entry": wire(theirs.entries[0].encode())}
    assert await reader.refused("extend", genesis) == "denied"
    assert await laptop.refused("extend", genesis) == "invalid"
    assert await laptop.refused("extend", {"entry": wire(bytes(MAX_ENTRY_BYTES + 1))}) == "too_large"
    for entry in ("", "!", "YWJj", None, 7, ["YWJj"]):
        assert await laptop.refused("extend", {"entry": entry}) == "invalid"
    assert (await laptop.request("roster", {"from": 0}))["number"] == -1
    await leave(laptop, reader)


async def test_of_two_that_found_at_once_one_does(daemon: Serving) -> None:
    laptop, desktop = await member(daemon), await member(daemon, "desktop")
    made = [Roster.create(one.identity, "m", now=NOW)[0] for one in (laptop, desktop)]
    outcomes = await asyncio.gather(laptop.extend(made[0]), desktop.extend(made[1]), return_exceptions=True)
    codes = [one.code for one in outcomes if isinstance(one, RequestError)]
    assert codes == ["conflict"]
    first = await laptop.roster()
    assert first in made
    assert await desktop.roster() == first
    await leave(laptop, desktop)


async def test_of_two_that_extend_at_once_one_does_and_the_other_makes_it_anew(daemon: Serving) -> None:
    laptop, desktop = await member(daemon), await member(daemon, "desktop")
    phone, tablet = Identity.generate(), Identity.generate()
    roster, keys = await laptop.found()
    roster = await pair(laptop, desktop, roster, keys, "desktop")
    changes = [
        (laptop, roster.add(laptop.identity, device(phone, "phone"), keys, now=NOW)),
        (desktop, roster.add(desktop.identity, device(tablet, "tablet"), keys, now=NOW)),
    ]
    outcomes = await asyncio.gather(*(who.extend(made) for who, made in changes), return_exceptions=True)
    (late,) = [number for number, one in enumerate(outcomes) if isinstance(one, RequestError)]
    assert outcomes[late].code == "conflict"  # type: ignore[union-attr]
    who, again = changes[late][0], (tablet, phone)[1 - late]
    newest = await who.roster()
    await who.extend(newest.add(who.identity, device(again, "again"), keys, now=NOW))
    assert {phone.public_key, tablet.public_key} < (await laptop.roster()).devices.keys()
    await leave(laptop, desktop)


async def test_nobody_comes_in_or_changes_anything_without_a_devices_signature(daemon: Serving) -> None:
    """A caller that may write, but is no device, and one that was removed."""
    laptop, mallory, desktop = await members(daemon, "laptop", "mallory", "desktop")
    roster, keys = await laptop.found()
    with_desktop = await pair(laptop, desktop, roster, keys, "desktop")
    real = with_desktop.add(laptop.identity, device(mallory.identity, "mallory"), keys, now=NOW)
    # Not on the roster, it signs by itself, for another, or brings what it has seen before.
    forged = resigned(real.entries[-1], mallory.identity, signer=mallory.identity.public_key)
    lying = replace(real.entries[-1], signer=laptop.identity.public_key).sign(mallory.identity).encode()
    old = replace(real.entries[-1], number=1, previous=roster.head).sign(laptop.identity).encode()
    codes = [await mallory.refused("extend", {"entry": wire(entry)}) for entry in (forged, lying, old)]
    assert codes == ["invalid", "invalid", "conflict"]
    assert await mallory.bring(with_desktop.entries[-1].encode()) == {"number": 1}
    other, _ = Roster.create(mallory.identity, "mine", now=NOW)
    assert await mallory.refused("extend", {"entry": wire(other.entries[0].encode())}) == "conflict"
    without, keys = with_desktop.remove(laptop.identity, desktop.identity.public_key, keys, now=NOW)
    await laptop.extend(without)
    late = resigned(
        without.entries[-1],
        desktop.identity,
        number=3,
        previous=without.head,
        signer=desktop.identity.public_key,
        removed=laptop.identity.public_key,
    )
    # Its own connection has ended, so another brings what it has signed.
    await desktop.ended_within(DEADLINE_S)
    assert await mallory.refused("extend", {"entry": wire(late)}) == "invalid"
    assert await laptop.roster() == without
    await leave(laptop, mallory, desktop)


async def test_a_reader_neither_adds_nor_removes_nor_rotates(daemon: Serving) -> None:
    """It follows its own key to a new one and comes back by a recovery code; what binds the others takes the right to write.

    Else a stolen machine that may only read made itself a second identity, or used up the entries by which it is removed.
    """
    laptop, reader = await member(daemon), await member(daemon, "reader", scope="read")
    roster, keys = await laptop.found()
    roster = await pair(laptop, reader, roster, keys, "reader")
    code, gone = Identity.generate(), Identity.generate()
    for extra, name, is_paper in ((gone, "gone", False), (code, "paper", True)):
        roster = roster.add(laptop.identity, device(extra, name, is_paper=is_paper), keys, now=NOW)
        await laptop.extend(roster)
    fresh, other = Identity.generate(), Identity.generate()
    rotated, _ = roster.rotate(reader.identity, keys, now=NOW)
    removed = [roster.remove(reader.identity, one.public_key, keys, now=NOW)[0] for one in (laptop.identity, gone)]
    added = [
        roster.add(reader.identity, device(fresh, name, is_paper=is_paper), keys, now=NOW)
        for name, is_paper in (("ghost", False), ("reader", True))
    ]
    for made in (rotated, *removed, *added):
        assert await reader.refused("extend", {"entry": wire(made.entries[-1].encode())}) == "denied"
    roster = roster.add(reader.identity, device(fresh, "reader"), keys, now=NOW)
    await reader.extend(roster)
    second = roster.add(reader.identity, device(other, "reader"), keys, now=NOW)
    assert await reader.refused("extend", {"entry": wire(second.entries[-1].encode())}) == "denied"
    daemon.state.registry.name_successor(reader.identity.public_key, fresh.public_key, session="s")
    await leave(reader)
    renewed = await back(daemon, fresh)
    roster, keys = roster.remove(fresh, reader.identity.public_key, keys, now=NOW)
    await renewed.extend(roster)
    assert [one.name for one in (await renewed.roster()).devices.values()] == ["laptop", "gone", "paper", "reader"]
    assert await renewed.refused("records", {"records": [wire(secret(keys).encode())]}) == "denied"
    await leave(laptop, renewed)


async def test_a_recovery_code_brings_a_machine_in_when_all_others_are_lost(daemon: Serving) -> None:
    laptop = await member(daemon)
    code = RecoveryCode.generate()
    roster, keys = await laptop.found()
    roster = roster.add(laptop.identity, device(code.identity, "paper", is_paper=True), keys, now=NOW)
    await laptop.extend(roster)
    kept = secret(keys)
    await laptop.keep(kept)
    await leave(laptop)
    fresh = await member(daemon, "fresh")
    seen = await fresh.roster()
    opened = seen.open(WrapKey(code.identity))
    await fresh.extend(seen.add(code.identity, device(fresh.identity, "fresh"), opened, now=NOW))
    again = (await fresh.roster()).open(WrapKey(fresh.identity))
    assert (await fresh.record(kept.secret_id)).open(again) == b"hunter 0"
    await leave(fresh)


async def test_a_long_roster_comes_in_parts(daemon: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PAGE_BYTES", 12_000)
    laptop = await member(daemon)
    roster, keys = await laptop.found()
    for number in range(12):
        roster = roster.add(laptop.identity, device(Identity.generate(), f"m{number}"), keys, now=NOW)
        await laptop.extend(roster)
    entries: list[bytes] = []
    rounds = 0
    while True:
        answer = await laptop.request("roster", {"from": len(entries)})
        entries += [base64.b64decode(entry) for entry in answer["entries"]]
        rounds += 1
        if len(entries) > answer["number"]:
            break
        assert answer["entries"]
    assert Roster.read(entries) == roster
    assert rounds > 2
    for start in (-1, 257, True, "0", None, 1.0):
        assert await laptop.refused("roster", {"from": start}) == "invalid"
    await leave(laptop)


# Pairing


async def test_a_machine_joins_by_a_device_invite_and_is_paired(daemon: Serving) -> None:
    """From the invite to the newcomer's first opened secret; the daemon only passes on what it cannot make."""
    laptop = await member(daemon)
    roster, keys = await laptop.found()
    kept = secret(keys)
    await laptop.keep(kept)
    made = DeviceInvite.new(daemon.state.identity.static_key, daemon.url)
    said = {"inviteId": made.invite.invite_id.hex(), "psk": made.invite.invite_psk.hex(), "name": "desktop"}
    answer = await laptop.request("invite", {**said, "ttlS": 900, "scope": "write"})
    assert answer["expiresAt"].endswith("Z")
    # On the other machine.
    invite, shared = parse_invite(made.to_string())
    assert shared is not None
    identity = Identity.generate()
    desktop = await Member(await daemon.connect(identity, invite=invite), identity).__aenter__()
    card = Card.of(identity)
    request = {"request": wire(shared.request(card))}
    assert await desktop.request("pair", request) == {"answer": None}
    assert await desktop.request("pair", request) == {"answer": None}
    assert (await desktop.request("roster", {"from": 0}))["waiting"][0]["name"] == "desktop"
    # On the first one.
    assert await laptop.news() == {"number": 0, "waiting": True}
    (waiting,) = (await laptop.request("roster", {"from": 0}))["waiting"]
    assert (waiting["key"], waiting["name"]) == (identity.public_key.hex(), "desktop")
    shown = made.pair.read_request(base64.b64decode(waiting["request"]))
    assert (shown, wire(shown.encode())) == (card, waiting["card"])
    answered = {"key": waiting["key"], "answer": wire(bytes(101))}
    assert await laptop.refused("pair-answer", answered) == "not_found"
    roster = await pair(laptop, desktop, roster, keys, "desktop")
    await laptop.request("pair-answer", {**answered, "answer": wire(made.pair.answer(card, roster))})
    # And back: twice told, and the answer stays as long as it is asked for.
    while (await desktop.request("pair", request))["answer"] is None:
        await desktop.news()
    proof = base64.b64decode((await desktop.request("pair", {"card": wire(card.encode())}))["answer"])
    seen = await desktop.roster()
    assert shared.accept(proof, identity, seen) == roster.pin
    assert (await desktop.record(kept.secret_id)).open(seen.open(WrapKey(identity))) == b"hunter 0"
    assert not (await laptop.request("roster", {"from": 0}))["waiting"]
    await leave(laptop, desktop)


async def test_a_machine_without_a_pair_secret_shows_its_card(daemon: Serving) -> None:
    laptop, desktop = await member(daemon), await member(daemon, "desktop", scope="read", projects={"a"})
    await laptop.found()
    card = Card.of(desktop.identity)
    assert await desktop.request("pair", {"card": wire(card.encode())}) == {"answer": None}
    assert (await laptop.news())["waiting"] is True
    (waiting,) = (await laptop.request("roster", {"from": 0}))["waiting"]
    assert waiting == {
        "key": desktop.identity.public_key.hex(),
        "name": "desktop",
        "card": wire(card.encode()),
        "request": None,
    }
    await leave(laptop, desktop)


async def test_who_waits_is_shown_to_devices_alone(daemon: Serving) -> None:
    laptop, desktop, phone = await members(daemon, "laptop", "desktop", "phone")
    for one in (desktop, phone):
        await one.request("pair", {"card": wire(Card.of(one.identity).encode())})
    # Before there is a roster nobody can take anybody in.
    assert not (await laptop.request("roster", {"from": 0}))["waiting"]
    await laptop.found()
    assert [one["name"] for one in (await laptop.request("roster", {"from": 0}))["waiting"]] == ["desktop", "phone"]
    assert [one["name"] for one in (await phone.request("roster", {"from": 0}))["waiting"]] == ["phone"]
    await leave(laptop, desktop, phone)


async def test_a_machine_asks_for_itself_alone(daemon: Serving) -> None:
    laptop, mallory = await member(daemon), await member(daemon, "mallory")
    roster, keys = await laptop.found()
    mine, stranger = Card.of(mallory.identity), Identity.generate()
    unsigned = Card(mine.key, Card.of(stranger).wrap_key, mine.signature)
    shared = DeviceInvite.new(daemon.state.identity.static_key, daemon.url).pair
    for card in (Card.of(stranger), Card.of(laptop.identity), unsigned):
        assert await mallory.refused("pair", {"card": wire(card.encode())}) == "invalid"
        assert await mallory.refused("pair", {"request": wire(shared.request(card))}) == "invalid"
    for body in ({}, {"card": "!"}, {"card": wire(mine.encode()[1:])}, {"request": wire(mine.encode())}):
        assert await mallory.refused("pair", body) == "invalid"
    assert await mallory.refused("pair", {"card": wire(mine.encode() + b"x" * 3)}) == "too_large"
    # Nor does it answer, or invite, before it is a device.
    key = mallory.identity.public_key.hex()
    assert await mallory.refused("pair-answer", {"key": key, "answer": wire(bytes(101))}) == "denied"
    said = {"inviteId": "00" * 16, "psk": "11" * 32, "name": "x", "ttlS": 900, "scope": "read"}
    assert await mallory.refused("invite", said) == "denied"
    # One that was removed does not come back with the same key.
    narrow = await member(daemon, "narrow", projects={"a"}, sources={"memory"})
    for one, name in ((narrow, "narrow"), (mallory, "mallory")):
        roster = await pair(laptop, one, roster, keys, name)
    # A narrow device ends nobody's access.
    roster, _ = roster.remove(narrow.identity, mallory.identity.public_key, keys, now=NOW)
    await narrow.extend(roster)
    assert await mallory.refused("pair", {"card": wire(mine.encode())}) == "denied"
    await leave(laptop, mallory, narrow)


async def test_an_invite_is_bounded_by_the_rights_of_who_makes_it(daemon: Serving) -> None:
    laptop = await member(daemon)
    narrow = await member(daemon, "narrow", projects={"a"}, sources={"memory"})
    reader = await member(daemon, "reader", scope="read")
    roster, keys = await laptop.found()
    for one, name in ((narrow, "narrow"), (reader, "reader")):
        roster = await pair(laptop, one, roster, keys, name)
    said = {"psk": "11" * 32, "ttlS": 900, "name": "tablet"}
    assert await reader.refused("invite", {**said, "inviteId": "00" * 16, "scope": "read"}) == "denied"
    assert await narrow.refused("invite", {**said, "inviteId": "00" * 16, "scope": "admin"}) == "denied"
    taken = {**said, "inviteId": "00" * 16, "scope": "write", "name": "laptop"}
    assert await narrow.refused("invite", taken) == "conflict"
    for wrong in (
        {"scope": "root"},
        {"ttlS": 0},
        {"ttlS": 10**9},
        {"name": "../x"},
        {"psk": "11"},
        {"inviteId": "0" * 31},
        {"inviteId": "G" * 32},
    ):
        assert await narrow.refused("invite", {**said, "inviteId": "00" * 16, "scope": "write", **wrong}) == "invalid"
    # Of several the first is named, in the order of PROTOCOL.md 9.
    wrong = {"inviteId": "00" * 16, "name": "../x", "ttlS": 0, "scope": "root"}
    named = (({}, "'../x' cannot name a device"), ({"name": "x"}, "'ttlS'"), ({"name": "x", "ttlS": 9}, "'scope'"))
    for right, says in named:
        with pytest.raises(RequestError, match=says):
            await narrow.request("invite", {**said, **wrong, **right})
    made = DeviceInvite.new(daemon.state.identity.static_key, daemon.url).invite
    body = {**said, "inviteId": made.invite_id.hex(), "psk": made.invite_psk.hex(), "scope": "write"}
    await narrow.request("invite", body)
    identity = Identity.generate()
    tablet = await Member(await daemon.connect(identity, invite=made), identity).__aenter__()
    caller = daemon.state.registry.caller(identity.public_key)
    assert caller is not None
    assert (caller.space, caller.grants.scope) == ("home", "write")
    assert (caller.grants.projects, caller.grants.sources) == (frozenset({"a"}), frozenset({"memory"}))
    with pytest.raises(RequestError):
        await tablet.attach("b")
    await leave(laptop, narrow, reader, tablet)


async def test_an_invite_does_not_tell_who_else_is_on_the_daemon(daemon: Serving) -> None:
    """A name that a machine of another space has, or will have, is answered like one that nobody has."""
    laptop = await member(daemon)
    await laptop.found()
    daemon.enroll("bobs-secret-box", space="bobs")
    daemon.invite("carols-box")
    said = {"ttlS": 900, "scope": "read"}
    names = ("bobs-secret-box", "carols-box", "nobody-here")
    made = [DeviceInvite.new(daemon.state.identity.static_key, daemon.url).invite for _ in names]
    for invite, name in zip(made, names, strict=True):
        body = {**said, "inviteId": invite.invite_id.hex(), "psk": invite.invite_psk.hex(), "name": name}
        first = await laptop.request("invite", body)
        assert list(first) == ["expiresAt"]
        assert (await laptop.request("invite", body)).keys() == first.keys(), "and it may be asked again"
    for invite in made:
        await (await daemon.connect(Identity.generate(), invite=invite)).close()
    in_space = sorted(caller.alias for caller in daemon.state.registry.callers() if caller.space == "home")
    assert in_space == ["bobs-secret-box-2", "carols-box-2", "laptop", "nobody-here"]
    again = DeviceInvite.new(daemon.state.identity.static_key, daemon.url).invite
    body = {**said, "inviteId": again.invite_id.hex(), "psk": again.invite_psk.hex(), "name": "nobody-here"}
    with pytest.raises(RequestError, match="of this space is named"):
        await laptop.request("invite", body)
    await leave(laptop)


# Records


async def test_records_are_stored_once_under_the_newest_epoch(daemon: Serving) -> None:
    laptop, desktop = await member(daemon), await member(daemon, "desktop")
    _, early = Roster.create(laptop.identity, "x", now=NOW)
    assert await laptop.refused("records", {"records": [wire(secret(early).encode())]}) == "conflict"
    roster, keys = await laptop.found()
    kept = [secret(keys, number) for number in range(3)]
    assert await desktop.refused("records", {"records": [wire(kept[0].encode())]}) == "conflict"
    await laptop.keep(*kept)
    await laptop.keep(*kept, *[secret(keys, number) for number in range(3)])
    assert [await laptop.record(one.secret_id) for one in kept] == kept
    roster = await pair(laptop, desktop, roster, keys, "desktop")
    await desktop.keep(secret(keys, 0))
    assert await desktop.record(kept[0].secret_id) == kept[0]
    roster, newer = roster.rotate(laptop.identity, keys, now=NOW)
    await laptop.extend(roster)
    assert await laptop.refused("records", {"records": [wire(secret(keys, 9).encode())]}) == "conflict"
    again = kept[0].reseal(newer)
    await desktop.keep(again)
    assert await laptop.record(kept[0].secret_id) == again
    with pytest.raises(WrongKeyError):
        (await laptop.record(kept[1].secret_id)).open(SpaceKeys.generate())
    # In one request, either all are of it or nothing is stored.
    mixed = [wire(one.encode()) for one in (secret(newer, 20), secret(keys, 21))]
    assert await laptop.refused("records", {"records": mixed}) == "conflict"
    assert await laptop.refused("record", {"id": secret(newer, 20).secret_id.hex()}) == "not_found"
    await leave(laptop, desktop)


async def test_records_have_bounds_and_a_form(daemon: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = await member(daemon)
    _, keys = await laptop.found()
    good = wire(secret(keys).encode())
    for records in (None, {}, "x", [1], [None], ["!"], [""], [wire(b"no record")], [good, wire(bytes(200))]):
        assert await laptop.refused("records", {"records": records}) == "invalid"
    assert await laptop.refused("records", {"records": [good] * 257}) == "too_large"
    monkeypatch.setattr(record_requests, "MAX_BYTES", 10_000)
    many = [wire(secret(keys, number).encode()) for number in range(100)]
    assert await laptop.refused("records", {"records": many}) == "too_large"
    for identity in ("", "00", "G" * 32, "A" * 32, 7, None):
        assert await laptop.refused("record", {"id": identity}) == "invalid"
    everything = {"after": "", "limit": 10}
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": "x"}, {"after": None}, {"below": -1}, {"below": "1"}):
        assert await laptop.refused("record-list", {**everything, **wrong}) == "invalid"
    assert (await laptop.request("record-list", everything)) == {"records": [], "next": None}
    await leave(laptop)


async def test_the_largest_secret_goes_through(daemon: Serving) -> None:
    laptop = await member(daemon)
    _, keys = await laptop.found()
    large = SealedRecord.seal(keys, "note", b"n" * 4 * 1024 * 1024)
    await laptop.keep(large, secret(keys))
    assert await laptop.record(large.secret_id) == large
    await leave(laptop)


async def test_a_list_tells_what_is_of_an_older_epoch(daemon: Serving) -> None:
    laptop = await member(daemon)
    roster, keys = await laptop.found()
    old = [secret(keys, number, kind="token") for number in range(5)]
    await laptop.keep(*old)
    roster, newer = roster.rotate(laptop.identity, keys, now=NOW)
    await laptop.extend(roster)
    await laptop.keep(old[0].reseal(newer), secret(newer, 9))
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        answer = await laptop.request("record-list", {"after": after, "limit": 2, "below": 2})
        found, after = [*found, *answer["records"]], answer["next"]
    assert [one["id"] for one in found] == sorted(one.secret_id.hex() for one in old[1:])
    assert {(one["kind"], one["epoch"]) for one in found} == {("token", 1)}
    assert all(one["at"].endswith("Z") for one in found)
    assert len((await laptop.request("record-list", {"after": "", "limit": 1000, "below": None}))["records"]) == 6
    await leave(laptop)


async def test_a_narrow_caller_reads_secrets_that_stand_in_what_it_may_read(daemon: Serving) -> None:
    """It is a device like the others, so a name that it has guessed must not be answered, nor may it list names."""
    laptop = await member(daemon)
    narrow = await member(daemon, "narrow", projects={"a"}, sources={"memory"})
    roster, keys = await laptop.found()
    await pair(laptop, narrow, roster, keys, "narrow")
    kept = [secret(keys, number) for number in range(2)]
    await laptop.keep(*kept)
    await laptop.attach("a", "b")
    for project, one in zip("ab", kept, strict=True):
        text = f"# Access\n\nThe password is {Placeholder('password', one.secret_id)}, as ever.\n"
        await laptop.put("memory/access.md", text, project=project)
    assert await narrow.record(kept[0].secret_id) == kept[0]
    assert await narrow.refused("record", {"id": kept[1].secret_id.hex()}) == "not_found"
    assert await narrow.refused("record-list", {"after": "", "limit": 10}) == "denied"
    elsewhere = await member(daemon, "elsewhere", projects={"b"})
    assert await elsewhere.refused("record-list", {"after": "", "limit": 10}) == "denied"
    assert await elsewhere.refused("record", {"id": kept[0].secret_id.hex()}) == "not_found"
    # It may seal what it writes.
    await narrow.keep(secret(keys, 7))
    daemon.state.registry.grant("narrow", lambda caller: (replace(caller.grants, projects=None), None))
    async with asyncio.timeout(DEADLINE_S):
        while not await reads(narrow, kept[1].secret_id):  # noqa: ASYNC110 - the daemon looks for changed grants by itself
            await asyncio.sleep(0.02)
    assert await narrow.refused("record-list", {"after": "", "limit": 10}) == "denied"  # not of all sources yet
    await leave(laptop, narrow, elsewhere)


async def reads(one: Member, secret_id: bytes) -> bool:
    """Whether it is given the record."""
    try:
        await one.record(secret_id)
    except ConfideError:
        return False
    return True


async def test_a_reader_opens_secrets_and_stores_none(daemon: Serving) -> None:
    laptop, reader = await member(daemon), await member(daemon, "reader", scope="read")
    roster, keys = await laptop.found()
    await pair(laptop, reader, roster, keys, "reader")
    kept = secret(keys)
    assert await reader.refused("records", {"records": [wire(kept.encode())]}) == "denied"
    await laptop.keep(kept)
    opened = (await reader.roster()).open(WrapKey(reader.identity))
    assert (await reader.record(kept.secret_id)).open(opened) == b"hunter 0"
    assert len((await reader.request("record-list", {"after": "", "limit": 10}))["records"]) == 1
    await leave(laptop, reader)


ODD = (
    None,
    True,
    -1,
    1.5,
    2**70,
    "",
    "x",
    "\ud7ff\0",
    "0" * 32,
    "0" * 64,
    "YQ==",
    "A" * 1_100_000,
    [],
    ["YQ=="],
    {},
    [[]],
)
FIELDS = {
    "roster": ("from",),
    "extend": ("entry",),
    "pair": ("card", "request"),
    "pair-answer": ("key", "answer"),
    "invite": ("inviteId", "psk", "name", "ttlS", "scope"),
    "records": ("records",),
    "record": ("id",),
    "record-list": ("after", "limit", "below"),
}


async def test_odd_bodies_are_refused_in_words_and_end_nothing(daemon: Serving) -> None:
    laptop = await member(daemon)
    await laptop.found()
    good = {
        "key": laptop.identity.public_key.hex(),
        "answer": wire(bytes(101)),
        "inviteId": "00" * 16,
        "psk": "11" * 32,
        "name": "tablet",
        "ttlS": 900,
        "scope": "write",
        "after": "",
        "limit": 10,
        "below": None,
    }
    asked = [
        laptop.refusal_or_none(op, {**{one: good[one] for one in fields if one in good}, field: value})
        for op, fields in FIELDS.items()
        for field in fields
        for value in ODD
    ]
    codes = set()
    for one in asked:
        codes.add(await one)
    assert codes == {None, "invalid", "too_large", "not_found", "conflict"}
    assert (await laptop.request("roster", {"from": 0}))["number"] == 0
    await leave(laptop)


# Spaces, news, restarts


async def test_another_space_sees_none_of_it(daemon: Serving) -> None:
    laptop, stranger = await member(daemon), await member(daemon, "stranger", space="away")
    roster, keys = await laptop.found()
    kept = secret(keys)
    await laptop.keep(kept)
    desktop = await member(daemon, "desktop")
    await desktop.request("pair", {"card": wire(Card.of(desktop.identity).encode())})
    assert (await stranger.request("roster", {"from": 0}))["number"] == -1
    assert await stranger.refused("record", {"id": kept.secret_id.hex()}) == "not_found"
    assert (await stranger.request("record-list", {"after": "", "limit": 10}))["records"] == []
    assert await stranger.refused("records", {"records": [wire(kept.encode())]}) == "conflict"
    # Once it has a roster, entries and records of the other space are still strange to it.
    theirs, own = await stranger.found("stranger")
    assert not (await stranger.request("roster", {"from": 0}))["waiting"]
    entry = roster.add(laptop.identity, device(stranger.identity, "s"), keys, now=NOW).entries[-1].encode()
    assert await stranger.refused("extend", {"entry": wire(entry)}) == "invalid"
    key = desktop.identity.public_key.hex()
    assert await stranger.refused("pair-answer", {"key": key, "answer": wire(bytes(101))}) == "not_found"
    # It cannot know that this record is not its own, and no machine of either space ever opens it there.
    await stranger.keep(kept)
    with pytest.raises(ConfideError):
        (await stranger.record(kept.secret_id)).open(own)
    assert await laptop.record(kept.secret_id) == kept
    assert await laptop.roster() == roster
    assert await stranger.roster() == theirs
    assert stranger.roster_news.empty()
    await leave(laptop, desktop, stranger)


async def test_every_connection_of_the_space_hears_of_changes_and_a_deaf_one_holds_nobody_up(daemon: Serving) -> None:
    laptop, desktop, deaf = await members(daemon, "laptop", "desktop", "deaf")
    deaf.is_deaf = True
    roster, keys = await laptop.found()
    assert await desktop.news() == {"number": 0, "waiting": False}
    assert await deaf.news() == {"number": 0, "waiting": False}
    for number in range(1, 6):
        roster = roster.add(laptop.identity, device(Identity.generate(), f"m{number}"), keys, now=NOW)
        await laptop.extend(roster)
    while (await desktop.news())["number"] != 5:
        pass
    # It has one request before it and is sent no second one; the one that changed it knows.
    assert deaf.roster_news.empty()
    assert laptop.roster_news.empty()
    await desktop.request("pair", {"card": wire(Card.of(desktop.identity).encode())})
    assert await laptop.news() == {"number": 5, "waiting": True}
    await leave(laptop, desktop, deaf)


async def test_all_of_it_outlives_the_daemon(tmp_path: Path) -> None:
    async with serving(tmp_path) as daemon:
        laptop, desktop = await member(daemon), await member(daemon, "desktop")
        roster, keys = await laptop.found()
        kept = secret(keys)
        await laptop.keep(kept)
        await desktop.request("pair", {"card": wire(Card.of(desktop.identity).encode())})
        identity, waits = laptop.identity, desktop.identity
        await leave(laptop, desktop)
    async with serving(tmp_path) as daemon:
        laptop = await back(daemon, identity)
        assert await laptop.roster() == roster
        assert (await laptop.attach())["sealing"]["head"] == roster.head.hex()
        assert await laptop.record(kept.secret_id) == kept
        (waiting,) = (await laptop.request("roster", {"from": 0}))["waiting"]
        assert waiting["key"] == waits.public_key.hex()
        roster, _ = roster.rotate(identity, keys, now=NOW)
        assert await laptop.extend(roster) == {"number": 1}
        await leave(laptop)


async def test_the_daemons_folder_and_memory_of_it_hold_no_secret(tmp_path: Path) -> None:
    """Everything that the daemon was given about a secret is opened with its own keys, and the value is nowhere in it."""
    value = b"correct horse battery staple canary"
    async with serving(tmp_path) as daemon:
        laptop = await member(daemon)
        _, keys = await laptop.found()
        kept = SealedRecord.seal(keys, "password", value)
        await laptop.keep(kept)
        await laptop.attach()
        await laptop.put("memory/a.md", f"It is {Placeholder('password', kept.secret_id)} now.\n")
        registry = daemon.state.registry
        with registry.reading() as database:
            stored = everything(database.execute("SELECT * FROM roster_entries"))
        space = await daemon.daemon.spaces.get(registry.spaces()["home"])
        stored += await space.threads.read(lambda store: everything(store.rows("SELECT * FROM sealed_record")))
        await leave(laptop)
    assert kept.secret_id in stored
    for needle in (value, value.hex().encode(), *keys.epochs):
        assert needle not in stored


def everything(rows: Iterable[Any]) -> bytes:
    """All values of some rows, one behind the other."""
    return b"\0".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)


async def test_status_tells_of_devices_epoch_and_secrets(daemon: Serving) -> None:
    laptop, narrow = await member(daemon), await member(daemon, "narrow", projects={"proj"})
    for one in (laptop, narrow):
        await one.attach()
    async with laptop.mcp() as client, narrow.mcp() as other:
        before = await client.call_tool("memory_status", {})
        assert before.structured_content is not None
        assert before.structured_content["sealing"] == {
            "devices": 0,
            "recoveryCodes": 0,
            "epoch": 0,
            "secrets": 0,
            "custody": "server",
        }
        _, keys = await laptop.found()
        await laptop.keep(secret(keys))
        told = [(await one.call_tool("memory_status", {})).structured_content for one in (client, other)]
        assert [one["sealing"] for one in told if one] == [
            {"devices": 1, "recoveryCodes": 0, "epoch": 1, "secrets": 1, "custody": "server"},
            {"devices": 1, "recoveryCodes": 0, "epoch": 1, "secrets": None, "custody": "server"},
        ]
    await leave(laptop, narrow)


async def test_a_caller_that_is_shut_out_reads_nothing_more(daemon: Serving) -> None:
    laptop = await member(daemon)
    _, keys = await laptop.found()
    await laptop.keep(secret(keys))
    daemon.state.registry.revoke("laptop")
    async with asyncio.timeout(DEADLINE_S):
        while await reads(laptop, secret(keys).secret_id):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    await leave(laptop)
