"""The seam between the core and what it does not know: add-ons, found where they are installed.

An add-on names what it brings in one `Addon`, by places (`module:attribute`) that are imported when
they are first needed, and tells of it by an entry point of the group `confide.addons.proxy`. So one
that is not installed costs nothing, and one that nobody uses next to nothing. To look for them reads a
file of each package that is installed, once a process: never before an agent's first answer, in a hook,
or for a command of the core that does without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from confide_memory.commands.entries import Command
from confide_memory.commands.spelling import OtherWords
from confide_memory.errors import AddonError

GROUP: Final = "confide.addons.proxy"


class ToolHandlers(NamedTuple):
    """What becomes of the calls of one tool on this machine; "" where nothing does.

    Attributes:
        sent: `(arguments, *, identity, space, project, operation, said) -> arguments`, as they go up; the
            core knows the tools of which that is so (`sealing/sealed_calls.py`). Blocks, and raises ToolError.
        queued: `(arguments, operation) -> (structured, sentence)`, for a call that waits for the daemon.
        answered: `async (arguments, project, config, link, sealing, *, progress, is_wanted) -> Answer`,
            for a tool that is about files of this machine and never goes up.
    """

    sent: str = ""
    queued: str = ""
    answered: str = ""


class Pages(NamedTuple):
    """Pages for whatever add-on shows the memory in a browser.

    Attributes:
        path, title: of the one that the list of pages names.
        after: behind which path it stands there: the first of these that there is; at the end where there is none.
        routes: path, place and method of each; a page is `async (desk) -> response`.
        templates: the folder of what they are drawn with.
    """

    path: str
    title: str
    after: Sequence[str]
    routes: Sequence[tuple[str, str, str]]
    templates: Path


class Addon(NamedTuple):
    """What an add-on brings to `confide`; places are "" where it has nothing to say. No dataclass, whose making
    every session would pay for.

    Attributes:
        name: what it is called, and its folder `confide_NAME`.
        commands: where each stands in the help.
        other_words: what people type for them.
        tools: by the names of the tools.
        beside: `(paths, config, connect) -> {name: async work}`, what goes on beside a session from its
            first link on, until it is cancelled; `connect(project)` is a client of its own, and the name
            begins the sentence that tells of its trouble.
        key_changed: `async (link, roster, identity, old)`, this machine has a new key, and both are on the
            roster still. Raises as a request.
        devices_removed: `async (link, keys) -> Told`, these have just left the roster.
        status: `async (link) -> Told`, for `confide status`; a heading is before its rows.
        doctor: `async (link) -> [Finding]`, for `confide doctor`, where the daemon is another machine's.
        briefing: `async (link) -> line or None`, what a session is told first. Raises as a request.
        joining: `(here)`, this machine is about to join a daemon.
        set_up: `(here, folder)`, a client was given its entry for this project.

    And what add-ons are to each other, which know no other's name:
        rooms: `(gateway) -> RouteGroup`, routes beside those of `confide http serve`.
        pages: of the panel.
        bring: `async (file, project, config, link, sealing, *, is_dry) -> data`, memories in a file become
            notes, or would. Raises UnreadableError: it holds none.
        moved: `async (source, target) -> count`, the space has gone from one daemon to the other, and what
            is the add-on's there follows. Raises as a request.
        given_up: `async (target)`, nothing of it will come. Raises as a request.
    """

    name: str
    commands: Sequence[Command] = ()
    other_words: OtherWords = MappingProxyType({})
    tools: Mapping[str, ToolHandlers] = MappingProxyType({})
    beside: str = ""
    key_changed: str = ""
    devices_removed: str = ""
    status: str = ""
    doctor: str = ""
    briefing: str = ""
    joining: str = ""
    set_up: str = ""
    rooms: str = ""
    pages: Pages | None = None
    bring: str = ""
    moved: str = ""
    given_up: str = ""


class AddonMessage(NamedTuple):
    """What a command tells of an add-on's.

    Attributes:
        data: fields of its `--json`.
        rows: for a person, as they are printed.
        remarks: the same on stderr.
        heading: of the rows, where the command shows one.
    """

    data: Mapping[str, Any]
    rows: Sequence[str] = ()
    remarks: Sequence[str] = ()
    heading: str = ""


class DoctorFinding(NamedTuple):
    """What a check of `confide doctor` found.

    Attributes:
        check: its name.
        state: "ok", "problem", or "hint": nothing is wrong, and something could be better.
        detail: a sentence.
        hint: what to do; "" where there is nothing.
        isFixed: `--fix` has put it right.
    """

    check: str
    state: str
    detail: str
    hint: str = ""
    isFixed: bool = False  # noqa: N815 - a name of --json


@cache
def installed() -> tuple[Addon, ...]:
    """All that are installed, by name. The first look blocks: in a loop, ask for it in a thread.

    Raises AddonError: one cannot be loaded.
    """
    places = _places()
    found = (_addon(name, places[name]) for name in sorted(places))
    return tuple(addon for addon in found if addon is not None)


def _addon(name: str, place: str) -> Addon | None:
    """None: its package is not there, as in a copy from which somebody has taken its folder."""
    try:
        found: Addon = loaded(place)
    except Exception as error:  # whatever it does while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name == place.partition(":")[0].partition(".")[0]:
            return None
        raise AddonError(name, error) from error
    return found


def _places() -> dict[str, str]:
    """Where each is, by the entry points of what is installed (packaging.python.org, "Entry points specification"); of two of one name the
    first on the path counts, as for an import.

    `importlib.metadata` says the same in 40 ms and with a megabyte, which every `confide status` would wait for, and the one session of a
    machine that answers hooks would keep.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                told = sorted(entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
        except OSError:
            continue  # not there, or no folder
        for each_told in told:
            try:
                text = Path(each_told, "entry_points.txt").read_text("utf-8")
            except (OSError, ValueError):
                continue  # it has none
            found = _named(text) | found
    return found


def _named(text: str) -> dict[str, str]:
    """The places in one such file, by their names."""
    found: dict[str, str] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, place = line.partition("=")
            found[name.strip()] = place.partition("[")[0].strip()  # behind it: which extras it would want
    return found


def each(moment: str) -> list[Any]:
    """What the add-ons have for a moment, an attribute of `Addon`. The first look blocks."""
    return [loaded(place) for addon in installed() if (place := getattr(addon, moment))]


def of_tool(tool: str, moment: str) -> Any | None:
    """What an add-on has for the calls of a tool, an attribute of `ToolHandlers`; None where none has. The first look blocks."""
    places = (getattr(addon.tools[tool], moment) for addon in installed() if tool in addon.tools)
    return next((loaded(place) for place in places if place), None)


def loaded(place: str) -> Any:
    """What stands at a place. Blocks."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
