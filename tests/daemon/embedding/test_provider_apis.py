"""Voyage, OpenAI and servers like OpenAI's, as their documents describe them, over a real socket: what is asked, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.providers import provider_server as faults
from tests.support.providers.provider_server import KEY, Dialect, ProviderServer, expected

from confide_daemon.config import EmbeddingConfig
from confide_daemon.embedding import Embedder
from confide_daemon.embedding.providers import compatible, openai, voyage
from confide_daemon.embedding.remote import REMOTE_LIMITS
from confide_daemon.embedding.settings import for_model, generation_name
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError
from confide_daemon.spaces import models


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    found: list[Any] = []
    yield found
    for embedder in found:
        embedder.close()


@pytest.fixture
def start(opened: list[Any]) -> Any:
    """Opens a provider against a server as the configuration would: `start("voyage", server, dimensions=512)`."""

    def open_one(name: str, server: ProviderServer, **options: Any) -> Embedder:
        config = EmbeddingConfig()
        settings = replace(config.section(name), **({"base_url": server.url, "timeout_s": 10.0} | options))
        assert settings.problem() is None
        embedder = models.load(EmbeddingConfig(provider=name, sections={**config.sections, name: settings}))
        opened.append(embedder)
        return embedder

    return open_one


def serving(dialect: Dialect) -> ProviderServer:
    return ProviderServer(dialect)


def test_voyage_is_told_questions_from_documents(start: Any) -> None:
    """`input_type`, truncation and the dimensions, as its reference has them; the key as a bearer token."""
    with serving("voyage") as server:
        embedder = start("voyage", server, dimensions=512)
        assert (embedder.id, embedder.model, embedder.dimensions) == ("voyage", "voyage-4-large", 512)
        assert server.asked == []
        documents = embedder.embed_documents(["the api listens on 8010", "lunch is at noon"])
        question = embedder.embed_query("which api listens")
        assert question @ documents[0] > question @ documents[1]
        assert np.allclose(documents[1], expected(["lunch is at noon"], 512)[0], atol=1e-6)
        first, second = server.asked
        assert first == {
            "input": ["the api listens on 8010", "lunch is at noon"],
            "model": "voyage-4-large",
            "input_type": "document",
            "truncation": True,
            "encoding_format": "base64",
            "output_dimension": 512,
        }
        assert (second["input_type"], second["input"]) == ("query", ["which api listens"])
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert embedder.usage.tokens == 12
        assert embedder.usage.requests == 2


def test_voyage_models_without_a_choice_of_dimensions_are_not_asked_for_one(start: Any) -> None:
    with serving("voyage") as server:
        embedder = start("voyage", server, model="voyage-law-2", dimensions=0)
        embedder.embed_documents(["a clause"])
        assert "output_dimension" not in server.asked[0]
        assert embedder.dimensions == 1024


def test_a_voyage_model_that_is_not_known_yet_tells_its_dimensions(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one request when it is loaded."""
    monkeypatch.setitem(faults.MODELS["voyage"], "voyage-9", (640,))
    with serving("voyage") as server:
        assert start("voyage", server, model="voyage-9", dimensions=0).dimensions == 640
        assert len(server.asked) == 1


def test_openai_gives_what_the_model_gives_or_fewer_dimensions(start: Any) -> None:
    """`dimensions` is only sent where it was asked for."""
    with serving("openai") as server:
        whole = start("openai", server)
        short = start("openai", server, model="text-embedding-3-large", dimensions=256)
        assert (whole.dimensions, short.dimensions) == (1536, 256)
        assert whole.embed_documents(["one", "two"]).shape == (2, 1536)
        assert short.embed_query("one").shape == (256,)
        assert server.asked[0] == {
            "input": ["one", "two"],
            "model": "text-embedding-3-small",
            "encoding_format": "base64",
        }
        assert server.asked[1]["dimensions"] == 256
        assert short.embed_documents([]).shape == (0, 256)
        assert len(server.asked) == 2


def test_openai_texts_are_cut_in_its_own_tokens(start: Any) -> None:
    """It refuses a text of more than 8,192 tokens, so none is sent; an empty one neither."""
    with serving("openai") as server:
        vectors = start("openai", server, dimensions=64).embed_documents(["a b " * 9000, "", " \n"])
        assert vectors.shape == (3, 64)
        (asked,) = server.asked
        # Counted in slices, so that a long text takes no long time: a token a slice may be missing.
        assert 8100 < len(asked["input"][0].split()) <= 8191
        assert asked["input"][1:] == [".", "."]


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([], 0), ([9000, 1], 1), ([4000, 4000, 1], 2), ([4000, 4001], 1), ([1] * 2000, 1000), ([0] * 3, 3)],
)
def test_a_call_holds_8000_tokens_or_a_thousand_texts(sizes: list[int], count: int) -> None:
    """And never none: a text that is larger by itself goes alone."""
    assert REMOTE_LIMITS.fit(sizes) == count
    assert REMOTE_LIMITS.concurrency == 4


def test_unicode_that_is_broken_does_not_stop_a_request(start: Any) -> None:
    with serving("openai") as server:
        assert start("openai", server, dimensions=64).embed_documents(["half \ud83d a pair"]).shape == (1, 64)


@pytest.mark.parametrize(("provider", "dialect"), [("voyage", "voyage"), ("openai", "openai")])
def test_an_unknown_model_says_what_to_correct(start: Any, provider: str, dialect: Dialect) -> None:
    with serving(dialect) as server:
        embedder = start(provider, server, model="text-embedding-99", dimensions=64)
        with pytest.raises(QuotaError) as caught:
            embedder.embed_documents(["a text"])
        assert len(server.asked) <= 2
        assert "text-embedding-99" in str(caught.value) or "every text" in str(caught.value)
        assert "model" in (caught.value.hint or "")


@pytest.mark.parametrize(("provider", "dialect"), [("voyage", "voyage"), ("openai", "openai")])
def test_a_wrong_key_is_refused_once(start: Any, provider: str, dialect: Dialect, monkeypatch: Any) -> None:
    """The answer repeats the key; ours does not. A right key counts with the next call, without a restart."""
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-wrong-key")
    with serving(dialect) as server:
        embedder = start(provider, server)
        with pytest.raises(QuotaError, match="refuses the key") as caught:
            embedder.embed_documents(["a text"])
        assert "sk-wrong" not in f"{caught.value} {caught.value.hint}"
        assert len(server.asked) == 1
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
        assert embedder.embed_documents(["a text"]).shape[0] == 1


def test_a_server_without_keys_gets_none_and_the_prefixes_of_its_model(start: Any) -> None:
    """nomic-embed-text as Ollama serves it: the dimensions are asked for, questions and documents have their words in front."""
    with serving("plain") as server:
        embedder = start("compatible", server, model="nomic-embed-text")
        assert (embedder.id, embedder.model, embedder.dimensions) == ("compatible", "nomic-embed-text", 768)
        embedder.embed_query("where?")
        embedder.embed_documents(["here", "there"])
        assert [asked["input"] for asked in server.asked[1:]] == [
            ["search_query: where?"],
            ["search_document: here", "search_document: there"],
        ]
        assert all(asked["encoding_format"] == "float" for asked in server.asked)
        assert not any("Authorization" in headers for headers in server.headers)
        assert embedder.limits.texts == 32


def test_prefixes_can_be_set_and_change_the_name_of_the_model(start: Any) -> None:
    """Documents with another prefix have other vectors, which must not be compared."""
    with serving("plain") as server:
        plain = start("compatible", server, model="all-minilm", dimensions=384)
        other = start(
            "compatible", server, model="all-minilm", dimensions=384, query_prefix="Q: ", document_prefix="D: "
        )
        other.embed_query("x")
        other.embed_documents(["y"])
        assert [asked["input"][0] for asked in server.asked] == ["Q: x", "D: y"]
        assert plain.model == "all-minilm"
        assert other.model.startswith("all-minilm+")


def test_a_compatible_server_cuts_and_halves_what_is_too_long(start: Any) -> None:
    """The tokens are the model's own, which nobody here can count."""
    with serving("plain") as server:
        embedder = start("compatible", server, model="all-minilm", dimensions=64, max_tokens=2000)
        vectors = embedder.embed_documents(["w " * 3000, "short"])
        assert np.allclose(vectors[1], expected(["short"], 64)[0], atol=1e-6)
        assert vectors[0] @ expected(["w"], 64)[0] == pytest.approx(1.0, abs=1e-4)
        assert embedder.usage.refused_texts == 0


def test_a_compatible_server_with_a_key(start: Any, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("gateway-key")
    key_file.chmod(0o600)
    with serving("plain") as server:
        start("compatible", server, model="all-minilm", dimensions=384, key_file=str(key_file)).embed_query("x")
        assert server.headers[0]["Authorization"] == "Bearer gateway-key"


def test_a_server_that_is_down_when_the_daemon_starts(start: Any) -> None:
    """Is worth trying later; what is not configured is not."""
    with serving("plain") as server:
        url = server.url
    with pytest.raises(ProviderDownError):
        start("compatible", server, model="all-minilm", base_url=url)
    with pytest.raises(QuotaError, match="not configured") as caught:
        start("compatible", server, model="")
    assert "base_url and model" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("nomic-embed-text:latest", "search_query: ", "search_document: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("nomic-embed-text-v1.5.Q8_0.gguf", "search_query: ", "search_document: "),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("e5-small-v2", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large-instruct", "Instruct: ", ""),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence", ""),
        ("bge-m3", "", ""),
        ("mxbai-embed-large", "Represent this sentence", ""),
        ("snowflake-arctic-embed:22m", "Represent this sentence", ""),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "query: ", ""),
        ("embeddinggemma:300m", "task: search result | query: ", "title: none | text: "),
        ("Qwen3-Embedding-0.6B", "Instruct: ", ""),
        ("all-minilm", "", ""),
        ("somebodys-model", "", ""),
    ],
)
def test_known_prefixes(model: str, query: str, document: str) -> None:
    found = for_model(model)
    assert found.query.startswith(query)
    assert bool(found.query) == bool(query)
    assert found.document == document
    assert generation_name(model, found) == model


def test_prices_are_the_documented_ones_unless_somebody_says_otherwise() -> None:
    """For the costs in status; None where nobody knows."""
    assert voyage.Settings().price() == 0.12
    assert voyage.Settings(model="voyage-3.5-lite").price() == 0.02
    assert openai.Settings().price() == 0.02
    assert openai.Settings(price_per_million=0.0).price() == 0.0
    assert openai.Settings(model="text-embedding-99").price() is None
    assert compatible.Settings().price() is None


def test_a_handle_knows_budget_and_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started in the order of fallback; what runs here costs nothing."""
    sections = EmbeddingConfig().sections
    sections = {**sections, "voyage": replace(sections["voyage"], monthly_tokens=1000)}
    first, second = models.start(EmbeddingConfig(provider="voyage", fallback=("hashed",), sections=sections))
    assert (first.name, first.monthly_tokens, first.price_per_million) == ("voyage", 1000, 0.12)
    assert (second.name, second.monthly_tokens, second.price_per_million) == ("hashed", 0, 0.0)
    assert first.wait(DEADLINE_S)
    assert second.wait(DEADLINE_S)
    assert first.state == second.state == "ready"
    (none,) = models.start(EmbeddingConfig(provider="none"))
    assert none.wait(DEADLINE_S)
    assert isinstance(none.failure, EmbedderError)
    for handle in (first, second, none):
        handle.close()
