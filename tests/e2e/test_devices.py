"""The devices of a space, as people add and remove them: the real programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.pair import joined
from tests.support.programs import Daemon, Machine, running_daemon, wait_until

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


def names(machine: Machine) -> list[str]:
    """The devices of the space, as this machine shows them."""
    return [device["name"] for device in machine.json("device", "ls")["devices"]]


def invited(root: Path, by: Machine, name: str) -> Machine:
    """A machine that has joined with a string of another one."""
    machine = Machine(root, name)
    (machine.project / ".confide.toml").write_text('name = "shared"\n')
    machine.run("join", by.json("device", "invite", name, "--no-wait")["invite"])
    return machine


def test_a_string_of_a_device_brings_a_machine_and_its_keys(tmp_path: Path) -> None:
    """The invite is all that a person passes on; the newcomer is a device once the other machine has connected."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        bob = invited(tmp_path, ann, "bob")
        waiting = bob.json("device", "ls")
        assert not waiting["canSeal"]
        assert "invited" in waiting["problem"]
        assert names(ann)[1:] == ["bob"]
        known = bob.json("device", "ls")
        assert known["canSeal"]
        assert known["space"]["words"] == ann.json("device", "ls")["space"]["words"]
        assert [device["isThis"] for device in known["devices"]] == [False, True]


def test_a_machine_that_the_daemon_let_in_is_approved_by_words(tmp_path: Path) -> None:
    """Both screens show both sets of words; without them the new machine has no keys."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = joined(tmp_path, daemon, "ann", "bob")
        listed = ann.json("device", "ls")
        assert [one["name"] for one in listed["waiting"]] == ["bob"]
        mine = bob.json("key", "show")["words"]
        assert listed["waiting"][0]["words"] == mine
        assert "waits" in ann.run("device", "approve", "carl", code=7)
        assert "nobody is here" in ann.run("device", "approve", "bob", code=7, stdin="")
        approved = ann.json("device", "approve", mine, "--yes")
        assert not bob.json("device", "ls")["canSeal"]
        assert bob.json("device", "confirm", "--yes")["spaceWords"] == approved["spaceWords"]
        assert bob.json("device", "ls")["canSeal"]


def test_who_waits_in_a_session_hears_of_it(tmp_path: Path) -> None:
    """`device invite --wait` adds the machine while it waits, and says who joined."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        said = invite_and_wait(tmp_path, daemon, ann, "bob")
        assert "joined: bob" in said


def invite_and_wait(root: Path, _daemon: Daemon, by: Machine, name: str) -> str:
    import subprocess

    from tests.support.forked import Program
    from tests.support.programs import CONFIDE

    log = root / "invite.log"
    with log.open("wb") as output:
        waiter: Any = Program(
            [CONFIDE, "device", "invite", name, "--wait"],
            cwd=by.project,
            env=by.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    text = wait_until("the invite", lambda: log.read_text() if "#invite1" in log.read_text() else None)
    machine = Machine(root, name)
    machine.run("join", text.splitlines()[0].strip())
    assert waiter.wait(60) == 0, log.read_text()
    assert machine.json("device", "ls")["canSeal"]
    return log.read_text()


def test_a_device_that_is_removed_opens_nothing_new(tmp_path: Path) -> None:
    """The one who removes is told what must be changed at its source, and where it stands; what lies at the daemon is sealed anew."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        bob = invited(tmp_path, ann, "bob")
        assert names(ann)[1:] == ["bob"]
        ann.write("memory/deploy.md", f"# Deploy\n\nThe token is {TOKEN} for now.\n")
        ann.run("sync")
        removed = ann.json("device", "rm", "bob", "--yes")
        assert removed["epoch"] == 2
        (exposed,) = removed["exposed"]
        assert exposed["kind"] == "github-token"
        assert exposed["documents"] == ["shared: memory/deploy.md"]
        assert removed["resealed"] == 1
        assert names(ann)[1:] == []
        gone = bob.json("device", "ls")
        assert not gone["canSeal"]
        assert "removed" in gone["problem"]
        assert "no device is called bob" in ann.run("device", "rm", "bob", "--yes", code=7)


def test_a_machines_new_key_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """`confide key rotate` leaves one device of the same name, which opens what the old one sealed."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        before = ann.json("device", "ls")
        new = ann.json("key", "rotate")["new"]["words"]
        after = ann.json("device", "ls")
        assert after["canSeal"]
        assert after["space"]["words"] == before["space"]["words"]
        assert [(one["name"], one["words"]) for one in after["devices"]] == [(before["devices"][0]["name"], new)]
        assert ann.json("status")["sealing"] == {
            "canSeal": True,
            "space": before["space"]["words"],
            "devices": 1,
            "epoch": 2,
            "custody": after["space"]["custody"],
        }
