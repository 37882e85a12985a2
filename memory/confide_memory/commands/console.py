"""Input and output of the commands of both programs: data goes to stdout, all other text to stderr,
and users are asked questions.
"""

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
"""Characters that control a terminal (C0 except newline and tab, DEL, C1), change the direction of
text, or cannot be encoded.
"""


class Output(NamedTuple):
    """The result of a command.

    Attributes:
        data: the value that `--json` prints, for programs.
        tell: output for people: a text, or lines that are each printed by `row`, or a function that
            prints it itself.
        notes: notes for people, printed to stderr with text and with JSON.
        exit_code: the exit code of the command.
        empty: text for people that is printed if there are no lines.
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
    """Return a decorator for the functions that carry out a program's commands (`work`). The
    decorated function is for typer: it prints the output as text or, with `--json`, as JSON, and
    exits with its code.

    `work` is called with the result of `here` and the command's options; it gets `--json` only if
    it has a parameter `as_json`. It may return None if it has printed everything itself. Work that
    waits for the user in a blocking read must not be a coroutine, since Ctrl-C would not end it.

    Args:
        options: options of all commands, with their annotations and defaults.
        here: called with the values of `options` and `as_json` before each command.
        indent: indent of JSON; None prints one line.
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
                    import asyncio  # 30 ms, which most commands of confided do not need

                    found = asyncio.run(found)
            finally:
                doing.end()
            if isinstance(found, Output):
                print_output(found, indent, as_json=as_json)

        # typer derives the options from these.
        run.__dict__["__signature__"] = inspect.Signature(shown)
        run.__annotations__ = {each.name: each.annotation for each in shown}
        return run

    return command


def print_output(output: Output, indent: int | None = 2, *, as_json: bool) -> None:
    """Print a command's output as text or JSON. Raises typer.Exit with the output's exit code if
    that is not 0.
    """
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
    """Return a `rich` console for tables and progress bars.

    For plain text use `say` and `remark`, since loading `rich` takes longer than many commands run.
    """
    from rich.console import Console

    # Without emoji, so that `:lock:` in a note stays as written.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


def shown(text: str) -> str:
    """Return a text with its control characters replaced, so that it is safe to print to a
    terminal.

    A note, a name or an error may come from another device, an import or a malicious daemon. An
    escape sequence in it could write to the clipboard, rename the window, or overwrite other
    output. All output of commands uses this function, so that no command can forget it.
    """
    return _STEERING.sub("?", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a text like `shown`, but on a single line, so that it cannot imitate a line of this
    program.
    """
    return shown(text).replace("\n", "?")


def row(text: str) -> None:
    """Print one line of a list, wrapped to the terminal's width by `wrap_line`."""
    say("\n".join(wrap_line(one_line(text))))


def wrap_line(line: str, indent: int | None = None) -> list[str]:
    """Wrap a line between words to the terminal's width. In a pipe the line stays whole.

    Continuation lines are indented, so that wrapped text cannot imitate a line of this program.

    Args:
        indent: number of columns to indent; by default as wide as the first column of the line.
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
    """A text that is safe to print, with terminal styles between its parts if the terminal supports
    them.
    """

    __slots__ = ()


def styled(*parts: str | tuple[str, str]) -> Styled:
    """Return a text for `say` from parts. Each part is a plain text, or a pair of a text and the
    name of a style in `_STYLES`.
    """
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
    """Print a command's text to stdout. A `Styled` text keeps its styles."""
    _write(sys.stdout, text if isinstance(text, Styled) else shown(text))


def remark(text: str) -> None:
    """Print a message for the user to stderr."""
    _write(sys.stderr, shown(text))


def _write(stream: TextIO, text: str, *, end: str = "\n") -> None:
    with doing.erase():
        stream.write(_writable(f"{text}{end}", stream))
        stream.flush()


def _writable(text: str, stream: TextIO) -> str:
    """Return a text with `?` for characters that the stream's encoding lacks, so that LANG=C shows
    the rest.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def note(*warnings: str) -> None:
    """Print warnings, each on its own line, to stderr. They are from the daemon or from this
    device.
    """
    for warning in warnings:
        remark(one_line(warning if warning.startswith(("hint: ", "note: ")) else f"note: {warning}"))


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 note`, `2 notes`; `plural` is for an irregular noun."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size(count: float) -> str:
    """Return a number of bytes in a form for people to read."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == _UNITS[0] or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def clock(time_s: float, *, seconds: bool = False) -> str:
    """Return a time (seconds since 1970) in local time with its time zone; with the seconds if
    `seconds` is true.
    """
    return time.strftime("%Y-%m-%d %H:%M:%S %Z" if seconds else "%Y-%m-%d %H:%M %Z", time.localtime(time_s))


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a command's result as JSON. With an `indent` of None it is a single line."""
    sys.stdout.write(json_text(value, indent=indent) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON. Letters of other alphabets are not escaped, so that people can read
    it, but control characters are, so that it is safe to print.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


async def ask_confirmation(question: str) -> bool:
    """Ask the user at the terminal; return True for yes. The end of the input means no.

    Connections of the command stay alive meanwhile, since comparing words on another device takes a
    user minutes, and Ctrl-C ends the wait at once. A reading thread, or a read on the event loop,
    would block both.
    """
    while True:
        with doing.pause():
            _write(sys.stderr, f"{shown(question)} [y/N]: ", end="")
            line = await _line()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
        remark("please say y or n")


def can_ask() -> bool:
    """Return True if both stdin and stdout are a terminal, so that the user can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_yes_no(question: str, *, by_default: bool = False) -> bool:
    """Ask the user like `ask_confirmation`, for commands without an open connection. Enter alone
    means `by_default`.
    """
    while True:
        with doing.pause():
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


async def read_line(question: str) -> str:
    """Read a line that the user types; "" at the end of the input. It waits in the same way as
    `ask_confirmation`.
    """
    with doing.pause():
        _write(sys.stderr, f"{shown(question)}: ", end="")
        return (await _line()).strip()


def unseen(prompt: str) -> str:
    """Read a secret: a line from the terminal without echo, or the next line of stdin if that is no
    terminal. "" at the end of the input.

    Secrets are never read from arguments or environment variables, which other users could see.
    """
    if not sys.stdin.isatty():
        return sys.stdin.readline(_MOST_TYPED).rstrip("\r\n")
    try:
        with doing.pause():
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
        return sys.stdin.readline()  # stdin is a file, where a read never waits
    except NotImplementedError:  # Windows, whose loop cannot wait for a console; connections live on meanwhile
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        # A terminal delivers whole lines.
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
