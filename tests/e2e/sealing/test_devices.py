"""The devices of a space, as people add and remove them: the real programs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.deadline import DEADLINE_S
from tests.support.programs.pair import joined
from tests.support.programs.processes import NO_MODEL, Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

LOCKED = "this space is locked until one of its devices connects"
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


def names(machine: Machine) -> list[str]:
    """The devices of the space, as this machine shows them."""
    return [device["name"] for device in machine.json("device", "ls")["devices"]]


def invited(root: Path, by: Machine, name: str) -> Machine:
    """A machine that has joined with a string of another one; its commands are programs where that one's are."""
    machine = type(by)(root, name)
    machine.call_project("shared")
    machine.run("join", by.json("device", "invite", name, "--no-wait")["invite"])
    return machine


def test_a_string_of_a_device_brings_a_machine_and_its_keys(tmp_path: Path) -> None:
    """The invite is all that a person passes on; the newcomer is a device once the other machine has connected."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann", kind=Machine)
        made = ann.json("device", "invite", "eve")["invite"]
        assert "made on this device" in ann.run("join", code=7, stdin=made + "\n")
        for secret in (made, "CRVFH-1ZYXC-3SRW1-NX834-H49DS-PPTXG-P80WK-YXHCM"):
            for command in ("invite", "approve", "rm"):
                refusal = ann.run("device", command, secret, code=7)
                assert "not the name of a device" in refusal
                assert secret not in refusal
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
        ann, bob = joined(tmp_path, daemon, "ann", "bob", kind=Machine)
        listed = ann.json("device", "ls")
        assert [one["name"] for one in listed["waiting"]] == ["bob"]
        mine = bob.json("key", "show")["words"]
        assert listed["waiting"][0]["words"] == mine
        assert "waits" in ann.run("device", "approve", "carl", code=7)
        assert "there is no terminal to ask in" in ann.run("device", "approve", "bob", code=7, stdin="")
        others = ann.json("key", "show")["words"]
        assert "the words differ" in ann.run("device", "approve", "bob", "--words", others, code=7)
        approved = ann.json("device", "approve", "bob", "--words", mine.upper().replace("-", " "))
        assert not bob.json("device", "ls")["canSeal"]
        assert "there is no terminal to ask in" in bob.run("device", "confirm", code=7, stdin="")
        for wrong, why in ((mine, "the words differ"), (approved["spaceWords"], "how old")):
            assert why in bob.run("device", "confirm", "--words", wrong, code=7)
        assert approved["headWords"] == ann.json("device", "ls")["space"]["headWords"]
        confirmed = bob.json("device", "confirm", "--words", approved["headWords"])
        assert confirmed["spaceWords"] == approved["spaceWords"]
        assert bob.json("device", "ls")["canSeal"]
        carl = Machine(tmp_path, "carl")
        said = carl.run("join", daemon.invite("carl", "--space", "ann", "--projects", "elsewhere"))
        assert "no grant for the project" in said
        assert "confide device approve" in said  # it waits all the same
        assert [one["name"] for one in ann.json("device", "ls")["waiting"]] == ["carl"]
        assert "bob is a device of the space already" in ann.run("device", "approve", "bob", code=7)
        assert "cannot remove itself" in ann.run("device", "rm", "ann", "--yes", code=7)
        # It may not connect, and still has the keys. By its words: its name here may be another machine's on the roster.
        assert f"confide device rm {mine}" in daemon.run("device", "rm", "bob")


def test_who_waits_in_a_session_hears_of_it(tmp_path: Path) -> None:
    """`device invite --wait` adds the machine while it waits, and says who joined."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann", kind=Machine)
        said = invite_and_wait(tmp_path, daemon, ann, "bob")
        assert "joined: bob" in said


def invite_and_wait(root: Path, _daemon: Daemon, by: Machine, name: str) -> str:
    import subprocess

    from tests.support.programs.forked import Program
    from tests.support.programs.processes import CONFIDE

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
    assert waiter.wait(DEADLINE_S) == 0, log.read_text()
    assert machine.json("device", "ls")["canSeal"]
    return log.read_text()


def test_what_a_stolen_machine_has_brought_in_goes_with_it(tmp_path: Path) -> None:
    """Its second identity is listed when it is removed; `--added` ends it too, also after the fact."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        laptop = invited(tmp_path, ann, "laptop")
        assert names(ann)[1:] == ["laptop"]
        assert laptop.json("device", "ls")["canSeal"]
        invited(tmp_path, laptop, "desk-2").run("status")
        assert names(laptop)[2:] == ["desk-2"]
        assert "added by laptop" in ann.run("device", "ls")
        told = ann.json("device", "rm", "laptop", "--yes")
        assert ([one["name"] for one in told["added"]], told["alsoRemoved"]) == (["desk-2"], [])
        assert "added by laptop, since removed" in ann.run("device", "ls")
        assert "laptop" not in daemon.run("device").replace("invite of laptop", "")
        again = ann.json("device", "lost", "laptop", "--yes", "--added")
        assert ([one["name"] for one in again["alsoRemoved"]], again["epoch"]) == (["desk-2"], 3)
        assert "desk-2" not in daemon.run("device")
        assert len(names(ann)) == 1


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
        assert exposed["places"] == ["shared: memory/deploy.md:3"]
        assert (removed["hasAccess"], removed["databaseKey"]) == (False, "changed")
        assert removed["resealed"] == 1
        assert names(ann)[1:] == []
        for command in (("device", "ls"), ("status",)):
            assert "revoked" in bob.run(*command, code=6)
        # Whoever has lost the answer asks again, and is told the same.
        again = ann.json("device", "rm", "bob", "--yes")
        assert (again["removed"]["words"], again["epoch"]) == (removed["removed"]["words"], 2)
        assert [one["id"] for one in again["exposed"]] == [exposed["id"]]
        assert "(before)" in ann.run("device", "rm", "bob", "--yes")
        assert "no device is called carl" in ann.run("device", "rm", "carl", "--yes", code=7)


def test_a_device_that_is_lost_while_the_daemon_is_away_is_out_before_it_can_send(tmp_path: Path) -> None:
    """The removal waits and is the first thing that goes out; what the other had queued meanwhile is refused, kept there, and told."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        bob = invited(tmp_path, ann, "bob")
        assert names(ann)[1:] == ["bob"]
        assert bob.json("device", "ls")["canSeal"]
        daemon.stop()
        assert "queued" in bob.run("store", "a word of the thief", "--json")
        assert "cannot remove itself" in ann.run("device", "lost", "ann", "--yes", code=7)
        assert "no device is called carl" in ann.run("device", "lost", "carl", "--yes", code=7)
        waiting = ann.run("device", "lost", "bob", "--yes", code=5)
        assert "waiting: bob" in waiting
        assert "until then bob has access" in waiting
        daemon.start()
        ann.run("status")
        for command in (("sync",), ("device", "ls"), ("store", "more of it")):
            assert "revoked" in bob.run(*command, code=6)
        assert "a word of the thief" in bob.run("sync", "--queue", "--show")
        assert names(ann)[1:] == []
        assert "nothing found" in ann.run("search", "a word of the thief")
        again = ann.json("device", "lost", "bob", "--yes")
        assert (again["hasAccess"], again["epoch"], again["exposed"]) == (False, 2, [])
        assert "bob" not in daemon.run("device")


def test_a_daemon_that_was_put_back_keeps_nothing_for_a_removed_device(tmp_path: Path) -> None:
    """Its records are those of before the removal again, and this machine had sealed all of them anew: it does so once more."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        invited(tmp_path, ann, "bob")
        assert names(ann)[1:] == ["bob"]
        ann.write("memory/deploy.md", f"# Deploy\n\nThe token is {TOKEN} for now.\n")
        ann.run("sync")
        daemon.stop()
        copy = shutil.copytree(daemon.data, tmp_path / "copy")
        daemon.start()
        assert ann.json("device", "rm", "bob", "--yes")["resealed"] == 1
        daemon.stop()
        shutil.rmtree(daemon.data)
        copy.rename(daemon.data)
        daemon.start()
        with Wire(ann) as wire:
            wire.open()

            def epochs() -> list[int]:
                return [one["epoch"] for one in ann.json("secrets", "ls")]

            wait_until("the record to be of the second epoch", lambda: epochs() == [2])
        assert names(ann)[1:] == []


def test_two_lists_that_have_parted_are_one_again_by_a_persons_word(tmp_path: Path) -> None:
    """The daemon was put back, and another machine changed the list: the command tells how they differ, takes no other list's words, and
    removes again who was removed, and whom that one has brought in since."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        bob, eve = (invited(tmp_path, ann, name) for name in ("bob", "eve"))
        assert names(ann)[1:] == ["bob", "eve"]
        for machine in (bob, eve):
            assert machine.json("device", "ls")["canSeal"]
        daemon.stop()
        shutil.copytree(daemon.data, tmp_path / "copy")
        daemon.start()
        ann.run("device", "rm", "eve", "--yes")
        carl = invited(tmp_path, ann, "carl")
        before = ann.json("device", "ls")
        daemon.stop()
        shutil.rmtree(daemon.data)
        shutil.copytree(tmp_path / "copy", daemon.data)
        daemon.start()
        invited(tmp_path, eve, "ghost")
        eve.run("device", "ls")
        bob.run("recovery", "new")
        shown = bob.json("device", "ls")["space"]["headWords"]

        refused = ann.json("device", "ls")
        assert not refused["canSeal"]
        assert "confide device confirm" in refused["hint"]
        assert refused["space"]["headWords"] == before["space"]["headWords"]
        for wrong in (before["space"]["headWords"], before["space"]["words"], eve.json("key", "show")["words"]):
            told = ann.run("device", "confirm", "--words", wrong, code=7)
            assert "nothing was changed" in told
        assert "removed eve" in told
        assert "added carl" in told
        assert "is removed again" in told
        assert shown not in told
        assert not ann.json("device", "ls")["canSeal"]
        assert [one["name"] for one in bob.json("device", "ls")["devices"]][1:3] == ["bob", "eve"]
        mended = ann.json("device", "confirm", "--words", shown, "--add-again")
        assert mended["canSeal"]
        assert [one["name"] for one in mended["mended"]["removed"]] == ["eve", "ghost"]
        assert [one["name"] for one in mended["mended"]["added"]] == ["carl"]
        assert "eve" not in names(bob)
        assert names(ann) == names(bob)
        assert ann.json("device", "ls")["space"] == bob.json("device", "ls")["space"]
        assert ann.json("device", "confirm")["mended"] is None
        assert "revoked" in eve.run("device", "ls", code=6)
        # It joined in the lost time, so the daemon does not know it; its keys it has still.
        carl.run("join", ann.json("device", "invite", "carl", "--no-wait")["invite"])
        assert carl.json("device", "confirm", "--words", ann.json("device", "ls")["space"]["headWords"])["canSeal"]


def test_a_machines_new_key_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """`confide device key rotate` leaves one device of the same name, which opens what the old one sealed."""
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
            "spaceWords": before["space"]["words"],
            "devices": 1,
            "recoveryCodes": 0,
            "epoch": 2,
            "custody": after["space"]["custody"],
            "secrets": 0,
        }


def test_a_locked_space_opens_for_its_devices_alone(tmp_path: Path) -> None:
    """After a restart the daemon cannot open the space: a newcomer is told so, a device opens it without noticing, and then both are in."""
    home = tmp_path / "server-home"
    home.mkdir()
    (home / "daemon.toml").write_text(f'{NO_MODEL}[at_rest]\ncustody = "caller"\n')
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.write("memory/a.md", "The harbour is at Whitby.\n")
        ann.run("sync")
        daemon.stop()
        daemon.start()
        bob = Inside(tmp_path, "bob")
        bob.call_project("shared")
        assert LOCKED in bob.run("join", daemon.invite("bob", "--space", "ann"))
        refused = bob.run("status", code=5)
        assert LOCKED in refused
        assert "not among the devices" in refused
        assert "run confide device approve bob" in refused
        told = bob.run("doctor", code=1)
        assert f"problem devices        {LOCKED}" in told
        assert "run confide device approve bob" in told
        assert "Whitby" in ann.run("search", "harbour")
        assert "Whitby" in bob.run("search", "harbour")
        assert bob.json("status")["sealing"]["canSeal"] is False


def test_an_agents_session_opens_the_space_again(tmp_path: Path) -> None:
    """The daemon restarts under a session; the agent's next calls are answered, and nobody has to do anything."""
    home = tmp_path / "server-home"
    home.mkdir()
    (home / "daemon.toml").write_text(f'{NO_MODEL}[at_rest]\ncustody = "caller"\n')
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.write("memory/a.md", "The harbour is at Whitby.\n")
        with Wire(ann) as wire:
            wire.open()
            wait_until(
                "the file to be found", lambda: "Whitby" in json.dumps(wire.tool("memory_search", {"query": "harbour"}))
            )
            daemon.kill()
            daemon.start()

            def is_up() -> bool:
                answer = wire.tool("memory_status", {})
                return not answer.get("isError") and answer["structuredContent"]["link"]["state"] == "up"

            wait_until("the link", is_up)
            assert "Whitby" in json.dumps(wire.tool("memory_search", {"query": "harbour"}))
