"""Handles the requests of runners and users about tasks (PROTOCOL.md 9.10).

    task-claim, task-started, task-renew, task-ended, task-log         of a runner
    task-show, task-approve, task-set, task-logs, task-report          of a user
    task-orders, task-resign                                           of a device whose key was changed
    move-tasks, move-tasks-in                                          of a device that moves its space (9.8)

A connection that has claimed a slot is notified from then on when another slot may be ready, and
when one of its runs is to be killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_crypto.sealing.roster import Roster
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.addons import SessionHost, SessionPart
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.errors import GrantError
from confide_daemon.server.requests.whole_space import require_all, require_device
from confide_daemon.spaces.space import Space
from confide_daemon.store.space_store import Store
from confide_memory.documents import iso
from confide_memory.wire.operation import Nothing
from confide_night.daemon import report, task_actions
from confide_night.daemon.claims import Ending, Runner, SlotId, name_of
from confide_night.daemon.nightly import Nightly
from confide_night.daemon.task_queue import SlotRow, TaskRow, queue
from confide_night.daemon.task_service import Tasks
from confide_night.order import wire
from confide_night.order.order import Approval, Slot, TaskStatus
from confide_night.order.wire import LEASE_S, MAX_CANCELLED, MAX_ORDERS, MAX_SLOTS, NEWS, SlotName

log = logging.getLogger(__name__)

NEWS_DEADLINE_S: Final = 10.0
LOG_PARTS: Final = 16
"""Most log parts in one answer, 4 MiB in all."""


class TaskRequests(SessionPart):
    """Handles the requests about tasks on one connection."""

    def __init__(self, session: SessionHost) -> None:
        self._session = session
        self._has_taken_over = False
        self._space: Space
        self._changed = asyncio.Event()
        self._is_runner = asyncio.Event()
        self.operations = dict(
            [
                wire.CLAIM.by(self._claim),
                wire.STARTED.by(self._start),
                wire.RENEW.by(self._renew),
                wire.ENDED.by(self._end),
                wire.LOG.by(self._log),
                wire.SHOW.by(self._show),
                wire.ORDERS.by(self._orders),
                wire.RESIGN.by(self._resign),
                wire.APPROVE.by(self._approve),
                wire.SET.by(self._set),
                wire.LOGS.by(self._logs),
                wire.REPORT.by(self._report),
                wire.MOVE_TASKS.by(self._leaving),
                wire.MOVE_TASKS_IN.by(self._arriving),
            ]
        )

    def use(self, space: Space) -> None:
        """Answer all further requests with the tasks of this space."""
        self._space = space
        self._changed.set()

    async def run(self) -> None:
        """Notify a runner of ready and cancelled slots until cancelled. Changes that occur while a
        notice is sent are combined into the next one.
        """
        await self._is_runner.wait()
        # Wake when the roster changes, to kill the runs of a removed device at once.
        with self._session.desk.following(self._session.caller_now().space_id, lambda: self._tasks.wake()):
            await self._announce_changes()

    async def _announce_changes(self) -> None:
        while True:
            # If the space was closed and opened again in between, `use` sets `_changed`.
            with self._tasks.following(self._changed.set):
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._tell()
                except ConnectionLost:
                    return
                except (TimeoutError, ConfideError) as error:
                    raise_if_cancelled()
                    # The runner polls anyway, and learns from its next request that a run is to be
                    # killed.
                    log.info("a runner did not take news of tasks: %s", type(error).__name__)

    async def _tell(self) -> None:
        tasks = self._tasks
        killed = await tasks.to_kill(self._key().hex())
        cancelled = [one.wire for one in killed[:MAX_CANCELLED]]
        news: wire.TasksNews = {"ready": await tasks.is_ready(), "cancelled": cancelled}
        if news["ready"] or news["cancelled"]:
            await NEWS.ask_machine(self._session.ask, news, NEWS_DEADLINE_S)

    # Requests of a runner

    async def _claim(self, asked: wire.ClaimRequest) -> wire.ClaimAnswer:
        caller = await self._runner()
        runner = Runner(
            caller.public_key.hex(),
            caller.alias,
            caller.grants.projects,
            {one["name"]: (one["maxMicrousd"], one["approval"]) for one in asked["recipes"]},
            frozenset(asked["busy"]),
            asked["leftMicrousd"],
        )
        lease, wait_s = await self._tasks.claim(runner)
        self._is_runner.set()
        if lease is None:
            return {"slot": None, "waitS": wait_s}
        slot: wire.Claimed = {
            **lease.slot.wire,
            **lease.task.wire,
            "leaseS": LEASE_S,
            "limitMicrousd": lease.limit,
        }
        return {"slot": slot, "waitS": wait_s}

    async def _start(self, asked: wire.StartedRequest) -> wire.StartedAnswer:
        caller, slot = await self._runner_of(asked)
        await self._tasks.record_start(slot, caller.public_key.hex(), is_repeatable=asked["repeatable"])
        return {"leaseS": LEASE_S}

    async def _renew(self, asked: SlotName) -> wire.RenewAnswer:
        caller, slot = await self._runner_of(asked)
        is_cancelled = await self._tasks.renew(slot, caller.public_key.hex())
        return {"leaseS": LEASE_S, "cancelled": is_cancelled}

    async def _end(self, asked: wire.EndedRequest) -> wire.EndedAnswer:
        caller, named = await self._runner_of(asked)
        ending = Ending(
            asked["state"],
            asked["reason"],
            asked["microusd"],
            asked["tokensIn"],
            asked["tokensOut"],
            asked["durationMs"],
            asked["commit"],
            asked["checked"],
        )
        slot, project, stored = await self._tasks.record_end(
            named, caller.public_key.hex(), ending, asked["text"], author=caller.alias
        )
        if stored is not None and stored.result is not None:
            self._session.publish_here_too(
                DocumentChange.of(project, stored.row.path, stored.result, stored.result.previous_hash)
            )
        return {"state": slot.state, "effects": slot.state is Slot.SUCCEEDED, "path": slot.note}

    async def _log(self, asked: wire.LogRequest) -> Nothing:
        caller, slot = await self._runner_of(asked)
        await self._tasks.log(slot, caller.public_key.hex(), asked["part"], asked["record"])
        return {}

    async def _runner(self) -> Caller:
        """Return the caller, a device of the space, and transfer to it the slots leased under its
        earlier keys. Raises GrantError.
        """
        caller = await self._device()
        if not self._has_taken_over:
            # Once is enough: the first connection with a new key ended the old key's connections,
            # and the old key gets no more slots.
            earlier = await asyncio.to_thread(self._session.registry.earlier_keys, caller.public_key)
            if earlier:
                await self._tasks.take_over({key.hex() for key in earlier}, caller.public_key.hex())
            self._has_taken_over = True
        return caller

    async def _runner_of(self, said: SlotName) -> tuple[Caller, SlotId]:
        """Return the caller and the slot that it names, after checking that it may write to the
        slot's project. Raises GrantError, NotFoundError.
        """
        await self._runner()
        # A runner that reconnects during a run claims nothing, but must be notified of what to
        # kill.
        self._is_runner.set()
        slot = SlotId(said["task"], said["at"], said["attempt"], said["fence"])
        task = await self._tasks.task(slot.task)
        caller = self._session.caller_now()
        caller.grants.require_scope()
        caller.grants.require_project(task.project)
        return caller, slot

    # Requests of a user

    async def _show(self, asked: wire.ShowRequest) -> wire.TaskShown:
        self._grants().require_source("memory")
        roster = await self._tasks.roster()

        def work(store: Store) -> wire.TaskShown:
            row = task_actions.find_task(store, self._grants(), asked["task"])
            if roster is not None:  # the roster may have changed since the last pass
                row = replace(row, approvals=tuple(one for one in row.approvals if one.key in roster.devices))
            listed = queue(store).runners.list_runners()
            runners = {one.key: one.name for one in listed}
            slots = queue(store).slots.of(row.id, limit=MAX_SLOTS)
            return {
                "task": row.id,
                **row.wire,
                "device": name_of(roster, row.signer),
                "state": row.state,
                "why": row.why or task_actions.nobody_for(row, listed),
                "slots": [_run_item(one, runners) for one in slots],
            }

        return await self._tasks.read(work)

    async def _orders(self, asked: wire.OrdersRequest) -> wire.OrdersPage:
        caller = await self._device()
        projects = caller.grants.projects

        def work(store: Store) -> list[TaskRow]:
            return queue(store).tasks.bearing(asked["key"].hex(), asked["after"], limit=MAX_ORDERS)

        rows = await self._tasks.read(work)
        orders = [one.wire for one in rows if projects is None or one.project in projects]
        return {"orders": orders, "next": rows[-1].id if rows else None}

    async def _resign(self, asked: wire.ResignRequest) -> wire.TaskState:
        caller = await self._device()
        order, signature = asked["order"], asked["signature"]

        def work(store: Store, roster: Roster | None, now: float) -> TaskRow:
            return task_actions.sign_again(store, self._grants(), roster, caller.public_key, order, signature, now=now)

        return {"state": (await self._tasks.change(work)).state}

    async def _approve(self, asked: wire.ApproveRequest) -> wire.TaskState:
        caller = await self._device()
        approval = Approval(caller.public_key, asked["signature"])

        def work(store: Store, roster: Roster | None, _now: float) -> TaskRow:
            return task_actions.approve(
                store, task_actions.writable(store, self._grants(), asked["task"]), roster, approval
            )

        return {"state": (await self._tasks.change(work)).state}

    async def _set(self, asked: wire.SetRequest) -> wire.TaskState:
        by = self._grants().alias

        def work(store: Store, roster: Roster | None, now: float) -> TaskRow:
            row = task_actions.writable(store, self._grants(), asked["task"])
            if asked["state"] == TaskStatus.PAUSED:
                return task_actions.pause(store, row, by=by)
            return task_actions.resume(store, row, roster, now=now)

        return {"state": (await self._tasks.change(work)).state}

    async def _logs(self, asked: wire.LogsRequest) -> wire.LogParts:
        self._grants().require_source("memory")

        def work(store: Store) -> list[tuple[int, bytes]]:
            row = task_actions.find_task(store, self._grants(), asked["task"])
            return queue(store).logs.after(row.id, asked["at"], asked["from"], limit=LOG_PARTS + 1)

        found = await self._tasks.read(work)
        parts = found[:LOG_PARTS]
        return {
            "parts": [{"part": number, "record": record} for number, record in parts],
            "next": found[LOG_PARTS][0] if len(found) > LOG_PARTS else None,
        }

    async def _report(self, asked: wire.ReportRequest) -> wire.ReportAnswer:
        self._grants().require_source("memory")
        since, is_brief = asked["since"], asked["brief"]
        begin = datetime.fromisoformat(since).timestamp() if since else None
        night = None if is_brief else await self._space.part(Nightly).newest()
        more = night.lines() if night is not None else ()
        found = await report.make_report(self._tasks, self._grants, since=begin, is_brief=is_brief, more=more)
        counts: list[wire.Counted] = [{"state": state, "count": count} for state, count in found.counts.items()]
        return {"lines": list(found.lines), "open": found.is_open, "counts": counts, "ids": list(found.ids)}

    async def _leaving(self, asked: wire.MoveTasksRequest) -> wire.MoveTasksPage:
        await require_device(self._session, "a move")
        page = await self._tasks.leaving(asked["after"])
        require_all(self._session, "a move")
        return page

    async def _arriving(self, asked: wire.MoveTasksIn) -> Nothing:
        await require_device(self._session, "a move")
        await self._tasks.arrive(asked, is_last=asked["isLast"], are_given_up=asked["givenUp"])
        return {}

    @property
    def _tasks(self) -> Tasks:
        return self._space.part(Tasks)

    def _grants(self) -> Grants:
        return self._session.caller_now().grants

    async def _device(self) -> Caller:
        """Return the caller, a device of the space that may write. Raises GrantError."""
        self._session.caller_now().grants.require_scope()
        if await self._session.epoch_for(self._key()) is None:
            hint = "approve it on one of them: confide device approve"
            raise GrantError("a runner must be a device of its space, and this device is not", hint=hint)
        caller = self._session.caller_now()
        caller.grants.require_scope()
        caller.grants.require_source("memory")
        return caller

    def _key(self) -> bytes:
        return self._session.caller_now().public_key


def _run_item(slot: SlotRow, runners: Mapping[str, str]) -> wire.RunShown:
    return {
        "at": slot.at,
        "state": slot.state,
        "attempt": slot.attempt,
        "reason": slot.to_cancel or slot.reason,
        "runner": None if slot.runner is None else runners.get(slot.runner, "unknown"),
        "microusd": slot.microusd,
        "tokens": slot.tokens_in + slot.tokens_out,
        "durationMs": slot.duration_ms,
        "checked": slot.is_checked,
        "commit": slot.commit_id,
        "path": slot.note,
        "ended": None if slot.ended_at is None else iso(slot.ended_at),
    }
