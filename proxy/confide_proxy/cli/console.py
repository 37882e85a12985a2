"""What the commands share: where they run, how one is run and speaks (data to stdout, the rest to stderr), how a person is asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TextIO

import typer
from typer.core import TyperCommand

from confide_crypto.errors import ConfideError
from confide_memory.commands.help import has_styles
from confide_memory.documents import MAX_TEXT_BYTES
from confide_proxy.cli.doing import doing
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import DeclinedError, FolderError, InputError
from confide_proxy.link import founding
from confide_proxy.paths import Paths
from confide_proxy.sync import project as projects
from confide_proxy.sync.project import Basis
from confide_proxy.sync.project_names import allow, named

if TYPE_CHECKING:
    from rich.console import Console

    from confide_proxy.mcp.client import Client
    from confide_proxy.sync.project import Project

ProjectDir = Annotated[
    Path, typer.Option("--project", "-p", metavar="DIR", help="The project's folder.", show_default="here")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEADLINE_S: Final = 30.0
"""Of one request to the daemon."""
QUESTION_S: Final = 4.0
"""Until somebody who only asks is told that the daemon does not answer."""


@cache
def terminal(*, stderr: bool = False) -> Console:
    """For tables and bars: `rich` takes longer to load than a command may run, so what is only text goes by `say` and `remark`."""
    from rich.console import Console

    # Without emoji: `:lock:` in somebody's note is what they wrote.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


RECODE: Final = "save or send it as UTF-8: iconv -f latin1 -t utf-8"

_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal (C0 but newline and tab, DEL, C1), turns a line around, or cannot be written."""


class Here(NamedTuple):
    """Where the files of this machine are, and how they are configured."""

    paths: Paths
    config: ProxyConfig

    def client(self, project: Project, *, patience_s: float | None = None) -> Client:
        """A connection for the project; use with `async with`. Raises, on entry, what `Client` does.

        Args:
            patience_s: how long it may take to reach a daemon that is there; the link's own deadline if left out.
        """
        doing.begin()
        from confide_proxy.mcp.client import Client

        return Client(self.paths, self.config, project, tell=doing, patience_s=patience_s)


class Output(NamedTuple):
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
        doing.begin()
        try:
            found = work(context.obj, **options)
            output = found if isinstance(found, Output) else asyncio.run(found)
        finally:
            doing.end()
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


def input_text() -> str:
    """All of stdin. Raises InputError: it is not UTF-8, or too large for memory."""
    # A test's stdin may be a text alone.
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1) if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"the input is over {MAX_TEXT_BYTES // 2**20} MiB", hint="store it in parts")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the input is not UTF-8 text (byte {error.start})", hint=RECODE) from None


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


async def identified(here: Here, folder: Path, *, is_written: bool = False) -> Project:
    """The project of a folder, as `--project` names it. Where it is new here the daemon is asked, and a person told what it calls itself.

    In the home folder, or at the root of the disk, there is no project but the memory that all share.

    Args:
        is_written: the command is about to make memory of the project, and so there has to be one.

    Raises typer.BadParameter, NotSetUpError, NotJoinedError, KeyFileError; FolderError: there is no project.
    """
    # What is decided about a folder is kept, and on a machine that nobody has set up nothing is.
    await asyncio.to_thread(founding.require, here.paths, here.config)
    claim = await asyncio.to_thread(projects.identify, folder_of(folder))
    if not claim.is_project:
        what = (
            "is the root of the disk, and no project"
            if claim.root.parent == claim.root
            else "is your home folder, and no project"
        )
        if is_written:
            raise FolderError(str(claim.root), what, hint="cd to a project's folder, or name it with --project")
        note(f"{claim.root} {what}: only the memory that all projects share is here")
        return projects.shared(here.paths.global_folder)
    found = await named(here.paths, here.config, claim)
    if found.is_new and found.project.claim and await _is_the_same(here, found.project):
        return await asyncio.to_thread(allow, here.paths, claim)
    if found.is_new and (found.project.claim or claim.basis is Basis.FILE):
        note(found.notice)
    return found.project


async def _is_the_same(here: Here, project: Project) -> bool:
    """Whether a person at a terminal says that a folder is the project of the space whose name it claims. Enter is a no: whoever made an
    archive chose the name of its folder."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    from confide_memory.answers import ask

    try:
        async with here.client(project, patience_s=QUESTION_S) as client:
            known = await ask(client.connection, "projects", {"project": project.name}, timeout_s=DEADLINE_S)
            files = next((each["files"] for each in known["projects"] if each["name"] == project.claim), 0)
            body = {"project": project.claim, "limit": 1}
            newest = (
                await ask(client.connection, "documents", body, timeout_s=DEADLINE_S) if files else {"documents": []}
            )
    except (ConfideError, TimeoutError):
        return False  # the notice says how it is done later
    if not files:
        return False
    of = f" of {newest['documents'][0]['author']}" if newest["documents"] else ""
    return await confirmed(f"is this the project {project.claim}{of} ({counted(files, 'file')})?")


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
    """One line of a list, `fitted`."""
    say("\n".join(fitted(one_line(text))))


def fitted(line: str, indent: int | None = None) -> list[str]:
    """A line as a terminal shows it: one that is wider goes on below, broken between words, where its second column begins. Never at the
    edge: what begins there only this program may say. In a pipe a line is a line.

    Args:
        indent: the columns before what goes on; by its first column if left out.
    """
    if not sys.stdout.isatty() or len(line) <= (width := shutil.get_terminal_size().columns):
        return [line]
    if indent is None:
        first = _FIRST_COLUMN.match(line)
        indent = first.end() if first else _INDENT
    indent = indent if indent <= width // 2 else _INDENT
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
        expand_tabs=False,
        replace_whitespace=False,
    )


_FIRST_COLUMN: Final = re.compile(r" *\S+ {2,}")
_INDENT: Final = 4


class Styled(str):
    """A text of parts that are `shown`, with styles between them where the terminal has any."""

    __slots__ = ()


def styled(*parts: str | tuple[str, str]) -> Styled:
    """A text for `say`, of parts as they are or with a style each, one of `_STYLES`."""
    has = has_styles(sys.stdout)
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Styled(
        "".join(f"{_STYLES[style]}{shown(text)}\033[0m" if style and has else shown(text) for text, style in pairs)
    )


_STYLES: Final = {
    "bold": "\033[1m",
    "dim": "\033[2m",
    "red": "\033[1;31m",
    "green": "\033[32m",
    "yellow": "\033[33m",
    "cyan": "\033[36m",
}


def say(text: str) -> None:
    """A line or more of a command's text; with styles where it is `styled`."""
    _write(sys.stdout, text if isinstance(text, Styled) else shown(text))


def remark(text: str) -> None:
    """What a person should know beside it, on stderr."""
    _write(sys.stderr, shown(text))


def _write(stream: TextIO, text: str, *, end: str = "\n") -> None:
    with doing.cleared():
        stream.write(_writable(f"{text}{end}", stream))
        stream.flush()


def _writable(text: str, stream: TextIO) -> str:
    """A text with `?` for what the stream's encoding lacks: under LANG=C somebody still wants to read the rest."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def note(*warnings: str) -> None:
    """What the daemon or this machine has to remark."""
    for warning in warnings:
        remark(one_line(warning if warning.startswith("hint: ") else f"note: {warning}"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 note`, `2 notes`; `plural` is for a noun that takes no s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def seconds(duration: str, units: str, *, most_days: int, option: str, examples: str) -> int:
    """The seconds of a duration such as `15m`, in one of these units. Raises typer.BadParameter."""
    match = re.fullmatch(rf"(\d{{1,9}})([{units}])", duration.strip())
    found = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0
    if not 0 < found <= most_days * 86400:
        raise typer.BadParameter(f"a time looks like {examples}, and is at most {most_days}d", param_hint=option)
    return found


def clock(time_s: float) -> str:
    """A time of day as people read it here, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(time_s))


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
        with doing.paused():
            _write(sys.stderr, f"{shown(question)} [y/N]: ", end="")
            line = await _line()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
        remark("please say y or n")


def wanted(question: str, *, by_default: bool = False) -> bool:
    """The same where no connection is open; Enter alone is `by_default`."""
    while True:
        with doing.paused():
            _write(sys.stderr, f"{shown(question)} {'[Y/n]' if by_default else '[y/N]'}: ", end="")
            line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line or answer in ("n", "no"):
            return False
        if not answer:
            return by_default
        remark("please say y or n")


async def agreed(question: str, *, is_sure: bool) -> None:
    """Go on only if a person says yes; with `--yes` nobody is asked. Raises DeclinedError: no, or nobody is there."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise DeclinedError("nobody is here to be asked", hint="run it in a terminal, or with --yes")
    if not await confirmed(question):
        raise DeclinedError("nothing was changed")


async def typed(question: str) -> str:
    """The line that the person at the terminal types; "" at the end of the input. Waits as `confirmed` does."""
    with doing.paused():
        _write(sys.stderr, f"{shown(question)}: ", end="")
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
