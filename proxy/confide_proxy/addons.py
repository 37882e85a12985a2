"""Discovery of the proxy's add-ons, and the interface between them and the core.

An add-on describes itself in one `Addon` and registers it as an entry point of the group
`confide.addons.proxy`. An `Addon` names its functions as `module:attribute`; they are imported on
first use, so an installed but unused add-on costs next to nothing. Discovery reads one file per
installed package, once per process: never before an agent's first response, in a hook, or for a
command of the core that needs no add-on.
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
from confide_memory.tools.result_views import ResultView

GROUP: Final = "confide.addons.proxy"


class ToolHandlers(NamedTuple):
    """An add-on's functions for the calls of one tool, each as `module:attribute`, or "" if the
    add-on has none.

    Attributes:
        sent: `(arguments, *, identity, space, project, operation, said) -> arguments`: changes the
            arguments before they are sent to the daemon. `sealing/sealed_calls.py` lists the tools
            that have one. Blocks, and raises ToolError.
        queued: `(arguments, operation) -> (structured, sentence)`: makes the result of a call that
            is queued until the daemon is reachable.
        answered: `async (arguments, project, config, link, sealing, *, progress, is_wanted) ->
            Answer`: runs a tool on files of this device; its calls are never sent to the daemon.
    """

    sent: str = ""
    queued: str = ""
    answered: str = ""


class Pages(NamedTuple):
    """Pages that an add-on contributes to the panel, the add-on that shows the memory in a browser.

    Attributes:
        path, title: path and title of the page that the panel's navigation lists.
        after: paths of other pages. The navigation lists this page after the first of them that
            exists, or last if none does.
        routes: path, `module:attribute` and HTTP method of each page. A page is a function `async
            (desk) -> response`, where `desk` holds the request's context.
        templates: the folder of the pages' templates.
    """

    path: str
    title: str
    after: Sequence[str]
    routes: Sequence[tuple[str, str, str]]
    templates: Path


class Addon(NamedTuple):
    """Everything that one add-on adds to `confide`. Functions are given as `module:attribute`, and
    are "" where the add-on has none. Async ones may raise RequestError, ConnectionLost and
    TimeoutError. Not a dataclass: defining one would delay every session's start.

    Attributes:
        name: the add-on's name; its package is `confide_NAME`.
        commands: its commands, with their positions in the help.
        other_words: words that users type for these commands by mistake, with the right ones.
        tools: its functions for the calls of tools, by tool name.
        beside: `(paths, config, connect) -> {name: async work}`: background work that runs from a
            session's first link until it is cancelled. `connect(project)` opens a client of its
            own; each name begins the sentence that reports a problem of that work.
        key_changed: `async (link, roster, identity, old)`: called when this device has a new key,
            while both keys are still on the roster.
        devices_removed: `async (link, keys) -> AddonMessage`: called when the devices with these
            keys have been removed from the roster.
        status: `async (link) -> AddonMessage`, for `confide status`; a heading is printed before
            its rows.
        doctor: `async (link) -> [DoctorFinding]`, for `confide doctor` if the daemon runs on
            another computer.
        checks: `(paths) -> [DoctorFinding]`, for `confide doctor`: about this device alone. Blocks.
        briefing: `async (link) -> line or None`: a line for the briefing at the start of a session.
        decisions: `async (place) -> [PendingDecision]`: decisions that wait for a person, asked
            where a client can ask (`hooks.server.pending_decisions`).
        forgotten: `(paths, is_in) -> count`: removes texts for which `is_in(text)` is true from the
            add-on's own files. Blocks, and raises OSError.
        approves: `(paths, use, tell) -> PersonAnswer`: asks the user about a use of secrets by a
            command, a `run.approvals.PlannedUse`, where neither a terminal nor an agent's client
            can; the choice is `ONCE` or `SESSION` of that module. Blocks, with a deadline of its
            own.
        joining: `(here)`: called before this device joins a daemon.
        set_up: `(here, folder)`: called when a client has been given its entry for this project.
        view: a page that clients of agents show beside results.

    Extension points between add-ons, which never name each other:
        rooms: `(gateway) -> RouteGroup`: further routes of `confide http serve`.
        pages: pages of the panel.
        bring: `async (file, project, config, link, sealing, *, is_dry) -> data`: imports the
            memories in a file as notes, or with `is_dry` only reports them. Raises UnreadableError
            if the file contains none.
        moved: `async (source, target) -> count`: called when the space has moved from one daemon to
            another, to move the add-on's own data too.
        given_up: `async (target)`: called when a move of the space is abandoned.
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
    checks: str = ""
    briefing: str = ""
    decisions: str = ""
    forgotten: str = ""
    approves: str = ""
    joining: str = ""
    set_up: str = ""
    view: ResultView | None = None
    rooms: str = ""
    pages: Pages | None = None
    bring: str = ""
    moved: str = ""
    given_up: str = ""


class AddonMessage(NamedTuple):
    """The part of a command's output that an add-on contributes.

    Attributes:
        data: fields that are added to the command's `--json`.
        rows: lines for stdout.
        remarks: lines for stderr.
        heading: the heading of the rows, for commands that print headings.
    """

    data: Mapping[str, Any]
    rows: Sequence[str] = ()
    remarks: Sequence[str] = ()
    heading: str = ""


class DoctorFinding(NamedTuple):
    """The result of one check of `confide doctor`.

    Attributes:
        check: the name of the check.
        state: "ok", "problem", or "hint" if nothing is wrong but something could be better.
        detail: a sentence about the result.
        hint: what the user can do; "" if there is nothing to do.
        isFixed: True if `--fix` has fixed the problem.
    """

    check: str
    state: str
    detail: str
    hint: str = ""
    isFixed: bool = False  # noqa: N815 - a name of --json


@cache
def installed() -> tuple[Addon, ...]:
    """Return all installed add-ons, sorted by name.

    The first call reads the disk and blocks: from an event loop, call it in a thread. Raises
    AddonError if an add-on cannot be loaded.
    """
    places = _places()
    found = (_addon(name, places[name]) for name in sorted(places))
    return tuple(addon for addon in found if addon is not None)


def _addon(name: str, place: str) -> Addon | None:
    """Load the add-on at `place` (`module:attribute`).

    Returns None if its package is missing, as in a copy of the project whose folder was removed.
    Raises AddonError if importing it fails otherwise.
    """
    try:
        found: Addon = load_object(place)
    except Exception as error:  # an add-on may raise anything while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name == place.partition(":")[0].partition(".")[0]:
            return None
        raise AddonError(name, error) from error
    return found


def _places() -> dict[str, str]:
    """Return `module:attribute` of each add-on by name, from the entry points of installed
    packages.

    The format is that of packaging.python.org, "Entry points specification". If two packages
    register the same name, the first on `sys.path` wins, as for an import. `importlib.metadata`
    would give the same, but takes 40 ms and a megabyte: every `confide status` would wait for it,
    and the one session of a device that answers hooks would keep the memory.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                told = sorted(entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
        except OSError:
            continue  # missing, or no folder
        for each_told in told:
            try:
                text = Path(each_told, "entry_points.txt").read_text("utf-8")
            except (OSError, ValueError):
                continue  # no entry points
            found = _parse_entry_points(text) | found
    return found


def _parse_entry_points(text: str) -> dict[str, str]:
    """Parse an `entry_points.txt`: return `module:attribute` of each proxy add-on by name."""
    found: dict[str, str] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, place = line.partition("=")
            found[name.strip()] = place.partition("[")[0].strip()  # without the required extras
    return found


def each(moment: str) -> list[Any]:
    """Load one function of every add-on that has it; `moment` is the name of the field of `Addon`
    that names the function. The first call blocks.
    """
    return [load_object(place) for addon in installed() if (place := getattr(addon, moment))]


def of_tool(tool: str, moment: str) -> Any | None:
    """Load an add-on's function for the calls of a tool; `moment` is the name of the field of
    `ToolHandlers` that names it. Return None if no add-on has one.

    The first call blocks.
    """
    places = (getattr(addon.tools[tool], moment) for addon in installed() if tool in addon.tools)
    return next((load_object(place) for place in places if place), None)


def load_object(place: str) -> Any:
    """Import and return the object that `place` names as `module:attribute`. Blocks."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
