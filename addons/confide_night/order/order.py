"""A task as its device ordered it: canonical JSON, which it signs, and nobody changes (PROTOCOL.md 11).

An order names a recipe that a runner has, and fills in text. Whoever follows one opens it with `opened`, and asks it with `check_slot`
whether the slot that the daemon gives is one of it: a daemon can keep orders back, and neither invent them nor repeat them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from confide_crypto.errors import OrderError
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.sealing.roster import Roster
from confide_memory.errors import ToolError
from confide_memory.forms import MAX_PROJECT_CHARS
from confide_night.order import schedule as schedules
from confide_night.order.sealed import MAX_ORDER_BYTES, Approval, check_approvals, check_approver, check_order

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
