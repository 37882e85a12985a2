"""The page that an agent's client shows beside the results of `memory_search` and `memory_status`
(MCP's extension for apps), and its tools.

The page has the panel's stylesheet and no library: the extension's own script is 500 KB, of which
this page needs ten messages (`static/view.js`). It needs no template engine either, which the
smallest install lacks. Its own content security policy allows the one script by its hash, so a
client that allows inline scripts still runs nothing that a note brings.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confide_crypto.errors import ConfideError
from confide_memory.tools.call import ToolAnswer
from confide_proxy import addons
from confide_proxy.hooks.server.folder_decisions import FINDERS
from confide_proxy.hooks.server.pending_decisions import DecisionPlace, PendingDecision

_STATIC: Final = Path(__file__).parent / "static"


def html() -> str:
    """Return the whole page: `view.html` with its policy, its stylesheets and its script."""
    page, script = _static("view.html"), _static("view.js")
    style = _static("panel.css") + _static("view.css")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    for mark, part in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script)):
        page = page.replace(f"%{mark}%", part)
    return page


def _static(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _WaitingDecisions(NamedTuple):
    """The decisions that a page may show, and why some could not be read."""

    found: Sequence[PendingDecision]
    problems: Sequence[str]

    def as_answer(self, said: str = "") -> ToolAnswer:
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
    return (await _waiting(place)).as_answer()


async def decide(arguments: Mapping[str, Any], place: DecisionPlace) -> ToolAnswer:
    """Carry out the user's choice, and list what waits then. Raises what the decision raises."""
    waiting = await _waiting(place)
    chosen = next((each for each in waiting.found if each.id == arguments.get("id")), None)
    choice = str(arguments.get("choice"))
    if chosen is None or choice not in [each.name for each in chosen.question.choices]:
        return waiting.as_answer("Nothing was changed: that question does not wait any more.")
    await chosen.carry_out(choice)
    return (await _waiting(place)).as_answer("Done.")


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
