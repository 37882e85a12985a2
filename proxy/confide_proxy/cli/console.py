"""What the commands share: where they run, how one is run and speaks (data to stdout, the rest to stderr), how a person is asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from typer.core import TyperCommand

from confide_proxy.config import ProxyConfig
from confide_proxy.paths import Paths
from confide_proxy.sync import project as projects
from confide_proxy.sync.project import Basis
from confide_proxy.sync.project_names import named

if TYPE_CHECKING:
    from confide_proxy.mcp.client import Client
    from confide_proxy.sync.project import Project

ProjectDir = Annotated[Path, typer.Option("--project", "-p", help="The project's folder.", show_default="here")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEADLINE_S: Final = 30.0
"""Of one request to the daemon."""

# Without emoji: `:lock:` in somebody's note is what they wrote.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal (C0 but newline and tab, DEL, C1), turns a line around, or cannot be written."""


@dataclass(frozen=True, slots=True)
class Here:
    """Where the files of this machine are, and how they are configured."""

    paths: Paths
    config: ProxyConfig

    def client(self, project: Project) -> Client:
        """A connection for the project; use with `async with`. Raises, on entry, what `Client` does."""
        from confide_proxy.mcp.client import Client

        return Client(self.paths, self.config, project)


@dataclass(frozen=True, slots=True)
class Output:
    """What a command has done or found.

    Attributes:
        data: for programs: what `--json` prints.
        tell: for people: a text for stdout, or what says it.
        notes: for people, beside the one or the other.
        exit_code: what the command ends with.
    """

    data: Any
    tell: str | Callable[[], None]
    notes: Sequence[str] = ()
    exit_code: int = 0


def command(work: Callable[..., Output | Coroutine[Any, Any, Output]]) -> Callable[..., None]:
    """The command for typer that runs `work`, prints its output as text or, with `--json`, as JSON, and ends with its code.

    `work` is called with a `Here` and the command's options; of `--json` it learns only if it has a parameter `as_json`. What waits for a
    person by a blocking read is no coroutine, since Ctrl-C would not end it.
    """
    signature = inspect.signature(work, eval_str=True)
    _, *parameters = signature.parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    shown = [inspect.Parameter("context", keyword, annotation=typer.Context)]
    shown += [each.replace(kind=keyword) for each in parameters if each.name != "as_json"]
    shown.append(inspect.Parameter("as_json", keyword, default=False, annotation=AsJson))

    @wraps(work)
    def run(context: typer.Context, as_json: bool = False, **options: Any) -> None:
        if "as_json" in signature.parameters:
            options["as_json"] = as_json
        found = work(context.obj, **options)
        output = found if isinstance(found, Output) else asyncio.run(found)
        if as_json:
            print_json(output.data)
        elif isinstance(output.tell, str):
            say(output.tell)
        else:
            output.tell()
        note(*output.notes)
        if output.exit_code:
            raise typer.Exit(output.exit_code)

    # What typer makes the options from.
    run.__dict__["__signature__"] = inspect.Signature(shown)
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


class TakesRevision(TyperCommand):
    """A command with a `--revision`, which is easily written as a bare number behind the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            hint = f"; for an older text: --revision {rest[0]}" if rest[0].isdecimal() else ""
            ctx.fail(f"unexpected argument: {' '.join(rest)}{hint}")
        return rest


def folder_of(project: Path) -> Path:
    """The folder that `--project` names, absolute. Raises typer.BadParameter where it is none."""
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is not a folder", param_hint="--project")
    return project.absolute()


async def identified(here: Here, folder: Path) -> Project:
    """The project of a folder, as `--project` names it. Where it is new here the daemon is asked, and a person told what it calls itself.

    Raises typer.BadParameter, KeyFileError.
    """
    claim = await asyncio.to_thread(projects.identify, folder_of(folder))
    found = await named(here.paths, here.config, claim)
    if found.project.claim or (found.is_new and claim.basis is Basis.FILE):
        note(found.notice)
    return found.project


def shown(text: str) -> str:
    """A text as a terminal may get it. A note, a name or an error may come from another machine, an import or a daemon that lies, and
    an escape sequence in it would write to the clipboard, rename the window, or draw another answer over this one.

    Everything that a command prints goes through here, its own words too: so no command can forget it.
    """
    return _STEERING.sub("?", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A name or a sentence as `shown`, which begins no line of its own: it could say what only this program may say."""
    return shown(text).replace("\n", "?")


def row(text: str) -> None:
    """One line of a list."""
    say(one_line(text))


def say(text: str | Text) -> None:
    """A line or more of a command's text; with styles, a `Text` made of `shown` parts."""
    out.print(shown(text) if isinstance(text, str) else text, markup=False)


def remark(text: str) -> None:
    """What a person should know beside it, on stderr."""
    err.print(shown(text), markup=False)


def note(*warnings: str) -> None:
    """What the daemon or this machine has to remark."""
    for warning in warnings:
        remark(one_line(warning if warning.startswith("hint: ") else f"note: {warning}"))


def replace_file(path: Path, text: str) -> None:
    """Put a text in the place of a person's file, whole or not at all. Raises OSError."""
    target = path.resolve()  # a linked file (dotfiles in a repository) stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(part, flags, mode), "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError:
        with suppress(OSError):  # a read-only disk refuses this as well
            part.unlink()
        raise


def counted(number: int, noun: str) -> str:
    """`1 note`, `2 notes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(duration: str, units: str, *, most_days: int, option: str, examples: str) -> int:
    """The seconds of a duration such as `15m`, in one of these units. Raises typer.BadParameter."""
    match = re.fullmatch(rf"(\d{{1,9}})([{units}])", duration.strip())
    found = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0
    if not 0 < found <= most_days * 86400:
        raise typer.BadParameter(f"a time looks like {examples}, and is at most {most_days}d", param_hint=option)
    return found


def clock(time_s: float) -> str:
    """A time of day as people read it here."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def print_json(value: Any) -> None:
    """A command's data for programs."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in the alphabet that it is written in, which a terminal may get too: people look at it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


async def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes; the end of the input is a no.

    The connections of the command live on meanwhile, since somebody who compares words on another machine takes minutes, and Ctrl-C ends
    the wait at once: a thread that reads, or a read on the event loop, would hold up both.
    """
    while True:
        err.print(f"{shown(question)} [y/N]: ", end="", markup=False, highlight=False, soft_wrap=True)
        line = await _line()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
        remark("please say y or n")


async def typed(question: str) -> str:
    """The line that the person at the terminal types; "" at the end of the input. Waits as `confirmed` does."""
    err.print(f"{question}: ", end="", markup=False, highlight=False, soft_wrap=True)
    return (await _line()).strip()


async def _line() -> str:
    loop = asyncio.get_running_loop()
    is_typed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, is_typed.set)
    except OSError:
        return sys.stdin.readline()  # a file, which never makes anybody wait
    try:
        # A terminal hands out whole lines.
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


_MOST_PART: Final = 200
LINE_S = 5.0
"""Between two plain lines: a log is read afterwards."""


class _Rate(ProgressColumn):
    """Steps per second, of what was done of this part so far."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class SyncProgress:
    """Follows one command through its parts; use with `with`. `follow` is cheap enough to be called for every file."""

    def __init__(self, console: Console) -> None:
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("connecting", total=None)
        self._part = ""
        self._began = self._told = time.monotonic()
        self._began_with = 0.0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def follow(self, done: float, total: float | None, part: str) -> None:
        """So much of this part is done; None where nobody knows how much there is."""
        now = time.monotonic()
        part = one_line(part[:_MOST_PART])
        if total:
            part = part.removeprefix(f"{done:.0f} of {total:.0f} ")  # the daemon says both in words as well
        if part != self._part:
            self._part, self._began, self._began_with = part, now, done
            if self._bar is not None:
                self._bar.reset(self._task, description=part)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif total and now - self._told >= LINE_S:
            self._told = now
            sys.stderr.write(f"confide: {self._line(done, total, now)}\n")

    def _line(self, done: float, total: float, now: float) -> str:
        line = f"{self._part}: {done:,.0f} of {total:,.0f}"
        rate = (done - self._began_with) / max(now - self._began, 0.001)
        if rate <= 0:
            return line
        left_s = round((total - done) / rate)
        return f"{line}, {rate:,.0f}/s, {left_s // 60}:{left_s % 60:02} left"
