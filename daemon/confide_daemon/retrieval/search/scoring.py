"""The score that is shown: how likely it is that a piece answers the question, whatever else was found.

Pieces are ranked by comparing them with each other (`ranking`), which says nothing about whether the best of them is any good. The
shown score is a logistic function of what can be compared between questions, and between spaces: in a large one the best of many pieces
is better by chance alone, so words count by how rare they are there, the number of pieces speaks against a hit, and the best cosine counts
by what it is above that of notes which have nothing to do with the space (`cohort`). Which of a question's terms stand in a piece is
weighed by how much each says (`QueryTerms`): what is rare in the space tells pieces apart, what stands in a tenth of them does not.

With a vector the weights are those of a logistic regression, rounded (`python -m bench.quiet.fit`): right first hits against the best hit
of questions that nothing answers, on the development side of `bench/quiet`, alone and beside 200, 700 and 2,000 pieces of other texts, and
on the sets of `make eval`. The constant is chosen so that 0.25 loses about 1.5 % of right first hits. Those of words alone are older and of
the latter sets (`bench/quality.py`): there rarity lost more right hits than it gained silence.
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

# What is weighed when a piece has a vector, when it has none, and the cosine by itself: a piece that says the same in other words
# shares none of the question's terms, and 0.49 is more than unrelated texts reach.
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
# Of what nobody asked for: how likely a piece helps with a prompt, most of which need no memory. Fitted on the prompts of the development
# side of `bench/quiet` and of `bench.quiet.growing`, and moved so that at 0.4 (`hooks.server.recall.HIT_SCORE`) no bed is louder than it
# was. How far a piece stands above the field does nearly all that the number of pieces did: that one silenced what fits as a memory grew.
UNASKED = {
    "keyword": 1.6,
    "vector": 2.0,
    "everyday": 5.5,
    "keyword_lead": 2.4,
    "vector_lead": 1.5,
    "size": -0.1,
    "constant": -3.4,
}
# What nothing answers finds many pieces that are about as good; what is an answer stands above the others.
FIELD = 5
# Spaces of fewer pieces are all taken for so small.
SMALLEST = 8
# The margin of a model whose cohort is not known yet: half of all searches have less.
USUAL_MARGIN = 0.13
# Pieces that hold a term are counted up to here: what stands in more is common in a space of any size, and counting costs.
MOST_COUNTED = 500
# A term that no piece holds counts so much in a space that is empty, and half of the rest more with HALF_KNOWN pieces: hardly any word
# stands in a few notes.
UNKNOWN, HALF_KNOWN = 0.3, 20
# What BM25 gives for each unit of rarity to a piece of usual length that holds a term once is 1, and K1 + 1 at most; most hold it once
# or twice.
USUAL_GAIN = (1 + K1 + 1) / 2


@dataclass(frozen=True, slots=True)
class CosineScale:
    """What the cosines of a model mean, as those of the packaged one (which the weights above were fitted with)."""

    unrelated: float = 0.05  # of a question and a text that have nothing to do with each other
    related: float = 0.50  # of a question and its answer

    def of(self, cosine: float) -> float:
        """The cosine as the packaged model would give it, 0 at least."""
        step = (cosine - self.unrelated) / max(self.related - self.unrelated, 1e-3)
        return min(1.0, max(0.0, PACKAGED.unrelated + step * (PACKAGED.related - PACKAGED.unrelated)))


PACKAGED = CosineScale()
PACKAGED_MODEL = "all-MiniLM-L6-v2-int8"
# A model that only compares words says nothing that the keyword leg does not.
WORDS_ONLY = frozenset({"hashed"})


class Evidence(NamedTuple):
    """What speaks for a piece, and against it; `vector` and `best` are None where there is no vector. Without units: none is negative but
    `margin`."""

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
        """The score that is shown, 0 to 1."""
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
        """The score of a hit that nobody asked for, 0 to 1: of a piece without a vector the one that is shown."""
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
    """How large a space is, as the score takes it."""
    return math.log(max(pieces, SMALLEST))


def field_of(scores: Iterable[float]) -> float:
    """The `FIELD`th best of the scores, 0 where there are fewer."""
    best = heapq.nlargest(FIELD, scores)
    return best[-1] if len(best) == FIELD else 0.0


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How many pieces hold each term, `MOST_COUNTED` at most, of how many in all."""

    having: tuple[int, ...]
    pieces: int

    def rarity(self, index: int) -> float:
        """As BM25 has it, in a space that is never quite empty; near 0 for what stands everywhere."""
        having = self.having[index]
        rare = math.log1p((self.pieces + BACKGROUND - having + 0.5) / (having + 0.5))
        return rare if having else rare * (UNKNOWN + (1 - UNKNOWN) * self.pieces / (self.pieces + HALF_KNOWN))


class QueryTerms:
    """The question's terms, to be looked for in texts; `also` are words that stand in for them (the caller's synonyms)."""

    def __init__(self, terms: Sequence[Term], also: Sequence[Term] = (), counts: TermCounts | None = None) -> None:
        """`counts`: of `terms` and then `also`; None: all are equally rare."""
        rarity = [counts.rarity(index) if counts else 1.0 for index in range(len(terms) + len(also))]
        weights = [term.weight * rare for term, rare in zip((*terms, *also), rarity, strict=True)]
        # Nearly every term is written in one way; a search asks for each thirty times.
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
        """The share of the terms, by weight, that stands in the texts; 0 when there are none."""
        if not self._total:
            return 0.0
        text = f" {' '.join(texts)} "
        held = sum([weight for line, weight in self._plain if line in text])
        held += sum(weight for lines, weight in self._others if any(line in text for line in lines))
        return min(1.0, held / self._total)

    def covered(self, bm25: float) -> float:
        """A BM25 score as a share of what a usual piece with all of the terms would have, 1.5 at most; 0 when there are none.

        A score by itself grows with the space: the same words are rarer among more.
        """
        return min(1.5, max(0.0, bm25) / self._usual) if self._usual else 0.0


def stem_line(text: str) -> str:
    """A piece's text as `QueryTerms.share` takes it."""
    return " ".join(stems(f"{text}\n{index_words(text)}"))


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


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCalibration:
    """What the cosines of one model mean: its scale, and its cohort, None where that is not known."""

    scale: CosineScale = PACKAGED
    cohort: Cohort | None = None

    def margins(self, question: Vectors, best: float) -> tuple[float, float]:
        """What the best cosine of a search is above those of the question with notes of nobody, and with everyday texts.

        `best` is of the packaged model's scale.
        """
        if self.cohort is None:
            return USUAL_MARGIN, USUAL_MARGIN
        notes, everyday = (float(np.max(some @ question)) for some in (self.cohort.notes, self.cohort.everyday))
        return best - self.scale.of(notes), best - self.scale.of(everyday)


def scale(questions: Vectors, answers: Vectors) -> CosineScale | None:
    """The scale by the vectors of `PAIRS`, or None where the model does not tell answers from other texts."""
    cosines = np.asarray(questions) @ np.asarray(answers).T
    related = float(np.mean(np.diag(cosines)))
    unrelated = float(np.mean(cosines[~np.eye(len(cosines), dtype=bool)]))
    return CosineScale(unrelated, related) if related - unrelated > 0.02 else None


_known: dict[str, ScoreCalibration | None] = {}  # by provider/model/dimensions; a process has few


class Yardsticks:
    """For one space: the scales of the models that serve it, found out with a dozen questions whose answers are known, and their cohorts.

    One model gives unrelated texts 0.1, another 0.75; a score that says how likely an answer is needs to know which. Each question is
    compared with its own answer and with those of all others. The packaged model's figures are in `PACKAGED`, measured with
    the same texts; another model is measured once in a process, when it first serves a search: some 2,000 tokens.
    """

    def __init__(self, providers: Sequence[BudgetedModel]) -> None:
        self._providers = providers
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0

    def of(self, name: str | None) -> ScoreCalibration | None:
        """The yardstick of a model (provider/model/dimensions), None while it is not known."""
        provider = self._provider(name)
        if provider is not None and provider.model_name == PACKAGED_MODEL:
            return ScoreCalibration(PACKAGED, cohort.packaged())
        return None if name is None else _known.get(name)

    def _provider(self, name: str | None) -> BudgetedModel | None:
        return next((one for one in self._providers if name is not None and one.name == name), None)

    def begin(self, name: str | None) -> None:
        """Measures the model in the background, unless that was done, is needless or failed a moment ago."""
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
        """Gives up what is under way."""
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
