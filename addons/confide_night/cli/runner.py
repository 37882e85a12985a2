"""`confide runner`: do what was ordered, in sandboxes, within a budget (docs/runner.md)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import EXIT_CONFIG
from confide_memory.commands.doing import doing
from confide_night.runner.settings import recipes
from confide_night.runner.settings.recipes import RunnerSettings
from confide_proxy.cli.console import CommandContext, Output, clock, command, remark, row, say
from confide_proxy.errors import InputError

runner_app = typer.Typer()
END_S: Final = 20.0
"""Within which a runner that is told to end has told the daemon of its run."""
_MARKS: Final = {True: "ok", None: "note", False: "no"}


@runner_app.callback(invoke_without_command=True)
def runner(context: typer.Context) -> None:
    """Do what is due, one run after the other, until it is ended."""
    if context.invoked_subcommand is not None:
        return
    here: CommandContext = context.obj
    doing.begin()
    try:
        asyncio.run(_serve(here, once=False))
    finally:
        doing.end()


@runner_app.command("init")
@command
def init(
    here: CommandContext,
    shown: Annotated[bool, typer.Option("--print", help="Print it, and write nothing.")] = False,
) -> Output:
    """Write runner.toml, with every option at its default and a word about each."""
    text = resources.files("confide_night.runner.settings").joinpath("runner.toml").read_text("utf-8")
    if shown:
        return Output({"text": text}, text.rstrip("\n"))
    path = _file(here)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # The folder is people's own, who may let others read the rest of it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            f"{path} is there already", hint="confide runner init --print shows what it would be"
        ) from None
    told = f"wrote {path}: name a key of a model and your repositories there, then confide runner check"
    return Output({"path": str(path)}, told)


@runner_app.command("check")
@command
async def check(here: CommandContext) -> Output:
    """Say what of the recipes works on this machine, and what does not."""
    from confide_night.runner import trial
    from confide_night.runner.runner_service import folder_of

    trial.check_libraries()
    found = [each async for each in trial.findings(_settings(here), folder_of(here.paths))]

    def print_text() -> None:
        for each in found:
            row(f"{_MARKS[each.is_good]:<6}{each.name}: {each.told}")
            if each.hint and not each.is_good:
                row(f"      hint: {each.hint}")

    data = [{"name": each.name, "good": each.is_good, "told": each.told, "hint": each.hint} for each in found]
    return Output(data, print_text, exit_code=EXIT_CONFIG if any(each.is_good is False for each in found) else 0)


@runner_app.command("run")
@command
async def run(here: CommandContext) -> Output:
    """Do the one run that is due next, if there is one, and end."""
    state = await _serve(here, once=True)
    if state is None:
        return Output({"state": None}, "nothing is due")
    return Output({"state": state}, lambda: None, exit_code=0 if state == "succeeded" else 1)


@runner_app.command("ls")
@command
def list_runs(
    here: CommandContext, most: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20
) -> Output:
    """List what this machine has begun, the last first, and how it ended."""
    from confide_night.runner.books import newest
    from confide_night.runner.runner_service import folder_of

    found = newest(folder_of(here.paths), most)

    def print_text() -> None:
        for begun, began, ended in found:
            row(f"{begun.slot}  {clock(began)}  {ended or 'running, or lost'}")
        if not found:
            remark("this machine has begun nothing yet")

    data = [
        {"task": begun.task, "at": begun.at, "attempt": begun.attempt, "began": began, "ended": ended or None}
        for begun, began, ended in found
    ]
    return Output(data, print_text)


async def _serve(here: CommandContext, *, once: bool) -> str | None:
    # Loaded late: the list of commands does without all of it.
    from confide_night.runner.runner_service import RunnerService, end_message

    service = RunnerService(here.paths, here.config, _settings(here))
    service.tell = lambda line: remark(f"{time.strftime('%H:%M:%S')} {line}")
    service.supervisor.on_begin = lambda begun, recipe: say(f"{clock(time.time())}  {begun.slot} begins: {recipe.name}")
    service.supervisor.on_end = lambda begun, state, result: say(
        f"{clock(time.time())}  {end_message(begun, state, result)}"
    )

    def stop() -> None:
        service.stop()
        timer = threading.Timer(END_S, os._exit, (1,))
        timer.daemon = True
        timer.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return await service.run(once=once)


def _file(here: CommandContext) -> Path:
    return here.paths.config.with_name(recipes.NAME)


def _settings(here: CommandContext) -> RunnerSettings:
    return recipes.read(_file(here))
