"""A tool as its client sees it, and what it may know and do: the caller's space, the projects of its connection, its machine."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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
from confide_memory.classes import AGENT
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

# What a tool that changes something answers beside its own.
OUTCOME: dict[str, object] = {
    "queued": {**FLAG, "description": "Kept on this machine until the daemon can be reached"},
    "onDisk": {**FLAG, "description": "The file on this machine is as the daemon has it"},
    "warnings": TEXTS,
}


class Machine(Protocol):
    """The caller's machine as a tool may use it; the session is one, and a caller without a proxy (the panel) is another."""

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        """Bring a new revision to the caller's disk, merging with what a person has just written there."""

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        """Remove the file of a deleted document from the caller's disk; one that a person has just edited brings the document back."""

    async def flush(self, project: str, path: str) -> None:
        """Take in what a person has just written to the file on the caller's machine, if anything."""

    async def backlog(self) -> Backlog | None:
        """What waits on the caller's machine to be sent; None if it does not say."""

    async def workplace(self, project: str) -> Workplace | None:
        """Where the agent works (PROTOCOL.md 9.4); None if its machine does not say."""

    async def scan(self, *, force: bool) -> Scanned | None:
        """Let the machine compare its files with the daemon's; None if it keeps none. Raises RequestError where it could not."""

    async def progress(self, done: float, total: float | None, message: str) -> None:
        """Tell a client that asked for it how far a long call is."""


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """Whether a revision reached the caller's disk."""

    on_disk: bool  # the file on the caller's machine holds the document's newest revision
    result: PutResult  # the newest revision, which is not the stored one where a person's edit was merged in
    warning: str | None = None  # why it is not on disk, for the agent

    @property
    def warnings(self) -> list[str]:
        """What an agent should know of the way of a change to the disk."""
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
        """As `OUTCOME` says."""
        return {"queued": False, "onDisk": self.on_disk, "warnings": self.warnings}


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What `memory_status` tells of the connection."""

    # machine, proxy_version: as the proxy said at its attach; "" if it said nothing
    machine: str
    proxy_version: str
    space: str
    scope: str
    last_sync: str | None  # when the machine last compared its files (ISO 8601, UTC); None if it has not yet


@dataclass(frozen=True, slots=True)
class SealingFacts:
    """What `memory_status` tells of the space's sealed secrets, besides their number."""

    devices: int  # how many may open them; 0 before there is a list of devices
    epoch: int  # of the key that they are sealed under now; 0 before there is one
    custody: str  # who keeps the key of the database: `server` or `caller`
    recovery_codes: int = 0  # of the devices those on paper
    name: str | None = None  # of the caller's machine among them; None: it is none of them

    @classmethod
    def of(cls, roster: Roster | None, custody: str, key: bytes) -> SealingFacts:
        """What a space's roster says of it, for the caller with this key; b"" for one without."""
        if roster is None:
            return cls(0, 0, custody)
        mine = roster.devices.get(key)
        on_paper = sum(device.is_paper for device in roster.devices.values())
        return cls(len(roster.devices), roster.epoch, custody, on_paper, mine.name if mine else None)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """A task of these projects; None: of any."""

    id: str
    projects: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ToolContext:
    space: Space
    machine: Machine
    rights: Callable[[], Grants]  # the caller's grants at the moment when it is asked
    project: str | None  # the project of the connection; None if it attached none
    attached: frozenset[str]  # all projects of the connection, the global one included if its folder is kept there
    facts: ConnectionFacts
    min_score: float  # where the agent gives none
    sealing: Callable[[], Awaitable[SealingFacts]]  # looks at the space's list of devices
    # runs something that changes documents to its end, whoever still waits for it
    finished: Callable[[Coroutine[Any, Any, ToolResult]], Awaitable[ToolResult]]
    tools: frozenset[str]  # the names of those that the agent is shown: an answer advises no others
    unknown_toolsets: tuple[str, ...] = ()  # what its machine asked for by a name of no group
    # the id under which the machine may ask again for the same change; None where it gave none
    operation: str | None = None
    said: datetime | None = None  # when the call was made, by its machine's clock and in its time zone; None for now
    # project and path of a file that the machine has put already, if it had changed, before it made the call
    sent: tuple[Any, Any] | None = None
    class_: str = AGENT  # of what the call stores, as its machine says
    classes: frozenset[str] | None = None  # that a search may give; None: all
    is_unasked: bool = False  # a search is for what may be put before a model that did not ask for it
    key: bytes = b""  # of the caller, Ed25519; b"" for one that has none, as whoever comes by HTTP
    notes: tuple[str, ...] = ()  # what its machine says of its files, for the warnings of an answer
    has_machine: bool = True  # else no working copies bind it to the projects of its connection

    @property
    def grants(self) -> Grants:
        """What the caller may do now. Ask again after every wait."""
        return self.rights()

    @property
    def linked(self) -> frozenset[str]:
        """The projects that are linked with this one, as far as the caller reaches them."""
        linked = self.space.projects.linked(self.project) if self.project else frozenset()
        return frozenset(name for name in linked if self.grants.has_project(name))

    @property
    def moment(self) -> float:
        """When the call was made, in seconds since 1970."""
        return float(int(self.said.timestamp())) if self.said else now()

    # Where to look

    def wanted(self, project: str | None, scope: str) -> frozenset[str] | None:
        """The projects, None for all: this one, those linked with it and the global one; `scope` narrows, `project` replaces.

        What of them the caller may see, its grants say. Raises ToolError where the two exclude each other.
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
        return frozenset({self.project, GLOBAL_PROJECT, *self.linked})

    async def require_known(self, project: str | None) -> None:
        """Refuse a project that a call names, and that nothing tells of: it holds nothing that the caller reaches, and is not attached.

        Raises NotFoundError; its hint names the nearest.
        """
        if project in (None, "*", GLOBAL_PROJECT, self.project) or {project} & (self.attached | self.linked):
            return
        grants = self.grants
        if await self.space.projects.listed(frozenset({project}), grants.sources):
            return
        names = [row.name for row in await self.space.projects.listed(grants.projects, grants.sources)]
        near = difflib.get_close_matches(project, names, 3, 0.5) or names[:NEAR_PROJECTS]
        hint = f"there is: {', '.join(near)}" if near else "leave it out: nothing is stored anywhere yet"
        raise NotFoundError(f"there is no project '{printable(project[:64])}'", hint=hint)

    def task(self, project: str | None, scope: str, task_id: str | None) -> TaskFilter | None:
        """The task whose notes a call looks at beside all others; None where those of every task are left out.

        `scope`: all, project, global or task; a task alone means scope task.

        Raises ToolError: they do not go together, or the task is missing.
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
        """What is found of a document in the named project, or else in this one, the global one and those linked, and in which.

        Raises GrantError where the caller reaches none of them, or not the document's source; NotFoundError where none of them has
        it; as the first that was looked in says it.
        """
        self.grants.require_source(source_of(path))
        own = (self.project or GLOBAL_PROJECT, GLOBAL_PROJECT, *sorted(self.linked))
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

    # Who may write

    def reachable(self) -> frozenset[str] | None:
        """The projects whose notes a caller that writes may see; None: all. Raises GrantError where it may not write at all."""
        grants = self.grants
        grants.require_scope()
        grants.require_source("memory")
        return grants.projects_among(None)

    def is_attached(self, project: str) -> bool:
        """Whether the connection can write to a project, as far as its grants reach."""
        if not self.has_machine:
            return (
                len(project) <= MAX_PROJECT_CHARS and project.isprintable() and bool(project.strip()) and project != "*"
            )
        return project == GLOBAL_PROJECT or project in self.attached

    def require_attached(self, project: str, what: str = "write to project") -> None:
        """Refuse a project that is not one of the connection. Raises ToolError."""
        if not self.is_attached(project):
            known = ", ".join(sorted({*self.attached, GLOBAL_PROJECT}))
            raise ToolError(f"this connection cannot {what} '{project[:64]}'", hint=f"it can write to: {known}")

    async def flush(self, project: str, path: str, *, sent: tuple[Any, Any] | None = None) -> None:
        """Take in what a person has just written to a file that this call is about to change; not where it is the one that was sent.

        Raises GrantError where the caller may not write it; ToolError where it is in a project that is not one of the connection.
        """
        self.grants.require_write(project, path)
        self.require_attached(project)
        if sent != (project, path):
            await self.machine.flush(project, path)
        self.grants.require_write(project, path)  # a machine that answers late must not outlast its grant

    async def writable(self, identity: str) -> NoteRow:
        """The note that is to be changed, flushed. Raises as `flush`, and NotFoundError where the caller reaches none of that id."""
        row = await self.space.notes.row(identity, self.reachable())
        await self.flush(row.project, row.path)
        return row

    # What notes are called

    async def short_ids(self, identities: Iterable[str]) -> Callable[[str], str]:
        """What shortens these ids of notes, each to what no other note has that the caller reaches; one that it does not reach makes none
        longer."""
        with contextlib.suppress(GrantError):  # it may have lost what it had, and what was done is told all the same
            short = await self.space.notes.short(list(identities), self.grants.projects_among(None))
            return lambda identity: short.get(identity, identity)
        return lambda identity: identity

    async def shorten(self, structured: dict[str, object]) -> Callable[[str], str]:
        """Puts beside each note's id in a structured result its short form; gives what `short_ids` does."""
        named = list(_named(structured))
        short = await self.short_ids(one["id"] for one in named) if named else str
        for one in named:
            one["shortId"] = short(one["id"])
        return short

    def operation_of(self, tool: str, arguments: Mapping[str, object], part: str = "") -> RepeatableChange | None:
        """The operation of a call; `part` names one of several changes that a call makes."""
        if self.operation is None:
            return None
        identity = text_hash(self.operation + part)[:32] if part else self.operation
        return RepeatableChange(identity, text_hash(json.dumps([tool, part, arguments], sort_keys=True)))


def _named(value: Any) -> Iterator[dict[str, Any]]:
    """Whatever of a structured result has the id of a note; what a note says of itself in its metadata is not looked at."""
    if isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, dict):
        if isinstance(identity := value.get("id"), str) and note_names.ID.fullmatch(identity):
            yield value
        for name, item in value.items():
            if name not in _FREE:
                yield from _named(item)


_FREE = ("metadata", "explain")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers: the text that a model reads, and the structured form for programs that ask for it."""

    structured: dict[str, Any]
    text: str

    @classmethod
    def warned(cls, structured: dict[str, Any], lines: Sequence[str]) -> Self:
        """With the warnings of the structured form as the last lines of the text."""
        return cls(structured, "\n".join([*lines, *(f"warning: {warning}" for warning in structured["warnings"])]))


@dataclass(frozen=True, slots=True)
class Definition:
    """How one tool is described to a client.

    The parts that a client puts before its model (name, description, input schema) cost tokens in every session of every user, so they
    say only what an agent needs to choose the tool and fill it in; a test counts them.
    """

    name: str
    title: str
    description: str
    properties: dict[
        str, dict[str, object]
    ]  # the JSON schemas of the parameters, by their names on the wire (camelCase)
    # the JSON schema of `structuredContent`, for who asks for that; no client is told, since many then show a model nothing else
    output: dict[str, Any]
    required: tuple[str, ...] = ()
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    # what the proxy does with a call while the daemon cannot be reached (docs/history.md)
    offline: Offline = "fail"
    asks_a_person: bool = False  # opens or destroys, so that nobody should approve it once for all
    # put before the model from the start, where a client otherwise has it look tools up first
    is_always_loaded: bool = False
    is_long: bool = False  # exempt from the ten seconds that every other call has
    # the parameters that are listed only beside the tools of another group, where they cost what they are worth; they are taken all the
    # same
    shown_with: Mapping[str, str] = field(default_factory=dict)
    clears: tuple[str, ...] = ()  # the parameters that a blank clears; every other blank one counts as left out

    @property
    def parameters(self) -> Parameters:
        """What a call's arguments are checked against."""
        return Parameters(self.name, self.properties, self.required, clears=self.clears)

    def wire(self, groups: Collection[str] = ()) -> dict[str, object]:
        """The tool as `tools/list` carries it, beside these groups."""
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
            # For the proxy, which checks calls that the daemon does not see; clients put none of `_meta` before their model.
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
                # Codex has no word for a tool that asks a person, and asks before what destroys or reaches out of its server. What a
                # secret's opening brings does leave this memory.
                "openWorldHint": self.asks_a_person and not self.destructive,
            },
            "_meta": meta,
        }


def record(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of an object that has exactly these properties, all required but the `optional` ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: how it is described, and what carries it out."""

    definition: Definition
    call: Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, ToolResult]]
    """Gets arguments that were checked against the definition. Raises ConfideError."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a person chooses from a client's menu: how it is described there, and what makes its text."""

    definition: Mapping[str, Any]
    """`name`, `title`, `description` and `arguments`, as MCP lists them."""
    text: Callable[[ToolContext, Mapping[str, str]], Coroutine[Any, Any, str]]
    """Gets the arguments as they came. Raises ConfideError."""
