"""One slot from its claim to its effects: the order checked, the lease kept, the run watched, its end told, and only then what lasts.

The daemon is believed in nothing but what it withholds: who ordered what the roster and a signature say, what was begun the ledger, and how
long a lease lasts this machine's own clock.
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
from confide_night.order.order import CUSTOM, Order, check_approvals, check_approver, microusd, opened
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
from confide_proxy.errors import RepositoryError, RunnerError, UnfitAnswerError
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.open_secrets import open_secret

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S: Final = 10.0
"""Of one word to the daemon."""
AGAIN_S: Final = 2.0
"""Between two tries of a word that did not arrive."""
TOLD_S: Final = 3600.0
"""How long an end is told to a daemon that is away. Behind that the work is thrown away, as it is under another's lease."""
_MOST_KEY: Final = 16 * 1024
_UNANSWERED: Final = (LinkError, TimeoutError, UnfitAnswerError)
"""Nothing was said that counts; it is asked again for as long as there is time."""
_SHORTEST_USD: Final = 0.0001
_READY: Final = "ready"
"""The state of a slot that is given again."""
_NOT_COUNTED: Final = frozenset({"cancelled", "lost"})
_SOURCE: Final = "tools"
"""What a result counts as for the policy on credentials: a text that is about to be stored."""


@dataclass(slots=True)
class _Lease:
    """Until when a slot is ours, by `time.monotonic`."""

    ends: float

    @classmethod
    def of(cls, asked_at: float, lease_s: float) -> Self:
        """It counts from when it was asked for: how long the answer was on its way nobody knows."""
        return cls(asked_at + min(lease_s, LEASE_S))

    def renew(self, asked_at: float, lease_s: float) -> None:
        """By another answer."""
        self.ends = max(self.ends, self.of(asked_at, lease_s).ends)

    @property
    def left_s(self) -> float:
        """Until a run has to be dead."""
        return self.ends - MARGIN_S - time.monotonic()


class Given(Claimed):
    """A slot that this runner was given, and when it asked for it, by its own clock."""

    asked_at: float


class LostSlotError(Exception):
    """The slot is another's, or has ended: nothing of the run counts."""


class Supervisor:
    """Does one slot at a time."""

    def __init__(
        self, link: RequestChannel, sealing: SessionSealing, settings: RunnerSettings, ledger: RunLedger, folder: Path
    ) -> None:
        """`folder`: of this runner's files."""
        self._link = link
        self._sealing = sealing
        self._settings = settings
        self._ledger = ledger
        self._folder = folder
        self._spending = Spending(folder)
        self._known = KnownDevices(folder)
        self._run: tuple[Begun, Run] | None = None
        self._connected = asyncio.Event()
        self.on_begin: Callable[[Begun, Recipe], None] = lambda _begun, _recipe: None
        self.on_end: Callable[[Begun, str, Result], None] = lambda _begun, _state, _result: None

    # What is asked for, and told of from outside

    async def recover(self) -> list[Begun]:
        """Tell of what was begun here and did not end: it is lost, and nothing of it lives. Raises LinkError, TimeoutError."""
        found = await asyncio.to_thread(self._ledger.unfinished)
        for begun in found:
            said = _ending(begun, "lost", "its runner ended in the middle of it")
            with contextlib.suppress(RequestError):  # the daemon has known it as ended
                await ENDED.ask(self._link, said, timeout_s=DEADLINE_S)
            await asyncio.to_thread(self._ledger.end, begun, "lost")
        return found

    async def claim(self, recipes: list[Recipe]) -> tuple[Given | None, float]:
        """The best slot that is due, if there is one, and after how many seconds to ask again.

        Raises RequestError, LinkError, TimeoutError; KeyFileError: what was spent, or who was known, cannot be read.
        """
        left = self._settings.monthly_usd - await asyncio.to_thread(self._spending.usd)
        offered: list[Offered] = [
            {"name": each.name, "maxMicrousd": microusd(each.max_usd), "approval": each.approval == "device"}
            for each in recipes
        ]
        if (roster := self._sealing.keyring.roster) is not None:
            await asyncio.to_thread(self._known.see, roster.devices, time.time())
        asked_at = time.monotonic()
        body: ClaimRequest = {"recipes": offered, "busy": [], "leftMicrousd": max(0, microusd(left))}
        answer = await CLAIM.ask(self._link, body, timeout_s=DEADLINE_S)
        slot = answer["slot"]
        return None if slot is None else {**slot, "asked_at": asked_at}, float(answer["waitS"])

    def cancelled(self, slots: list[SlotName]) -> None:
        """The daemon says that these are to be killed."""
        for each in slots:
            if self._run is not None and self._run[0] == Begun(
                each["task"], each["at"], each["attempt"], each["fence"]
            ):
                self._run[1].stop("cancelled", "it was cancelled")

    def connected(self) -> None:
        """There is a connection again: the daemon is told at once what runs, so that it can say here what is to be killed."""
        self._connected.set()

    def stop(self, why: str) -> None:
        """End the run that is under way, if there is one."""
        if self._run is not None:
            self._run[1].stop("lost", why)

    # A slot

    async def work(self, slot: Given) -> str:
        """Do a slot that was claimed; the state that it has ended in, or `again`, or "" where it is not ours any more."""
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
            return await self._ended(begun, lease, Result(AGAIN, f"the daemon did not answer: {type(error).__name__}"))
        except (OrderError, RunnerError) as error:
            return await self._ended(begun, lease, Result("failed", str(error)))
        except ConfideError as error:
            return await self._ended(begun, lease, Result(AGAIN, str(error)))
        try:
            await asyncio.to_thread(self._ledger.begin, begun, time.time())
        except RunnerError as error:  # somebody has given it out twice
            return await self._ended(begun, lease, Result("lost", str(error)))
        try:
            asked_at = time.monotonic()
            said: StartedRequest = {**begun.wire, "repeatable": job.recipe.repeatable}
            started = await self._insist(lambda: STARTED.ask(self._link, said, timeout_s=DEADLINE_S), lease)
            lease.renew(asked_at, started["leaseS"])
        except LostSlotError:
            # Nothing of it has begun, and so whoever has it now may begin it here as well.
            await asyncio.to_thread(self._ledger.end, begun, AGAIN)
            return ""
        await asyncio.to_thread(self._spending.hold, job.limit_usd)
        work = self._folder / "work"
        await asyncio.to_thread(make_private_dir, work)
        run = Run(job, self._settings, work)
        try:
            result = await self._watched(begun, run, lease, job)
            await asyncio.to_thread(self._spending.settle, job.limit_usd, result.usd)
            state = await self._ended(begun, lease, result, job)
            await self._keep_log(begun, run)
            return state
        finally:
            await run.tidy()

    async def _watched(self, begun: Begun, run: Run, lease: _Lease, job: RunJob) -> Result:
        """The run, while its lease is kept. Raises LostSlotError, once nothing of it lives."""
        self._run = (begun, run)
        self.on_begin(begun, job.recipe)
        keeping = asyncio.create_task(self._keep(begun, run, lease))
        running = asyncio.create_task(run.go())
        try:
            await asyncio.wait({keeping, running}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                run.stop("lost", "nobody kept its lease any more")  # whatever the reason; the first word counts
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
        """Renew a lease until the run ends, or is to end. Raises LostSlotError: it is another's."""
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

    # Before it begins

    async def _job(self, begun: Begun, slot: Claimed) -> RunJob:
        """All that a run takes, checked. Raises OrderError, RunnerError: it is not to be done here; ConfideError: not now."""
        keyring = self._sealing.keyring
        await keyring.refresh(self._link)
        if keyring.roster is None or keyring.keys is None:
            assert keyring.problem is not None
            raise keyring.problem
        now = time.time()
        order = opened(keyring.roster, slot["order"], slot["signature"], now=now)
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
            await self._check_approved(order, slot, keyring.roster, now)
        mirror = self._mirror(order, recipe)
        left = self._settings.monthly_usd - await asyncio.to_thread(self._spending.usd)
        limits = [slot["limitMicrousd"] / 1e6, recipe.max_usd, left]
        if order.max_microusd is not None:
            limits.append(order.max_microusd / 1e6)
        limit_usd = max(0.0, min(limits)) if recipe.asks_a_model else 0.0
        if recipe.asks_a_model and limit_usd < _SHORTEST_USD:
            raise RunnerError("nothing is left of the budget for it")
        values = {name: await self._opened(self._settings.secrets[name]) for name in sorted(recipe.secrets)}
        key = await self._key() if recipe.asks_a_model else ""
        text = order.description if order.type == CUSTOM else f"{order.description}\n\nKind of work: {order.type}"
        timeout_s = min(order.timeout_ms / 1000, recipe.timeout_s)
        return RunJob(begun.slot, recipe, text, order.context, mirror, limit_usd, timeout_s, key, values)

    async def _check_approved(self, order: Order, slot: Claimed, roster: Roster, now: float) -> None:
        """Check that an approval is there that counts here. Raises OrderError: none does; KeyFileError: it is not known who is new."""
        problem = OrderError(
            f"the recipe '{order.recipe}' takes an approval by another device", hint="confide task approve"
        )
        signer, own = bytes.fromhex(order.signer), (await self._sealing.keyring.identity()).public_key
        for each in approvals_of(slot["approvals"]):
            try:
                check_approvals(roster, slot["order"], signer, [each])
                if each.key != own:
                    await asyncio.to_thread(self._check_named, roster, each.key, signer, now)
                check_approver(roster, signer, each.key, {own, *([each.key] if self._settings.approvers else [])})
            except OrderError as error:
                problem = error
            else:
                return
        raise problem

    def _check_named(self, roster: Roster, approver: bytes, signer: bytes, now: float) -> None:
        """Check that an approver is one of those of runner.toml, if there are any, and that neither device is new. Blocks."""
        name = roster.devices[approver].name
        words = {fingerprint_words(key) for key in (approver, *roster.earlier_keys(approver))}
        if self._settings.approvers and not words & {*self._settings.approvers}:
            hint = "its six words belong into approvers of runner.toml"
            raise OrderSignerError(
                f"the approval by {name} does not count: this runner is not told to take it", hint=hint
            )
        self._known.see(roster.devices, now)
        for key, what in (
            (approver, f"the approval by {name} does not count: it"),
            (signer, "the device that gave it"),
        ):
            if self._known.is_new((key, *roster.earlier_keys(key)), now):
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
        """The model's key. Raises RunnerError: there is none; or as `open_secret`."""
        model = self._settings.model
        if model.key:
            return (await self._opened(model.key)).decode("utf-8", "replace").strip()
        if not model.key_file:
            raise RunnerError("this runner has no key of a model", hint="key_file in [model] of runner.toml")
        path = Path(model.key_file).expanduser()
        key = await asyncio.to_thread(read_private_file, path, most_bytes=_MOST_KEY)
        return key.decode("utf-8", "replace").strip()

    async def _opened(self, placeholder: str) -> bytes:
        return (await open_secret(self._link, self._sealing, placeholder)).value

    # Behind its end

    async def _ended(self, begun: Begun, lease: _Lease, result: Result, job: RunJob | None = None) -> str:
        """Tell how it ended, and have the effects that it may have then. Raises LostSlotError."""
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
            if text := await self._text(begun, result, job):
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
        if begun in self._ledger.unfinished():
            self._ledger.end(begun, state)

    async def _effects(self, begun: Begun, result: Result, recipe: Recipe, mirror: Mirror) -> None:
        """What lasts: the branch on this machine, and where the recipe says so in the repository itself."""
        assert result.bundle is not None
        try:
            await mirror.keep(result.bundle, begun.slot, result.commit)
            if result.patch is not None:
                await asyncio.to_thread(result.patch.replace, mirror.results.parent / f"{begun.slot}.patch")
            if recipe.push and result.may_be_pushed:
                await mirror.push(begun.slot, result.commit)
        except (RepositoryError, OSError) as error:
            log.warning("the work of slot %s is not kept: %s", begun.slot, error)

    async def _text(self, begun: Begun, result: Result, job: RunJob) -> str:
        """The result as it leaves this machine: with where its work is, and without what the policy keeps here."""
        lines = [result.text.strip(), *result.notes]
        if result.commit and job.mirror is not None:
            lines.append(f"branch {BRANCH.format(begun.slot)} in {job.mirror.results} on {self._settings.name}")
        text = "\n\n".join(line for line in lines if line)[-MAX_RESULT_CHARS // 2 :]
        if not text:
            return ""
        try:
            sealed = await asyncio.to_thread(self._sealing.sealer.seal, text, _SOURCE, is_sensitive=False)
            await self._sealing.deposit.keep(self._link, sealed.secrets)
        except (LinkError, TimeoutError, RequestError):
            return "the result could not be sealed, and stays out"
        except ConfideError as error:
            return f"the result stays out: {error}"
        return sealed.text[:MAX_RESULT_CHARS]

    async def _keep_log(self, begun: Begun, run: Run) -> None:
        """Bring the log, sealed; without it the run has ended all the same."""
        keys = self._sealing.keyring.keys
        if keys is None:
            return
        try:
            data = (await asyncio.to_thread(run.log.redacted)).encode()
            for part, at in enumerate(range(0, len(data), MAX_LOG_PART)):
                if part >= MAX_LOG_PARTS:
                    break
                record = await asyncio.to_thread(_sealed, keys, data[at : at + MAX_LOG_PART])
                said: LogRequest = {**begun.wire, "part": part, "record": record}
                await LOG.ask(self._link, said, timeout_s=DEADLINE_S)
        except (ConfideError, TimeoutError) as error:
            log.info("the log of slot %s was not kept: %s", begun.slot, type(error).__name__)

    # Words to the daemon

    async def _insist(self, say: Callable[[], Awaitable[T]], lease: _Lease, *, for_s: float = 0.0) -> T:
        """Say something until it is taken, for as long as the lease lasts, and at least `for_s`. Raises LostSlotError: it is not."""
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
    """How a run has ended, for the ledger: as it was seen here. The daemon can say that it does not count, and nothing else: by the
    word `again` of its it would have a run that was done begun once more, as often as it likes."""
    if said in _NOT_COUNTED:
        return said
    if own == AGAIN:
        return AGAIN if said == _READY else "failed"
    return own


def _sealed(keys: SpaceKeys, data: bytes) -> bytes:
    return SealedRecord.seal(keys, LOG_KIND, data).encode()
