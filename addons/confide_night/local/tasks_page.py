"""The panel's pages of tasks: the queue, the results, and one task with its full order
(docs/tasks.md).

An action on a task applies only to the order that the page shows. Adding a task and accepting a
result as a note need a command, since accepting requires confirmation in a terminal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable
from typing import Any, Final, Protocol, TypeVar

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.documents import RequestChannel
from confide_night.local.orders import DOUBT, is_doubtful, read_order
from confide_night.order.order import HELD, Order, TaskStatus, approve_order
from confide_night.order.wire import APPROVE, SET, SHOW, ApproveRequest, SetRequest, TaskShown

T = TypeVar("T")

_ASK_S: Final = 10.0
_SHOWN: Final = 50
_STATES: Final = {"pause": "paused", "resume": "active"}
_OVER: Final = frozenset({TaskStatus.DONE, TaskStatus.CANCELLED})
_TITLE: Final = 120
_NO_RUNNER: Final = "no runner"
"""Beginning of the daemon's reason for a task that no runner executes, because none was ever seen
or none has the recipe.
"""


class PageContext(Protocol):
    """The functions of the panel that these pages need. They know which browser session made the
    request.
    """

    gateway: Any

    @property
    def link(self) -> RequestChannel: ...
    def query(self, name: str, most: int = ...) -> str: ...
    def form_text(self, name: str, most: int = ...) -> str: ...
    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]: ...
    async def at_least(self, work: Awaitable[T]) -> T | None: ...
    def page(self, template: str, **values: Any) -> Any: ...
    def go(self, page: str = ..., notice: str = ..., /, **query: Any) -> Any: ...


async def every(desk: PageContext) -> Any:
    """Show the queue, a warning for tasks that no runner executes, and the last results."""
    listed = await desk.call("task_list", limit=_SHOWN)
    results = await desk.at_least(desk.call("task_results", limit=_SHOWN))
    warnings = dict.fromkeys(each["why"] for each in listed["tasks"] if each["why"].startswith(_NO_RUNNER))
    return desk.page(
        "tasks.html",
        here="tasks",
        tasks=listed["tasks"],
        warnings=list(warnings),
        results=results["results"] if results else [],
        most=_SHOWN,
    )


async def show_task(desk: PageContext) -> Any:
    """Show a task: its full signed order, the signer, and its runs."""
    found, order, problem = await _look(desk, desk.query("id", 16))
    return desk.page(
        "task.html",
        here="tasks",
        found=found,
        order=order,
        problem=problem,
        title=next(iter(order.description.strip().splitlines()), "")[:_TITLE],
        seen=_mark(found),
        may=_may(found, order, problem, await _own(desk)),
        running=sum(slot["state"] in HELD for slot in found["slots"]),
    )


async def act(desk: PageContext) -> Any:
    """Pause, resume, approve or cancel the order that the page showed. Raises RequestError
    `conflict` if the order has changed since.
    """
    found, order, problem = await _look(desk, desk.form_text("id", 16))
    does = desk.form_text("do", 10)
    if not hmac.compare_digest(desk.form_text("seen", 64).encode(), _mark(found).encode()):
        raise RequestError("conflict", "the order is another one than was shown", hint="look at it again")
    if does not in _may(found, order, problem, await _own(desk)):
        raise RequestError("conflict", "this cannot be done to the task as it stands", hint="look at it again")
    identity = found["task"]
    if does == "cancel":
        answer = await desk.call("task_cancel", id=identity)
        killed = f" {answer['killed']} of it runs, and is being killed." if answer["killed"] else ""
        message = "Its end waits for the daemon." if answer["queued"] else f"It is cancelled.{killed}"
    elif does == "approve":
        message = await _approve(desk, found, order)
    else:
        body: SetRequest = {"task": identity, "state": _STATES[does]}
        stands = await SET.ask(desk.link, body, timeout_s=_ASK_S)
        message = f"It is {stands['state']} now."
    return desk.go("task", message, id=identity)


async def _approve(desk: PageContext, found: TaskShown, order: Order) -> str:
    keyring = _keyring(desk)
    assert keyring.roster is not None  # without a roster there would be a problem
    identity = await keyring.identity()
    approval = approve_order(identity, keyring.roster.space, found["order"])
    body: ApproveRequest = {"task": found["task"], "signature": approval.signature}
    answer = await APPROVE.ask(desk.link, body, timeout_s=_ASK_S)
    doubt = f" But {DOUBT}." if is_doubtful(keyring.roster, order, identity.public_key) else ""
    return f"Approved: it is {answer['state']} now.{doubt}"


async def _look(desk: PageContext, identity: str) -> tuple[TaskShown, Order, str | None]:
    """Request a task; return the daemon's answer, the parsed order, and the reason why a runner
    would refuse it, or None. Raises ConfideError, TimeoutError.
    """
    found = await SHOW.ask(desk.link, {"task": identity}, timeout_s=_ASK_S)
    keyring = _keyring(desk)
    await keyring.refresh(desk.gateway.exchange.link)
    return found, *read_order(found, keyring.roster)


def _may(found: TaskShown, order: Order, problem: str | None, own: str) -> list[str]:
    """List the actions that are possible on a task. An order needs approval from another device
    than its signer.
    """
    state = found["state"]
    if state in _OVER:
        return []
    approvable = state == TaskStatus.PROPOSED and problem is None and own not in ("", order.signer)
    return [
        *(["approve"] if approvable else []),
        *(["pause"] if state == TaskStatus.ACTIVE else ["resume"] if state == TaskStatus.PAUSED else []),
        "cancel",
    ]


def _mark(found: TaskShown) -> str:
    """Return the fingerprint of the shown order that a form sends back."""
    return hashlib.sha256(found["order"] + found["signature"]).hexdigest()


async def _own(desk: PageContext) -> str:
    """Return this device's key, in hex; "" if it is unavailable."""
    try:
        identity = await _keyring(desk).identity()
    except ConfideError:
        return ""
    return str(identity.public_key.hex())


def _keyring(desk: PageContext) -> Any:
    return desk.gateway.exchange.session.sealing.keyring
