"""What providers on the network do wrong, over a real socket, and what is made of it: tried again, told apart, never repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.reverse_proxies import Authority
from tests.support.providers import provider_server as faults
from tests.support.providers.provider_server import KEY, ProviderServer, expected

from confide_daemon.config import EmbeddingConfig
from confide_daemon.embedding import http, providers
from confide_daemon.embedding.http import retry_after
from confide_daemon.embedding.remote import RemoteEmbedder
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError

TEXTS = ["the first secret text", "another one altogether", "and a third"]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries of at most milliseconds; a proxy that is configured is not on the way to loopback."""
    monkeypatch.setattr(http, "BACKOFF_S", 0.002)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer("openai") as running:
        yield running


@pytest.fixture
def make(server: ProviderServer, tmp_path: Path) -> Iterator[Any]:
    """Opens the provider as the configuration would; `make(timeout_s=..., model=...)`."""
    opened: list[RemoteEmbedder] = []
    key_file = tmp_path / "openai.key"
    key_file.write_text(KEY + "\n")
    key_file.chmod(0o600)

    def open_one(**options: Any) -> RemoteEmbedder:
        config = EmbeddingConfig()
        settings = replace(
            config.section("openai"),
            **({"base_url": server.url, "key_file": str(key_file), "timeout_s": 10.0, "dimensions": 64} | options),
        )
        embedder = providers.provider("openai").create(
            EmbeddingConfig(sections={**config.sections, "openai": settings})
        )
        assert isinstance(embedder, RemoteEmbedder)
        opened.append(embedder)
        return embedder

    yield open_one
    for embedder in opened:
        embedder.close()


def said(error: EmbedderError) -> str:
    return f"{error} {error.hint} {error!r} {error.__cause__!r}"


RECOVERS = {
    "500": faults.status(500),
    "502": faults.status(502),
    "503 with Retry-After": faults.status(503, Retry_After="0"),
    "429": faults.busy(),
    "429 with Retry-After": faults.busy("0"),
    "429 with a date": faults.busy("date:-5"),
    "breaks off": faults.break_off,
    "a page": faults.page,
    "packed": faults.packed,
    "too few vectors": faults.fewer,
    "twice the same index": faults.twice_the_same_index,
    "NaN": faults.not_numbers,
    "zero": faults.zeros,
    "too short": faults.too_short,
    "words": faults.words,
    "no base64": faults.no_base64,
    "without end": faults.huge,
}


@pytest.mark.parametrize("fault", RECOVERS.values(), ids=RECOVERS.keys())
def test_what_goes_wrong_twice_is_asked_a_third_time(server: ProviderServer, make: Any, fault: Any) -> None:
    """Within one call, and the vectors are right in the end."""
    server.then(fault, fault)
    assert np.allclose(make().embed_documents(TEXTS), expected(TEXTS, 64), atol=1e-6)
    assert len(server.asked) == 3


@pytest.mark.parametrize("fault", RECOVERS.values(), ids=RECOVERS.keys())
def test_what_stays_wrong_is_worth_trying_later(server: ProviderServer, make: Any, fault: Any) -> None:
    """A bounded number of requests, no text and no key in what is said."""
    server.always(fault)
    with pytest.raises(ProviderDownError) as caught:
        make().embed_documents(TEXTS)
    assert 5 <= len(server.asked) <= 7
    assert "OpenAI" in str(caught.value)
    assert "secret" not in said(caught.value)
    assert KEY not in said(caught.value)


def test_vectors_in_another_order_are_put_in_theirs(server: ProviderServer, make: Any) -> None:
    """The index counts, not the place."""
    server.then(faults.shuffled)
    assert np.allclose(make().embed_documents(TEXTS), expected(TEXTS, 64), atol=1e-6)
    assert len(server.asked) == 1


MUST_ACT = {
    "quota": (faults.error(429, "insufficient_quota"), "quota"),
    "limit": (faults.error(400, "billing_hard_limit_reached"), "quota"),
    "payment": (faults.status(402), "quota"),
    "key": (faults.error(401, "invalid_api_key"), "refuses the key"),
    "forbidden": (faults.status(403), "forbids"),
    "model": (faults.error(404, "model_not_found"), "does not know the model"),
    "redirect": (faults.redirect, "redirect"),
    "odd": (faults.status(418), "418"),
}


@pytest.mark.parametrize(("fault", "problem"), MUST_ACT.values(), ids=MUST_ACT.keys())
def test_what_a_person_has_to_mend_is_asked_once(server: ProviderServer, make: Any, fault: Any, problem: str) -> None:
    """No second request, a way out in the hint, and nothing of what was sent."""
    server.always(fault)
    with pytest.raises(QuotaError, match=problem) as caught:
        make().embed_documents(TEXTS)
    assert len(server.asked) == 1
    assert caught.value.hint
    assert "secret" not in said(caught.value)
    assert KEY not in said(caught.value)


@pytest.mark.parametrize(("wait", "least"), [("30", 30.0), ("date:40", 38.0)])
def test_a_pause_longer_than_the_deadline_is_told_not_waited(
    server: ProviderServer, make: Any, wait: str, least: float
) -> None:
    """The indexer can do something else meanwhile, and comes back then."""
    server.always(faults.busy(wait))
    started = time.monotonic()
    with pytest.raises(ProviderDownError, match="limits the rate") as caught:
        make().embed_documents(TEXTS)
    assert (
        time.monotonic() - started < 5
    )  # half of the deadline of a call here, a sixth of the pause that was asked for
    assert least <= (caught.value.retry_after_s or 0) <= 40
    assert len(server.asked) == 1


@pytest.mark.parametrize("fault", [faults.silence, faults.drip], ids=["silence", "a byte now and then"])
def test_one_deadline_covers_everything(server: ProviderServer, make: Any, fault: Any) -> None:
    """Also where no single wait is long."""
    server.always(fault)
    started = time.monotonic()
    with pytest.raises(ProviderDownError, match="did not answer"):
        make(timeout_s=0.4).embed_documents(TEXTS)
    assert time.monotonic() - started < 28  # the server is silent for 30 s, and drips for ever


def test_a_question_is_tried_once(server: ProviderServer, make: Any) -> None:
    """A search cannot wait for pauses; the next one asks again."""
    server.then(faults.status(503))
    embedder = make()
    with pytest.raises(ProviderDownError):
        embedder.embed_query("where is it?")
    assert len(server.asked) == 1
    assert np.allclose(embedder.embed_query("where is it?"), expected(["where is it?"], 64)[0], atol=1e-6)


def test_nobody_listens(make: Any) -> None:
    """A refused connection says so, and the hint says where to look."""
    with pytest.raises(ProviderDownError, match="cannot reach OpenAI: no server listens there") as caught:
        make(base_url="http://127.0.0.1:9/v1").embed_documents(TEXTS)
    assert "base_url" in (caught.value.hint or "")


def test_one_refused_text_does_not_stop_the_others(
    server: ProviderServer, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is sought by halving, tried shorter, and at last found by words alone; it is not asked for again."""
    server.whenever("POISON", faults.status(400))
    texts = [f"text number {number}" for number in range(20)]
    texts[13] = "POISON " * 8
    embedder = make()
    vectors = embedder.embed_documents(texts)
    others = [place for place in range(20) if place != 13]
    assert np.allclose(vectors[others], expected([texts[place] for place in others], 64), atol=1e-6)
    assert np.linalg.norm(vectors[13]) == pytest.approx(1.0, abs=1e-5)
    assert embedder.usage.refused_texts == 1
    assert "refuses a text of 56 characters" in caplog.text
    assert "POISON" not in caplog.text
    spent = len(server.asked)
    assert spent < 40
    again = embedder.embed_documents(texts)
    assert np.allclose(again, vectors, atol=1e-6)
    assert len(server.asked) == spent + 1


def test_a_refused_text_is_tried_shorter(server: ProviderServer, make: Any) -> None:
    """What is too long for a server that counts otherwise than we do still gets a vector of its own."""
    server.whenever("END", faults.status(400))
    (vector,) = make().embed_documents(["a long text about ports " + "x " * 20 + "END"])
    near, far = expected(["a long text about ports"], 64)[0] @ vector, expected(["lunch on friday"], 64)[0] @ vector
    assert near > 0.3 > far


def test_a_text_that_breaks_the_server_does_not_stop_the_others(server: ProviderServer, make: Any) -> None:
    """Some servers answer 500, or NaN, to one text for ever."""
    server.whenever("POISON", faults.status(500))
    server.whenever("VENOM", faults.not_numbers)
    texts = ["one", "POISON " * 8, "three", "VENOM " * 8, "five"]
    embedder = make()
    vectors = embedder.embed_documents(texts)
    assert np.allclose(vectors[[0, 2, 4]], expected(["one", "three", "five"], 64), atol=1e-6)
    assert embedder.usage.refused_texts == 2


def test_where_every_text_is_refused_it_is_not_the_texts(server: ProviderServer, make: Any) -> None:
    """The settings are wrong then; two requests tell."""
    server.always(faults.status(400))
    with pytest.raises(QuotaError, match="refuses every text"):
        make().embed_documents(TEXTS)
    assert len(server.asked) == 2


def test_calls_run_side_by_side(server: ProviderServer, make: Any) -> None:
    """As many as the limits say; each thread gets its own answer."""
    embedder = make()
    together = threading.Barrier(embedder.limits.concurrency + 1)

    def wait_for_the_others(handler: Any, body: dict[str, Any]) -> None:
        together.wait(DEADLINE_S)
        faults.documented(handler, body)

    server.always(wait_for_the_others)
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: embedder.embed_documents([f"text {n}"])}))
        for n in range(embedder.limits.concurrency)
    ]
    for thread in threads:
        thread.start()
    together.wait(DEADLINE_S)
    for thread in threads:
        thread.join(10)
    assert all(np.allclose(found[n], expected([f"text {n}"], 64), atol=1e-6) for n in range(4))
    assert server.most_at_once == 4


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("99999999", 86_400.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("-1", None),
        ("1.5e3", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("٣", None),
    ],
)
def test_retry_after(value: str | None, expected_s: float | None) -> None:
    """Seconds or a date; nonsense is as if it were not there."""
    assert retry_after(value, now=10.0) == expected_s


def test_a_proxy_of_the_environment_is_used_for_what_is_outside(
    server: ProviderServer, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every program does; here it is the provider's own server that is asked to pass the request on."""
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(QuotaError):
        make(base_url="http://embeddings.invalid/v1").embed_documents(TEXTS)
    assert server.headers[0]["Host"] == "embeddings.invalid"


def test_a_certificate_that_the_system_does_not_trust_gets_no_key(tmp_path: Path, make: Any) -> None:
    """Nor a text: the connection ends before anything is said."""
    with ProviderServer(tls=Authority(tmp_path / "ca").context) as stranger:
        with pytest.raises(ProviderDownError, match="its certificate is not trusted"):
            make(base_url=stranger.url).embed_documents(TEXTS)
        assert stranger.asked == []
