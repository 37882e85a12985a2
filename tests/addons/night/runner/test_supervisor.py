"""A slot from its claim to its effects, under a daemon that a test scripts: it repeats, alters, goes away, changes its mind."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.runs import ROUNDS, Runs, git
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, SPACE, STRANGER, device, flipped, shared

from confide_crypto.errors import ConnectionLost, KeyFileError, RequestError
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing.record import SealedRecord
from confide_night.errors import RunnerError
from confide_night.order.order import ONCE_LASTS_S, Approval, Order, approve_order, sign_order
from confide_night.order.wire import LOG_KIND
from confide_night.runner import supervisor as supervisors
from confide_night.runner.books import NEW_S, Begun, KnownDevices, RunLedger, Spending, newest
from confide_night.runner.run import RunJob
from confide_night.runner.settings.recipes import RunnerSettings
from confide_night.runner.supervisor import Supervisor

ROSTER, KEYS = shared()
GHOST = Identity(bytes([7]) * 32)
APPROVERS = f'approvers = ["{fingerprint_words(DESKTOP.public_key)}"]'
TASK = "0123456789abcdef"


class Scripted:
    """A daemon's answers: `task-ended` and the others are taken, unless a test says otherwise in `on`.

    Attributes:
        said: the requests, in order.
    """

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.on: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        self.said.append((op, body))
        if op in self.on:
            return self.on[op](body)
        match op:
            case "task-started":
                return {"leaseS": 90}
            case "task-renew":
                return {"leaseS": 90, "cancelled": False}
            case "task-ended":
                state = {"again": "ready"}.get(body["state"], body["state"])
                return {"state": state, "effects": state in ("succeeded", "failed")}
        return {}

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        raise AssertionError(op)

    def of(self, op: str) -> list[dict[str, Any]]:
        return [body for said, body in self.said if said == op]

    @property
    def ended(self) -> dict[str, Any]:
        """The last word about the slot's end."""
        return self.of("task-ended")[-1]


SECRET = "hunter2hunter2"


def _sealed(text: str, _source: str, **_: Any) -> SimpleNamespace:
    return SimpleNamespace(text=text.replace(SECRET, "(sealed)"), secrets=())


class Desk:
    """A supervisor, the daemon before it, and orders for it."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.daemon = Scripted()
        self.folder = runs.folder / "runner"
        self.ledger = RunLedger(self.folder)
        self.fence = 0
        self.roster, self.own = ROSTER, PHONE
        self.away: list[Exception] = []  # what befalls the next sealed values on their way
        # Read once: an order that is made again is the same one, also where a second has begun meanwhile.
        self.now = int(time.time())
        self.at = self.now - 10

    def supervisor(self, command: str, more: str = "", top: str = "", repositories: str = "") -> Supervisor:
        recipe = f'kind = "command"\ncommand = ["sh", "-c", "{command}"]\n{more}'
        settings = self.runs.settings(recipe, more=repositories, top=top)
        return self.of_settings(settings)

    def of_settings(self, settings: RunnerSettings) -> Supervisor:
        async def refresh(_link: object) -> None:
            pass

        async def keep(_link: object, _secrets: object) -> None:
            if self.away:
                raise self.away.pop(0)

        async def identity() -> Identity:
            return self.own

        keyring = SimpleNamespace(roster=self.roster, keys=KEYS, problem=None, refresh=refresh, identity=identity)
        sealer = SimpleNamespace(seal=_sealed)
        sealing = SimpleNamespace(keyring=keyring, sealer=sealer, deposit=SimpleNamespace(keep=keep))
        return Supervisor(self.daemon, cast("Any", sealing), settings, self.ledger, self.folder)

    def order(self, **fields: Any) -> Order:
        usual: dict[str, Any] = {
            "id": TASK,
            "project": "app",
            "recipe": "task",
            "description": "look at it",
            "signer": LAPTOP.public_key.hex(),
            "added": self.now - 60,
            "expires": self.now + ONCE_LASTS_S,
            "zone": "UTC",
            "at": self.at,
        }
        return Order(**{**usual, **fields})

    def slot(
        self, order: Order | None = None, *, approvals: tuple[Approval, ...] = (), **changed: Any
    ) -> dict[str, Any]:
        """What `claim` gives of an order."""
        self.fence += 1
        data = (order or self.order()).encode()
        slot = {
            "task": TASK,
            "at": self.at,
            "attempt": 1,
            "fence": self.fence,
            "order": data,
            "signature": sign_order(LAPTOP, SPACE, data),
            "approvals": [{"key": each.key, "signature": each.signature} for each in approvals],
            "leaseS": 90,
            "limitMicrousd": 1_000_000,
            "asked_at": time.monotonic(),
        }
        return {**slot, **changed}


@pytest.fixture
def desk(runs: Runs) -> Iterator[Desk]:
    desk = Desk(runs)
    yield desk
    desk.ledger.close()


async def test_a_slot_is_done_and_its_end_told_before_anything_lasts(desk: Desk) -> None:
    """The branch is there only behind the answer that it counts; the log is sealed to the space."""
    there: list[bool] = []
    results = desk.folder / "repositories" / "app-results.git"

    def ended(body: dict[str, Any]) -> dict[str, Any]:
        there.append(results.exists())
        return {"state": body["state"], "effects": True, "path": "memory/tasks/x.md"}

    desk.daemon.on["task-ended"] = ended
    supervisor = desk.supervisor("cat; echo two >> a.txt", 'check = ["true"]')
    assert await supervisor.work(desk.slot()) == "succeeded"
    assert [op for op, _ in desk.daemon.said if op != "task-log"] == ["task-started", "task-ended"]
    assert there == [False]
    assert results.exists()
    assert desk.daemon.ended["checked"] is True
    assert "look at it" in desk.daemon.ended["text"]
    assert len(desk.daemon.ended["commit"]) == 40
    [log] = desk.daemon.of("task-log")
    record = SealedRecord.parse(b64decode(log["record"]))
    assert record.kind == LOG_KIND
    assert b"look at it" in record.open(KEYS)
    assert list((desk.folder / "work").iterdir()) == []
    assert newest(desk.folder, 5)[0][2] == "succeeded"


async def test_a_result_leaves_this_machine_sealed(desk: Desk) -> None:
    """What an agent wrote is a text like any other, and goes through the policy on credentials."""
    await desk.supervisor(f"echo it is {SECRET}").work(desk.slot())
    assert desk.daemon.ended["text"].startswith("it is (sealed)\n")


async def test_a_result_waits_until_the_daemon_takes_its_sealed_values(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is restarted as a run ends takes none of its words along; only a refusal leaves them out."""
    monkeypatch.setattr(supervisors, "AGAIN_S", 0.0)
    desk.away += [RequestError("unavailable", "x"), ConnectionLost(truncated=False), TimeoutError()]
    await desk.supervisor(f"echo it is {SECRET}").work(desk.slot())
    assert desk.daemon.ended["text"].startswith("it is (sealed)\n")
    desk.away += [RequestError("denied", "x")]
    at = desk.at + 1
    await desk.supervisor("echo the second").work(desk.slot(desk.order(at=at), at=at))
    assert desk.daemon.ended["text"] == "the result could not be sealed, and stays out"


async def test_work_that_does_not_count_leaves_nothing(desk: Desk) -> None:
    desk.daemon.on["task-ended"] = lambda _body: {"state": "cancelled", "effects": False}
    assert await desk.supervisor("echo two >> a.txt").work(desk.slot()) == "cancelled"
    assert not (desk.folder / "repositories" / "app-results.git").exists()


def refused(why: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(_body: dict[str, Any]) -> dict[str, Any]:
        raise RequestError(why, "it is another's")

    return answer


async def test_an_order_is_checked_before_anything_of_it_begins(desk: Desk) -> None:
    """Altered in any bit (a drawn part of them), of another time, of another task, expired, of a stranger: none is begun."""
    supervisor = desk.supervisor("touch /task/began")
    good = desk.slot()
    wrong = [{**good, "order": data} for data in [*flipped(good["order"])][:: 97 if ROUNDS == 1 else 1]]
    wrong += [{**good, "signature": data} for data in [*flipped(good["signature"])][:: 37 if ROUNDS == 1 else 1]]
    wrong += [{**good, "task": "f" * 16}, {**good, "at": desk.at + 1}, {**good, "at": desk.at - 86_400}]
    wrong.append({**good, "signature": sign_order(PHONE, SPACE, good["order"])})
    wrong.append({**good, "signature": sign_order(LAPTOP, bytes(16), good["order"])})
    past = desk.order(added=desk.at - 100, expires=desk.at + 1)
    wrong.append(desk.slot(past))
    future = desk.order(at=desk.at + 1000)
    wrong.append(desk.slot(future, at=desk.at + 1000))
    wrong.append(desk.slot(desk.order(recipe="deploy")))
    wrong.append(desk.slot(desk.order(repo="https://example.org/other.git")))
    for number, slot in enumerate(wrong):
        assert await supervisor.work({**slot, "asked_at": time.monotonic()}) == "failed", number
    assert desk.daemon.of("task-started") == []
    assert len(desk.daemon.of("task-ended")) == len(wrong)
    assert newest(desk.folder, 5) == []
    assert await supervisor.work(good) == "succeeded"


async def test_a_recipe_that_lasts_takes_an_approval_of_another_device(desk: Desk) -> None:
    supervisor = desk.supervisor("true", "push = true")
    order = desk.order().encode()
    assert await supervisor.work(desk.slot()) == "failed"
    assert "approval" in desk.daemon.ended["reason"]
    own = approve_order(LAPTOP, SPACE, order)
    forged = Approval(DESKTOP.public_key, bytes(64))
    stranger = approve_order(PHONE, SPACE, order)
    for approvals in ((own,), (forged,), (stranger,)):
        if stranger in approvals and PHONE.public_key in ROSTER.devices:
            continue
        assert await supervisor.work(desk.slot(approvals=approvals)) == "failed"
    assert desk.daemon.of("task-started") == []
    good = approve_order(DESKTOP, SPACE, order)
    assert await supervisor.work(desk.slot(approvals=(good,))) == "failed"
    assert "one person's who holds one" in desk.daemon.ended["reason"]
    supervisor = desk.supervisor("true", "push = true", APPROVERS)
    # What else a daemon puts beside it does no harm.
    assert await supervisor.work(desk.slot(approvals=(forged, good))) == "succeeded"


async def test_this_machines_own_approval_counts(desk: Desk) -> None:
    """Whoever has brought it in, and though it is not named: a person sat before it, and what could be done with its key can be done."""
    desk.own = DESKTOP
    supervisor = desk.supervisor("true", "push = true", f'approvers = ["{fingerprint_words(STRANGER.public_key)}"]')
    approved = approve_order(DESKTOP, SPACE, desk.order().encode())
    assert await supervisor.work(desk.slot(approvals=(approved,))) == "succeeded"


@pytest.mark.parametrize("named", [True, False])
async def test_an_approval_of_or_for_a_device_that_is_new_does_not_count(
    desk: Desk, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this runner's own clock: the times in the roster and in the order are written by whoever holds a device."""
    top = APPROVERS if named else ""
    supervisor = desk.supervisor("true", "push = true", top)
    desk.daemon.on["task-claim"] = lambda _body: {"slot": None, "waitS": 5}
    await supervisor.claim([])
    # The desktop is stolen, and its holder adds another one, which gives an order that the desktop approves.
    desk.roster = ROSTER.add(DESKTOP, device(GHOST, "laptop"), KEYS, now=NOW - 400 * 86_400)
    supervisor = desk.supervisor("true", "push = true", top)
    order = desk.order(
        signer=GHOST.public_key.hex(), added=int(time.time()) + 86_400 * 2, expires=int(time.time()) + 86_400 * 9
    )
    data = order.encode()
    slot = desk.slot(order, approvals=(approve_order(DESKTOP, SPACE, data),), signature=sign_order(GHOST, SPACE, data))
    assert await supervisor.work(slot) == "failed"
    assert "is new" in desk.daemon.ended["reason"]
    later = time.time() + 90_000
    monkeypatch.setattr(time, "time", lambda: later)
    assert await supervisor.work({**slot, "asked_at": time.monotonic()}) == ("succeeded" if named else "failed")


async def test_whom_runner_toml_does_not_name_approves_nothing(desk: Desk) -> None:
    """Where it names somebody, also one who would count without."""
    desk.roster = ROSTER.add(LAPTOP, device(GHOST, "phone"), KEYS, now=NOW)
    order = desk.order(signer=GHOST.public_key.hex())
    data = order.encode()
    approved = approve_order(DESKTOP, SPACE, data)
    slot = desk.slot(order, approvals=(approved,), signature=sign_order(GHOST, SPACE, data))
    supervisor = desk.supervisor("true", "push = true", f'approvers = ["{fingerprint_words(LAPTOP.public_key)}"]')
    assert await supervisor.work(slot) == "failed"
    assert "is not set up to take it" in desk.daemon.ended["reason"]
    supervisor = desk.supervisor("true", "push = true")
    assert await supervisor.work({**slot, "asked_at": time.monotonic()}) == "succeeded"


async def test_a_device_that_removed_the_approver_does_not_approve_in_its_place(desk: Desk) -> None:
    """The desktop is stolen; the laptop, which is named, had added it. A new key of the laptop itself counts."""
    words = f'approvers = ["{fingerprint_words(LAPTOP.public_key)}"]'
    both = ROSTER.add(LAPTOP, device(PHONE, "runner"), KEYS, now=NOW)
    renewed = both.add(LAPTOP, device(STRANGER, "laptop"), KEYS, now=NOW)
    renewed, _ = renewed.remove(STRANGER, LAPTOP.public_key, KEYS, now=NOW)
    stolen, keys = both.remove(DESKTOP, LAPTOP.public_key, KEYS, now=NOW)
    stolen = stolen.add(DESKTOP, device(GHOST, "laptop"), keys, now=NOW)
    for roster, signer, approver, state in (
        (stolen, GHOST, DESKTOP, "failed"),
        (renewed, DESKTOP, STRANGER, "succeeded"),
    ):
        desk.roster = roster
        supervisor = desk.supervisor("true", "push = true", words)
        supervisor._devices.see(roster.devices, time.time() - 90_000)
        order = desk.order(signer=signer.public_key.hex())
        data = order.encode()
        approved = approve_order(approver, SPACE, data)
        slot = desk.slot(order, approvals=(approved,), signature=sign_order(signer, SPACE, data))
        assert await supervisor.work(slot) == state, desk.daemon.ended
    assert "is not set up to take it" in desk.daemon.of("task-ended")[0]["reason"]


def test_who_is_known_is_not_forgotten_and_not_guessed(tmp_path: Path) -> None:
    known, now = KnownDevices(tmp_path), 1_800_000_000.0
    assert known.is_new([b"a"], now)
    known.see([b"a", b"b"], now)
    assert not known.is_new([b"a"], now)
    known.see([b"a", b"c"], now + 1)
    known.see([b"c"], now + NEW_S)
    again = KnownDevices(tmp_path)
    assert not again.is_new([b"b"], now + 1)
    assert again.is_new([b"c"], now + NEW_S)
    assert not again.is_new([b"c"], now + 1 + NEW_S)
    assert not again.is_new([b"new", b"a"], now)  # who had another key before
    (tmp_path / "devices.json").write_text("[]")
    with pytest.raises(KeyFileError, match="damaged"):
        again.is_new([b"a"], now)


@pytest.mark.parametrize(("name", "is_pushed"), [("b.txt", True), (".gitlab-ci.yml", False)])
async def test_a_push_is_of_what_may_go_out(desk: Desk, name: str, is_pushed: bool) -> None:
    """The work that may not is kept on the runner, and the result says why."""
    supervisor = desk.supervisor(f"echo two > {name}", "push = true", APPROVERS)
    order = desk.order()
    approved = approve_order(DESKTOP, SPACE, order.encode())
    assert await supervisor.work(desk.slot(order, approvals=(approved,))) == "succeeded"
    [kept] = git(desk.folder / "repositories/app-results.git", "for-each-ref", "--format=%(objectname)").split()
    pushed = git(desk.runs.repository, "for-each-ref", "--format=%(objectname)", "refs/heads/confide").split()
    assert kept == desk.daemon.ended["commit"]
    assert pushed == ([kept] if is_pushed else [])
    assert ("it is not pushed: it changes .gitlab-ci.yml" in desk.daemon.ended["text"]) != is_pushed


async def test_nothing_is_begun_twice(desk: Desk) -> None:
    """Not for a daemon that gives the slot again, under whatever attempt or fence, nor by a runner that has started anew."""
    supervisor = desk.supervisor("echo begun")
    assert await supervisor.work(desk.slot()) == "succeeded"
    assert await supervisor.work(desk.slot()) == "lost"
    assert await supervisor.work(desk.slot(attempt=2)) == "lost"
    desk.ledger.close()
    desk.ledger = RunLedger(desk.folder)
    assert await desk.supervisor("echo begun").work(desk.slot(attempt=3)) == "lost"
    assert len(desk.daemon.of("task-started")) == 1


async def test_what_was_turned_away_is_begun_again(desk: Desk) -> None:
    supervisor = desk.supervisor("true")
    desk.runs.repository.rename(desk.runs.folder / "away")
    assert await supervisor.work(desk.slot()) == "again"
    (desk.runs.folder / "away").rename(desk.runs.repository)
    assert await supervisor.work(desk.slot(attempt=1)) == "lost"
    assert await supervisor.work(desk.slot(attempt=2)) == "succeeded"


@pytest.mark.parametrize("said", ["ready", "succeeded", "failed"])
@pytest.mark.parametrize("ends", ["succeeded", "failed", "cancelled"])
async def test_what_the_daemon_says_of_an_end_has_nothing_begun_again(
    desk: Desk, said: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not believed in what it could gain by, and the ledger is what holds it: only what this runner itself saw is written there."""
    made: list[str] = []

    async def effects(_self: Supervisor, begun: Begun, *_: object) -> None:
        made.append(begun.slot)

    monkeypatch.setattr(Supervisor, "_effects", effects)
    desk.daemon.on["task-ended"] = lambda _body: {"state": said, "effects": True, "path": "memory/tasks/x.md"}
    supervisor = desk.supervisor(
        {"failed": "exit 1", "cancelled": "echo begun; sleep 60"}.get(ends, "echo two >> a.txt")
    )
    if ends == "cancelled":
        supervisor.on_begin = lambda *_: supervisor.stop("it was stopped")
    order = desk.order()
    for attempt in range(1, 4):
        assert await supervisor.work(desk.slot(order, attempt=attempt)) != "again"
    assert len(desk.daemon.of("task-started")) == 1
    [line] = newest(desk.folder, 5)
    assert line[2] == {"cancelled": "lost"}.get(ends, ends)
    assert len(made) == (said == ends == "succeeded")


@pytest.mark.parametrize("answer", [{}, {"leaseS": "long", "cancelled": False}, {"leaseS": -1}])
async def test_an_answer_that_is_none_keeps_no_lease(
    desk: Desk, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that says nonsense is one that is out of reach: the run ends before its lease does."""
    monkeypatch.setattr(supervisors, "RENEW_S", 0.1)
    monkeypatch.setattr(supervisors, "AGAIN_S", 0.05)
    monkeypatch.setattr(supervisors, "MARGIN_S", 1.0)
    desk.daemon.on["task-started"] = lambda _body: {"leaseS": 2}
    desk.daemon.on["task-renew"] = lambda _body: answer
    async with asyncio.timeout(DEADLINE_S):
        assert await desk.supervisor("echo begun; sleep 6000").work(desk.slot(leaseS=2)) == "lost"
    assert len(desk.daemon.of("task-renew")) > 3


@pytest.mark.parametrize(("retries", "attempt"), [(2, 4), (0, 2), (5, 7), (2, 0), (2, -1), (2, 10**9)])
async def test_a_slot_is_given_no_more_often_than_its_order_says(desk: Desk, retries: int, attempt: int) -> None:
    supervisor = desk.supervisor("true")
    order = desk.order(retries=retries)
    assert await supervisor.work(desk.slot(order, attempt=attempt)) == "failed"
    assert "more often" in desk.daemon.ended["reason"]
    assert (desk.daemon.of("task-started"), newest(desk.folder, 5)) == ([], [])


async def test_of_what_was_turned_away_the_last_try_is_the_last(desk: Desk) -> None:
    """The daemon says `failed` once the order's retries are used up; what it says by mistake, or by lying, makes no try more."""
    supervisor = desk.supervisor("true")
    desk.runs.repository.rename(desk.runs.folder / "away")
    order = desk.order(retries=1)
    assert await supervisor.work(desk.slot(order)) == "again"
    desk.daemon.on["task-ended"] = lambda _body: {"state": "failed", "effects": False}
    assert await supervisor.work(desk.slot(order, attempt=2)) == "failed"
    (desk.runs.folder / "away").rename(desk.runs.repository)
    desk.daemon.on["task-ended"] = lambda body: {"state": body["state"], "effects": True}
    assert await supervisor.work(desk.slot(order, attempt=3)) == "failed"
    assert len(desk.daemon.of("task-started")) == 2


def test_a_lease_is_no_longer_than_any_is() -> None:
    """However long a daemon says it lasts: behind it a run out of its reach has ended."""
    lease = supervisors._Lease.of(100.0, 10**9)
    lease.renew(120.0, 10**9)
    assert lease.ends == 120.0 + supervisors.LEASE_S


async def test_nothing_begins_before_the_daemon_has_heard_of_it(desk: Desk) -> None:
    desk.daemon.on["task-started"] = refused("conflict")
    supervisor = desk.supervisor("echo two >> a.txt")
    assert await supervisor.work(desk.slot()) == ""
    assert desk.daemon.of("task-ended") == []
    assert not (desk.folder / "repositories").exists()
    del desk.daemon.on["task-started"]
    assert await supervisor.work(desk.slot(attempt=2)) == "succeeded"


async def test_a_run_whose_slot_is_anothers_is_killed_and_thrown_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie: the fence has moved on, so it neither says that it ended nor leaves anything."""
    monkeypatch.setattr(supervisors, "RENEW_S", 0.1)
    desk.daemon.on["task-renew"] = refused("conflict")
    async with asyncio.timeout(DEADLINE_S):
        assert await desk.supervisor("echo begun; sleep 6000").work(desk.slot()) == ""
    assert desk.daemon.of("task-ended") == []
    assert list((desk.folder / "work").iterdir()) == []


async def test_a_run_out_of_the_daemons_reach_ends_before_its_lease(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this machine's own clock: whoever gets the slot next begins on a machine where nothing of it runs."""
    monkeypatch.setattr(supervisors, "RENEW_S", 0.1)
    monkeypatch.setattr(supervisors, "AGAIN_S", 0.05)
    monkeypatch.setattr(supervisors, "MARGIN_S", 1.0)

    def away(_body: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionLost(truncated=True)

    desk.daemon.on["task-renew"] = away
    desk.daemon.on["task-started"] = lambda _body: {"leaseS": 2}
    slot = desk.slot(leaseS=2)
    ended: list[float] = []

    def end(body: dict[str, Any]) -> dict[str, Any]:
        ended.append(time.monotonic() - slot["asked_at"])
        return {"state": body["state"], "effects": False}

    desk.daemon.on["task-ended"] = end
    async with asyncio.timeout(DEADLINE_S):
        assert await desk.supervisor("echo begun; sleep 6000").work(slot) == "lost"
    assert len(desk.daemon.of("task-renew")) > 3
    assert ended[0] > 0.9  # not before it has to
    assert "out of reach" in desk.daemon.ended["reason"]


async def test_a_cancel_reaches_the_run_by_news_and_by_its_renewal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "RENEW_S", 0.1)
    desk.daemon.on["task-renew"] = lambda _body: {"leaseS": 90, "cancelled": True}
    assert await desk.supervisor("echo begun; sleep 60").work(desk.slot()) == "cancelled"
    monkeypatch.setattr(supervisors, "RENEW_S", 60)
    desk.at -= 1
    supervisor = desk.supervisor("echo begun; sleep 60")
    slot = desk.slot()
    begun = asyncio.Event()
    supervisor.on_begin = lambda *_: begun.set()
    working = asyncio.create_task(supervisor.work(slot))
    await begun.wait()
    name = {each: slot[each] for each in Begun._fields}
    supervisor.cancel([{**name, "fence": 99}])
    await asyncio.sleep(0)
    assert not working.done()
    supervisor.cancel([name])
    assert await working == "cancelled"
    assert desk.daemon.ended["state"] == "cancelled"


async def test_a_runner_tells_of_what_the_last_one_did_not_end(desk: Desk) -> None:
    begun = Begun(TASK, desk.at, 1, 7)
    desk.ledger.begin(begun, time.time())
    desk.ledger.close()
    desk.ledger = RunLedger(desk.folder)
    assert await desk.supervisor("true").recover() == [begun]
    assert desk.daemon.ended == {**begun.wire, "state": "lost", "reason": "its runner ended in the middle of it"}
    assert await desk.supervisor("true").recover() == []


async def test_the_month_is_spent_once(desk: Desk) -> None:
    """What a run may cost is held before it begins, and what it did not cost comes back."""
    supervisor = desk.supervisor("true")
    spending = supervisor._spending
    spending.hold(1.5)
    spending.settle(1.5, 0.25)
    assert spending.usd() == pytest.approx(0.25)
    desk.daemon.on["task-claim"] = lambda body: {"slot": None, "waitS": 5, **body}
    slot, wait_s = await supervisor.claim([])
    assert (slot, wait_s) == (None, 5)
    assert desk.daemon.of("task-claim")[0]["leftMicrousd"] == 19_750_000


def test_two_runners_of_a_machine_do_not_share_a_ledger(tmp_path: Path) -> None:
    first = RunLedger(tmp_path / "runner")
    with pytest.raises(Exception, match="another runner is at work"):
        RunLedger(tmp_path / "runner")
    first.close()
    RunLedger(tmp_path / "runner").close()


def test_a_ledger_that_somebody_has_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    """What it does not know any more could be begun a second time."""
    ledger = RunLedger(tmp_path / "runner")
    ledger.begin(Begun(TASK, 1, 1, 1), 0.0)
    ledger.begin(Begun(TASK, 2, 1, 2), 0.0)
    ledger.close()
    file = tmp_path / "runner" / "ledger"
    lines = file.read_bytes().split(b"\n")
    assert TASK.encode() not in file.read_bytes()
    file.write_bytes(b"\n".join([lines[0][:-9] + b64encode(b"evil")[:9], *lines[1:]]))
    with pytest.raises(Exception, match="damaged"):
        RunLedger(tmp_path / "runner")


async def test_an_order_only_lowers_what_its_recipe_allows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Money and time: the least of order, recipe and what the daemon has put aside; and only repositories that the recipe is for."""
    jobs: list[RunJob] = []

    def made(job: RunJob, *_: object) -> Any:
        jobs.append(job)
        raise RunnerError("far enough")

    monkeypatch.setattr(supervisors, "Run", made)
    key = desk.folder / "model.key"
    key.write_text("sk-x\n")
    key.chmod(0o600)
    settings = desk.runs.settings('kind = "ask"\nmax_usd = 0.5\ntimeout_s = 100')
    settings = replace(settings, model=replace(settings.model, key_file=str(key)))
    wants = [
        (None, 1_800_000, 9_000_000),
        (200_000, 5_000, 9_000_000),
        (900_000, 200_000, 9_000_000),
        (None, 1_000, 100_000),
    ]
    for number, (microusd, timeout_ms, held) in enumerate(wants):
        order = desk.order(max_microusd=microusd, timeout_ms=timeout_ms, at=desk.at - number)
        with pytest.raises(RunnerError, match="far enough"):
            await desk.of_settings(settings).work(desk.slot(order, at=desk.at - number, limitMicrousd=held))
    assert [job.limit_usd for job in jobs] == [0.5, 0.2, 0.5, 0.1]
    assert [job.timeout_s for job in jobs] == [100, 5, 100, 1]
    # What each may cost was put aside before it began: of a run that is killed nobody knows more.
    assert Spending(desk.folder).usd() == pytest.approx(1.3)


async def test_a_recipe_is_for_the_repositories_that_it_names(desk: Desk) -> None:
    supervisor = desk.supervisor("true", 'repositories = ["other"]', repositories='other = "/nowhere"')
    assert await supervisor.work(desk.slot()) == "failed"
    assert "may not be used on the repository app" in desk.daemon.ended["reason"]
