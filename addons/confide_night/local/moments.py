"""Reacts to the start of a session, a change of this device's key, and a move of the space."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from confide_crypto.errors import OrderError, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnknownRequestError
from confide_night.order.order import approve_order, check_approvals, open_order, sign_order
from confide_night.order.wire import (
    APPROVE,
    MOVE_TASKS,
    MOVE_TASKS_IN,
    NOTHING_MOVED,
    ORDERS,
    REPORT,
    RESIGN,
    Counted,
    MoveTasksIn,
    Ordered,
    approvals_of,
)
from confide_proxy.errors import UnfitAnswerError

log = logging.getLogger(__name__)

BRIEFING_S: Final = 5.0
_ID_CHARS: Final = 6


async def briefing(link: RequestChannel) -> str | None:
    """Return a line about the tasks of the last day, to show at the start of a session; None if
    there is nothing to report.

    Raises RequestError if the daemon refuses, or has no tasks; ConnectionLost or TimeoutError if it
    cannot be reached.
    """
    found = await REPORT.ask(link, {"brief": True}, timeout_s=BRIEFING_S)
    return line(found["counts"], found["ids"])


def line(counts: Iterable[Counted], ids: Iterable[str]) -> str | None:
    """Return a line with the counts and ids of tasks, without any text that a user or a run wrote;
    None if there are no counts.
    """
    said = [f"{one['count']} {one['state']}" for one in counts if one["count"]]
    named = next((each[:_ID_CHARS] for each in ids), "")
    if not said:
        return None
    return f"Tasks of last night: {', '.join(said)}{f' ({named})' if named else ''}: confide task report"


DEADLINE_S: Final = 10.0
MOST_PAGES_OF_ORDERS: Final = 1_000


async def sign_again(link: RequestChannel, roster: Roster, identity: Identity, old: bytes) -> None:
    """Sign again, with this device's new key, every order and approval that its `old` key signed.
    Orders that the daemon lists although the old key did not sign them are skipped.

    Raises RequestError, ConnectionLost or TimeoutError if the daemon refuses or cannot be reached.
    """
    if not {old, identity.public_key} <= roster.devices.keys():
        return
    after = ""
    for _ in range(MOST_PAGES_OF_ORDERS):
        try:
            page = await ORDERS.ask(link, {"key": old, "after": after}, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code in ("denied", "invalid") or isinstance(error, UnknownRequestError):
                return  # a read-only device has no tasks; with an older daemon they pause
            raise
        for each in page["orders"]:
            try:
                await _renew(link, roster, identity, old, each)
            except OrderError as error:
                log.warning("an order is not signed again: %s", type(error).__name__)
            except RequestError as error:
                if error.code not in ("conflict", "denied", "invalid", "not_found"):
                    raise
                log.info("an order is not signed again: %s", error.code)
        if page["next"] is None or page["next"] <= after:
            return
        after = page["next"]


async def _renew(link: RequestChannel, roster: Roster, identity: Identity, old: bytes, each: Ordered) -> None:
    """Sign an order or an approval again if the old key signed it. Raises OrderError if a signature
    is invalid.
    """
    order = open_order(roster, each["order"], each["signature"])
    if bytes.fromhex(order.signer) == old:
        data = replace(order, signer=identity.public_key.hex()).encode()
        signature = sign_order(identity, roster.space, data)
        await RESIGN.ask(link, {"order": data, "signature": signature}, timeout_s=DEADLINE_S)
        return
    own = [one for one in approvals_of(each["approvals"]) if one.key == old]
    check_approvals(roster, each["order"], bytes.fromhex(order.signer), own)
    if own:
        signature = approve_order(identity, roster.space, each["order"]).signature
        await APPROVE.ask(link, {"task": order.id, "signature": signature}, timeout_s=DEADLINE_S)


MOVE_S: Final = 60.0
MOST_PAGES: Final = 100_000
"""Page limit, against a daemon that sends an endless list."""


async def bring(source: RequestChannel, target: RequestChannel) -> int:
    """Copy all tasks from the old daemon to the new one, then let them start there; return their
    number. Repeating it has no further effect.

    Raises RequestError, ConnectionLost or TimeoutError if a daemon refuses or cannot be reached;
    UnfitAnswerError if the list of tasks has no end.
    """
    after, count = "", 0
    for _ in range(MOST_PAGES):
        page = await MOVE_TASKS.ask(source, {"after": after}, timeout_s=MOVE_S, bulk=True)
        following = page["next"]
        body: MoveTasksIn = {
            "tasks": page["tasks"],
            "slots": page["slots"],
            "logs": page["logs"],
            "runners": page["runners"],
            "spent": page["spent"],
        }
        count += len(page["tasks"])
        if apart := page["unreadable"]:
            count += len(apart["tasks"])
            body["unreadable"] = apart
        if not await _take(target, {**body, "isLast": following is None}):
            return count
        if following is None:
            return count
        if following == after:
            break
        after = following
    raise UnfitAnswerError


async def give_up(target: RequestChannel) -> None:
    """Make the new daemon stop waiting for tasks, and cancel those that have arrived. Raises
    RequestError, ConnectionLost or TimeoutError if it refuses or cannot be reached.
    """
    await _take(target, {**NOTHING_MOVED, "isLast": True, "givenUp": True})


async def _take(target: RequestChannel, body: MoveTasksIn) -> bool:
    """Send a page to the new daemon; return False if it expected no tasks."""
    try:
        await MOVE_TASKS_IN.ask(target, body, timeout_s=MOVE_S, bulk=True)
    except RequestError as error:
        if error.code != "conflict":
            raise
        return False  # the daemon has all tasks, and its answer was lost
    return True
