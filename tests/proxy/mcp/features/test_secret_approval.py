"""An agent reads a secret only as the user's policy and answers say."""

from __future__ import annotations

import asyncio

import pytest

from confide_proxy.hooks.server.question_form import Question
from confide_proxy.mcp.catalogue import VERSION_KEY
from confide_proxy.mcp.features.person_approval import MOST_LATER, PersonApproval
from confide_proxy.mcp.features.secret_approval import refusal
from confide_proxy.mcp.jsonrpc import PendingCall

ID = "0f" * 16


class Person:
    """Somebody in front of a client, who gives these answers."""

    def __init__(self, *answers: str | None, can_ask: bool = True, can_ask_now: bool = True) -> None:
        self._answers = list(answers)
        self.can_ask, self.can_ask_now = can_ask, can_ask_now
        self.has_answered = asyncio.Event()
        self.asked: list[Question] = []
        self.may_answer = asyncio.Event()

    async def ask(self, question: Question, *, timeout_s: float) -> str | None:
        self.asked.append(question)
        if not self.can_ask_now:
            await self.may_answer.wait()
        return self._answers.pop(0)


def a_call() -> PendingCall:
    message = {"id": 1, "method": "tools/call", "params": {"name": "secret_get", "_meta": {VERSION_KEY: "2026-07-28"}}}
    return PendingCall(message, b"", "secret_get", is_repeatable=False)


async def refused(person: Person | None, policy: str = "ask", approval: PersonApproval | None = None) -> str | None:
    return await refusal(policy, person, approval or PersonApproval(), a_call(), ID)


async def test_each_yes_is_for_one_call() -> None:
    person = Person("yes", None, "yes")
    assert await refused(person) is None
    assert "not allowed" in str(await refused(person))
    assert await refused(person) is None
    assert ID in person.asked[0].text


@pytest.mark.parametrize(("policy", "count"), [("never", 0), ("allow", 0)])
async def test_a_policy_asks_nobody(policy: str, count: int) -> None:
    person = Person()
    assert (await refused(person, policy) is None) == (policy == "allow")
    assert len(person.asked) == count


async def test_where_nobody_can_be_asked_the_ways_are_told() -> None:
    """A client without questions is refused; a token that a person has given the right needs no question."""
    assert "confide run --env" in str(await refused(Person(can_ask=False)))
    assert await refused(None) is None
    assert await refused(None, "never") is not None


async def test_a_client_that_is_asked_later_calls_again() -> None:
    person, approval = Person("yes", can_ask_now=False), PersonApproval()
    for _ in range(3):
        assert "call secret_get again" in str(await refused(person, approval=approval))
    assert len(person.asked) == 1
    person.may_answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await refused(person, approval=approval) is None
    assert "call secret_get again" in str(await refused(person, approval=approval))


async def test_a_question_is_open_before_its_call_is_answered_and_few_wait() -> None:
    """So that it takes the place of the result; the answers that nobody fetched count for nothing."""
    person, approval = Person(can_ask_now=False), PersonApproval()
    for number in range(MOST_LATER + 1):
        call = a_call()
        answer = await approval.ask(person, call, str(number), Question("?", ()))
        assert answer.choice is None
        assert answer.is_later == call.is_asking == (number < MOST_LATER)
        assert len(person.asked) == min(number + 1, MOST_LATER)
