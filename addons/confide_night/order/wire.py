"""Wire schemas of the requests and answers about tasks (PROTOCOL.md 9.10).

Amounts are whole millionths of a US dollar; a slot is identified by its task and the second at
which it is due.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NotRequired, TypedDict

from confide_crypto.errors import RecordError, RequestError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from confide_crypto.sealing.record import SealedRecord
from confide_memory.forms import (
    Coded,
    Moment,
    Project,
    Shown,
    Told,
    bytes_of,
    choice,
    count,
    data,
    each,
    fields_of_type,
    hex_of,
    items,
    number,
    optional,
    records,
    text,
    text_up_to,
    to_base64,
)
from confide_memory.wire.operation import OF_DAEMONS, Nothing, Operation
from confide_night.order.order import (
    ID_CHARS,
    LEAST_PRIORITY,
    MAX_APPROVALS,
    MAX_ORDER_BYTES,
    MAX_PRIORITY,
    MAX_REPO_CHARS,
    Approval,
    Slot,
    TaskStatus,
    is_recipe,
    is_task_id,
)

LEASE_S: Final = 90
"""Length of a lease in seconds, from the runner's last request."""
RENEW_S: Final = 20
"""Interval at which a runner renews its lease, in seconds."""
MARGIN_S: Final = 15
"""Seconds before the end of its lease, by its own clock, at which a runner kills a run that it
could not renew.
"""
MOST_WAIT_S: Final = 60
"""Longest wait of a runner between two claims, in seconds."""
MAX_RECIPES: Final = 64
MAX_BUSY: Final = 64
MAX_CANCELLED: Final = 256
MAX_SLOTS: Final = 50
"""Most slots of a task that is shown, the latest ones."""
MAX_ORDERS: Final = 32
"""Most orders in one answer, each with its approvals."""
MAX_REPORT_LINES: Final = 100
MAX_IDS: Final = 3
"""Most ids of tasks that need attention in a brief report."""
COUNTED: Final = (
    *(Slot.LOST, Slot.MISSED, Slot.FAILED, Slot.CANCELLED, Slot.SKIPPED, Slot.SUCCEEDED, Slot.RUNNING),
    *(TaskStatus.PAUSED, TaskStatus.PROPOSED),
)
"""Order of the states in a report: those that need attention come first."""
MAX_RESULT_CHARS: Final = 64 * 1024
MAX_REASON_CHARS: Final = 256
MAX_COMMIT_CHARS: Final = 64
MAX_LOG_PARTS: Final = 64
MAX_LOG_PART: Final = 256 * 1024
"""Bytes of a log in one sealed part. A log has at most 16 MiB: the first and the last 4 MiB of each
stream.
"""
MAX_LOG_RECORD: Final = MAX_LOG_PART + 512
LOG_KIND: Final = "task-log"
"""Kind of the sealed records that contain a log."""
MAX_MONEY: Final = 2**53 - 1
MAX_TOKENS: Final = 2**53 - 1
MAX_DURATION_MS: Final = 2 * 86_400_000
AGAIN: Final = "again"
"""State that a runner reports for a run that never started or was refused."""
ENDINGS: Final = ("succeeded", "failed", "cancelled", "lost", AGAIN)
_MAX_MOMENT: Final = 2**40
_MAX_NOTE_CHARS: Final = 512


def task_id(body: Mapping[str, object], name: str) -> str:
    """Read a task's id from a request."""
    value = text(body, name)
    if not is_task_id(value):
        raise RequestError("invalid", f"'{name}' is no id of a task")
    return value


def recipe(body: Mapping[str, object], name: str) -> str:
    """Read a recipe's name from a request."""
    value = text(body, name)
    if not is_recipe(value):
        raise RequestError("invalid", f"'{name}' is no name of a recipe")
    return value


def _read_log_part(body: Mapping[str, object], name: str) -> bytes:
    found: bytes = data(MAX_LOG_RECORD)(body, name)
    if not is_log(found):
        raise RequestError("invalid", "a part of a log is no sealed record of one")
    return found


_log_part: Final = Coded(_read_log_part, to_base64)


def is_log(record: bytes) -> bool:
    """Return True if the record has the form of a sealed log part; only devices can check that it
    decrypts.
    """
    try:
        return SealedRecord.parse(record).kind == LOG_KIND
    except RecordError:
        return False


def _name(body: Mapping[str, object], name: str) -> str:
    # A full id or a prefix, as a user types it; the answering code validates it.
    found: str = text_up_to(2 * ID_CHARS)(body, name)
    return found


_TaskId = Annotated[str, task_id]
_Named = Annotated[str, _name]
_Recipe = Annotated[str, recipe]
_Repo = Annotated[str, text_up_to(MAX_REPO_CHARS)]
_Reason = Annotated[str, text_up_to(MAX_REASON_CHARS)]
_Key = Annotated[bytes, hex_of(KEY_LENGTH)]
_Signature = Annotated[bytes, bytes_of(SIGNATURE_LENGTH)]
_Order = Annotated[bytes, data(MAX_ORDER_BYTES)]
_Money = Annotated[int, count(MAX_MONEY)]
_Due = Annotated[int, count(_MAX_MOMENT)]
"""The time at which a slot is due, in seconds since 1970."""
_Time = Annotated[int, count(2**53 - 1)]
_Attempt = Annotated[int, number(2**31)]
_Tokens = Annotated[int, count(MAX_TOKENS)]
_LeaseS = Annotated[int, number(3_600)]
_Part = Annotated[int, count(MAX_LOG_PARTS - 1)]


class SlotName(TypedDict):
    """Identity of a slot and its lease, part of every runner's request about it."""

    task: _TaskId
    at: _Due
    attempt: _Attempt
    fence: Annotated[int, number(2**53 - 1)]


class Approved(TypedDict):
    """Wire form of an approval."""

    key: _Key
    signature: _Signature


class Ordered(TypedDict):
    """Wire form of a signed order with its approvals."""

    order: _Order
    signature: _Signature
    approvals: Annotated[list[Approved], MAX_APPROVALS]


# Tasks of a space that moves to another daemon (9.8). Times other than `at` and `plannedTo` are
# whole microseconds since 1970.

MAX_MOVED: Final = 512
"""Most tasks, slots, log parts or months in one request of a move, which is stored in one
transaction.
"""
_Cursor = Annotated[str, text_up_to(64)]


class MovedTask(Ordered):
    state: Annotated[str, choice(tuple(TaskStatus))]
    why: _Reason
    plannedTo: _Due
    freshSince: _Time
    created: _Time


class UnreadableTask(MovedTask):
    """A task whose order cannot be read, with the fields recorded when it was added."""

    task: _TaskId
    project: Project
    recipe: _Recipe
    repo: _Repo
    priority: Annotated[int, count(MAX_PRIORITY, least=LEAST_PRIORITY)]
    signer: _Key


class MovedSlot(TypedDict):
    task: _TaskId
    at: _Due
    state: Annotated[str, choice(tuple(Slot))]
    attempt: _Attempt
    fence: Annotated[int, count(2**53 - 1)]
    nextTry: _Time
    runner: _Key | None
    repeatable: bool
    toCancel: _Reason | None
    reserved: _Money
    microusd: _Money
    tokensIn: _Tokens
    tokensOut: _Tokens
    durationMs: Annotated[int, count(MAX_DURATION_MS)]
    started: _Time | None
    ended: _Time | None
    reason: _Reason
    note: Annotated[str, text_up_to(_MAX_NOTE_CHARS)] | None
    commit: Annotated[str, text_up_to(MAX_COMMIT_CHARS)]
    checked: bool | None
    seen: _Time | None


class _LogPlace(TypedDict):
    task: _TaskId
    at: _Due
    part: _Part


class MovedLog(_LogPlace):
    record: Annotated[bytes, _log_part]
    time: _Time


class DamagedLog(_LogPlace):
    record: Annotated[bytes, data(MAX_LOG_RECORD)]
    time: _Time


class MovedRecipe(TypedDict):
    name: _Recipe
    approval: bool


class MovedRunner(TypedDict):
    key: _Key
    name: _Reason
    recipes: Annotated[list[MovedRecipe], MAX_RECIPES]
    seen: _Time


class MovedSpent(TypedDict):
    month: Annotated[str, text_up_to(7)]
    runner: _Key
    microusd: _Money
    tokens: _Time


class Unreadable(TypedDict):
    """Tasks whose orders cannot be read, with their slots and logs, and damaged log parts."""

    tasks: Annotated[list[UnreadableTask], MAX_MOVED]
    slots: Annotated[list[MovedSlot], MAX_MOVED]
    logs: Annotated[list[DamagedLog], MAX_MOVED]


class MovedTasks(TypedDict):
    """A page of the tasks that move to another daemon."""

    tasks: Annotated[list[MovedTask], MAX_MOVED]
    slots: Annotated[list[MovedSlot], MAX_MOVED]
    logs: Annotated[list[MovedLog], MAX_MOVED]
    runners: Annotated[list[MovedRunner], MAX_MOVED]
    spent: Annotated[list[MovedSpent], MAX_MOVED]
    # Kept apart, so that older daemons and devices can ignore it.
    unreadable: NotRequired[Unreadable | None]


MoveTasksRequest = TypedDict("MoveTasksRequest", {"after": _Cursor})


class MoveTasksPage(MovedTasks):
    next: _Cursor | None


class MoveTasksIn(MovedTasks):
    isLast: NotRequired[bool]
    givenUp: NotRequired[bool]


NOTHING_APART: Final[Unreadable] = {"tasks": [], "slots": [], "logs": []}
NOTHING_MOVED: Final[MovedTasks] = {"tasks": [], "slots": [], "logs": [], "runners": [], "spent": []}

# Requests of a runner


class Offered(TypedDict):
    """A recipe (a kind of work) that a runner offers: the highest price of a run, and True if its
    orders need the approval of a second device.
    """

    name: _Recipe
    maxMicrousd: _Money
    approval: NotRequired[bool]


class ClaimRequest(TypedDict):
    """Capabilities of a runner that claims a slot; `busy` lists the repositories in which it runs
    something.
    """

    recipes: Annotated[list[Offered], MAX_RECIPES]
    busy: Annotated[list[_Repo], MAX_BUSY]
    leftMicrousd: _Money


class Claimed(SlotName, Ordered):
    """The slot that a runner receives."""

    leaseS: _LeaseS
    limitMicrousd: _Money


ClaimAnswer = TypedDict("ClaimAnswer", {"slot": Claimed | None, "waitS": _LeaseS})


class StartedRequest(SlotName):
    repeatable: NotRequired[bool]


StartedAnswer = TypedDict("StartedAnswer", {"leaseS": _LeaseS})
RenewAnswer = TypedDict("RenewAnswer", {"leaseS": _LeaseS, "cancelled": bool})


class EndedRequest(SlotName):
    state: Annotated[str, choice(ENDINGS)]
    reason: NotRequired[Annotated[str, optional(text_up_to(MAX_REASON_CHARS), "")]]
    microusd: NotRequired[Annotated[int, optional(count(MAX_MONEY), 0)]]
    tokensIn: NotRequired[Annotated[int, optional(count(MAX_TOKENS), 0)]]
    tokensOut: NotRequired[Annotated[int, optional(count(MAX_TOKENS), 0)]]
    durationMs: NotRequired[Annotated[int, optional(count(MAX_DURATION_MS), 0)]]
    text: NotRequired[Annotated[str, optional(text_up_to(MAX_RESULT_CHARS), "")]]
    commit: NotRequired[Annotated[str, optional(text_up_to(MAX_COMMIT_CHARS), "")]]
    checked: NotRequired[bool | None]


class EndedAnswer(TypedDict):
    state: Annotated[str, choice(("succeeded", "failed", "cancelled", "lost", "ready"))]
    effects: bool
    path: Shown | None


class LogRequest(SlotName):
    part: _Part
    record: Annotated[bytes, _log_part]


class TasksNews(TypedDict):
    """Notice to a runner that a slot may be claimable or that runs are to be killed."""

    ready: bool
    cancelled: Annotated[list[SlotName], MAX_CANCELLED]


# Requests of a user


class RunShown(TypedDict):
    """A slot of a task, in the form in which it is shown."""

    at: _Due
    state: Shown
    attempt: _Attempt
    reason: Told
    runner: Shown | None
    microusd: _Money
    tokens: _Tokens
    durationMs: Annotated[int, count(MAX_MONEY)]
    checked: bool | None
    commit: Told
    path: Shown | None
    ended: Moment | None


class _OfTask(TypedDict):
    task: _TaskId


class TaskShown(_OfTask, Ordered):
    """A task with its order and runs, in the form in which it is shown."""

    device: Shown
    state: Shown
    why: Told
    slots: Annotated[list[RunShown], MAX_SLOTS]


ShowRequest = TypedDict("ShowRequest", {"task": _Named})
OrdersRequest = TypedDict("OrdersRequest", {"key": _Key, "after": Annotated[str, text_up_to(ID_CHARS)]})
OrdersPage = TypedDict("OrdersPage", {"orders": Annotated[list[Ordered], MAX_ORDERS], "next": _TaskId | None})
ResignRequest = TypedDict("ResignRequest", {"order": _Order, "signature": _Signature})
ApproveRequest = TypedDict("ApproveRequest", {"task": _Named, "signature": _Signature})
SetRequest = TypedDict("SetRequest", {"task": _Named, "state": Annotated[str, choice(("active", "paused"))]})
TaskState = TypedDict("TaskState", {"state": Shown})
LogsRequest = TypedDict(
    "LogsRequest", {"task": _Named, "at": _Due, "from": NotRequired[Annotated[int, optional(count(MAX_LOG_PARTS), 0)]]}
)
LogPart = TypedDict("LogPart", {"part": _Part, "record": Annotated[bytes, data(MAX_LOG_RECORD)]})
LogParts = TypedDict(
    "LogParts",
    {
        "parts": Annotated[list[LogPart], MAX_LOG_PARTS],
        "next": Annotated[int, count(MAX_LOG_PARTS)] | None,
    },
)
ReportRequest = TypedDict("ReportRequest", {"since": NotRequired[Moment | None], "brief": NotRequired[bool]})
Counted = TypedDict("Counted", {"state": Annotated[str, choice(COUNTED)], "count": _Money})


class ReportAnswer(TypedDict):
    lines: Annotated[list[Shown], MAX_REPORT_LINES]
    open: bool
    counts: Annotated[Sequence[Counted], optional(records(len(COUNTED), **fields_of_type(Counted)), ())]
    ids: Annotated[Sequence[str], optional(items(MAX_IDS, each(task_id)), ())]


MOVE_TASKS: Final = Operation("move-tasks", MoveTasksRequest, MoveTasksPage)
MOVE_TASKS_IN: Final = Operation("move-tasks-in", MoveTasksIn, Nothing)
CLAIM: Final = Operation("task-claim", ClaimRequest, ClaimAnswer)
STARTED: Final = Operation("task-started", StartedRequest, StartedAnswer)
RENEW: Final = Operation("task-renew", SlotName, RenewAnswer)
ENDED: Final = Operation("task-ended", EndedRequest, EndedAnswer)
LOG: Final = Operation("task-log", LogRequest, Nothing)
SHOW: Final = Operation("task-show", ShowRequest, TaskShown)
ORDERS: Final = Operation("task-orders", OrdersRequest, OrdersPage)
RESIGN: Final = Operation("task-resign", ResignRequest, TaskState)
APPROVE: Final = Operation("task-approve", ApproveRequest, TaskState)
SET: Final = Operation("task-set", SetRequest, TaskState)
LOGS: Final = Operation("task-logs", LogsRequest, LogParts)
REPORT: Final = Operation("task-report", ReportRequest, ReportAnswer)
NEWS: Final = Operation("tasks", TasksNews, Nothing, among=OF_DAEMONS)


def approvals_of(listed: Iterable[Approved]) -> tuple[Approval, ...]:
    """Parse approvals from the form that requests and answers use."""
    return tuple(Approval(one["key"], one["signature"]) for one in listed)
