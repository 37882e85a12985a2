"""Documents between the ends: short ones in the request, long ones as its body, neither of them anything but text (PROTOCOL.md 9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, hosting, no_message, no_request
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, connect
from confide_memory.documents import INLINE_BYTES, MAX_TEXT_BYTES, receive_text, send_text


async def serve_texts(connection: Connection) -> None:
    """Answer with the length of the text and the way it came."""

    async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"letters": len(body["text"]), "as": "request"}

    async def on_stream(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
        assert "text" not in params
        return {"letters": len(await receive_text(body)), "as": "body"}

    await connection.serve(on_message=no_message, on_request=on_request, on_stream=on_stream)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("", "request"),
        ("x" * INLINE_BYTES, "request"),
        ("x" * (INLINE_BYTES + 1), "body"),
        ("ä" * (INLINE_BYTES // 2 + 1), "body"),
        ("ä" * (MAX_TEXT_BYTES // 2), "body"),
    ],
)
async def test_a_text_arrives_whichever_way_it_takes(text: str, way: str) -> None:
    async with hosting(Door(LAPTOP.public_key), serve_texts) as host, asyncio.TaskGroup() as group:
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        answer = await send_text(connection, "put", {"path": "MEMORY.md"}, text, timeout_s=DEADLINE_S)
        assert answer == {"letters": len(text), "as": way}
        await connection.close()


@pytest.mark.parametrize(
    ("data", "code"), [(b"x" * (MAX_TEXT_BYTES + 1), "too_large"), (b"half a letter: \xc3", "invalid")]
)
async def test_a_body_that_is_no_text_is_refused_and_the_link_stays(data: bytes, code: str) -> None:
    async with hosting(Door(LAPTOP.public_key), serve_texts) as host, asyncio.TaskGroup() as group:
        connection = await connect(host.url, LAPTOP, HOST.static_key)
        group.create_task(connection.serve(on_message=no_message, on_request=no_request))
        with pytest.raises(RequestError) as caught:
            await connection.upload("put", {"path": "MEMORY.md"}, data, timeout_s=DEADLINE_S)
        assert caught.value.code == code
        assert (await send_text(connection, "put", {}, "fine", timeout_s=DEADLINE_S))["letters"] == 4
        await connection.close()
