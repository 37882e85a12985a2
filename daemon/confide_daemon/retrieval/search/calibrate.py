"""What the cosines of a model mean, found out with a dozen questions whose answers are known.

One model gives unrelated texts 0.1, another 0.75; a score that says how likely an answer is needs to know which. Each question is
compared with its own answer and with those of all others. The packaged model's figures are in `scoring.PACKAGED`, measured with
the same texts; another model is measured once in a process, when it first serves a search: some 400 tokens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import numpy as np

from confide_crypto.errors import ConfideError
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.tokens import count_tokens
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.indexing.backfill import in_thread
from confide_daemon.retrieval.indexing.model import Provider
from confide_daemon.retrieval.search.scoring import PACKAGED_MODEL, WORDS_ONLY, CosineScale

log = logging.getLogger(__name__)

RETRY_S = 600.0
SPARED = 10_000  # tokens of a month's budget that are left for what was asked for
PAIRS: tuple[tuple[str, str], ...] = (
    ("Why did we choose Postgres?", "- we went with Postgres because row level security keeps tenants apart"),
    ("How do I run the tests?", "The test suite is started with make test; it takes about four minutes."),
    ("When is Anna's birthday?", "Anna turns thirty on the 14th of June and wants no party."),
    (
        "What caused the outage on the payment page?",
        "The checkout was down because the certificate had expired overnight.",
    ),
    (
        "Which coffee does the office order?",
        "For the kitchen we buy dark roast beans from the small roaster next door.",
    ),
    ("Where are the backups kept?", "Every night a dump is copied to a bucket in Frankfurt and kept for 30 days."),
    (
        "What does Tom think of the new design?",
        "Tom finds the redesigned dashboard too crowded and prefers the old colours.",
    ),
    ("How is the release numbered?", "Versions follow semantic versioning; breaking changes raise the major number."),
    ("Did the dog see a vet?", "We took Rex to the animal doctor on Friday, his paw is healing well."),
    ("How long are login sessions valid?", "A token expires after twelve hours, then the user has to sign in again."),
    (
        "What should I cook for the guests?",
        "Maria eats no meat and Paul is allergic to nuts, so make the lentil curry.",
    ),
    ("Who is responsible for the mail server?", "The SMTP relay is looked after by the infrastructure team, ask Lena."),
)


def scale(questions: Vectors, answers: Vectors) -> CosineScale | None:
    """The scale by the vectors of `PAIRS`, or None where the model does not tell answers from other texts."""
    cosines = np.asarray(questions) @ np.asarray(answers).T
    related = float(np.mean(np.diag(cosines)))
    unrelated = float(np.mean(cosines[~np.eye(len(cosines), dtype=bool)]))
    return CosineScale(unrelated, related) if related - unrelated > 0.02 else None


_known: dict[str, CosineScale | None] = {}  # by provider/model/dimensions; a process has few


class Yardsticks:
    """For one space: the scales of the models that serve it."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = providers
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0

    def of(self, name: str | None) -> CosineScale | None:
        """The scale of a model (provider/model/dimensions), None while it is not known."""
        return None if name is None else _known.get(name)

    def begin(self, name: str | None) -> None:
        """Measures the model in the background, unless that was done, is needless or failed a moment ago."""
        provider = next((one for one in self._providers if name is not None and one.name == name), None)
        if name is None or provider is None or name in _known or self._task is not None:
            return
        if (
            name.split("/")[0] in WORDS_ONLY
            or provider.model_name == PACKAGED_MODEL
            or time.monotonic() < self._retry_at
        ):
            return
        limit = provider.model.monthly_tokens
        if limit and limit - provider.tokens_used < SPARED:
            return
        self._task = asyncio.create_task(self._measure(name, provider), name="confide-yardstick")

    async def close(self) -> None:
        """Gives up what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _measure(self, name: str, provider: Provider) -> None:
        try:
            _known[name] = await in_thread(lambda: _ask(provider))
        except ConfideError as error:
            self._retry_at = time.monotonic() + RETRY_S
            log.info("the scale of the embedding model could not be measured: %s", type(error).__name__)
        self._task = None


def _ask(provider: Provider) -> CosineScale | None:
    questions = [provider.query_vector(question) for question, _ in PAIRS]
    present = [vector for vector in questions if vector is not None]
    if len(present) < len(PAIRS):
        raise EmbedderError("the embedding model is not there")
    texts = [answer for _, answer in PAIRS]
    with provider.paying(sum(count_tokens(text) for text in texts)):
        return scale(np.stack(present), provider.model.embed(texts))
