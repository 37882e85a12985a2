"""The tools of the page beside results: what waits for the user, and their choice (docs/agents.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import ToolAnswer
from confide_proxy import addons
from confide_proxy.hooks.server.folder_decisions import FINDERS
from confide_proxy.hooks.server.pending_decisions import DecisionPlace, PendingDecision


class _WaitingDecisions(NamedTuple):
    """The decisions that a page may show, and why some could not be read."""

    found: Sequence[PendingDecision]
    problems: Sequence[str]

    def to_answer(self, said: str = "") -> ToolAnswer:
        rows = [
            {"id": each.id, "topic": each.topic, "text": each.question.text, "choices": _choices(each)}
            for each in self.found
        ]
        fields = {"decisions": rows, "problems": list(self.problems), "said": said}
        return ToolAnswer(said or f"{len(rows)} questions wait for the user", fields)


def _choices(decision: PendingDecision) -> list[dict[str, str]]:
    return [{"name": choice.name, "title": choice.title} for choice in decision.question.choices]


async def decisions(_arguments: Mapping[str, Any], place: DecisionPlace) -> ToolAnswer:
    """List the decisions that wait for the user."""
    return (await _waiting(place)).to_answer()


async def decide(arguments: Mapping[str, object], place: DecisionPlace) -> ToolAnswer:
    """Carry out the user's choice, and list the decisions that still wait. Raises the errors of the
    decision.
    """
    waiting = await _waiting(place)
    chosen = next((each for each in waiting.found if each.id == arguments.get("id")), None)
    choice = str(arguments.get("choice"))
    if chosen is None or choice not in [each.name for each in chosen.question.choices]:
        return waiting.to_answer("Nothing was changed: that question does not wait any more.")
    await chosen.carry_out(choice)
    return (await _waiting(place)).to_answer("Done.")


async def _waiting(place: DecisionPlace) -> _WaitingDecisions:
    finders = [*FINDERS, *await asyncio.to_thread(addons.each, "decisions")]
    found: list[PendingDecision] = []
    problems: list[str] = []
    for find in finders:
        try:
            found += [each for each in await find(place) if each.is_open_to_agents]
        except ConfideError as error:
            problems.append(error.with_hint)
    return _WaitingDecisions(found, list(dict.fromkeys(problems)))
