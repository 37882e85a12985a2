"""Runs the maintenance jobs that an operator requests: in the running daemon, or within the command
if no daemon runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.access.job_queue import Job, Jobs, Kind
from confide_daemon.access.registry import Registry
from confide_daemon.errors import LockedError
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space

log = logging.getLogger(__name__)

Follow = Callable[[str, int, int], None]
"""Called with the step (a few words), how much of it is done, and its total."""

# Minimum interval between progress writes: each one wakes every process that watches the registry.
TOLD_EVERY_S: Final = 0.5
WAIT_S: Final = 1.0
"""Interval at which a job checks for its cancellation."""
# A command waits for the recorded outcome, so the write is retried even while the disk is full.
RETRY_S: Final = 5.0
# A model may take a day for all embeddings; a waiting command can be interrupted.
VECTORS_S: Final = 7 * 86_400.0


async def carry_out(
    spaces: Spaces, space_id: str, kind: Kind, follow: Follow, *, since: float, is_cancelled: Callable[[], bool]
) -> dict[str, object]:
    """Open a space and run a maintenance job in it; return the outcome. `since` and `is_cancelled`:
    as for `perform`.

    Raises LockedError if the space's devices keep its key and none has unlocked it, ConfideError if
    the job fails.
    """
    with spaces.mark_used(space_id):
        if kind in ("to-caller", "to-server", "rekey"):
            return await _change_key(spaces, space_id, kind, follow)
        if kind in ("to-vault", "from-vault"):
            async with spaces.hold(space_id) as space:
                return await _move(space, kind, follow, is_cancelled)
        async with spaces.hold(space_id) as space:
            return await perform(space, kind, follow, since=since, is_cancelled=is_cancelled)


async def _change_key(spaces: Spaces, space_id: str, kind: Kind, follow: Follow) -> dict[str, object]:
    def report_progress(done: int, total: int) -> None:
        follow("changing the key", done, total)

    if kind == "rekey":
        custody = await spaces.renew(space_id, report_progress)
    else:
        custody = await spaces.give_to(space_id, "caller" if kind == "to-caller" else "server", report_progress)
    return {"custody": custody.key.keeper, "number": custody.key.number, "wanted": custody.wanted_keeper}


async def _move(space: Space, kind: Kind, follow: Follow, is_cancelled: Callable[[], bool]) -> dict[str, object]:
    result = await space.records.move(
        back=kind == "from-vault",
        follow=lambda done, total: follow("moving sealed records", done, total),
        is_cancelled=is_cancelled,
    )
    return {"moved": result.moved, "lost": result.lost, "inVault": result.in_vault, "inDatabase": result.in_database}


async def perform(
    space: Space, kind: Kind, follow: Follow, *, since: float, is_cancelled: Callable[[], bool]
) -> dict[str, object]:
    """Run a maintenance job in an open space; return the outcome.

    Args:
        kind: the job.
        follow: receives the progress: the step, how much of it is done, and its total.
        since: when the job was requested, in seconds since 1970. The outcome includes what the
            automatic maintenance has found since then.
        is_cancelled: returns True if the job should end. It then ends after the current
            transaction, and its work so far stays.

    Raises ConfideError if the job fails.
    """
    follow("checking", 0, 0)
    await space.upkeep.check(accept_losses=kind == "fix")
    found = await space.upkeep.breaches_since(since)
    outcome: dict[str, object] = {"found": dict(found), "health": space.upkeep.health().state}
    if kind == "fix":
        await space.upkeep.give_back()
        return outcome
    changes = await space.rebuild(
        reembed=kind == "reembed",
        progress=lambda done, total: follow("cutting documents", done, total),
        is_cancelled=is_cancelled,
    )
    outcome |= {
        "chunksAdded": changes.added_pieces,
        "chunksUpdated": changes.kept_pieces,
        "chunksRemoved": changes.removed_pieces,
    }
    deadline = time.monotonic() + VECTORS_S
    outcome["indexed"] = False
    while not is_cancelled() and (began := time.monotonic()) < deadline:
        if await space.wait_indexed(
            timeout_s=WAIT_S, progress=lambda done, total: follow("computing vectors", done, total)
        ):
            outcome["indexed"] = True
            break
        if time.monotonic() - began < WAIT_S:  # it was given up: nothing more can be done now
            break
    return outcome


class Work:
    """The daemon's job runner, which runs one job at a time."""

    def __init__(self, registry: Registry, spaces: Spaces) -> None:
        self._jobs = Jobs(registry)
        self._spaces = spaces
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        # A daemon on a read-only disk still serves its contents.
        with contextlib.suppress(ConfideError):
            self._jobs.end_all()

    def look(self) -> None:
        """Start queued jobs. Call it when the registry has changed, since that contains the queue."""
        if not self.is_busy and not self._has_ended and self._jobs.next() is not None:
            self._task = asyncio.create_task(self._run(), name="confide-jobs")

    async def close(self) -> None:
        self._has_ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(ConfideError):
            await asyncio.to_thread(self._jobs.end_all)

    async def _run(self) -> None:
        while (job := await asyncio.to_thread(self._jobs.next)) is not None:
            try:
                await self._do(job)
            except ConfideError as error:
                log.error("job %d could not be written down: %s", job.id, error)
                return

    async def _do(self, job: Job) -> None:
        jobs = self._jobs
        await asyncio.to_thread(jobs.begin, job.id)
        now: list[Any] = ["opening", 0, 0]
        cancelled = asyncio.Event()

        def follow(step: str, done: int, total: int) -> None:
            now[:] = step, done, total

        async def tell() -> None:
            told: list[Any] = []
            while True:
                await asyncio.sleep(TOLD_EVERY_S)
                try:
                    current = await asyncio.to_thread(jobs.get, job.id)
                    if current is None or current.has_ended:
                        cancelled.set()
                    if now != told:
                        await asyncio.to_thread(jobs.report_progress, job.id, *now)
                        told = list(now)
                except ConfideError:  # the next round writes the progress again
                    raise_if_cancelled()

        telling = asyncio.create_task(tell())
        log.info("job %d: %s of space %s", job.id, job.kind, job.space_id)
        try:
            outcome = await carry_out(
                self._spaces, job.space_id, job.kind, follow, since=job.asked_at, is_cancelled=cancelled.is_set
            )
            state = "done"
        except LockedError as error:
            state, outcome = "failed", {"error": str(error), "hint": error.hint, "locked": True}
        except ConfideError as error:
            state, outcome = "failed", {"error": str(error), "hint": error.hint}
        except Exception as error:
            # The command must not wait forever. A bug is logged by its class only, since its text
            # may quote anything.
            log.error("job %d broke: %s", job.id, type(error).__name__)
            state, outcome = "failed", {"error": f"the daemon failed at it: {type(error).__name__}"}
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        while True:
            try:
                await asyncio.to_thread(jobs.end, job.id, state, outcome)
                break
            except ConfideError as error:
                raise_if_cancelled()
                log.error("job %d has ended, but that could not be written down: %s", job.id, error)
                await asyncio.sleep(RETRY_S)
        log.info("job %d: %s", job.id, state)
