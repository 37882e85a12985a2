"""Computes the score that a hit shows: how likely the chunk answers the query, independent of the
other hits.

Ranking compares chunks with each other (`ranking`) and does not say if any of them is good. The
score is a logistic function of values that mean the same in every space, small or large:

- Rare words count more. Rarity is measured both in the searched chunks and in writing in general
  (`cohort.rarity`). In a small space each word is rare, so only the latter distinguishes "postgres"
  from "error" there. A word of the query that the chunk lacks lowers the score.
- The cosine is compared with those of the same query and unrelated notes (`cohort`), in standard
  deviations, because some queries are similar to everything.
- For prompts, the lead compares a chunk with others that the search has found. A chunk that helps
  stands out. Otherwise many chunks are about equally good, and the best score increases with their
  number alone. So the lead replaces a limit that depends on the number of chunks.

Each value describes the chunk itself, so a good first hit does not raise the score of others. The
weights are those of a logistic regression, rounded (`python -m bench.quiet.fit`). It separates
right first hits from all hits of queries that have no answer, on the development part of
`bench/quiet` at 40 to 40,000 chunks, and on the sets of `make eval`. The constant is chosen so that
a threshold of 0.25 loses some 2 % of right first hits.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from confide_crypto.errors import ConfideError
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import EmbedderError, StorageError
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, in_thread
from confide_daemon.retrieval.search import cohort
from confide_daemon.retrieval.search.cohort import Cohort
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.keyword import BACKGROUND, line_of, stems
from confide_daemon.store.tables.pieces import VECTOR_ITEM_BYTES
from confide_daemon.store.threads import StoreThreads
from confide_memory.tools.question import LACKING_ALL, MOST_OF_IT, Term, bounds, logistic, words_score
from confide_memory.tools.words import index_words

# Weights for a chunk with a vector.
HYBRID = {
    "stated": 1.8,
    "held": 2.9,
    "missing": -1.9,
    "unnamed": -1.8,
    "vector": 1.4,
    "deviation": 0.9,
    "few": 0.9,
    "constant": -5.9,
}
# Weights for the cosine alone. A chunk that says the same in other words, or in another language,
# shares no term with the query; 0.49 is more than unrelated texts reach.
VECTOR = {"vector": 10.0, "constant": -6.0}
# Weights for prompts that did not request a search: how likely a chunk helps, where most prompts
# need no memory. Fitted on the prompts of the development part of `bench/quiet`, so that at 0.4
# (`hooks.server.recall.HIT_SCORE`) about 2 % of prompts that no note helps with get one.
UNASKED = {
    "stated": 1.2,
    "held": 0.3,
    "vector": 1.9,
    "everyday": 4.2,
    "lead": 5.4,
    "constant": -6.4,
}
# A query without an answer finds many chunks that are about as good; an answer stands out. This
# many are compared. A lead of keyword scores over the fifth best let 19 % of everyday prompts get a
# note among 40,000 chunks, and 3 % among 40; this one lets 3 to 5 % at each size.
FIELD = 16
# Used where no cohort is known: half of all searches have less.
USUAL_MARGIN, USUAL_DEVIATION = 0.13, 3.0
# From so many chunks on, `few` is 0. A memory of thirty chunks is silent enough to answer more:
# there, right first hits were lost that larger ones keep.
MANY = 400
# The weight of terms that counts as much: a chunk with more of them is no surer answer.
FULL_HELD = 15.0
# Of the cosines with the cohort: a smaller spread is of a model that does not separate texts.
LEAST_SPREAD = 0.01
# Few answers deviate more. The cosine of a broken vector may, and is no surer for it.
MOST_DEVIATION = 7.0
# Chunks with a term are counted up to this number: a term in more chunks is common in a space of
# any size, and counting costs time.
MOST_COUNTED = 500
# The share of its weight that a term without any chunk gets in an empty space; with HALF_KNOWN
# chunks it gets half of the rest as well. A few notes contain hardly any word.
UNKNOWN, HALF_KNOWN = 0.3, 20


@dataclass(frozen=True, slots=True)
class CosineScale:
    """Converts the cosines of a model to the scale of the packaged model, for which the weights of
    the score were chosen.
    """

    unrelated: float = 0.05  # of a question and a text that have nothing to do with each other
    related: float = 0.50  # of a question and its answer

    def of(self, cosine: float) -> float:
        """Return the equivalent of a cosine on the packaged model's scale, limited to 0 to 1."""
        step = (cosine - self.unrelated) / max(self.related - self.unrelated, 1e-3)
        return min(1.0, max(0.0, PACKAGED.unrelated + step * (PACKAGED.related - PACKAGED.unrelated)))

    def cosine(self, packaged: float) -> float:
        """Return the model's own cosine that is equivalent to one on the packaged model's scale.
        The inverse of `of`.
        """
        step = (packaged - PACKAGED.unrelated) / (PACKAGED.related - PACKAGED.unrelated)
        return self.unrelated + step * (self.related - self.unrelated)


PACKAGED = CosineScale()
PACKAGED_MODEL = "all-MiniLM-L6-v2-int8"
# The multilingual model's (`embedding.local.multilingual`), until its cohort is measured as well.
MULTILINGUAL = CosineScale(0.02, 0.265)
MULTILINGUAL_MODEL = "use-multilingual-v3-6bit"
# A model that only compares words adds nothing to the keyword leg.
WORDS_ONLY = frozenset({"hashed"})


class Evidence(NamedTuple):
    """The values from which the score of a chunk is computed. They have no unit. `everyday`,
    `deviation` and `lead` may be negative.

    A chunk without a vector has None as its `vector`.
    """

    keyword: float  # the keyword score, saturated
    terms: float  # the share of the question's terms that stands in it or around it
    vector: float | None = None  # the cosine, on the scale of `CosineScale`
    stated: float = 0.0  # the share of the terms, by how rare they are, in the piece itself
    held: float = 0.0  # the weight of these terms, 1 from `FULL_HELD` on
    missing: float = 0.0  # how rare the rarest term is that stands neither in it nor around it
    unnamed: bool = False  # a name of the question stands neither in it nor around it
    deviation: float = USUAL_DEVIATION  # of the cosine from those with the cohort, in standard deviations
    everyday: float = USUAL_MARGIN  # of the cosine over the question's best with everyday texts
    few: float = 0.0  # 1 where the search covers one chunk, falling to 0 at `MANY`
    lead: float = 0.0  # of the relevance over the `FIELD`th best of the search
    is_named: bool = False  # a name or a quoted phrase of the question stands in it
    lacking: float = (
        0.0  # the share of the question that its identifiers are, where none of them stands in it or around it
    )

    @property
    def score(self) -> float:
        """The score that a hit shows, from 0 to 1: how likely the chunk answers the query."""
        if self.vector is None:
            return words_score(self.keyword, self.terms, is_named=self.is_named, lacking=self.lacking)
        least, most = bounds(is_named=self.is_named, lacking=self.lacking)
        alone = -math.inf if self.unnamed else self._sum(VECTOR)
        return logistic(min(most, max(self._sum(HYBRID), alone, least)))

    @property
    def unasked_score(self) -> float:
        """How likely the chunk helps with a prompt that did not request a search, from 0 to 1.
        Equal to `score` for a chunk without a vector.
        """
        if self.vector is None:
            return self.score
        # Many prompts contain a number or a name that does not matter. It does if it is most of the
        # prompt.
        most = LACKING_ALL if self.lacking >= MOST_OF_IT else math.inf
        return logistic(min(most, self._sum(UNASKED)))

    @property
    def best_unasked_score(self) -> float:
        """The highest `unasked_score` of a chunk with this vector and lead, whatever its text. Known
        before the text is read.
        """
        return 1.0 if self.vector is None else self._replace(stated=1.0, held=1.0).unasked_score

    def _sum(self, weights: Mapping[str, float]) -> float:
        values = self._asdict()
        return math.fsum(weight * values.get(name, 1.0) for name, weight in weights.items())


def field_of(relevances: Iterable[float]) -> float:
    """Return the relevance at place `FIELD` from the best, or 0 if there are fewer chunks."""
    best = heapq.nlargest(FIELD, relevances)
    return best[-1] if len(best) == FIELD else 0.0


def few_of(pieces: int) -> float:
    """Return a factor for small memories: 1 if the search covers one chunk, decreasing to 0 at
    `MANY` chunks.
    """
    return max(0.0, 1.0 - math.log(max(pieces, 1)) / math.log(MANY))


@dataclass(frozen=True, slots=True)
class TermCounts:
    """For each term of a query, the number of chunks that contain it, at most `MOST_COUNTED`.
    `pieces` is the number of all chunks.
    """

    having: tuple[int, ...]
    pieces: int

    def rarity(self, index: int) -> float:
        """Return how rare a term is, as in BM25; near 0 for a term in every chunk. A constant is
        added to the counts, so that a nearly empty space gives useful values.
        """
        having = self.having[index]
        rare = math.log1p((self.pieces + BACKGROUND - having + 0.5) / (having + 0.5))
        return rare if having else rare * (UNKNOWN + (1 - UNKNOWN) * self.pieces / (self.pieces + HALF_KNOWN))


class TermMatch(NamedTuple):
    """The terms of a query that a chunk contains or lacks, as values for `Evidence`."""

    stated: float
    held: float
    missing: float
    unnamed: bool


class QueryTerms:
    """The terms of a query, to be matched against texts. `also` are synonyms that the client gave,
    each of which counts in place of a term.
    """

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = (), counts: TermCounts | None = None) -> None:
        """`counts` are those of `terms`, then `also`; None: all terms are equally rare."""
        every = (*terms, *also)
        lines = [
            [
                *(line.rstrip() if term.is_beginning else line for line in map(line_of, term.ways)),
                *map(line_of, term.shorter),
            ]
            for term in every
        ]
        general = [min(map(cohort.rarity, some), default=0.0) if counts else 1.0 for some in lines]
        here = [counts.rarity(index) if counts else 1.0 for index in range(len(every))]
        weights = [term.weight * one * other for term, one, other in zip(every, general, here, strict=True)]
        own = len(terms)
        self._names = [(some, term.is_proper or term.is_name) for some, term in zip(lines[:own], terms, strict=True)]
        self._general = general[:own]
        # Nearly every term has one spelling, and a search tests each of them thirty times.
        self._plain = [(some[0], weight) for some, weight in zip(lines, weights, strict=True) if len(some) == 1]
        self._others = [(some, weight) for some, weight in zip(lines, weights, strict=True) if len(some) != 1]
        self._total = sum(weights[:own]) or max(weights, default=0.0)

    def share(self, texts: Iterable[str]) -> float:
        """Return the share of the terms that the texts contain, by weight, from 0 to 1; 0 if there
        are no terms.
        """
        return min(1.0, self._weight_in(texts) / self._total) if self._total else 0.0

    def match(self, own: Iterable[str], around: Iterable[str]) -> TermMatch:
        """Return which terms a chunk contains or lacks. `own` is its own text and headings, and
        `around` is this with the chunks near it.
        """
        held = self._weight_in(own)
        text = f" {' '.join(around)} "
        absent = [
            (rarity, is_name)
            for (lines, is_name), rarity in zip(self._names, self._general, strict=True)
            if not any(line in text for line in lines)
        ]
        # Synonyms of the caller stand for any of the terms.
        is_replaced = len(self._plain) + len(self._others) > len(self._names) and self._total and held >= self._total
        if is_replaced:
            absent = []
        return TermMatch(
            min(1.0, held / self._total) if self._total else 0.0,
            min(1.0, held / FULL_HELD),
            max((rarity for rarity, _ in absent), default=0.0),
            any(is_name for _, is_name in absent),
        )

    def _weight_in(self, texts: Iterable[str]) -> float:
        text = f" {' '.join(texts)} "
        held = sum([weight for line, weight in self._plain if line in text])
        return held + sum(weight for lines, weight in self._others if any(line in text for line in lines))


def stem_line(text: str) -> str:
    """Return a text as a line of word stems, the form in which `QueryTerms` takes texts."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))


log = logging.getLogger(__name__)

RETRY_S = 600.0
# The first search with a model waits so long for its calibration; most models take a tenth of it.
MEASURED_WITHIN_S = 0.5
SPARED = 10_000  # tokens of the monthly budget kept for searches
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


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCalibration:
    """The calibration of one model's cosines: their scale, and the vectors of the background texts
    (`cohort`, None if unknown).
    """

    scale: CosineScale = PACKAGED
    cohort: Cohort | None = None

    @classmethod
    def read(cls, kept: bytes) -> ScoreCalibration | None:
        """Return the calibration from the bytes that `pack` made, or None if they belong to other
        background texts.
        """
        numbers = np.frombuffer(kept[: len(kept) // VECTOR_ITEM_BYTES * VECTOR_ITEM_BYTES], dtype=np.float32)
        texts = len(cohort.texts([answer for _, answer in PAIRS]))
        if len(numbers) <= 2 or (len(numbers) - 2) % texts:
            return None
        vectors = numbers[2:].reshape(texts, -1)
        return cls(CosineScale(float(numbers[0]), float(numbers[1])), cohort.of(vectors))

    def pack(self) -> bytes:
        """Return the calibration as bytes, to be stored in the database."""
        vectors = () if self.cohort is None else (*self.cohort.notes, *self.cohort.everyday)
        scale = np.array([self.scale.unrelated, self.scale.related])
        return np.concatenate([scale, *vectors]).astype(np.float32).tobytes()

    def background(self, question: Vectors) -> Background:
        """Compare a query's vector with the background texts, and return a summary of the cosines."""
        if self.cohort is None:
            return Background(self.scale)
        notes, everyday = self.cohort.notes @ question, self.cohort.everyday @ question
        return Background(self.scale, float(np.mean(notes)), float(np.std(notes)), float(np.max(everyday)))


@dataclass(frozen=True, slots=True)
class Background:
    """A summary of a query's cosines with unrelated background texts, against which its cosines
    with chunks are judged. `mean` and `spread` describe those with notes, and `everyday` is the
    best one with everyday texts. Without background texts, there is no `mean` (None).
    """

    scale: CosineScale = PACKAGED
    mean: float | None = None
    spread: float = 1.0
    everyday: float = 0.0

    def of(self, cosine: float) -> tuple[float, float]:
        """Return how far a cosine is above the mean in standard deviations, and how far it is above
        the best one with everyday texts.
        """
        if self.mean is None:
            return USUAL_DEVIATION, USUAL_MARGIN
        deviation = min(MOST_DEVIATION, (cosine - self.mean) / max(self.spread, LEAST_SPREAD))
        return deviation, self.scale.of(cosine) - self.scale.of(self.everyday)


def scale(questions: Vectors, answers: Vectors) -> CosineScale | None:
    """Return the scale of a model's cosines, measured with its vectors of `PAIRS`. Return None if
    the model does not distinguish answers from other texts.
    """
    cosines = np.asarray(questions) @ np.asarray(answers).T
    related = float(np.mean(np.diag(cosines)))
    unrelated = float(np.mean(cosines[~np.eye(len(cosines), dtype=bool)]))
    return CosineScale(unrelated, related) if related - unrelated > 0.02 else None


_known: dict[str, ScoreCalibration | None] = {}  # by provider/model/dimensions; a process has few


class Yardsticks:
    """The calibrations of the models that serve one space. Each is measured with a dozen queries
    whose answers are known.

    One model gives unrelated texts a cosine of 0.1, another 0.75, so a score needs to know which.
    Each query is compared with its own answer and with the answers of the others. The values of the
    packaged model are in `PACKAGED`, measured with the same texts. Another model is measured once,
    before it first serves a search, which costs some 2,000 tokens. The result is stored with the
    model's vectors.
    """

    def __init__(self, providers: Sequence[BudgetedModel], threads: StoreThreads) -> None:
        self._providers = providers
        self._threads = threads
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0
        self._looked_for: set[str] = set()

    def of(self, name: str | None) -> ScoreCalibration | None:
        """Return the calibration of a model (provider/model/dimensions), or None if there is none."""
        provider = self._provider(name)
        if provider is not None and provider.model_name == PACKAGED_MODEL:
            return ScoreCalibration(PACKAGED, cohort.packaged_cohort())
        if provider is not None and provider.model_name == MULTILINGUAL_MODEL:
            measured = _known.get(provider.name or "")
            return ScoreCalibration(MULTILINGUAL, measured.cohort if measured else None)
        return None if name is None else _known.get(name)

    def is_missing(self, name: str | None) -> bool:
        """Return True if a model has no calibration yet, because the measurement is running or has
        failed lately. Its cosines cannot be used then.
        """
        provider = self._provider(name)
        if provider is None or provider.model_name == MULTILINGUAL_MODEL:
            return False
        return name not in _known and (self._task is not None or time.monotonic() < self._retry_at)

    async def prepare(self, name: str | None) -> None:
        """Read the model's calibration from the database, or measure it. Does nothing if the model
        needs none or its token budget is nearly used up.

        Returns after `MEASURED_WITHIN_S` seconds at most; the measurement continues in the
        background.
        """
        provider = self._provider(name)
        if name is None or provider is None or name in _known or time.monotonic() < self._retry_at:
            return
        if name.split("/")[0] in WORDS_ONLY or provider.model_name == PACKAGED_MODEL:
            return
        if name not in self._looked_for:
            self._looked_for.add(name)
            kept = await self._threads.read(lambda store: store.vectors.calibration(name))
            found = None if kept is None else ScoreCalibration.read(kept)
            if found is not None:
                _known[name] = found
                return
        limit = provider.model.monthly_tokens
        if limit and limit - provider.tokens_used < SPARED:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._measure(name, provider), name="confide-yardstick")
        await asyncio.wait([self._task], timeout=MEASURED_WITHIN_S)

    async def close(self) -> None:
        """Cancel the measurement that is running, if any."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _provider(self, name: str | None) -> BudgetedModel | None:
        return next((one for one in self._providers if name is not None and one.name == name), None)

    async def _measure(self, name: str, provider: BudgetedModel) -> None:
        try:
            found = await in_thread(lambda: _ask(provider))
            if found is not None:
                with contextlib.suppress(StorageError):  # it serves all the same, until the next start
                    await self._threads.write(lambda store: _keep(store, name, found.pack()))
            _known[name] = found
        except ConfideError as error:
            self._retry_at = time.monotonic() + RETRY_S
            log.info("the scale of the embedding model could not be measured: %s", type(error).__name__)
        finally:
            self._task = None


def _keep(store: Store, name: str, packed: bytes) -> None:
    with store.writing_derived():
        store.vectors.keep_calibration(name, packed)


def _ask(provider: BudgetedModel) -> ScoreCalibration | None:
    questions = [provider.query_vector(question) for question, _ in PAIRS]
    present = [vector for vector in questions if vector is not None]
    if len(present) < len(PAIRS):
        raise EmbedderError("the embedding model is not there")
    texts = cohort.texts([answer for _, answer in PAIRS])
    with provider.paying(sum(count_tokens(text) for text in texts)):
        vectors = np.asarray(provider.model.embed(texts))
    found = scale(np.stack(present), vectors[: len(PAIRS)])
    return None if found is None else ScoreCalibration(found, cohort.of(vectors))
