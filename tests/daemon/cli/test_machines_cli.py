"""The life of a machine as its operator runs it: invited, approved, changed, renamed, shut out, and read about in the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.daemon.loopback import text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.draws import draws
from tests.support.programs.confided import Confided
from tests.support.programs.processes import CONFIDED, wait_until

from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity, fingerprint_words, format_public_key, parse_daemon_key
from confide_crypto.limits import Timers
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.enrollment import Rights, make_invite
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder


def words(identity: Identity) -> str:
    return fingerprint_words(identity.public_key)


class Terminal:
    """A command at a pseudo-terminal."""

    def __init__(self, program: Confided, *arguments: str) -> None:
        self._controller, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [CONFIDED, *arguments], env=program.env, stdin=terminal, stdout=terminal, stderr=terminal
        )
        os.close(terminal)
        self.seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._controller)

    async def until(self, text: str) -> str:
        """What was printed, once this is part of it."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.seen:
                try:
                    self.seen += (await asyncio.to_thread(os.read, self._controller, 4096)).decode()
                except OSError:  # the program has ended
                    raise AssertionError(self.seen) from None
        return self.seen

    def type(self, text: str) -> None:
        """Press these keys and return."""
        os.write(self._controller, text.encode() + b"\n")

    async def ended(self) -> int:
        """The exit code."""
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)


# Invites


def test_open_invites_are_listed_without_their_secret_and_taken_back(ready: Confided) -> None:
    text = ready.json("invite", "laptop", "--scope", "r", "--projects", "app,web", "--expires", "90d")["invite"]
    ready.run("invite", "desk", "--ttl", "1h")
    listed = ready.run("invite").stdout
    assert re.search(r"^laptop  laptop  read  projects app,web  access until \d{4}-", listed, re.MULTILINE)
    assert re.search(r"^desk  desk  write  valid until ", listed, re.MULTILINE)
    both = ready.json("invite")
    assert [row["name"] for row in both] == ["desk", "laptop"]
    secret = text.partition("#")[2]
    assert secret not in listed + json.dumps(both)
    assert ready.run("invite", "--cancel", "laptop").stdout == "removed: the invite for laptop\n"
    assert [row["name"] for row in ready.json("invite")] == ["desk"]
    assert "did you mean desk?" in ready.run("invite", "--cancel", "dsk", code=7).stderr
    ready.enroll("box")
    assert "confided device rm box" in ready.run("invite", "--cancel", "box", code=7).stderr


async def test_an_invite_that_was_taken_back_lets_nobody_in(ready: Confided) -> None:
    ready.serve()
    invite = Invite.parse(ready.json("invite", "laptop")["invite"])
    ready.run("invite", "--cancel", "laptop")
    with pytest.raises(ConfideError):
        await ready.connect(Identity.generate(), invite=invite)
    assert ready.json("device") == []


def test_who_waits_for_an_invite_that_is_taken_back_is_told(ready: Confided) -> None:
    waiting = ready.start("invite", "laptop", "--wait")
    assert waiting.stdout is not None
    waiting.stdout.readline()
    ready.run("invite", "--cancel", "laptop")
    assert waiting.wait(DEADLINE_S) == 1
    assert "was withdrawn" in ready.log


@pytest.mark.parametrize("name", ["ls", "rm"])
def test_a_machine_cannot_have_a_command_s_name(ready: Confided, name: str) -> None:
    line = format_public_key(Identity.generate().public_key, name)
    assert f"confided invite {name} is a command" in ready.run("device", "add", line, code=7).stderr
    ready.enroll("laptop")
    assert "is a command" in ready.run("device", "edit", "laptop", name, code=7).stderr


def test_the_code_to_scan_is_beside_the_string(ready: Confided) -> None:
    done = ready.run("invite", "laptop", "--qr")
    (line,) = done.stdout.splitlines()
    Invite.parse(line)
    drawn = [row for row in done.stderr.splitlines() if row and set(row) <= set("█▀▄ ")]
    assert len(drawn) > 20
    assert len({len(row) for row in drawn}) == 1


NO_INVITES = [
    (["laptop", "--scope", "wirte"], 7, "did you mean write?"),
    (["laptop", "--sources", "sesions"], 7, "did you mean sessions?"),
    (["laptop", "--projects", "app,,web"], 7, "with commas between them"),
    (["laptop", "--projects", "*"], 7, "for every one: all"),
    (["laptop", "--expires", "soon"], 7, "use 1h, 2d or 90d"),
    (["laptop", "--expires", "0d"], 7, "is not a length of time"),
    (["ls", "laptop"], 2, "takes no name"),
    (["--cancel"], 2, "name the invite to withdraw"),
]


def test_what_an_invite_cannot_be(ready: Confided) -> None:
    for arguments, code, said in NO_INVITES:
        assert said in ready.run("invite", *arguments, code=code).stderr
        assert ready.json("invite") == []


async def test_of_joins_that_race_for_one_invite_exactly_one_wins(ready: Confided) -> None:
    """Against the real process, round after round; the invites are made beside it, as the command does."""
    ready.serve()
    assert ready.address is not None
    url, static = str(ready.address["url"]), parse_daemon_key(str(ready.address["key"]))
    state = open_state(DataFolder(ready.data))
    rounds, racers = draws(20, 8), 4
    try:
        for number in range(rounds):
            made = make_invite(state, f"m{number}", space=None, rights=Rights(), ttl_s=60, url=url)
            identities = [Identity.generate() for _ in range(racers)]
            tries = (connect(url, identity, static, invite=made.invite) for identity in identities)
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [place for place, result in enumerate(results) if not isinstance(result, BaseException)]
            assert len(won) == 1, results
            for result in results:
                if isinstance(result, BaseException):
                    assert isinstance(result, DeniedError)
                    assert words(identities[won[0]]) in (result.hint or "")
                else:
                    await result.close()
            caller = state.registry.caller_named(f"m{number}")
            assert caller is not None
            assert caller.public_key == identities[won[0]].public_key
            await asyncio.sleep(racers / 50)  # the daemon takes 50 handshakes a second from strangers
        assert len(state.registry.callers()) == rounds
    finally:
        state.close()


# Approval


async def test_a_machine_waits_until_its_words_are_approved(ready: Confided) -> None:
    ready.serve()
    identity = Identity.generate()
    invite = Invite.parse(ready.json("invite", "laptop", "--approve")["invite"])
    with pytest.raises(DeniedError) as waits:
        await ready.connect(identity, invite=invite)
    assert waits.value.reason == "disabled"
    assert "waits for approval" in ready.run("device").stdout
    (row,) = ready.json("device")
    assert (row["approvedAt"], row["fingerprint"]) == (None, words(identity))
    unasked = ready.run("device", "approve", "laptop", code=1)
    assert "confided device approve laptop --words" in unasked.stderr
    others = ready.run("device", "approve", "laptop", "--words", words(Identity.generate()), code=1)
    assert "the words do not match" in others.stderr
    assert words(identity) not in unasked.stderr + others.stderr, "they are to be read on the machine"
    with pytest.raises(DeniedError):
        await ready.connect(identity)
    given = words(identity).replace("-", "  ").title()
    done = ready.run("device", "approve", "laptop", "--words", given)
    assert done.stdout == f"approved: laptop  {words(identity)}\n"
    async with await ready.connect(identity) as laptop:
        await laptop.attach("app")
    assert "already approved" in ready.run("device", "approve", "laptop").stdout


@pytest.mark.parametrize(("answer", "code"), [("mistyped first", 0), ("two words right", 1), ("nothing", 1)])
async def test_at_a_terminal_the_operator_types_the_words(ready: Confided, answer: str, code: int) -> None:
    """Yes is not enough, nor are the words that people look at, the first and the last."""
    ready.serve()
    identity = Identity.generate()
    invite = Invite.parse(ready.json("invite", "laptop", "--approve")["invite"])
    with pytest.raises(DeniedError):
        await ready.connect(identity, invite=invite)
    with Terminal(ready, "device", "approve", "laptop") as terminal:
        assert words(identity) not in await terminal.until("Type the six words that the device shows")
        first, *_, last = right = words(identity).split("-")
        alike = " ".join([first, *["zoo"] * 4, last])
        answers = {
            "mistyped first": [alike, " ".join(right)],
            "two words right": ["y", alike, alike],
            "nothing": [""],
        }
        for line in answers[answer]:
            terminal.type(line)
        assert await terminal.ended() == code
    (row,) = ready.json("device")
    assert (row["approvedAt"] is not None) == (code == 0)


async def test_an_invite_that_waits_asks_right_there(ready: Confided) -> None:
    ready.serve()
    identity = Identity.generate()
    with Terminal(ready, "invite", "laptop", "--scope", "admin") as terminal:  # to be approved by default
        invite = Invite.parse((await terminal.until("confide join")).split()[0])
        with pytest.raises(DeniedError):
            await ready.connect(identity, invite=invite)
        await terminal.until("Type the six words that the device shows")
        terminal.type(words(identity))
        await terminal.until("approved: laptop")
        assert await terminal.ended() == 0
    async with await ready.connect(identity) as laptop:
        assert laptop.connection.welcome["scope"] == "admin"


# Names and rights


async def test_a_changed_grant_is_in_force_where_the_machine_is_connected(ready: Confided) -> None:
    identity = ready.enroll("laptop", "--projects", "app")
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("app")
        await laptop.put("MEMORY.md", "one\n", project="app")
        with pytest.raises(RequestError) as refused:
            await laptop.attach("web")
        assert refused.value.code == "denied"
        assert "confided device edit laptop --projects app,web" in (refused.value.hint or "")
        command = (refused.value.hint or "").partition("confided ")[2].split()
        await asyncio.to_thread(ready.run, *command, "--scope", "read")
        # Otherwise it would be in force with the next connection: never with this one.
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await laptop.put("MEMORY.md", "two\n", base=1, project="app")
                except RequestError as error:
                    assert error.code == "denied"  # noqa: PT017 - what it waits for
                    break
                await asyncio.sleep(0.02)
        await laptop.attach("web")


def test_what_is_shown_of_a_machine(ready: Confided) -> None:
    identity = ready.enroll(
        "laptop", "--projects", "web,app", "--sources", "memory", "--expires", "2d", "--scope", "read"
    )
    (row,) = ready.json("device")
    shown = ready.json("device", "ls", "laptop")
    assert row == shown
    assert (shown["projects"], shown["sources"], shown["scope"]) == (["app", "web"], ["memory"], "read")
    assert shown["expiresAt"] - time.time() == pytest.approx(2 * 86400, abs=120)
    text = ready.run("device", "ls", "laptop").stdout
    assert words(identity) in text
    assert re.search(r"^projects +app,web$", text, re.MULTILINE)
    assert re.search(r"^last seen +never$", text, re.MULTILINE)
    assert "projects app,web  sources memory  expires " in ready.run("device").stdout
    ready.run("device", "edit", "laptop", "--projects", "all", "--sources", "all", "--expires", "never")
    shown = ready.json("device", "ls", "laptop")
    assert (shown["projects"], shown["sources"], shown["expiresAt"], shown["scope"]) == (None, None, None, "read")


async def test_a_renamed_machine_stays_connected(ready: Confided) -> None:
    identity = ready.enroll("laptop")
    ready.enroll("desk")
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("app")
        done = await asyncio.to_thread(ready.run, "device", "edit", "laptop", "work")
        assert done.stdout == "renamed: laptop is now work\n"
        await asyncio.sleep(0.5)  # longer than the daemon takes to look
        await laptop.put("MEMORY.md", "still here\n", project="app")
    assert {row["name"]: row["space"] for row in ready.json("device")} == {"desk": "desk", "work": "laptop"}
    assert "there is a caller named desk already" in ready.run("device", "edit", "work", "desk", code=7).stderr


async def test_an_access_ends_where_it_is_connected_and_the_refusal_says_when(ready: Confided) -> None:
    identity = ready.enroll("laptop", "--expires", "3s")
    ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("app")
        await laptop.ended_within(5.0)
        assert laptop.connection.close_code == "expired"
    with pytest.raises(DeniedError) as refused:
        await ready.connect(identity)
    assert refused.value.reason == "expired"
    assert re.search(r"it expired on \d", refused.value.hint or "")
    assert "expired " in ready.run("device").stdout
    ready.run("device", "edit", "laptop", "--expires", "90d")
    async with await ready.connect(identity) as laptop:
        await laptop.attach("app")


MISTAKES = [
    (["ls", "latpop"], 7, "did you mean laptop?"),
    (["approve", "latpop"], 7, "did you mean laptop?"),
    (["edit", "latpop", "x"], 7, "did you mean laptop?"),
    (["edit", "latpop", "--scope", "read"], 7, "did you mean laptop?"),
    (["edit", "laptop"], 2, "at least one of --scope"),
    (["edit", "laptop", "--scope", "raed"], 7, "did you mean read?"),
    (["edit", "laptop", "--expires", "tomorrow"], 7, "is not a length of time"),
    (["edit", "laptop", "bad name"], 7, "cannot name a device"),
    (["aprove", "laptop"], 2, "did you mean confided device approve?"),
    (["ls", "invited"], 7, "confided invite --cancel invited"),
]


def test_plausible_mistakes(ready: Confided) -> None:
    ready.enroll("laptop")
    ready.run("invite", "invited")
    for arguments, code, said in MISTAKES:
        assert said in ready.run("device", *arguments, code=code).stderr, arguments


# Shut out


async def test_a_revoked_machine_is_gone_within_a_second_in_the_middle_of_uploads(ready: Confided) -> None:
    """Several connections at once: some upload, one waits, one reads nothing at all. The command runs in another process."""
    identity = ready.enroll("laptop")
    ready.serve()
    assert ready.address is not None
    static = parse_daemon_key(str(ready.address["key"]))
    deaf = await connect(str(ready.address["url"]), identity, static)  # nobody ever reads from it
    machines = [await ready.connect(identity) for _ in range(4)]
    flowing = [asyncio.Event() for _ in machines[1:]]

    async def endless(started: asyncio.Event) -> AsyncIterator[bytes]:
        while True:
            yield b"canary " * 100
            started.set()
            await asyncio.sleep(0.005)

    async def upload(machine: Any, started: asyncio.Event) -> Exception:
        body = {"project": "app", "path": "MEMORY.md", "hash": text_hash("x"), "base": 0}
        try:
            await machine.connection.upload("put", body, endless(started), timeout_s=DEADLINE_S)
        except (ConfideError, TimeoutError) as error:
            return error
        raise AssertionError("an endless body was taken for a whole one")

    for machine in machines:
        await machine.attach("app")
    uploads = [
        asyncio.create_task(upload(machine, started)) for machine, started in zip(machines[1:], flowing, strict=True)
    ]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(started.wait() for started in flowing))
    await asyncio.to_thread(ready.run, "device", "rm", "laptop")
    for machine in machines:
        await machine.ended_within(
            Timers().idle_s - 20
        )  # whoever waited for the deaf one would take the 90 s of the idle limit
        assert machine.connection.close_code == "revoked"
    assert all(isinstance(error, ConfideError) for error in await asyncio.gather(*uploads))
    for machine in machines:
        machine._received.close()

    def ends() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ready.json("audit", "--caller", "laptop")
        return [row for row in rows if row["event"] == "ended"]

    found = await asyncio.to_thread(wait_until, "five sessions in the audit log", lambda: len(ends()) == 5 and ends())
    assert {row["detail"] for row in found} == {"revoked"}
    (when,) = [row["at"] for row in ready.json("audit") if row["event"] == "revoked"]
    assert max(row["at"] for row in found) - when < 1.0
    deaf.abort()
    other = ready.enroll("check", "--space", "laptop")
    async with await ready.connect(other) as check:
        await check.attach("app")
        with pytest.raises(RequestError, match="no such document"):
            await check.request("pull", {"project": "app", "path": "MEMORY.md"})


# The audit log


async def test_the_audit_log_tells_the_life_of_a_machine(ready: Confided) -> None:
    ready.serve()
    identity, stranger = Identity.generate(), Identity.generate()
    invite = Invite.parse(ready.json("invite", "laptop", "--approve")["invite"])
    with pytest.raises(DeniedError):
        await ready.connect(identity, invite=invite)
    ready.run("device", "approve", "laptop", "--words", words(identity))
    for _ in range(3):
        with pytest.raises(DeniedError):
            await ready.connect(stranger)
    async with await ready.connect(identity) as laptop:
        session_id = laptop.connection.session_id
        await laptop.attach("app")
        await laptop.put("MEMORY.md", "canary-content\n", project="app")
    ready.run("device", "edit", "laptop", "work")
    ready.run("device", "edit", "work", "--scope", "read", "--projects", "app")
    ready.run("device", "rm", "work")
    ready.processes[0].terminate()
    ready.processes[0].wait(DEADLINE_S)
    rows = ready.json("audit")
    assert sorted(row["event"] for row in rows) == sorted(
        ["invited", "joined", "refused", "approved", "refused", "connected", "ended", "renamed", "granted", "revoked"]
    )
    unknown, disabled = sorted((row for row in rows if row["event"] == "refused"), key=lambda row: -row["count"])
    assert (unknown["count"], unknown["detail"], unknown["fingerprint"]) == (3, "unknown", words(stranger))
    assert (disabled["detail"], disabled["caller"]) == ("disabled", "laptop")
    assert {row["session"] for row in rows if row["event"] in ("connected", "ended")} == {session_id}
    assert {row["at"] for row in rows if row["at"] != row["lastAt"]} == {unknown["at"]}
    of_one = ready.run("audit", "--caller", "work").stdout
    assert "renamed" in of_one
    assert "was laptop" in of_one
    assert words(stranger) not in of_one
    assert "canary" not in json.dumps(rows)
    assert "3 times until" in ready.run("audit", "--since", "1h").stdout
    assert ready.json("device") == []


def test_what_the_audit_log_is_asked_in_vain(ready: Confided) -> None:
    ready.enroll("laptop")
    assert "did you mean laptop?" in ready.run("audit", "--caller", "latpop", code=7).stderr
    assert "is not a length of time" in ready.run("audit", "--since", "yesterday", code=7).stderr
    assert [row["event"] for row in ready.json("audit", "--caller", "laptop")] == ["added"]
