"""What requests and answers about tasks carry (PROTOCOL.md 9.10).

Money is whole millionths of a dollar, and the name of a slot is its task and the second at which it is due.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NotRequired, TypedDict

from confide_crypto.errors import RecordError, RequestError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from confide_crypto.sealing.record import Record
from confide_memory.forms import (
    Fields,
    Kind,
    bounded,
    choice,
    count,
    data,
    each,
    flag,
    hexed,
    items,
    moment,
    number,
    optional,
    project,
    record,
    records,
    shown,
    sized,
    text,
)
from confide_memory.wire.operation import OF_DAEMONS, Nothing, Operation, add
from confide_night.order.order import (
    ID_CHARS,
    LEAST_PRIORITY,
    MAX_APPROVALS,
    MAX_ORDER_BYTES,
    MAX_PRIORITY,
    MAX_REPO_CHARS,
    Approval,
    Slot,
    Task,
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
    *(Task.PAUSED, Task.PROPOSED),
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


def _log_part(body: Mapping[str, object], name: str) -> bytes:
    found: bytes = data(MAX_LOG_RECORD)(body, name)
    if not is_log(found):
        raise RequestError("invalid", "a part of a log is no sealed record of one")
    return found


def is_log(record: bytes) -> bool:
    """Whether this has the form of a part of a log, as its runner sealed it; only devices see whether it opens."""
    try:
        return Record.parse(record).kind == LOG_KIND
    except RecordError:
        return False


def _name(body: Mapping[str, object], name: str) -> str:
    # As a person types it: the whole id, or how it begins. Who answers says what is wrong with it.
    found: str = bounded(2 * ID_CHARS)(body, name)
    return found


_money: Final = count(MAX_MONEY)
_moment: Final = count(_MAX_MOMENT)

_MOST_TIME: Final = 2**53 - 1
_time: Final = count(_MOST_TIME)

SLOT: Final[Mapping[str, Kind]] = {
    "task": task_id,
    "at": _moment,
    "attempt": number(2**31),
    "fence": number(2**53 - 1),
}
"""Which slot, and whose: every word of a runner about one carries these."""

RECIPES: Final = records(MAX_RECIPES, name=recipe, maxMicrousd=_money, approval=flag())
"""Those that a runner has: what a run of each may cost, and whether a second device has to approve its orders."""
BUSY: Final = items(MAX_BUSY, lambda item: bounded(MAX_REPO_CHARS)({"": item}, ""))
"""Repositories in which it runs something now."""

APPROVALS: Final = records(MAX_APPROVALS, key=hexed(KEY_LENGTH), signature=sized(SIGNATURE_LENGTH))
ORDERED: Final[Mapping[str, Kind]] = {
    "order": data(MAX_ORDER_BYTES),
    "signature": sized(SIGNATURE_LENGTH),
    "approvals": APPROVALS,
}
"""An order as it was signed."""

MAX_MOVED: Final = 512
"""Tasks, slots, parts of logs or months in one request of a move; written in one transaction."""
_MAX_CURSOR: Final = 64
_MONTH_CHARS: Final = 7
_MOVED_TASK: Final[Mapping[str, Kind]] = {
    **ORDERED,
    "state": choice(tuple(Task)),
    "why": bounded(MAX_REASON_CHARS),
    "plannedTo": _moment,
    "freshSince": _time,
    "created": _time,
}
_MOVED_SLOTS: Final = records(
    MAX_MOVED,
    task=task_id,
    at=_moment,
    state=choice(tuple(Slot)),
    attempt=number(2**31),
    fence=count(2**53 - 1),
    nextTry=_time,
    runner=optional(hexed(KEY_LENGTH)),
    repeatable=flag(),
    toCancel=optional(bounded(MAX_REASON_CHARS)),
    reserved=_money,
    microusd=_money,
    tokensIn=count(MAX_TOKENS),
    tokensOut=count(MAX_TOKENS),
    durationMs=count(MAX_DURATION_MS),
    started=optional(_time),
    ended=optional(_time),
    reason=bounded(MAX_REASON_CHARS),
    note=optional(bounded(_MAX_NOTE_CHARS)),
    commit=bounded(MAX_COMMIT_CHARS),
    checked=optional(flag()),
    seen=optional(_time),
)
_MOVED_LOG: Final[Mapping[str, Kind]] = {
    "task": task_id,
    "at": _moment,
    "part": count(MAX_LOG_PARTS - 1),
    "record": _log_part,
    "time": _time,
}
UNREADABLE: Final = record(
    tasks=records(
        MAX_MOVED,
        **_MOVED_TASK,
        task=task_id,
        project=project,
        recipe=recipe,
        repo=bounded(MAX_REPO_CHARS),
        priority=count(MAX_PRIORITY, least=LEAST_PRIORITY),
        signer=hexed(KEY_LENGTH),
    ),
    slots=_MOVED_SLOTS,
    logs=records(MAX_MOVED, **{**_MOVED_LOG, "record": data(MAX_LOG_RECORD)}),
)
"""Tasks whose orders cannot be read, with what was noted of each when it was taken; all that is of them, and parts of logs that are
damaged."""
MOVED: Final[Mapping[str, Kind]] = {
    "tasks": records(MAX_MOVED, **_MOVED_TASK),
    "slots": _MOVED_SLOTS,
    "logs": records(MAX_MOVED, **_MOVED_LOG),
    "runners": records(
        MAX_MOVED,
        key=hexed(KEY_LENGTH),
        name=bounded(MAX_REASON_CHARS),
        recipes=records(MAX_RECIPES, name=recipe, approval=flag()),
        seen=_time,
    ),
    "spent": records(MAX_MOVED, month=bounded(_MONTH_CHARS), runner=hexed(KEY_LENGTH), microusd=_money, tokens=_time),
    # Apart from the rest: a daemon or a machine that does not know it passes it over.
    "unreadable": optional(UNREADABLE),
}
"""Tasks as they go to another daemon (9.8); times but `at` and `plannedTo` are whole microseconds since 1970."""
NOTHING_MOVED: Final[dict[str, object]] = {name: [] for name in MOVED if name != "unreadable"}

_REQUESTS: Final[Mapping[str, Fields]] = {
    # A space that moves to another daemon.
    "move-tasks": {"after": bounded(_MAX_CURSOR)},
    "move-tasks-in": {**MOVED, "isLast": flag(), "givenUp": flag()},
    # A runner's.
    "task-claim": {"recipes": RECIPES, "busy": BUSY, "leftMicrousd": _money},
    "task-started": {**SLOT, "repeatable": flag()},
    "task-renew": dict(SLOT),
    "task-ended": {
        **SLOT,
        "state": choice(ENDINGS),
        "reason": optional(bounded(MAX_REASON_CHARS), ""),
        "microusd": optional(_money, 0),
        "tokensIn": optional(count(MAX_TOKENS), 0),
        "tokensOut": optional(count(MAX_TOKENS), 0),
        "durationMs": optional(count(MAX_DURATION_MS), 0),
        "text": optional(bounded(MAX_RESULT_CHARS), ""),
        "commit": optional(bounded(MAX_COMMIT_CHARS), ""),
        "checked": optional(flag()),
    },
    "task-log": {**SLOT, "part": count(MAX_LOG_PARTS - 1), "record": _log_part},
    # A person's.
    "task-show": {"task": _name},
    "task-orders": {"key": hexed(KEY_LENGTH), "after": bounded(ID_CHARS)},
    "task-resign": {"order": data(MAX_ORDER_BYTES), "signature": sized(SIGNATURE_LENGTH)},
    "task-approve": {"task": _name, "signature": sized(SIGNATURE_LENGTH)},
    "task-set": {"task": _name, "state": choice(("active", "paused"))},
    "task-logs": {"task": _name, "at": _moment, "from": optional(count(MAX_LOG_PARTS), 0)},
    "task-report": {"since": optional(moment), "brief": flag()},
}

_ANSWERS: Final[Mapping[str, Fields]] = {
    "move-tasks": {**MOVED, "next": optional(bounded(_MAX_CURSOR))},
    "move-tasks-in": {},
    "task-claim": {
        "slot": optional(record(**SLOT, **ORDERED, leaseS=number(3_600), limitMicrousd=_money)),
        "waitS": number(3_600),
    },
    "task-started": {"leaseS": number(3_600)},
    "task-renew": {"leaseS": number(3_600), "cancelled": flag()},
    "task-ended": {
        "state": choice(("succeeded", "failed", "cancelled", "lost", "ready")),
        "effects": flag(),
        "path": optional(shown),
    },
    "task-log": {},
    "task-show": {
        "task": task_id,
        **ORDERED,
        "device": shown,
        "state": shown,
        "why": optional(shown, ""),
        "slots": records(
            MAX_SLOTS,
            at=_moment,
            state=shown,
            attempt=number(2**31),
            reason=optional(shown, ""),
            runner=optional(shown),
            microusd=_money,
            tokens=count(MAX_TOKENS),
            durationMs=count(MAX_MONEY),
            checked=optional(flag()),
            commit=optional(shown, ""),
            path=optional(shown),
            ended=optional(moment),
        ),
    },
    "task-orders": {"orders": records(MAX_ORDERS, **ORDERED), "next": optional(task_id)},
    "task-resign": {"state": shown},
    "task-approve": {"state": shown},
    "task-set": {"state": shown},
    "task-logs": {
        "parts": records(MAX_LOG_PARTS, part=count(MAX_LOG_PARTS - 1), record=data(MAX_LOG_RECORD)),
        "next": optional(count(MAX_LOG_PARTS)),
    },
    "task-report": {
        "lines": items(MAX_REPORT_LINES, each(shown)),
        "open": flag(),
        "counts": optional(records(len(COUNTED), state=choice(COUNTED), count=count(MAX_MONEY)), ()),
        "ids": optional(items(MAX_IDS, each(task_id)), ()),
    },
}

add(_REQUESTS, _ANSWERS)


class SlotName(TypedDict):
    """Which slot, and whose: every word of a runner about one carries these."""

    task: Annotated[str, task_id]
    at: Annotated[int, _moment]
    attempt: Annotated[int, number(2**31)]
    fence: Annotated[int, number(2**53 - 1)]


class TasksNews(TypedDict):
    """That something may be claimed, or is to be killed."""

    ready: bool
    cancelled: Annotated[list[SlotName], MAX_CANCELLED]


NEWS: Final = Operation("tasks", TasksNews, Nothing, among=OF_DAEMONS)


class Approved(TypedDict):
    """An approval, as it is read."""

    key: bytes
    signature: bytes


class Claimed(SlotName):
    """The slot that a runner is given, as it is read."""

    order: bytes
    signature: bytes
    approvals: list[Approved]
    leaseS: int
    limitMicrousd: int
    askedAt: NotRequired[float]  # of the runner's own clock


class RunShown(TypedDict):
    """A slot of a task that is shown, as it is read."""

    at: int
    state: str
    attempt: int
    reason: str
    runner: str | None
    microusd: int
    tokens: int
    durationMs: int
    checked: bool | None
    commit: str
    path: str | None
    ended: str | None


class TaskShown(TypedDict):
    """A task that is shown, as it is read."""

    task: str
    order: bytes
    signature: bytes
    approvals: list[Approved]
    device: str
    state: str
    why: str
    slots: list[RunShown]


def approvals_of(listed: Iterable[Approved]) -> tuple[Approval, ...]:
    """Approvals as they were read."""
    return tuple(Approval(one["key"], one["signature"]) for one in listed)
