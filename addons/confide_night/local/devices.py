"""Tasks that this machine has ordered or approved, once its key is a new one (PROTOCOL.md 9.10): the old one's word counts no more."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import confide_night.order.wire  # noqa: F401 - adds the requests that are asked here
from confide_crypto.errors import OrderError, RequestError
from confide_memory.answers import ask
from confide_memory.errors import UnknownRequestError
from confide_memory.forms import encoded

if TYPE_CHECKING:
    from confide_crypto.keys.identity import Identity
    from confide_crypto.sealing.roster import Roster
    from confide_memory.documents import Asks

log = logging.getLogger(__name__)

DEADLINE_S: Final = 10.0
MAX_PAGES: Final = 1_000


async def sign_anew(link: Asks, roster: Roster, identity: Identity, old: bytes) -> None:
    """Sign with this machine's key what its `old` one has signed, order by order: a daemon could put in others, which are passed over.

    Raises RequestError, ConnectionLost, TimeoutError: from the link.
    """
    if not {old, identity.public_key} <= roster.devices.keys():
        return
    after = ""
    for _ in range(MAX_PAGES):
        try:
            page = await ask(link, "task-orders", {"key": old.hex(), "after": after}, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code in ("denied", "invalid") or isinstance(error, UnknownRequestError):
                return  # of one that may only read there is no task; or the daemon is too old, and they pause
            raise
        for each in page["orders"]:
            try:
                await _renew(link, roster, identity, old, each)
            except OrderError as error:
                log.warning("an order is not signed anew: %s", type(error).__name__)
            except RequestError as error:
                if error.code not in ("conflict", "denied", "invalid", "not_found"):
                    raise
                log.info("an order is not signed anew: %s", error.code)
        if page["next"] is None or page["next"] <= after:
            return
        after = page["next"]


async def _renew(link: Asks, roster: Roster, identity: Identity, old: bytes, each: dict[str, Any]) -> None:
    """Raises OrderError: the old key has not signed that."""
    from confide_night.order.order import opened
    from confide_night.order.sealed import approve_order, check_approvals, sign_order
    from confide_night.order.wire import approvals_of

    order = opened(roster, each["order"], each["signature"])
    if bytes.fromhex(order.signer) == old:
        data = replace(order, signer=identity.public_key.hex()).encode()
        signature = sign_order(identity, roster.space, data)
        body = {"order": encoded(data), "signature": encoded(signature)}
        await ask(link, "task-resign", body, timeout_s=DEADLINE_S)
        return
    own = [one for one in approvals_of(each["approvals"]) if one.key == old]
    check_approvals(roster, each["order"], bytes.fromhex(order.signer), own)
    if own:
        signature = approve_order(identity, roster.space, each["order"]).signature
        await ask(link, "task-approve", {"task": order.id, "signature": encoded(signature)}, timeout_s=DEADLINE_S)
