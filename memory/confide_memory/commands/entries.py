"""The list of a program's commands for its help. It can be read without loading the code of the
commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class Entry(NamedTuple):
    """A command, or a group of commands, as the program's help shows it.

    Attributes:
        name: the word that a user types.
        place: where the code is: `module:attribute` below the program's package of commands. It
            names a function, or a `typer.Typer` of commands. The attribute defaults to `name`. ""
            for a group with `commands`.
        line: the summary, one line. The help shows below it all paragraphs of the function's
            docstring but the first. The commands of a `typer.Typer` have their summaries in their
            docstrings, since they are loaded for the help of their group.
        examples: complete command lines, one a line, if the usage alone does not show them; the
            commands of a `typer.Typer` have theirs in `epilog`.
        is_hidden: True if the command works but no help lists it.
        commands: the commands of a group, each loaded only when it is used.
        default: the command of a group that runs if a user types only the group's name, or that
            name with options.
    """

    name: str
    place: str
    line: str
    examples: str = ""
    is_hidden: bool = False
    commands: Sequence[Entry] = ()
    default: str = ""

    def below(self, package: str) -> Entry:
        """Return a copy in which `place` is a full module name below `package`, also for the
        commands of a group.
        """
        place = f"{package}.{self.place}" if self.place else ""
        return self._replace(place=place, commands=[each.below(package) for each in self.commands])


Groups = Mapping[str, Sequence[Entry]]
"""Commands by the headings of the help, both in the order in which users need them."""
Moved = Mapping[str, str]
"""Old spellings of commands, without the program's name, and the current ones: `"top"`, `"status
--watch"`.
"""


class Command(NamedTuple):
    """A command that an add-on adds to a program.

    Attributes:
        heading: its heading in the help. A new heading is placed after the heading of the command
            that precedes this one.
        after: names of commands. This command is placed after the first of them that exists, or
            last if none exists.
        entry: the command; its `place` is a full module name.
        group: the group of the program that the command belongs to; "" if it is in no group.
        moved: its old spellings.
    """

    heading: str
    after: Sequence[str]
    entry: Entry
    group: str = ""
    moved: Moved = MappingProxyType({})


def place_addons(groups: Groups, commands: Iterable[Command]) -> Groups:
    """Return the commands of a program together with those of its add-ons, each at the position it
    asks for.

    Of two commands with the same name the first stays, so no add-on replaces a command of the
    program.
    """
    found = {heading: list(entries) for heading, entries in groups.items()}
    for command in commands:
        if command.group and _placed_in_group(found, command):
            continue
        if any(command.entry.name in _names(each) for each in found.values()):
            continue
        before = next((name for name in command.after if any(name in _names(each) for each in found.values())), None)
        if command.heading not in found:
            headings = list(found)
            at = next((headings.index(each) for each in headings if before in _names(found[each])), len(headings)) + 1
            found = {each: found.get(each, []) for each in (*headings[:at], command.heading, *headings[at:])}
        _insert(found[command.heading], command)
    return found


def _placed_in_group(found: Mapping[str, list[Entry]], command: Command) -> bool:
    """Add the command to its group; return False if the program has no such group of entries."""
    for entries in found.values():
        for at, group in enumerate(entries):
            if group.name == command.group and group.commands:
                inner = list(group.commands)
                if command.entry.name not in _names(inner):
                    _insert(inner, command)
                entries[at] = group._replace(commands=inner)
                return True
    return False


def _insert(entries: list[Entry], command: Command) -> None:
    names = _names(entries)
    before = next((name for name in command.after if name in names), None)
    entries.insert(names.index(before) + 1 if before is not None else len(entries), command.entry)


def _names(entries: Sequence[Entry]) -> list[str]:
    return [entry.name for entry in entries]
