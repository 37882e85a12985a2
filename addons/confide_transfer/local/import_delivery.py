"""A plan carried out: its batches sent to the daemon, and what became of each note."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from confide_crypto.errors import RequestError, printable
from confide_memory.documents import RequestChannel
from confide_proxy.errors import UnfitAnswerError
from confide_proxy.sealing.context import SessionSealing
from confide_transfer.local.plan import ImportBatch, ImportPlan
from confide_transfer.local.reader import Skipped
from confide_transfer.shared.wire import IMPORT, Imported, ImportRequest

STATES = ("new", "known", "identical", "deleted", "refused")
DEADLINE_S = 120.0
"""Of one batch: 200 notes are written in a second, and a large import may have to wait for another."""
MOST_NAMED = 50
_OURS = frozenset({"denied", "invalid", "too_large"})
"""Refusals that are about what was asked, so that other batches may well be taken."""


@dataclass(slots=True)
class ImportOutcome:
    """What became of the notes: how many in each of `STATES`, why the first refused ones were, how many each project got, and how many of
    the known ones are in others than these came for. `twins`: of the first ones that are not stored, since a note says the same, what they
    are known by and the id of that note, "" for another one of the import. `sealed` says how many credentials were sealed, or would be."""

    states: Counter[str] = field(default_factory=Counter)
    refused: list[Skipped] = field(default_factory=list)
    projects: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    twins: list[tuple[str, str]] = field(default_factory=list)
    sealed: int = 0

    @property
    def done(self) -> int:
        return self.states.total()

    @property
    def known_elsewhere(self) -> str:
        """As a part of a sentence; empty if there are none."""
        named = ", ".join(f"{project} {count}" for project, count in self.elsewhere.most_common(4))
        return f", into {named}" if named else ""

    def counts(self) -> dict[str, int]:
        return {state: self.states[state] for state in STATES}

    def as_json(self, plan: ImportPlan) -> dict[str, object]:
        """What became of the plan, for programs and for an agent."""
        return {
            "stores": [survey.as_json() for survey in plan.surveys],
            "results": self.counts(),
            "refused": [{"origin": one.origin, "reason": one.reason} for one in self.refused],
            "sealed": self.sealed,
        }

    def refuse(self, origin: str, why: str) -> None:
        self.states["refused"] += 1
        if len(self.refused) < MOST_NAMED:
            self.refused.append(Skipped(origin[:300], why))


async def deliver(
    plan: ImportPlan,
    link: RequestChannel,
    sealing: SessionSealing,
    *,
    is_dry: bool = False,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> ImportOutcome:
    """Send a plan that was surveyed.

    Args:
        is_dry: ask what would become of each, and store nothing.
        again: bring back what was imported once and has been deleted since.
        progress: told (notes gone through, notes in all).
        is_wanted: asked before each batch; nothing more is sent once it says no.

    Raises RequestError: the daemon cannot take it now, or takes none of it; UnsealableError: there are credentials in it and this machine
    has no keys; nothing was sent; and as `Deposit.keep` and `Sealer.seal`. What was sent before is stored, and to import it again stores
    nothing twice.
    """
    outcome = ImportOutcome()
    if sealing.keyring.keys is None:
        # What cannot be sealed is raised.
        await asyncio.to_thread(deque, plan.batches(sealing.sealer), 0)
    seen: set[bytes] = set()
    first: RequestError | None = None
    loop = asyncio.get_running_loop()
    batches = plan.batches(sealing.sealer)
    # One thread from the first batch to the last: a reader's database may be used by no other.
    with ThreadPoolExecutor(1) as reading:
        try:
            while is_wanted() and (batch := await loop.run_in_executor(reading, next, batches, None)) is not None:
                # Each counted once, without what it is.
                seen |= {
                    hashlib.blake2b(one.value, key=one.kind.encode(), digest_size=16).digest() for one in batch.secrets
                }
                outcome.sealed = len(seen)
                for one in batch.refused:
                    outcome.refuse(one.origin, one.reason)
                if not batch.notes:
                    continue
                if not is_dry:
                    await sealing.deposit.keep(link, batch.secrets)
                refusal = await _sent(outcome, batch, link, is_dry=is_dry, again=again)
                first = first or refusal
                if progress:
                    progress(outcome.done, plan.notes)
        finally:
            reading.submit(batches.close)
    if first is not None and outcome.states["refused"] == outcome.done:
        raise first
    return outcome


async def _sent(
    outcome: ImportOutcome, batch: ImportBatch, link: RequestChannel, *, is_dry: bool, again: bool
) -> RequestError | None:
    """Why the daemon takes none of a batch, None where it has. Raises RequestError: it cannot take it now."""
    body: ImportRequest = {"project": batch.project, "records": batch.notes, "dryRun": is_dry, "again": again}
    try:
        answer = await IMPORT.ask(link, body, timeout_s=DEADLINE_S)
    except RequestError as error:
        if error.code not in _OURS:
            raise
        for origin in batch.origins:
            outcome.refuse(origin, printable(str(error)))
        return error
    _count(outcome, batch, answer)
    return None


def _count(outcome: ImportOutcome, batch: ImportBatch, answer: Imported) -> None:
    results = answer["results"]
    if len(results) != len(batch.notes):
        raise UnfitAnswerError
    for origin, one in zip(batch.origins, results, strict=True):
        if one["state"] == "refused":
            outcome.refuse(origin, one["why"][:300])
        else:
            outcome.states[one["state"]] += 1
        if one["state"] == "identical" and len(outcome.twins) < MOST_NAMED:
            outcome.twins.append((origin[:300], one["id"]))
        if one["state"] == "known" and one["project"]:
            outcome.elsewhere[one["project"]] += 1
        if one["state"] == "new":
            outcome.projects[batch.project] += 1
