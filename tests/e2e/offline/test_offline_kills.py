"""An agent stores line after line while the cable flaps and every party is killed: what was acknowledged is there, once and in order."""

from __future__ import annotations

import itertools
import os
import queue
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.relay import RecordingRelay
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

SEED = int(os.environ.get("CONFIDE_KILL_SEED", random.randrange(10**6)))
ROUNDS = int(os.environ.get("CONFIDE_KILL_ROUNDS", "3"))
PATH = "memory/log.md"
DISTURBANCES = ("cut", "flap", "kill proxy", "kill daemon", "kill proxy offline")


class Agent:
    """One session after the other of one machine, all storing numbered lines in one file."""

    def __init__(self, machine: Machine, numbers: Iterator[int]) -> None:
        self._machine = machine
        self._numbers = numbers
        self.acknowledged: list[int] = []
        self._asked: dict[int, int] = {}
        self.heard_before: dict[int, list[int]] = {}
        """For each line those that were acknowledged when it was said."""
        self._start()

    def _start(self) -> None:
        self.wire = Wire(self._machine)
        self.wire.open()

    def say(self, count: int) -> None:
        """Ask for so many stores, back to back, without waiting for their answers."""
        for number in itertools.islice(self._numbers, count):
            arguments = {"content": f"- line {number}", "path": PATH}
            self.heard_before[number] = list(self.acknowledged)
            self._asked[self.wire.ask("tools/call", {"name": "memory_store", "arguments": arguments})] = number

    def hear(self, count: int) -> None:
        """Wait until so many of them are answered."""
        for _ in range(min(count, len(self._asked))):
            message = self.wire.next()
            while message.get("id") not in self._asked:
                message = self.wire.next()
            number = self._asked.pop(message["id"])
            assert not message["result"].get("isError"), message
            self.acknowledged.append(number)

    def die(self) -> None:
        """kill -9, and a new session; what was answered before counts."""
        self.wire.process.kill()
        self.wire.process.wait(DEADLINE_S)
        while True:
            try:
                message = self.wire.next(0.5)
            except (AssertionError, queue.Empty):
                break
            if message.get("id") in self._asked and not message["result"].get("isError"):
                self.acknowledged.append(self._asked[message["id"]])
        self._asked.clear()
        self.wire.__exit__(None, None, None)
        self._start()


@pytest.mark.timeout(180)
def test_stores_survive_cuts_and_kills(tmp_path: Path) -> None:
    print(f"CONFIDE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon, RecordingRelay(daemon.port) as relay:
        machine.run("join", daemon.invite("ann", port=relay.port))
        agent = Agent(machine, itertools.count())
        agent.say(1)
        agent.hear(1)
        try:
            for _ in range(ROUNDS):
                disturb(chance.choice(DISTURBANCES), agent, daemon, relay, chance)
            relay.mend()
            agent.say(1)
            agent.hear(1000)
        finally:
            agent.wire.__exit__(None, None, None)
        wait_until("the queue to be sent", lambda: "nothing waits" in sent(machine))
        found = [int(line.rsplit(" ", 1)[1]) for line in (machine.project / PATH).read_text().splitlines()]
        again = machine.run("read", PATH).splitlines()
        assert [line for line in again if line.startswith("- line")] == [f"- line {number}" for number in found]
    assert len(found) == len(set(found)), "made twice"
    assert set(agent.acknowledged) <= set(found), "lost"
    at = {number: place for place, number in enumerate(found)}
    for number, earlier in agent.heard_before.items():
        assert all(at[before] < at[number] for before in earlier if number in at), "out of order"


def sent(machine: Machine) -> str:
    machine.run("sync")
    return machine.run("queue")


def disturb(what: str, agent: Agent, daemon: Daemon, relay: RecordingRelay, chance: random.Random) -> None:
    """One disturbance among some stores."""
    agent.say(chance.randrange(1, 5))
    agent.hear(chance.randrange(0, 3))
    if what == "kill daemon":
        daemon.kill()
        agent.say(2)
        agent.hear(chance.randrange(0, 2))
        daemon.start()
    elif what == "kill proxy":
        agent.die()
    else:
        relay.cut()
        agent.say(2)
        agent.hear(chance.randrange(0, 5))
        if what == "kill proxy offline":
            agent.die()
            agent.say(1)
        relay.mend()
        if what == "flap":
            agent.say(1)
            relay.cut()
            relay.mend()
    agent.hear(chance.randrange(0, 10))
