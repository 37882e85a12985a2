"""Definitions of tools, and the context of a tool call: the caller's space, the connection's
projects and the device.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any, Literal, Protocol, Self, TypeVar

from confide_crypto.errors import printable
from confide_crypto.sealing.roster import Roster
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.documents.document_results import PutResult
from confide_daemon.documents.writer import RepeatableChange
from confide_daemon.errors import GrantError, NotFoundError, ToolError
from confide_daemon.notes.note_service import now
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import NoteRow
from confide_memory import note_names
from confide_memory.classes import AGENT, OWNER
from confide_memory.documents import GLOBAL_PROJECT, has_clash, source_of, text_hash
from confide_memory.forms import MAX_PROJECT_CHARS
from confide_memory.tools.arguments import Parameters
from confide_memory.tools.call import ALSO_TAKES, ALWAYS_LOADED, ASKS_A_PERSON, CLEARS, LONG_JOB, OFFLINE
from confide_memory.wire.files import Backlog, Scanned, Workplace

T = TypeVar("T")
Offline = Literal["queue", "local", "fail"]
NEAR_PROJECTS = 5

TEXT: dict[str, object] = {"type": "string"}
MAYBE_TEXT: dict[str, object] = {"type": ["string", "null"]}
COUNT: dict[str, object] = {"type": "integer", "minimum": 0}
NUMBER: dict[str, object] = {"type": "number"}
FLAG: dict[str, object] = {"type": "boolean"}
TEXTS: dict[str, object] = {"type": "array", "items": TEXT}
COUNTS: dict[str, object] = {"type": "object", "additionalProperties": COUNT}
PROJECT: dict[str, object] = {"type": "string", "minLength": 1, "maxLength": 256}
PATH: dict[str, object] = {"type": "string", "minLength": 1, "maxLength": 512}

# Fields that every changing tool adds to its result.
OUTCOME: dict[str, object] = {
    "queued": {**FLAG, "description": "Kept on this machine until the daemon can be reached"},
    "onDisk": {**FLAG, "description": "The file on this machine is as the daemon has it"},
    "warnings": TEXTS,
}


class Machine(Protocol):
    """The interface to the caller's device. A session implements it; so does the panel, a caller
    without a device of its own.
    """

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Write a new revision to the disk of the caller's device. If a person has just edited the
        file there, the edit is merged.
        """

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        """Remove the file of a deleted document from the disk of the caller's device. If a person
        has just edited it, it stays and the document is restored.
        """

    async def flush(self, project: str, path: str) -> None:
        """Make the caller's device send a person's fresh edit of the file, if there is one."""

    async def backlog(self) -> Backlog | None:
        """Return how much the device still has to send, or None if it does not answer."""

    async def workplace(self, project: str) -> Workplace | None:
        """Return where the agent works, as its device reports it (PROTOCOL.md 9.4); None if the
        device does not answer.
        """

    async def scan(self, *, force: bool) -> Scanned | None:
        """Make the device compare its files with the daemon's; return None if it keeps no files.
        `force`: True to read even files that seem unchanged. Raises RequestError if the comparison
        fails.
        """

    async def progress(self, done: float, total: float | None, message: str) -> None:
        """Report the progress of a long call to the client, if the client has asked for it."""


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """The result of writing a revision to the disk of the caller's device."""

    on_disk: bool  # the file on the caller's machine holds the document's newest revision
    result: PutResult  # the newest revision, which is not the stored one where a person's edit was merged in
    warning: str | None = None  # why it is not on disk, for the agent

    @property
    def warnings(self) -> list[str]:
        """Return warnings for the agent: why the file was not written, or that an edit was merged."""
        found = [self.warning] if self.warning else []
        if self.result.merged:
            found.append("the file was being edited on this machine; both sides were kept")
        if has_clash(self.result.text):
            found.append(
                "the file holds two versions of some lines, between marks that begin with <<<<<<< confide: "
                "keep what is right, and delete the marks"
            )
        return found

    def outcome(self) -> dict[str, Any]:
        """Return the result of the write in the form of `OUTCOME`, for the tool's result."""
        return {"queued": False, "onDisk": self.on_disk, "warnings": self.warnings}


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """Facts about the connection that `memory_status` reports."""

    # machine, proxy_version: as the proxy said at its attach; "" if it said nothing
    machine: str
    proxy_version: str
    space: str
    scope: str
    last_sync: str | None  # when the machine last compared its files (ISO 8601, UTC); None if it has not yet


@dataclass(frozen=True, slots=True)
class SealingFacts:
    """Facts about the space's sealed secrets that `memory_status` reports, except their number."""

    devices: int  # how many may open them; 0 before there is a list of devices
    epoch: int  # of the key that they are sealed under now; 0 before there is one
    custody: str  # who keeps the key of the database: `server` or `caller`
    recovery_codes: int = 0  # of the devices those on paper
    name: str | None = None  # the caller's name on the roster; None if it is not on it

    @classmethod
    def of(cls, roster: Roster | None, custody: str, key: bytes) -> SealingFacts:
        """Return the facts that `memory_status` reports about sealed secrets, for the caller with
        this key (empty: a caller without one). `roster` None: the space has none.
        """
        if roster is None:
            return cls(0, 0, custody)
        mine = roster.devices.get(key)
        on_paper = sum(device.is_paper for device in roster.devices.values())
        return cls(len(roster.devices), roster.epoch, custody, on_paper, mine.name if mine else None)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects the notes of the task `id`. `projects`: only if the task belongs to one of them;
    None: to any project.
    """

    id: str
    projects: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ToolContext:
    space: Space
    machine: Machine
    rights: Callable[[], Grants]  # the caller's grants at the moment when it is asked
    project: str | None  # the project of the connection; None if it attached none
    attached_projects: frozenset[
        str
    ]  # all projects of the connection, the global one included if its folder is kept there
    facts: ConnectionFacts
    min_score: float  # where the agent gives none
    sealing: Callable[[], Awaitable[SealingFacts]]  # looks at the space's list of devices
    # runs a change of documents to completion, even without a waiting caller
    run_to_end: Callable[[Coroutine[Any, Any, ToolResult]], Awaitable[ToolResult]]
    tools: frozenset[str]  # the names of those that the agent is shown: an answer advises no others
    unknown_toolsets: tuple[str, ...] = ()  # what its machine asked for by a name of no group
    # the id under which the machine may ask again for the same change; None where it gave none
    operation: str | None = None
    called_at: datetime | None = (
        None  # when the call was made, by its machine's clock and in its time zone; None for now
    )
    zone: tzinfo | None = None  # of the caller, in which days begin and end; None: the daemon's
    # project and path of a file that the machine has put already, if it had changed, before it made
    # the call
    sent_file: tuple[Any, Any] | None = None
    class_: str = AGENT  # of what the call stores, as its machine says
    classes: frozenset[str] | None = None  # that a search may give; None: all
    is_unasked: bool = False  # a search is for what may be put before a model that did not ask for it
    key: bytes = b""  # the caller's Ed25519 key; empty for callers without one, such as HTTP clients
    notes: tuple[str, ...] = ()  # what its machine says of its files, for the warnings of an answer
    # hashes of what the note of the call speaks of, for its field `seen`; None: its machine says nothing
    seen: Mapping[str, str] | None = None
    has_machine: bool = True  # else no working copies bind it to the projects of its connection

    @property
    def grants(self) -> Grants:
        """The caller's current rights. They may change during every await, so read them again after
        it.
        """
        return self.rights()

    @property
    def linked_projects(self) -> frozenset[str]:
        """The projects linked to the current one that the caller may access."""
        linked = self.space.projects.linked_projects(self.project) if self.project else frozenset()
        return frozenset(name for name in linked if self.grants.has_project(name))

    @property
    def moment(self) -> float:
        """When the call was made, in seconds since 1970."""
        return float(int(self.called_at.timestamp())) if self.called_at else now()

    async def allow_again(self, text: str) -> None:
        """Accept a text again that was forgotten, if this call stores the text on behalf of a
        person.
        """
        if self.class_ == OWNER:
            self.grants.require_scope()
            await self.space.forgetting.allow(text, said=self.moment)

    def search_projects(self, project: str | None, scope: str) -> frozenset[str] | None:
        """Return the projects to search; None: all. By default these are the current project, those
        linked to it and the global one. `scope` narrows them, `project` replaces them.

        The caller's rights are applied later. Raises ToolError if `project` and `scope` contradict
        each other.
        """
        if scope == "global":
            if project not in (None, GLOBAL_PROJECT):
                raise ToolError(
                    f"scope 'global' leaves nothing of project '{project[:64]}'", hint="leave one of them out"
                )
            return frozenset({GLOBAL_PROJECT})
        if project == "*":
            return None
        if project is not None:
            return frozenset({project})
        if self.project is None:
            return None
        if scope == "project":
            return frozenset({self.project})
        return frozenset({self.project, GLOBAL_PROJECT, *self.linked_projects})

    async def require_known(self, project: str | None) -> None:
        """Raise NotFoundError if the named project is unknown: the caller may read nothing in it,
        and the device has not attached it to this connection. The error's hint names similar
        projects. `project` None is accepted.
        """
        if project in (None, "*", GLOBAL_PROJECT, self.project) or {project} & (
            self.attached_projects | self.linked_projects
        ):
            return
        grants = self.grants
        if await self.space.projects.list_projects(frozenset({project}), grants.sources):
            return
        names = [row.name for row in await self.space.projects.list_projects(grants.projects, grants.sources)]
        near = difflib.get_close_matches(project, names, 3, 0.5) or names[:NEAR_PROJECTS]
        hint = f"there is: {', '.join(near)}" if near else "leave it out: nothing is stored anywhere yet"
        raise NotFoundError(f"there is no project '{printable(project[:64])}'", hint=hint)

    def task(self, project: str | None, scope: str, task_id: str | None) -> TaskFilter | None:
        """Return the task whose notes a call includes, or None to leave out the notes of all tasks.

        `scope` is all, project, global or task; `task_id` with scope all counts as scope task.
        Raises ToolError if scope and task contradict each other, or the task is missing.
        """
        if scope == "task" and task_id is None:
            raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
        if task_id is None:
            return None
        if scope not in ("all", "task"):
            raise ToolError(f"'taskId' goes with scope 'task', not with '{scope}'", hint="leave one of them out")
        name = project or self.project
        return TaskFilter(task_id, None if name in (None, "*") else frozenset({name}))

    async def first(self, path: str, project: str | None, look: Callable[[str], Awaitable[T]]) -> tuple[str, T]:
        """Look for a document with the function `look` in one project after the other; return the
        first project that has it, and the result. Only the named project is searched, or without
        one the current, the global and the linked projects.

        Raises GrantError if the caller may access none of them or not the document's source;
        NotFoundError, from the first search, if no project has the document.
        """
        self.grants.require_source(source_of(path))
        own = (self.project or GLOBAL_PROJECT, GLOBAL_PROJECT, *sorted(self.linked_projects))
        wanted = [project] if project else list(dict.fromkeys(own))
        grants = self.grants
        grants.projects_among(wanted)
        missing: NotFoundError | None = None
        for name in filter(grants.has_project, wanted):
            try:
                return name, await look(name)
            except NotFoundError as error:
                missing = missing or error
        assert missing is not None
        raise missing

    def reachable(self) -> frozenset[str] | None:
        """Return the projects whose notes a caller that may write can see; None: all. Raises
        GrantError if the caller may not write at all.
        """
        grants = self.grants
        grants.require_scope()
        grants.require_source("memory")
        return grants.projects_among(None)

    def is_attached(self, project: str) -> bool:
        """Return True if this connection can write to the project, apart from the caller's rights:
        the device has attached it, or it is the global one. A caller without a device can write to
        every project.
        """
        if not self.has_machine:
            return (
                len(project) <= MAX_PROJECT_CHARS and project.isprintable() and bool(project.strip()) and project != "*"
            )
        return project == GLOBAL_PROJECT or project in self.attached_projects

    def require_attached(self, project: str, what: str = "write to project") -> None:
        """Raise ToolError if this connection cannot write to the project. `what` describes the
        attempt in the error.
        """
        if not self.is_attached(project):
            known = ", ".join(sorted({*self.attached_projects, GLOBAL_PROJECT}))
            raise ToolError(f"this connection cannot {what} '{project[:64]}'", hint=f"it can write to: {known}")

    async def flush(self, project: str, path: str, *, sent: tuple[Any, Any] | None = None) -> None:
        """Make the device send a person's fresh edit of a file that this call will change. `sent`:
        project and path of a file that the device has just sent, which is not fetched again.

        Raises GrantError if the caller may not write the file, ToolError if this connection cannot
        write to the project.
        """
        self.grants.require_write(project, path)
        self.require_attached(project)
        if sent != (project, path):
            await self.machine.flush(project, path)
        self.grants.require_write(project, path)  # a machine that answers late must not outlast its grant

    async def writable(self, identity: str) -> NoteRow:
        """Return a note that this call will change, after the device has sent a person's fresh edit
        of its file.

        Raises NotFoundError if no note that the caller may access has this id; GrantError if the
        caller may not write it; ToolError if this connection cannot write to its project.
        """
        row = await self.space.notes.row(identity, self.reachable())
        await self.flush(row.project, row.path)
        return row

    async def short_ids(self, identities: Iterable[str]) -> Callable[[str], str]:
        """Return a function that shortens these note ids. The short form is unique among the notes
        that the caller may read; other notes do not lengthen it.
        """
        with contextlib.suppress(GrantError):  # it may have lost its grants; the result is reported anyway
            short = await self.space.notes.short(list(identities), self.grants.projects_among(None))
            return lambda identity: short.get(identity, identity)
        return lambda identity: identity

    async def shorten(self, structured: dict[str, object]) -> Callable[[str], str]:
        """Add a field `shortId` next to each note id in a structured result. Return the function
        that shortens an id.
        """
        named = list(_named_parts(structured))
        short = await self.short_ids(one["id"] for one in named) if named else str
        for one in named:
            one["shortId"] = short(one["id"])
        return short

    def operation_of(self, tool: str, arguments: Mapping[str, object], part: str = "") -> RepeatableChange | None:
        """Return the id and hash by which a retry of this call is recognized, or None if the caller
        gave no id. `part` distinguishes several changes of one call.
        """
        if self.operation is None:
            return None
        identity = text_hash(self.operation + part)[:32] if part else self.operation
        return RepeatableChange(identity, text_hash(json.dumps([tool, part, arguments], sort_keys=True)))


def _named_parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a structured result that have a note id, without notes' own metadata."""
    if isinstance(value, list):
        for item in value:
            yield from _named_parts(item)
    elif isinstance(value, dict):
        if isinstance(identity := value.get("id"), str) and note_names.ID.fullmatch(identity):
            yield value
        for name, item in value.items():
            if name not in _FREE:
                yield from _named_parts(item)


_FREE = ("metadata", "explain")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool: a text for the model, and a structured form for programs."""

    structured: dict[str, Any]
    text: str

    @classmethod
    def with_warnings(cls, structured: dict[str, Any], lines: Sequence[str]) -> Self:
        """Create a result from a structured form and the lines of its text. The warnings in the
        structured form become the last lines.
        """
        return cls(structured, "\n".join([*lines, *(f"warning: {warning}" for warning in structured["warnings"])]))


@dataclass(frozen=True, slots=True)
class Definition:
    """The description of a tool, as clients see it.

    A client puts name, description and input schema before its model, so they cost tokens in every
    session of every user. They say only what an agent needs to choose the tool and fill it in; a
    test counts them.
    """

    name: str
    title: str
    description: str
    properties: dict[
        str, dict[str, object]
    ]  # the JSON schemas of the parameters, by their names on the wire (camelCase)
    # the JSON schema of `structuredContent`; clients do not get it, since many then show a model
    # nothing else
    output: dict[str, Any]
    required: tuple[str, ...] = ()
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    # what the proxy does with a call while the daemon cannot be reached (docs/history.md)
    offline: Offline = "fail"
    asks_a_person: bool = False  # opens a secret or destroys data, so no approval should be permanent
    # put before the model from the start, where a client otherwise has it look tools up first
    is_always_loaded: bool = False
    is_long: bool = False  # exempt from the ten seconds that every other call has
    # the parameters that are listed only beside the tools of another group, where they cost what
    # they are worth; they are taken all the same
    shown_with: Mapping[str, str] = field(default_factory=dict)
    clears: tuple[str, ...] = ()  # the parameters that a blank clears; every other blank one counts as left out

    @property
    def parameters(self) -> Parameters:
        """The parser that checks a call's arguments."""
        return Parameters(self.name, self.properties, self.required, clears=self.clears)

    def wire(self, groups: Collection[str] = ()) -> dict[str, object]:
        """Return the tool in the form of MCP's `tools/list`. `groups`: the tool groups that the
        client sees; some parameters are shown only with certain groups.
        """
        hidden = {name for name, group in self.shown_with.items() if group not in groups}
        shown = {name: schema for name, schema in self.properties.items() if name not in hidden}
        schema: dict[str, object] = {"type": "object", "properties": shown}
        if self.required:
            schema["required"] = list(self.required)
        meta: dict[str, object] = {OFFLINE: self.offline}
        if self.is_always_loaded:
            meta[ALWAYS_LOADED] = True
        if self.asks_a_person:
            meta[ASKS_A_PERSON] = True
        if self.is_long:
            meta[LONG_JOB] = True
        if not self.read_only:
            meta[CLEARS] = list(self.clears)  # for the proxy too, with which it checks what waits there
        if hidden:
            # For the proxy, which checks calls that never reach the daemon; clients do not put
            # `_meta` before their model.
            meta[ALSO_TAKES] = {name: self.properties[name] for name in self.properties if name in hidden}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent,
                # Codex has no hint for tools that need approval; it asks before destructive or
                # open-world tools. An opened secret does leave this memory.
                "openWorldHint": self.asks_a_person and not self.destructive,
            },
            "_meta": meta,
        }


def record(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these properties. All are required except
    those in `optional`.
    """
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its description and its function."""

    definition: Definition
    call: Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, ToolResult]]
    """Runs the tool with arguments checked against the definition. Raises ConfideError."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in a client's menu: its description, and the function that returns its text."""

    definition: Mapping[str, Any]
    """`name`, `title`, `description` and `arguments`, as MCP lists them."""
    text: Callable[[ToolContext, Mapping[str, str]], Coroutine[Any, Any, str]]
    """Creates the text from unchecked arguments. Raises ConfideError."""
