"""An agent reads a secret only as the user's policy and answers say."""

from __future__ import annotations

import asyncio

import pytest

from confide_proxy.hooks.server.question_form import Question
from confide_proxy.mcp.features.secret_approval import SecretApproval

ID = "0f" * 16


class Person:
    """Somebody in front of a client, who gives these answers."""

    def __init__(self, *answers: str | None, can_ask: bool = True, can_ask_now: bool = True) -> None:
        self._answers = list(answers)
        self.can_ask, self.can_ask_now = can_ask, can_ask_now
        self.asked: list[Question] = []
        self.may_answer = asyncio.Event()

    async def ask(self, question: Question, *, timeout_s: float) -> str | None:
        self.asked.append(question)
        if not self.can_ask_now:
            await self.may_answer.wait()
        return self._answers.pop(0)


async def test_each_yes_is_for_one_call() -> None:
    person = Person("yes", None, "yes")
    approval = SecretApproval("ask", lambda: person)
    assert await approval.refusal(ID) is None
    assert "not allowed" in str(await approval.refusal(ID))
    assert await approval.refusal(ID) is None
    assert ID in person.asked[0].text


@pytest.mark.parametrize(("policy", "count"), [("never", 0), ("allow", 0)])
async def test_a_policy_asks_nobody(policy: str, count: int) -> None:
    person = Person()
    refusal = await SecretApproval(policy, lambda: person).refusal(ID)
    assert (refusal is None) == (policy == "allow")
    assert len(person.asked) == count


async def test_where_nobody_can_be_asked_the_ways_are_told() -> None:
    """A client without questions is refused; a token that a person has given the right needs no question."""
    refusal = await SecretApproval("ask", lambda: Person(can_ask=False)).refusal(ID)
    assert "confide run --env" in str(refusal)
    assert await SecretApproval("ask", lambda: None).refusal(ID) is None
    assert await SecretApproval("never", lambda: None).refusal(ID) is not None


async def test_a_client_that_is_asked_later_calls_again() -> None:
    person = Person("yes", can_ask_now=False)
    approval = SecretApproval("ask", lambda: person)
    for _ in range(3):
        assert "call secret_get again" in str(await approval.refusal(ID))
        await asyncio.sleep(0)
    assert len(person.asked) == 1
    person.may_answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await approval.refusal(ID) is None
    assert "call secret_get again" in str(await approval.refusal(ID))
