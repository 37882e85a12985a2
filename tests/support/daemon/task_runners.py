"""Orders as devices sign them, and a runner that a test plays over a real connection."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

from tests.support.daemon.loopback import Machine

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.transport.open_channel import Connection
from confide_night.order.order import ONCE_LASTS_S, Order, new_id, open_order, sign_order
from confide_night.order.wire import approvals_of

DOLLAR = 1_000_000


def order(signer: Identity, *, now: float | None = None, **fields: Any) -> Order:
    """An order that is due now, unless its fields say otherwise."""
    moment = int(time.time() if now is None else now)
    told: dict[str, Any] = {
        "id": new_id(),
        "project": "proj",
        "recipe": "review",
        "description": "look at it",
        "signer": signer.public_key.hex(),
        "added": moment,
        "expires": moment + ONCE_LASTS_S,
        "zone": "UTC",
        **({} if "schedule" in fields else {"at": moment}),
    }
    return Order(**{**told, **fields})


def signed(identity: Identity, space: bytes, whole: Order) -> dict[str, str]:
    """The arguments of `task_add` that a proxy sends up."""
    data = whole.encode()
    signature = base64.b64encode(sign_order(identity, space, data)).decode()
    return {"description": whole.description, "order": data.decode(), "signature": signature}


class Device(Machine):
    """A device of a space, which orders, and does what it is given as a runner does."""

    def __init__(self, connection: Connection, identity: Identity) -> None:
        super().__init__(connection)
        self.identity = identity
        self.task_news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ledger: set[tuple[str, int, int]] = set()
        self.roster: Roster

    async def found(self, name: str = "laptop") -> Roster:
        """Begin the space's list of devices."""
        self.roster, self.keys = Roster.create(self.identity, name, now=int(time.time()))
        entry = base64.b64encode(self.roster.entries[-1].encode()).decode()
        await self.request("extend", {"entry": entry})
        return self.roster

    async def add(self, whole: Order) -> dict[str, Any]:
        """Order a task, as a call that waited; the tool's structured result."""
        body = {
            "project": whole.project,
            "operation": f"{whole.id}{whole.id}",
            "tool": "task_add",
            "arguments": signed(self.identity, self.roster.space, whole),
        }
        return dict((await self.request("call", body))["result"])

    async def cancel(self, task: str) -> dict[str, Any]:
        body = {"project": "proj", "operation": new_id() * 2, "tool": "task_cancel", "arguments": {"id": task}}
        return dict((await self.request("call", body))["result"])

    async def look_up(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body = {"project": "proj", "tool": tool, "arguments": arguments}
        return dict((await self.request("lookup", body))["result"])

    async def claim(
        self, *recipes: str, left: int = 20 * DOLLAR, most: int = 2 * DOLLAR, approval: bool = False, busy: Any = ()
    ) -> dict[str, Any] | None:
        """A slot, checked as a runner checks it; None: there is none."""
        listed = [{"name": one, "maxMicrousd": most, "approval": approval} for one in recipes or ("review",)]
        answer = await self.request("task-claim", {"recipes": listed, "busy": list(busy), "leftMicrousd": left})
        slot = answer["slot"]
        if slot is None:
            return None
        read = open_order(
            self.roster,
            base64.b64decode(slot["order"]),
            base64.b64decode(slot["signature"]),
            approvals_of(
                [
                    {"key": bytes.fromhex(one["key"]), "signature": base64.b64decode(one["signature"])}
                    for one in slot["approvals"]
                ]
            ),
            approvers={bytes.fromhex(one["key"]) for one in slot["approvals"]},  # by its runner.toml
        )
        assert read.id == slot["task"]
        read.check_slot(slot["at"], now=time.time())
        return dict(slot)

    async def start(self, slot: dict[str, Any], **more: Any) -> None:
        """Write down that it begins, and tell. Raises RequestError: it must not."""
        entry = (slot["task"], slot["at"], slot["attempt"])
        assert entry not in self.ledger, "no slot is begun twice under an attempt"
        self.ledger.add(entry)
        await self.request("task-started", {**named(slot), **more})

    async def end(self, slot: dict[str, Any], state: str = "succeeded", **more: Any) -> dict[str, Any]:
        return await self.request("task-ended", {**named(slot), "state": state, **more})

    async def refused(self, op: str, body: dict[str, Any]) -> str:
        """The code of the refusal."""
        try:
            await self.request(op, body)
        except RequestError as error:
            return error.code
        raise AssertionError(f"{op} was answered")

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op == "tasks":
            self.task_news.put_nowait(body)
            return {}
        return await super()._on_request(op, body)


def named(slot: dict[str, Any]) -> dict[str, Any]:
    """Which slot, and whose."""
    return {name: slot[name] for name in ("task", "at", "attempt", "fence")}
