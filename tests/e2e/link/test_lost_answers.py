"""A command whose answer is lost on its way, wherever that is, may be typed again: what was done is neither refused nor done twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.network.edits import Once
from tests.support.network.tls_relay import DOWN, TlsRelay
from tests.support.programs.command import confide
from tests.support.programs.pair import joined
from tests.support.programs.processes import Daemon, Inside, running_daemon

EVERY, MOST = (1, 25) if os.environ.get("CONFIDE_EVERY_FAULT") else (3, 13)
"""Which of the daemon's messages do not arrive: every so many, of the first so many. Most answers are among them."""

Command = tuple[Inside, tuple[str, ...], str]
"""A machine, what it says, and what is typed then."""


@dataclass
class Lossy:
    """A daemon behind a relay that loses one of its messages, and with it the connection."""

    daemon: Daemon
    relay: TlsRelay
    root: Path

    def machine(self, name: str) -> Inside:
        machine = Inside(self.root, name)
        machine.call_project("shared")
        return machine

    def everywhere(self, command: Callable[[], Command], again: Callable[[Inside, int], None]) -> None:
        """A command with the first message lost, then with one further on, and so on.

        Args:
            command: makes what it takes.
            again: is told the exit code; says the command again, and looks what has come of it.
        """
        for skip in range(0, MOST, EVERY):
            machine, words, typed = command()
            self.relay.edit = cut = Once("polite close", DOWN, skip=skip)
            ended = confide(machine, *words, stdin=typed)
            self.relay.edit = None
            assert cut.made.is_set() or ended.code == 0, ended
            again(machine, ended.code)


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[Lossy]:
    with running_daemon(tmp_path, opens_itself=True) as daemon, TlsRelay(daemon.port) as relay:
        yield Lossy(daemon, relay, tmp_path)


def test_a_machine_joins(lossy: Lossy) -> None:
    """The first try may have spent the invite; the same key may come with it again."""
    invites: list[str] = []

    def command() -> Command:
        machine = lossy.machine(f"m{len(invites)}")
        invites.append(lossy.daemon.invite(machine.name, port=lossy.relay.port))
        return machine, ("join",), invites[-1]

    def again(machine: Inside, code: int) -> None:
        if code:
            machine.run("join", stdin=invites[-1])
        machine.run("store", "It came through.")

    lossy.everywhere(command, again)


def test_a_machine_gets_a_new_key(lossy: Lossy) -> None:
    """It has the old one or the new one, is one device, and can be given another."""
    (machine,) = joined(lossy.root, lossy.daemon, "ann", port=lossy.relay.port)
    machine.run("sync")

    def again(_machine: Inside, _code: int) -> None:
        assert machine.json("key", "rotate")
        assert [one["isThis"] for one in machine.json("device", "ls")["devices"]] == [True]

    lossy.everywhere(lambda: (machine, ("key", "rotate"), ""), again)


def test_a_device_invites_and_a_code_brings_another_back(lossy: Lossy) -> None:
    """The same name may be invited again, and a code that was used makes its machine a device the second time as well."""
    (machine,) = joined(lossy.root, lossy.daemon, "ann", port=lossy.relay.port)
    machine.run("sync")
    code = machine.json("recovery", "new")["code"]
    names = iter(f"n{number}" for number in range(100))

    def invite_again(_machine: Inside, _code: int) -> None:
        machine.run("device", "invite", "phone", "--no-wait")

    lossy.everywhere(lambda: (machine, ("device", "invite", "phone", "--no-wait"), ""), invite_again)

    def use() -> Command:
        new = lossy.machine(next(names))
        new.run("join", lossy.daemon.invite(new.name, "--space", "ann", port=lossy.relay.port))
        return new, ("recovery", "use", "--yes"), code

    def use_again(new: Inside, ended: int) -> None:
        if ended:
            new.run("recovery", "use", "--yes", stdin=code)
        assert [one["isThis"] for one in new.json("device", "ls")["devices"]].count(True) == 1
        assert new.json("device", "ls")["canSeal"]

    lossy.everywhere(use, use_again)
