"""Sessions over a real websocket on loopback: what both programs rely on, and how each end ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.channels import HOST, LAPTOP, Door, echo, hosting, no_message, no_request

from confide_crypto import connection as opening
from confide_crypto.channel import MAX_PAYLOAD, FrameType
from confide_crypto.connection import Connection, connect
from confide_crypto.errors import ConnectionLost, ProtocolViolation, RequestError
from confide_crypto.limits import MAX_HELD, MAX_MESSAGE, MAX_REQUESTS, Timers

OnRequest = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@pytest.fixture
def door() -> Door:
    return Door(LAPTOP.public_key)


async def dial(url: str, **options: Any) -> Connection:
    return await connect(url, LAPTOP, HOST.static_key, **options)


def answering(on_request: OnRequest) -> Callable[[Connection], Awaitable[None]]:
    async def handle(connection: Connection) -> None:
        await connection.serve(on_message=no_message, on_request=on_request)

    return handle


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


async def test_more_requests_than_the_limit_wait_for_their_turn(door: Door) -> None:
    """And all of them are answered; at no time are more than 64 with the peer."""
    at_once = most = 0

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return {"n": body["n"]}

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        answers = await asyncio.gather(*(connection.request("count", {"n": n}) for n in range(500)))
        assert [answer["n"] for answer in answers] == list(range(500))
        await connection.close()
    assert 1 < most <= MAX_REQUESTS


async def test_a_small_request_does_not_wait_for_a_big_one(door: Door) -> None:
    """Lanes are chosen anew at every record, so an upload under way holds nobody up."""
    order: list[str] = []

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        order.append(op)
        return {}

    async with hosting(door, answering(on_request)) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        upload = group.create_task(connection.request("upload", {"text": "x" * 8_000_000}, bulk=True))
        while not connection._outbox.records_sent:  # noqa: ASYNC110 - nothing tells when the first record is out
            await asyncio.sleep(0)
        await connection.request("search", {})
        assert order == ["search"]
        await upload
        await connection.close()
    assert order == ["search", "upload"]


async def test_a_bulk_request_that_timed_out_in_the_queue_is_never_sent(door: Door) -> None:
    """And it gives its place back."""
    seen: list[str] = []

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        seen.append(op)
        return {}

    async with hosting(door, answering(on_request)) as host:
        connection = await dial(host.url)
        for _ in range(2 * MAX_REQUESTS):
            with pytest.raises(TimeoutError):
                await connection.request("late", {}, timeout_s=0.001, bulk=True)  # nobody serves yet
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.serve(on_message=no_message, on_request=no_request))
            await connection.request("now", {}, bulk=True)
            await connection.close()
    assert seen == ["now"]


async def test_what_was_sent_before_the_goodbye_arrives(door: Door) -> None:
    heard: list[bytes] = []

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            await asyncio.sleep(0)
            heard.append(data)

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        sent = [str(number).encode() for number in range(200)]
        for data in sent:
            await connection.send_message(data)
        await connection.close()
        assert await host.ended.get() is None
        await serving
    assert heard == sent


async def test_closing_sends_what_still_waits(door: Door) -> None:
    heard: list[bytes] = []

    async def handle(connection: Connection) -> None:
        async def on_message(data: bytes) -> None:
            heard.append(data)

        await connection.serve(on_message=on_message, on_request=no_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        sending = group.create_task(connection.send_message(bytes(500_000)))
        await asyncio.sleep(0)
        await connection.close()
        await sending
        assert await host.ended.get() is None
    assert heard == [bytes(500_000)]


async def test_after_the_end_everything_says_so(door: Door) -> None:
    async with hosting(door, echo) as host:
        connection = await dial(host.url)
        await connection.close()
        await connection.close()
        with pytest.raises(ConnectionLost):
            await connection.send_message(b"{}")
        with pytest.raises(ConnectionLost):
            await connection.request("put", {})
        await connection.serve(on_message=no_message, on_request=no_request)
        with pytest.raises(RuntimeError, match="served once"):
            await connection.serve(on_message=no_message, on_request=no_request)


async def test_a_request_under_way_ends_when_the_peer_says_goodbye(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            await connection.close("restart")
            return {}

        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        serving = group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost) as caught:
            await connection.request("put", {})
        assert not caught.value.truncated
        await serving
    assert connection.close_code == "restart"


@pytest.mark.parametrize("how", ["cut", "websocket close"])
async def test_an_end_without_goodbye_is_truncation_on_both_sides(door: Door, how: str) -> None:
    """A proxy on the way can cut TCP or send a polite websocket close; neither passes for a complete session (PROTOCOL.md 7.6)."""
    stay = asyncio.Event()

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await stay.wait()
        return {}

    async with hosting(door, answering(on_request)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        asking = asyncio.create_task(connection.request("put", {}))
        await asyncio.sleep(0)
        if how == "cut":
            connection._ws.transport.abort()
        else:
            await connection._ws.close()
        for task in (serving, asking):
            with pytest.raises(ConnectionLost) as caught:
                await task
            assert caught.value.truncated
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert ended.truncated


async def test_a_cut_wakes_everybody_who_waits(door: Door) -> None:
    """Requests with the peer, requests behind the limit, and messages in the queue; nobody sits out a deadline."""

    async def never(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with hosting(door, answering(never)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        waiting = [asyncio.create_task(connection.request("hang", {}, timeout_s=60)) for _ in range(3 * MAX_REQUESTS)]
        waiting += [asyncio.create_task(connection.send_message(bytes(MAX_MESSAGE))) for _ in range(3)]
        await asyncio.sleep(0)
        connection._ws.transport.abort()
        async with asyncio.timeout(5):
            outcomes = await asyncio.gather(serving, *waiting, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLost}
        await host.ended.get()


async def test_a_cut_upload_is_never_delivered(door: Door) -> None:
    async with hosting(door, answering(no_request)) as host:
        connection = await dial(host.url)
        for _ in range(20):
            record = connection._channel.seal(FrameType.REQ, 1, b"x" * MAX_PAYLOAD, more=True)
            await connection._ws.send(record)
        await connection.close()  # half sent, so there is no goodbye
        ended = await host.ended.get()
    assert isinstance(ended, ConnectionLost)
    assert ended.truncated


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("text", "text frame"),
        (b"", "wrong length"),
        (bytes(272), "not authentic"),
        (bytes(65535), "wrong length"),
        ((FrameType.REQ, 1, b"\xff"), "not JSON"),
        ((FrameType.REQ, 1, b"[]"), "not a JSON object"),
        ((FrameType.REQ, 1, b"{}"), "without op"),
        ((FrameType.REQ, 1, b"[" * 16000), "not JSON"),
        ((FrameType.DATA, 1, b""), "does not belong"),
    ],
    ids=["text", "empty", "garbage", "huge", "not UTF-8", "list", "no op", "nested", "type"],
)
async def test_a_broken_rule_ends_the_session_at_once(door: Door, what: Any, reason: str) -> None:
    async with hosting(door, answering(no_request)) as host:
        connection = await dial(host.url)
        record = connection._channel.seal(*what) if isinstance(what, tuple) else what
        await connection._ws.send(record)
        ended = await host.ended.get()
        assert isinstance(ended, ProtocolViolation)
        assert reason in str(ended)
        with pytest.raises(ConnectionLost) as caught:
            await connection.serve(on_message=no_message, on_request=no_request)
        assert caught.value.truncated
        assert "4401" in str(caught.value)


@pytest.mark.parametrize("answer", [b"{}", b"null", b'{"ok":1}', b'{"error":"x"}', b"\xff"])
async def test_an_answer_of_no_known_form_ends_the_session(door: Door, answer: bytes) -> None:
    async def handle(connection: Connection) -> None:
        await connection._ws.recv()
        connection._channel._answering.add(1)
        await connection._ws.send(connection._channel.seal(FrameType.RES, 1, answer))
        await connection._ws.wait_closed()

    async with hosting(door, handle) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost):
            await connection.request("put", {})
        with pytest.raises(ProtocolViolation):
            await serving


async def test_an_exception_of_the_message_handler_reaches_the_caller_of_serve(door: Door) -> None:
    async def on_message(data: bytes) -> None:
        raise ZeroDivisionError

    async with hosting(door, echo) as host:
        connection = await dial(host.url)
        await connection.send_message(b"{}")
        with pytest.raises(ZeroDivisionError):
            await connection.serve(on_message=on_message, on_request=no_request)
        await connection.close()


async def test_no_task_outlives_serve(door: Door) -> None:
    async def forever(op: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    before = asyncio.all_tasks()
    async with hosting(door, answering(forever)) as host:
        connection = await dial(host.url)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(TimeoutError):
            await connection.request("hang", {}, timeout_s=0.05)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await connection.close()
        await host.ended.get()
    assert asyncio.all_tasks() == before


async def test_a_silent_line_is_kept_and_a_dead_one_given_up(door: Door) -> None:
    """Keepalives pass inside the channel, where nobody on the way can answer them; without any the session ends."""
    quick, patient = Timers(keepalive_s=0.02, idle_s=0.3), Timers(keepalive_s=60, idle_s=0.3)

    async with hosting(door, echo, timers=quick) as host:
        connection = await dial(host.url, timers=quick)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        while connection._inbox.records_received < 30:  # far longer than the idle limit
            await asyncio.wait({serving}, timeout=0.01)
            assert not serving.done()
        await connection.close()
        await serving
        assert await host.ended.get() is None

        mute = await dial(host.url, timers=patient)
        ended = await host.ended.get()
        assert isinstance(ended, ConnectionLost)
        assert ended.truncated
        assert "no sign of life" in str(ended)
        mute._ws.transport.abort()


async def test_a_peer_that_does_not_read_is_given_up(door: Door) -> None:
    """Its keepalives alone do not keep a session whose other half is stuck."""
    quick = Timers(keepalive_s=0.05, idle_s=0.5)
    ended = asyncio.Event()

    async def handle(connection: Connection) -> None:
        connection._ws.transport.pause_reading()
        while not ended.is_set():
            await connection._ws.send(connection._channel.seal(FrameType.KEEPALIVE, 0, b""))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.02)
        connection._ws.transport.abort()

    async with hosting(door, handle) as host:
        connection = await dial(host.url, timers=quick)
        serving = asyncio.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(ConnectionLost):
            await connection.send_message(bytes(MAX_MESSAGE))
        with pytest.raises(ConnectionLost, match="no sign of life"):
            await serving
        assert connection._inbox.records_received > 5, "the peer did send"
        ended.set()


async def test_a_peer_that_goes_away_gets_no_new_requests(door: Door) -> None:
    async def handle(connection: Connection) -> None:
        await connection.go_away()
        await echo(connection)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        group.create_task(connection.serve(on_message=heard.put, on_request=no_request))
        await connection.send_message(b"still fine")
        assert await heard.get() == b"still fine"
        assert connection.is_going_away
        with pytest.raises(ConnectionLost, match="going away"):
            await connection.request("put", {})
        await connection.close()


async def test_slow_handlers_slow_the_peer_down_instead_of_filling_the_memory(door: Door) -> None:
    """Over 32 MiB in handlers' hands nothing more is read; when they end it goes on."""
    go_on = asyncio.Event()
    held: list[int] = []

    async def handle(connection: Connection) -> None:
        async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
            held.append(connection._inbox._held_bytes)
            await go_on.wait()
            return {}

        await connection.serve(on_message=no_message, on_request=on_request)

    async with hosting(door, handle) as host, asyncio.TaskGroup() as group:
        connection = await dial(host.url)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        text = "x" * (8 * 1024 * 1024)
        uploads = [group.create_task(connection.request("put", {"text": text}, timeout_s=60)) for _ in range(10)]
        while len(held) < 4:  # noqa: ASYNC110 - as many as there is room for
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(held) <= 5
        go_on.set()
        await asyncio.gather(*uploads)
        await connection.close()
    assert len(held) == 10
    assert max(held) <= MAX_HELD + MAX_MESSAGE


def test_importing_the_light_modules_loads_nothing_heavy() -> None:
    """`confide mcp` imports these before its first answer."""
    import subprocess
    import sys

    code = (
        "import sys; from confide_crypto import errors, keys, enroll, limits, private;"
        "print([m for m in ('websockets', 'cryptography', 'nacl', 'asyncio', 'ssl') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    code = "import sys; import confide_crypto.connection; print('websockets.asyncio.client' in sys.modules, 'nacl' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False True"
    assert opening.connect
