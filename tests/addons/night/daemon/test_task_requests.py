"""Devices order tasks and a runner does them, over real connections: what it is given, what it may say, and what a person reads of it."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.daemon.task_runners import DOLLAR, Device, named, order, signed
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_crypto.handshake.rotation import sign_rotation
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.roster_entry import Device as Listed
from confide_night.order.order import Order, approve_order

Connect = Callable[..., Awaitable[Device]]


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Device]:
    """The only device of its space, which orders and runs."""
    identity = daemon.enroll("laptop", space="home")
    async with Device(await daemon.connect(identity), identity) as device:
        await device.found()
        await device.attach()
        yield device


@pytest.fixture
async def another(daemon: Serving, laptop: Device) -> AsyncIterator[Connect]:
    """Connects one more device of the space, by its name and what it may."""
    async with AsyncExitStack() as connected:

        async def connect(name: str, **grants: Any) -> Device:
            identity = daemon.enroll(name, space="home", **grants)
            device = await connected.enter_async_context(Device(await daemon.connect(identity), identity))
            laptop.roster = laptop.roster.add(
                laptop.identity, Listed(Card.of(identity), name), laptop.keys, now=int(time.time())
            )
            await laptop.request("extend", {"entry": base64.b64encode(laptop.roster.entries[-1].encode()).decode()})
            device.roster = laptop.roster
            await device.attach(*(grants.get("projects") or ()))
            return device

        yield connect


def approval_of(device: Device, whole: Order) -> str:
    """The signature by which a device stands for another one's order."""
    approval = approve_order(device.identity, device.roster.space, whole.encode())
    return base64.b64encode(approval.signature).decode()


async def test_from_the_order_to_its_result(laptop: Device) -> None:
    """Added, claimed, begun, ended, read: the thinnest path that there is."""
    whole = order(laptop.identity)
    added = await laptop.add(whole)
    assert (added["id"], added["state"], added["queued"]) == (whole.id, "active", False)
    assert "no runner has worked here" in added["warnings"][0]
    [listed] = (await laptop.look_up("task_list"))["tasks"]
    assert [listed["why"]] == added["warnings"]
    assert (await laptop.request("task-show", {"task": whole.id}))["why"] == listed["why"]
    slot = await laptop.claim()
    assert slot is not None
    assert (slot["task"], slot["at"], slot["attempt"], slot["leaseS"]) == (whole.id, whole.at, 1, 90)
    assert slot["limitMicrousd"] == 2 * DOLLAR
    await laptop.start(slot)
    [running] = (await laptop.look_up("task_list", status="running"))["tasks"]
    assert (running["id"], running["why"]) == (whole.id, "")
    assert await laptop.request("task-renew", named(slot)) == {"leaseS": 90, "cancelled": False}
    ended = await laptop.end(
        slot, text="Nothing is wrong.", checked=True, microusd=12_345, tokensIn=900, tokensOut=100, durationMs=4_000
    )
    assert (ended["state"], ended["effects"]) == ("succeeded", True)
    assert ended["path"].startswith(f"memory/tasks/{whole.id}/")
    (result,) = (await laptop.look_up("task_results", taskId=whole.id[:6]))["results"]
    assert (result["state"], result["success"], result["checked"]) == ("succeeded", True, True)
    assert (result["tokensUsed"], result["costUsd"], result["durationMs"]) == (1_000, 0.012345, 4_000)
    assert (result["summary"], result["path"]) == ("Nothing is wrong.", ended["path"])
    assert (await laptop.look_up("task_list"))["tasks"][0]["status"] == "done"
    assert await laptop.claim() is None


async def test_a_result_is_in_no_list_but_its_own(laptop: Device) -> None:
    """It is the text of whoever ran, untrusted, of its task alone: no search and no list has it unasked."""
    whole = order(laptop.identity)
    await laptop.add(whole)
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    ended = await laptop.end(slot, text="The zebra crosses at noon.")
    assert (await laptop.look_up("memory_search", query="zebra noon"))["results"] == []
    assert (await laptop.look_up("memory_list"))["memories"] == []
    (found,) = (await laptop.look_up("memory_list", scope="task", taskId=whole.id))["memories"]
    assert (found["path"], found["source"]) == (ended["path"], "task")
    trust = await laptop.request("trust", {"project": "proj", "path": ended["path"]})
    assert trust["class"] == "untrusted"


async def test_a_lost_answer_costs_nothing(laptop: Device) -> None:
    """Each word said twice is answered as the first time, and makes one task, one start, one result."""
    whole = order(laptop.identity)
    assert (await laptop.add(whole))["id"] == (await laptop.add(whole))["id"]
    first, slot = await laptop.claim(), await laptop.claim()
    assert first is not None
    assert slot is not None
    assert (slot["task"], slot["attempt"]) == (first["task"], first["attempt"])
    assert slot["fence"] > first["fence"]
    assert await laptop.refused("task-started", named(first)) == "conflict"
    await laptop.start(slot)
    await laptop.request("task-started", named(slot))
    said = [await laptop.end(slot, text="done") for _ in range(2)]
    assert said[0] == said[1]
    assert len((await laptop.look_up("task_results"))["results"]) == 1
    assert len((await laptop.look_up("memory_list", scope="task", taskId=whole.id))["memories"]) == 1


@pytest.mark.parametrize("wrong", [{"fence": 1}, {"attempt": 2}, {"fence": 2**40}])
async def test_a_stale_word_is_refused(laptop: Device, wrong: dict[str, int]) -> None:
    await laptop.add(order(laptop.identity))
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    for op, more in (("task-renew", {}), ("task-ended", {"state": "succeeded"}), ("task-started", {})):
        assert await laptop.refused(op, {**named(slot), **wrong, **more}) == "conflict"
    assert await laptop.refused("task-renew", {**named(slot), "at": slot["at"] + 1}) == "not_found"
    assert (await laptop.end(slot))["state"] == "succeeded"


async def test_nobody_else_speaks_for_a_run(daemon: Serving, laptop: Device, another: Connect) -> None:
    """Another device, a machine that is none, and one whose reach is elsewhere."""
    await laptop.add(order(laptop.identity))
    server = await another("server")
    narrow = await another("narrow", projects=frozenset({"other"}))
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    for device in (server, narrow):
        assert await device.refused("task-ended", {**named(slot), "state": "succeeded"}) in ("conflict", "denied")
    identity = daemon.enroll("stranger", space="home")
    async with Device(await daemon.connect(identity), identity) as stranger:
        assert await stranger.refused("task-claim", {"recipes": [], "busy": [], "leftMicrousd": 0}) == "denied"
    await laptop.add(order(laptop.identity))
    assert await narrow.claim() is None
    assert await server.claim() is not None


async def test_an_order_that_no_device_signed_is_not_taken(laptop: Device, another: Connect) -> None:
    """Altered, of another space, of another device, expired, without a signature."""
    whole = order(laptop.identity)
    good = signed(laptop.identity, laptop.roster.space, whole)
    server = await another("server")
    past = replace(whole, added=int(time.time()) - 100, expires=int(time.time()) - 1)
    for device, arguments in (
        (laptop, {**good, "order": good["order"].replace("look", "rm")}),
        (laptop, signed(laptop.identity, bytes(16), whole)),
        (laptop, signed(server.identity, laptop.roster.space, whole)),
        (laptop, signed(laptop.identity, laptop.roster.space, past)),
        (laptop, {"description": "look at it"}),
        (server, good),
    ):
        body = {"project": "proj", "operation": "0f" * 16, "tool": "task_add", "arguments": arguments}
        assert await device.refused("call", body) == "invalid"
    assert (await laptop.look_up("task_list"))["tasks"] == []


async def test_a_runner_is_told_of_work_and_of_what_to_kill(laptop: Device) -> None:
    """Nothing is polled for: it hears that something may be claimed, and what is to be killed."""
    assert await laptop.claim() is None
    await laptop.add(order(laptop.identity))
    async with asyncio.timeout(DEADLINE_S):
        while not (await laptop.task_news.get())["ready"]:
            pass
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    cancelled = await laptop.cancel(slot["task"])
    assert (cancelled["cancelled"], cancelled["killed"]) == (True, 1)
    async with asyncio.timeout(DEADLINE_S):
        while not (news := await laptop.task_news.get())["cancelled"]:
            pass
    assert news["cancelled"] == [named(slot)]
    assert (await laptop.request("task-renew", named(slot)))["cancelled"]
    ended = await laptop.end(slot, "succeeded", text="I am done all the same")
    assert (ended["state"], ended["effects"], ended["path"]) == ("cancelled", False, None)
    assert not (await laptop.cancel(slot["task"]))["cancelled"]


async def test_a_device_signs_a_task_anew_and_changes_nothing_of_it(laptop: Device, another: Connect) -> None:
    """As when its key was changed. Only what the task says stays; whoever approved other bytes is asked again."""
    desktop = await another("desktop")
    whole = order(laptop.identity, schedule="0 2 * * *")
    await laptop.add(whole)
    await desktop.request("task-approve", {"task": whole.id, "signature": approval_of(desktop, whole)})
    again = replace(whole, signer=desktop.identity.public_key.hex())

    def body(one: Any, by: Device) -> dict[str, Any]:
        told = signed(by.identity, laptop.roster.space, one)
        return {"order": base64.b64encode(told["order"].encode()).decode(), "signature": told["signature"]}

    for wrong in (replace(again, priority=10), replace(again, expires=whole.expires + 1), replace(again, recipe="fix")):
        assert await desktop.refused("task-resign", body(wrong, desktop)) == "conflict"
    assert await desktop.refused("task-resign", body(again, laptop)) == "invalid"
    assert await laptop.refused("task-resign", body(again, desktop)) == "invalid"
    assert await desktop.refused("task-resign", body(replace(again, id="ab" * 8), desktop)) == "not_found"
    listed = await desktop.request("task-orders", {"key": laptop.identity.public_key.hex(), "after": ""})
    assert [len(one["approvals"]) for one in listed["orders"]] == [1]
    for _ in range(2):  # its answer may be lost
        assert await desktop.request("task-resign", body(again, desktop)) == {"state": "proposed"}
    shown = await laptop.request("task-show", {"task": whole.id})
    assert (shown["device"], shown["approvals"], len(shown["slots"])) == ("desktop", [], 1)
    assert (await desktop.request("task-orders", {"key": laptop.identity.public_key.hex(), "after": ""}))[
        "orders"
    ] == []
    await laptop.cancel(whole.id)
    assert await laptop.refused("task-resign", body(whole, laptop)) == "conflict"


async def test_a_task_that_is_sent_again_with_a_new_key_is_the_same(laptop: Device, another: Connect) -> None:
    """As by a machine that had no answer and has changed its key since; it does not have to sign its orders anew before that."""
    desktop = await another("desktop")
    whole, ended = order(laptop.identity), order(laptop.identity)
    for one in (whole, ended):
        await laptop.add(one)
    await laptop.cancel(ended.id)
    for one in (whole, ended):
        again = replace(one, signer=desktop.identity.public_key.hex())
        with pytest.raises(RequestError, match="another task of that id"):
            await desktop.add(replace(again, priority=10))
        assert (await desktop.add(again))["id"] == one.id
    listed = {one["id"]: one["status"] for one in (await laptop.look_up("task_list"))["tasks"]}
    assert listed == {whole.id: "pending", ended.id: "cancelled"}
    assert (await laptop.request("task-show", {"task": whole.id}))["device"] == "desktop"


async def test_a_runner_goes_on_under_the_new_key_of_its_machine(
    daemon: Serving, laptop: Device, another: Connect
) -> None:
    """However often that is changed: what it was given under an old one is its own, and nobody else's."""
    desktop = await another("desktop")
    await laptop.add(order(laptop.identity))
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    before, runner = laptop.identity, laptop
    async with AsyncExitStack() as stack:
        for _ in range(2):
            new = Identity.generate()
            await runner.request("rotate", sign_rotation(before, new, runner.connection.session_id))
            laptop.roster = laptop.roster.add(before, Listed(Card.of(new), "laptop"), laptop.keys, now=int(time.time()))
            await runner.request("extend", {"entry": base64.b64encode(laptop.roster.entries[-1].encode()).decode()})
            before, runner = new, await stack.enter_async_context(Device(await daemon.connect(new), new))
        assert await desktop.refused("task-renew", named(slot)) == "conflict"
        assert not (await runner.request("task-renew", named(slot)))["cancelled"]
        shown = await desktop.request("task-show", {"task": slot["task"]})
        assert shown["slots"][0]["runner"] == "laptop"
        assert (await runner.end(slot))["state"] == "succeeded"


async def test_a_runner_that_connects_again_is_told_what_to_kill(daemon: Serving, laptop: Device) -> None:
    """It claims nothing while it runs something; its first word about that is enough."""
    whole = order(laptop.identity)
    await laptop.add(whole)
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    async with Device(await daemon.connect(laptop.identity), laptop.identity) as again:
        await again.request("task-renew", named(slot))
        await laptop.cancel(whole.id)
        async with asyncio.timeout(DEADLINE_S):
            while not (news := await again.task_news.get())["cancelled"]:
                pass
        assert news["cancelled"] == [named(slot)]


async def test_a_task_of_a_removed_device_stands_still(laptop: Device, another: Connect) -> None:
    """Its run is killed, and the list says whose it was."""
    server = await another("old server")
    for _ in range(2):
        await server.add(order(server.identity))
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    laptop.roster, _ = laptop.roster.remove(
        laptop.identity, server.identity.public_key, laptop.keys, now=int(time.time())
    )
    await laptop.request("extend", {"entry": base64.b64encode(laptop.roster.entries[-1].encode()).decode()})
    async with asyncio.timeout(DEADLINE_S):
        while not (news := await laptop.task_news.get())["cancelled"]:
            pass
    assert news["cancelled"] == [named(slot)]
    assert await laptop.claim() is None
    assert (await laptop.request("task-renew", named(slot)))["cancelled"]
    await laptop.end(slot, "cancelled")
    listed = (await laptop.look_up("task_list"))["tasks"]
    assert {one["status"] for one in listed} == {"paused"}
    assert "old server" in listed[0]["why"]


async def test_a_recipe_that_takes_two_devices(laptop: Device, another: Connect) -> None:
    whole = order(laptop.identity, recipe="publish")
    await laptop.add(whole)
    assert await laptop.claim("publish", approval=True) is None
    (listed,) = (await laptop.look_up("task_list"))["tasks"]
    assert (listed["status"], "second device" in listed["why"]) == ("pending", True)
    server = await another("server")
    for device, code in ((laptop, "invalid"), (server, None)):
        body = {"task": whole.id, "signature": approval_of(device, whole)}
        if code is not None:
            assert await device.refused("task-approve", body) == code
        else:
            assert (await device.request("task-approve", body))["state"] == "active"
    slot = await laptop.claim("publish", approval=True)
    assert slot is not None
    assert [one["key"] for one in slot["approvals"]] == [server.identity.public_key.hex()]
    await laptop.start(slot)
    await laptop.end(slot, "again")
    laptop.roster, _ = laptop.roster.remove(
        laptop.identity, server.identity.public_key, laptop.keys, now=int(time.time())
    )
    await laptop.request("extend", {"entry": base64.b64encode(laptop.roster.entries[-1].encode()).decode()})
    assert await laptop.claim("publish", approval=True) is None
    shown = await laptop.request("task-show", {"task": whole.id})
    assert (shown["state"], shown["approvals"]) == ("proposed", []), "the approval of a removed device counts on"
    assert (await laptop.add(order(laptop.identity, recipe="publish")))["state"] == "proposed"


async def test_the_last_dollar_is_spent_once(laptop: Device, another: Connect) -> None:
    """What a run may cost is put aside when it is given, by what order, recipe and runner allow."""
    await laptop.add(order(laptop.identity, max_microusd=DOLLAR // 2, priority=9))
    await laptop.add(order(laptop.identity))
    slot = await laptop.claim()
    assert slot is not None
    assert slot["limitMicrousd"] == DOLLAR // 2
    assert await laptop.claim(left=0) is not None  # the same again: its answer may have been lost
    server = await another("server")
    assert await server.claim(left=9_999) is None
    poor = await server.claim(left=30_000)
    assert poor is not None
    assert poor["limitMicrousd"] == 30_000


async def test_a_log_is_sealed_or_not_taken(daemon: Serving, laptop: Device) -> None:
    await laptop.add(order(laptop.identity))
    slot = await laptop.claim()
    assert slot is not None
    await laptop.start(slot)
    record = SealedRecord.seal(laptop.keys, "task-log", b"line one\n").encode()
    part = {**named(slot), "part": 0, "record": base64.b64encode(record).decode()}
    plain = {**part, "record": base64.b64encode(b"line one").decode()}
    other = base64.b64encode(SealedRecord.seal(laptop.keys, "github-token", b"x" * 40).encode()).decode()
    assert await laptop.refused("task-log", plain) == "invalid"
    assert await laptop.refused("task-log", {**part, "record": other}) == "invalid"
    await laptop.request("task-log", part)
    await laptop.end(slot)
    second = base64.b64encode(SealedRecord.seal(laptop.keys, "task-log", b"line two\n").encode()).decode()
    await laptop.request("task-log", {**part, "part": 1, "record": second})
    assert await laptop.refused("task-log", {**part, "fence": slot["fence"] + 1}) == "conflict"
    parts = (await laptop.request("task-logs", {"task": slot["task"], "at": slot["at"]}))["parts"]
    opened = [SealedRecord.parse(base64.b64decode(one["record"])).open(laptop.keys) for one in parts]
    assert b"".join(opened) == b"line one\nline two\n"


async def test_a_narrow_machine_sees_its_projects_alone(laptop: Device, another: Connect) -> None:
    """Their tasks, results, logs; and adds to them alone."""
    await laptop.attach("proj", "other")
    hidden = order(laptop.identity)
    await laptop.add(hidden)
    narrow = await another("narrow", projects=frozenset({"other"}))
    own = order(narrow.identity, project="other")
    await narrow.add(own)
    assert [one["id"] for one in (await narrow.look_up("task_list"))["tasks"]] == [own.id]
    for op, body in (
        ("call", {"project": "other", "operation": "0e" * 16, "tool": "task_cancel", "arguments": {"id": hidden.id}}),
        ("lookup", {"project": "other", "tool": "task_results", "arguments": {"taskId": hidden.id}}),
        ("task-show", {"task": hidden.id}),
        ("task-logs", {"task": hidden.id, "at": hidden.at}),
        ("task-set", {"task": hidden.id, "state": "paused"}),
    ):
        assert await narrow.refused(op, body) == "not_found"
    with pytest.raises(RequestError):
        await narrow.add(order(narrow.identity))
    assert (await laptop.look_up("task_list", project="other"))["tasks"][0]["id"] == own.id


async def test_a_reader_orders_and_ends_nothing(laptop: Device, another: Connect) -> None:
    whole = order(laptop.identity)
    await laptop.add(whole)
    reader = await another("reader", scope="read")
    with pytest.raises(RequestError):
        await reader.add(order(reader.identity))
    with pytest.raises(RequestError):
        await reader.cancel(whole.id)
    assert await reader.refused("task-claim", {"recipes": [], "busy": [], "leftMicrousd": 0}) == "denied"
    assert await reader.refused("task-set", {"task": whole.id, "state": "paused"}) == "denied"
    assert (await reader.look_up("task_list"))["tasks"][0]["id"] == whole.id
