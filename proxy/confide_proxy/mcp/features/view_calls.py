"""Answers to calls of tools that only an add-on's page in the client calls (`result_views`)."""

from __future__ import annotations

import asyncio
from typing import Final

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import ToolAnswer
from confide_memory.tools.result_views import ResultViews
from confide_proxy import addons
from confide_proxy.hooks.server.pending_decisions import DecisionPlace

ANSWER_S: Final = 9.0
"""Seconds for an answer, within the ten seconds of a call."""


async def answer(views: ResultViews, tool: str, arguments: object, place: DecisionPlace) -> ToolAnswer:
    """Answer a call of a tool that belongs to one of the pages in `views`."""
    answer_of = await asyncio.to_thread(addons.load_object, views.answer_of(tool))
    try:
        async with asyncio.timeout(ANSWER_S):
            found: ToolAnswer = await answer_of(arguments if isinstance(arguments, dict) else {}, place)
    except ConfideError as error:
        return ToolAnswer(error.with_hint)
    except TimeoutError:
        return ToolAnswer("it did not finish in time; look again before you try again")
    return found
