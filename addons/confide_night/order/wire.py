"""What requests and answers about tasks carry (PROTOCOL.md 9.10).

Money is whole millionths of a dollar, and the name of a slot is its task and the second at which it is due.
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
    bounded,
    choice,
    count,
    data,
    each,
    encoded,
    fields_of_type,
    hexed,
    items,
    number,
    optional,
    records,
    sized,
    text,
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
"""How long a runner has a slot after its last word."""
RENEW_S: Final = 20
"""How often it says that it still has it."""
MARGIN_S: Final = 15
"""So long before the end of its lease, by its own clock, a run that nobody renews is killed."""
MOST_WAIT_S: Final = 60
"""A runner asks again after so long at the latest."""
MAX_RECIPES: Final = 64
MAX_BUSY: Final = 64
MAX_CANCELLED: Final = 256
MAX_SLOTS: Final = 50
"""Of a task that is shown, the latest."""
MAX_ORDERS: Final = 32
"""In one answer, each with its approvals."""
MAX_REPORT_LINES: Final = 100
MAX_IDS: Final = 3
"""Of tasks that wait for somebody, in a report that is brief."""
COUNTED: Final = (
    *(Slot.LOST, Slot.MISSED, Slot.FAILED, Slot.CANCELLED, Slot.SKIPPED, Slot.SUCCEEDED, Slot.RUNNING),
    *(TaskStatus.PAUSED, TaskStatus.PROPOSED),
)
"""In which order a report tells of them: what somebody should look at comes first."""
MAX_RESULT_CHARS: Final = 64 * 1024
MAX_REASON_CHARS: Final = 256
MAX_COMMIT_CHARS: Final = 64
MAX_LOG_PARTS: Final = 64
MAX_LOG_PART: Final = 256 * 1024
"""Bytes of a log in one sealed part: 16 MiB in all, the first and the last 4 MiB of each stream."""
MAX_LOG_RECORD: Final = MAX_LOG_PART + 512
LOG_KIND: Final = "task-log"
"""Of the sealed records that hold a log."""
MAX_MONEY: Final = 2**53 - 1
MAX_TOKENS: Final = 2**53 - 1
MAX_DURATION_MS: Final = 2 * 86_400_000
AGAIN: Final = "again"
"""What a runner says of what never ran, or was turned away."""
ENDINGS: Final = ("succeeded", "failed", "cancelled", "lost", AGAIN)
_MAX_MOMENT: Final = 2**40
_MAX_NOTE_CHARS: Final = 512


def task_id(body: Mapping[str, object], name: str) -> str:
    """A task's id."""
    value = text(body, name)
    if not is_task_id(value):
        raise RequestError("invalid", f"'{name}' is no id of a task")
    return value


def recipe(body: Mapping[str, object], name: str) -> str:
    """A recipe's name."""
    value = text(body, name)
    if not is_recipe(value):
        raise RequestError("invalid", f"'{name}' is no name of a recipe")
    return value


def _read_log_part(body: Mapping[str, object], name: str) -> bytes:
    found: bytes = data(MAX_LOG_RECORD)(body, name)
    if not is_log(found):
        raise RequestError("invalid", "a part of a log is no sealed record of one")
    return found


_log_part: Final = Coded(_read_log_part, encoded)


def is_log(record: bytes) -> bool:
    """Whether this has the form of a part of a log, as its runner sealed it; only devices see whether it opens."""
    try:
        return SealedRecord.parse(record).kind == LOG_KIND
    except RecordError:
        return False


def _name(body: Mapping[str, object], name: str) -> str:
    # As a person types it: the whole id, or how it begins. Who answers says what is wrong with it.
    found: str = bounded(2 * ID_CHARS)(body, name)
    return found


_TaskId = Annotated[str, task_id]
_Named = Annotated[str, _name]
_Recipe = Annotated[str, recipe]
_Repo = Annotated[str, bounded(MAX_REPO_CHARS)]
_Reason = Annotated[str, bounded(MAX_REASON_CHARS)]
_Key = Annotated[bytes, hexed(KEY_LENGTH)]
_Signature = Annotated[bytes, sized(SIGNATURE_LENGTH)]
_Order = Annotated[bytes, data(MAX_ORDER_BYTES)]
_Money = Annotated[int, count(MAX_MONEY)]
_Due = Annotated[int, count(_MAX_MOMENT)]
"""A moment at which a slot is due, in seconds."""
_Time = Annotated[int, count(2**53 - 1)]
_Attempt = Annotated[int, number(2**31)]
_Tokens = Annotated[int, count(MAX_TOKENS)]
_LeaseS = Annotated[int, number(3_600)]
_Part = Annotated[int, count(MAX_LOG_PARTS - 1)]


class SlotName(TypedDict):
    """Which slot, and whose: every word of a runner about one carries these."""

    task: _TaskId
    at: _Due
    attempt: _Attempt
    fence: Annotated[int, number(2**53 - 1)]


class Approved(TypedDict):
    """An approval."""

    key: _Key
    signature: _Signature


class Ordered(TypedDict):
    """An order as it was signed."""

    order: _Order
    signature: _Signature
    approvals: Annotated[list[Approved], MAX_APPROVALS]


# A space that moves to another daemon (9.8): its tasks; times but `at` and `plannedTo` are whole microseconds since 1970.

MAX_MOVED: Final = 512
"""Tasks, slots, parts of logs or months in one request of a move; written in one transaction."""
_Cursor = Annotated[str, bounded(64)]


class MovedTask(Ordered):
    state: Annotated[str, choice(tuple(TaskStatus))]
    why: _Reason
    plannedTo: _Due
    freshSince: _Time
    created: _Time


class UnreadableTask(MovedTask):
    """One whose order cannot be read, with what was noted of it when it was taken."""

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
    note: Annotated[str, bounded(_MAX_NOTE_CHARS)] | None
    commit: Annotated[str, bounded(MAX_COMMIT_CHARS)]
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
    month: Annotated[str, bounded(7)]
    runner: _Key
    microusd: _Money
    tokens: _Time


class Unreadable(TypedDict):
    """Tasks whose orders cannot be read; all that is of them, and parts of logs that are damaged."""

    tasks: Annotated[list[UnreadableTask], MAX_MOVED]
    slots: Annotated[list[MovedSlot], MAX_MOVED]
    logs: Annotated[list[DamagedLog], MAX_MOVED]


class MovedTasks(TypedDict):
    """Tasks as they go to another daemon."""

    tasks: Annotated[list[MovedTask], MAX_MOVED]
    slots: Annotated[list[MovedSlot], MAX_MOVED]
    logs: Annotated[list[MovedLog], MAX_MOVED]
    runners: Annotated[list[MovedRunner], MAX_MOVED]
    spent: Annotated[list[MovedSpent], MAX_MOVED]
    # Apart from the rest: a daemon or a machine that does not know it passes it over.
    unreadable: NotRequired[Unreadable | None]


MoveTasksRequest = TypedDict("MoveTasksRequest", {"after": _Cursor})


class MoveTasksPage(MovedTasks):
    next: _Cursor | None


class MoveTasksIn(MovedTasks):
    isLast: NotRequired[bool]
    givenUp: NotRequired[bool]


NOTHING_APART: Final[Unreadable] = {"tasks": [], "slots": [], "logs": []}
NOTHING_MOVED: Final[MovedTasks] = {"tasks": [], "slots": [], "logs": [], "runners": [], "spent": []}

# A runner's.


class Offered(TypedDict):
    """A recipe that a runner has: what a run of it may cost, and whether a second device has to approve its orders."""

    name: _Recipe
    maxMicrousd: _Money
    approval: NotRequired[bool]


class ClaimRequest(TypedDict):
    """What a runner can do; `busy`: the repositories in which it runs something now."""

    recipes: Annotated[list[Offered], MAX_RECIPES]
    busy: Annotated[list[_Repo], MAX_BUSY]
    leftMicrousd: _Money


class Claimed(SlotName, Ordered):
    """The slot that a runner is given."""

    leaseS: _LeaseS
    limitMicrousd: _Money


ClaimAnswer = TypedDict("ClaimAnswer", {"slot": Claimed | None, "waitS": _LeaseS})


class StartedRequest(SlotName):
    repeatable: NotRequired[bool]


StartedAnswer = TypedDict("StartedAnswer", {"leaseS": _LeaseS})
RenewAnswer = TypedDict("RenewAnswer", {"leaseS": _LeaseS, "cancelled": bool})


class EndedRequest(SlotName):
    state: Annotated[str, choice(ENDINGS)]
    reason: NotRequired[Annotated[str, optional(bounded(MAX_REASON_CHARS), "")]]
    microusd: NotRequired[Annotated[int, optional(count(MAX_MONEY), 0)]]
    tokensIn: NotRequired[Annotated[int, optional(count(MAX_TOKENS), 0)]]
    tokensOut: NotRequired[Annotated[int, optional(count(MAX_TOKENS), 0)]]
    durationMs: NotRequired[Annotated[int, optional(count(MAX_DURATION_MS), 0)]]
    text: NotRequired[Annotated[str, optional(bounded(MAX_RESULT_CHARS), "")]]
    commit: NotRequired[Annotated[str, optional(bounded(MAX_COMMIT_CHARS), "")]]
    checked: NotRequired[bool | None]


class EndedAnswer(TypedDict):
    state: Annotated[str, choice(("succeeded", "failed", "cancelled", "lost", "ready"))]
    effects: bool
    path: Shown | None


class LogRequest(SlotName):
    part: _Part
    record: Annotated[bytes, _log_part]


class TasksNews(TypedDict):
    """That something may be claimed, or is to be killed."""

    ready: bool
    cancelled: Annotated[list[SlotName], MAX_CANCELLED]


# A person's.


class RunShown(TypedDict):
    """A slot of a task that is shown."""

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
    """A task that is shown."""

    device: Shown
    state: Shown
    why: Told
    slots: Annotated[list[RunShown], MAX_SLOTS]


ShowRequest = TypedDict("ShowRequest", {"task": _Named})
OrdersRequest = TypedDict("OrdersRequest", {"key": _Key, "after": Annotated[str, bounded(ID_CHARS)]})
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
    """Approvals as they were read."""
    return tuple(Approval(one["key"], one["signature"]) for one in listed)
