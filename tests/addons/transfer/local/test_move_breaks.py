"""A move that breaks off at every one of its requests, goes on, and leaves two spaces that are the same."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.daemon.task_runners import order, signed
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.founder import Device

from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.access.enrolled_callers import Grants
from confide_night.local import moments as tasks
from confide_night.order.order import Order
from confide_proxy.errors import UnfitAnswerError
from confide_transfer.errors import MoveError
from confide_transfer.move.local.carrier import Carrier
from confide_transfer.move.local.inventory import Holdings, read_holdings
from confide_transfer.move.local.journey import state


class Breaking:
    """A link that breaks at one request: before it, or once it was answered and nobody hears that."""

    def __init__(self, link: Machine, at: int, *, is_lost: bool) -> None:
        self._link = link
        self._left = at
        self._is_lost = is_lost

    async def request(self, op: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        """As a connection's."""
        self._left -= 1
        if self._left == 0 and not self._is_lost:
            raise ConnectionLost(truncated=True)
        answer = await self._link.request(op, body)
        if self._left == 0:
            raise ConnectionLost(truncated=True)
        return answer

    async def upload(self, *_: Any, **__: Any) -> dict[str, Any]:
        """A move sends no bodies."""
        raise AssertionError


def whole(link: Machine) -> Any:
    """A link that holds."""
    return Breaking(link, 0, is_lost=False)


async def grow(at: Machine, device: Device) -> None:
    """A memory with everything that there can be."""
    await at.attach("shop", "other")
    await device.found(at)
    await at.put("memory/heron.md", "one\n", project="shop")
    await at.put("memory/heron.md", "one\ntwo\n", base=1, project="shop")
    await at.put("memory/stork.md", "gone\n", project="shop")
    await at.request("remove", {"project": "shop", "path": "memory/stork.md", "base": 1})
    await at.put("memory/notes/crane.md", "---\ntitle: Cranes\n---\nThey dance.\n", project="other")
    await at.request("link", {"project": "shop", "other": "other"})
    said = [{"role": "user", "text": "hello", "time": "2026-11-21T10:00:00Z"}]
    body = {"project": "shop", "agent": "claude-code", "session": "s1", "version": 0, "from": 0, "to": 9, "head": "h"}
    await at.request("transcript", {**body, "mark": "m", "messages": said})
    records = [SealedRecord.seal(device.keys, "github-token", f"secret {number}".encode()) for number in range(3)]
    await at.request("records", {"records": [base64.b64encode(one.encode()).decode() for one in records]})


async def moved(source: Any, target: Any, device: Device) -> Holdings:
    """One run of a move."""
    carrier = Carrier(source, target, device.keys, lambda *_: None)
    await carrier.begin(device.roster)
    await carrier.carry()
    return await carrier.finish()


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[tuple[Machine, Device, Serving]]:
    """A machine at the daemon that has its memory, and another daemon, where it has a new space."""
    async with serving(tmp_path / "a") as here, serving(tmp_path / "b", keeper="caller") as there:
        identity = here.enroll("laptop")
        there.state.registry.add_caller(
            identity.public_key, Grants("laptop", "write", None, None), space="fresh", added_by="line"
        )
        async with Machine(await here.connect(identity)) as source:
            device = Device(identity)
            await grow(source, device)
            yield source, device, there


async def test_a_move_that_breaks_at_every_request_ends_whole(ends: tuple[Machine, Device, Serving]) -> None:
    """Nothing is lost or doubled, wherever it was broken off and whichever of both heard of it; the source is what it was."""
    source, device, there = ends
    before = await read_holdings(whole(source))
    breaks, is_done = 0, False
    while not is_done:
        at, is_lost = breaks // 2 + 1, breaks % 2 == 1
        breaks += 1
        async with Machine(await there.connect_in_time(device.identity)) as target:
            try:
                await moved(whole(source), Breaking(target, at, is_lost=is_lost), device)
                is_done = True
            except ConnectionLost:
                assert breaks < 400
    async with Machine(await there.connect_in_time(device.identity)) as target:
        after = await read_holdings(whole(target))
        await target.attach("shop")
        told = await target.request("history", {"project": "shop", "path": "memory/heron.md"})
        assert [one["revision"] for one in told["revisions"]] == [2, 1]
        assert (await target.request("pull", {"project": "shop", "path": "memory/stork.md", "revision": 1}))["text"]
    assert breaks > 20
    assert after.revisions == before.revisions == (await read_holdings(whole(source))).revisions
    assert after.secrets == before.secrets
    assert (after.sessions, after.links, after.deleted) == (before.sessions, before.links, before.deleted)


async def test_a_space_that_arrives_takes_nothing_else(ends: tuple[Machine, Device, Serving]) -> None:
    """Until a move is complete, its target stores nothing for anybody; its source still does."""
    source, device, there = ends
    async with Machine(await there.connect(device.identity)) as target:
        carrier = Carrier(whole(source), whole(target), device.keys, lambda *_: None)
        await carrier.begin(device.roster)
        await carrier.carry()
        with pytest.raises(RequestError, match="not complete"):
            await target.attach("shop")
        await source.put("memory/late.md", "late\n", project="shop")
        await carrier.finish()
        await target.attach("shop")
        assert (await target.request("pull", {"project": "shop", "path": "memory/late.md"}))["text"] == "late\n"


async def test_a_space_that_is_held_still_is_free_again_when_its_machine_is_gone(tmp_path: Path) -> None:
    """At the end of a move other sessions end and are refused; a machine that dies there leaves the memory as it was."""
    async with serving(tmp_path / "a") as here:
        identity = here.enroll("laptop")
        other = here.enroll("phone", space="laptop")
        async with Machine(await here.connect(identity)) as source, Machine(await here.connect(other)) as phone:
            await Device(identity).found(source)
            await phone.attach("shop")
            await source.request("move-hold", {})
            await phone.ended_within(DEADLINE_S)
            async with Machine(await here.connect(other)) as again:
                with pytest.raises(RequestError, match="is being moved"):
                    await again.attach("shop")
        async with Machine(await here.connect_in_time(other)) as again:
            await again.attach("shop")
            await again.put("memory/a.md", "a\n", project="shop")


async def test_a_move_goes_into_an_empty_space_alone(ends: tuple[Machine, Device, Serving]) -> None:
    """Where there is memory already, or other devices, nothing is brought and a person is told what to do."""
    source, device, there = ends
    async with Machine(await there.connect(device.identity)) as target:
        await Device(device.identity).found(target)
        carrier = Carrier(whole(source), whole(target), device.keys, lambda *_: None)
        with pytest.raises(RequestError, match="devices of its own") as refused:
            await carrier.begin(device.roster)
        assert "confided invite" in (refused.value.hint or "")


async def test_what_was_moved_away_is_closed_and_says_so(ends: tuple[Machine, Device, Serving]) -> None:
    """A device that still connects to the daemon that was left is told where to go on; what came since keeps it open."""
    source, device, there = ends
    async with Machine(await there.connect(device.identity)) as target:
        carrier = Carrier(whole(source), whole(target), device.keys, lambda *_: None)
        await carrier.begin(device.roster)
        await carrier.carry()
        await carrier.finish()
    with pytest.raises(RequestError, match="1 changes were made"):
        await source.request("move-leave", {"changes": carrier.changes - 1})
    with pytest.raises(RequestError, match="put back from a copy"):
        await source.request("move-leave", {"changes": carrier.changes + 1})
    await source.request("move-leave", {"changes": carrier.changes})
    with pytest.raises(RequestError, match="was moved to another daemon"):
        await source.attach("shop")


async def _due(at: Machine, device: Device, **more: Any) -> Order:
    """A task of the device's, added to the space."""
    whole_order = order(device.identity, project="shop", **more)
    call = {"project": "shop", "operation": f"{whole_order.id}{whole_order.id}", "tool": "task_add"}
    await at.request("call", {**call, "arguments": signed(device.identity, device.roster.space, whole_order)})
    return whole_order


_NOTHING: dict[str, Any] = {"tasks": [], "slots": [], "logs": [], "runners": [], "spent": []}
_CLAIM: dict[str, Any] = {
    "recipes": [{"name": "review", "maxMicrousd": 0, "approval": False}],
    "busy": [],
    "leftMicrousd": 0,
}


async def test_tasks_that_break_off_on_their_way_are_begun_nowhere_until_they_have_come(
    ends: tuple[Machine, Device, Serving],
) -> None:
    """At every moment at most one daemon gives a slot away; in the end all is there, and what ran goes on under its fence."""
    source, device, there = ends
    for _ in range(2):
        await _due(source, device)
    await _due(source, device, schedule="0 2 * * *")
    held_slot = (await source.request("task-claim", _CLAIM))["slot"]
    held_name = {name: held_slot[name] for name in ("task", "at", "attempt", "fence")}
    await source.request("task-started", {**held_name, "repeatable": False})
    before = {one["task"]: await source.request("task-show", {"task": one["task"]}) for one in [held_slot]}
    async with Machine(await there.connect(device.identity)) as target:
        carrier = Carrier(whole(source), whole(target), device.keys, lambda *_: None)
        await carrier.begin(device.roster)
        await carrier.carry()
        await carrier.finish()
        assert carrier.tasks == 3
        with pytest.raises(RequestError, match="once the space has left"):
            await tasks.bring(whole(source), whole(target))
        # Nobody is closed yet: the source goes on with its tasks, and the target has begun none.
        for op, body in (("task-claim", _CLAIM), ("task-renew", held_name), ("task-report", {"brief": True})):
            with pytest.raises(RequestError, match="on their way here") as refused:
                await target.request(op, body)
            assert refused.value.code == "unavailable"
        assert (await source.request("task-renew", held_name))["cancelled"] is False
        await target.request("move-hold", {})
        with pytest.raises(RequestError, match="tasks are still at the daemon"):
            await target.request("move-leave", {"changes": 0})
    await source.request("move-leave", {"changes": carrier.changes})
    breaks, is_done = 0, False
    while not is_done:
        at, is_lost = breaks // 2 + 1, breaks % 2 == 1
        breaks += 1
        async with Machine(await there.connect_in_time(device.identity)) as target:
            try:
                await tasks.bring(whole(source), Breaking(target, at, is_lost=is_lost))
                is_done = True
            except ConnectionLost:
                assert breaks < 100
        with pytest.raises(RequestError, match="was moved to another daemon"):
            await source.request("task-claim", _CLAIM)
    assert breaks > 10
    async with Machine(await there.connect_in_time(device.identity)) as target:
        assert {one: await target.request("task-show", {"task": one}) for one in before} == before
        assert (await target.request("task-renew", held_name))["cancelled"] is False
        ended = await target.request("task-ended", {**held_name, "state": "succeeded"})
        assert ended["effects"] is True
        again = (await target.request("task-claim", _CLAIM))["slot"]
        assert again["task"] != held_slot["task"]
        assert again["fence"] > held_slot["fence"]
        assert (await target.request("move-state", {}))["tasks"] == 3
        await tasks.bring(whole(source), whole(target))  # once more, by a machine that has not heard the answer
        assert (await target.request("task-renew", {**held_name, **{n: again[n] for n in held_name}}))["leaseS"] == 90


async def test_tasks_that_will_not_come_are_given_up(ends: tuple[Machine, Device, Serving]) -> None:
    """Where the daemon that was left goes on, its tasks stay there; the other one takes tasks of its own again."""
    source, device, there = ends
    await _due(source, device)
    async with Machine(await there.connect(device.identity)) as target:
        carrier = Carrier(whole(source), whole(target), device.keys, lambda *_: None)
        await carrier.begin(device.roster)
        await carrier.finish()
        await tasks.give_up(whole(target))
        assert (await target.request("task-claim", _CLAIM))["slot"] is None
        with pytest.raises(RequestError, match="no tasks are awaited"):
            await target.request("move-tasks-in", {**_NOTHING, "isLast": True})
    assert (await source.request("task-claim", _CLAIM))["slot"] is not None


class Lying:
    """A daemon that answers every request of a move with something else."""

    def __init__(self, link: Machine, op: str, answer: dict[str, Any]) -> None:
        self._link = link
        self._op = op
        self._answer = answer

    async def request(self, op: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        """As a connection's."""
        return self._answer if op == self._op else await self._link.request(op, body)

    async def upload(self, *_: Any, **__: Any) -> dict[str, Any]:
        """A move sends no bodies."""
        raise AssertionError


_ONE: dict[str, Any] = {
    "id": 1,
    "project": "shop",
    "path": "memory/heron.md",
    "revision": 1,
    "hash": "ab" * 32,
    "author": "x",
    "time": 1,
    "packed": None,
}


NONSENSE = [
    ("move-out", {"revisions": [_ONE], "next": 1, "total": 1}),
    ("move-out", {"revisions": [], "next": 7, "total": 1}),
    ("move-out", {"revisions": [{**_ONE, "revision": "1"}], "next": 1, "total": 1}),
    ("move-out", {"revisions": None}),
    ("move-facts", {"documents": [], "sessions": [], "links": [], "next": 3}),
    ("move-in", {"taken": "all"}),
    ("move-in", {"taken": 0}),
    ("move-end", {"damaged": 3}),
    ("record", {"record": "AAAA"}),
]


async def test_a_daemon_that_answers_nonsense_ends_a_move(ends: tuple[Machine, Device, Serving]) -> None:
    """Whatever the new daemon says, the move ends with a sentence, and the memory is where it was."""
    for op, answer in NONSENSE:
        source, device, there = ends
        async with Machine(await there.connect(device.identity)) as target:
            link: Any = Lying(target, op, answer)
            with pytest.raises((MoveError, UnfitAnswerError, RequestError)):
                await moved(whole(source), link, device)
        await source.put("memory/after.md", "still here\n", project="shop")


async def test_a_daemon_that_knows_no_moves_is_named_as_too_old(ends: tuple[Machine, Device, Serving]) -> None:
    """An older daemon refuses the request; a person is told to update it."""
    source, device, _ = ends

    class Old(Lying):
        async def request(self, op: str, body: dict[str, Any], **named: Any) -> dict[str, Any]:
            """As an older daemon."""
            if op.startswith("move-"):
                raise RequestError("invalid", "this daemon does not know that request")
            return await super().request(op, body, **named)

    old: Any = Old(source, "", {})
    with pytest.raises(MoveError, match="too old"):
        await Carrier(whole(source), old, device.keys, lambda *_: None).begin(device.roster)
    with pytest.raises(MoveError, match="too old"):
        await state(old, "the daemon")
