"""Sends the batches of an import plan to the daemon, and counts the results."""

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
from confide_transfer.local.import_log import ImportLog
from confide_transfer.local.plan import ImportBatch, ImportPlan
from confide_transfer.local.reader import Skipped
from confide_transfer.shared.wire import IMPORT, Imported, ImportRequest

STATES = ("new", "known", "identical", "deleted", "refused")
DEADLINE_S = 120.0
"""For one batch: 200 notes are written in a second, and a large import may have to wait for
another.
"""
MOST_NAMED = 50
_OURS = frozenset({"denied", "invalid", "too_large"})
"""Error codes about this batch alone: the daemon may accept others."""


@dataclass(slots=True)
class ImportOutcome:
    """The results of an import.

    Attributes:
        states: number of notes in each of `STATES`.
        refused: the first refused notes, with reasons.
        projects: number of new notes by project.
        ids: the ids of the new notes, in order.
        other_projects: number of known notes by project, if it is another than they were imported into.
        twins: the first notes that were not stored since a note has the same text: the origin, and
            that note's id, or "" for another note of the import.
        sealed: number of credentials that were sealed, or would be.
    """

    states: Counter[str] = field(default_factory=Counter)
    refused: list[Skipped] = field(default_factory=list)
    projects: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    other_projects: Counter[str] = field(default_factory=Counter)
    twins: list[tuple[str, str]] = field(default_factory=list)
    sealed: int = 0

    @property
    def done(self) -> int:
        return self.states.total()

    @property
    def known_in_others(self) -> str:
        """The number of known notes in other projects, as a part of a sentence for users; empty if
        there are none.
        """
        named = ", ".join(f"{project} {count}" for project, count in self.other_projects.most_common(4))
        return f", into {named}" if named else ""

    def counts(self) -> dict[str, int]:
        return {state: self.states[state] for state in STATES}

    def to_json(self, plan: ImportPlan) -> dict[str, object]:
        """Return the results as JSON for programs and agents."""
        return {
            "stores": [survey.to_json() for survey in plan.surveys],
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
    """Send the notes of an import plan, after its survey.

    Args:
        is_dry: only ask for the results, and store nothing.
        again: restore notes that were imported once and deleted since.
        progress: called with (notes done, notes in all).
        is_wanted: called before each batch; False stops the import.

    Raise RequestError if the daemon cannot accept anything now or refuses all notes;
    UnsealableError, before anything is sent, if the import has credentials and this device has no
    keys; and the errors of `Deposit.keep` and `Sealer.seal`. Notes that were sent before stay
    stored, and another import does not store them twice.
    """
    outcome = ImportOutcome()
    imports = ImportLog(sealing.state, sealing.keyring.space, [survey.store.label for survey in plan.surveys])
    if sealing.keyring.keys is None:
        # Raises if a credential cannot be sealed.
        await asyncio.to_thread(deque, plan.batches(sealing.sealer), 0)
    seen: set[bytes] = set()
    first: RequestError | None = None
    loop = asyncio.get_running_loop()
    batches = plan.batches(sealing.sealer)
    # Uses one thread for all batches: a reader's database belongs to the thread that opened it.
    with ThreadPoolExecutor(1) as reading:
        try:
            while is_wanted() and (batch := await loop.run_in_executor(reading, next, batches, None)) is not None:
                # Counts each secret once, by a hash.
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
                known = len(outcome.ids)
                refusal = await _send(outcome, batch, link, is_dry=is_dry, again=again)
                if not is_dry:
                    await asyncio.to_thread(imports.add, batch.project, outcome.ids[known:])
                first = first or refusal
                if progress:
                    progress(outcome.done, plan.notes)
        finally:
            reading.submit(batches.close)
    if first is not None and outcome.states["refused"] == outcome.done:
        raise first
    return outcome


async def _send(
    outcome: ImportOutcome, batch: ImportBatch, link: RequestChannel, *, is_dry: bool, again: bool
) -> RequestError | None:
    """Send a batch; return the daemon's refusal of the whole batch, or None.

    Raise RequestError if the daemon cannot accept anything now.
    """
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
    for note, origin, one in zip(batch.notes, batch.origins, results, strict=True):
        if one["state"] == "refused":
            outcome.refuse(origin, one["why"][:300])
        else:
            outcome.states[one["state"]] += 1
        if one["state"] == "identical" and len(outcome.twins) < MOST_NAMED:
            outcome.twins.append((origin[:300], one["id"]))
        if one["state"] == "known" and one["project"]:
            outcome.other_projects[one["project"]] += 1
        if one["state"] == "new":
            outcome.projects[batch.project] += 1
            outcome.ids.append(str(note["id"]))
