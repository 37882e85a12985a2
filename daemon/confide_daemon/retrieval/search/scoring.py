"""The score that a hit shows: how likely the chunk answers the query, independent of the other
hits.

Ranking compares chunks with each other (`ranking`) and does not say if the best of them is any
good. The score is a logistic function of values that are comparable between queries and between
spaces. In a large space the best of many chunks is better by chance alone. So words count by their
rarity in the space, the number of chunks lowers the score, and the best cosine counts by its margin
over that of unrelated notes (`cohort`). Each query term is weighted by its rarity (`QueryTerms`): a
rare term separates chunks, a term in a tenth of them does not.

With a vector the weights are those of a logistic regression, rounded (`python -m bench.quiet.fit`):
right first hits against the best hit of queries that have no answer, on the development part of
`bench/quiet`, alone and beside 200, 700 and 2,000 chunks of other texts, and on the sets of `make
eval`. The constant is chosen so that 0.25 loses about 1.5 % of right first hits. The weights for
words alone are older and fitted on the latter sets (`bench/quality.py`): there, rarity lost more
right hits than it removed wrong ones.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from confide_crypto.errors import ConfideError
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.token_counts import count_tokens
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, in_thread
from confide_daemon.retrieval.search import cohort
from confide_daemon.retrieval.search.cohort import Cohort
from confide_daemon.store.tables.keyword import BACKGROUND, K1, line_of, stems
from confide_memory.tools.question import Term, bounds, logistic, words_score
from confide_memory.tools.words import index_words

# Weights for a chunk with a vector, and for the cosine alone. A chunk that says the same in other
# words shares no term with the query; 0.49 is more than unrelated texts reach.
HYBRID = {
    "keyword": 1.9,
    "covered": 1.2,
    "stated": 3.1,
    "vector": 3.8,
    "best": 3.1,
    "margin": 2.6,
    "size": -0.18,
    "constant": -5.1,
}
VECTOR = {"vector": 10.0, "constant": -6.0}
# Weights for prompts that did not request a search: how likely a chunk helps, where most prompts
# need no memory. Fitted on the prompts of the development part of `bench/quiet` and of
# `bench.quiet.growing`, then moved so that at 0.4 (`hooks.server.recall.HIT_SCORE`) no set returns
# more than before. A chunk's lead over the others does nearly all that the number of chunks did;
# that number hid fitting chunks as a memory grew.
UNASKED = {
    "keyword": 1.6,
    "vector": 2.0,
    "everyday": 5.5,
    "keyword_lead": 2.4,
    "vector_lead": 1.5,
    "size": -0.1,
    "constant": -3.4,
}
# A query without an answer finds many chunks that are about as good; an answer stands out. This
# many are compared.
FIELD = 5
# Smaller spaces count as having this many chunks.
SMALLEST = 8
# The margin for a model whose cohort is not known yet; half of all searches have less.
USUAL_MARGIN = 0.13
# Chunks with a term are counted up to this number: a term in more chunks is common in a space of
# any size, and counting costs time.
MOST_COUNTED = 500
# The share of its weight that a term without any chunk gets in an empty space; with HALF_KNOWN
# chunks it gets half of the rest as well. A few notes contain hardly any word.
UNKNOWN, HALF_KNOWN = 0.3, 20
# BM25 of a chunk of usual length per unit of rarity: 1 if it holds the term once, K1 + 1 at most;
# most chunks hold a term once or twice.
USUAL_GAIN = (1 + K1 + 1) / 2


@dataclass(frozen=True, slots=True)
class CosineScale:
    """Maps the cosines of a model to the scale of the packaged one, with which the weights were
    fitted.
    """

    unrelated: float = 0.05  # of a question and a text that have nothing to do with each other
    related: float = 0.50  # of a question and its answer

    def of(self, cosine: float) -> float:
        """Return the cosine on the packaged model's scale, 0 to 1."""
        step = (cosine - self.unrelated) / max(self.related - self.unrelated, 1e-3)
        return min(1.0, max(0.0, PACKAGED.unrelated + step * (PACKAGED.related - PACKAGED.unrelated)))

    def cosine(self, packaged: float) -> float:
        """Return the model's own cosine for one on the packaged model's scale, as `of` backwards."""
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
    """The values from which the score of a chunk is computed. They have no unit, and none but
    `margin` is negative.

    `vector` and `best` are None if there is no vector.
    """

    keyword: float  # the keyword score, saturated
    terms: float  # the share of the question's terms that stands in it or around it
    vector: float | None = None
    best: float | None = None  # the best cosine of the whole search
    covered: float = 0.0  # the keyword score as a share of what all terms would have
    stated: float = 0.0  # the share of the terms, by how rare they are here, that stands in the piece itself
    margin: float = USUAL_MARGIN  # of the best cosine over the question's best with the cohort
    everyday: float = USUAL_MARGIN  # of the best cosine over the question's best with everyday texts
    size: float = 0.0  # the logarithm of how many pieces there are (`size_of`)
    keyword_lead: float = 0.0  # over the `FIELD`th best keyword score of the search
    vector_lead: float = 0.0  # over the `FIELD`th best cosine of the search
    is_named: bool = False  # a name or a quoted phrase of the question stands in it
    lacking: float = (
        0.0  # the share of the question that its identifiers are, where none of them stands in it or around it
    )

    @property
    def score(self) -> float:
        """The score that a hit shows, 0 to 1."""
        if self.vector is None or self.best is None:
            return words_score(self.keyword, self.terms, is_named=self.is_named, lacking=self.lacking)
        least, most = bounds(is_named=self.is_named, lacking=self.lacking)
        both = (
            HYBRID["constant"]
            + HYBRID["keyword"] * self.keyword
            + HYBRID["covered"] * self.covered
            + HYBRID["stated"] * self.stated
            + HYBRID["vector"] * self.vector
            + HYBRID["best"] * self.best
            + HYBRID["margin"] * self.margin
            + HYBRID["size"] * self.size
        )
        return logistic(min(most, max(both, VECTOR["constant"] + VECTOR["vector"] * self.vector, least)))

    @property
    def unasked(self) -> float:
        """The score, 0 to 1, for a prompt that did not request a search; equal to `score` for a
        chunk without a vector.
        """
        if self.vector is None:
            return self.score
        value = (
            UNASKED["constant"]
            + UNASKED["keyword"] * self.keyword
            + UNASKED["vector"] * self.vector
            + UNASKED["everyday"] * self.everyday
            + UNASKED["keyword_lead"] * self.keyword_lead
            + UNASKED["vector_lead"] * self.vector_lead
            + UNASKED["size"] * self.size
        )
        return logistic(value)


def size_of(pieces: int) -> float:
    """Return the logarithm of the number of chunks in a space, as the score uses it."""
    return math.log(max(pieces, SMALLEST))


def field_of(scores: Iterable[float]) -> float:
    """Return the `FIELD`th best score, 0 if there are fewer."""
    best = heapq.nlargest(FIELD, scores)
    return best[-1] if len(best) == FIELD else 0.0


@dataclass(frozen=True, slots=True)
class TermCounts:
    """The number of chunks that hold each term, at most `MOST_COUNTED`, and the number of all
    chunks.
    """

    having: tuple[int, ...]
    pieces: int

    def rarity(self, index: int) -> float:
        """Return the term's rarity as in BM25, with a background count so that no space counts as
        empty; near 0 for a term in every chunk.
        """
        having = self.having[index]
        rare = math.log1p((self.pieces + BACKGROUND - having + 0.5) / (having + 0.5))
        return rare if having else rare * (UNKNOWN + (1 - UNKNOWN) * self.pieces / (self.pieces + HALF_KNOWN))


class QueryTerms:
    """The query's terms, matched against texts; `also` are the caller's synonyms, which count in
    place of them.
    """

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = (), counts: TermCounts | None = None) -> None:
        """`counts` are those of `terms`, then `also`; None: all terms are equally rare."""
        rarity = [counts.rarity(index) if counts else 1.0 for index in range(len(terms) + len(also))]
        weights = [term.weight * rare for term, rare in zip((*terms, *also), rarity, strict=True)]
        # Nearly every term has one spelling, and a search tests each of them thirty times.
        self._plain: list[tuple[str, float]] = []
        self._others: list[tuple[list[str], float]] = []
        for term, weight in zip((*terms, *also), weights, strict=True):
            lines = [line.rstrip() if term.is_beginning else line for line in map(line_of, term.ways)]
            lines += map(line_of, term.shorter)
            if len(lines) == 1:
                self._plain.append((lines[0], weight))
            else:
                self._others.append((lines, weight))
        self._total = sum(weights[: len(terms)]) or max(weights, default=0.0)
        self._usual = USUAL_GAIN * sum(rarity[: len(terms)])

    def share(self, texts: Iterable[str]) -> float:
        """Return the share of the terms, by weight, that the texts contain; 0 if there are no
        terms.
        """
        if not self._total:
            return 0.0
        text = f" {' '.join(texts)} "
        held = sum([weight for line, weight in self._plain if line in text])
        held += sum(weight for lines, weight in self._others if any(line in text for line in lines))
        return min(1.0, held / self._total)

    def covered(self, bm25: float) -> float:
        """Return a BM25 score as a share of that of a usual chunk with all terms, 1.5 at most; 0 if
        there are no terms.

        A plain score grows with the space: the same words are rarer among more chunks.
        """
        return min(1.5, max(0.0, bm25) / self._usual) if self._usual else 0.0


def stem_line(text: str) -> str:
    """Return a chunk's text in the form that `QueryTerms.share` takes."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))


log = logging.getLogger(__name__)

RETRY_S = 600.0
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
    """The calibration of one model's cosines: its scale, and its cohort (None if unknown)."""

    scale: CosineScale = PACKAGED
    cohort: Cohort | None = None

    def margins(self, question: Vectors, best: float) -> tuple[float, float]:
        """Return how far the best cosine of a search is above the query's best cosine with the
        cohort's notes, and with its everyday texts.

        `best` is on the packaged model's scale.
        """
        if self.cohort is None:
            return USUAL_MARGIN, USUAL_MARGIN
        notes, everyday = (float(np.max(some @ question)) for some in (self.cohort.notes, self.cohort.everyday))
        return best - self.scale.of(notes), best - self.scale.of(everyday)


def scale(questions: Vectors, answers: Vectors) -> CosineScale | None:
    """Return the scale measured with the vectors of `PAIRS`, or None if the model does not separate
    answers from other texts.
    """
    cosines = np.asarray(questions) @ np.asarray(answers).T
    related = float(np.mean(np.diag(cosines)))
    unrelated = float(np.mean(cosines[~np.eye(len(cosines), dtype=bool)]))
    return CosineScale(unrelated, related) if related - unrelated > 0.02 else None


_known: dict[str, ScoreCalibration | None] = {}  # by provider/model/dimensions; a process has few


class Yardsticks:
    """The calibrations of the models that serve one space, each measured with a dozen queries with
    known answers.

    One model gives unrelated texts a cosine of 0.1, another 0.75; a score needs to know which. Each
    query is compared with its own answer and with the answers of the others. The packaged model's
    values are in `PACKAGED`, measured with the same texts. Another model is measured once in a
    process, when it first serves a search; this costs some 2,000 tokens.
    """

    def __init__(self, providers: Sequence[BudgetedModel]) -> None:
        self._providers = providers
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0

    def of(self, name: str | None) -> ScoreCalibration | None:
        """Return the calibration of a model (provider/model/dimensions), or None if it is not
        measured yet.
        """
        provider = self._provider(name)
        if provider is not None and provider.model_name == PACKAGED_MODEL:
            return ScoreCalibration(PACKAGED, cohort.packaged())
        if provider is not None and provider.model_name == MULTILINGUAL_MODEL:
            measured = _known.get(provider.name or "")
            return ScoreCalibration(MULTILINGUAL, measured.cohort if measured else None)
        return None if name is None else _known.get(name)

    def _provider(self, name: str | None) -> BudgetedModel | None:
        return next((one for one in self._providers if name is not None and one.name == name), None)

    def begin(self, name: str | None) -> None:
        """Start measuring the model in the background, unless it is measured, needs none, is short
        of its budget, or failed within RETRY_S.
        """
        provider = self._provider(name)
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
        """Cancel a measurement that is running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _measure(self, name: str, provider: BudgetedModel) -> None:
        try:
            _known[name] = await in_thread(lambda: _ask(provider))
        except ConfideError as error:
            self._retry_at = time.monotonic() + RETRY_S
            log.info("the scale of the embedding model could not be measured: %s", type(error).__name__)
        self._task = None


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
