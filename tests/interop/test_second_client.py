"""The second client, which was written from PROTOCOL.md alone, against the real `confided`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.frames import REKEY_EVERY, Type
from tests.interop.notes import NOTE, hash_of
from tests.interop.peer import DeniedError, InviteNotAcceptedError, Link, NotThePinnedKeyError, connect
from tests.interop.requests import RefusedError
from tests.interop.session import Session
from tests.interop.texts import Identity, Invite, fingerprint
from tests.support.draws import IS_THOROUGH
from tests.support.programs.processes import Daemon, running_daemon, wait_until

INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "second", "version": "2"}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One real daemon for all; each test invites its own machine, and so has a space of its own."""
    with running_daemon(tmp_path_factory.mktemp("second"), opens_itself=True) as daemon:
        yield daemon


async def joined(daemon: Daemon, name: str) -> tuple[Invite, Identity]:
    """A new identity that has used an invite."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, name))
    identity = Identity.generate()
    async with connect(invite.url, invite.static, identity, invite=invite):
        pass
    return invite, identity


async def attach(link: Link, project: str) -> dict[str, Any]:
    """Section 9: what comes first."""
    return await link.session.request("attach", project=project, machine="second", proxyVersion="2", toolsets=["core"])


async def mcp(link: Link, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """One JSON-RPC call as MSG, and the result."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
    await link.session.send_message(json.dumps(message).encode())
    while True:
        answer = json.loads(await asyncio.wait_for(link.session.messages.get(), 30))
        if answer.get("id") == number:
            result: dict[str, Any] = answer["result"]
            return result


async def test_join_and_come_again(daemon: Daemon) -> None:
    """Mode 1 with an invite, then mode 0; both ends have the same words, the same session id and the daemon's signed key."""
    invite = Invite.parse(await asyncio.to_thread(daemon.invite, "again"))
    assert str(invite) == str(Invite.parse(str(invite)))
    me = Identity.generate()
    async with connect(invite.url, invite.static, me, invite=invite) as link:
        first = link.session.records.session_id.hex()
        key = link.daemon_key
    assert (await asyncio.shield(link.session.ended)).word is not None
    assert fingerprint(me.key) in await asyncio.to_thread(daemon.run, "device")
    async with connect(invite.url, invite.static, me, hello={"program": "second/2"}) as link:
        assert link.daemon_key == key
        second = link.session.records.session_id.hex()
        assert (await attach(link, "p"))["project"] == "p"
    assert first != second
    for session in (first, second):
        await asyncio.to_thread(wait_until, "the session in the log", lambda s=session: s in daemon.log.read_text())


async def test_a_key_line_by_hand(daemon: Daemon) -> None:
    """`confided device add` takes our line; before that the caller is unknown, after `revoke` it is revoked."""
    static = Invite.parse(await asyncio.to_thread(daemon.invite, "nobody")).static
    me, url = Identity.generate(), f"ws://127.0.0.1:{daemon.port}/"
    with pytest.raises(DeniedError) as unknown:
        async with connect(url, static, me):
            pass
    assert unknown.value.reason == "unknown"
    await asyncio.to_thread(daemon.run, "device", "add", me.line + " byhand")
    async with connect(url, static, me) as link:
        await attach(link, "p")
        await asyncio.to_thread(daemon.run, "device", "rm", "byhand")
        ended = await asyncio.wait_for(asyncio.shield(link.session.ended), 10)
        assert ended.word == "revoked"
    with pytest.raises(DeniedError) as revoked:
        async with connect(url, static, me):
            pass
    assert revoked.value.reason == "revoked"


async def test_an_invite_works_once(daemon: Daemon) -> None:
    """A used invite is told, with a hint; a wrong token and a wrong pin fail where 4.6 says."""
    invite, _ = await joined(daemon, "once")
    with pytest.raises(DeniedError) as used:
        async with connect(invite.url, invite.static, Identity.generate(), invite=invite):
            pass
    assert used.value.reason == "invite"
    assert "once" in (used.value.hint or "")
    forged = Invite(invite.static, bytes(16), invite.host, invite.port)
    with pytest.raises(InviteNotAcceptedError):
        async with connect(forged.url, forged.static, Identity.generate(), invite=forged):
            pass
    with pytest.raises(NotThePinnedKeyError):
        async with connect(invite.url, Identity.generate().static, Identity.generate()):
            pass


async def test_documents_and_a_search(daemon: Daemon) -> None:
    """Section 9: compare, put, pull, remove; then the MCP session in MSG finds what was put, and a store comes back as apply."""
    invite, me = await joined(daemon, "documents")
    written: list[dict[str, Any]] = []

    async def answer(op: str, parameters: dict[str, Any], body: object) -> dict[str, Any]:
        if op == "flush":
            return {}
        if op == "backlog":
            return {"pendingUploads": 0, "queuedOffline": 0, "deadLetters": 0}
        assert op == "apply"
        written.append(parameters)
        return {"applied": True}

    async with connect(invite.url, invite.static, me, answer=answer) as link:
        ask = link.session.request
        attached = await attach(link, "p")
        assert attached["limits"]["documentBytes"] == 4 << 20
        tools = (await ask("catalogue", toolsets=["core"]))["tools"]
        assert "memory_search" in {tool["name"] for tool in tools}
        entry = ["MEMORY.md", hash_of(NOTE), 0]
        assert (await ask("compare", project="p", entries=[entry], gone=[]))["send"] == ["MEMORY.md"]
        put = await ask("put", project="p", path="MEMORY.md", text=NOTE, hash=hash_of(NOTE), base=0)
        assert (put["hash"], "text" in put) == (hash_of(NOTE), False)
        same = await ask("compare", project="p", entries=[entry], gone=[])
        assert same == {"send": [], "adopt": [["MEMORY.md", put["revision"]]], "pull": [], "drop": [], "forgotten": []}
        known, new = ["MEMORY.md", hash_of(NOTE), put["revision"]], ["memory/new.md", hash_of("new"), 0]
        confirmed = await ask("compare", project="p", entries=[known, new], gone=[])
        assert confirmed == {"send": ["memory/new.md"], "adopt": [], "pull": [], "drop": [], "forgotten": []}
        pulled = await ask("pull", bulk=True, project="p", path="MEMORY.md")
        assert pulled == {"revision": put["revision"], "hash": hash_of(NOTE), "text": NOTE}
        with pytest.raises(RefusedError) as outside:
            await ask("put", project="p", path="../MEMORY.md", text=NOTE, hash=hash_of(NOTE), base=0)
        assert outside.value.code == "invalid"
        assert (await mcp(link, 1, "initialize", INITIALIZE))["serverInfo"]["name"] == "confide"
        await link.session.send_message(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        structured = {"confide/structured": True}  # 7.13
        question = {"query": "which database has row locks?"}
        plain = await mcp(link, 2, "tools/call", {"name": "memory_search", "arguments": question})
        assert "structuredContent" not in plain
        assert "postgres" in plain["content"][0]["text"]
        search = {"name": "memory_search", "arguments": question, "_meta": structured}
        best = (await mcp(link, 3, "tools/call", search))["structuredContent"]["results"][0]
        assert (best["path"], "postgres" in best["snippet"]) == ("MEMORY.md", True)
        content = "- we cache tokens for five minutes"
        store = {"name": "memory_store", "arguments": {"content": content}, "_meta": structured}
        stored = (await mcp(link, 4, "tools/call", store))["structuredContent"]
        assert stored["onDisk"] is True
        (applied,) = written
        assert applied["baseHash"] is None
        assert hash_of(applied["text"]) == applied["hash"]
        removed = await ask("remove", project="p", path="MEMORY.md", base=put["revision"])
        assert removed["removed"] is True


async def test_a_call_without_initialize(daemon: Daemon) -> None:
    """7.3: a revision of MCP that needs no `initialize` is spoken in MSG too."""
    invite, me = await joined(daemon, "modern")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "second", "version": "2"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "confide/structured": True,
    }
    async with connect(invite.url, invite.static, me) as link:
        await attach(link, "p")
        await link.session.request("put", project="p", path="MEMORY.md", text=NOTE, hash=hash_of(NOTE), base=0)
        search = {"name": "memory_search", "arguments": {"query": "row locks"}, "_meta": meta}
        found = (await mcp(link, 1, "tools/call", search))["structuredContent"]["results"]
        assert [hit["path"] for hit in found] == ["MEMORY.md"]


async def test_a_text_that_is_not_what_its_hash_says(daemon: Daemon) -> None:
    """9.3: as REQ and as OPEN it is `invalid`, as are bytes that are no UTF-8; nothing is stored, and the session goes on."""
    invite, me = await joined(daemon, "hashes")
    async with connect(invite.url, invite.static, me) as link:
        await attach(link, "p")
        wrong: dict[str, Any] = {"project": "p", "path": "memory/a.md", "hash": hash_of("other"), "base": 0}
        for put in (
            link.session.request("put", text=NOTE, **wrong),
            link.session.upload("put", NOTE.encode(), **wrong),
            link.session.upload("put", b"\xff\xfe", **wrong),
        ):
            with pytest.raises(RefusedError) as refused:
                await put
            assert refused.value.code == "invalid"
        with pytest.raises(RefusedError) as missing:
            await link.session.request("pull", project="p", path="memory/a.md")
        assert missing.value.code == "not_found"


async def test_bodies(daemon: Daemon) -> None:
    """OPEN: one over all credit of a stream is stored whole; one given up is not; one too large is refused, while requests are answered."""
    invite, me = await joined(daemon, "bodies")
    text = "- a line, with ünicode\n" * 200 + "\n" * 2_300_000  # which there is little to index in
    async with connect(invite.url, invite.static, me) as link:
        session = link.session
        await attach(link, "p")
        await attach(link, "global")
        raw = text.encode()
        shape: dict[str, Any] = {"project": "p", "base": 0, "hash": hash_of(text)}
        uploading = asyncio.create_task(session.upload("put", raw, path="memory/big.md", **shape))
        while not uploading.done():
            await session.request("compare", project="global", entries=[], gone=[])
        assert (await uploading)["hash"] == hash_of(text)
        assert session.seen[Type.WINDOW] > 2
        assert (await session.request("pull", project="p", path="memory/big.md"))["text"] == text
        # The same as one REQ over many frames, bulk and not.
        for bulk in (True, False):
            piece = text[: 500_000 + bulk]
            sent = {**shape, "hash": hash_of(piece), "path": f"memory/{bulk}.md", "text": piece}
            assert (await session.request("put", bulk=bulk, **sent))["hash"] == hash_of(piece)
        with pytest.raises(RefusedError) as given_up:
            await session.upload("put", raw, give_up_at=500_000, path="memory/half.md", **shape)
        assert given_up.value.code == "cancelled"
        with pytest.raises(RefusedError) as missing:
            await session.request("pull", project="p", path="memory/half.md")
        assert missing.value.code == "not_found"
        # Ten of them are more than all credit of a connection: what is refused unread must give it back.
        for _ in range(10):
            with pytest.raises(RefusedError) as too_large:
                await session.upload("put", bytes((4 << 20) + 1), path="memory/huge.md", **shape)
            assert too_large.value.code == "too_large"
        assert (await session.upload("put", NOTE.encode(), project="p", base=0, path="a.md", hash=hash_of(NOTE)))[
            "hash"
        ] == hash_of(NOTE)


async def pulled(session: Session, **request: Any) -> dict[str, Any]:
    """9.2: a machine that is told `busy` asks again a little later."""
    while True:
        try:
            return await session.request("pull", **request)
        except RefusedError as refused:
            if refused.code != "busy":
                raise
            await asyncio.sleep(1)


@pytest.mark.skipif(not IS_THOROUGH, reason="a minute, under make fuzz; shown with Go, and by the channel's own tests")
async def test_rekey_in_both_directions(daemon: Daemon) -> None:
    """More than 2^14 records each way: keepalives there, the pieces of a large document back."""
    invite, me = await joined(daemon, "rekey")
    # Each newline is two bytes of JSON, and nothing to index: many records for little work.
    text = "\n" * (4 << 20)
    async with connect(invite.url, invite.static, me) as link:
        session = link.session
        await attach(link, "p")
        await attach(link, "global")
        await session.upload("put", text.encode(), project="p", path="a.md", base=0, hash=hash_of(text))
        for _ in range(REKEY_EVERY + 10):
            await session.keepalive()
        while session.records.received <= REKEY_EVERY + 10:
            assert (await pulled(session, project="p", path="a.md"))["hash"] == hash_of(text)
        assert min(session.records.sent, session.records.received) > REKEY_EVERY
        assert (await session.request("compare", project="global", entries=[], gone=[]))["send"] == []
    assert (await asyncio.shield(link.session.ended)).code == 1000
