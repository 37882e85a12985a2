"""A program's commands in groups, each loaded when it is asked for: subclasses of typer's own.

Whoever types a command waits for what it imports, so the list of commands (`entries`) holds their names and lines alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from confide_memory.commands import entries
from confide_memory.commands.entries import Entry, Groups
from confide_memory.commands.spelling import OtherWords, Words, meant, read_words
from confide_memory.commands.values import plain

More = Callable[[], tuple[Iterable[entries.Command], OtherWords]]
"""Commands that are not the program's own, and what people type for them."""

_COMPLETION: Final = ("--install-completion", "--show-completion")
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")


class _Ours:
    """What all commands have: values that are read without pydantic, and examples at the end of their help, as they are typed."""

    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        return [plain(each) for each in super().get_params(ctx)]  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {example}\n" for example in self.epilog.splitlines()))


class ProgramCommand(_Ours, TyperCommand):
    """One command."""


class CommandGroup(_Ours, TyperGroup):
    """Commands of which one is chosen. Without one it prints its help; `help COMMAND` is `COMMAND --help`."""

    other_words: OtherWords = MappingProxyType({})
    option_words: OtherWords = MappingProxyType({})

    def sections(self) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        """The commands with their lines, by heading."""
        shown = ((name, each.help or "") for name, each in self.commands.items() if not each.hidden)
        yield "Commands", [(name, text.partition("\n\n")[0].replace("\n", " ")) for name, text in shown]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for heading, rows in self.sections():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        word = args[0]
        if word.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, word) is not None:
            return super().resolve_command(ctx, args)
        near: str | None = None
        # In a group people also try what is done outside of it, as to revoke a machine.
        for outer in (ctx, ctx.parent):
            if near is None and outer is not None:
                found = meant(word, outer.command.list_commands(outer), ctx.find_root().command.other_words)
                near = found and f"{outer.command_path} {found}"
        if near is None and (option := meant(word, long_options(ctx), {})):
            near = f"{ctx.command_path} --{option}"
        raise UnknownCommandError(ctx, word, near)


class UnknownCommandError(typer.TyperException):
    """There is no such command; `near` is one, whole, that was probably meant."""

    exit_code = 2

    def __init__(self, ctx: typer.Context, word: str, near: str | None) -> None:
        super().__init__(f"there is no command '{word[:80]}'")
        self.ctx = ctx
        everything = f"{ctx.command_path} --help lists all commands"
        self.hint = f"did you mean {near}? {everything}" if near else everything


class CommandProgram(CommandGroup):
    """The commands of a program, each loaded when it is asked for; `app` makes one."""

    package: str
    own: Groups
    more: More
    _all: Groups | None = None

    @property
    def groups(self) -> Groups:
        """Those of add-ons with the others, as the help shows them."""
        if self._all is None:
            commands, words = self.more()
            self._all = entries.placed(self.own, commands)
            self.other_words = {**self.other_words, **words}
        return self._all

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) == 2 and args[0] in _COMPLETION and args[1] in _SHELLS:
            # typer asks which shell it runs in; one that is named its callbacks take as well, and end the command.
            option = next(each for each in self.get_params(ctx) if args[0] in each.opts)
            option.callback(ctx, option, args[1])
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [entry.name for each in self.groups.values() for entry in each]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in self.commands:
            below, entry = f"{self.package}.", _named(self.own, cmd_name)
            if entry is None:
                below = ""  # of an add-on the whole name is given
                entry = _named(self.groups, cmd_name)
            if entry is not None:
                self.commands[cmd_name] = _made(entry, below)
        return self.commands.get(cmd_name)

    def sections(self) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        for heading, each in self.groups.items():
            yield heading, [(entry.name, entry.line) for entry in each if not entry.is_hidden]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write_paragraph()
        formatter.write_text(self.epilog or "")


def _named(groups: Groups, name: str) -> Entry | None:
    return next((entry for each in groups.values() for entry in each if entry.name == name), None)


def app(
    name: str, package: str, groups: Groups, words: tuple[Words, Words], more: More, *, help: str, epilog: str
) -> typer.Typer:
    """A program's app for typer.

    Args:
        package: where the modules of its commands are.
        words: what people type for its commands, and for options.
        more: gives the commands of add-ons, and what people type for them; called once, and only where one of them may be meant.
    """
    other_words, option_words = map(read_words, words)
    own = {"package": package, "own": groups, "more": staticmethod(more)}
    cls = type("Program", (CommandProgram,), {**own, "other_words": other_words, "option_words": option_words})
    settings = {"help_option_names": ["--help", "-h"]}
    return typer.Typer(
        name=name,
        cls=cls,
        context_settings=settings,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=help,
        epilog=epilog,
    )


def _made(entry: Entry, below: str) -> Any:
    """The command of an entry, whose place is a function or an app of typer's."""
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(f"{below}{module}"), attribute or entry.name)
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    parent.callback()(_nothing)
    if isinstance(found, typer.Typer):
        _of_ours(found)
        cls = found.info.cls if isinstance(found.info.cls, type) else CommandGroup
        parent.add_typer(found, name=entry.name, cls=cls, help=entry.line, epilog=entry.examples)
    else:
        more = inspect.getdoc(found) or ""
        text = more if more.startswith(entry.line.rstrip(".")) else f"{entry.line}\n\n{more}"
        of = getattr(found, "command_class", ProgramCommand)
        parent.command(entry.name, cls=of, help=text, epilog=entry.examples, hidden=entry.is_hidden)(found)
    return typer.main.get_group(parent).commands[entry.name]


def _nothing() -> None:
    """Makes typer keep a group of one command a group."""


def _of_ours(app: typer.Typer) -> None:
    """Have typer make the commands of an app, and those of its groups, of our classes."""
    for command in app.registered_commands:
        command.cls = ProgramCommand
    for group in app.registered_groups:
        group.cls = CommandGroup
        _of_ours(group.typer_instance or app)


def parsed_by(cls: type[ProgramCommand]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command whose arguments are read in a way of its own."""

    def mark(run: Callable[..., None]) -> Callable[..., None]:
        run.__dict__["command_class"] = cls
        return run

    return mark


def long_options(context: typer.Context) -> list[str]:
    """The options of a context's command that begin with two hyphens, without these."""
    known = context.command.get_params(context)
    names = (name for each in known for name in (*each.opts, *each.secondary_opts))
    return [name.removeprefix("--") for name in names if name.startswith("--")]
