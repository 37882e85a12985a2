"""What becomes of slots as time passes: retries, nights that nobody was there for, runs that overlap, tasks that fail, money, restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.task_machines import Wire, done
from tests.support.daemon.task_runners import DOLLAR, order
from tests.support.sealing.rosters import DESKTOP, KEYS, LAPTOP, shared

from confide_crypto.errors import OrderError, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.spaces import file
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT
from confide_daemon.store.space_store import Store
from confide_memory.errors import NotFoundError, ToolError
from confide_memory.forms import to_base64, to_json
from confide_night.daemon import claims, moving, planning, report, slot_states, task_actions
from confide_night.daemon.claims import Ending, Runner, SlotId, SlotLease
from confide_night.daemon.task_queue import SlotRow, TaskRow
from confide_night.daemon.task_queue import queue as tables
from confide_night.local.moments import bring
from confide_night.order.order import ALWAYS_LASTS_S, MAX_ORDER_BYTES, Approval, Order, Slot, TaskStatus, sign_order
from confide_night.order.wire import LEASE_S, LOG_KIND, MAX_LOG_RECORD, MOVE_TASKS, MOVE_TASKS_IN

KEY = b"\x23" * 32
ROSTER, _ = shared()
NIGHT = 1_800_064_800
"""Two o'clock in UTC."""
HOUR = 3_600
DAY = 86_400


class Queue:
    """A store, and time as a test has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = float(NIGHT - 10 * HOUR)
        self.draw = random.Random(1)
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.path, KEY, writer=True, now=self.now)
        file.mark_open(self.store, now=self.now)
        file.note_restore(self.store, self.path.with_suffix(".restored"))
        with self.store.writing():
            claims.lengthen_leases(self.store, now=self.now)

    def copy(self) -> bytes:
        """The database as it is now."""
        self.store.close()
        kept = self.path.read_bytes()
        self.open()
        return kept

    def restore(self, kept: bytes) -> None:
        """An older one is put back, as `confided restore` does it."""
        self.store.close()
        self.path.write_bytes(kept)
        self.path.with_suffix(".restored").write_text("{}\n")
        self.open()

    def add(self, **fields: Any) -> TaskRow:
        lasts_s = ALWAYS_LASTS_S if "schedule" in fields else 7 * DAY
        whole = order(LAPTOP, **{"now": self.now, "expires": int(self.now) + lasts_s, **fields})
        return self.ordered(whole)

    def ordered(self, whole: Order, by: Identity = LAPTOP) -> TaskRow:
        data = replace(whole, signer=by.public_key.hex()).encode()
        with self.store.writing():
            signature = sign_order(by, ROSTER.space, data)
            return task_actions.add(self.store, Grants("laptop"), ROSTER, by.public_key, data, signature, now=self.now)[
                0
            ]

    def look(self, at: float | None = None) -> None:
        self.now = self.now if at is None else at
        if claims.is_idle(self.store):
            return
        with self.store.writing():
            claims.look(self.store, ROSTER, now=self.now, draw=self.draw)

    def claim(
        self, who: str = "aa", *, left: int = 20 * DOLLAR, most: int = 2 * DOLLAR, monthly: int = 10**12
    ) -> SlotLease | None:
        runner = Runner(who * 32, who, None, {"review": (most, False)}, frozenset(), left)
        with self.store.writing():
            return claims.claim(self.store, runner, ROSTER, monthly=monthly, now=self.now, draw=self.draw)

    def claimed(self, who: str = "aa", **more: Any) -> SlotLease:
        found = self.claim(who, **more)
        assert found is not None
        return found

    def begin(self, lease: SlotLease, *, is_repeatable: bool = False) -> SlotLease:
        with self.store.writing():
            claims.begin(self.store, named(lease), str(lease.slot.runner), is_repeatable=is_repeatable, now=self.now)
        return lease

    def end(self, lease: SlotLease, state: str, **more: Any) -> SlotRow:
        with self.store.writing():
            ending = Ending(state, **more)
            found, _ = claims.end(
                self.store, named(lease), str(lease.slot.runner), ending, now=self.now, draw=self.draw
            )
            return found

    def run(self, state: str, who: str = "aa") -> SlotRow:
        """A slot from its claim to its end."""
        return self.end(self.begin(self.claimed(who)), state)

    def states(self, task: TaskRow) -> list[str]:
        """Of its slots that are due, the earliest first."""
        rows = tables(self.store).slots.of(task.id, limit=1000)
        return [str(one.state) for one in reversed(rows) if one.at <= self.now]

    def task(self, task: TaskRow) -> TaskRow:
        found = tables(self.store).tasks.find(task.id)
        assert found is not None
        return found


def named(lease: SlotLease) -> SlotId:
    slot = lease.slot
    return SlotId(slot.task, slot.at, slot.attempt, slot.fence)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    found = Queue(tmp_path / "space.db")
    yield found
    found.store.close()


def test_what_never_ran_is_tried_again_and_later_each_time(queue: Queue) -> None:
    """Two retries, then it has failed; none before its moment."""
    task = queue.add(retries=2)
    waits = []
    for attempt in (1, 2, 3):
        lease = queue.begin(queue.claimed())
        assert lease.slot.attempt == attempt
        slot = queue.end(lease, "again", reason="503 from the model")
        if attempt < 3:
            waits.append(slot.next_try_at - queue.now)
            assert queue.claim() is None or waits[-1] == 0
            queue.look(slot.next_try_at)
    assert all(0 <= wait <= most for wait, most in zip(waits, (60, 120), strict=True))
    assert (slot.state, slot.reason) == (Slot.FAILED, "503 from the model")
    assert queue.task(task).state is TaskStatus.DONE


def test_retries_spread_over_all_of_their_time(queue: Queue) -> None:
    """Full jitter, doubling up to an hour: from the first draw to the last."""
    whole, found = order(LAPTOP, now=queue.now, retries=5), []
    queue.ordered(whole)
    for seed in range(60):
        with queue.store.writing():
            slot = replace(SlotRow(whole.id, whole.at or 0), state=Slot.RUNNING, attempt=5)
            again = slot_states.schedule_again(queue.store, slot, whole, "x", now=queue.now, draw=random.Random(seed))
        found.append(again.next_try_at - queue.now)
    assert max(found) <= 960
    assert max(found) > 700
    assert min(found) < 200


def test_a_failed_check_is_not_tried_again(queue: Queue) -> None:
    task = queue.add()
    assert queue.run("failed").state is Slot.FAILED
    assert queue.claim() is None
    assert queue.task(task).state is TaskStatus.DONE


def test_three_failures_in_a_row_pause_a_task(queue: Queue) -> None:
    """Also lost ones; a success between them begins the count anew, and so does a person who resumes it."""
    task = queue.add(schedule="0 * * * *")
    endings = ["failed", "failed", "succeeded", "failed", "lost", "failed"]
    for number, state in enumerate(endings):
        queue.look(NIGHT + number * HOUR + 400)
        assert queue.task(task).state is TaskStatus.ACTIVE
        queue.run(state)
    assert queue.task(task).state is TaskStatus.PAUSED
    assert "3 of its runs" in queue.task(task).why
    queue.look(NIGHT + 6 * HOUR + 400)
    assert queue.claim() is None
    with queue.store.writing():
        task_actions.resume(queue.store, queue.task(task), ROSTER, now=queue.now)
    queue.look()
    queue.run("failed")
    assert queue.task(task).state is TaskStatus.ACTIVE


@pytest.mark.parametrize(
    ("missed", "hours", "left", "states"),
    [
        # Three nights without a runner, which then comes so many hours behind the last of them.
        ("once", 2, 1, ["missed", "missed", "ready"]),
        ("once", 13, 0, ["missed", "missed", "missed"]),
        ("skip", 2, 0, ["missed", "missed", "missed"]),
        ("skip", 0.05, 1, ["missed", "missed", "ready"]),
        ("all", 2, 3, ["ready", "ready", "ready"]),
        ("all", 20, 3, ["ready", "ready", "ready"]),
    ],
)
def test_nights_without_a_runner(queue: Queue, missed: str, hours: float, left: int, states: list[str]) -> None:
    task = queue.add(schedule="0 2 * * *", missed=missed)
    for night in range(3):
        queue.look(NIGHT + night * DAY + 301)
    queue.look(NIGHT + 2 * DAY + 301 + hours * HOUR)
    assert queue.states(task) == states
    for _ in range(left):
        queue.run("succeeded")
    assert queue.claim() is None


def test_a_daemon_that_was_away_finds_the_same(queue: Queue) -> None:
    """Its clock stood at each of those moments, or it did not look once: what is due is what the order says."""
    tasks = [queue.add(schedule="0 2 * * *", missed=missed) for missed in ("once", "skip", "all")]
    queue.look(NIGHT + 9 * DAY + 2 * HOUR)
    states = [queue.states(task) for task in tasks]
    assert [one[-3:] for one in states] == [["missed", "missed", "ready"], ["missed"] * 3, ["ready"] * 3]
    assert [one.count("ready") for one in states] == [1, 0, 7]


@pytest.mark.parametrize(
    ("overlap", "states", "is_killed"),
    [
        ("skip", ["running", "skipped", "skipped"], False),
        ("queue", ["running", "ready", "ready"], False),
        ("replace", ["running", "missed", "ready"], True),
    ],
)
def test_a_run_that_takes_longer(queue: Queue, overlap: str, states: list[str], is_killed: bool) -> None:
    task = queue.add(schedule="0 2-4 * * *", overlap=overlap)
    queue.look(NIGHT + 301)
    lease = queue.begin(queue.claimed())
    for hour in (1, 2):
        with queue.store.writing():
            claims.renew(queue.store, named(lease), str(lease.slot.runner), now=queue.now + LEASE_S - 1)
        row = tables(queue.store).slots.find(task.id, lease.slot.at)
        assert row is not None
        with queue.store.writing():  # it renews all the time
            tables(queue.store).slots.write(replace(row, lease_until=NIGHT + (hour + 1) * HOUR))
        queue.look(NIGHT + hour * HOUR + 301)
    assert queue.states(task) == states
    assert queue.claim("bb") is None, "no two of one task at once"
    found = tables(queue.store).slots.find(task.id, lease.slot.at)
    assert found is not None
    assert (found.to_cancel is not None) == is_killed
    assert queue.end(lease, "succeeded").state is (Slot.CANCELLED if is_killed else Slot.SUCCEEDED)
    queue.look()
    for _ in range(states.count("ready")):
        queue.run("succeeded")
    assert queue.claim() is None


def test_the_best_comes_first(queue: Queue) -> None:
    """By priority, then by time; nothing that is not due, nothing in a repository that is in use."""
    low = queue.add(priority=1, at=int(queue.now) - 100)
    late, early = (queue.add(at=int(queue.now) - ago) for ago in (10, 50))
    high = queue.add(priority=9, repo="git@host:shop")
    queue.add(priority=10, at=int(queue.now) + 60)
    same = queue.add(priority=9, repo="git@host:shop")
    given = [queue.claimed(who) for who in ("aa", "bb", "cc", "dd")]
    first, second = sorted((high.id, same.id)), [early.id, late.id, low.id]
    assert [one.slot.task for one in given] == [first[0], *second]
    assert queue.claim("ee") is None


def test_a_lease_that_ends(queue: Queue) -> None:
    """What was not begun is free again, what was is lost, unless its recipe says that it may be repeated; a stale word does nothing."""
    tasks = [queue.add(priority=priority) for priority in (9, 8, 7)]
    leased = queue.claimed("aa")
    running = queue.begin(queue.claimed("bb"))
    repeated = queue.begin(queue.claimed("cc"), is_repeatable=True)
    queue.look(queue.now + LEASE_S - 1)
    assert len(tables(queue.store).slots.list_held()) == 3
    queue.look(queue.now + 1)
    assert [queue.states(task) for task in tasks] == [["ready"], ["lost"], ["ready"]]
    for lease in (leased, running, repeated):
        for work in (lambda one: queue.begin(one), lambda one: queue.end(one, "succeeded")):
            with pytest.raises(RequestError) as caught:
                work(lease)
            assert caught.value.code == "conflict"
    queue.look(queue.now + 200)
    assert {queue.claimed("dd").slot.attempt, queue.claimed("ee").slot.attempt} == {2}


def test_a_daemon_that_starts_grants_a_lease_more(queue: Queue) -> None:
    """Nobody could renew while it was away."""
    lease = queue.begin(queue.claimed()) if queue.add() else None
    assert lease is not None
    queue.store.close()
    queue.now += 10 * HOUR
    queue.open()
    queue.look(queue.now + LEASE_S - 1)
    assert queue.end(lease, "succeeded").state is Slot.SUCCEEDED


def test_a_folder_that_was_put_back_begins_nothing_that_was_due(queue: Queue) -> None:
    """Somebody may have begun it in the time that is forgotten; what is due from then on is."""
    once = queue.add()
    nightly = queue.add(schedule="0 2 * * *")
    queue.store.close()
    queue.path.with_suffix(".restored").write_text("{}\n")
    queue.now = float(NIGHT + 3 * DAY + HOUR)
    queue.open()
    assert queue.claim() is None
    queue.look(queue.now + 2 * HOUR)
    assert queue.claim() is None
    assert queue.states(once) == ["lost"]
    assert set(queue.states(nightly)) == {"lost"}
    assert queue.task(nightly).state is TaskStatus.PAUSED, "a person has to see it"
    with queue.store.writing():
        task_actions.resume(queue.store, queue.task(nightly), ROSTER, now=queue.now)
    queue.look(NIGHT + 4 * DAY + 301)
    assert queue.run("succeeded").state is Slot.SUCCEEDED


def test_a_folder_that_was_put_back_without_tasks_takes_new_ones(queue: Queue) -> None:
    """Only what may have been begun is lost, and not the first task that comes behind that."""
    queue.restore(queue.copy())
    queue.look(queue.now + HOUR)
    queue.now += 60
    queue.add()
    assert queue.run("succeeded").state is Slot.SUCCEEDED


def test_what_is_sent_again_to_a_folder_that_was_put_back_is_not_begun_again(queue: Queue) -> None:
    """Its machine had no answer, the folder knows nothing of it any more, and another runner may have done it."""
    queue.add(schedule="0 12 * * *")  # by which the folder knows that it was put back
    before = queue.copy()
    once, nightly = queue.add(at=int(queue.now) + 60), queue.add(schedule="0 2 * * *")
    queue.look(NIGHT + 400)
    assert {queue.run("succeeded").task for _ in range(2)} == {once.id, nightly.id}
    queue.restore(before)
    queue.look(queue.now + HOUR)
    for task in (once, nightly):
        queue.ordered(slot_states.order_of(task))
    queue.look()
    assert queue.claim("bb") is None
    assert (queue.states(once), queue.states(nightly)) == (["lost"], ["lost"])
    assert tables(queue.store).slots.of(once.id, limit=1)[0].reason == planning.RESTORED
    queue.now += 60
    queue.add(at=int(queue.now) + 60)
    queue.look(queue.now + 60)
    assert queue.run("succeeded").state is Slot.SUCCEEDED
    queue.look(NIGHT + DAY + 400)
    assert queue.run("succeeded").task == nightly.id


def flip(queue: Queue, task: TaskRow, column: str, bit: int) -> None:
    """Changes a bit of what is stored of a task."""
    data = bytearray(bytes(queue.store.rows(f"SELECT CAST({column} AS BLOB) FROM task WHERE id = ?", (task.id,))[0][0]))
    data[bit // 8] ^= 1 << bit % 8
    kind = "TEXT" if column == "approvals" else "BLOB"
    with queue.store.writing():
        queue.store.rows(f"UPDATE task SET {column} = CAST(? AS {kind}) WHERE id = ?", (bytes(data), task.id))


def test_an_order_that_cannot_be_read_stops_its_own_task_alone(queue: Queue) -> None:
    """It pauses and says why, nothing of it is begun, and what runs of it ends as ever; all others go on, and both are told of."""
    damaged = [queue.add(priority=10), queue.add(priority=9), queue.add(schedule="0 * * * *", at=None, priority=8)]
    good = queue.add()
    running = queue.begin(queue.claimed("bb"))
    assert running.task.id == damaged[0].id
    for task in damaged:
        flip(queue, task, "ordered", 7)
    lease = queue.claimed()  # before anything was looked at
    assert lease.task.id == good.id
    queue.end(queue.begin(lease), "succeeded")
    queue.look(queue.now + 60)
    assert queue.end(running, "again").state is Slot.FAILED, "how often it may be tried again nobody knows"
    found = [queue.task(task) for task in damaged]
    assert {one.state for one in found} == {TaskStatus.PAUSED}
    assert all("damaged" in one.why for one in found)
    with pytest.raises(OrderError, match="damaged"), queue.store.writing():
        task_actions.resume(queue.store, found[1], ROSTER, now=queue.now)
    assert slot_states.order_in(found[1]).description == slot_states.UNREADABLE
    queue.look(queue.now + DAY)
    assert {state for task in damaged[1:] for state in queue.states(task)} == {"missed"}
    with queue.store.writing():
        assert task_actions.cancel(queue.store, queue.task(damaged[1]), now=queue.now) == (True, 0)


@pytest.mark.parametrize("bit", [6, 7], ids=["no hex", "no text"])
def test_an_approval_that_cannot_be_read_is_asked_for_again(queue: Queue, bit: int) -> None:
    task = queue.add(recipe="review")
    with queue.store.writing():
        tables(queue.store).tasks.approve(task.id, (Approval(DESKTOP.public_key, bytes(64)),))
    assert len(queue.task(task).approvals) == 1
    flip(queue, task, "approvals", 8 * 4 + bit)
    assert queue.task(task).approvals == ()


def swapped(task: TaskRow, field: str) -> bytes:
    """Its order with another first letter of a field: what can be read, and is another order."""
    at = bytes(task.ordered).index(f'"{field}":"'.encode()) + len(field) + 4
    return task.ordered[:at] + (b"1" if task.ordered[at] == ord("0") else b"0") + task.ordered[at + 1 :]


def moved(queue: Queue, path: Path, *, by_older: bool = False) -> tuple[Queue, list[dict[str, Any]]]:
    """Where the memory of one has gone, with all its tasks, each page of them twice; and the pages.

    `by_older`: by a machine, or to a daemon, that does not know what cannot be read.
    """
    there = Queue(path)
    there.now = queue.now
    with queue.store.writing():
        queue.store.marks.put(SPACE_LEFT, queue.now)
    with there.store.writing():
        there.store.marks.put(PARTS_AWAITED, there.now)
    pages: list[dict[str, Any]] = []

    def taken(_op: str, body: dict[str, Any]) -> dict[str, Any]:
        if by_older:
            body.pop("unreadable", None)
        pages.append(body)
        said = MOVE_TASKS_IN.read(body)
        assert not said["givenUp"]
        for _ in range(2):  # an answer may be lost
            with there.store.writing():
                moving.take(there.store, said)
        if said["isLast"]:
            with there.store.writing():
                moving.settle(there.store, now=there.now)
        return {}

    def left(_op: str, body: dict[str, Any]) -> dict[str, Any]:
        return to_json(moving.page(queue.store, body["after"]), MOVE_TASKS.answer_fields)

    source = Wire(queue.draw, left, loses=0)
    done(bring(source, Wire(queue.draw, taken, loses=0)))
    return there, pages


def test_what_is_damaged_goes_along_and_is_not_begun_again(queue: Queue, tmp_path: Path) -> None:
    """A machine without an answer sends its order once more where the memory has moved: it is known there, as what it is."""
    good, *damaged = (queue.add(at=int(queue.now) - 60) for _ in range(5))
    orders = [slot_states.order_of(task) for task in damaged]
    queue.look()
    assert {queue.run("succeeded").task for _ in range(5)} == {good.id, *(task.id for task in damaged)}
    record = SealedRecord.seal(KEYS, LOG_KIND, b"what it did").encode()
    at = tables(queue.store).slots.of(good.id, limit=1)[0].at
    with queue.store.writing():
        for part, data in enumerate((record, bytes([record[0] ^ 1]) + record[1:])):
            tables(queue.store).logs.put(good.id, at, part, data, now=queue.now)
        tables(queue.store).logs.put(damaged[0].id, at, 0, record, now=queue.now)
    # One of which nothing can be read, and three that say that they are another one's.
    flip(queue, damaged[0], "ordered", 7)
    with queue.store.writing():
        for task, field in zip(damaged[1:], ("id", "project", "signer"), strict=True):
            tables(queue.store).tasks.sign(task.id, swapped(task, field), task.signature, task.signer)
    there, pages = moved(queue, tmp_path / "there.db")
    try:
        assert [one["order"] for page in pages for one in page["tasks"]] == [to_base64(good.ordered)]
        for task in (good, *damaged):
            assert tables(there.store).tasks.find(task.id) == tables(queue.store).tasks.find(task.id)
            assert tables(there.store).slots.of(task.id, limit=9) == tables(queue.store).slots.of(task.id, limit=9)
        assert [one.record for one in tables(there.store).logs.behind("", 0, 0, limit=9)] == [
            one.record for one in tables(queue.store).logs.behind("", 0, 0, limit=9)
        ]
        for order in orders:
            assert there.ordered(order) == tables(there.store).tasks.find(order.id)
        # Also with another key that its machine has by now.
        assert there.ordered(orders[0], DESKTOP) == tables(there.store).tasks.find(orders[0].id)
        there.look(there.now + HOUR)
        assert there.claim("bb") is None
        assert [there.states(task) for task in damaged] == [["succeeded"]] * 4
    finally:
        there.store.close()


def test_tasks_that_are_given_up_on_their_way_are_not_begun_again(queue: Queue, tmp_path: Path) -> None:
    """Some have come, and what was begun of them has not: they end, and so does what a machine sends once more."""
    come, nightly, other = queue.add(), queue.add(schedule="0 2 * * *"), queue.add()
    orders = [slot_states.order_of(task) for task in (come, nightly, other)]
    assert {queue.run("succeeded").task for _ in range(2)} <= {come.id, other.id}
    there = Queue(tmp_path / "there.db")
    there.now = queue.now + 60
    with queue.store.writing(), there.store.writing():
        queue.store.marks.put(SPACE_LEFT, queue.now)
        there.store.marks.put(PARTS_AWAITED, there.now)
        for task in (come, nightly):
            tables(there.store).tasks.add(task)  # and none of their slots
        moving.give_up(there.store, now=there.now)
    try:
        for order in orders:
            there.ordered(order)
        there.look(NIGHT + 400)
        assert there.claim() is None
        assert [there.task(task).state for task in (come, nightly)] == [TaskStatus.CANCELLED] * 2
        assert there.task(come).why == moving.GIVEN_UP
        assert there.states(other) == ["lost"]
        there.add()
        assert there.run("succeeded").state is Slot.SUCCEEDED
    finally:
        there.store.close()


def test_what_an_older_version_leaves_behind_keeps_nothing_else_back(queue: Queue, tmp_path: Path) -> None:
    good, damaged = queue.add(), queue.add()
    flip(queue, damaged, "ordered", 7)
    there, _ = moved(queue, tmp_path / "there.db", by_older=True)
    try:
        assert [one.id for one in tables(there.store).tasks.living()] == [good.id]
        assert there.claimed().task.id == good.id
    finally:
        there.store.close()


NOTED: dict[str, Any] = {
    "task": "0f" * 8,
    "project": "proj",
    "recipe": "review",
    "repo": "",
    "priority": 5,
    "signer": "ab" * 32,
    "order": "e30=",
    "signature": to_base64(bytes(64)),
    "approvals": [],
    "state": "active",
    "why": "",
    "plannedTo": 1,
    "freshSince": 0,
    "created": 1,
}
LOG: dict[str, Any] = {"task": "0f" * 8, "at": 1, "part": 0, "record": "e30=", "time": 1}
NOTHING: dict[str, Any] = {"tasks": [], "slots": [], "logs": [], "runners": [], "spent": [], "isLast": False}


@pytest.mark.parametrize(
    ("kind", "rows", "told"),
    [
        ("tasks", [NOTED] * 513, "'tasks' has 513 entries"),
        ("logs", [LOG] * 513, "'logs' has 513 entries"),
        ("tasks", [{**NOTED, "task": "../../etc"}], "'task' is no id of a task"),
        ("tasks", [{**NOTED, "project": "a\nb"}], "the project has no usable name"),
        ("tasks", [{**NOTED, "recipe": "-x"}], "'recipe' is no name of a recipe"),
        ("tasks", [{**NOTED, "repo": "r" * 2_000}], "'repo' is too long"),
        ("tasks", [{**NOTED, "priority": 11}], "'priority' must be a number from 1 to 10"),
        ("tasks", [{**NOTED, "signer": "ab"}], "'signer' must be 64 lower-case hex digits"),
        ("tasks", [{**NOTED, "state": "begun"}], "'state' must be one of"),
        ("tasks", [{**NOTED, "order": to_base64(bytes(MAX_ORDER_BYTES + 1))}], "'order' is too large"),
        ("tasks", [{**NOTED, "why": "w" * 300}], "'why' is too long"),
        ("logs", [{**LOG, "record": to_base64(bytes(MAX_LOG_RECORD + 1))}], "'record' is too large"),
        ("logs", [{**LOG, "part": 64}], "'part' must be a number from 0 to 63"),
        ("slots", "all", "'slots' must be a list"),
    ],
)
def test_a_page_of_what_cannot_be_read_has_its_bounds(kind: str, rows: Any, told: str) -> None:
    apart = {"tasks": [], "slots": [], "logs": [], kind: rows}
    with pytest.raises(RequestError) as refused:
        MOVE_TASKS_IN.read({**NOTHING, "unreadable": apart})
    assert refused.value.message.startswith(told)
    assert "\n" not in refused.value.message


def test_what_cannot_be_read_takes_the_place_of_nothing(queue: Queue) -> None:
    """A task that is there stays as it is, a log comes behind its task, and a page may be without all of it."""
    good = queue.add()
    with queue.store.writing():
        queue.store.marks.put(PARTS_AWAITED, queue.now)

    def take(**apart: Any) -> None:
        said = MOVE_TASKS_IN.read({**NOTHING, "unreadable": {"tasks": [], "slots": [], "logs": [], **apart}})
        with queue.store.writing():
            moving.take(queue.store, said)

    assert MOVE_TASKS_IN.read(NOTHING)["unreadable"] is None
    take(tasks=[{**NOTED, "task": good.id}])
    assert queue.task(good) == good
    with pytest.raises(RequestError, match="a log comes before its task"):
        take(logs=[LOG])
    take(tasks=[{**NOTED, "created": int(queue.now * 1e6), "signer": LAPTOP.public_key.hex()}], logs=[LOG])
    with queue.store.writing():
        queue.store.marks.put(PARTS_AWAITED, 0.0)
    queue.look()
    assert (found := tables(queue.store).tasks.find(NOTED["task"])) is not None
    assert (found.state, "damaged" in found.why) == (TaskStatus.PAUSED, True)
    assert queue.claimed().task.id == good.id


def test_the_month_has_its_limit_for_all_runners(queue: Queue) -> None:
    """Reserved when a run begins, and let go when it ends."""
    for _ in range(3):
        queue.add(max_microusd=DOLLAR)
    first = queue.begin(queue.claimed("aa", monthly=DOLLAR + 200_000))
    second = queue.begin(queue.claimed("bb", monthly=DOLLAR + 200_000))
    assert (first.limit, second.limit) == (DOLLAR, 200_000)
    assert queue.claim("cc", monthly=DOLLAR + 200_000) is None
    queue.end(first, "succeeded", microusd=300_000)
    third = queue.claimed("cc", monthly=DOLLAR + 200_000)
    assert third.limit == DOLLAR + 200_000 - 300_000 - 200_000
    queue.end(second, "failed", microusd=200_000)
    assert tables(queue.store).runners.monthly_spending(claims.month_of(queue.now)) == 500_000


def test_what_costs_nothing_needs_no_money(queue: Queue) -> None:
    queue.add()
    assert queue.claim(left=0) is None
    assert queue.claimed(left=0, most=0).limit == 0


def test_a_clock_that_jumps_makes_nothing_twice(queue: Queue) -> None:
    task = queue.add(schedule="0 * * * *")
    queue.look(NIGHT + 400)
    queue.run("succeeded")
    seen = {one.at: one.state for one in tables(queue.store).slots.of(task.id, limit=1000)}
    for jump in (40 * DAY, -40 * DAY, -2 * HOUR, 5 * HOUR):
        queue.look(queue.now + jump)
    after = {one.at: one.state for one in tables(queue.store).slots.of(task.id, limit=10_000)}
    assert set(seen) <= set(after)
    assert len(after) == len(queue.store.rows("SELECT DISTINCT at FROM slot WHERE task = ?", (task.id,)))
    assert all(after[at] is state for at, state in seen.items() if state is Slot.SUCCEEDED)


def test_an_id_may_be_cut_short(queue: Queue) -> None:
    grants = Grants("laptop")
    one = queue.add(id="aaaa000000000001")
    queue.add(id="aaaa000000000002")
    assert task_actions.find_task(queue.store, grants, "AAAA000000000001").id == one.id
    for name, error in (("aaaa", ToolError), ("aaa", NotFoundError), ("zzzz", NotFoundError), ("", NotFoundError)):
        with pytest.raises(error):
            task_actions.find_task(queue.store, grants, name)
    other = Grants("other", projects=frozenset({"elsewhere"}))
    with pytest.raises(NotFoundError):
        task_actions.find_task(queue.store, other, one.id)


def test_there_is_an_end_to_what_is_queued(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_actions, "MAX_LIVING", 3)
    for _ in range(3):
        queue.add()
    with pytest.raises(ToolError):
        queue.add()


def test_what_ended_long_ago_goes(queue: Queue) -> None:
    task = queue.add()
    queue.run("succeeded")
    with queue.store.writing():
        tables(queue.store).slots.forget(queue.now - 1)
        tables(queue.store).tasks.forget(queue.now + 1)
    assert tables(queue.store).tasks.find(task.id) is not None
    with queue.store.writing():
        tables(queue.store).slots.forget(queue.now + 1)
        tables(queue.store).tasks.forget(queue.now + 1)
    assert tables(queue.store).tasks.find(task.id) is None


async def test_a_report_says_of_a_run_how_long_nobody_has_heard_of_it(queue: Queue) -> None:
    """Until its lease ends the daemon knows no more; that it `runs` alone would be believed."""

    class Tasks:
        def now(self) -> float:
            return queue.now

        async def read(self, work: Any) -> Any:
            return work(queue.store)

    async def told() -> str:
        tasks: Any = Tasks()
        return (await report.make_report(tasks, lambda: Grants("laptop"), since=None, is_brief=False)).lines[1]

    queue.add(at=int(queue.now))
    queue.begin(queue.claimed())
    queue.now += 20
    assert "heard" not in await told()
    queue.now += 35
    assert "running, not heard of for 55 s" in await told()
    queue.now += 40
    queue.look()
    assert "lost, " in await told()
