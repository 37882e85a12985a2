"""When a model that keeps failing is left alone, and how a search fares meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import BreakerState, CircuitBreaker, Embedder, LoadedModel, Vectors
from confide_daemon.embedding import model as models
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError
from confide_daemon.retrieval.indexing.indexed_model import BudgetedModel, MonthlyBudget

DOWN = ProviderDownError("cannot reach it")


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("OpenAI", clock=clock)


def fail(breaker: CircuitBreaker, error: EmbedderError = DOWN) -> None:
    with pytest.raises(type(error)), breaker.call():
        raise error


def test_it_opens_after_three_failures_in_a_row(breaker: CircuitBreaker) -> None:
    """A success between them starts the count anew; open, a call is refused without being made."""
    fail(breaker)
    fail(breaker)
    with breaker.call():
        pass
    fail(breaker)
    fail(breaker)
    assert breaker.status.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.status.state is BreakerState.OPEN
    with pytest.raises(ProviderDownError, match="OpenAI is left alone for another") as caught, breaker.call():
        pytest.fail("it was called")
    assert 0 < (caught.value.retry_after_s or 0) <= 6
    assert "cannot reach it" in str(caught.value)


def test_one_probe_after_a_pause_that_grows(breaker: CircuitBreaker, clock: Clock) -> None:
    """Half open, one call goes through and no second; a failed probe doubles the pause, up to five minutes; a good one closes it."""
    pauses = []
    for _ in range(3):
        fail(breaker)
    for _ in range(9):
        pauses.append(breaker.status.retry_in_s)
        clock.now += pauses[-1]
        breaker.admit()
        assert breaker.status.state is BreakerState.HALF_OPEN
        with pytest.raises(ProviderDownError), breaker.call():
            pytest.fail("a second call went through beside the probe")
        breaker.record_failure(DOWN)
    assert 4 <= pauses[0] <= 6
    assert pauses[0] < pauses[2] < pauses[4] <= 96
    assert all(240 <= pause <= 360 for pause in pauses[7:])
    clock.now += breaker.status.retry_in_s
    with breaker.call():
        pass
    status = breaker.status
    assert (status.state, status.failures, status.reason) == (BreakerState.CLOSED, 0, None)


def test_a_pause_that_the_provider_asks_for_opens_it_at_once(breaker: CircuitBreaker, clock: Clock) -> None:
    """As long as it asked, but no longer than an hour."""
    fail(breaker, ProviderDownError("slow down", retry_after_s=90))
    assert breaker.status.retry_in_s == pytest.approx(90)
    clock.now += 90
    fail(breaker, ProviderDownError("slow down", retry_after_s=10**6))
    assert breaker.status.retry_in_s == pytest.approx(3600)


def test_a_quota_opens_it_at_once_and_the_refusal_is_one_of_quota(breaker: CircuitBreaker, clock: Clock) -> None:
    """Nobody tries for a quarter of an hour, and whoever asks reads why and what to do."""
    fail(breaker, QuotaError("the quota is exhausted", hint="add credit"))
    with pytest.raises(QuotaError, match="exhausted") as caught:
        breaker.admit()
    assert caught.value.hint == "add credit"
    assert breaker.status.retry_in_s == pytest.approx(900)
    clock.now += 900
    with breaker.call():
        pass
    assert breaker.status.state is BreakerState.CLOSED


def test_calls_that_were_under_way_when_it_opened_do_not_lengthen_the_pause(breaker: CircuitBreaker) -> None:
    for _ in range(7):
        breaker.admit()
    for _ in range(7):
        breaker.record_failure(DOWN)
    assert breaker.status.retry_in_s <= 6


def test_a_probe_that_never_comes_back_is_followed_by_another(breaker: CircuitBreaker, clock: Clock) -> None:
    """Its thread may have died."""
    for _ in range(3):
        fail(breaker)
    clock.now += 6
    breaker.admit()
    clock.now += 180
    with breaker.call():
        pass
    assert breaker.status.state is BreakerState.CLOSED


def test_what_is_no_fault_of_the_model_is_not_counted(breaker: CircuitBreaker, clock: Clock) -> None:
    """A cancelled probe leaves the way free for the next one."""
    for _ in range(3):
        fail(breaker)
    clock.now += 6
    with pytest.raises(KeyboardInterrupt), breaker.call():
        raise KeyboardInterrupt
    with breaker.call():
        pass
    assert breaker.status.state is BreakerState.CLOSED


# ------------------------------------------------------------------ handles


class AskedModel(HashedEmbedder):
    """Questions go through a function."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        super().__init__(8)
        self.ask = ask

    def embed_query(self, text: str) -> Vectors:
        self.ask(text)
        return super().embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return super().embed_documents(texts)


def handle_on(embedder: Embedder, deadline_s: float = 10.0) -> LoadedModel:
    handle = LoadedModel(lambda: embedder, name="test", query_deadline_s=deadline_s)
    assert handle.wait(DEADLINE_S)
    return handle


def test_a_question_waits_no_longer_than_its_deadline_and_is_remembered_when_it_comes() -> None:
    """However long the model takes; whoever asks the same meanwhile waits for the same call."""
    hold = threading.Event()
    asked = []
    handle = handle_on(AskedModel(lambda text: (asked.append(text), hold.wait(DEADLINE_S))), 0.1)
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(ProviderDownError, match=r"within 0\.1 s"):
            handle.query_vector("where?")
    assert time.monotonic() - started < 19  # the model holds the first question for 20 s
    hold.set()
    deadline = time.monotonic() + 10
    while not handle.remembers("where?") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert handle.query_vector("where?") is not None
    assert asked == ["where?"]
    handle.close()


def test_a_question_whose_turn_does_not_come_is_never_asked() -> None:
    """Nobody waits for it any more, so it must cost nothing."""
    hold = threading.Event()
    asked = []
    handle = handle_on(AskedModel(lambda text: (asked.append(text), hold.wait(DEADLINE_S))), 0.1)
    for number in range(models.QUERY_THREADS + 2):
        with pytest.raises(ProviderDownError):
            handle.query_vector(f"question {number}")
    hold.set()
    handle.close()
    assert len(asked) <= models.QUERY_THREADS


def test_questions_and_documents_share_one_breaker() -> None:
    """What documents found out spares the searches the wait."""

    def refuse(text: str) -> None:
        raise QuotaError("the key is refused")

    handle = handle_on(AskedModel(refuse))
    documents = BudgetedModel(handle, MonthlyBudget(time.time))
    with pytest.raises(QuotaError):
        handle.query_vector("one")
    with pytest.raises(QuotaError):
        documents.model.embed(["a text"])
    assert handle.breaker.status.state is BreakerState.OPEN
    handle.breaker.record_success()
    assert documents.model.embed(["a text"]).shape == (1, 8)
    handle.close()


def test_a_library_that_breaks_is_an_error_of_the_model() -> None:
    def explode(text: str) -> None:
        raise RuntimeError("segmentation fault, nearly: " + text)

    handle = handle_on(AskedModel(explode))
    with pytest.raises(EmbedderError, match="failed: RuntimeError") as caught:
        handle.query_vector("a secret question")
    assert "secret" not in str(caught.value)
    handle.close()


def test_a_server_that_is_not_up_yet_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama may start after the daemon; until then the handle is loading, and says what it waits for."""
    monkeypatch.setattr(models, "FIRST_LOAD_PAUSE_S", 0.01)
    up = threading.Event()
    tried = threading.Event()

    def load() -> Embedder:
        if not up.is_set():
            tried.set()
            raise ProviderDownError("cannot reach the embedding server")
        return HashedEmbedder(8)

    handle = LoadedModel(load, name="compatible")
    assert tried.wait(DEADLINE_S)
    assert handle.state == "loading"
    assert handle.query_vector("x") is None
    up.set()
    assert handle.wait(DEADLINE_S)
    assert (handle.state, handle.failure) == ("ready", None)
    assert np.isfinite(handle.query_vector("x")).all()
    handle.close()


def test_an_outage_after_a_recovery_begins_with_a_short_pause(breaker: CircuitBreaker, clock: Clock) -> None:
    """The time a probe was given does not stay behind it: it once kept a model that flaps away for three minutes."""
    for _ in range(3):
        fail(breaker)
    clock.now += 10
    with breaker.call():
        pass
    for _ in range(3):
        fail(breaker)
    assert breaker.status.state is BreakerState.OPEN
    assert breaker.status.retry_in_s < 10
