"""A model that nobody uses is dropped, and is there again when it is needed; searches do not wait long for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import wait_until

from confide_daemon.embedding import Embedder, LoadedModel, token_counts
from confide_daemon.embedding.memory.idle_unload import RestingEmbedder, UnloadWhenIdle
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError

SOON_S = 0.02


def loads(*embedders: Embedder, first_free: int = 1) -> tuple[Callable[[], Embedder], threading.Event]:
    """What loads these in turn; from the one behind the first ones on, each waits for the event."""
    left, may_go = list(embedders), threading.Event()

    def load() -> Embedder:
        if len(embedders) - len(left) >= first_free:
            assert may_go.wait(DEADLINE_S)
        return left.pop(0) if len(left) > 1 else left[0]

    return load, may_go


def test_it_is_dropped_and_comes_back_with_the_same_vectors() -> None:
    """What the index knows it by stays, so that nothing is embedded anew."""
    load, may_go = loads(HashedEmbedder(), HashedEmbedder())
    may_go.set()
    model = RestingEmbedder(load, SOON_S)
    before = model.embed_query("postgres")
    wait_until("it to rest", lambda: not model.is_awake)
    assert (model.id, model.dimensions) == ("hashed", HashedEmbedder().dimensions)
    assert np.array_equal(model.embed_query("postgres"), before)
    wait_until("it to rest again", lambda: not model.is_awake)
    assert np.array_equal(model.embed_documents(["postgres"])[0], before)
    model.close()


def test_a_search_goes_by_words_until_it_is_there() -> None:
    """A question that was asked before needs no model at all."""
    load, may_go = loads(HashedEmbedder(), HashedEmbedder())
    may_go.set()  # on a busy machine it rests before it is asked for the first time
    resting = RestingEmbedder(load, SOON_S)
    model = LoadedModel.ready(resting)
    known = model.query_vector("postgres")
    may_go.clear()
    wait_until("it to rest", lambda: model.is_resting)
    assert model.query_vector("mysql") is None
    assert model.query_vector("postgres") is known
    may_go.set()
    wait_until("it to be there", lambda: model.query_vector("mysql") is not None)
    model.close()


def test_it_is_not_dropped_in_the_middle_of_a_call() -> None:
    """A batch that takes longer than the rest."""
    begun, may_end = threading.Event(), threading.Event()

    class Slow(HashedEmbedder):
        def embed_documents(self, texts: object) -> object:  # type: ignore[override]
            begun.set()
            assert may_end.wait(DEADLINE_S)
            return super().embed_documents(texts)  # type: ignore[arg-type]

    model = RestingEmbedder(Slow, SOON_S)
    call = threading.Thread(target=lambda: model.embed_documents(["x"]))
    call.start()
    assert begun.wait(DEADLINE_S)
    held = model._model._timer
    wait_until("it to be looked at", lambda: model._model._timer is not held)
    assert model.is_awake
    may_end.set()
    call.join(10)
    wait_until("it to rest", lambda: not model.is_awake)
    model.close()


def test_another_model_in_its_place_is_refused() -> None:
    """Its vectors could not be compared with those that are stored."""
    load, may_go = loads(HashedEmbedder(), HashedEmbedder(model="words-v2"))
    may_go.set()
    model = RestingEmbedder(load, SOON_S)
    wait_until("it to rest", lambda: not model.is_awake)
    with pytest.raises(EmbedderError, match="replaced by another one"):
        model.embed_query("postgres")
    model.close()


def test_what_is_only_held_while_it_is_used_is_made_again() -> None:
    """Never in the middle of a use, and each time as it was."""
    made: list[object] = []
    ended: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    held = UnloadWhenIdle(make, SOON_S, end=ended.append)
    with held.use() as thing, held.use() as again:
        assert thing is again
        assert not ended
    wait_until("it to be let go", lambda: not held.is_there)
    with held.use():
        assert len(made) == 2
    held.close()
    wait_until("both to be ended", lambda: ended == made)


def test_the_tables_of_tokens_are_let_go_and_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """23 MB that no search needs."""
    monkeypatch.setattr(token_counts, "_tables", UnloadWhenIdle(token_counts._load, rest_after_s=0))
    token_counts.rest_after(SOON_S)
    assert not token_counts.is_ready()
    counted = token_counts.count_tokens("The pool was empty.")
    wait_until("the tables to be let go", lambda: not token_counts._tables.is_there)
    assert token_counts.count_tokens("The pool was empty.") == counted == 5
    token_counts._tables.close()
