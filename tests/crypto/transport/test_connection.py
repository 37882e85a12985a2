"""Sessions over a real websocket on loopback: what both programs rely on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests.support.crypto.channels import (
    HOST,
    LAPTOP,
    Door,
    answering,
    dial,
    echo,
    hosting,
    no_message,
    no_request,
)
from tests.support.deadline import DEADLINE_S

from confide_crypto.channel.protocol import MAX_PAYLOAD
from confide_crypto.errors import RequestError
from confide_crypto.limits import MAX_MESSAGE
from confide_crypto.transport.open_channel import Connection


async def test_both_ends_know_each_other(door: Door) -> None:
    sessions: list[Connection] = []

    async def handle(connection: Connection) -> None:
        sessions.append(connection)
        await echo(connection)

    async with hosting(door, handle) as host:
        connection = await dial(host.url, hello={"machine": "laptop"})
        assert connection.welcome == {"space": "notes"}
        assert connection.peer_key == HOST.public_key
        await connection.close()
        assert await host.ended.get() is None
    (peer,) = sessions
    assert peer.peer_key == LAPTOP.public_key
    assert peer.hello == connection.hello == {"machine": "laptop"}
    assert peer.session_id == connection.session_id
    assert peer.close_code == "done"


async def test_messages_that_nobody_takes_are_passed_over(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        async def on_request(_op: str, _body: dict[str, Any]) -> dict[str, Any]:
            await connection.send_message(b"said")
            return {"done": True}

        await connection.serve(on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_request=no_request))
        assert await connection.request("speak", {}, timeout_s=DEADLINE_S) == {"done": True}
        await connection.close()


@pytest.mark.parametrize("length", [0, 1, 2048, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3_000_000, MAX_MESSAGE])
async def test_messages_of_any_size_come_back_whole(door: Door, length: int) -> None:
    async with hosting(door, echo) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
        data = bytes(number % 256 for number in range(256)) * (length // 256) + bytes(length % 256)
        await connection.send_message(data)
        assert await heard.get() == data
        await connection.close()


async def test_messages_stay_in_order_whatever_their_size(door: Door) -> None:
    """Small ones are sent at once and long ones in pieces, yet nobody overtakes."""
    async with hosting(door, echo) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
        sent = [str(number).encode().ljust(size, b".") for number, size in enumerate([1, 200_000, 1, 50_000, 1, 1] * 5)]
        async with asyncio.TaskGroup() as senders:
            for data in sent:
                senders.create_task(connection.send_message(data))
        assert [await heard.get() for _ in sent] == sent
        await connection.close()


async def test_a_request_is_answered_and_its_handler_may_ask_back(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            return {"op": op, "body": body, "back": await connection.request("apply", {"n": 1})}

        await connection.serve(on_message=no_message, on_request=on_request)

    async def apply(op: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"applied": body["n"], "op": op}

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=apply))
        body = {"text": "näh\n" * 50_000, "base": 0}
        answer = await connection.request("put", body, bulk=True)
        assert answer == {"op": "put", "body": body, "back": {"applied": 1, "op": "apply"}}
        await connection.close()


async def test_a_message_handler_may_wait_for_the_answer_to_its_own_request(door: Door) -> None:
    """A tool call that has the client write a file: reading must go on while the handler waits."""

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            answer = await connection.request("apply", {})
            await connection.send_message(answer["text"].encode())

        await connection.serve(on_message=on_message, on_request=no_request)

    async def apply(op: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"text": "written"}

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=apply))
        await connection.send_message(b"store")
        assert await heard.get() == b"written"
        await connection.close()


async def test_an_error_answer_keeps_its_fields_and_a_bug_tells_nothing(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op == "bug":
            raise ValueError("the secret canary")
        raise RequestError("storage_full", "the disk is full", "make room")

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(RequestError, match=r"^the disk is full$") as caught:
            await connection.request("put", {})
        assert (caught.value.code, caught.value.hint, caught.value.exit_code) == ("storage_full", "make room", 8)
        with pytest.raises(RequestError) as caught:
            await connection.request("bug", {"text": "another canary"})
        assert caught.value.code == "internal"
        assert "canary" not in str(caught.value)
        await connection.close()
    assert "ValueError" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("name", ["caf\udce9.md", "x" * 20_000_000], ids=["no text", "over the limit of a message"])
async def test_an_error_that_cannot_be_sent_as_it_is_does_not_end_the_session(door: Door, name: str) -> None:
    """A handler may name a file whose name is no UTF-8."""

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        raise RequestError("invalid", f"{name} cannot be used", f"rename {name}")

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        for _ in range(2):
            with pytest.raises(RequestError, match=r"^(caf\?\.md cannot be used|x+)$") as caught:
                await connection.request("put", {})
            assert caught.value.code == "invalid"
        await connection.close()
    assert host.ended.get_nowait() is None


async def test_an_answer_that_does_not_come_is_a_timeout_and_the_session_goes_on(door: Door) -> None:
    release = asyncio.Event()

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op == "slow":
            await release.wait()
        return {"op": op}

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(TimeoutError):
            await connection.request("slow", {}, timeout_s=0.05)
        assert await connection.request("quick", {}) == {"op": "quick"}
        release.set()
        assert await connection.request("slow", {}) == {"op": "slow"}
        await connection.close()


async def test_an_exception_of_the_message_handler_reaches_the_caller_of_serve(door: Door) -> None:
    async def on_message(data: bytes) -> None:
        raise ZeroDivisionError

    async with hosting(door, echo) as host:
        connection = await dial(host.url)
        await connection.send_message(b"{}")
        with pytest.raises(ZeroDivisionError):
            await connection.serve(on_message=on_message, on_request=no_request)
        await connection.close()


def test_importing_the_light_modules_loads_nothing_heavy() -> None:
    """Hooks and `confide mcp` import some of these before their first answer; `keys.identity` is for what uses a key."""
    code = (
        "import sys; from confide_crypto import errors, keys, limits; from confide_crypto.keys import private_files, identity_file; "
        "from confide_crypto.handshake import invite;"
        "print([m for m in ('websockets', 'cryptography', 'nacl', 'asyncio', 'ssl') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    code = "import sys, confide_crypto.transport.open_channel; print('websockets.asyncio.client' in sys.modules, 'nacl' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False True"


async def test_a_node_s_channel_stands_for_the_caller_whose_session_it_passes_on(door: Door) -> None:
    """What asks who is at the other end is told the caller and not the node (PROTOCOL.md 12.3)."""
    async with hosting(door, echo) as host:
        connection = await dial(host.url)
        connection.stand_for(LAPTOP.public_key, "ab" * 16, {"machine": "laptop"})
        assert (connection.peer_key, connection.session_id) == (LAPTOP.public_key, "ab" * 16)
        assert connection.hello == {"machine": "laptop"}
        await connection.close()
