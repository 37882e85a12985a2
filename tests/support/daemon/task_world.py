"""A night of tasks, drawn from a seed: a daemon over a real database, three runners that speak its protocol, and everything that can
happen to them: kills, partitions, answers that are lost or come much later, clocks that jump, a folder that is put back, devices that are
removed and come again, keys that change, bits that flip, a memory that moves to another daemon, and one that was left and is put back.

Time is the world's own, so a night takes a fraction of a second. What a runner may do it does by PROTOCOL.md 9.10 and 11.4 alone; what a
machine does for its space, it does by the code of machines.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.support.daemon.task_machines import NAMES, START, Machines, PlayedRunner, Run, Wire, done

from confide_crypto.errors import ConfideError, ConnectionLost, OrderError, RequestError
from confide_crypto.sealing.record import SealedRecord
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.errors import GrantError
from confide_daemon.spaces import file
from confide_daemon.spaces.part import PARTS_AWAITED, SPACE_LEFT
from confide_daemon.store.space_store import Store
from confide_memory.forms import to_json
from confide_night.daemon import claims, moving, planning, task_actions
from confide_night.daemon.claims import Ending, Runner, SlotId
from confide_night.daemon.task_queue import queue
from confide_night.local.moments import bring, give_up, sign_again
from confide_night.order.order import (
    ALWAYS_LASTS_S,
    FINAL,
    MISSED,
    ONCE_LASTS_S,
    OVERLAP,
    Approval,
    Order,
    Slot,
    TaskStatus,
    approve_order,
    open_order,
    sign_order,
)
from confide_night.order.wire import (
    APPROVE,
    LEASE_S,
    LOG_KIND,
    MARGIN_S,
    MAX_ORDERS,
    MOVE_TASKS,
    MOVE_TASKS_IN,
    ORDERS,
    RENEW_S,
    RESIGN,
)

KEY: Final = b"\x17" * 32
MONTHLY: Final = 400_000_000
GRANTS: Final = Grants("laptop")
RECIPES: Final = ("review", "fix", "ask", "publish")
NEEDING: Final = "publish"
"""Takes the approval of a second device."""
LOSES: Final = 0.1
"""So often a message of what a machine does for its space is lost."""


class OutOfReach(Exception):  # noqa: N818 - it is the world's, and no failure of the code
    """A message was lost, on its way there or back."""


WHAT: Final = (
    *("kill daemon", "kill runner", "cut", "jump", "back up", "put back", "add", "add", "meddle", "none"),
    *("send again", "approve", "devices", "new key", "flip", "flip ledger", "move", "put back what was left"),
)


class World:
    """One drawn night, or a few of them. `wrong` is what must never be: the first thing of it, or ""."""

    def __init__(self, seed: int, folder: Path, *, steps: int = 250) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.steps = steps
        self.now = float(START)
        self.ends_at = self.now
        self.offset = 0.0
        """By so much the daemon's clock differs."""
        self.machines = Machines(self.draw)
        self.runners = [PlayedRunner(self.machines, name) for name in NAMES]
        self.store: Store | None = None
        """Of the daemon that the space is at; None while that is dead."""
        self.left: list[Store] = []
        """Of those that it has left, in order."""
        self.kept: dict[int, Path] = {}
        """A copy of some of these from before they were left."""
        self.is_carried = False
        """Its tasks are still on their way to where it is."""
        self.spawned: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.final: dict[tuple[str, int], Slot] = {}
        self.effects: dict[tuple[str, int], int] = defaultdict(int)
        self.orders: dict[str, Order] = {}
        """As they were given, by whichever key."""
        self.unanswered: list[tuple[str, Order]] = []
        """By which machine: it does not know whether the daemon has it, and sends it again some time."""
        self.backup: tuple[Path, float] | None = None
        self.wrong = ""
        self.tried: dict[str, int] = defaultdict(int)
        self.open_daemon()

    # The daemon

    def path_of(self, place: int) -> Path:
        return self.folder / f"space-{place}.db"

    @property
    def path(self) -> Path:
        return self.path_of(len(self.left))

    def open_daemon(self) -> None:
        self.store = self.opened(self.path)
        self.look()

    def opened(self, path: Path) -> Store:
        store = Store.open(path, KEY, writer=True, now=self.clock)
        file.mark_open(store, now=self.clock)
        file.note_restore(store, path.with_suffix(".restored"))
        # A night has thousands of commits, and none of them is about power cuts.
        store.rows("PRAGMA synchronous = OFF")
        with store.writing():
            if not moving.rests(store):
                claims.lengthen_leases(store, now=self.clock)
        return store

    def kill_daemon(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    @property
    def clock(self) -> float:
        """What the daemon's says."""
        return self.now + self.offset

    def look(self) -> None:
        # As `Tasks.look` does it.
        for store in (self.store, *self.left):
            if store is None or claims.is_idle(store):
                continue
            with store.writing():
                if not moving.rests(store):
                    claims.look(store, self.machines.roster, now=self.clock, draw=self.draw)
        if self.store is not None:
            self.check()

    def daemon_of(self, runner: PlayedRunner) -> Store | None:
        return self.store if runner.place == len(self.left) else self.left[runner.place]

    def ask(self, runner: PlayedRunner, work: Callable[[Store], Any]) -> Any:
        """A request of a runner's: it may be lost, or its answer. Raises OutOfReach; ConfideError: as the daemon refuses."""
        store = self.daemon_of(runner)
        if store is None or runner.is_cut_off or self.draw.random() < 0.02:
            raise OutOfReach
        if not self.machines.are_on(runner.label):
            raise GrantError("this machine is none of the devices")
        with store.writing():
            if store.marks.find(SPACE_LEFT):
                runner.has_heard = True
            if moving.rests(store):
                raise OutOfReach  # `unavailable`: it is asked again
            claims.take_over(store, self.machines.earlier[runner.label], runner.key.hex())
            found = work(store)
        if self.store is not None:
            self.check()
        if self.draw.random() < 0.03:
            raise OutOfReach
        return found

    # People

    def add(self) -> None:
        draw, at = self.draw, None
        schedule = draw.choice((None, None, "0 2 * * *", "30 1-5 * * *", "7 * * * *", "*/30 * * * *", "*/15 * * * *"))
        if schedule is None:
            at = int(self.now + draw.uniform(-3_600, 8_000))
        machine = draw.choice(("laptop", "laptop", "desktop", "phone"))
        if not self.machines.are_on(machine):
            machine = "laptop"
        order = Order(
            id=f"{draw.getrandbits(64):016x}",
            project="shop",
            recipe=draw.choice(RECIPES),
            description="drawn",
            signer=self.machines.identity[machine].public_key.hex(),
            added=int(self.now),
            expires=int(self.now) + (ONCE_LASTS_S if schedule is None else draw.choice((90_000, ALWAYS_LASTS_S))),
            zone=draw.choice(("UTC", "Europe/Berlin", "Australia/Lord_Howe")),
            at=at,
            schedule=schedule,
            repo=draw.choice(("", "", "git@host:a", "git@host:b")),
            missed=draw.choice(MISSED),
            overlap=draw.choice(OVERLAP),
            priority=draw.randint(1, 10),
            retries=draw.randint(0, 3),
        )
        self.orders[order.id] = order
        self.give(machine, order)
        if draw.random() < 0.3:  # its answer was lost
            self.unanswered.append((machine, order))

    def give(self, machine: str, order: Order) -> None:
        """A machine orders a task, with the key that it has now, for the first time or once more."""
        if self.store is None or moving.rests(self.store) or not self.machines.are_on(machine):
            return
        identity = self.machines.identity[machine]
        data = replace(order, signer=identity.public_key.hex()).encode()
        signature = sign_order(identity, self.machines.roster.space, data)
        try:
            with self.store.writing():
                task_actions.add(
                    self.store, GRANTS, self.machines.roster, identity.public_key, data, signature, now=self.clock
                )
        except OrderError:
            pass  # by the daemon's clock it has expired
        except RequestError as error:
            self.wrong = self.wrong or f"the task {order.id}, sent once more, is refused: {error.in_one_line}"

    def send_again(self) -> None:
        """A machine sends what it has no answer for."""
        if self.unanswered:
            self.give(*self.unanswered.pop(self.draw.randrange(len(self.unanswered))))

    def approve(self) -> None:
        """A second device approves what waits for that."""
        if self.store is None or moving.rests(self.store):
            return
        waiting = [row for row in queue(self.store).tasks.living() if row.state is TaskStatus.PROPOSED]
        machine = self.draw.choice(NAMES)
        if not waiting or not self.machines.are_on(machine):
            return
        row, identity = self.draw.choice(waiting), self.machines.identity[machine]
        approval = approve_order(identity, self.machines.roster.space, row.ordered)
        with contextlib.suppress(OrderError), self.store.writing():  # as where it gave the order itself
            task_actions.approve(self.store, row, self.machines.roster, approval)

    def meddle(self) -> None:
        """A person cancels, pauses or resumes one of the tasks."""
        if self.store is None or moving.rests(self.store) or not self.orders:
            return
        identity = self.draw.choice(list(self.orders))
        row = queue(self.store).tasks.find(identity)
        if row is None:
            return  # it was added in the time that is lost
        with self.store.writing():
            try:
                match self.draw.choice(("cancel", "pause", "resume", "resume")):
                    case "cancel":
                        task_actions.cancel(self.store, row, now=self.clock)
                    case "pause":
                        task_actions.pause(self.store, row, by="laptop")
                    case "resume":
                        task_actions.resume(self.store, row, self.machines.roster, now=self.clock)
            except ConfideError:
                pass

    # Machines and their keys

    def change_devices(self) -> None:
        """A machine is removed from the space, or comes again, or the space gets another key."""
        name = self.draw.choice(("desktop", "phone"))
        if not self.machines.are_on(name):
            self.machines.invite(name)
        elif self.draw.random() < 0.5:
            self.machines.remove(name)
        else:
            self.machines.change_space_key(name)

    def change_key(self) -> None:
        """A machine gets another key; what it has ordered it signs anew, as far as its link goes."""
        name = self.draw.choice(NAMES)
        if self.store is not None and self.machines.are_on(name) and name not in self.machines.leaving:
            self.machines.change_key(name)
            self.finish_key(name)

    def finish_key(self, name: str) -> None:
        """What a machine does until its old key has left (`confide_proxy.devices.duties`); if it breaks off, another time."""
        if self.store is None or moving.rests(self.store):
            return
        identity, old = self.machines.identity[name], self.machines.leaving[name]
        link = Wire(self.draw, lambda op, body: self.answer(identity.public_key, op, body), loses=LOSES)

        async def duty() -> bool:
            await sign_again(link, self.machines.roster, identity, old.public_key)
            return True

        if done(duty()):
            self.machines.finish(name)

    def answer(self, key: bytes, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the daemon answers to a machine that has changed its key. Raises as it refuses."""
        assert self.store is not None
        roster = self.machines.roster
        with self.store.writing():
            match op:
                case "task-orders":
                    of_key = ORDERS.read(body)
                    rows = queue(self.store).tasks.bearing(of_key["key"].hex(), of_key["after"], limit=MAX_ORDERS)
                    page = {"orders": [one.wire for one in rows], "next": rows[-1].id if rows else None}
                    return to_json(page, ORDERS.answer_fields)
                case "task-resign":
                    anew = RESIGN.read(body)
                    order, signature = anew["order"], anew["signature"]
                    return {
                        "state": task_actions.sign_again(
                            self.store, GRANTS, roster, key, order, signature, now=self.clock
                        ).state
                    }
                case "task-approve":
                    said = APPROVE.read(body)
                    row = task_actions.writable(self.store, GRANTS, said["task"])
                    approval = Approval(key, said["signature"])
                    return {"state": task_actions.approve(self.store, row, roster, approval).state}
        raise AssertionError(op)

    # A memory that moves

    def move(self) -> None:
        """The laptop takes the memory to another daemon: what was there is closed for good, and its tasks are on their way."""
        if self.store is None or self.is_carried or moving.rests(self.store) or len(self.left) > 2:
            return
        if self.backup is None:
            self.back_up()
        self.kept[len(self.left)], self.backup = self.backup[0], None
        with self.store.writing():
            self.store.marks.put(SPACE_LEFT, self.now)
        self.left.append(self.store)
        self.offset = self.draw.choice((-7_200.0, -60.0, 0.0, 0.0, 90.0, 3_600.0))
        self.store = Store.open(self.path, KEY, writer=True, now=self.clock)
        with self.store.writing():
            self.store.marks.put(PARTS_AWAITED, self.now)
        self.kill_daemon()
        self.open_daemon()
        self.is_carried = True
        self.join(self.runners[0])
        self.carry()

    def join(self, runner: PlayedRunner) -> None:
        """Its machine joins the daemon to which the memory has gone."""
        runner.place, runner.has_heard = len(self.left), False

    def put_back_left(self) -> None:
        """A daemon that was left is put back from a copy made before the move: it knows of none, and has the tasks as they were then.

        Every runner that is still there was told before that the memory had moved: of others nothing is promised (docs/server.md).
        """
        place = self.draw.choice(sorted(self.kept)) if self.kept else None
        if place is None or any(one.place == place and not one.has_heard for one in self.runners):
            return
        self.left[place].close()
        path = self.path_of(place)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        shutil.copyfile(self.kept[place], path)
        if self.draw.random() < 0.5:  # or by hand, and nothing tells it that it was
            path.with_suffix(".restored").write_text("{}\n")
        self.left[place] = self.opened(path)
        self.look()
        # What it gives out again is due behind what it takes for lost (`restored`), as at two in the night.
        self.now += self.draw.choice((0, planning.BEHIND_S, 65_000))
        self.ends_at = max(self.ends_at, self.now + 10_000)
        self.tried["left daemons put back"] += 1

    def carry(self) -> None:
        """The tasks go along, last of all (`confide_transfer.move.local`); if it breaks off, another time."""
        source = Wire(self.draw, self.given, loses=LOSES / 4)
        target = Wire(self.draw, self.taken, loses=LOSES / 4)

        async def finish() -> bool:
            # As `confide daemon move`: a daemon that was restored meanwhile goes on with its own (9.8), and one may never come back.
            if self.left[-1].marks.find(SPACE_LEFT) and self.draw.random() > 0.05:
                await bring(source, target)
            else:
                self.tried["given up"] += 1
                await give_up(target)
            return True

        if done(finish()):
            self.is_carried = False
            self.look()

    def given(self, _op: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the daemon that was left answers to who brings them."""
        return to_json(moving.page(self.left[-1], body["after"]), MOVE_TASKS.answer_fields)

    def taken(self, _op: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the daemon answers to tasks that come."""
        if self.store is None:
            raise ConnectionLost(truncated=True)
        said = MOVE_TASKS_IN.read(body)
        with self.store.writing():
            moving.take(self.store, said)
            if said["givenUp"]:
                self.final.clear()  # what has come of them may end in another way
                moving.give_up(self.store, now=self.clock)
            elif said["isLast"]:
                moving.settle(self.store, now=self.clock)
        return {}

    # Bits

    def flip(self) -> None:
        """One bit of what is stored of a task is another one, in a page that opens all the same."""
        if self.store is None:
            return
        found = self.store.rows("SELECT id, 'ordered' FROM task UNION ALL SELECT id, 'signature' FROM task")
        found += self.store.rows("SELECT id, 'approvals' FROM task WHERE approvals <> '[]'")
        found += self.store.rows("SELECT task, 'record' FROM task_log")
        if not found:
            return
        task, column = (str(one) for one in self.draw.choice(sorted(found, key=str)))
        table, name = ("task_log", "task") if column == "record" else ("task", "id")
        sql = f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {name} = ?"
        data = bytearray(bytes(self.store.rows(sql, (task,))[0][0]))  # type: ignore[call-overload]
        data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
        kind = "TEXT" if column == "approvals" else "BLOB"
        with self.store.writing():
            self.store.rows(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE {name} = ?", (bytes(data), task))

    def flip_ledger(self, runner: PlayedRunner) -> None:
        """A runner whose ledger is damaged does not begin."""
        if self.draw.random() < 0.3 and not any(one.is_broken for one in self.runners):
            runner.is_broken = True
            self.kill_runner(runner)

    # Runners

    def turn(self, runner: PlayedRunner) -> None:
        """What one of them does at this moment."""
        if not runner.is_up:
            return
        try:
            if runner.run is not None:
                self.go_on(runner, runner.run)
            elif runner.unreported:
                self.report_lost(runner)
            elif self.now >= runner.next_claim:
                runner.next_claim = self.now + self.draw.choice((1.0, 60.0, 600.0))
                self.claim(runner)
        except OutOfReach:
            self.tried["lost messages"] += 1
        except GrantError:
            self.tried["denied"] += 1

    def claim(self, runner: PlayedRunner) -> None:
        store = self.daemon_of(runner)
        if runner.has_heard and store is not None and not store.marks.find(SPACE_LEFT):
            self.tried["nothing claimed where it was left"] += 1
            return  # `confide_night.runner.books`
        said = Runner(
            runner.key.hex(),
            runner.label,
            None,
            {name: (1_000_000, name == NEEDING) for name in self.draw.sample(RECIPES, self.draw.randint(1, 4))},
            frozenset(),
            50_000_000,
        )
        asked_at = self.now
        lease = self.ask(
            runner,
            lambda store: claims.claim(
                store, said, self.machines.roster, monthly=MONTHLY, now=self.clock, draw=self.draw
            ),
        )
        if lease is None:
            return
        slot = lease.slot
        name = SlotId(slot.task, slot.at, slot.attempt, slot.fence)
        try:
            order = self.checked(lease)
        except OrderError:
            # Somebody has tampered, bits have flipped, or the daemon's clock is elsewhere.
            self.tried["refused orders"] += 1
            self.ask(runner, lambda store: self.ended(store, name, runner, "failed", "refused"))
            return
        earlier = [key for key in runner.ledger if key[:2] == (slot.task, slot.at)]
        if any(key not in runner.again for key in earlier):
            # By its ledger it has begun that before: PROTOCOL.md 11.4.
            self.ask(runner, lambda store: self.ended(store, name, runner, "lost", "restored"))
            return
        key = (slot.task, slot.at, slot.attempt)
        if key in runner.ledger:
            return
        runner.ledger[key] = ""
        runner.names[key] = name
        outcome = self.draw.choices(("succeeded", "failed", "again", "cancelled"), (6, 2, 2, 0.3))[0]
        lasts_s = self.draw.choice((5.0, 60.0, 200.0, 900.0))
        # From when it was asked: that is earlier than when it was given.
        runner.run = Run(name, order, self.now + lasts_s, asked_at + LEASE_S - MARGIN_S, self.now + RENEW_S, outcome)
        self.go_on(runner, runner.run)

    def checked(self, lease: claims.SlotLease) -> Order:
        """The order of a slot, once all has been asked that a runner asks. Raises OrderError: it is not followed."""
        task, slot = lease.task, lease.slot
        named = {one.key for one in task.approvals}  # by its runner.toml
        given = (task.ordered, task.signature, task.approvals)
        order = open_order(self.machines.roster, *given, now=self.now, approvers=named)
        if order.id != slot.task:
            raise OrderError("another one's order")
        order.check_slot(slot.at, now=self.now)
        if order.recipe == NEEDING and not task.approvals:
            raise OrderError("nobody has approved it")
        if order != replace(self.orders[order.id], signer=order.signer):
            self.wrong = self.wrong or f"{order.id} was followed, and nobody has ordered it so"
        return order

    def go_on(self, runner: PlayedRunner, run: Run) -> None:
        key = (run.name.task, run.name.at, run.name.attempt)
        if self.now >= run.deadline:
            self.give_up(runner, key)  # nobody renewed it in time: it is killed
            return
        try:
            asked_at = self.now
            if not run.has_told:
                is_repeatable = False
                self.ask(
                    runner,
                    lambda store: claims.begin(
                        store,
                        run.name,
                        runner.key.hex(),
                        is_repeatable=is_repeatable,
                        now=self.clock,
                    ),
                )
                run.has_told = True
                run.deadline = asked_at + LEASE_S - MARGIN_S
                if run.outcome != "again":
                    self.spawn(run)
                return
            if self.now >= run.ends_at:
                state = self.ask(runner, lambda store: self.ended(store, run.name, runner, run.outcome, "drawn"))
                if state is Slot.SUCCEEDED:
                    self.effects[run.name.task, run.name.at] += 1
                    self.keep_log(run.name)
                if run.outcome == "again":
                    runner.again.add(key)
                runner.ledger[key] = run.outcome
                runner.run = None
                return
            if self.now >= run.renew_at:
                is_killed = self.ask(
                    runner,
                    lambda store: claims.renew(store, run.name, runner.key.hex(), now=self.clock),
                )
                run.renew_at = self.now + RENEW_S
                run.deadline = asked_at + LEASE_S - MARGIN_S
                if is_killed:
                    run.ends_at, run.outcome = self.now, "cancelled"
        except ConfideError:
            # `conflict`, or unknown: it is killed, and nothing of it counts. What was not told of never began.
            runner.ledger[key] = "killed"
            if not run.has_told:
                runner.again.add(key)
            runner.run = None
        except OutOfReach:
            run.renew_at = self.now + 5
            raise

    def give_up(self, runner: PlayedRunner, key: tuple[str, int, int]) -> None:
        runner.run = None
        runner.unreported.append(key)

    def report_lost(self, runner: PlayedRunner) -> None:
        key = runner.unreported[0]
        with contextlib.suppress(ConfideError):
            self.ask(runner, lambda store: self.ended(store, runner.names[key], runner, "lost", "killed"))
        runner.ledger[key] = "lost"
        runner.unreported.pop(0)

    def ended(self, store: Store, name: SlotId, runner: PlayedRunner, state: str, reason: str) -> Slot:
        ending = Ending(state, reason, microusd=1_000)
        return claims.end(store, name, runner.key.hex(), ending, now=self.clock, draw=self.draw)[0].state

    def keep_log(self, name: SlotId) -> None:
        """A part of the log, sealed for the devices of the space."""
        if self.store is not None and not moving.rests(self.store):
            record = SealedRecord.seal(self.machines.keys, LOG_KIND, b"what it did").encode()
            with self.store.writing():
                queue(self.store).logs.put(name.task, name.at, 0, record, now=self.clock)

    def spawn(self, run: Run) -> None:
        run.has_spawned = True
        place = (run.name.task, run.name.at)
        self.spawned[place].append((run.name.attempt, run.name.fence))
        if len(self.spawned[place]) > 1:
            self.wrong = self.wrong or f"{place} was started twice: {self.spawned[place]}"

    # What happens to them

    def kill_runner(self, runner: PlayedRunner) -> None:
        runner.is_up = False
        runner.run = None

    def start_runner(self, runner: PlayedRunner) -> None:
        if runner.is_broken:
            return
        runner.is_up = True
        runner.unreported = [key for key, ended in runner.ledger.items() if not ended]

    def disturb(self) -> None:
        """Something of what goes wrong in nights."""
        draw = self.draw
        runner = draw.choice(self.runners)
        what = draw.choice(WHAT)
        self.tried[what] += 1
        match what:
            case "kill daemon":
                self.kill_daemon()
            case "kill runner":
                self.kill_runner(runner)
            case "cut":
                runner.is_cut_off = not runner.is_cut_off
            case "jump":
                # It is never more than two hours behind, by which a restore reckons.
                self.offset = max(-7_200.0, self.offset + draw.choice((-7_200, -600, 30, 100, 3_600, 90_000)))
            case "back up":
                self.back_up()
            case "put back":
                self.put_back()
            case "add":
                self.add()
            case "meddle":
                self.meddle()
            case "send again":
                self.send_again()
            case "approve":
                self.approve()
            case "devices":
                self.change_devices()
            case "new key":
                self.change_key()
            case "flip":
                self.flip()
            case "flip ledger":
                self.flip_ledger(runner)
            case "move":
                self.move()
            case "put back what was left":
                self.put_back_left()

    def back_up(self) -> None:
        if self.store is None:
            return
        self.store.close()
        kept = self.folder / f"backup-{len(self.left)}.db"
        shutil.copyfile(self.path, kept)
        self.backup = (kept, self.now)
        self.open_daemon()

    def put_back(self) -> None:
        """As `confided restore` does it: the older file, and a mark beside it."""
        if self.backup is None or self.draw.random() < 0.5:
            return
        self.kill_daemon()
        for ending in ("-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        shutil.copyfile(self.backup[0], self.path)
        self.path.with_suffix(".restored").write_text("{}\n")
        self.final.clear()  # what was forgotten may end in another way
        self.open_daemon()
        # It is as it was before its tasks had come: a person has the move finished once more.
        self.is_carried = self.is_carried or (self.store is not None and moving.rests(self.store))

    # The night

    def live(self) -> None:
        """All of it, and then two quiet days in which everything comes to an end."""
        for _ in range(self.draw.randint(3, 6)):
            self.add()
        troubled_at, self.ends_at = self.now + 100, self.now + self.draw.choice((10_000, 30_000))
        for _ in range(self.steps):
            if self.now >= self.ends_at or self.wrong:
                break
            self.pass_to(min(self.next_moment(), troubled_at))
            if self.now >= troubled_at:
                troubled_at = self.now + self.draw.choice((5.0, 60.0, 600.0, 3_000.0))
                self.disturb()
        if not self.wrong:
            self.settle()

    def next_moment(self) -> float:
        """When somebody has something to do."""
        moments = [self.now + 600]
        for runner in self.runners:
            if not runner.is_up:
                continue
            run = runner.run
            moments.append(min(run.renew_at, run.ends_at, run.deadline) if run else runner.next_claim)
        # Nobody does anything in no time: an answer takes a while.
        return max(self.now + self.draw.uniform(0.01, 2.0), min(moments))

    def pass_to(self, moment: float) -> None:
        self.now = moment
        if self.store is None and self.draw.random() < 0.3:
            self.open_daemon()
        for runner in self.runners:
            if not runner.is_up and self.draw.random() < 0.2:
                self.start_runner(runner)
        if self.draw.random() < 0.2:
            self.look()
        if self.is_carried and self.draw.random() < 0.3:
            self.carry()
        for name in tuple(self.machines.leaving):
            if self.draw.random() < 0.3:
                self.finish_key(name)
        for runner in self.runners:
            if runner.place < len(self.left) and self.draw.random() < 0.005:
                self.join(runner)
        for runner in self.draw.sample(self.runners, len(self.runners)):
            self.turn(runner)

    def settle(self) -> None:
        """Nothing more goes wrong, and nobody orders anything."""
        self.offset = max(self.offset, 0.0)
        if self.store is None:
            self.open_daemon()
        assert self.store is not None
        for runner in self.runners:
            runner.is_cut_off = False
            self.join(runner)
            if not runner.is_up:
                self.start_runner(runner)
        while self.is_carried:
            self.carry()
        while self.machines.leaving:
            self.finish_key(next(iter(self.machines.leaving)))
        with self.store.writing():
            for row in queue(self.store).tasks.living():
                if self.orders[row.id].schedule is not None:
                    task_actions.cancel(self.store, row, now=self.clock)
                elif row.state is TaskStatus.PAUSED:
                    with contextlib.suppress(ConfideError):  # as of a device that was removed
                        task_actions.resume(self.store, row, self.machines.roster, now=self.clock)
        for number in range(400):
            self.pass_to(self.next_moment())
            if number % 10 == 0:
                self.look()
            if self.wrong or not queue(self.store).slots.list_due(due=2**40):
                break
        self.now += ONCE_LASTS_S
        self.look()
        self.check()
        left = queue(self.store).slots.list_due(due=2**40)
        if left and not self.wrong:
            self.wrong = f"{len(left)} slots never ended: {left[0]}"

    def check(self) -> None:
        """What must hold at every moment."""
        assert self.store is not None
        for row in self.store.rows("SELECT task, at, state FROM slot WHERE ended_at IS NOT NULL"):
            place, state = (row[0], row[1]), Slot(row[2])
            if self.final.setdefault(place, state) is not state or state not in FINAL:
                self.wrong = self.wrong or f"{place} ended as {self.final[place]}, and then as {state}"
        for place, count in self.effects.items():
            if count > 1:
                self.wrong = self.wrong or f"{place} took effect {count} times"
        held = [one.task for one in queue(self.store).slots.list_held()]
        if len(set(held)) < len(held):
            self.wrong = self.wrong or "two slots of one task are held"
        if (
            queue(self.store).slots.reserved_budget()
            + queue(self.store).runners.monthly_spending(claims.month_of(self.clock))
            > MONTHLY + 3_000_000
        ):
            self.wrong = self.wrong or "more than the month's money is put aside"

    def close(self) -> None:
        self.kill_daemon()
        for store in self.left:
            store.close()
