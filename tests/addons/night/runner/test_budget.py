"""What a run may spend: the gateway between an agent and a model's API, whatever either of them does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.runs import KEY, MODEL, Api, answer, model_api, stream

from confide_night.runner.budget import budget_gateway
from confide_night.runner.budget.apis import EventStream, usage_in_answer
from confide_night.runner.budget.budget_gateway import BudgetGateway, RunTerms
from confide_night.runner.budget.meter import LEAST_OUTPUT, Meter, SpentError
from confide_night.runner.settings.prices import Price, TokenUse, price_date, price_of

PRICE = Price.of({"input": 2.0, "output": 10.0})
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Asking:
    """An agent's side of a gateway."""

    client: httpx2.AsyncClient
    meter: Meter
    told: list[dict[str, Any]] = field(default_factory=list)

    async def post(self, body: Any, path: str = "/v1/messages", **headers: str) -> httpx2.Response:
        return await self.client.post(path, json=body, headers=headers)


@asynccontextmanager
async def asking(api: Api, limit_usd: float = 1.0, *, form: str = "anthropic") -> AsyncIterator[Asking]:
    """A gateway in this process, without the sandbox before it."""
    meter = Meter(limit_usd)
    told: list[dict[str, Any]] = []
    terms = RunTerms(form, api.url, KEY, lambda model: price_of(model, {}))
    gateway = BudgetGateway(terms, meter, told.append)
    within = httpx2.ASGITransport(app=gateway.app)
    async with httpx2.AsyncClient(transport=within, base_url="http://gateway") as client:
        yield Asking(client, meter, told)
    await gateway.close()


async def test_the_real_key_goes_out_and_the_placeholder_does_not() -> None:
    with model_api() as api:
        async with asking(api) as agent:
            found = await agent.post(ASK, **{"x-api-key": "placeholder", "authorization": "Bearer x", "cookie": "a=b"})
        assert found.json()["content"][0]["text"] == "done"
        sent = {name.lower(): value for name, value in api.headers[0].items()}
        assert sent["x-api-key"] == KEY
        assert not {"authorization", "cookie"} & set(sent)
        assert agent.meter.spent_usd == pytest.approx(PRICE.usd(TokenUse(100, 20)))


@pytest.mark.parametrize(
    "path", ["/v1/files", "/v1/messages/batches", "/v1/skills", "/v1/organizations/x", "/", "/v1/../admin"]
)
async def test_only_the_paths_of_a_conversation_are_open(path: str) -> None:
    with model_api() as api:
        async with asking(api) as agent:
            assert (await agent.post(ASK, path)).status_code == 404
        assert api.paths == []


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"mcp_servers": [{"url": "https://evil.example"}]}, 400),
        ({"container": "abc"}, 400),
        ({"model": "a-model-without-a-price"}, 404),
        ({"model": None}, 400),
    ],
)
async def test_nothing_is_asked_beyond_the_model(changed: dict[str, Any], status: int) -> None:
    with model_api() as api:
        async with asking(api) as agent:
            assert (await agent.post({**ASK, **changed})).status_code == status
        assert api.requests == []


async def test_tools_that_run_at_the_provider_are_taken_out_and_dearer_tiers_too() -> None:
    """A search or a fetch at the provider would carry what a repository holds to anywhere."""
    mine = {"name": "read", "input_schema": {}}
    tools = [mine, {"type": "web_search_20250305", "name": "web_search"}, {"type": "web_fetch_20250910", "name": "f"}]
    tools += [{"type": "code_execution_20250825", "name": "c"}, {"type": "bash_20250124", "name": "bash"}, "odd"]  # type: ignore[list-item]
    with model_api() as api:
        async with asking(api) as agent:
            await agent.post({**ASK, "tools": tools, "service_tier": "priority", "speed": "fast"})
    assert api.requests[0]["tools"] == [mine, {"type": "bash_20250124", "name": "bash"}]
    assert not {"service_tier", "speed"} & set(api.requests[0])


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_request_may_write_no_more_than_what_is_left_pays_for(is_stream: bool) -> None:
    """The limit of output in what goes out is the budget's, where that is less than the agent's."""

    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        written = body["max_tokens"]
        return stream("x", written=written) if is_stream else answer(written=written)

    with model_api(respond) as api:
        async with asking(api, 0.005) as agent:
            for _ in range(5):
                found = await agent.post({**ASK, "max_tokens": 300, "stream": is_stream})
            assert [body["max_tokens"] for body in api.requests] == [300, 179]
            assert found.status_code == 402
            assert "budget" in found.json()["error"]["message"]
            assert agent.meter.spent_usd <= 0.005 + PRICE.usd(TokenUse(100))
            assert agent.told[-1]["spent"]["over"]


async def test_a_stream_that_writes_more_than_it_may_is_cut() -> None:
    """An API that does not keep to the limit is not listened to any further; what it has cost counts at its most."""
    with model_api(lambda _body: stream(*["word " * 200] * 50, written=9000)) as api:
        async with asking(api, 0.001) as agent:
            found = await agent.post({**ASK, "stream": True})
            assert len(found.content) < 8000
            assert agent.meter.spent_usd >= 0.001
            assert (await agent.post(ASK)).status_code == 402


async def test_a_stream_that_breaks_off_counts_at_its_most() -> None:
    with model_api(lambda _body: stream("some", "text", written=None)) as api:
        async with asking(api) as agent:
            await agent.post({**ASK, "stream": True, "max_tokens": 500})
            assert agent.meter.spent_usd >= PRICE.usd(TokenUse(output=500))


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
async def test_what_the_api_refuses_costs_nothing_and_is_passed_on(status: int) -> None:
    with model_api(lambda _body: (status, {"type": "error"})) as api:
        async with asking(api) as agent:
            assert (await agent.post(ASK)).status_code == status
            assert agent.meter.spent_usd == 0
            assert {"refused": "upstream", "status": status} in agent.told


async def test_many_at_once_spend_no_more_than_one_after_the_other() -> None:
    """An agent that ignores 402 and asks from twenty sides: spent is at most the limit and the input of one request."""

    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        return answer(read_tokens=400, written=body["max_tokens"])

    with model_api(respond) as api:
        async with asking(api, 0.02) as agent:
            body = {**ASK, "max_tokens": 900, "messages": [{"role": "user", "content": "x" * 1600}]}
            found = await asyncio.gather(*(agent.post(body) for _ in range(20)))
            assert {each.status_code for each in found} == {200, 402}
            one_input = PRICE.usd(TokenUse(400))
            assert agent.meter.spent_usd <= 0.02 + one_input
            assert agent.meter.spent_usd == pytest.approx(
                sum(PRICE.usd(TokenUse(400, each["max_tokens"])) for each in api.requests)
            )


@given(
    limit=st.floats(0.0001, 0.05),
    requests=st.lists(
        st.tuples(st.integers(1, 5000), st.integers(1, 4000), st.floats(0, 1), st.booleans()), min_size=1, max_size=12
    ),
    width=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_no_order_of_requests_passes_the_limit_by_more_than_an_input(
    limit: float, requests: list[tuple[int, int, float, bool]], width: int
) -> None:
    """Drawn: lengths, what is written of what is allowed, how many at once, and answers that say nothing of what they cost."""

    async def run() -> None:
        meter = Meter(limit)
        gate = asyncio.Semaphore(width)

        async def one(length: int, wanted: int, share: float, is_said: bool) -> None:
            async with gate:
                try:
                    admission = await meter.admit(PRICE, length, wanted)
                except SpentError:
                    return
                await asyncio.sleep(0)
                written = int(admission.most_output * share)
                # By its length a request reads twice as many tokens as it does.
                await meter.settle(admission, TokenUse(length // 2, written) if is_said else None)

        await asyncio.gather(*(one(*each) for each in requests))
        largest = max(length for length, *_ in requests)
        assert meter.spent_usd <= limit + largest * PRICE.dearest_input + LEAST_OUTPUT * PRICE.dearest_output

    asyncio.run(run())


def test_prices_are_known_or_said() -> None:
    own = {"mine": Price.of({"input": 1, "output": 2})}
    assert price_date() >= "2026-11-25"
    assert price_of("claude-opus-4-5-20251101", {}) == price_of("claude-opus-4-5", {})
    assert price_of("nobody-knows", {}) is None
    assert price_of("mine", own) == own["mine"]
    assert price_of("claude-sonnet-5", {"claude-sonnet-5": own["mine"]}) == own["mine"]
    long = price_of("claude-sonnet-4-5", {})
    assert long is not None
    assert long.usd(TokenUse(300_000, 1000)) == pytest.approx(300_000 * 6e-6 + 1000 * 22.5e-6)
    assert PRICE.usd(TokenUse(1000, 0, 1000, 1000, 1000)) == pytest.approx((2 + 0.2 + 2.5 + 4) / 1000)


def test_usage_of_both_apis_is_read() -> None:
    openai = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7}
    assert usage_in_answer(json.dumps({"usage": openai}).encode()) == TokenUse(40, 7, 60)
    made = {"cache_creation_input_tokens": 50, "cache_creation": {"ephemeral_1h_input_tokens": 20}}
    said = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, **made}
    assert usage_in_answer(json.dumps({"usage": said}).encode()) == TokenUse(1, 2, 3, 30, 20)
    for odd in (b"", b"[]", b"{}", b'{"usage": 3}', b'{"usage": {"input_tokens": -1}}', b"[" * 9999):
        assert usage_in_answer(odd) in (None, TokenUse())
    ended = {"type": "response.completed", "response": {"usage": openai}}
    stream_ = EventStream()
    stream_.feed(b'data: {"type":"response.output_text.delta","delta":"' + b"a" * 8096 + b'"}\n\ndata: ')
    assert stream_.written_tokens == 500
    stream_.feed(json.dumps(ended).encode() + b"\n\n")
    assert (stream_.usage, stream_.is_whole) == (TokenUse(40, 7, 60), True)


@given(st.binary(max_size=300), st.integers(1, 7))
@settings(max_examples=50, deadline=None)
def test_no_stream_breaks_its_reader(data: bytes, width: int) -> None:
    found = EventStream()
    for at in range(0, len(data), width):
        found.feed(data[at : at + width])
    assert found.usage is None or found.written_tokens >= 0


async def test_a_run_that_asks_without_end_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs nothing is bounded too: a loop of an agent's would have the runner's address barred at the model's."""
    monkeypatch.setattr(budget_gateway, "MOST_REQUESTS", 3)
    with model_api() as api:
        async with asking(api) as agent:
            found = [(await agent.post(ASK)).status_code for _ in range(5)]
        assert found == [200, 200, 200, 429, 429]
        assert len(api.headers) == 3
