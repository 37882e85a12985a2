"""Turns a call of `task_add` into an order that this device signs before it leaves (PROTOCOL.md
11): the daemon can store orders but not create them.

The order contains the agent's arguments, with credentials sealed as in every other text, and this
device's defaults for the missing ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import OrderError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_night.order import order as orders
from confide_night.order import schedule as schedules
from confide_night.order.order import Order, check_approvals, check_approver, sign_order
from confide_night.order.wire import TaskShown, approvals_of
from confide_proxy.errors import ToolError

DESCRIPTION: Final = "description"
TAKEN: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("description", "recipe", "type", "project", "repoUrl"), str),
    **dict.fromkeys(("scheduledFor", "schedule", "timeZone", "missed", "overlap"), str),
    **dict.fromkeys(("priority", "timeoutMs", "retries"), int),
    "maxUsd": (int, float),
    "context": dict,
}
"""Types of the accepted arguments by their names on the wire; snake case is accepted too. The
tool's own schema in the daemon's catalogue is for the client.
"""
DOUBT: Final = (
    "of this device and the one that gave the order, one has brought the other in, or both came by one: its approval counts on the runner "
    "itself, and where approvers in runner.toml names this device"
)
"""Warning for a doubtful approval (`is_doubtful`)."""
MOST_AHEAD_S: Final = 366 * 86_400
_LOCALTIME: Final = Path("/etc/localtime")
_TIMEZONE: Final = Path("/etc/timezone")
_ZONEINFO: Final = "zoneinfo/"
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,9})?")


def read_order(shown: TaskShown, roster: Roster | None) -> tuple[Order, str | None]:
    """Parse the order of a task that the daemon shows (`task-show`). Also return the reason why a
    runner would refuse it, or None.

    Raises OrderError if the bytes are not an order.
    """

    order = Order.parse(shown["order"])
    if roster is None:
        return order, "this device knows no list of the space's devices"
    try:
        # Only the runner knows which approvers it accepts; here only the signatures are checked.
        given = approvals_of(shown["approvals"])
        orders.open_order(roster, shown["order"], shown["signature"])
        check_approvals(roster, shown["order"], bytes.fromhex(order.signer), given)
    except OrderError as error:
        return order, error.message
    return order, None


def is_doubtful(roster: Roster, order: Order, approver: bytes) -> bool:
    """Return True if an approval by the device `approver` may not count everywhere: it counts only
    on the runner's own device, or if the runner's configuration names the device.
    """
    try:
        check_approver(roster, bytes.fromhex(order.signer), approver)
    except OrderError:
        return True
    return False


def to_signed_order(
    arguments: Mapping[str, object],
    *,
    identity: Identity,
    space: bytes,
    project: str,
    operation: str = "",
    said: str | None = None,
) -> dict[str, object]:
    """Replace the arguments of `task_add`, except the description, with a signed order.

    Args:
        space: the id of the space, 16 bytes.
        project: the session's project, used if the call names none.
        operation: the call's id; the same id always gives the same task, however often it is sent.
        said: the time of the call, ISO 8601 with its zone; None: now.

    Raises ToolError if the arguments are invalid.
    """
    given = _to_wire_names(arguments)
    if DESCRIPTION not in given:
        raise ToolError("'description' is missing", hint="task_add needs description")
    now = _moment(said) if said else time.time()
    order = _order(given, identity.public_key.hex(), project, operation, int(now))
    data = order.encode()
    return {
        DESCRIPTION: given[DESCRIPTION],
        "order": data.decode(),
        "signature": base64.b64encode(sign_order(identity, space, data)).decode(),
    }


def _order(given: Mapping[str, Any], signer: str, project: str, operation: str, now: int) -> Order:
    identity = task_of(operation) if operation else orders.new_id()
    zone, kind, repo = given.get("timeZone") or zone_here(), given.get("type", orders.CUSTOM), given.get("repoUrl", "")
    if kind not in orders.TYPES:
        raise ToolError(f"'type' is one of {', '.join(orders.TYPES)}")
    schedule, at = given.get("schedule"), None
    if schedule is not None and "scheduledFor" in given:
        raise ToolError("'schedule' and 'scheduledFor' exclude each other", hint="leave one of them out")
    if schedule is None:
        at = _parse_time(given.get("scheduledFor"), zone, identity, now)
    lasts_s = orders.ALWAYS_LASTS_S if at is None else max(0, at - now) + orders.ONCE_LASTS_S
    context, dollars = given.get("context"), given.get("maxUsd")
    usual = {
        "missed": "missed",
        "overlap": "overlap",
        "priority": "priority",
        "timeoutMs": "timeout_ms",
        "retries": "retries",
    }
    return Order(
        id=identity,
        project=given.get("project") or project,
        recipe=given.get("recipe") or (orders.USUAL_RECIPES[kind] if repo else orders.ASK),
        description=given[DESCRIPTION],
        signer=signer,
        added=now,
        expires=now + lasts_s,
        zone=zone,
        at=at,
        schedule=schedule,
        type=kind,
        repo=repo,
        context=json.dumps(context, ensure_ascii=False, separators=(",", ":")) if context else "",
        max_microusd=None if dollars is None else orders.microusd(dollars),
        **{field: given[name] for name, field in usual.items() if name in given},
    )


def task_of(operation: str) -> str:
    """Derive the id of the task from the id of the call's operation."""
    return hashlib.blake2b(operation.encode(), digest_size=orders.ID_CHARS // 2).hexdigest()


def queued_order(_arguments: Mapping[str, object], operation: str) -> tuple[dict[str, object], str]:
    """Return the answer to a `task_add` that waits on this device until the daemon is reachable:
    its structured fields, and a sentence for the agent.
    """
    identity = task_of(operation)
    told: dict[str, object] = {"id": identity, "scheduledFor": None, "schedule": None, "state": "queued"}
    return told, f"Task {identity} is queued."


def queued_end(arguments: Mapping[str, object], _operation: str) -> tuple[dict[str, object], str]:
    """Return the answer to a `task_cancel` that waits on this device until the daemon is reachable:
    its structured fields, and a sentence for the agent.
    """
    identity = arguments["id"]
    return {"id": identity, "cancelled": False, "killed": 0}, f"The end of task {identity} is queued."


def _to_wire_names(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments under their names on the wire. Raises ToolError if one is unknown or has
    a wrong type.
    """
    spelled = {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name): name for name in TAKEN}
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        name = key if key in TAKEN else spelled.get(key)
        if name is None:
            raise ToolError(f"unknown parameter '{key[:40]}'", hint=f"task_add takes: {', '.join(TAKEN)}")
        if value is not None:
            found[name] = _convert(name, value)
    return found


def _convert(name: str, value: Any) -> Any:
    kind = TAKEN[name]
    if isinstance(value, str) and kind is not str:
        value = _parse_text(value)
    if isinstance(value, float) and kind is int and value.is_integer():
        value = int(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ToolError(f"'{name}' is of another kind than task_add takes")
    return value


def _parse_text(text: str) -> Any:
    """Parse a number or an object that a model sent as a string."""
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parse_time(text: str | None, zone: str, identity: str, now: int) -> int:
    if text is None:
        return schedules.next_night(now, zone) + schedules.spread_s(identity)
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = schedules.in_zone(moment, zone)
        at = int(moment.timestamp())
    except (ValueError, OverflowError):
        raise ToolError(
            "'scheduledFor' is no time", hint="as in 2026-11-27T02:00, or with its zone behind it"
        ) from None
    if not now - 86_400 <= at <= now + MOST_AHEAD_S:
        raise ToolError("'scheduledFor' is too far away", hint="from now on, and within a year")
    return at


def _moment(said: str) -> float:
    try:
        return datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError):
        return time.time()


def zone_here() -> str:
    """Return the IANA name of this device's time zone; UTC if unknown."""
    for found in (_zone_of_environment(), _zone_of_link(), _zone_of_file()):
        if found:
            try:
                schedules.check_zone(found)
            except ToolError:
                continue
            return found
    return "UTC"


def _zone_of_environment() -> str:
    return os.environ.get("TZ", "").removeprefix(":")


def _zone_of_link() -> str:
    try:
        return os.fspath(_LOCALTIME.resolve()).partition(_ZONEINFO)[2]
    except OSError:
        return ""


def _zone_of_file() -> str:
    try:
        return _TIMEZONE.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
