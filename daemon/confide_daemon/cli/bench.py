"""The command `confided space bench` measures how often searches find the expected document and how
long they take, with the owner's own questions.

It works while the daemon serves the space, because it only reads the database, through a connection
of its own. Questions are sent to the configured embedding model and nowhere else; they appear in no
log and in no result. Modules that load the store are imported when the command runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from confide_daemon.cli.console import CommandContext, Output, command, remark, say
from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.errors import BadNameError, EmbedderError, LockedError
from confide_daemon.retrieval.search import engine
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces import models
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation, model_name
from confide_memory.markdown_blocks import headings

QUESTIONS = 100
MOST_QUESTIONS = 5000
FILE_BYTES = 4 * 1024 * 1024
# The most documents that questions are taken from; a sample of their headings is asked.
DOCUMENTS = 5000
LEAST_WORDS = 2  # "Notes" is no question
DEPTH = 5  # rank for hit@5
WARM_UP = 5
LOAD_S = 60.0
SEED = 1  # the same index gets the same questions


@command
def bench(
    here: CommandContext,
    space: Annotated[
        str | None, typer.Option("--space", help="Which space is asked.", show_default="the only one")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            help="One question a line; after a tab, the path that is right.",
            show_default="headings of its notes",
        ),
    ] = None,
) -> Output:
    """Measure the time of each step of a search, and how often the expected document comes first."""
    found, settings = here.paths, here.config()
    asked = read_questions(queries) if queries is not None else None
    with here.open_state() as state:
        name = _choose_space(space, state.registry.spaces())
        space_id = state.registry.spaces()[name]
        path = found.data.space(space_id)
        custodian = Custodian(space_id, found.data, state.master)
    if not path.exists():
        raise BadNameError(f"the space {name} holds nothing yet", hint="store something with: confide store")
    try:
        _, key = custodian.opening_key()
    except LockedError:
        hint = f"its devices give its key to the daemon alone; let the server keep it meanwhile: confided space key {name} server"
        raise LockedError(hint) from None
    store = Store.open(path, key, writer=False, now=time.time())
    handles = models.start(settings.embedding)
    try:
        with here.progress() as bar:
            chosen = asked if asked is not None else own_questions(store)
            if not chosen:
                raise BadNameError(
                    f"the notes of {name} have no headings to ask for", hint="give a file of questions with --queries"
                )
            figures = measure(
                store,
                chosen,
                handles,
                models.index_settings(settings),
                min_score=settings.search.min_score,
                follow=bar.step,
            )
        told = _facts(name, store, figures)
    finally:
        for handle in handles:
            handle.close()
        store.close()
    return Output(told, lambda: _tell(told))


def _choose_space(space: str | None, spaces: dict[str, str]) -> str:
    if space is None and len(spaces) == 1:
        return next(iter(spaces))
    if space in spaces:
        return space
    names = ", ".join(spaces)
    if not spaces:
        raise BadNameError("there is no space yet", hint="invite a device first: confided invite laptop")
    if space is None:
        raise BadNameError("there are several spaces", hint=f"choose one with --space: {names}")
    raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are {names}")


def _facts(name: str, store: Store, figures: BenchResult) -> dict[str, object]:
    """Return the result as in `--json`; shares are 0 to 1, and null if no document was expected."""
    counts = store.documents.counts(None)
    live = next((one for one in store.vectors.generations() if one.live), None)
    steps = {
        step: {"p50": _percentile(times, 0.5), "p95": _percentile(times, 0.95)}
        for step, times in sorted(figures.times.items(), key=lambda entry: entry[0] == "total")
    }
    return {
        "space": name,
        "files": sum(count.files for count in counts.values()),
        "chunks": sum(count.chunks for count in counts.values()),
        "sizeBytes": store.size_bytes(),
        "model": live.name if live is not None else None,
        "questions": figures.questions,
        "embedded": figures.with_vector,
        "answered": figures.answers,
        "empty": round(1 - figures.answers / figures.questions, 4),
        "expected": figures.with_document,
        "hitAt1": round(figures.first / figures.with_document, 4) if figures.with_document else None,
        "hitAt5": round(figures.among / figures.with_document, 4) if figures.with_document else None,
        "stepsMs": steps,
    }


def _tell(told: dict[str, Any]) -> None:
    say(
        f"{told['space']}: {told['files']:,} files, {told['chunks']:,} pieces, {told['sizeBytes'] / 1e6:.1f} MB, "
        f"{told['model'] or 'no model'}"
    )
    say(f"{told['questions']} questions: {told['answered']} answered, {told['empty']:.0%} left empty")
    if told["expected"]:
        say(
            f"the right document first: {told['hitAt1']:.0%}, among the first five: {told['hitAt5']:.0%} "
            f"(of {told['expected']})"
        )
    if told["embedded"] < told["questions"]:
        remark(
            f"{told['questions'] - told['embedded']} questions were asked by keywords alone: the model gave no vector"
        )
    say(f"\n{'milliseconds':<14}{'p50':>8}{'p95':>8}")
    for step, times in told["stepsMs"].items():
        say(f"{step:<14}{times['p50']:>8.2f}{times['p95']:>8.2f}")


def _percentile(times: list[float], share: float) -> float:
    return round(sorted(times)[min(len(times) - 1, int(len(times) * share))], 3)


@dataclass(frozen=True, slots=True)
class BenchQuestion:
    """A question, and the path of the document that should be found, if known."""

    text: str
    path: str | None = None


@dataclass(slots=True)
class BenchResult:
    """The measurements of one run. `times` contains, for each step of a search, one duration per
    question in milliseconds.
    """

    questions: int = 0
    answers: int = 0
    with_document: int = 0  # questions with an expected document
    first: int = 0  # of these, with the expected document first
    among: int = 0  # of these, with it among the first five
    with_vector: int = 0  # questions with a vector of the model; the others use keywords alone
    times: dict[str, list[float]] = field(default_factory=dict)


def read_questions(path: Path) -> list[BenchQuestion]:
    """Read one question per line, without duplicates. The expected path may follow after a tab.

    Raises BadNameError if the file cannot be read, is not text, is too large, or contains no
    question.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise BadNameError(f"cannot read {path}: {(error.strerror or 'unknown error').lower()}") from None
    except UnicodeDecodeError:
        raise BadNameError(f"cannot read {path}: it is not UTF-8 text") from None
    found: dict[str, BenchQuestion] = {}
    for line in text.splitlines():
        question, _, expected = line.partition("\t")
        if question.strip():
            found.setdefault(question.strip(), BenchQuestion(question.strip(), expected.strip() or None))
    if not found:
        raise BadNameError(
            f"{path} holds no question", hint="write one a line; a tab and a path after it say what is right"
        )
    if len(data) > FILE_BYTES or len(found) > MOST_QUESTIONS:
        raise BadNameError(f"{path} is too large", hint=f"up to {MOST_QUESTIONS:,} questions are asked")
    return list(found.values())


def own_questions(store: Store, count: int = QUESTIONS) -> list[BenchQuestion]:
    """Return a random sample of headings from the space's notes as questions. The expected result
    of each is the document that contains the heading.

    Only headings that occur in a single document are used.
    """
    found: dict[str, set[str]] = {}
    with store.reading():
        rows = [row for row in store.documents.list_documents(None) if not row.deleted and row.source == "memory"]
        for row in rows[:DOCUMENTS]:
            revision = store.documents.revision(row.id, row.revision)
            for heading in headings(revision.text or "") if revision is not None else ():
                if len(heading.title.split()) >= LEAST_WORDS:
                    found.setdefault(heading.title[:200], set()).add(row.path)
    known = [BenchQuestion(title, paths.pop()) for title, paths in sorted(found.items()) if len(paths) == 1]
    return random.Random(SEED).sample(known, min(count, len(known)))  # noqa: S311 - a sample, no secret


def measure(
    store: Store,
    questions: Sequence[BenchQuestion],
    handles: Sequence[LoadedModel],
    settings: IndexSettings,
    *,
    min_score: float,
    follow: Callable[[str, int, int], None],
) -> BenchResult:
    """Search for all questions, one after the other, and return the measurements. First loads the
    vectors and the model, so that this time is not measured.
    """
    live = next((one for one in store.vectors.generations() if one.live), None)
    handle = _model_of(live, handles)
    while handle is not None and live is not None and store.vectors.warm(live.id):
        follow("reading the vectors", 0, 0)
    asker = _Asker(store, live, handle, settings, min_score)
    for question in questions[:WARM_UP]:
        # Not the question itself: the model caches the vectors of questions.
        asker.ask(BenchQuestion(f"about {question.text}"), BenchResult())
    figures = BenchResult()
    for number, question in enumerate(questions, 1):
        asker.ask(question, figures)
        follow("asking", number, len(questions))
    return figures


def _model_of(live: Generation | None, handles: Sequence[LoadedModel]) -> LoadedModel | None:
    """Return the model of the live vectors once it is loaded, or None if there is none."""
    for handle in handles if live is not None else ():
        handle.wait(LOAD_S)
        model = handle.embedder
        if live is not None and model is not None and model_name(model.id, model.model, model.dimensions) == live.name:
            return handle
    return None


@dataclass(frozen=True, slots=True)
class _Asker:
    store: Store
    live: Generation | None
    handle: LoadedModel | None
    settings: IndexSettings
    min_score: float

    def ask(self, question: BenchQuestion, figures: BenchResult) -> None:
        """Run one question as an agent's search does, and add its measurements to `figures`."""
        timings: dict[str, float] = {}
        started = time.perf_counter()
        vector = self._vector(question.text, timings)
        query = SearchQuery(question.text, min_score=self.min_score)
        with self.store.reading():
            found = engine.run(
                self.store,
                query,
                generation=None if vector is None else self.live,
                vector=vector,
                weights=self.settings.weights,
                now=time.time(),
                timings=timings,
                reranker=self.settings.reranker,
            )
        timings["total"] = (time.perf_counter() - started) * 1e3
        for step, milliseconds in timings.items():
            figures.times.setdefault(step, []).append(milliseconds)
        figures.questions += 1
        figures.answers += bool(found.hits)
        figures.with_vector += vector is not None
        if question.path is not None:
            paths = [hit.path for hit in found.hits[:DEPTH]]
            figures.with_document += 1
            figures.first += paths[:1] == [question.path]
            figures.among += question.path in paths

    def _vector(self, text: str, timings: dict[str, float]) -> Vectors | None:
        if self.handle is None:
            return None
        started = time.perf_counter()
        try:
            return self.handle.query_vector(text)
        except EmbedderError:
            return None  # keywords alone, as in a search; the report counts these
        finally:
            timings["embed"] = (time.perf_counter() - started) * 1e3
