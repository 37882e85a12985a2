"""`confided invite`, and machines that are let in by hand: what an operator types, sees, and gets as an exit code."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess

import pytest
from tests.support.programs.confided import Confided
from tests.support.programs.processes import CONFIDED

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity


def test_an_invite_is_one_line_on_stdout(ready: Confided) -> None:
    done = ready.run("invite", "laptop", "--url", "confide://memory.example.org")
    (line,) = done.stdout.splitlines()
    invite = Invite.parse(line)
    assert (invite.host, invite.port) == ("memory.example.org", 7733)
    assert line.rpartition("#")[2] not in done.stderr
    assert "confided is not running here" in done.stderr


def test_an_invite_for_this_machine_only_is_said_to_be(ready: Confided) -> None:
    assert "only this machine can reach" in ready.run("invite", "laptop").stderr


def test_a_reader_of_a_space_that_nobody_writes_to_is_told_of(ready: Confided) -> None:
    assert "stays empty" in ready.run("invite", "reader", "--scope", "read").stderr
    assert "stays empty" not in ready.run("invite", "writer").stderr


async def test_an_invite_that_waits_shows_who_joined(ready: Confided) -> None:
    ready.serve()
    waiting = ready.start("invite", "laptop", "--wait", "--json")
    assert waiting.stdout is not None
    invite = Invite.parse(json.loads(await asyncio.to_thread(waiting.stdout.readline))["invite"])
    identity = Identity.generate()
    async with await ready.connect(identity, invite=invite):
        joined = json.loads(await asyncio.to_thread(waiting.stdout.readline))
    assert joined["joined"] == "laptop"
    assert len(joined["fingerprint"].split("-")) == 6
    assert await asyncio.to_thread(waiting.wait, 30) == 0
    (row,) = ready.json("device")
    assert (row["name"], row["fingerprint"], row["addedBy"]) == ("laptop", joined["fingerprint"], "invite")


async def test_in_a_terminal_an_invite_waits_by_itself(ready: Confided) -> None:
    ready.serve()
    controller, terminal = pty.openpty()
    process = subprocess.Popen(  # noqa: ASYNC220 - the pseudo-terminal is what is tried
        [CONFIDED, "invite", "laptop"], env=ready.env, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    try:
        seen = b""
        while b"\n" not in seen:
            seen += await asyncio.to_thread(os.read, controller, 4096)
        async with await ready.connect(Identity.generate(), invite=Invite.parse(seen.decode().split()[0])):
            seen = b""
            while b"\n" not in seen:
                seen += await asyncio.to_thread(os.read, controller, 4096)
        assert re.fullmatch(r"joined: laptop  (\w+-){5}\w+", seen.decode().strip())
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def test_an_invite_that_nobody_uses_ends_with_its_time(ready: Confided) -> None:
    done = ready.run("invite", "laptop", "--ttl", "1s", "--wait", code=1)
    assert "no device joined" in done.stderr


NO_INVITES = [
    (["bad name"], 7, "cannot name a device"),
    (["laptop", "--ttl", "soon"], 7, "use 90s, 15m, 1h or 2d"),
    (["laptop", "--ttl", "90d"], 7, "at most 30d"),
    (["laptop", "--scope", "root"], 7, "the scopes are read, write, admin"),
    (["laptop", "--space", "nowhere"], 7, "there is no space named 'nowhere'"),
    (["laptop", "--url", "https://x"], 6, "confide://"),
    (["--cancel"], 2, "name the invite to withdraw"),
]


def test_what_an_invite_cannot_be(ready: Confided) -> None:
    for arguments, code, said in NO_INVITES:
        assert said in ready.run("invite", *arguments, code=code).stderr


def test_a_key_line_is_added_listed_and_revoked(ready: Confided) -> None:
    ready.enroll()
    assert re.search(r"^laptop  laptop  write  (\w+-){5}\w+  line ", ready.run("device").stdout)
    assert "did you mean laptop?" in ready.run("device", "rm", "laptpo", code=7).stderr
    assert ready.run("device", "rm", "laptop").stdout.startswith("removed: laptop  ")
    assert ready.json("device") == []


@pytest.mark.parametrize("line", ["ssh-ed25519 AAAA me", "confide-ed25519 confide1qqqq me", ""])
def test_what_is_no_key_line(ready: Confided, line: str) -> None:
    assert "hint: " in ready.run("device", "add", line, code=7).stderr
