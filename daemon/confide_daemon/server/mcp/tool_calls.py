"""The catalogue of tools, and the execution of a call from its name and arguments to its result.

The catalogue depends only on the tool groups. The proxy ships a generated copy (`python -m
confide_daemon catalogue`) and caches the daemon's, so that an agent gets its tools before the
daemon is reached.

A failing tool returns a result that the agent reads (`isError`), not a protocol error. It names the
problem and a remedy, and contains no stack trace, key or other caller's data.

A device gives each changing call an id, as `confide/operation` in the call's `_meta`, and repeats
the call under that id after a broken connection (PROTOCOL.md 7.12). Calls queued while the daemon
was away arrive as `call`, which names their project: the agent may have worked in another project
than the connection's.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import cache
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError, printable
from confide_daemon import __version__, figures
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.addons import installed
from confide_daemon.errors import StorageError
from confide_daemon.server.mcp import prompts, resources
from confide_daemon.server.mcp.mcp_protocol import (
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MODERN_VERSIONS,
    Message,
    ProtocolError,
)
from confide_daemon.tools import (
    dedupe,
    delete,
    entities,
    get,
    link,
    machine_tools,
    read,
    search,
    status,
    store,
    sync,
    update,
)
from confide_daemon.tools import list as listing
from confide_daemon.tools.tool_context import Definition, Tool, ToolContext, ToolResult
from confide_memory.classes import AGENT, lowest
from confide_memory.classes import CLASSES as ALL_CLASSES
from confide_memory.forms import Carried
from confide_memory.note import seen_of
from confide_memory.tools.arguments import check
from confide_memory.tools.call import (
    CLASS,
    CLASSES,
    CODE,
    LATER,
    MAX_NOTE_CHARS,
    MOST_NOTES,
    NOTES,
    OPERATION,
    SAID,
    SEEN_PARTS,
    SENT,
    UNASKED,
    WITHIN,
    catalogue_hash,
    off_sentences,
)
from confide_memory.wire.session import LookupRequest

log = logging.getLogger(__name__)

# The proxy answers by itself after ten seconds (docs/history.md); the daemon's own error is more
# precise.
CALL_DEADLINE_S = 9.5
LONG_DEADLINE_S = 900.0
# MCP 2025-11-25, "Resources", "Error Handling".
RESOURCE_NOT_FOUND = -32002

_ID = re.compile(r"[0-9a-f]{32}")
_MAX_SAID_CHARS = 40
MAX_PROJECTS = 64
"""Limit on the projects in the bounds of a call."""
_MAX_PROJECT_CHARS = 256


SERVER_NAME = "confide"
SERVER_TITLE = "Confide memory"
INSTRUCTIONS = (
    "Confide is the lasting memory of this user and project. Call memory_search before you answer or start work that may depend on "
    "earlier decisions, preferences, people, dates or problems. Call memory_store when something worth keeping is decided, learned or "
    "asked to be remembered."
)

# In the later era, `subscriptions/listen` reports changed lists.
CAPABILITIES: dict[str, object] = {
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "tools": {"listChanged": True},
}

_CORRECTING = (Tool(update.DEFINITION, update.call), Tool(delete.DEFINITION, delete.call))
_SECRET_GET = Tool(machine_tools.SECRET_GET, machine_tools.secret_get)

CORE: Final[Mapping[str, tuple[Tool, ...]]] = {
    "core": (
        Tool(search.DEFINITION, search.call),
        Tool(read.DEFINITION, read.call),
        Tool(store.DEFINITION, store.call),
        # Results of the other tools refer to these: a duplicate to correct, a placeholder to open.
        *_CORRECTING,
        Tool(status.DEFINITION, status.call),
        Tool(sync.DEFINITION, sync.call),
        _SECRET_GET,
    ),
    "notes": (
        Tool(get.DEFINITION, get.call),
        Tool(listing.DEFINITION, listing.call),
        *_CORRECTING,
        Tool(read.HISTORY, read.history),
        Tool(link.DEFINITION, link.call),
        Tool(dedupe.DEFINITION, dedupe.call),
        Tool(machine_tools.IMPORT, machine_tools.import_notes),
        Tool(machine_tools.FORGET, machine_tools.forget),
        _SECRET_GET,
    ),
    "entities": (
        Tool(entities.SUMMARY, entities.project_summary),
        Tool(entities.CONTEXT, entities.context_info),
        Tool(entities.LIST, entities.list_entities),
        Tool(entities.SEARCH, entities.find_entities),
    ),
}


@cache
def toolsets() -> Mapping[str, tuple[Tool, ...]]:
    """Return all groups of tools by name; those of add-ons come last."""
    of_addons = {name: tuple(tools) for addon in installed() for name, tools in addon.toolsets.items()}
    return {**CORE, **{name: tools for name, tools in of_addons.items() if name not in CORE}}


@cache
def changing() -> frozenset[str]:
    """Return the names of all tools that may change documents, except long-running ones."""
    known = [tool.definition for group in toolsets().values() for tool in group]
    return frozenset(one.name for one in known if not (one.read_only or one.is_long))


def _is_name(project: Any) -> bool:
    return isinstance(project, str) and 0 < len(project) <= _MAX_PROJECT_CHARS


@dataclass(frozen=True, slots=True)
class Bounds:
    """Restrictions of one call whose originator has fewer rights than the device that sends it
    (PROTOCOL.md 9.2).
    """

    scope: str
    projects: frozenset[str] | None

    @classmethod
    def of(cls, said: Any) -> Bounds:
        """Parse the restrictions in a message. Raises RequestError if they are malformed, so that
        the call does not run unrestricted.
        """
        scope, projects = (said.get("scope"), said.get("projects")) if isinstance(said, dict) else (None, None)
        is_list = isinstance(projects, list) and len(projects) <= MAX_PROJECTS
        if scope not in ("read", "write") or not (projects is None or (is_list and all(map(_is_name, projects)))):
            raise RequestError("invalid", "the bounds of a call are a scope and a list of projects")
        return cls(scope, None if projects is None else frozenset(projects))

    def upon(self, rights: Callable[[], Grants]) -> Callable[[], Grants]:
        """Return a function that calls `rights`, which returns the device's current grants, and
        reduces the result to the restrictions of the call.
        """
        return lambda: rights().limit(self.projects, may_write=self.scope == "write")


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Facts that a device states about a call: its id, time, trust class and restrictions."""

    operation: str | None = None  # the id under which it may send it again
    called_at: datetime | None = None  # when it was made, by that machine's clock, with its time zone
    zone: tzinfo | None = None  # of that machine; None: not said
    sent_file: tuple[Any, Any] | None = None  # project and path of the file that it has just put if it had changed
    class_: str = AGENT  # of what the call stores
    classes: frozenset[str] | None = None  # that a search may give; None: all
    is_unasked: bool = False  # the search is for what may be put before a model that did not ask for it
    bounds: Bounds | None = None  # what the call may reach at most; None: all that its machine does
    notes: tuple[str, ...] = ()  # what its machine says of its files
    seen: Mapping[str, str] | None = None  # of what the note of a call speaks, for its field of that name

    @classmethod
    def of(cls, operation: Any, said: Any, sent: Any = None) -> CallOrigin:
        """Parse the facts that a device states about a call from fields of its message. A field
        that is absent is passed as None.

        Args:
            operation: the id under which the device may repeat the call.
            said: when the call was made, as an ISO time.
            sent: project and path of the file that the device has just sent.

        Raises RequestError if a field is malformed.
        """
        if operation is not None and not (isinstance(operation, str) and _ID.fullmatch(operation)):
            raise RequestError("invalid", "the id of an operation is 32 lower-case hex digits")
        # Not validated: an invalid place matches no stored file.
        place = (sent.get("project"), sent.get("path")) if isinstance(sent, dict) else None
        if said is None:
            return cls(operation, sent_file=place)
        try:
            if not isinstance(said, str) or len(said) > _MAX_SAID_CHARS:
                raise ValueError
            moment = datetime.fromisoformat(said)
            return cls(operation, moment, moment.tzinfo, place)
        except ValueError:
            raise RequestError("invalid", "the time of a call is not an ISO 8601 time") from None

    @classmethod
    def of_meta(cls, meta: Mapping[str, object] | None) -> CallOrigin:
        """Parse the facts that a device states about a call from the call's `_meta`. Raises
        RequestError if a field is malformed.
        """
        if not meta:
            return cls()
        class_, classes = meta.get(CLASS, AGENT), meta.get(CLASSES, list(ALL_CLASSES))
        if class_ not in ALL_CLASSES or not isinstance(classes, list) or not {*map(str, classes)} <= {*ALL_CLASSES}:
            raise RequestError("invalid", f"a class is one of {', '.join(ALL_CLASSES)}")
        asked = None if CLASSES not in meta else frozenset(classes)
        origin = cls.of(meta.get(OPERATION), meta.get(SAID), meta.get(SENT))
        bounds = Bounds.of(meta[WITHIN]) if WITHIN in meta else None
        unasked = meta.get(UNASKED) is True
        said = meta.get(NOTES)
        notes = said[:MOST_NOTES] if isinstance(said, list) else []
        told = tuple(printable(note[:MAX_NOTE_CHARS]) for note in notes if isinstance(note, str))
        seen = seen_of(meta[SEEN_PARTS]) if SEEN_PARTS in meta else None
        return replace(origin, class_=class_, classes=asked, is_unasked=unasked, bounds=bounds, notes=told, seen=seen)

    @classmethod
    def of_client(cls, meta: Mapping[str, object] | None, class_: str) -> CallOrigin:
        """Return the facts about a call from a client that is not trusted: its time zone and the
        given trust class. Raises RequestError if the stated time is malformed.
        """
        return cls(zone=cls.of(None, (meta or {}).get(SAID)).zone, class_=class_)

    def within(self, context: ToolContext) -> ToolContext:
        """Return a copy of a call's context that includes the facts its device states."""
        return replace(
            context,
            operation=self.operation,
            called_at=self.called_at,
            zone=self.zone,
            sent_file=self.sent_file,
            class_=self.class_,
            classes=self.classes,
            is_unasked=self.is_unasked,
            notes=self.notes,
            seen=self.seen,
            rights=self.bounds.upon(context.rights) if self.bounds else context.rights,
        )


def definitions(names: Sequence[str]) -> tuple[Definition, ...]:
    """Return the descriptions of all tools in these groups."""
    return _definitions(groups(names))


def tools(names: Sequence[str]) -> tuple[Tool, ...]:
    """Return all tools in these groups, each once, in the order of the catalogue."""
    return _tools(groups(names))


@cache
def _definitions(groups: tuple[str, ...]) -> tuple[Definition, ...]:
    return tuple(tool.definition for tool in _tools(groups))


@cache
def _tools(groups: tuple[str, ...]) -> tuple[Tool, ...]:
    named: dict[str, Tool] = {}
    for tool in (tool for group in toolsets().values() for tool in group):
        named.setdefault(tool.definition.name, tool)  # one of an add-on takes no name from the core
    shown = {tool.definition.name for group in groups for tool in toolsets()[group]}
    return tuple(tool for name, tool in named.items() if name in shown)


def groups(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are groups of tools, in the order of the catalogue; `all` stands for
    every group.

    Unknown names are ignored (`unknown_toolsets` lists them). If no group is left, `core` is
    returned: a typo in a configuration must not remove the memory.
    """
    return tuple(group for group in toolsets() if group in names or "all" in names) or ("core",)


def may_be_asked_again(data: bytes, *, has_operation: bool = True) -> bool:
    """Return True if a sender may repeat this message, because its connection ended before the
    answer (PROTOCOL.md 12.4).

    A tool call may be repeated only if it reads only, or if devices queue it. For any other call
    the sender cannot know if it was run. `has_operation`: True if queued calls carry an id by which
    a repeat is recognized (PROTOCOL.md 7.12); False: they may not be repeated either.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return False
    match message:
        case {"id": _, "method": "tools/call", "params": {"name": str(name)}}:
            known = next((one for one in definitions(("all",)) if one.name == name), None)
            return known is not None and (known.read_only or (has_operation and known.offline == "queue"))
        case {"id": _, "method": str(method)}:
            return method != "tools/call"
    return False


def unknown_toolsets(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are neither a group of tools nor `all`."""
    return tuple(name for name in names if name != "all" and name not in toolsets())


def catalogue(names: Sequence[str]) -> dict[str, Any]:
    """Return the answers to `initialize`, `server/discover` and the requests that list tools,
    prompts and resources, for these groups of tools. It also has the schemas of structured results,
    which clients do not see.
    """
    return {
        "serverInfo": {"name": SERVER_NAME, "title": SERVER_TITLE, "version": __version__},
        "capabilities": CAPABILITIES,
        "instructions": INSTRUCTIONS,
        "tools": [tool.wire(groups(names)) for tool in definitions(names)],
        "outputs": {tool.name: tool.output for tool in definitions(names)},
        "prompts": prompts.list_prompts(),
        "resourceTemplates": list(resources.TEMPLATES),
        "resources": list(resources.FIXED),
        "toolsets": {group: [tool.definition.name for tool in toolsets()[group]] for group in groups(names)},
        "protocolVersions": list(HANDSHAKE_VERSIONS),
        "discover": {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": CAPABILITIES,
            "instructions": INSTRUCTIONS,
        },
    }


def catalogue_digest(names: Sequence[str]) -> str:
    """Return the hash of the catalogue for these groups, which is part of the answer to every
    `attach`. It is computed once per process.
    """
    return _digest(groups(names))


@cache
def _digest(groups: tuple[str, ...]) -> str:
    return catalogue_hash(catalogue(groups))


async def run(
    name: str,
    arguments: Mapping[str, object] | None,
    context: ToolContext,
    names: Sequence[str],
    *,
    is_structured: bool,
    withheld: Collection[str] = (),
) -> Message:
    """Call a tool and return its result; a failure of the tool is a result too. Raises
    ProtocolError if the groups `names` have no such tool.

    Args:
        names: the groups of tools that the caller sees.
        is_structured: True to add the structured form to the text.
        withheld: names of tools that this caller must not call.
    """
    tool = _tool(name, names, withheld)
    try:
        result = await _call(tool, arguments, context)
    except ConfideError as error:
        return refusal_message(error)
    return result_message(result, is_structured=is_structured)


def result_message(result: ToolResult, *, is_structured: bool) -> Message:
    """Return the wire form of a tool's result. `is_structured`: True to add the structured form to
    the text.
    """
    content = [{"type": "text", "text": result.text}]
    structured = {"structuredContent": result.structured} if is_structured else {}
    return {"content": content, "isError": False, **structured}


def refusal_message(error: ConfideError) -> Message:
    """Return the tool result for an error: it states the problem and a remedy.

    Its code (PROTOCOL.md 7.2) gives a command its exit code, and lets a device queue a call that
    can run later.
    """
    is_disk = isinstance(error, StorageError) and error.code == StorageError.code
    meta = {CODE: error.code, **({LATER: True} if is_disk else {})}
    return {"content": [{"type": "text", "text": error.with_hint}], "isError": True, "_meta": meta}


async def call_again(body: Carried, surroundings: Callable[[str], ToolContext], project: str) -> dict[str, object]:
    """Run a tool call that was queued on a device.

    Args:
        body: `operation`, `said`, `tool`, `arguments`, `class`, `seen` (PROTOCOL.md 9).
        surroundings: returns the context of a call in a project.
        project: the project that the call was made in.

    Returns:
        `result`: the tool's structured result.

    Raises RequestError if the call fails; its code says if a retry is worthwhile.
    """
    name, arguments = body.get("tool"), body.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict) or body.get("operation") is None:
        raise RequestError("invalid", "a call names its operation, its tool and its arguments")
    origin = CallOrigin.of(body["operation"], body.get("said"))
    if "class" in body:  # what waited is an agent's at best: who said it is not known any more
        origin = replace(origin, class_=lowest((AGENT, str(body["class"]))))
    if "seen" in body:
        origin = replace(origin, seen=seen_of(body["seen"]))
    # Regardless of the connection's toolsets: a command, or another session, may deliver a queued
    # call.
    waiting = {tool.definition.name: tool for tool in tools(("all",)) if tool.definition.offline == "queue"}
    if name not in waiting:
        raise RequestError("invalid", "no such tool, or none whose calls wait on a device")
    try:
        return {"result": (await _call(waiting[name], arguments, origin.within(surroundings(project)))).structured}
    except ConfideError as error:
        raise RequestError.of(error) from error


async def look_up(surroundings: Callable[[str], ToolContext], wanted: LookupRequest) -> dict[str, object]:
    """Call a read-only tool in any project; return its structured result as `result`. The request's
    `meta` has the form of a tool call's `_meta`.

    Raises RequestError if the tool cannot be called or fails.
    """
    asked = next((one for one in tools(("all",)) if one.definition.name == wanted["tool"]), None)
    if asked is None or not asked.definition.read_only:
        raise RequestError("invalid", "no such tool, or none that only reads")
    try:
        context = CallOrigin.of_meta(wanted["meta"]).within(surroundings(wanted["project"]))
        return {"result": (await _call(asked, wanted["arguments"], context)).structured}
    except ConfideError as error:
        raise RequestError.of(error) from error


async def _call(tool: Tool, arguments: Mapping[str, object] | None, context: ToolContext) -> ToolResult:
    """Return the tool's result within its deadline. Raises ConfideError for every failure."""
    name = tool.definition.name
    started = time.monotonic()
    outcome = "failed"
    try:
        async with asyncio.timeout(LONG_DEADLINE_S if tool.definition.is_long else CALL_DEADLINE_S):
            work = tool.call(context, check(tool.definition.parameters, arguments))
            result = await (context.run_to_end(work) if name in changing() else work)
        outcome = "done"
        return result
    except ConfideError as error:
        figures.count_failure(name, error.code)
        raise
    except TimeoutError:
        figures.count_failure(name, "unavailable")
        hint = "try again; memory_status shows how busy the daemon is"
        raise RequestError("unavailable", f"{name} did not finish in time", hint) from None
    except Exception as error:
        # Neither the peer nor the log gets the error's text: it may quote stored or requested
        # contents.
        figures.count_failure(name, "internal")
        log.error("%s failed: %s", name, _origin_of(error))
        hint = "the daemon's operator finds the place in its log"
        raise RequestError("internal", f"{name} failed inside the daemon", hint) from None
    finally:
        took_s = time.monotonic() - started
        figures.TOOL_DURATION.labels(name).observe(took_s)
        extra = {"event": f"{name} {outcome}", "space": context.space.space_id, "duration": took_s}
        log.debug("%s %s in %.1f ms", name, outcome, took_s * 1000, extra=extra)


def protocol_code(error: ConfideError) -> int:
    """Return the JSON-RPC error code for a failure outside of tool calls."""
    codes = {"not_found": RESOURCE_NOT_FOUND, "invalid": INVALID_PARAMS, "denied": INVALID_PARAMS}
    return codes.get(error.code, INTERNAL_ERROR)


def _tool(name: str, names: Sequence[str], withheld: Collection[str]) -> Tool:
    known = {tool.definition.name: tool for tool in tools(names) if tool.definition.name not in withheld}
    if name in known:
        return known[name]
    off = next((group for group, them in toolsets().items() if any(one.definition.name == name for one in them)), None)
    if off is not None and not withheld:  # withheld from a program at a gateway, which has no proxy.toml
        raise ProtocolError(INVALID_PARAMS, "; ".join(off_sentences(name, off, groups(names))))
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"the tools are {', '.join(known)}"
    shown = printable(name[:64])
    raise ProtocolError(INVALID_PARAMS, f"unknown tool '{shown}'; {hint}")


def _origin_of(error: BaseException) -> str:
    """Return the class of an error and the line that raised it, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" at {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else ""
    return type(error).__name__ + place
