"""`confide learn`: learn from what the pointers lead to now, or show how that stands (docs/learning.md)."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Final

import typer

from confide_proxy.cli.console import Here, Output, clock, command, counted, remark, row
from confide_proxy.errors import LearningError
from confide_proxy.hooks import pointers

_SEAT_S: Final = 3.0


@command
async def learn(
    here: Here,
    status: Annotated[
        bool, typer.Option("--status", help="Only show what waits, and what the judges have cost today.")
    ] = False,
) -> Output:
    """Learn from your sessions now, as far as hooks have pointed at them."""
    if status:
        return await asyncio.to_thread(_status, here)
    if not here.config.learn.is_on:
        hint = f'to switch it on, write mode = "suggest" below [learn] into {here.paths.config}'
        raise LearningError("learning is off", hint=hint)
    from confide_learn.local.learner import Learner

    learner = Learner(here.paths, here.config, here.client)
    with learner.seated(wait_s=_SEAT_S) as is_ours:
        if not is_ours:
            raise LearningError("another process of this machine is learning just now", hint="try again in a minute")
        learned = await learner.learn()
    waiting = len(learner.suggestions.waiting())

    def tell() -> None:
        read = f"{counted(learned.exchanges, 'exchange')} of {counted(learned.sessions, 'session')}"
        stored = f", {learned.stored} stored" if learned.stored else ""
        row(f"{read} read; {counted(learned.found, 'new thing')}{stored}")
        if waiting:
            row(f"{counted(waiting, 'suggestion')} {'waits' if waiting == 1 else 'wait'} for you: confide learned")
        if learned.is_full:
            remark("note: nothing more is read until you have looked at them")
        for name, problem in learned.problems.items():
            remark(f"note: the judge '{name}' could not: {problem}")

    numbers = {name: getattr(learned, name) for name in ("sessions", "exchanges", "found", "stored", "skipped")}
    data = {**numbers, "waiting": waiting, "isFull": learned.is_full, "problems": learned.problems}
    return Output(data, tell)


def _status(here: Here) -> Output:
    from confide_learn.local.judges.client import Budget
    from confide_learn.local.suggestions import Suggestions

    config = here.config.learn
    folder = here.paths.learn
    waiting = len(Suggestions(folder).waiting())
    count = len(pointers.read(here.paths.state)[0])
    spent = Budget(folder, config).today()
    last = _last(here)
    data = {
        "mode": config.mode,
        "judges": list(config.judges),
        "pointers": count,
        "waiting": waiting,
        "calls": {"today": spent.calls, "most": config.calls_a_day},
        "tokens": {"today": spent.tokens, "most": config.tokens_a_day},
        "last": last,
    }

    def tell() -> None:
        row(f"learning is {config.mode}; judges, in the order in which they are asked: {', '.join(config.judges)}")
        row(f"{counted(count, 'pointer')} to go through, {counted(waiting, 'suggestion')} for you: confide learned")
        calls = f"{spent.calls:,} of {config.calls_a_day:,} calls"
        row(f"your agent's command today: {calls}, {spent.tokens:,} of {config.tokens_a_day:,} tokens")
        if last:
            row(f"last run {clock(last['at'])}: {counted(last['exchanges'], 'exchange')}, {last['found']} found")
            for name, problem in last["problems"].items():
                row(f"the judge '{name}' could not: {problem}")

    return Output(data, tell)


def _last(here: Here) -> dict[str, Any] | None:
    """The last run, as it was written down."""
    try:
        found = json.loads((here.paths.learn / "last.json").read_bytes())
        numbers = {name: int(found[name]) for name in ("at", "sessions", "exchanges", "found", "stored", "skipped")}
        return {**numbers, "problems": {str(name): str(why) for name, why in found["problems"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
