"""What a program's help says of its commands, without the library that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A command, or a group of them, as the program's own help shows it.

    Attributes:
        name: what is typed.
        place: `module:attribute` below the program's package of commands; a function, or a `typer.Typer` of commands. Without an
            attribute it is the name.
        line: what it does for whom, in a line. The docstring of its function says what goes beyond that; of the commands in a group it
            says all, since these are loaded when the group's help is asked for.
        examples: how it is written, whole, a line each, where its usage does not tell; of the commands in a group their `epilog` does.
        is_hidden: it is there, and not in the list.
    """

    name: str
    place: str
    line: str
    examples: str = ""
    is_hidden: bool = False


Groups = Mapping[str, Sequence[Entry]]
"""The commands by the headings under which the help shows them, all in the order in which people need them."""


class Command(NamedTuple):
    """A command that an add-on brings to a program.

    Attributes:
        heading: under which it stands; one that is new stands behind that of the command before it.
        after: behind which command it stands: the first of these that there is; at the end where there is none.
    """

    heading: str
    after: Sequence[str]
    entry: Entry


def placed(groups: Groups, commands: Iterable[Command]) -> Groups:
    """The commands of a program with those of its add-ons, each in its place. Of two of one name the first stays: nobody takes its own from
    the program."""
    found = {heading: list(entries) for heading, entries in groups.items()}
    for command in commands:
        if any(command.entry.name in _names(each) for each in found.values()):
            continue
        before = next((name for name in command.after if any(name in _names(each) for each in found.values())), None)
        if command.heading not in found:
            headings = list(found)
            at = next((headings.index(each) for each in headings if before in _names(found[each])), len(headings)) + 1
            found = {each: found.get(each, []) for each in (*headings[:at], command.heading, *headings[at:])}
        there = found[command.heading]
        names = _names(there)
        there.insert(names.index(before) + 1 if before in names else len(there), command.entry)
    return found


def _names(entries: Sequence[Entry]) -> list[str]:
    return [entry.name for entry in entries]
