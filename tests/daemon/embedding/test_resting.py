"""A model that nobody uses is dropped, and is there again when it is needed; searches do not wait long for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from tests.support.programs.processes import wait_until

from confide_daemon.embedding import Embedder, Model
from confide_daemon.embedding.local.resting import RestingEmbedder
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError

SOON_S = 0.02


def loads(*embedders: Embedder, first_free: int = 1) -> tuple[Callable[[], Embedder], threading.Event]:
    """What loads these in turn; from the one behind the first ones on, each waits for the event."""
    left, may_go = list(embedders), threading.Event()

    def load() -> Embedder:
        if len(embedders) - len(left) >= first_free:
            assert may_go.wait(10)
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
    resting = RestingEmbedder(load, SOON_S)
    model = Model.ready(resting)
    known = model.query_vector("postgres")
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
            assert may_end.wait(10)
            return super().embed_documents(texts)  # type: ignore[arg-type]

    model = RestingEmbedder(Slow, SOON_S)
    call = threading.Thread(target=lambda: model.embed_documents(["x"]))
    call.start()
    assert begun.wait(10)
    held = model._timer
    wait_until("it to be looked at", lambda: model._timer is not held)
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
