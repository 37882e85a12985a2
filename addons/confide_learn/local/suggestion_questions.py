"""Asks the user about the oldest suggestion of a project, if the agent's client can ask questions:
whether to keep or to refuse it (docs/learning.md).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from confide_crypto.errors import printable
from confide_learn.local import note_delivery
from confide_learn.local.suggestions import Suggestion, Suggestions
from confide_memory.classes import UNTRUSTED
from confide_proxy.hooks.server.pending_decisions import DecisionPlace, PendingDecision
from confide_proxy.hooks.server.question_form import Choice, Question

KEEP: Final = "keep"
REFUSE: Final = "refuse"
MOST_SHOWN: Final = 800
"""Characters of a suggestion that a question shows; a longer one is kept by command."""


async def pending(place: DecisionPlace) -> list[PendingDecision]:
    """Return the decision about the oldest suggestion that waits in this project; an empty list if
    none waits.
    """
    if not place.config.learn.is_on:
        return []
    suggestions = Suggestions(place.paths.learn)
    waiting = await asyncio.to_thread(suggestions.waiting)
    mine = [each for each in waiting if each.project == place.project.name and len(each.text) <= MOST_SHOWN]
    return [_decision(place, suggestions, mine[0])] if mine else []


def _decision(place: DecisionPlace, suggestions: Suggestions, found: Suggestion) -> PendingDecision:
    lines = "\n".join(printable(line) for line in found.text.split("\n"))
    changes = f"\nIt changes {printable(found.path)}." if found.note else ""
    text = f"Confide asks about {printable(Path(found.folder).name)}: keep what it learned from a session?"

    async def carry_out(choice: str) -> None:
        current = await asyncio.to_thread(suggestions.find, found.id)
        if found not in current:
            return  # decided or changed elsewhere meanwhile
        if choice == KEEP:
            async with place.connect(place.project) as client:
                settled = await note_delivery.store(client, found, is_accepted=True)
        else:
            settled = replace(found, state="refused", quote="")
        await asyncio.to_thread(suggestions.put, settled)

    choices = (Choice(KEEP, "Keep it as a note"), Choice(REFUSE, "Refuse it, and do not suggest it again"))
    question = Question(f"{text}\n\n{lines}{changes}", choices)
    # What comes from a session that read foreign text becomes more trusted with a yes: only a person gives it.
    return PendingDecision("suggestion", question, carry_out, is_open_to_agents=found.class_ != UNTRUSTED)
