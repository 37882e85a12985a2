"""What an agent says is sealed on its machine: the official client, the real programs, two machines of a space and one that waits."""

from __future__ import annotations

import json
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from tests.support.daemon.residue import image, texts, words
from tests.support.network.relay import RecordingRelay
from tests.support.programs.mcp_session import ERAS, Era, session
from tests.support.programs.processes import NO_MODEL, Daemon, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_daemon.errors import WrongKeyError
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.link.device_identity import load_stored
from confide_proxy.paths import ProxyPaths

PLACEHOLDER = re.compile(r"\(sealed:[a-z0-9-]+:[0-9a-f]{32}\)")
ALL = 'toolsets = ["all"]\n[secrets]\nsecret_get = "allow"\n'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("sealed")
    (root / "server-home").mkdir()
    (root / "server-home" / "daemon.toml").write_text(NO_MODEL + '\n[at_rest]\ncustody = "caller"\n')
    with running_daemon(root) as running:
        yield running


@pytest.fixture
def ann(tmp_path: Path, daemon: Daemon, relay: RecordingRelay) -> Machine:
    machine = prepared(tmp_path, f"ann-{secrets.token_hex(4)}")
    machine.run("join", daemon.invite(machine.name, port=relay.port))
    return machine


def prepared(root: Path, name: str, settings: str = "") -> Machine:
    machine = Inside(root, name)
    (machine.home / "proxy.toml").write_text(ALL + settings)
    machine.call_project("shared")
    return machine


class Secrets:
    """Credentials made for one test, as somebody might have them."""

    def __init__(self) -> None:
        self.token = "ghp_" + secrets.token_hex(18)
        self.title = "glpat-" + secrets.token_hex(10)
        self.tag = "npm_" + secrets.token_hex(18)
        self.password = f"Zq81-{secrets.token_hex(4)}!x"
        self.bare = f"Vx27-{secrets.token_hex(3)}!kT"
        self.queried = "ghp_" + secrets.token_hex(18)
        self.note = f"the spare walrus key lies under stone {secrets.token_hex(4)}"

    @property
    def all(self) -> list[str]:
        return list(vars(self).values())


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """What a call that fails is answered with."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0].text)  # type: ignore[union-attr]


def in_clear(planted: list[str], data: bytes | str) -> list[int]:
    """Which of them stand in there, by their places, so that no failure prints one."""
    bare = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    return [place for place, value in enumerate(planted) if value.encode() in bare]


def keys_of(machine: Machine) -> SpaceKeys:
    paths = ProxyPaths(
        machine.home / "proxy.toml", machine.home / "proxy", machine.home / "global", machine.home / "daemon"
    )
    seen = RosterCache(paths.rosters).last()
    assert seen is not None
    assert seen.roster is not None
    return seen.roster.open(WrapKey(load_stored(paths.identity).open(None)))


def below(*folders: Path) -> bytes:
    """All files there, and their names."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*") if not path.is_socket()):
        # A daemon that runs writes some of them beside their places first.
        with suppress(FileNotFoundError, IsADirectoryError):
            found += [path.read_bytes(), str(path).encode()]
    return b"\n".join(found)


def in_databases(daemon: Daemon, keys: SpaceKeys) -> tuple[int, str]:
    """How many databases of the daemon's these keys open, and all that is in them."""
    key, found = keys.database_key(keys.epoch), []
    for path in (daemon.data / "spaces").glob("*.db"):
        with suppress(WrongKeyError):  # another test's space
            found.append("\n".join([*texts(path, key), *words(path, key), image(path, key).decode("latin-1")]))
    return len(found), "\n".join(found)


@pytest.mark.parametrize("era", ERAS)
async def test_a_secret_is_sealed_found_and_opened(
    ann: Machine, daemon: Daemon, relay: RecordingRelay, era: Era
) -> None:
    """Stored in every corner of a note; a search for the value finds it; `secret_get` opens it; nobody else has it, in any form."""
    said = Secrets()
    async with session(ann, era) as client:
        note = await told(
            client,
            "memory_store",
            content=f"Heron CI pushes with {said.token}.",
            title=f"Heron {said.title}",
            tags=["ci", said.tag],
            metadata={"registry": {"password": said.password}},
        )
        log = f"- again {said.token}\n- the new db password: {said.bare}"
        logged = await told(client, "memory_store", content=log, path="memory/log.md")
        assert [stored["warnings"][0].split(";")[0] for stored in (note, logged)] == [
            "4 values are sealed",
            "2 values are sealed",
        ]
        got = await told(client, "memory_get", id=note["id"])
        assert not in_clear(said.all, json.dumps(got))
        assert len(set(PLACEHOLDER.findall(json.dumps(got)))) == 4
        hits = (await told(client, "memory_search", query=said.token))["results"]
        assert {hit["path"] for hit in hits[:2]} == {note["path"], "memory/log.md"}
        alone = await told(client, "memory_search", query=f"{said.bare}?")
        assert alone["results"][0]["path"] == "memory/log.md", "nothing in the question says that it is a password"
        await client.call_tool("memory_search", {"query": f"who uses {said.queried}"})
        (placeholder,) = PLACEHOLDER.findall(got["content"])
        assert await told(client, "secret_get", id=placeholder) == {
            "id": placeholder[-33:-1],
            "kind": "github-token",
            "value": said.token,
        }
        opened = await told(client, "secret_get", id=got["metadata"]["registry"]["password"][-33:-1])
        assert (opened["kind"], opened["value"]) == ("password", said.password)
        assert "no such sealed secret" in await refusal(client, "secret_get", id="0" * 32)
        assert "not the placeholder of a sealed secret" in await refusal(client, "secret_get", id="x" * 32)
    count, stored_there = in_databases(daemon, keys_of(ann))
    assert count == 1
    assert "heron" in stored_there.lower()
    for place in (stored_there, below(daemon.data, ann.home, ann.project), daemon.log.read_bytes(), relay.captured):
        assert not in_clear(said.all, place)


async def test_another_machine_of_the_space_opens_it(
    ann: Machine, daemon: Daemon, relay: RecordingRelay, tmp_path: Path
) -> None:
    """And one that waits for approval does not: it asks with a stand-in, and its own secrets are refused rather than sent."""
    said = Secrets()
    bob, carl = prepared(tmp_path, "bob"), prepared(tmp_path, "carl")
    bob.run("join", ann.json("device", "invite", "bob", "--no-wait")["invite"])
    carl.run("join", daemon.invite("carl", "--space", ann.name))
    async with session(ann) as client:
        note = await told(client, "memory_store", content=f"CI pushes with {said.token}.", title="Egret")
        (placeholder,) = PLACEHOLDER.findall((await told(client, "memory_get", id=note["id"]))["content"])
    assert bob.json("device", "ls")["canSeal"]
    async with session(bob) as client:
        assert placeholder in json.dumps(await told(client, "memory_search", query=said.token))
        assert (await told(client, "secret_get", id=placeholder))["value"] == said.token
        await told(client, "memory_store", content=f"bob knows {said.title} too", title="Bittern")
    async with session(carl) as client:
        assert placeholder in json.dumps(await told(client, "memory_get", id=note["id"]))
        assert "confide device" in await refusal(client, "secret_get", id=placeholder)
        refused = await refusal(client, "memory_store", content=f"carl has {said.tag}", title="Stork")
        assert "cannot seal it yet" in refused
        assert "cannot seal it yet" in await refusal(client, "memory_store", content=said.note, sensitive=True)
        assert not (await told(client, "memory_store", content="carl has nothing to hide", title="Stork"))["queued"]
        await told(client, "memory_search", query=said.token)
    assert not in_clear(said.all, in_databases(daemon, keys_of(ann))[1])
    assert not in_clear(said.all, relay.captured + daemon.log.read_bytes() + below(carl.home, carl.project))


async def test_a_sensitive_note(ann: Machine, daemon: Daemon) -> None:
    """Its text is one secret, through every tool that shows or changes it; its title is what it is found by."""
    said = Secrets()
    async with session(ann) as client:
        note = await told(client, "memory_store", content=said.note, title="Spare walrus key", sensitive=True)
        by_id = {"id": note["id"]}
        got = await told(client, "memory_get", **by_id)
        assert PLACEHOLDER.fullmatch(got["content"].strip())
        assert (got["title"], got["sensitive"]) == ("Spare walrus key", True)
        assert (await told(client, "secret_get", id=got["content"].strip()))["value"] == said.note
        again = await told(client, "memory_store", content=said.note, title="Spare walrus key", sensitive=True)
        assert again["duplicates"][0]["id"] == note["id"]
        assert (await told(client, "memory_search", query="spare walrus key"))["results"][0]["path"] == note["path"]
        other = await told(client, "memory_store", content="The walrus lives on ice.", title="Walrus")
        await told(client, "memory_link", relatedId=other["id"], relation="see_also", **by_id)
        changed = await told(client, "memory_update", content=f"{said.note}, or under {said.password}", **by_id)
        assert PLACEHOLDER.fullmatch(changed["content"].strip())
        assert changed["content"] != got["content"]
        tagged = await told(client, "memory_update", tags=["keys"], **by_id)
        assert tagged["content"] == changed["content"]
        await told(client, "memory_store", content=f"also {said.tag}", path=note["path"])
        both = (await told(client, "memory_get", **by_id))["content"]
        added = both.replace(changed["content"].strip(), "").strip()
        assert PLACEHOLDER.fullmatch(added)
        assert (await told(client, "secret_get", id=added))["value"] == f"also {said.tag}"
        for tool, arguments in (
            ("memory_list", {}),
            ("memory_history", by_id),
            ("memory_dedupe", {}),
            ("memory_read", {"path": note["path"]}),
        ):
            assert not in_clear(said.all, json.dumps(await told(client, tool, **arguments)))
        plain = await told(client, "memory_store", content=said.queried[4:], title="Was plain")
        assert "give the content too" in await refusal(client, "memory_update", id=plain["id"], sensitive=True)
        sealed = await told(client, "memory_update", id=plain["id"], sensitive=True, content=said.queried[4:])
        assert PLACEHOLDER.fullmatch(sealed["content"].strip())
        assert "confide secrets scan --stored" in str(sealed["warnings"])  # its first revision is not sealed by that
        again = await told(client, "memory_update", id=plain["id"], sensitive=True, content=said.note)
        assert not again["warnings"]
        bare = await told(client, "memory_update", id=plain["id"], sensitive=False, content="nothing to hide now")
        assert (bare["content"].strip(), bare["sensitive"]) == ("nothing to hide now", False)
    exported = ann.home / "out"
    ann.run("export", str(exported))
    assert both.strip() in (exported / "shared" / note["path"]).read_text() or both.strip() in below(exported).decode()
    assert not in_clear([*said.all[:-2], said.note], below(exported, ann.project))
    assert not in_clear([*said.all[:-2], said.note], in_databases(daemon, keys_of(ann))[1])


def test_what_waits_is_sealed_when_it_is_sent(ann: Machine, daemon: Daemon, relay: RecordingRelay) -> None:
    """Said while the daemon hangs, then is dead: shown as sealed here already, and called what it was said to be called."""
    said = Secrets()
    with Wire(ann) as wire:
        wire.open()
        stored_by(wire, content="- first", path="memory/log.md")
        daemon.signal(signal.SIGSTOP)
        try:
            note = stored_by(wire, content=f"{said.token} is for CI", metadata={"password": said.password})
        finally:
            daemon.kill()
        stored_by(wire, content=f"- push with {said.tag}", path="memory/log.md")
        hidden = stored_by(wire, content=said.note, title="Spare heron key", sensitive=True)
        assert (note["queued"], hidden["queued"]) == (True, True)
        read = wire.tool("memory_read", {"path": "memory/log.md"})["structuredContent"]["content"]
        assert "push with (sealed:npm-token:" in read
        found = wire.tool("memory_search", {"query": "spare heron key push"})["structuredContent"]
        assert found["results"]
        assert not in_clear(said.all, json.dumps([note, hidden, found]))
        assert "only the keys" in str(wire.tool("secret_get", {"id": "0" * 32}))
        listed = ann.run("queue", "--show")
        assert "(sealed:github-token:" in listed
        assert not in_clear(said.all, listed)
        assert not in_clear(said.all, below(ann.home))
        daemon.start()
        wait_until("the queue to be sent", lambda: ann.json("queue")["queuedOffline"] == 0)
        assert ann.json("queue")["deadLetters"] == 0
        opened = {}
        for queued in (note, hidden):
            got = wire.tool("memory_get", {"id": queued["id"]})["structuredContent"]
            assert got["path"] == queued["path"]
            standin = PLACEHOLDER.findall(got["content"])[0]
            opened[queued["id"]] = wire.tool("secret_get", {"id": standin})["structuredContent"]["value"]
        assert opened == {note["id"]: said.token, hidden["id"]: said.note}
    assert not in_clear(said.all, in_databases(daemon, keys_of(ann))[1])
    assert not in_clear(said.all, relay.captured + daemon.log.read_bytes() + below(ann.home, ann.project))


def stored_by(wire: Wire, **arguments: Any) -> dict[str, Any]:
    result = wire.tool("memory_store", arguments)
    assert not result.get("isError"), result
    structured: dict[str, Any] = result["structuredContent"]
    return structured


def test_what_cannot_be_sealed_yet_goes_on_waiting(daemon: Daemon, ann: Machine, tmp_path: Path) -> None:
    """Queued by a machine that nobody has approved: it is neither sent in clear nor thrown away, and goes once it is a device."""
    said = Secrets()
    with RecordingRelay(daemon.port) as cable:
        dora = prepared(tmp_path, "dora")
        dora.run("join", daemon.invite("dora", "--space", ann.name, port=cable.port))
        dora.run("device", "ls")
        cable.cut()
        assert "queued" in dora.run("store", f"- push with {said.token}", "--path", "memory/log.md")
        assert "queued" in dora.run("store", "- behind it", "--path", "memory/log.md")
        assert "queued" in dora.run("store", "- elsewhere", "--path", "memory/other.md")
        cable.mend()
        waits = dora.run("sync", code=0)
        assert "cannot seal it yet" in waits
        assert [call["path"] for call in dora.json("queue")["calls"]] == ["memory/log.md"] * 2
        assert (dora.project / "memory" / "other.md").read_text() == "- elsewhere\n"
        with Wire(dora) as wire:
            wire.open()
            wait_until("what waits to be tried", lambda: not stored_by(wire, content="- more")["queued"])
        mine = dora.json("key", "show")["words"]
        dora.run("device", "confirm", "--words", ann.json("device", "approve", mine)["headWords"])
        dora.run("sync")
        assert dora.json("queue")["calls"] == []
        first, second = (dora.project / "memory" / "log.md").read_text().splitlines()
        assert first.startswith("- push with (sealed:github-token:")
        assert second == "- behind it"
        assert not in_clear(said.all, cable.captured + below(dora.home, dora.project))


async def test_the_policy_may_block(daemon: Daemon, tmp_path: Path) -> None:
    """Then a call that holds a credential is refused, here and on the command line, and nothing of it goes out."""
    said = Secrets()
    with RecordingRelay(daemon.port) as cable:
        eve = prepared(tmp_path, f"eve-{secrets.token_hex(4)}", 'tools = "block"\n')
        eve.run("join", daemon.invite(eve.name, port=cable.port))
        async with session(eve) as client:
            for tool, name in (("memory_store", "content"), ("memory_search", "query")):
                assert "your policy blocks" in await refusal(client, tool, **{name: f"with {said.token}"})
            assert not (await told(client, "memory_store", content="nothing to hide"))["queued"]
        assert "your policy blocks" in eve.run("store", f"with {said.token}", code=7)
        cable.cut()
        assert "your policy blocks" in eve.run("store", f"with {said.token}", code=7)
        assert eve.json("queue")["queuedOffline"] == 0
        assert not in_clear(said.all, cable.captured + below(eve.home, eve.project))
