"""Who keeps the key of a space: one whose machines do is locked without them, and goes on where it was as soon as one of them comes."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.founder import Device

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import Identity
from confide_daemon.access.job_queue import Job, Jobs, Kind
from confide_daemon.access.registry import create
from confide_daemon.cli.health import facts_of
from confide_daemon.datadir.key_state import Custody, KeyName
from confide_daemon.spaces.pool import Spaces

SENTENCE = "this space is locked until one of its devices connects"
CANARY = "the harbour master keeps a grey parrot"


async def until(what: str, condition: Callable[[], Any]) -> None:
    """Wait until it is so."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - it is told of nowhere
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


async def refused(machine: Machine, op: str, body: dict[str, Any], code: str = "locked") -> RequestError:
    """The request, which has to be refused."""
    with pytest.raises(RequestError) as caught:
        await machine.request(op, body)
    assert caught.value.code == code
    return caught.value


def custody_of(daemon: Serving) -> Custody | None:
    """What the file beside the only space says."""
    (space_id,) = daemon.state.registry.spaces().values()
    return Custody.read(daemon.state.folder.custody(space_id))


async def remember(machine: Machine, content: str = CANARY) -> None:
    """Store something; found by its words."""
    await machine.attach("proj")
    await machine.put("memory/notes.md", f"# Notes\n\n{content}\n")


async def finds(machine: Machine, words: str = "grey parrot") -> str:
    """What a search through the official client gives."""
    await machine.attach("proj")
    async with machine.mcp() as client:
        result = await client.call_tool("memory_search", {"query": words})
    assert not result.is_error, result.content
    return json.dumps(result.structured_content)


async def connected(daemon: Serving, identity: Identity) -> Machine:
    """A machine on a bare connection."""
    return Machine(await daemon.connect_in_time(identity))


async def job(daemon: Serving, kind: Kind) -> Job:
    """What an operator asks for, done."""
    jobs = Jobs(daemon.state.registry)
    (space_id,) = daemon.state.registry.spaces().values()
    identity = jobs.ask(kind, space_id)
    await until(f"{kind} to end", lambda: (asked := jobs.get(identity)) is not None and asked.has_ended)
    done = jobs.get(identity)
    assert done is not None
    return done


async def test_a_locked_space_answers_at_once_and_goes_on_in_the_same_sessions(tmp_path: Path) -> None:
    """Of two connections that wait, one brings the key: both are of use from then on, and so is an agent that came too early."""
    async with serving(tmp_path / "data", keeper="caller") as daemon:
        laptop, desktop = (daemon.enroll(name, space="home") for name in ("laptop", "desktop"))
        device = Device(laptop)
        async with await connected(daemon, laptop) as first, await connected(daemon, desktop) as second:
            for machine in (first, second):
                attach = await refused(machine, "attach", {"project": "proj"})
                assert str(attach) == SENTENCE
                assert attach.hint
                await refused(machine, "compare", {"project": "proj", "files": []})
                await refused(machine, "record-list", {"after": "", "limit": 10, "below": None})
                assert (await machine.request("catalogue", {}))["tools"]
                assert await machine.request("ping", {}) == {}
            told = await first.request("roster", {"from": 0})
            assert (told["custody"], told["isLocked"], told["needs"], told["number"]) == ("caller", True, [], -1)
            async with second.mcp() as agent:
                assert [tool.name for tool in (await agent.list_tools()).tools]
                early = await agent.call_tool("memory_search", {"query": "parrot"})
                assert early.is_error
                assert SENTENCE in early.content[0].text  # type: ignore[union-attr]
                with pytest.raises(MCPError, match=SENTENCE):
                    await agent.read_resource("memory://core")
                await device.found(first)
                told = await first.request("roster", {"from": 0})
                assert (told["isLocked"], told["needs"]) == (True, [1])
                await refused(second, "unlock", {"keys": device.database_keys()}, "denied")
                assert await device.unlock(first) is False
                await remember(first)
                await second.attach("proj")
                late = await agent.call_tool("memory_search", {"query": "grey parrot"})
                assert CANARY in json.dumps(late.structured_content)
            assert (await first.request("roster", {"from": 0}))["isLocked"] is False
            assert not daemon.daemon.spaces.health_problems()


async def test_who_waits_beside_the_device_that_unlocks_is_not_told_that_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when the key is there, requests of all connections wait until the space is open."""
    async with serving(tmp_path / "data", keeper="caller") as daemon:
        laptop, desktop = (daemon.enroll(name, space="home") for name in ("laptop", "desktop"))
        device = Device(laptop)
        is_open, may_open, open_space = asyncio.Event(), asyncio.Event(), Spaces._open_space

        async def slowly(*known: Any) -> Any:
            is_open.set()
            await may_open.wait()
            return await open_space(*known)

        async with await connected(daemon, laptop) as first, await connected(daemon, desktop) as second:
            await device.found(first)
            await refused(second, "attach", {"project": "proj"})
            monkeypatch.setattr(Spaces, "_open_space", slowly)
            unlocking = asyncio.create_task(device.unlock(first))
            await is_open.wait()
            assert (await second.request("roster", {"from": 0}))["isLocked"] is False
            attaching = asyncio.create_task(second.attach("proj"))
            (slot,) = daemon.daemon.spaces._entries.values()
            await until("the request to wait for the space", lambda: slot.holders or attaching.done())
            assert not attaching.done()
            may_open.set()
            assert await unlocking is False
            await attaching


async def test_a_restart_locks_and_only_the_right_key_opens(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, keeper="caller") as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        async with await connected(daemon, laptop) as machine:
            await device.found(machine)
            await device.unlock(machine)
            await remember(machine)
            key = device.keys.database_key(1)
            spellings = (key, key.hex().encode(), base64.b64encode(key))
            held = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
            assert not [path for path, content in held.items() if any(one in content for one in spellings)]
        assert custody_of(daemon) == Custody(KeyName("caller", 1))
    # The configuration says who keeps the keys of new spaces; this one stays with its machines.
    async with serving(data, keeper="server") as daemon, await connected(daemon, laptop) as machine:
        await refused(machine, "attach", {"project": "proj"})
        assert not daemon.daemon.spaces.health_problems()  # a locked space is well
        wrong = base64.b64encode(secrets.token_bytes(32)).decode()
        assert "not its key" in str(await refused(machine, "unlock", {"keys": {"1": wrong}}, "invalid"))
        short = base64.b64encode(b"short").decode()
        for keys in ({}, {"1": short}, {"one": wrong}, {"1": 5}, ["1"], None, {"1": "?" * 44}, {"-1": wrong}):
            await refused(machine, "unlock", {"keys": keys}, "invalid")
        await refused(machine, "attach", {"project": "proj"})
        assert await device.unlock(machine) is False
        assert CANARY in await finds(machine)


async def test_a_key_is_forgotten_when_nobody_has_come_for_a_while(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", keeper="caller", lock_after_s=0.3) as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        spaces, standing = daemon.daemon.spaces, daemon.state.folder.standing
        (space_id,) = daemon.state.registry.spaces().values()
        async with await connected(daemon, laptop) as machine:
            await device.found(machine)
            await device.unlock(machine)
            await remember(machine)
            await until("it to be told", lambda: standing.exists() and "[false, null, 0]" in standing.read_text())
        # Whoever comes back in time finds it open.
        async with await connected(daemon, laptop) as machine:
            await machine.attach("proj")
        await until("the lock", lambda: spaces.is_locked(space_id))
        await until("it to be told", lambda: "[true, null, 0]" in standing.read_text())
        async with await connected(daemon, laptop) as machine:
            assert (await machine.request("roster", {"from": 0}))["needs"] == [1]
            await device.unlock(machine)
            assert CANARY in await finds(machine)
    assert not standing.exists()


async def test_a_new_epoch_changes_the_key_and_a_removed_one_opens_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, keeper="caller") as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        async with await connected(daemon, laptop) as machine:
            await device.found(machine)
            await device.unlock(machine)
            await remember(machine)
            await device.rotate(machine)
            assert (await machine.request("roster", {"from": 0}))["needs"] == [2]
            await device.unlock(machine, 2)
            await until("the new key", lambda: custody_of(daemon) == Custody(KeyName("caller", 2)))
            assert CANARY in await finds(machine)
            assert (await machine.request("roster", {"from": 0}))["needs"] == []
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        old = device.database_keys(1)["1"]
        await refused(machine, "unlock", {"keys": {"2": old}}, "invalid")
        assert await device.unlock(machine, 1) is True
        assert await device.unlock(machine, 2) is False
        assert CANARY in await finds(machine)


async def test_an_epoch_that_began_while_the_daemon_was_locked_is_taken_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, keeper="caller") as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        async with await connected(daemon, laptop) as machine:
            await device.found(machine)
            await device.unlock(machine)
            await remember(machine)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        await device.rotate(machine)
        assert (await machine.request("roster", {"from": 0}))["needs"] == [1, 2]
        await device.unlock(machine)
        await until("the new key", lambda: custody_of(daemon) == Custody(KeyName("caller", 2)))
        assert CANARY in await finds(machine)


async def test_custody_changes_both_ways_while_the_space_is_in_use(tmp_path: Path) -> None:
    """To its machines it waits for one of them, which is told; to the server it is done at once."""
    data = tmp_path / "data"
    async with serving(data) as daemon:
        laptop = daemon.enroll("laptop")
        device = Device(laptop)
        async with await connected(daemon, laptop) as machine:
            await remember(machine)
            await device.found(machine)
            done = await job(daemon, "to-caller")
            assert (done.state, done.outcome["custody"], done.outcome["wanted"]) == ("done", "server", "caller")
            assert (await machine.request("roster", {"from": 0}))["needs"] == [1]
            await device.unlock(machine)
            await until("the machines' key", lambda: custody_of(daemon) == Custody(KeyName("caller", 1)))
            # The key is noted, and then the space is taken over by it.
            async with asyncio.timeout(DEADLINE_S):
                while (await machine.request("roster", {"from": 0}))["custody"] != "caller":  # noqa: ASYNC110 - it is told of nowhere
                    await asyncio.sleep(0.01)
            assert CANARY in await finds(machine)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        locked = await job(daemon, "reindex")
        assert (locked.state, locked.outcome["error"]) == ("failed", SENTENCE)
        waiting = await job(daemon, "to-server")
        assert (waiting.state, waiting.outcome["custody"], waiting.outcome["wanted"]) == ("done", "caller", "server")
        await device.unlock(machine)
        await until("the server's key", lambda: custody_of(daemon) == Custody(KeyName("server", 1), generation=1))
        assert CANARY in await finds(machine)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        renewed = await job(daemon, "rekey")
        assert (renewed.state, renewed.outcome["number"]) == ("done", 2)
        assert CANARY in await finds(machine)
    async with serving(data) as daemon, await connected(daemon, laptop) as machine:
        assert CANARY in await finds(machine)


@pytest.mark.parametrize("rights", [{"scope": "read"}, {"projects": {"a"}}, {"sources": {"memory"}}])
async def test_who_has_a_part_of_the_rights_cannot_choose_a_key(tmp_path: Path, rights: dict[str, Any]) -> None:
    """What it brings for a new epoch nobody could prove to be right; what opens the database proves itself."""
    data = tmp_path / "data"
    async with serving(data, keeper="caller") as daemon:
        laptop, reader = daemon.enroll("laptop", space="home"), daemon.enroll("reader", space="home", **rights)
        device = Device(laptop)
        async with await connected(daemon, laptop) as machine, await connected(daemon, reader) as other:
            await device.found(machine)
            await device.add(machine, reader, "reader")
            assert await device.unlock(other) is True  # there is nothing yet that it could open
            await device.unlock(machine)
            await remember(machine)
            await device.rotate(machine)
            made_up = base64.b64encode(secrets.token_bytes(32)).decode()
            await other.request("unlock", {"keys": {"2": made_up}})
            assert (await machine.request("roster", {"from": 0}))["needs"] == [2]
    async with serving(data) as daemon, await connected(daemon, reader) as other:
        made_up = base64.b64encode(secrets.token_bytes(32)).decode()
        await refused(other, "unlock", {"keys": {"1": made_up}}, "invalid")
        assert await device.unlock(other) is False
        assert (await other.request("roster", {"from": 0}))["needs"] == [2]


def test_the_master_key_may_come_from_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is in no file of the data folder then, neither when that is made nor when it is moved there later."""
    from confide_daemon.access.registry import open_state
    from confide_daemon.datadir.paths import DataFolder
    from confide_daemon.errors import DataFolderError

    folder, credentials = DataFolder(tmp_path / "data"), tmp_path / "credentials"
    create(folder)
    key = folder.master.read_bytes()
    folder.master.unlink()
    for use in (open_state, create):
        with pytest.raises(DataFolderError, match=r"no master\.key") as caught:
            use(folder)
        assert "confide-master-key" in str(caught.value.hint)
    credentials.mkdir()
    (credentials / "confide-master-key").write_bytes(key)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    state = open_state(folder)
    assert state.registry.spaces() == {}
    state.close()
    fresh = DataFolder(tmp_path / "fresh")
    assert create(fresh)
    assert not fresh.master.exists()
    open_state(fresh).close()


@pytest.mark.parametrize(
    "written", [b"{", b'{"version": 2}', b'{"version": 1, "key": {"keeper": "thief", "number": 1}}']
)
async def test_one_space_of_which_nobody_can_tell_who_keeps_its_key_stops_no_other(
    tmp_path: Path, written: bytes
) -> None:
    """It is told of, and nothing is made or opened in its place."""
    data = tmp_path / "data"
    async with serving(data) as daemon:
        laptop, desktop = daemon.enroll("laptop"), daemon.enroll("desktop")
        async with await connected(daemon, laptop) as machine:
            await remember(machine)
        space_id = daemon.state.registry.spaces()["laptop"]
        file = daemon.state.folder.custody(space_id)
    file.write_bytes(written)
    file.chmod(0o600)
    before = daemon.state.folder.space(space_id).read_bytes()
    async with serving(data) as daemon:
        async with await connected(daemon, laptop) as machine:
            refusal = await refused(machine, "attach", {"project": "proj"}, "unavailable")
            assert "it is not known who keeps the key" in str(refusal)
        async with await connected(daemon, desktop) as machine:
            await remember(machine)
            assert CANARY in await finds(machine)
        assert daemon.daemon.spaces.health_problems() == {"storage"}
        told = facts_of(daemon.state, is_served=True)
        assert "it is not known who keeps the key" in str(told["laptop"])
        assert told["desktop"].custody == "server"
    assert daemon.state.folder.space(space_id).read_bytes() == before
