"""How the commands of both programs are run and speak: data to stdout, the rest to stderr, and how a person is asked."""

from __future__ import annotations

import getpass
import inspect
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TextIO

import typer

from confide_memory.commands.doing import doing as doing
from confide_memory.commands.doing import has_styles

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal (C0 but newline and tab, DEL, C1), turns a line around, or cannot be written."""


class Output(NamedTuple):
    """What a command has done or found.

    Attributes:
        data: for programs: what `--json` prints.
        tell: for people: a text for stdout, its lines, each as `row` writes it, or what says it.
        notes: for people, beside the one or the other.
        exit_code: what the command ends with.
        empty: for people, where there are no lines.
    """

    data: Any
    tell: str | Iterable[str] | Callable[[], None] = ()
    notes: Sequence[str] = ()
    exit_code: int = 0
    empty: str = ""


Work = Callable[..., Output | Coroutine[Any, Any, Output] | None]


def commands(
    options: Mapping[str, tuple[Any, Any]], here: Callable[..., Any], *, indent: int | None
) -> Callable[[Work], Callable[..., None]]:
    """The decorator for a program's commands: it makes of `work` what typer takes, which prints the output as text or, with `--json`, as
    JSON, and ends with its code.

    `work` is called with what `here` gives, and with the command's options; of `--json` it learns only if it has a parameter `as_json`.
    What waits for a person by a blocking read is no coroutine, since Ctrl-C would not end it. None says that all is printed already.

    Args:
        options: those that all commands have, with their annotations and defaults; `here` is called with their values and `as_json`.
        indent: of JSON; None is all in one line.
    """

    def command(work: Work) -> Callable[..., None]:
        signature = inspect.signature(work, eval_str=True)
        _, *own = signature.parameters.values()
        keyword = inspect.Parameter.KEYWORD_ONLY
        shown = [
            inspect.Parameter(name, keyword, annotation=of, default=value) for name, (of, value) in options.items()
        ]
        shown += [each.replace(kind=keyword) for each in own if each.name != "as_json"]
        shown.append(inspect.Parameter("as_json", keyword, default=False, annotation=AsJson))

        @wraps(work)
        def run(as_json: bool = False, **given: Any) -> None:
            place = here(**{name: given.pop(name) for name in options}, as_json=as_json)
            if "as_json" in signature.parameters:
                given["as_json"] = as_json
            try:
                found = work(place, **given)
                if inspect.iscoroutine(found):
                    import asyncio  # 30 ms, which most commands of confided do without

                    found = asyncio.run(found)
            finally:
                doing.end()
            if isinstance(found, Output):
                print_output(found, indent, as_json=as_json)

        # What typer makes the options from.
        run.__dict__["__signature__"] = inspect.Signature(shown)
        run.__annotations__ = {each.name: each.annotation for each in shown}
        return run

    return command


def print_output(output: Output, indent: int | None = 2, *, as_json: bool) -> None:
    """Print a command's output as text or JSON. Raises typer.Exit: with its exit code, where that is not 0."""
    if as_json:
        print_json(output.data, indent=indent)
    elif isinstance(output.tell, str):
        say(output.tell)
    elif callable(output.tell):
        output.tell()
    else:
        lines = list(output.tell)
        for line in lines:
            row(line)
        if output.empty and not lines:
            remark(output.empty)
    note(*output.notes)
    if output.exit_code:
        raise typer.Exit(output.exit_code)


@cache
def terminal(*, stderr: bool = False) -> Console:
    """For tables and bars: `rich` takes longer to load than a command may run, so what is only text goes by `say` and `remark`."""
    from rich.console import Console

    # Without emoji: `:lock:` in somebody's note is what they wrote.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


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
        remark(one_line(warning if warning.startswith(("hint: ", "note: ")) else f"note: {warning}"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 note`, `2 notes`; `plural` is for a noun that takes no s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size(count: float) -> str:
    """A number of bytes as people read it."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == _UNITS[0] or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def clock(time_s: float, *, seconds: bool = False) -> str:
    """A time of day as people read it here, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z" if seconds else "%Y-%m-%d %H:%M %Z", time.localtime(time_s))


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """A command's data for programs."""
    sys.stdout.write(json_text(value, indent=indent) + "\n")


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


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


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


async def typed(question: str) -> str:
    """The line that the person at the terminal types; "" at the end of the input. Waits as `confirmed` does."""
    with doing.paused():
        _write(sys.stderr, f"{shown(question)}: ", end="")
        return (await _line()).strip()


def unseen(prompt: str) -> str:
    """What a person types at the terminal without its being seen, or the next line of stdin; "" at the end of the input. What is secret
    is never an argument or a variable, which others could see."""
    if not sys.stdin.isatty():
        return sys.stdin.readline(_MOST_TYPED).rstrip("\r\n")
    try:
        with doing.paused():
            return getpass.getpass(f"{prompt}: ")
    except EOFError:
        return ""


_MOST_TYPED: Final = 4096


async def _line() -> str:
    import asyncio

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
