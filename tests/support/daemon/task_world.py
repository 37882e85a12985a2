"""A night of tasks, drawn from a seed: one daemon over a real database, three runners that speak its protocol, and everything that can
happen to them: kills, partitions, answers that are lost, clocks that jump, a folder that is put back, devices that are removed.

Time is the world's own, so a night takes a fraction of a second. What a runner may do it does by PROTOCOL.md 9.10 and 11.4 alone.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from tests.support.sealing.rosters import DESKTOP, LAPTOP, PHONE, device, founded

from confide_crypto.errors import ConfideError, OrderError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.orders import sign_order
from confide_crypto.sealing.roster import Roster
from confide_daemon.access.callers import Grants
from confide_daemon.spaces import maintenance
from confide_daemon.store.store import Store
from confide_daemon.tasks import claims, desk, watch
from confide_daemon.tasks.claims import Ending, Name, Runner
from confide_memory.tasks.order import ALWAYS_LASTS_S, MISSED, ONCE_LASTS_S, OVERLAP, Order, opened
from confide_memory.tasks.states import FINAL, Slot, Task
from confide_memory.tasks.wire import LEASE_S, MARGIN_S, RENEW_S

KEY: Final = b"\x17" * 32
START: Final = 1_800_000_000
MONTHLY: Final = 400_000_000
GRANTS: Final = Grants("laptop")
RECIPES: Final = ("review", "fix", "ask")


@cache
def _rosters() -> tuple[Roster, Roster]:
    """The devices of the space, and those that are left when the phone was removed."""
    roster, keys = founded()
    for identity, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
        roster = roster.add(LAPTOP, device(identity, name), keys, now=START)
    return roster, roster.remove(LAPTOP, PHONE.public_key, keys, now=START)[0]


class OutOfReach(Exception):  # noqa: N818 - it is the world's, and no failure of the code
    """A message was lost, on its way there or back."""


@dataclass
class Run:
    """What a runner does now. `deadline` and `renew_at` are by its own monotonic clock."""

    name: Name
    order: Order
    ends_at: float
    deadline: float
    renew_at: float
    outcome: str
    has_spawned: bool = False
    has_told: bool = False


@dataclass
class PlayedRunner:
    identity: Identity
    label: str
    is_up: bool = True
    is_cut_off: bool = False
    run: Run | None = None
    ledger: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Outlives its kills: what was begun, and how it ended; "" while it has not."""
    names: dict[tuple[str, int, int], Name] = field(default_factory=dict)
    again: set[tuple[str, int, int]] = field(default_factory=set)
    unreported: list[tuple[str, int, int]] = field(default_factory=list)
    next_claim: float = 0.0

    @cached_property
    def key(self) -> bytes:
        return self.identity.public_key


class World:
    """One drawn night, or a few of them. `wrong` is what must never be: the first thing of it, or ""."""

    def __init__(self, seed: int, folder: Path, *, steps: int = 250) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.steps = steps
        self.now = float(START)
        self.offset = 0.0
        """By so much the daemon's clock differs."""
        self.roster = _rosters()[0]
        self.runners = [PlayedRunner(LAPTOP, "laptop"), PlayedRunner(DESKTOP, "desktop"), PlayedRunner(PHONE, "phone")]
        self.store: Store | None = None
        self.is_looking = True
        self.spawned: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.final: dict[tuple[str, int], Slot] = {}
        self.effects: dict[tuple[str, int], int] = defaultdict(int)
        self.orders: dict[str, Order] = {}
        self.backup: tuple[Path, float] | None = None
        self.wrong = ""
        self.tried: dict[str, int] = defaultdict(int)
        self.open_daemon()

    # The daemon

    @property
    def path(self) -> Path:
        return self.folder / "space.db"

    def open_daemon(self) -> None:
        self.store = Store.open(self.path, KEY, writer=True, now=self.clock)
        maintenance.open_marked(self.store, now=self.clock)
        maintenance.note_restore(self.store, self.path.with_suffix(".restored"))
        # A night has thousands of commits, and none of them is about power cuts.
        self.store.rows("PRAGMA synchronous = OFF")
        with self.store.writing():
            watch.begin(self.store, now=self.clock)
        self.look()

    def kill_daemon(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    @property
    def clock(self) -> float:
        """What the daemon's says."""
        return self.now + self.offset

    def look(self) -> None:
        if self.store is None:
            return
        with self.store.writing():
            watch.look(self.store, self.roster, now=self.clock, draw=self.draw)
        self.check()

    def ask(self, runner: PlayedRunner, work: Callable[[Store], Any]) -> Any:
        """A request of a runner's: it may be lost, or its answer."""
        if self.store is None or runner.is_cut_off or self.draw.random() < 0.02:
            raise OutOfReach
        with self.store.writing():
            found = work(self.store)
        self.check()
        if self.draw.random() < 0.03:
            raise OutOfReach
        return found

    # People

    def add(self) -> None:
        if self.store is None:
            return
        draw, at = self.draw, None
        schedule = draw.choice((None, None, "0 2 * * *", "30 1-5 * * *", "*/30 * * * *", "*/15 * * * *"))
        if schedule is None:
            at = int(self.now + draw.uniform(-3_600, 8_000))
        signer = draw.choice((LAPTOP, LAPTOP, DESKTOP, PHONE))
        if signer.public_key not in self.roster.devices:
            signer = LAPTOP
        order = Order(
            id=f"{draw.getrandbits(64):016x}",
            project="shop",
            recipe=draw.choice(RECIPES),
            description="drawn",
            signer=signer.public_key.hex(),
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
        data = order.encode()
        signature = sign_order(signer, self.roster.space, data)
        for _ in range(draw.choice((1, 1, 2))):  # its answer may be lost
            try:
                with self.store.writing():
                    desk.add(self.store, GRANTS, self.roster, signer.public_key, data, signature, now=self.clock)
            except OrderError:
                return  # by the daemon's clock it has expired
        self.orders[order.id] = order

    def meddle(self) -> None:
        """A person cancels, pauses or resumes one of the tasks."""
        if self.store is None or not self.orders:
            return
        identity = self.draw.choice(list(self.orders))
        row = self.store.tasks.find(identity)
        if row is None:
            return  # it was added in the time that is lost
        with self.store.writing():
            try:
                match self.draw.choice(("cancel", "pause", "resume", "resume")):
                    case "cancel":
                        desk.cancel(self.store, row, now=self.clock)
                    case "pause":
                        desk.pause(self.store, row, by="laptop")
                    case "resume":
                        desk.resume(self.store, row, self.roster, now=self.clock)
            except ConfideError:
                pass

    def remove_phone(self) -> None:
        if PHONE.public_key in self.roster.devices and self.draw.random() < 0.3:
            self.roster = _rosters()[1]

    # Runners

    def turn(self, runner: PlayedRunner) -> None:
        """What one of them does at this moment."""
        if not runner.is_up or runner.key not in self.roster.devices:
            runner.run = None
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

    def claim(self, runner: PlayedRunner) -> None:
        said = Runner(
            runner.key.hex(),
            runner.label,
            None,
            dict.fromkeys(self.draw.sample(RECIPES, self.draw.randint(1, 3)), (1000000, False)),
            frozenset(),
            50_000_000,
        )
        asked_at = self.now
        lease = self.ask(
            runner,
            lambda store: watch.claim(store, said, self.roster, monthly=MONTHLY, now=self.clock, draw=self.draw),
        )
        if lease is None:
            return
        slot = lease.slot
        name = Name(slot.task, slot.at, slot.attempt, slot.fence)
        order = opened(self.roster, lease.task.ordered, lease.task.signature, lease.task.approvals)
        earlier = [key for key in runner.ledger if key[:2] == (slot.task, slot.at)]
        if any(key not in runner.again for key in earlier):
            # By its ledger it has begun that before: PROTOCOL.md 11.4.
            self.ask(runner, lambda store: self.ended(store, name, runner, "lost", "restored"))
            return
        try:
            order.check_slot(slot.at, now=self.now)
        except OrderError:
            # The daemon's clock is elsewhere. It says nothing, and the lease ends.
            runner.next_claim = self.now + 60
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
            # `conflict`, or unknown: it is killed, and nothing of it counts.
            runner.ledger[key] = "killed"
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

    def ended(self, store: Store, name: Name, runner: PlayedRunner, state: str, reason: str) -> Slot:
        ending = Ending(state, reason, microusd=1_000)
        return claims.end(store, name, runner.key.hex(), ending, now=self.clock, draw=self.draw)[0].state

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
        runner.is_up = True
        runner.unreported = [key for key, ended in runner.ledger.items() if not ended]

    def disturb(self) -> None:
        """Something of what goes wrong in nights."""
        draw = self.draw
        runner = draw.choice(self.runners)
        what = draw.choice(
            (
                "kill daemon",
                "kill runner",
                "cut",
                "jump",
                "back up",
                "put back",
                "add",
                "add",
                "meddle",
                "remove",
                "none",
            )
        )
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
            case "remove":
                self.remove_phone()

    def back_up(self) -> None:
        if self.store is None:
            return
        self.store.close()
        kept = self.folder / "backup.db"
        shutil.copyfile(self.path, kept)
        self.backup = (kept, self.now)
        self.open_daemon()

    def put_back(self) -> None:
        """As `confided restore` does it: the older file, and a mark beside it."""
        if self.backup is None or self.draw.random() < 0.5:
            return
        self.kill_daemon()
        for name in ("space.db-wal", "space.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.copyfile(self.backup[0], self.path)
        self.path.with_suffix(".restored").write_text("{}\n")
        self.final.clear()  # what was forgotten may end in another way
        self.open_daemon()

    # The night

    def live(self) -> None:
        """All of it, and then two quiet days in which everything comes to an end."""
        for _ in range(self.draw.randint(3, 6)):
            self.add()
        troubled_at, ends_at = self.now + 100, self.now + self.draw.choice((10_000, 30_000))
        for _ in range(self.steps):
            if self.now >= ends_at or self.wrong:
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
            if not runner.is_up or runner.key not in self.roster.devices:
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
            if not runner.is_up:
                self.start_runner(runner)
        with self.store.writing():
            for row in self.store.tasks.living():
                if self.orders[row.id].schedule is not None:
                    desk.cancel(self.store, row, now=self.clock)
                elif row.state is Task.PAUSED and bytes.fromhex(row.signer) in self.roster.devices:
                    desk.resume(self.store, row, self.roster, now=self.clock)
        for number in range(400):
            self.pass_to(self.next_moment())
            if number % 10 == 0:
                self.look()
            if self.wrong or not self.store.slots.unended(due=2**40):
                break
        self.now += ONCE_LASTS_S
        self.look()
        self.check()
        left = self.store.slots.unended(due=2**40)
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
        held = [one.task for one in self.store.slots.held()]
        if len(set(held)) < len(held):
            self.wrong = self.wrong or "two slots of one task are held"
        if self.store.slots.reserved() + self.store.runners.spent(claims.month_of(self.clock)) > MONTHLY + 3_000_000:
            self.wrong = self.wrong or "more than the month's money is put aside"

    def close(self) -> None:
        self.kill_daemon()
