"""Questions by elicitation: one at a time, in both eras, and no answer where a client's makes no sense."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_proxy.hooks.server.question_form import NOT_NOW
from confide_proxy.mcp.catalogue import VERSION_KEY
from confide_proxy.mcp.jsonrpc import PendingCall
from confide_proxy.mcp.questions import CREATE, MOST_HELD, MOST_WAITING, Choice, Question, Questions

QUESTION = Question("Keep it?", (Choice("keep", "Keep it"), Choice("drop", "Delete it")))
ABLE: dict[str, Any] = {"elicitation": {}}
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "found"}], "resultType": "complete"}
NOTHING_S = 0.01


class Client:
    """The messages that a client got, and what it answers."""

    def __init__(self, capabilities: object = ABLE, *, is_modern: bool = False) -> None:
        self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.questions = Questions(self.got.put_nowait)
        self.questions.declare(capabilities, is_modern)

    def ask(self, timeout_s: float = DEADLINE_S) -> asyncio.Task[str | None]:
        return asyncio.get_running_loop().create_task(self.questions.ask(QUESTION, timeout_s=timeout_s))

    async def asked(self) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            message = await self.got.get()
        assert message["method"] == CREATE
        return message

    def answer(self, message: dict[str, Any], **outcome: Any) -> None:
        self.questions.receive({"jsonrpc": "2.0", "id": message["id"], **outcome})


def accepted(said: object) -> dict[str, Any]:
    return {"action": "accept", "content": {"answer": said}}


def a_call(*, is_read_only: bool = True, is_modern: bool = True) -> PendingCall:
    meta = {VERSION_KEY: "2026-07-28"} if is_modern else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_search", "_meta": meta}}
    return PendingCall(message, b"", "memory_search", is_repeatable=True, is_read_only=is_read_only)


async def test_a_choice_and_its_form() -> None:
    """Strings in one plain enum, which every client can show, with "not now" last."""
    client = Client()
    asking = client.ask()
    message = await client.asked()
    schema = message["params"]["requestedSchema"]
    assert schema["properties"]["answer"]["enum"] == ["Keep it", "Delete it", NOT_NOW]
    assert schema["properties"]["answer"]["type"] == "string"
    client.answer(message, result=accepted("Delete it"))
    assert await asking == "drop"


@pytest.mark.parametrize(
    "result",
    [
        accepted(NOT_NOW),
        accepted("drop it all"),
        accepted(["Delete it"]),
        accepted({}),
        {"action": "accept"},
        {"action": "accept", "content": "Delete it"},
        {"action": "decline", "content": {"answer": "Delete it"}},
        {"action": "cancel"},
        {"action": "Accept", "content": {"answer": "Delete it"}},
        {},
        [],
        None,
        7,
    ],
)
async def test_every_other_answer_is_none(result: object) -> None:
    client = Client()
    asking = client.ask()
    client.answer(await client.asked(), result=result)
    assert await asking is None
    assert client.questions.can_ask


async def test_a_client_without_forms_is_not_asked() -> None:
    for capabilities in (None, {}, [], {"elicitation": None}, {"elicitation": {"url": {}}}, {"sampling": {}}):
        client = Client(capabilities)
        assert not client.questions.can_ask
        assert await client.ask() is None
        assert client.got.empty()
    assert Client({"elicitation": {"form": {}, "url": {}}}).questions.can_ask


async def test_an_error_ends_the_questions_of_a_session() -> None:
    """A client that says that it can ask, and cannot."""
    client = Client()
    asking = client.ask()
    client.answer(await client.asked(), error={"code": -32601, "message": "no"})
    assert await asking is None
    client.questions.declare(ABLE, is_modern=False)
    assert await client.ask() is None
    assert client.got.empty()


async def test_a_question_that_is_not_answered_is_withdrawn() -> None:
    """A late answer, and one to another question, count for nothing; the next question is asked as usual."""
    client = Client()
    assert await client.ask(NOTHING_S) is None
    late = await client.asked()
    withdrawn = client.got.get_nowait()
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == late["id"]
    asking = client.ask()
    message = await client.asked()
    client.answer(late, result=accepted("Delete it"))
    client.answer(message | {"id": 1}, result=accepted("Delete it"))
    assert not asking.done()
    client.answer(message, result=accepted("Keep it"))
    client.answer(message, result=accepted("Delete it"))  # answered twice
    assert await asking == "keep"


async def test_one_question_at_a_time() -> None:
    """Others wait for their turn, no more than a few of them."""
    client = Client()
    asking = [client.ask() for _ in range(MOST_WAITING)]
    message = await client.asked()
    assert await client.ask() is None
    assert client.got.empty()
    for _ in asking[1:]:
        client.answer(message, result=accepted("Keep it"))
        message = await client.asked()
    client.answer(message, result=accepted("Delete it"))
    assert await asyncio.gather(*asking) == ["keep", "keep", "keep", "drop"]


async def test_in_place_of_a_result() -> None:
    """In the later era a call that reads brings the question, and gets its own result when it is repeated with the answer."""
    client = Client(is_modern=True)
    questions = client.questions
    assert questions.in_place_of(a_call(), RESULT) is RESULT
    asking = client.ask()
    await asyncio.sleep(0)
    assert client.got.empty()
    assert not questions.can_ask_now
    for other in (a_call(is_read_only=False), a_call(is_modern=False)):
        assert questions.in_place_of(other, RESULT) is RESULT
    for result in (RESULT | {"isError": True}, RESULT | {"content": [{"type": "text", "text": "x" * MOST_HELD}]}):
        assert questions.in_place_of(a_call(), result) is result
    shown = questions.in_place_of(a_call(), RESULT)
    assert shown["resultType"] == "input_required"
    request = shown["inputRequests"]["answer"]
    assert request["method"] == CREATE
    assert request["params"]["mode"] == "form"
    assert questions.in_place_of(a_call(), RESULT) is RESULT  # no second one meanwhile
    assert questions.taken_back({"requestState": "another"}) is None
    again = {"requestState": shown["requestState"], "inputResponses": {"answer": accepted("Delete it")}}
    assert questions.taken_back(again) is RESULT
    assert questions.taken_back(again) is None
    assert await asking == "drop"


async def test_a_repeated_call_without_sense_gets_its_result() -> None:
    for responses in (None, [], {}, {"answer": None}, {"answer": {"action": "accept", "content": {"answer": 1}}}):
        client = Client(is_modern=True)
        asking = client.ask()
        await asyncio.sleep(0)
        shown = client.questions.in_place_of(a_call(), RESULT)
        again = {"requestState": shown["requestState"], "inputResponses": responses}
        assert client.questions.taken_back(again) is RESULT
        assert await asking is None


async def test_a_client_that_never_repeats_its_call_is_not_asked_again() -> None:
    client = Client(is_modern=True)
    asking = client.ask(NOTHING_S)
    await asyncio.sleep(0)
    shown = client.questions.in_place_of(a_call(), RESULT)
    assert await asking is None
    assert not client.questions.can_ask
    assert await client.ask() is None
    late = {"requestState": shown["requestState"], "inputResponses": {"answer": accepted("Delete it")}}
    assert client.questions.taken_back(late) is RESULT
    assert client.questions.can_ask


async def test_a_call_that_needs_the_answer_is_made_anew_with_it() -> None:
    """Its result says only that it asks, so nothing is kept for it; the answer counts once."""
    client = Client(is_modern=True)
    asking = client.ask()
    await asyncio.sleep(0)
    call = a_call(is_read_only=False)
    assert client.questions.in_place_of(call, RESULT) is RESULT
    call.is_asking = True
    shown = client.questions.in_place_of(call, {**RESULT, "isError": True})
    assert shown["resultType"] == "input_required"
    repeated = {"requestState": shown["requestState"], "inputResponses": {"answer": accepted("Delete it")}}
    assert client.questions.taken_back(repeated) is None
    assert await asking == "drop"
    again = client.ask()
    await asyncio.sleep(0)
    assert client.questions.taken_back(repeated) is None
    assert not again.done()
    again.cancel()
