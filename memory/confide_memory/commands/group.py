"""Groups of a program's commands, each loaded only when it is used: subclasses of typer's classes.

A user waits for the imports of a command, so the list of commands (`entries`) holds only names and
summaries.
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
from confide_memory.commands.spelling import OtherWords, Words, nearest_name, read_words
from confide_memory.commands.values import plain

More = Callable[[], tuple[Iterable[entries.Command], OtherWords]]
"""A function that returns the commands of add-ons, and the alternative words for them."""

_COMPLETION: Final = ("--install-completion", "--show-completion")
_COMPLETION_HELP: Final = {
    "--install-completion": "Install shell completion (bash, zsh or fish).",
    "--show-completion": "Print the shell completion, to install it yourself.",
}
_HELP: Final = ("help", "--help", "-h")
_MOST_MOVED_WORDS: Final = 3
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")


class _Ours:
    """Features of all commands: values converted without pydantic, and examples at the end of the
    help, as they are typed.
    """

    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        return [plain(each) for each in super().get_params(ctx)]  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {example}\n" for example in self.epilog.splitlines()))


class ProgramCommand(_Ours, TyperCommand):
    """A command of a program, with examples at the end of its help."""


class CommandGroup(_Ours, TyperGroup):
    """A group of commands.

    Without a command it prints its help. `help COMMAND` does the same as `COMMAND --help`.
    """

    other_words: OtherWords = MappingProxyType({})
    option_words: OtherWords = MappingProxyType({})

    def sections(self) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        """Yield each heading of the help with its commands, as pairs of name and summary."""
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
        # Users also try commands that are outside of the group, such as revoking a device.
        for outer in (ctx, ctx.parent):
            if near is None and outer is not None:
                moved = {old: new for old, new in getattr(outer.command, "moved", {}).items() if " " not in old}
                names = [*outer.command.list_commands(outer), *moved]
                found = nearest_name(word, names, ctx.find_root().command.other_words)
                near = found and f"{outer.command_path} {moved.get(found, found)}"
        if near is None and (option := nearest_name(word, long_options(ctx), {})):
            near = f"{ctx.command_path} --{option}"
        raise UnknownCommandError(ctx, word, near)


class UnknownCommandError(typer.TyperException):
    """A user typed a command that does not exist. `near` is the command line that the user probably
    meant, or None.
    """

    exit_code = 2

    def __init__(self, ctx: typer.Context, word: str, near: str | None) -> None:
        super().__init__(f"there is no command '{word[:80]}'")
        self.ctx = ctx
        everything = f"{ctx.command_path} --help lists all commands"
        self.hint = f"did you mean {near}? {everything}" if near else everything


class EntryGroup(CommandGroup):
    """A group of commands that are declared as `Entry`, each loaded only when it is used."""

    def __init__(self, entry: Entry, with_addons: Callable[[], Sequence[Entry]]) -> None:
        super().__init__(
            name=entry.name,
            help=entry.line,
            epilog=entry.examples,
            hidden=entry.is_hidden,
            rich_markup_mode=None,
        )
        self._own = entry.commands
        self._with_addons = with_addons
        self._default = entry.default

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        has_command = bool(args) and (not args[0].startswith("-") or args[0] in _HELP)
        if self._default and not has_command and not ctx.resilient_parsing:
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [entry.name for entry in self._with_addons()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in self.commands:
            entry = _find_entry(self._own, cmd_name) or _find_entry(self._with_addons(), cmd_name)
            if entry is not None:
                self.commands[cmd_name] = _build(entry, lambda: entry.commands)
        return self.commands.get(cmd_name)

    def sections(self) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        yield "Commands", [(entry.name, entry.line) for entry in self._with_addons() if not entry.is_hidden]


class CommandProgram(CommandGroup):
    """The commands of a whole program, each loaded only when it is used. The function `app` creates
    it.
    """

    own: Groups
    more: More
    moved: entries.Moved
    everyday: Sequence[str]
    _all: Groups | None = None
    _shows_all = False

    @property
    def groups(self) -> Groups:
        """The commands of the program and of its add-ons by heading, as the help shows them."""
        if self._all is None:
            commands, words = self.more()
            commands = list(commands)
            self._all = entries.place_addons(self.own, commands)
            self.other_words = {**self.other_words, **words}
            self.moved = {**{old: new for each in commands for old, new in each.moved.items()}, **self.moved}
        return self._all

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) == 2 and args[0] in _COMPLETION and args[1] in _SHELLS:
            # typer detects the current shell; its callbacks also accept a named one, and end the
            # command.
            option = next(each for each in self.get_params(ctx) if args[0] in each.opts)
            option.callback(ctx, option, args[1])
        self._shows_all = args == ["help", "all"]
        if args[:1] == ["help"]:
            args = ["--help"] if self._shows_all else [*args[1:], "--help"]
        if args and not ctx.resilient_parsing:
            args = self._now(args)
        return super().parse_args(ctx, args)

    def _now(self, args: list[str]) -> list[str]:
        """Replace an old spelling at the beginning of a command line, and print the new one; a
        script that reads JSON sees no note.
        """
        at = _options_before(args)
        before, words = args[:at], args[at:]
        old = self._old(words)
        if old is None and words and (_entry(self.own, words[0]) is None or _is_alone(words[1:])):
            old = self._old(words) if self.groups else None  # may be a command of an add-on
        if old is None:
            return args
        if "--json" not in args:
            from confide_memory.commands.console import remark

            remark(f"note: `{self.name} {old}` is now `{self.name} {self.moved[old]}`")
        return [*before, *self.moved[old].split(), *words[len(old.split()) :]]

    def _old(self, words: Sequence[str]) -> str | None:
        """Return the old spelling with which a command line begins; one that is the name of a group
        now counts only alone.
        """
        old = _old_spelling(words, self.moved)
        is_group = old is not None and _entry(self.own, old) is not None
        return None if is_group and not _is_alone(words[1:]) else old

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the program's options. The short help hides all but the most used ones."""
        params = super().get_params(ctx)
        for each in params:
            if {*_COMPLETION} & {*each.opts}:
                each.help = _COMPLETION_HELP[each.opts[0]]
            if self.everyday and not {"--help", "--version"} & {*each.opts}:
                each.hidden = not self._shows_all
        return params

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [entry.name for each in self.groups.values() for entry in each]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in self.commands:
            entry = _entry(self.own, cmd_name) or _entry(self.groups, cmd_name)
            if entry is not None:
                self.commands[cmd_name] = _build(entry, lambda: self._commands_of(cmd_name))
        return self.commands.get(cmd_name)

    def _commands_of(self, name: str) -> Sequence[Entry]:
        """Return the commands of a group, with those that add-ons bring to it."""
        entry = _entry(self.groups, name)
        return entry.commands if entry is not None else ()

    def sections(self) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        if self.everyday and not self._shows_all:
            chosen = (_entry(self.own, name) or _entry(self.groups, name) for name in self.everyday)
            yield "Commands", [(entry.name, entry.line) for entry in chosen if entry is not None]
            return
        for heading, each in self.groups.items():
            if rows := [(entry.name, entry.line) for entry in each if not entry.is_hidden]:
                yield heading, rows

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write_paragraph()
        formatter.write_text(self.epilog or "")


def _options_before(args: Sequence[str]) -> int:
    """Return the number of arguments before the command: `--config` with its value; 0 if another
    option is there.
    """
    at = 0
    while at < len(args) and args[at].partition("=")[0] == "--config":
        at += 1 if "=" in args[at] else 2
    return min(at, len(args))


def _is_alone(rest: Sequence[str]) -> bool:
    """Return True if no command and no help option follows the name of a group."""
    return not rest or (rest[0].startswith("-") and rest[0] not in _HELP)


def _old_spelling(args: Sequence[str], moved: entries.Moved) -> str | None:
    """Return the longest old spelling with which a command line begins."""
    beginnings = (" ".join(args[:count]) for count in range(min(len(args), _MOST_MOVED_WORDS), 0, -1))
    return next((each for each in beginnings if each in moved), None)


def _entry(groups: Groups, name: str) -> Entry | None:
    return next((entry for each in groups.values() if (entry := _find_entry(each, name)) is not None), None)


def _find_entry(commands: Sequence[Entry], name: str) -> Entry | None:
    return next((entry for entry in commands if entry.name == name), None)


def app(
    name: str,
    package: str,
    groups: Groups,
    words: tuple[Words, Words],
    more: More,
    *,
    help: str,
    epilog: str,
    moved: entries.Moved = MappingProxyType({}),
    everyday: Sequence[str] = (),
) -> typer.Typer:
    """Create a program as a typer app.

    Args:
        name: the name of the program.
        package: the package with the modules of its commands.
        groups: its commands by the headings of the help.
        words: alternative words that users may type for commands, and for options.
        more: returns the commands of add-ons, and their alternative words. It is called at most
            once, and only if a user may mean one of them.
        help, epilog: texts at the beginning and the end of the help.
        moved: old spellings of commands, which still work.
        everyday: the commands that `--help` shows, while `help all` shows all. If empty, `--help`
            shows all.
    """
    other_words, option_words = map(read_words, words)
    own = {heading: [entry.below(package) for entry in each] for heading, each in groups.items()}
    members = {"own": own, "more": staticmethod(more), "moved": moved, "everyday": everyday}
    cls = type("Program", (CommandProgram,), {**members, "other_words": other_words, "option_words": option_words})
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


def _build(entry: Entry, with_addons: Callable[[], Sequence[Entry]]) -> Any:
    """Return the command of an entry: a group of entries, a function, or a typer app."""
    if entry.commands:
        return EntryGroup(entry, with_addons)
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(module), attribute or entry.name)
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    parent.callback()(_nothing)
    if isinstance(found, typer.Typer):
        _of_ours(found)
        cls = found.info.cls if isinstance(found.info.cls, type) else CommandGroup
        parent.add_typer(found, name=entry.name, cls=cls, help=entry.line, epilog=entry.examples)
    else:
        details = (inspect.getdoc(found) or "").partition("\n\n")[2]
        text = f"{entry.line}\n\n{details}" if details else entry.line
        of = getattr(found, "command_class", ProgramCommand)
        parent.command(entry.name, cls=of, help=text, epilog=entry.examples, hidden=entry.is_hidden)(found)
    return typer.main.get_group(parent).commands[entry.name]


def _nothing() -> None:
    """Do nothing; as a callback it makes typer treat a group with one command as a group."""


def _of_ours(app: typer.Typer) -> None:
    """Set this module's classes for the commands of a typer app and of its groups."""
    for command in app.registered_commands:
        command.cls = ProgramCommand
    for group in app.registered_groups:
        group.cls = CommandGroup
        _of_ours(group.typer_instance or app)


def parsed_by(cls: type[ProgramCommand]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a command use the class `cls`, which parses the command's
    arguments itself.
    """

    def mark(run: Callable[..., None]) -> Callable[..., None]:
        run.__dict__["command_class"] = cls
        return run

    return mark


def long_options(context: typer.Context) -> list[str]:
    """Return the long options (`--name`) of the command that is being run, without the hyphens."""
    known = context.command.get_params(context)
    names = (name for each in known for name in (*each.opts, *each.secondary_opts))
    return [name.removeprefix("--") for name in names if name.startswith("--")]
