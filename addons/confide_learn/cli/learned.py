"""`confide learn`: accepts, edits, refuses or undoes what Confide has learned from your sessions,
and learns from new ones now (docs/learning.md).
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_learn.local import note_delivery
from confide_learn.local.checks import most_chars
from confide_learn.local.judges import DailyBudget
from confide_learn.local.learner import Learner
from confide_learn.local.suggestions import OPEN, Suggestion, Suggestions
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    clock,
    command,
    count_noun,
    note,
    one_line,
    project_of,
    remark,
    row,
    say,
    styled,
)
from confide_proxy.errors import EditorError, InputError
from confide_proxy.hooks import learning_queue

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="As confide learn ls shows it; the beginning is enough.")]
_SHOWN_LINES: Final = 8


@command
def ls(
    here: CommandContext,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also what was stored or refused.")] = False,
) -> Output:
    """List the suggestions that wait for your decision."""
    found = Suggestions(here.paths.learn).all()
    listed = [each for each in found if every or each.state in OPEN]

    def tell() -> None:
        for each in listed:
            _tell(each)
        if not listed:
            say("no suggestion waits for you")
            if not here.config.learn.is_on:
                note(f"learning is off; to switch it on, see docs/learning.md and {here.paths.config}")
        elif not every:
            remark("hint: confide learn keep ID, keep ID --edit, or refuse ID, which also keeps it from coming back")

    return Output({"mode": here.config.learn.mode, "suggestions": [_to_json(each) for each in listed]}, tell)


@command
async def keep(
    here: CommandContext,
    ids: Ids,
    is_edited: Annotated[bool, typer.Option("--edit", help="Change the text of one in your editor first.")] = False,
    text: Annotated[str | None, typer.Option("--text", help="Store this text instead of the suggested one.")] = None,
) -> Output:
    """Store suggestions as notes."""
    suggestions = Suggestions(here.paths.learn)
    if not is_edited and text is None:
        return await _store(here, suggestions, [_find(suggestions, each) for each in dict.fromkeys(ids)])
    if len(ids) > 1:
        raise typer.BadParameter("goes with one ID", param_hint="--edit" if is_edited else "--text")
    found = _find(suggestions, ids[0])
    words = (await asyncio.to_thread(_edit, found.text) if text is None else text).strip()
    most = most_chars(found.kind)
    if not words or len(words) > most:
        problem = "the text is empty" if not words else f"the text has more than {most} characters"
        raise InputError(problem, hint="the suggestion is unchanged; confide learn refuse ID deletes it")
    return await _store(here, suggestions, [replace(found, text=words)])


@command
async def refuse(
    here: CommandContext,
    ids: Ids,
    is_undone: Annotated[
        bool, typer.Option("--undo", help="Delete notes that were learned; Confide does not store the same again.")
    ] = False,
) -> Output:
    """Delete suggestions; Confide does not suggest the same again."""
    suggestions = Suggestions(here.paths.learn)
    if is_undone:
        return await _undo(here, suggestions, ids)
    chosen = [_find(suggestions, each) for each in dict.fromkeys(ids)]
    for each in chosen:
        suggestions.put(replace(each, state="refused", quote=""))
    return Output({"refused": [each.id for each in chosen]}, f"refused {', '.join(each.id for each in chosen)}")


async def _undo(here: CommandContext, suggestions: Suggestions, ids: list[str]) -> Output:
    chosen = [_find(suggestions, identity, ("stored",)) for identity in dict.fromkeys(ids)]
    for each in chosen:
        async with here.client(await project_of(here, _folder(each))) as client:
            suggestions.put(await note_delivery.take_back(client, each))
    message = "\n".join(one_line(f"undone {each.id}: {each.path}; confide restore brings it back") for each in chosen)
    return Output({"undone": [each.id for each in chosen]}, message)


async def _store(here: CommandContext, suggestions: Suggestions, chosen: list[Suggestion]) -> Output:
    done = []
    for each in chosen:
        # The call seals credentials in an edited text as in every stored text.
        async with here.client(await project_of(here, _folder(each))) as client:
            stored = await note_delivery.store(client, each, is_accepted=True)
        await asyncio.to_thread(suggestions.put, stored)
        done.append(stored)

    def print_text() -> None:
        for each in done:
            row(f"{'is there already' if each.state == 'known' else 'stored'}: {each.path} as note {each.note}")

    return Output({"stored": [_to_json(each) for each in done]}, print_text)


def _find(suggestions: Suggestions, identity: str, states: tuple[str, ...] = OPEN) -> Suggestion:
    """Find the suggestion that the user names. Raises InputError if none or several match, or if
    its state does not allow the action.
    """
    found = suggestions.find(identity)
    if not found:
        raise InputError(f"no suggestion has the id {identity[:32]}", hint="confide learn ls --all lists all")
    able = [each for each in found if each.state in states]
    if not able:
        raise InputError(f"{found[0].id} is {found[0].state} already", hint="confide learn ls --all lists all")
    if len(able) > 1:
        raise InputError(f"several suggestions begin with {identity[:32]}", hint="type more of the id")
    return able[0]


def _folder(suggestion: Suggestion) -> Path:
    folder = Path(suggestion.folder)
    if not folder.is_dir():
        hint = f"put it back to {suggestion.folder}, or store the text by hand: confide store"
        raise InputError(f"the folder of project {suggestion.project} is not there any more", hint=hint)
    return folder


def _tell(each: Suggestion) -> None:
    facts = "  ".join(one_line(part) for part in (each.kind, f"[{each.project}]", clock(each.at), f"by {each.judge}"))
    state = "" if each.state == "waiting" else f"  {each.state}"
    say(styled((each.id, "bold"), "  ", (f"{facts}{state}", "dim")))
    lines = each.text.splitlines()
    for line in lines[:_SHOWN_LINES]:
        row(f"    {line}")
    if len(lines) > _SHOWN_LINES:
        row(f"    … {len(lines) - _SHOWN_LINES} more lines")
    if each.quote and each.quote.casefold() not in each.text.casefold():
        row(f'    said: "{each.quote}"')
    if each.note and each.state == "waiting":
        row(f"    changes {each.path}")


def _to_json(each: Suggestion) -> dict[str, object]:
    return {name: value for name, value in asdict(each).items() if value != ""}


def _edit(text: str) -> str:
    """Let the user edit the text in their editor, and return the result. Raises EditorError."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen:
        raise EditorError("no editor is set", hint="set EDITOR, or give the text with --text")
    fd, name = tempfile.mkstemp(prefix="confide-learned-", suffix=".md")
    file = Path(name)
    try:
        with open(fd, "w", encoding="utf-8") as opened:
            opened.write(f"{text}\n")
        done = subprocess.run([*shlex.split(chosen), name], check=False)
        if done.returncode != 0:
            raise EditorError(f"the editor ended with code {done.returncode}", hint="nothing was changed")
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EditorError(
            f"the editor cannot be run: {error}", hint="set EDITOR, or give the text with --text"
        ) from None
    finally:
        file.unlink(missing_ok=True)


def waiting_line(here: CommandContext) -> str:
    """Return the line of `confide status` about waiting suggestions; "" if none wait."""
    count = len(Suggestions(here.paths.learn).waiting()) if here.config.learn.is_on else 0
    return f"{count_noun(count, 'suggestion')} from your sessions: confide learn ls" if count else ""


_SEAT_S: Final = 3.0


@command
async def learn(
    here: CommandContext,
    status: Annotated[
        bool, typer.Option("--status", help="Only show what waits, and what the judges have cost today.")
    ] = False,
) -> Output:
    """Learn now from the sessions that hooks have reported."""
    if status:
        return await asyncio.to_thread(_status, here)
    if not here.config.learn.is_on:
        hint = f'to switch it on, write mode = "suggest" below [learn] into {here.paths.config}'
        raise InputError("learning is off", hint=hint)

    learner = Learner(here.paths, here.config, here.client)
    with learner.try_lock(wait_s=_SEAT_S) as is_ours:
        if not is_ours:
            raise InputError("another process on this device is learning right now", hint="try again in a minute")
        learned = await learner.learn()
    waiting = len(learner.suggestions.waiting())

    def print_text() -> None:
        read = f"{count_noun(learned.exchanges, 'exchange')} of {count_noun(learned.sessions, 'session')}"
        stored = f", {learned.stored} stored" if learned.stored else ""
        row(f"{read} read; {count_noun(learned.found, 'new thing')}{stored}")
        if waiting:
            row(f"{count_noun(waiting, 'suggestion')} {'waits' if waiting == 1 else 'wait'} for you: confide learn ls")
        if learned.is_full:
            remark("note: learning pauses until you have looked at them")
        for name, problem in learned.problems.items():
            remark(f"note: the judge '{name}' could not: {problem}")

    numbers = {name: getattr(learned, name) for name in ("sessions", "exchanges", "found", "stored", "skipped")}
    data = {**numbers, "waiting": waiting, "isFull": learned.is_full, "problems": learned.problems}
    return Output(data, print_text)


def _status(here: CommandContext) -> Output:
    config = here.config.learn
    folder = here.paths.learn
    waiting = len(Suggestions(folder).waiting())
    count = len(learning_queue.read(here.paths.state)[0])
    spent = DailyBudget(folder, config).today()
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

    def print_text() -> None:
        row(f"learning is {config.mode}; judges, in the order in which they are asked: {', '.join(config.judges)}")
        row(
            f"{count_noun(count, 'pointer')} to go through, {count_noun(waiting, 'suggestion')} for you: confide learn ls"
        )
        calls = f"{spent.calls:,} of {config.calls_a_day:,} calls"
        row(f"your agent's command today: {calls}, {spent.tokens:,} of {config.tokens_a_day:,} tokens")
        if last:
            row(f"last run {clock(last['at'])}: {count_noun(last['exchanges'], 'exchange')}, {last['found']} found")
            for name, problem in last["problems"].items():
                row(f"the judge '{name}' could not: {problem}")

    return Output(data, print_text)


def _last(here: CommandContext) -> dict[str, Any] | None:
    """Return the recorded result of the last run; None before the first."""
    try:
        found = json.loads((here.paths.learn / "last.json").read_bytes())
        numbers = {name: int(found[name]) for name in ("at", "sessions", "exchanges", "found", "stored", "skipped")}
        return {**numbers, "problems": {str(name): str(why) for name, why in found["problems"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
