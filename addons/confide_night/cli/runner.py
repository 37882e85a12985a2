"""`confide task runner`: executes the tasks that are due, in sandboxes, within a budget
(docs/tasks.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto import portable
from confide_crypto.errors import EXIT_CONFIG
from confide_memory.commands.doing import doing
from confide_night.runner import trial
from confide_night.runner.books import newest
from confide_night.runner.runner_service import RunnerService, end_message, folder_of
from confide_night.runner.settings import recipes
from confide_night.runner.settings.recipes import RunnerSettings
from confide_proxy.cli.console import AsJson, CommandContext, Output, clock, print_output, remark, row, say
from confide_proxy.errors import InputError

END_S: Final = 20.0
"""Seconds in which a runner that is stopped must report its run to the daemon."""
_MARKS: Final = {True: "ok", None: "note", False: "no"}


def runner(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Do the one run that is due next, then end.")] = False,
    init: Annotated[
        bool, typer.Option("--init", help="Write runner.toml, with all options and their defaults.")
    ] = False,
    printed: Annotated[bool, typer.Option("--print", help="With --init: print it, and write nothing.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check which recipes and parts of the sandbox work on this device.")
    ] = False,
    runs: Annotated[bool, typer.Option("--runs", help="List the runs that this device began, newest first.")] = False,
    most: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="With --runs: how many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Do the runs that are due, one after the other, until you stop it."""
    here: CommandContext = context.obj
    if sum((once, init, check, runs)) > 1:
        raise typer.BadParameter("name one of --once, --init, --check and --runs")
    doing.begin()
    try:
        if init:
            found = _init(here, is_printed=printed)
        elif check:
            found = asyncio.run(_check(here))
        elif runs:
            found = _list_runs(here, most)
        elif once:
            found = asyncio.run(_once(here))
        else:
            asyncio.run(_serve(here, once=False))
            return
    finally:
        doing.end()
    print_output(found, as_json=as_json)


def _init(here: CommandContext, *, is_printed: bool) -> Output:
    text = resources.files("confide_night.runner.settings").joinpath("runner.toml").read_text("utf-8")
    if is_printed:
        return Output({"text": text}, text.rstrip("\n"))
    path = _file(here)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # The user owns the folder and may let others read the rest of it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | portable.NO_LINK | portable.CLOSED, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            f"{path} already exists", hint="confide task runner --init --print prints the default one"
        ) from None
    message = f"wrote {path}: add a model's key and your repositories there, then run confide task runner --check"
    return Output({"path": str(path)}, message)


async def _check(here: CommandContext) -> Output:
    trial.check_libraries()
    found = [each async for each in trial.findings(_settings(here), folder_of(here.paths))]

    def print_text() -> None:
        for each in found:
            row(f"{_MARKS[each.is_good]:<6}{each.name}: {each.text}")
            if each.hint and not each.is_good:
                row(f"      hint: {each.hint}")

    data = [{"name": each.name, "good": each.is_good, "told": each.text, "hint": each.hint} for each in found]
    return Output(data, print_text, exit_code=EXIT_CONFIG if any(each.is_good is False for each in found) else 0)


async def _once(here: CommandContext) -> Output:
    state = await _serve(here, once=True)
    if state is None:
        return Output({"state": None}, "nothing is due")
    return Output({"state": state}, lambda: None, exit_code=0 if state == "succeeded" else 1)


def _list_runs(here: CommandContext, most: int) -> Output:
    found = newest(folder_of(here.paths), most)

    def print_text() -> None:
        for begun, began, ended in found:
            row(f"{begun.slot}  {clock(began)}  {ended or 'running, or lost'}")
        if not found:
            remark("this device has begun no run yet")

    data = [
        {"task": begun.task, "at": begun.at, "attempt": begun.attempt, "began": began, "ended": ended or None}
        for begun, began, ended in found
    ]
    return Output(data, print_text)


async def _serve(here: CommandContext, *, once: bool) -> str | None:
    service = RunnerService(here.paths, here.config, _settings(here))
    service.tell = lambda line: _print(remark, f"{time.strftime('%H:%M:%S')} {line}")
    service.supervisor.on_begin = lambda begun, recipe: _print(
        say, f"{clock(time.time())}  {begun.slot} begins: {recipe.name}"
    )
    service.supervisor.on_end = lambda begun, state, result: _print(
        say, f"{clock(time.time())}  {end_message(begun, state, result)}"
    )

    def stop() -> None:
        service.stop()
        timer = threading.Timer(END_S, os._exit, (1,))
        timer.daemon = True
        timer.start()

    portable.call_on_signals(asyncio.get_running_loop(), portable.ending_signals(), stop)
    return await service.run(once=once)


def _print(write: Callable[[str], None], line: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that has gone must not take a run's report along
        write(line)


def _file(here: CommandContext) -> Path:
    return here.paths.config.with_name(recipes.NAME)


def _settings(here: CommandContext) -> RunnerSettings:
    return recipes.read(_file(here))
