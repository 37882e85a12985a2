"""A task as its device ordered it: canonical JSON, which it signs, and nobody changes (PROTOCOL.md 11); and what becomes of a task and its
slots, each one moment at which it is due.

An order names a recipe that a runner has, and fills in text. It is signed by a device of the space, so that no daemon can make one, change
one or take one from another space. Whoever follows one opens it with `opened`, and asks it with `check_slot` whether the slot that the
daemon gives is one of it: a daemon can keep orders back, and neither invent them nor repeat them. That an order is done once only is for
the ledger of whoever does it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, Self

from confide_crypto.errors import OrderError, OrderSignatureError, OrderSignerError
from confide_crypto.keys.identity import KEY_LENGTH, Identity, verify
from confide_crypto.sealing.encoding import joined
from confide_crypto.sealing.roster import Roster
from confide_memory.errors import TaskStateError, ToolError
from confide_memory.forms import MAX_PROJECT_CHARS
from confide_night.order import schedule as schedules


class TaskStatus(StrEnum):
    """What becomes of a task."""

    PROPOSED = "proposed"
    """Its recipe asks for a second device, which has not approved it."""
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """Nothing of it is due any more."""
    CANCELLED = "cancelled"


class Slot(StrEnum):
    """What becomes of a slot."""

    READY = "ready"
    LEASED = "leased"
    """A runner has it, and has not said that it begins: so nothing of it runs."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """It was begun, and nobody knows how it ended."""
    MISSED = "missed"
    """Nobody began it in time."""
    SKIPPED = "skipped"
    """It was not to be begun, since the one before it still ran."""


class SlotEvent(StrEnum):
    """What happens to a slot."""

    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    LOSE = "lose"
    AGAIN = "again"
    """What never ran, or was turned away, is tried again."""
    MISS = "miss"
    SKIP = "skip"


FINAL: Final = frozenset({Slot.SUCCEEDED, Slot.FAILED, Slot.CANCELLED, Slot.LOST, Slot.MISSED, Slot.SKIPPED})
"""One of these it ends in, and nothing follows."""
HELD: Final = frozenset({Slot.LEASED, Slot.RUNNING})
"""In these a runner has it."""

_AFTER: Final[dict[tuple[Slot, SlotEvent], Slot]] = {
    (Slot.READY, SlotEvent.CLAIM): Slot.LEASED,
    (Slot.READY, SlotEvent.CANCEL): Slot.CANCELLED,
    (Slot.READY, SlotEvent.MISS): Slot.MISSED,
    (Slot.READY, SlotEvent.SKIP): Slot.SKIPPED,
    (Slot.READY, SlotEvent.LOSE): Slot.LOST,  # it may have been begun in the time that a restored daemon does not know
    (Slot.LEASED, SlotEvent.START): Slot.RUNNING,
    (Slot.LEASED, SlotEvent.AGAIN): Slot.READY,
    (Slot.LEASED, SlotEvent.FAIL): Slot.FAILED,
    (Slot.LEASED, SlotEvent.CANCEL): Slot.CANCELLED,
    (Slot.LEASED, SlotEvent.LOSE): Slot.LOST,
    (Slot.RUNNING, SlotEvent.SUCCEED): Slot.SUCCEEDED,
    (Slot.RUNNING, SlotEvent.FAIL): Slot.FAILED,
    (Slot.RUNNING, SlotEvent.CANCEL): Slot.CANCELLED,
    (Slot.RUNNING, SlotEvent.LOSE): Slot.LOST,
    (Slot.RUNNING, SlotEvent.AGAIN): Slot.READY,
}


def after(state: Slot, event: SlotEvent) -> Slot:
    """The state that follows. Raises TaskStateError: nothing of the kind can happen then."""
    found = _AFTER.get((state, event))
    if found is None:
        raise TaskStateError(state, event)
    return found


_ORDER_LABEL: Final = b"confide/task-order/1"
_APPROVAL_LABEL: Final = b"confide/task-approval/1"
MAX_ORDER_BYTES: Final = 64 * 1024
MAX_APPROVALS: Final = 8


@dataclass(frozen=True, slots=True)
class Approval:
    """That another device has seen a whole order and stands for it as well."""

    key: bytes  # its Ed25519 key, 32 bytes
    signature: bytes  # 64 bytes


def sign_order(identity: Identity, space: bytes, order: bytes) -> bytes:
    """The signature of an order's bytes, 64 bytes. `space` is the space's id, 16 bytes."""
    return identity.sign(_ORDER_LABEL, joined(space, order))


def approve_order(identity: Identity, space: bytes, order: bytes) -> Approval:
    """That this device stands for an order that another one has signed."""
    return Approval(identity.public_key, identity.sign(_APPROVAL_LABEL, joined(space, order)))


def check_order(roster: Roster, order: bytes, signer: bytes, signature: bytes) -> None:
    """Check that `signer`, 32 bytes, is a device of the space now, and has signed these bytes for it.

    Raises:
        OrderError: it is too large.
        OrderSignerError: the signer is not on the roster; the message has the name of one that was.
        OrderSignatureError: another text, space or key was signed.
    """
    if len(order) > MAX_ORDER_BYTES:
        raise OrderError("a task's order is larger than any can be", hint=f"the limit is {MAX_ORDER_BYTES:,} bytes")
    _check_signer(roster, signer)
    if not verify(signer, _ORDER_LABEL, joined(roster.space, order), signature):
        raise OrderSignatureError("a task's order is not what its device has signed for this space")


def check_approvals(roster: Roster, order: bytes, signer: bytes, approvals: Iterable[Approval]) -> None:
    """Check that each approval is of a device of the space other than the signer, and about these bytes.

    That `check_order` takes the order is not asked again. Raises as `check_order`.
    """
    for approval in approvals:
        _check_signer(roster, approval.key)
        if approval.key == signer:
            raise OrderSignerError("a device cannot approve its own order", hint="approve it on another device")
        if not verify(approval.key, _APPROVAL_LABEL, joined(roster.space, order), approval.signature):
            raise OrderSignatureError("an approval is not of this order, or not of this space")


def check_approver(roster: Roster, signer: bytes, approver: bytes, approvers: Collection[bytes] = ()) -> None:
    """Check that two devices stand for an order, and not one that has brought the other in: whoever holds a device can add one
    (PROTOCOL.md 11.4). That both are on the roster, and have signed, is not asked again.

    Args:
        signer, approver: Ed25519 keys of who gave the order and of who approved it.
        approvers: keys that whoever follows the order was told of by a person: of those it is not asked who brought them in.

    Raises OrderSignerError.
    """
    own, other = roster.above(approver), roster.above(signer)
    if own[0] == other[0]:
        raise OrderSignerError("a device cannot approve its own order", hint="approve it on another device")
    device = roster.devices.get(approver)
    if device is None or device.is_paper:
        raise OrderSignerError("a recovery code approves nothing", hint="approve it on one of the devices")
    if approver in approvers:
        return
    # Both are below the one that began the space, if they are not it: another one in common may hold both.
    if own[0] in other or other[0] in own or set(own[:-1]) & set(other[:-1]):
        problem = f"the approval by {device.name} does not count: it and the device that gave the order may be one person's who holds one"
        raise OrderSignerError(problem, hint="approve it on the runner, or name the device in approvers of runner.toml")


def _check_signer(roster: Roster, key: bytes) -> None:
    if key in roster.devices:
        return
    if key in roster.removed:
        named = [entry.device.name for entry in roster.entries if entry.device is not None and entry.device.key == key]
        problem = f"its device, {named[0]}, was removed from the space"
        raise OrderSignerError(problem, hint="give the order again on one of the devices that are left")
    raise OrderSignerError("it is signed by no device of the space")


VERSION: Final = 1
TYPES: Final = ("code-review", "test-runner", "doc-updater", "refactor", "custom")
CUSTOM: Final = "custom"
REVIEW: Final = "review"
FIX: Final = "fix"
ASK: Final = "ask"
USUAL_RECIPES: Final[Mapping[str, str]] = {
    "code-review": REVIEW,
    "test-runner": FIX,
    "doc-updater": FIX,
    "refactor": FIX,
    "custom": REVIEW,
}
"""Of a task with a repository, where none is named; without a repository it is `ask`."""
MISSED: Final = ("once", "skip", "all")
"""What becomes of slots that nobody began in time: the newest is made up for, none is, or all are."""
OVERLAP: Final = ("skip", "queue", "replace")
"""What becomes of a slot that is due while the one before it runs."""
ID_CHARS: Final = 16
MAX_DESCRIPTION_CHARS: Final = 8_000
MAX_CONTEXT_CHARS: Final = 16_000
MAX_REPO_CHARS: Final = 1_024
LEAST_TIMEOUT_MS: Final = 1_000
USUAL_TIMEOUT_MS: Final = 1_800_000
MAX_TIMEOUT_MS: Final = 86_400_000
MAX_MICROUSD: Final = 1_000_000_000
"""A thousand dollars: beyond, a digit slipped in."""
LEAST_PRIORITY: Final = 1
USUAL_PRIORITY: Final = 5
MAX_PRIORITY: Final = 10
USUAL_RETRIES: Final = 2
MAX_RETRIES: Final = 5
ONCE_LASTS_S: Final = 7 * 86_400
"""How long behind its time a task that is due once may be begun."""
ALWAYS_LASTS_S: Final = 400 * 86_400
"""How long one that comes again does, before a person gives it again."""
MAX_LASTS_S: Final = 800 * 86_400
CLOCK_SKEW_S: Final = 120
"""By so much two machines' clocks may differ."""
_MAX_MOMENT: Final = 2**40
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")
_RECIPE: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_LENGTH}}}")
_WIRE: Final = {"max_microusd": "maxMicrousd", "timeout_ms": "timeoutMs"}


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done, when, and at what price. Times are seconds since 1970."""

    id: str  # of the task, 16 hex digits
    project: str
    recipe: str  # the runner's word for how it is done
    description: str
    signer: str  # the Ed25519 key of the device that gives it, in hex
    added: int
    expires: int  # it is not begun from then on
    zone: str  # an IANA time zone: that of the schedule, and for people
    at: int | None = None  # when it is due, if once
    schedule: str | None = None  # a line of cron, if it comes again
    type: str = CUSTOM  # for people and the prompt
    repo: str = ""  # a repository's address, or a name that the runner has for one; "": none
    context: str = ""  # more for the prompt: the JSON of an object; "": none
    missed: str = "once"
    overlap: str = "skip"
    priority: int = USUAL_PRIORITY  # 1 to 10, the highest first
    timeout_ms: int = USUAL_TIMEOUT_MS
    max_microusd: int | None = None  # what it may cost, in millionths of a dollar; None: as the recipe says
    retries: int = USUAL_RETRIES  # of what never ran

    def __post_init__(self) -> None:
        """Raises ToolError: a field is out of its bounds."""
        _check(bool(_ID.fullmatch(self.id)), f"the id of a task is {ID_CHARS} hex digits")
        is_name = self.project.strip() != "" and len(self.project) <= MAX_PROJECT_CHARS
        _check(is_name and self.project.isprintable(), "the project has no usable name")
        _check(is_recipe(self.recipe), "a recipe's name is small letters, digits and hyphens, 32 at most")
        _check(bool(_KEY.fullmatch(self.signer)), "a task's signer is no key")
        _check(self.type in TYPES, f"the type is one of {', '.join(TYPES)}")
        _check_text("description", self.description, 1, MAX_DESCRIPTION_CHARS)
        _check_text("context", self.context, 0, MAX_CONTEXT_CHARS)
        _check(not self.context or _is_object(self.context), "the context is no JSON object")
        _check(is_repo(self.repo), "repoUrl is no address of a repository", "as in https://host/path or git@host:path")
        _check((self.at is None) != (self.schedule is None), "a task is due once, or by a schedule")
        _check_number("at", self.at or 0, 0, _MAX_MOMENT)
        _check_number("added", self.added, 0, _MAX_MOMENT)
        _check_number("expires", self.expires, self.added, self.added + MAX_LASTS_S)
        short = self.schedule is None or 0 < len(self.schedule) <= schedules.MAX_SCHEDULE_CHARS
        _check(short and 0 < len(self.zone) <= schedules.MAX_ZONE_CHARS, "the schedule or its zone is too long")
        _check(self.missed in MISSED, f"missed is one of {', '.join(MISSED)}")
        _check(self.overlap in OVERLAP, f"overlap is one of {', '.join(OVERLAP)}")
        _check_number("priority", self.priority, LEAST_PRIORITY, MAX_PRIORITY)
        _check_number("timeoutMs", self.timeout_ms, LEAST_TIMEOUT_MS, MAX_TIMEOUT_MS)
        _check_number("maxUsd, in millionths,", self.max_microusd or 0, 0, MAX_MICROUSD)
        _check_number("retries", self.retries, 0, MAX_RETRIES)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The order in these bytes, which have its one form; who signed them is not checked. Raises OrderError."""
        if len(data) > MAX_ORDER_BYTES:
            raise OrderError("a task's order is larger than any can be")
        try:
            said = json.loads(data)
            if not isinstance(said, dict) or said.pop("version", None) != VERSION or set(said) != {*_FIELDS}:
                raise _damaged()
            order = cls(**{field: _typed(field, said[name]) for name, field in _FIELDS.items()})
            is_canonical = order.encode() == data
        except ToolError as error:
            raise OrderError(f"a task's order is not taken: {error.message}") from None
        except (ValueError, RecursionError):
            raise _damaged() from None
        if not is_canonical:
            raise _damaged()
        return order

    def encode(self) -> bytes:
        """Its bytes: JSON in UTF-8 with sorted names and no blanks, nothing escaped that need not be. Raises ToolError: it is too large."""
        said = {name: getattr(self, field) for name, field in _FIELDS.items()}
        text = json.dumps({**said, "version": VERSION}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ToolError("a task's text is no text") from None
        if len(data) > MAX_ORDER_BYTES:
            raise ToolError("a task with all its context is too large", hint=f"the limit is {MAX_ORDER_BYTES:,} bytes")
        return data

    def times(self, *, after: int) -> Iterable[int]:
        """When it is due behind a moment, in order. Raises ToolError: there is no such schedule or zone."""
        if self.schedule is None:
            return (self.at,) if self.at is not None and self.at > after else ()
        late = schedules.spread_s(self.id)
        return (at + late for at in schedules.times(self.schedule, self.zone, after=after - late))

    def check_slot(self, at: int, *, now: float) -> None:
        """Check that it is due at that moment, and may be begun now. Raises OrderError."""
        if now >= self.expires:
            raise OrderError("a task's order has expired", hint="give it again: confide task add")
        if at > now + CLOCK_SKEW_S:
            raise OrderError("a task is given before it is due", hint="do the clocks of daemon and runner agree?")
        try:
            is_due = next(iter(self.times(after=at - 1)), None) == at
        except ToolError as error:
            raise OrderError(error.message, hint=error.hint) from None
        # What was due before it was ordered is not of it, but for the clock of the machine that gave it.
        if not is_due or (self.schedule is not None and at < self.added - CLOCK_SKEW_S):
            raise OrderError("a task is given at a time that its order does not have")


def opened(
    roster: Roster,
    data: bytes,
    signature: bytes,
    approvals: Iterable[Approval] = (),
    *,
    now: float | None = None,
    approvers: Collection[bytes] = (),
) -> Order:
    """The order in these bytes, once a device that is on the roster has signed it, and others every approval.

    Args:
        approvers: keys whose approval counts whoever has brought them in (`check_approver`).
        now: refuses what has expired by then; None: does not ask.

    Raises OrderError: one of its kinds.
    """
    order = Order.parse(data)
    check_order(roster, data, bytes.fromhex(order.signer), signature)
    signer, given = bytes.fromhex(order.signer), [*approvals]
    check_approvals(roster, data, signer, given)
    for each in given:
        check_approver(roster, signer, each.key, approvers)
    if now is not None and now >= order.expires:
        raise OrderError("a task's order has expired", hint="give it again: confide task add")
    return order


def new_id() -> str:
    """A random id for a task."""
    return secrets.token_hex(ID_CHARS // 2)


def is_task_id(text: str) -> bool:
    """Whether this has the form of a task's id."""
    return bool(_ID.fullmatch(text))


def is_recipe(name: str) -> bool:
    """Whether this can be a recipe's name."""
    return bool(_RECIPE.fullmatch(name))


def is_repo(address: str) -> bool:
    """Whether this can name a repository to git without being an option or a helper program of it; also "", for none."""
    is_word = address.isprintable() and " " not in address and len(address) <= MAX_REPO_CHARS
    return is_word and not address.startswith("-") and "::" not in address


def microusd(dollars: float) -> int:
    """Dollars in millionths."""
    return round(dollars * 1_000_000)


_FIELDS: Final[Mapping[str, str]] = {_WIRE.get(one.name, one.name): one.name for one in fields(Order)}
_NUMBERS: Final = frozenset({"added", "expires", "priority", "timeout_ms", "retries"})
_MAYBE: Final = frozenset({"at", "schedule", "max_microusd"})


def _typed(field: str, value: Any) -> Any:
    if value is None and field in _MAYBE:
        return None
    expected = int if field in _NUMBERS or field in ("at", "max_microusd") else str
    if type(value) is not expected:
        raise _damaged()
    return value


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _check(is_good: bool, problem: str, hint: str | None = None) -> None:
    if not is_good:
        raise ToolError(problem, hint=hint)


def _check_text(name: str, text: str, least: int, most: int) -> None:
    _check(least <= len(text) <= most and "\0" not in text, f"{name} has {least:,} to {most:,} characters")


def _check_number(name: str, number: int, least: int, most: int) -> None:
    _check(least <= number <= most, f"{name} is a number from {least:,} to {most:,}")


def _damaged() -> OrderError:
    return OrderError(
        "a task's order is damaged, or of a kind this version does not know", hint="is confide up to date?"
    )
