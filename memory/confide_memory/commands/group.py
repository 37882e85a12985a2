"""A program's commands in groups, each loaded when it is asked for, with help and complaints in one style.

Whoever types a command waits for what it imports, so the list of commands holds their names and lines alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from confide_memory.commands import help as pages
from confide_memory.commands.complaint import TYPED, long_options
from confide_memory.commands.entries import Command, placed
from confide_memory.commands.entries import Entry as Entry
from confide_memory.commands.entries import Groups as Groups
from confide_memory.commands.shared_options import CHOSEN_SHELL, COMPLETION, SHELLS, shared_options
from confide_memory.commands.spelling import OtherWords, meant
from confide_memory.commands.values import Value

More = Callable[[], tuple[Iterable[Command], OtherWords]]
"""Commands that are not the program's own, and what people type for them."""


class Context(typer.Context):
    """A context whose help is ours."""

    def get_help(self) -> str:
        sections = self.command.sections() if isinstance(self.command, Commands) else ()
        return pages.page(self, sections)

    def get_usage(self) -> str:
        return pages.usage(self)


class Commands(TyperGroup):
    """Commands of which one is chosen. Without one it prints its help; `help COMMAND` is `COMMAND --help`."""

    other_words: OtherWords = MappingProxyType({})
    option_words: OtherWords = MappingProxyType({})

    def sections(self) -> Iterator[tuple[str, pages.Rows]]:
        """The commands with their lines, by heading."""
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        yield (
            "Commands",
            [(name, (command.help or "").partition("\n\n")[0].replace("\n", " ")) for name, command in shown],
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) == 2 and args[0] in COMPLETION and args[1] in SHELLS:
            ctx.meta[CHOSEN_SHELL] = args.pop()
        if args[:1] == ["help"] and "help" not in self.commands:
            args = [*args[1:], "--help"]
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        word = args[0]
        if word in self.commands or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if (near := self._meant(word)) is not None:
            raise UnknownCommandError(ctx, word, f"{ctx.command_path} {near}")
        # In a group people also try what is done outside of it, as to revoke a machine.
        outer = ctx.parent
        if outer is not None and isinstance(outer.command, Commands) and (near := outer.command._meant(word)):
            near = f"{outer.command_path} {near}"
        elif option := meant(word, [name.removeprefix("--") for name in long_options(self)], {}):
            near = f"{ctx.command_path} --{option}"
        raise UnknownCommandError(ctx, word, near)

    def _meant(self, word: str) -> str | None:
        return meant(word, list(self.commands), self.other_words)


class UnknownCommandError(typer.TyperException):
    """There is no such command; `near` is one, whole, that was probably meant."""

    exit_code = 2

    def __init__(self, ctx: typer.Context, word: str, near: str | None) -> None:
        super().__init__(f"there is no command '{word[:80]}'")
        self.ctx = ctx
        everything = f"{ctx.command_path} --help lists all commands"
        self.hint = f"did you mean {near}? {everything}" if near else everything


class _Loaded(MutableMapping[str, Any]):
    """Commands by their names, each made when it is first looked at; those that are not the program's own are asked for when one is looked
    for that is not among these, or all are."""

    def __init__(self, package: str, groups: Groups, other_words: OtherWords, more: More | None) -> None:
        self._package = package
        self._groups = groups
        self._more = more
        self._entries = _by_name(groups)
        self._own = frozenset(self._entries)
        self._made: dict[str, Any] = {}
        self.other_words = dict(other_words)

    @property
    def groups(self) -> Groups:
        """All of them, as the help shows them."""
        if self._more is not None:
            (commands, words), self._more = self._more(), None
            self._groups = placed(self._groups, commands)
            self._entries = _by_name(self._groups)
            self.other_words.update(words)
        return self._groups

    @property
    def _all(self) -> Mapping[str, Entry]:
        return self._entries if self.groups else {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            entry = self._entries[name] if name in self._entries else self._all[name]
            made = self._made[name] = _made(self._package if name in self._own else "", entry)
            if isinstance(made, Commands):
                made.other_words = self.other_words
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _by_name(groups: Groups) -> dict[str, Entry]:
    return {entry.name: entry for entries in groups.values() for entry in entries}


def program(
    package: str, groups: Groups, other_words: OtherWords, option_words: OtherWords, more: More | None = None
) -> type[Commands]:
    """The class of a program's group for `typer.Typer(cls=…)`.

    Args:
        package: where the modules of its commands are.
        other_words: what people type for a command of another name.
        option_words: the same of options, without their hyphens.
        more: gives the commands of add-ons, and what people type for them; called once, and only where one of them may be meant.
    """

    class Program(Commands):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.loaded = _Loaded(package, groups, other_words, more)
            self.commands = self.loaded
            self.other_words, self.option_words = self.loaded.other_words, option_words
            dress(self)
            self.params[-1:-1] = [shared_options()[name] for name in ("install_completion", "show_completion")]

        def sections(self) -> Iterator[tuple[str, pages.Rows]]:
            for heading, entries in self.loaded.groups.items():
                yield heading, [(entry.name, entry.line) for entry in entries if not entry.is_hidden]

    return Program


def _made(package: str, entry: Entry) -> Any:
    module, _, attribute = entry.place.partition(":")
    # Of an add-on the whole name is given.
    found = getattr(import_module(f"{package}.{module}" if package and "." not in module else module), attribute)
    parent = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    parent.callback()(_nothing)
    epilog = pages.example(*entry.examples) if entry.examples else None
    if isinstance(found, typer.Typer):
        given = found.info.cls
        parent.add_typer(found, name=entry.name, cls=given if isinstance(given, type) else Commands, epilog=epilog)
    else:
        cls = getattr(found, "command_class", TyperCommand)
        parent.command(entry.name, cls=cls, epilog=epilog, hidden=entry.is_hidden)(found)
    made = dress(typer.main.get_group(parent).commands[entry.name])
    for name, examples in entry.inner.items():
        made.commands[name].epilog = pages.example(*examples)
    if isinstance(found, typer.Typer):
        made.help = entry.line
    elif made.help and not made.help.startswith(entry.line):
        made.help = f"{entry.line}\n\n{made.help}"
    return made


def parsed_by(cls: type[TyperCommand]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command whose arguments are read in a way of its own."""

    def mark(run: Callable[..., None]) -> Callable[..., None]:
        run.__dict__["command_class"] = cls
        return run

    return mark


def _nothing() -> None:
    """Makes typer keep a group of one command a group."""


def dress(command: Any) -> Any:
    """Give a command, and all below it, our help and our way of reading values."""
    command.context_class = Context
    command.parse_args = _noting(command.parse_args)
    if command.add_help_option:
        command.add_help_option = False
        command.params.append(shared_options()["show_help"])
    for parameter in command.params:
        parameter.get_runtime_param = _reader(parameter)
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = pages.argument_name(parameter)
    if not isinstance(command, TyperGroup) or isinstance(command.commands, dict):
        for inner in getattr(command, "commands", {}).values():
            dress(inner)
    return command


def _noting(parse: Callable[[Any, list[str]], list[str]]) -> Callable[[Any, list[str]], list[str]]:
    """The same, and what was typed behind the command is known where it is wrong."""

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = tuple(args)
        return parse(ctx, args)

    return parse_args


def _reader(parameter: Any) -> Callable[[], Value]:
    value = Value(parameter)
    return lambda: value
