"""Signed orders of tasks, and the states of tasks and slots (PROTOCOL.md 11). An order is canonical
JSON that a device signs and that never changes; a slot is one time at which its task is due.

An order names a recipe of a runner and fills in text. A device of the space signs it, so that no
daemon can create one, change one or take one from another space. A runner opens an order with
`open_order`, and calls `check_slot` to verify that the daemon's slot belongs to it: a daemon can
withhold orders, but neither invent nor repeat them. The runner's ledger ensures that a slot runs
only once.
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
from confide_crypto.sealing.encoding import join_parts
from confide_crypto.sealing.roster import Roster
from confide_memory.errors import ToolError
from confide_memory.forms import MAX_PROJECT_CHARS
from confide_night.errors import TaskStateError
from confide_night.order import schedule as schedules


class TaskStatus(StrEnum):
    """State of a task."""

    PROPOSED = "proposed"
    """Its recipe requires a second device's approval, which is missing."""
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """No further slot will be due."""
    CANCELLED = "cancelled"


class Slot(StrEnum):
    """The state of a slot, which is one scheduled execution of a task."""

    READY = "ready"
    LEASED = "leased"
    """Leased by a runner that has not reported a start, so nothing runs yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Started, with an unknown outcome."""
    MISSED = "missed"
    """Not started in time by any runner."""
    SKIPPED = "skipped"
    """Not started because the previous run was still in progress."""


class SlotEvent(StrEnum):
    """An event that changes a slot's state."""

    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    LOSE = "lose"
    AGAIN = "again"
    """Retry of a run that never started or was refused."""
    MISS = "miss"
    SKIP = "skip"


FINAL: Final = frozenset({Slot.SUCCEEDED, Slot.FAILED, Slot.CANCELLED, Slot.LOST, Slot.MISSED, Slot.SKIPPED})
"""Final states; no event is allowed in them."""
HELD: Final = frozenset({Slot.LEASED, Slot.RUNNING})
"""States in which a runner holds the slot."""

_AFTER: Final[dict[tuple[Slot, SlotEvent], Slot]] = {
    (Slot.READY, SlotEvent.CLAIM): Slot.LEASED,
    (Slot.READY, SlotEvent.CANCEL): Slot.CANCELLED,
    (Slot.READY, SlotEvent.MISS): Slot.MISSED,
    (Slot.READY, SlotEvent.SKIP): Slot.SKIPPED,
    (Slot.READY, SlotEvent.LOSE): Slot.LOST,  # it may have started before the restore
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
    """Return the state that follows an event. Raises TaskStateError if the event is not allowed."""
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
    """A second device's signature on an order of another device."""

    key: bytes  # its Ed25519 key, 32 bytes
    signature: bytes  # 64 bytes


def sign_order(identity: Identity, space: bytes, order: bytes) -> bytes:
    """Sign an order for a space, whose id has 16 bytes; return the signature of 64 bytes."""
    return identity.sign(_ORDER_LABEL, join_parts(space, order))


def approve_order(identity: Identity, space: bytes, order: bytes) -> Approval:
    """Sign this device's approval of another device's order."""
    return Approval(identity.public_key, identity.sign(_APPROVAL_LABEL, join_parts(space, order)))


def check_order(roster: Roster, order: bytes, signer: bytes, signature: bytes) -> None:
    """Check that `signer`, a key of 32 bytes, is currently a device of the space and has signed
    these bytes for it.

    Raises:
        OrderError: the order is too large.
        OrderSignerError: the signer is not on the roster; the message names the device if it was
            removed.
        OrderSignatureError: the signature is for another text, space or key.
    """
    if len(order) > MAX_ORDER_BYTES:
        raise OrderError("a task's order is larger than any can be", hint=f"the limit is {MAX_ORDER_BYTES:,} bytes")
    _check_signer(roster, signer)
    if not verify(signer, _ORDER_LABEL, join_parts(roster.space, order), signature):
        raise OrderSignatureError("a task's order is not what its device has signed for this space")


def check_approvals(roster: Roster, order: bytes, signer: bytes, approvals: Iterable[Approval]) -> None:
    """Check that each approval signs these bytes and comes from a device of the space other than
    the signer.

    It does not check the order itself, so call `check_order` first. Raises OrderSignerError if the
    approver is not on the roster or is the signer; OrderSignatureError if the approval is for
    another text, space or key.
    """
    for approval in approvals:
        _check_signer(roster, approval.key)
        if approval.key == signer:
            raise OrderSignerError("a device cannot approve its own order", hint="approve it on another device")
        if not verify(approval.key, _APPROVAL_LABEL, join_parts(roster.space, order), approval.signature):
            raise OrderSignatureError("an approval is not of this order, or not of this space")


def check_approver(roster: Roster, signer: bytes, approver: bytes, approvers: Collection[bytes] = ()) -> None:
    """Check that the signer and the approver of an order are independent devices, neither of which
    added the other, since the holder of one device can add another (PROTOCOL.md 11.4). Signatures
    are not checked here.

    Args:
        signer, approver: Ed25519 keys of the devices that signed and approved the order.
        approvers: keys that the runner's owner has configured; these count regardless of which
            device added them.

    Raises OrderSignerError if the devices are not independent or the approver is not on the roster.
    """
    own, other = roster.above(approver), roster.above(signer)
    if own[0] == other[0]:
        raise OrderSignerError("a device cannot approve its own order", hint="approve it on another device")
    device = roster.devices.get(approver)
    if device is None or device.is_paper:
        raise OrderSignerError("a recovery code approves nothing", hint="approve it on one of the devices")
    if approver in approvers:
        return
    # The device that created the space is above every other one; any further common ancestor may
    # control both.
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
"""Default recipe by type for a task with a repository; without a repository the default is `ask`.
"""
MISSED: Final = ("once", "skip", "all")
"""Rules for slots that no runner started in time: `once` starts the newest late, `skip` none, `all`
all of them.
"""
OVERLAP: Final = ("skip", "queue", "replace")
"""Rules for a slot that is due while the previous one still runs."""
ID_CHARS: Final = 16
MAX_DESCRIPTION_CHARS: Final = 8_000
MAX_CONTEXT_CHARS: Final = 16_000
MAX_REPO_CHARS: Final = 1_024
LEAST_TIMEOUT_MS: Final = 1_000
USUAL_TIMEOUT_MS: Final = 1_800_000
MAX_TIMEOUT_MS: Final = 86_400_000
MAX_MICROUSD: Final = 1_000_000_000
"""A thousand US dollars; a larger price is taken for a typing error."""
LEAST_PRIORITY: Final = 1
USUAL_PRIORITY: Final = 5
MAX_PRIORITY: Final = 10
USUAL_RETRIES: Final = 2
MAX_RETRIES: Final = 5
ONCE_LASTS_S: Final = 7 * 86_400
"""Seconds after its time within which a one-time task may start."""
ALWAYS_LASTS_S: Final = 400 * 86_400
"""Seconds after which a recurring task expires and a user has to add it again."""
MAX_LASTS_S: Final = 800 * 86_400
CLOCK_SKEW_S: Final = 120
"""Tolerated difference between the clocks of two devices, in seconds."""
_MAX_MOMENT: Final = 2**40
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")
_RECIPE: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_LENGTH}}}")
_WIRE: Final = {"max_microusd": "maxMicrousd", "timeout_ms": "timeoutMs"}


@dataclass(frozen=True, slots=True)
class Order:
    """A task's work, schedule and limits. Times are seconds since 1970."""

    id: str  # of the task, 16 hex digits
    project: str
    recipe: str  # name of a recipe of the runner
    description: str
    signer: str  # Ed25519 key of the ordering device, in hex
    added: int
    expires: int  # it does not start from then on
    zone: str  # IANA time zone of the schedule and for display
    at: int | None = None  # time of a one-time task
    schedule: str | None = None  # cron expression of a recurring task
    type: str = CUSTOM  # for display and the prompt
    repo: str = ""  # a repository's address, or a name that the runner has for one; "": none
    context: str = ""  # JSON object for the prompt; "": none
    missed: str = "once"
    overlap: str = "skip"
    priority: int = USUAL_PRIORITY  # 1 to 10, the highest first
    timeout_ms: int = USUAL_TIMEOUT_MS
    max_microusd: int | None = None  # price limit in millionths of a dollar; None: the recipe's
    retries: int = USUAL_RETRIES  # of runs that never started or were refused

    def __post_init__(self) -> None:
        """Check the fields. Raises ToolError if one is out of bounds."""
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
        """Parse an order in its canonical form, without checking its signature. Raises OrderError
        if it is not in that form.
        """
        if len(data) > MAX_ORDER_BYTES:
            raise OrderError("a task's order is larger than any can be")
        try:
            said = json.loads(data)
            if not isinstance(said, dict) or said.pop("version", None) != VERSION or set(said) != {*_FIELDS}:
                raise _damaged_error()
            order = cls(**{field: _check_type(field, said[name]) for name, field in _FIELDS.items()})
            is_canonical = order.encode() == data
        except ToolError as error:
            raise OrderError(f"a task's order is not taken: {error.message}") from None
        except (ValueError, RecursionError):
            raise _damaged_error() from None
        if not is_canonical:
            raise _damaged_error()
        return order

    def encode(self) -> bytes:
        """Encode as canonical JSON: UTF-8, sorted names, no spaces, minimal escapes. Raises
        ToolError if it is too large.
        """
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
        """Yield the times at which the task is due after `after`, in order. Raises ToolError if the
        schedule or zone is invalid.
        """
        if self.schedule is None:
            return (self.at,) if self.at is not None and self.at > after else ()
        late = schedules.spread_s(self.id)
        return (at + late for at in schedules.times(self.schedule, self.zone, after=after - late))

    def check_slot(self, at: int, *, now: float) -> None:
        """Check that the task is due at `at` and may start now. Raises OrderError if not."""
        if now >= self.expires:
            raise OrderError("a task's order has expired", hint="give it again: confide task add")
        if at > now + CLOCK_SKEW_S:
            raise OrderError("a task is given before it is due", hint="do the clocks of daemon and runner agree?")
        try:
            is_due = next(iter(self.times(after=at - 1)), None) == at
        except ToolError as error:
            raise OrderError(error.message, hint=error.hint) from None
        # Times before the order was signed do not count, apart from the tolerance for the signing
        # device's clock.
        if not is_due or (self.schedule is not None and at < self.added - CLOCK_SKEW_S):
            raise OrderError("a task is given at a time that its order does not have")


def open_order(
    roster: Roster,
    data: bytes,
    signature: bytes,
    approvals: Iterable[Approval] = (),
    *,
    now: float | None = None,
    approvers: Collection[bytes] = (),
) -> Order:
    """Parse an order after checking its signature and every approval against the roster.

    Args:
        approvers: keys whose approval counts regardless of which device added them
            (`check_approver`).
        now: the time for the check of expiry; None to skip that check.

    Raises OrderError or a subclass.
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
    """Return a random task id."""
    return secrets.token_hex(ID_CHARS // 2)


def is_task_id(text: str) -> bool:
    """Return True if the text has the form of a task id."""
    return bool(_ID.fullmatch(text))


def is_recipe(name: str) -> bool:
    """Return True if the text has the form of a recipe's name."""
    return bool(_RECIPE.fullmatch(name))


def is_repo(address: str) -> bool:
    """Return True if git can take the text as a repository without reading it as an option or
    starting a helper program; "" (no repository) counts too.
    """
    is_word = address.isprintable() and " " not in address and len(address) <= MAX_REPO_CHARS
    return is_word and not address.startswith("-") and "::" not in address


def microusd(dollars: float) -> int:
    """Convert US dollars to millionths."""
    return round(dollars * 1_000_000)


_FIELDS: Final[Mapping[str, str]] = {_WIRE.get(one.name, one.name): one.name for one in fields(Order)}
_NUMBERS: Final = frozenset({"added", "expires", "priority", "timeout_ms", "retries"})
_MAYBE: Final = frozenset({"at", "schedule", "max_microusd"})


def _check_type(field: str, value: Any) -> Any:
    if value is None and field in _MAYBE:
        return None
    expected = int if field in _NUMBERS or field in ("at", "max_microusd") else str
    if type(value) is not expected:
        raise _damaged_error()
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


def _damaged_error() -> OrderError:
    return OrderError(
        "a task's order is damaged, or of a kind this version does not know", hint="is confide up to date?"
    )
