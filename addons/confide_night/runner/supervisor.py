"""Executes one slot from its claim to its effects: checks the order, keeps the lease, watches the
run, reports the outcome, and only then keeps the work.

The daemon is trusted with nothing but availability: the roster and a signature prove the signer of
an order, the local ledger records which slots have started, and the local clock measures leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

from confide_crypto.errors import ConfideError, LinkError, OrderError, OrderSignerError, RequestError
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.keys.private_files import make_private_dir, read_private_file
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.documents import RequestChannel
from confide_night.errors import RepositoryError, RunnerError
from confide_night.order.order import CUSTOM, Order, check_approvals, check_approver, microusd, open_order
from confide_night.order.wire import (
    AGAIN,
    CLAIM,
    ENDED,
    LEASE_S,
    LOG,
    LOG_KIND,
    MARGIN_S,
    MAX_LOG_PART,
    MAX_LOG_PARTS,
    MAX_REASON_CHARS,
    MAX_RESULT_CHARS,
    RENEW,
    RENEW_S,
    STARTED,
    Claimed,
    ClaimRequest,
    EndedRequest,
    LogRequest,
    Offered,
    SlotName,
    StartedRequest,
    approvals_of,
)
from confide_night.runner.books import Begun, KnownDevices, RunLedger, Spending
from confide_night.runner.mirrors import BRANCH, Mirror
from confide_night.runner.run import Result, Run, RunJob
from confide_night.runner.settings.recipes import Recipe, RunnerSettings
from confide_proxy.errors import UnfitAnswerError
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.open_secrets import open_secret

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S: Final = 10.0
"""Timeout of one request to the daemon, in seconds."""
AGAIN_S: Final = 2.0
"""Wait between two attempts of a request that failed, in seconds."""
TOLD_S: Final = 3600.0
"""How long the runner tries to report an outcome to an unreachable daemon, in seconds. After that
the work is discarded, as if the lease were another runner's.
"""
_MOST_KEY: Final = 16 * 1024
_UNANSWERED: Final = (LinkError, TimeoutError, UnfitAnswerError)
"""Errors without a valid answer; the request is repeated while time remains."""
_SHORTEST_USD: Final = 0.0001
_READY: Final = "ready"
"""State of a slot that will be leased again."""
_NOT_COUNTED: Final = frozenset({"cancelled", "lost"})
_SOURCE: Final = "tools"
"""Source of a result for the policy on credentials: text that is about to be stored."""


@dataclass(slots=True)
class _Lease:
    """The end of a slot's lease, by `time.monotonic`."""

    ends: float

    @classmethod
    def of(cls, asked_at: float, lease_s: float) -> Self:
        """Start a lease at the time of its request, since the delay of the answer is unknown."""
        return cls(asked_at + min(lease_s, LEASE_S))

    def renew(self, asked_at: float, lease_s: float) -> None:
        """Extend the lease after a renewal requested at `asked_at`."""
        self.ends = max(self.ends, self.of(asked_at, lease_s).ends)

    @property
    def left_s(self) -> float:
        """Return the seconds until a run must have been killed."""
        return self.ends - MARGIN_S - time.monotonic()


class Given(Claimed):
    """A slot that this runner has received, with the time of its claim by `time.monotonic`."""

    asked_at: float


class LostSlotError(Exception):
    """The slot belongs to another runner or has ended; the run's outcome does not count."""


class Supervisor:
    """Executes one slot at a time."""

    def __init__(
        self, link: RequestChannel, sealing: SessionSealing, settings: RunnerSettings, ledger: RunLedger, folder: Path
    ) -> None:
        """Args:
        folder: the folder of this runner's files.
        """
        self._link = link
        self._sealing = sealing
        self._settings = settings
        self._ledger = ledger
        self._folder = folder
        self._spending = Spending(folder)
        self._devices = KnownDevices(folder)
        self._run: tuple[Begun, Run] | None = None
        self._connected = asyncio.Event()
        self.on_begin: Callable[[Begun, Recipe], None] = lambda _begun, _recipe: None
        self.on_end: Callable[[Begun, str, Result], None] = lambda _begun, _state, _result: None

    # Claims and notices from the daemon

    async def recover(self) -> list[Begun]:
        """Report runs that an earlier process of this runner started and did not finish as lost,
        and return them. Their processes have ended. Raises LinkError or TimeoutError if the daemon
        cannot be reached.
        """
        found = await asyncio.to_thread(self._ledger.list_unfinished)
        for begun in found:
            said = _ending(begun, "lost", "its runner ended in the middle of it")
            with contextlib.suppress(RequestError):  # the daemon already records it as ended
                await ENDED.ask(self._link, said, timeout_s=DEADLINE_S)
            await asyncio.to_thread(self._ledger.end, begun, "lost")
        return found

    async def claim(self, recipes: list[Recipe]) -> tuple[Given | None, float]:
        """Ask the daemon for the best due slot. Return it or None, and the seconds to wait before
        the next request.

        Raises RequestError, LinkError or TimeoutError if the daemon refuses or cannot be reached;
        KeyFileError if the file of spending or of known devices cannot be read.
        """
        left = self._settings.monthly_usd - await asyncio.to_thread(self._spending.usd)
        offered: list[Offered] = [
            {"name": each.name, "maxMicrousd": microusd(each.max_usd), "approval": each.approval == "device"}
            for each in recipes
        ]
        if (roster := self._sealing.keyring.roster) is not None:
            await asyncio.to_thread(self._devices.see, roster.devices, time.time())
        asked_at = time.monotonic()
        body: ClaimRequest = {"recipes": offered, "busy": [], "leftMicrousd": max(0, microusd(left))}
        answer = await CLAIM.ask(self._link, body, timeout_s=DEADLINE_S)
        slot = answer["slot"]
        return None if slot is None else {**slot, "asked_at": asked_at}, float(answer["waitS"])

    def cancel(self, slots: list[SlotName]) -> None:
        """Stop the current run if it is among the slots that the daemon wants killed."""
        for each in slots:
            if self._run is not None and self._run[0] == Begun(
                each["task"], each["at"], each["attempt"], each["fence"]
            ):
                self._run[1].stop("cancelled", "it was cancelled")

    def on_connected(self) -> None:
        """Renew the lease at once after a reconnect, so that the daemon can report a cancelled run."""
        self._connected.set()

    def stop(self, why: str) -> None:
        """Stop the current run, if there is one, and report it as lost."""
        if self._run is not None:
            self._run[1].stop("lost", why)

    # Work on a slot

    async def work(self, slot: Given) -> str:
        """Execute a claimed slot. Return its final state, `again`, or "" if the slot no longer
        belongs to this runner.
        """
        begun = Begun(slot["task"], slot["at"], slot["attempt"], slot["fence"])
        lease = _Lease.of(slot["asked_at"], slot["leaseS"])
        try:
            return await self._work(begun, slot, lease)
        except LostSlotError:
            log.warning("slot %s is not this runner's any more: what it has done is thrown away", begun.slot)
            with contextlib.suppress(ConfideError):
                await asyncio.to_thread(self._ledger.end, begun, "lost")
            return ""

    async def _work(self, begun: Begun, slot: Claimed, lease: _Lease) -> str:
        try:
            job = await self._job(begun, slot)
        except (LinkError, TimeoutError) as error:
            return await self._report_end(
                begun, lease, Result(AGAIN, f"the daemon did not answer: {type(error).__name__}")
            )
        except (OrderError, RunnerError) as error:
            return await self._report_end(begun, lease, Result("failed", str(error)))
        except ConfideError as error:
            return await self._report_end(begun, lease, Result(AGAIN, str(error)))
        try:
            await asyncio.to_thread(self._ledger.begin, begun, time.time())
        except RunnerError as error:  # the daemon has leased it twice
            return await self._report_end(begun, lease, Result("lost", str(error)))
        try:
            asked_at = time.monotonic()
            said: StartedRequest = {**begun.wire, "repeatable": job.recipe.repeatable}
            started = await self._insist(lambda: STARTED.ask(self._link, said, timeout_s=DEADLINE_S), lease)
            lease.renew(asked_at, started["leaseS"])
        except LostSlotError:
            # Nothing has started, so this runner may still get the slot again.
            await asyncio.to_thread(self._ledger.end, begun, AGAIN)
            return ""
        await asyncio.to_thread(self._spending.hold, job.limit_usd)
        work = self._folder / "work"
        await asyncio.to_thread(make_private_dir, work)
        run = Run(job, self._settings, work)
        try:
            result = await self._watch(begun, run, lease, job)
            await asyncio.to_thread(self._spending.settle, job.limit_usd, result.usd)
            state = await self._report_end(begun, lease, result, job)
            await self._keep_log(begun, run)
            return state
        finally:
            await run.tidy()

    async def _watch(self, begun: Begun, run: Run, lease: _Lease, job: RunJob) -> Result:
        """Execute the run while renewing its lease. Raises LostSlotError, after the run's processes
        have ended.
        """
        self._run = (begun, run)
        self.on_begin(begun, job.recipe)
        keeping = asyncio.create_task(self._keep(begun, run, lease))
        running = asyncio.create_task(run.go())
        try:
            await asyncio.wait({keeping, running}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                run.stop("lost", "its lease was no longer renewed")  # an earlier stop takes precedence
            result = await running
            if keeping.done():
                keeping.result()
            return result
        finally:
            self._run = None
            for task in (keeping, running):
                task.cancel()
            await asyncio.gather(keeping, running, return_exceptions=True)

    async def _keep(self, begun: Begun, run: Run, lease: _Lease) -> None:
        """Renew the lease until the run ends or is to be stopped. Raises LostSlotError if another
        runner has it.
        """
        next_at = time.monotonic() + RENEW_S
        while True:
            wait_s = min(next_at - time.monotonic(), lease.left_s)
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._connected.wait()
            self._connected.clear()
            if lease.left_s <= 0:
                run.stop("lost", "the daemon was out of reach until the end of its lease")
                return
            asked_at = time.monotonic()
            try:
                deadline_s = max(0.1, min(DEADLINE_S, lease.left_s))
                answer = await RENEW.ask(self._link, begun.wire, timeout_s=deadline_s)
            except RequestError as error:
                if error.code in ("conflict", "not_found", "denied"):
                    raise LostSlotError from None
                next_at = time.monotonic() + AGAIN_S
            except _UNANSWERED:
                raise_if_cancelled()
                next_at = time.monotonic() + AGAIN_S
            else:
                lease.renew(asked_at, answer["leaseS"])
                next_at = asked_at + RENEW_S
                if answer["cancelled"]:
                    run.stop("cancelled", "it was cancelled")
                    return

    # Before the run

    async def _job(self, begun: Begun, slot: Claimed) -> RunJob:
        """Check the order and collect everything that a run needs. Raises OrderError or RunnerError
        if it must not run here; other ConfideError if it cannot run now.
        """
        keyring = self._sealing.keyring
        await keyring.refresh(self._link)
        if keyring.roster is None or keyring.keys is None:
            assert keyring.problem is not None
            raise keyring.problem
        now = time.time()
        order = open_order(keyring.roster, slot["order"], slot["signature"], now=now)
        if order.id != slot["task"]:
            raise OrderError("a task is given with another one's order")
        order.check_slot(slot["at"], now=now)
        if not 1 <= slot["attempt"] <= order.retries + 1:
            raise OrderError("a task is given more often than its order says")
        recipe = self._settings.recipes.get(order.recipe)
        if recipe is None:
            raise RunnerError(
                f"this runner has no recipe '{order.recipe}'", hint="confide task runner --check lists them"
            )
        if recipe.approval == "device":
            await self._check_approval(order, slot, keyring.roster, now)
        mirror = self._mirror(order, recipe)
        left = self._settings.monthly_usd - await asyncio.to_thread(self._spending.usd)
        limits = [slot["limitMicrousd"] / 1e6, recipe.max_usd, left]
        if order.max_microusd is not None:
            limits.append(order.max_microusd / 1e6)
        limit_usd = max(0.0, min(limits)) if recipe.asks_a_model else 0.0
        if recipe.asks_a_model and limit_usd < _SHORTEST_USD:
            raise RunnerError("nothing is left of the budget for it")
        values = {name: await self._open_secret(self._settings.secrets[name]) for name in sorted(recipe.secrets)}
        key = await self._key() if recipe.asks_a_model else ""
        text = order.description if order.type == CUSTOM else f"{order.description}\n\nKind of work: {order.type}"
        timeout_s = min(order.timeout_ms / 1000, recipe.timeout_s)
        return RunJob(begun.slot, recipe, text, order.context, mirror, limit_usd, timeout_s, key, values)

    async def _check_approval(self, order: Order, slot: Claimed, roster: Roster, now: float) -> None:
        """Check that the order has an approval that this runner accepts. Raises OrderError if not;
        KeyFileError if the file of known devices cannot be read.
        """
        problem = OrderError(
            f"the recipe '{order.recipe}' takes an approval by another device", hint="confide task approve"
        )
        signer, own = bytes.fromhex(order.signer), (await self._sealing.keyring.identity()).public_key
        for each in approvals_of(slot["approvals"]):
            try:
                check_approvals(roster, slot["order"], signer, [each])
                if each.key != own:
                    await asyncio.to_thread(self._check_approver, roster, each.key, signer, now)
                check_approver(roster, signer, each.key, {own, *([each.key] if self._settings.approvers else [])})
            except OrderError as error:
                problem = error
            else:
                return
        raise problem

    def _check_approver(self, roster: Roster, approver: bytes, signer: bytes, now: float) -> None:
        """Check that runner.toml names the approver, if it names any, and that neither device is
        new. Blocks.
        """
        name = roster.devices[approver].name
        words = {fingerprint_words(key) for key in (approver, *roster.earlier_keys(approver))}
        if self._settings.approvers and not words & {*self._settings.approvers}:
            hint = "its six words belong into approvers of runner.toml"
            raise OrderSignerError(
                f"the approval by {name} does not count: this runner is not set up to take it", hint=hint
            )
        self._devices.see(roster.devices, now)
        for key, what in (
            (approver, f"the approval by {name} does not count: it"),
            (signer, "the device that gave it"),
        ):
            if self._devices.is_new((key, *roster.earlier_keys(key)), now):
                problem = f"{what} is new, and this runner has known it for less than a day"
                raise OrderSignerError(problem, hint="approve it on the runner, or wait")

    def _mirror(self, order: Order, recipe: Recipe) -> Mirror | None:
        if recipe.kind == "ask":
            return None
        name = self._settings.repository(order.repo, order.project)
        if not name:
            if not order.repo and recipe.kind == "command":
                return None
            hint = "name it in [repositories] of runner.toml"
            raise RunnerError("this runner has no such repository", hint=hint)
        if not recipe.takes(name):
            raise RunnerError(f"the recipe '{recipe.name}' may not be used on the repository {name}")
        return Mirror(self._folder / "repositories", name, self._settings.repositories[name], self._settings.limits)

    async def _key(self) -> str:
        """Return the API key of the model. Raises RunnerError if none is configured; or as
        `open_secret`.
        """
        model = self._settings.model
        if model.key:
            return (await self._open_secret(model.key)).decode("utf-8", "replace").strip()
        if not model.key_file:
            raise RunnerError("this runner has no key of a model", hint="key_file in [model] of runner.toml")
        path = Path(model.key_file).expanduser()
        key = await asyncio.to_thread(read_private_file, path, most_bytes=_MOST_KEY)
        return key.decode("utf-8", "replace").strip()

    async def _open_secret(self, placeholder: str) -> bytes:
        return (await open_secret(self._link, self._sealing, placeholder)).value

    # After the run

    async def _report_end(self, begun: Begun, lease: _Lease, result: Result, job: RunJob | None = None) -> str:
        """Report the outcome of a run, then keep its work if the daemon accepted the outcome.
        Raises LostSlotError.
        """
        said = _ending(begun, result.state, result.reason)
        if job is not None:
            said |= {
                "microusd": microusd(result.usd),
                "tokensIn": result.tokens_in,
                "tokensOut": result.tokens_out,
                "durationMs": round(result.took_s * 1000),
                "commit": result.commit,
            }
            if result.checked is not None:
                said["checked"] = result.checked
            if text := await self._text(begun, result, job, lease):
                said["text"] = text
        answer = await self._insist(lambda: ENDED.ask(self._link, said, timeout_s=DEADLINE_S), lease, for_s=TOLD_S)
        state = answer["state"]
        counts = answer["effects"] and state == result.state
        if counts and result.bundle is not None and job is not None and job.mirror is not None:
            await self._effects(begun, result, job.recipe, job.mirror)
        ended = _in_our_books(result.state, state)
        if job is not None or result.state != AGAIN:
            await asyncio.to_thread(self._note_end, begun, ended)
        self.on_end(begun, ended, result)
        return ended

    def _note_end(self, begun: Begun, state: str) -> None:
        if begun in self._ledger.list_unfinished():
            self._ledger.end(begun, state)

    async def _effects(self, begun: Begun, result: Result, recipe: Recipe, mirror: Mirror) -> None:
        """Keep the run's branch on this device, and push it to the repository if the recipe says
        so.
        """
        assert result.bundle is not None
        try:
            await mirror.keep(result.bundle, begun.slot, result.commit)
            if result.patch is not None:
                await asyncio.to_thread(result.patch.replace, mirror.results.parent / f"{begun.slot}.patch")
            if recipe.push and result.may_be_pushed:
                await mirror.push(begun.slot, result.commit)
        except (RepositoryError, OSError) as error:
            log.warning("the work of slot %s is not kept: %s", begun.slot, error)

    async def _text(self, begun: Begun, result: Result, job: RunJob, lease: _Lease) -> str:
        """Return the result to send: with the place of its work, and with credentials sealed or
        withheld by the policy. Waits for a daemon that is away, as the report itself does.
        """
        lines = [result.text.strip(), *result.notes]
        if result.commit and job.mirror is not None:
            lines.append(f"branch {BRANCH.format(begun.slot)} in {job.mirror.results} on {self._settings.name}")
        text = "\n\n".join(line for line in lines if line)[-MAX_RESULT_CHARS // 2 :]
        if not text:
            return ""
        try:
            sealed = await asyncio.to_thread(self._sealing.sealer.seal, text, _SOURCE, is_sensitive=False)
            await self._insist(lambda: self._sealing.deposit.keep(self._link, sealed.secrets), lease, for_s=TOLD_S)
        except LostSlotError:
            return "the result could not be sealed, and stays out"
        except ConfideError as error:
            return f"the result stays out: {error}"
        return sealed.text[:MAX_RESULT_CHARS]

    async def _keep_log(self, begun: Begun, run: Run) -> None:
        """Upload the sealed log; a failure does not change the outcome of the run."""
        keys = self._sealing.keyring.keys
        if keys is None:
            return
        try:
            data = (await asyncio.to_thread(run.log.redact)).encode()
            for part, at in enumerate(range(0, len(data), MAX_LOG_PART)):
                if part >= MAX_LOG_PARTS:
                    break
                record = await asyncio.to_thread(_seal, keys, data[at : at + MAX_LOG_PART])
                said: LogRequest = {**begun.wire, "part": part, "record": record}
                await LOG.ask(self._link, said, timeout_s=DEADLINE_S)
        except (ConfideError, TimeoutError) as error:
            log.info("the log of slot %s was not kept: %s", begun.slot, type(error).__name__)

    # Requests to the daemon

    async def _insist(self, say: Callable[[], Awaitable[T]], lease: _Lease, *, for_s: float = 0.0) -> T:
        """Repeat a request until the daemon answers, while the lease lasts and for at least `for_s`
        seconds. Raises LostSlotError if the request is refused or time runs out.
        """
        until = time.monotonic() + for_s
        while True:
            try:
                return await say()
            except RequestError as error:
                if error.code in ("conflict", "not_found", "denied", "invalid"):
                    raise LostSlotError from error
            except _UNANSWERED:
                raise_if_cancelled()
            if time.monotonic() > until and lease.left_s <= 0:
                raise LostSlotError
            await asyncio.sleep(AGAIN_S)


def _ending(begun: Begun, state: str, reason: str) -> EndedRequest:
    return {
        "task": begun.task,
        "at": begun.at,
        "attempt": begun.attempt,
        "fence": begun.fence,
        "state": state,
        "reason": reason[:MAX_REASON_CHARS],
    }


def _in_our_books(own: str, said: str) -> str:
    """Return the state for the ledger, as observed here. The daemon can only say that a run does
    not count; if its `again` were trusted, it could start a finished run any number of times.
    """
    if said in _NOT_COUNTED:
        return said
    if own == AGAIN:
        return AGAIN if said == _READY else "failed"
    return own


def _seal(keys: SpaceKeys, data: bytes) -> bytes:
    return SealedRecord.seal(keys, LOG_KIND, data).encode()
