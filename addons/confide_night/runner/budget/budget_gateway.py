"""The gateway of a run: listens in the sandbox, and forwards requests only to the recipe's hosts.

An agent has a placeholder as its key, and reaches the model's API at `/v1/…` and the recipe's other
hosts at `/hosts/NAME/…`. The key and the secret headers are only in this process, which the sandbox
cannot see.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from confide_night.runner.budget import apis
from confide_night.runner.budget.allowlist import UnfitError
from confide_night.runner.budget.apis import APIS, thinking_fits
from confide_night.runner.budget.meter import Meter, SpentError, TokenReservation
from confide_night.runner.settings.prices import Price, TokenUse
from confide_proxy.run.egress.header_secrets import Destination
from confide_proxy.run.egress.host_connection import Answer, HostConnection, HostError, OutgoingRequest
from confide_proxy.sealing.masking import SHOWN, Mask, SecretForms

MOST_BODY: Final = 32 * 2**20
MOST_ANSWER: Final = 32 * 2**20
MOST_REQUESTS: Final = 20_000
"""Most requests of a run, including free ones."""
_TIMES: Final = httpx2.Timeout(600.0, connect=10.0)
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]
_BACK: Final = ("content-type", "retry-after", "request-id", "x-request-id", "location", "etag", "last-modified")
_TO_HOSTS: Final = ("accept", "content-type", "user-agent", "if-none-match", "if-modified-since")
"""Headers that are passed to hosts. Not `range`: a host that echoes its request could return a
secret in two halves, neither of which would be masked.
"""
_REFUSED: Final = {400: "invalid_request_error", 402: "billing_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class RunTerms:
    """The configuration of a run's gateway.

    Attributes:
        api: the format of the model's API, one of `APIS`.
        url: the API's URL.
        key: the real API key.
        price_of: returns the price of a model, by the name in the request; None if the model is not
            allowed.
        hosts: other hosts, each with the headers to set.
        hidden_values: the secrets alone, without the rest of those headers.
    """

    api: str
    url: str
    key: str = field(repr=False)
    price_of: Callable[[str], Price | None]
    hosts: Mapping[Destination, Mapping[str, str]] = field(default_factory=dict, repr=False)
    hidden_values: Sequence[str] = field(default=(), repr=False)


class BudgetGateway:
    """Answers the requests of one run. Calls a callback with the spending, and with each refusal
    and its reason.
    """

    def __init__(self, terms: RunTerms, meter: Meter, tell: Callable[[dict[str, object]], None]) -> None:
        self._terms = terms
        self._api = APIS[terms.api]
        self._meter = meter
        self._tell = tell
        self._requests = 0
        self._tls = _verifying(terms)
        self._client = httpx2.AsyncClient(timeout=_TIMES, follow_redirects=False, verify=self._tls)
        hidden = [terms.key, *terms.hidden_values, *(value for each in terms.hosts.values() for value in each.values())]
        self._forms = SecretForms(dict.fromkeys((value.encode() for value in hidden), SHOWN))
        self.app = Starlette(
            routes=[
                Route("/hosts/{rest:path}", self._host, methods=_METHODS),
                Route("/{rest:path}", self._model, methods=_METHODS),
            ]
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def _model(self, request: Request) -> Response:
        asked = (request.method, request.scope["path"])
        if asked == ("HEAD", "/"):
            return Response()  # Claude Code checks that the API is reachable
        if (refusal := self._count()) is not None:
            return refusal
        if asked in self._api.paid_paths:
            return await self._answer_paid(request)
        if asked in self._api.free:
            return await self._free(request)
        self._tell({"refused": "path"})
        return _refusal(404, "this run's gateway has no such path")

    def _count(self) -> Response | None:
        self._requests += 1
        if self._requests <= MOST_REQUESTS:
            return None
        return _refusal(429, f"a run may ask {MOST_REQUESTS:,} times")

    async def _free(self, request: Request) -> Response:
        """Forward a free request. Its body is checked like that of a paid one, since it can contain
        an address too.
        """
        body = b""
        if request.method == "POST":
            raw = await _body(request)
            if raw is None:
                return _refusal(400, "the request is too large")
            try:
                checked, _ = self._api.check(json.loads(raw))
            except UnfitError as error:
                return self._unfit(error)
            except (ValueError, RecursionError):
                return _refusal(400, "the request is not JSON")
            body = json.dumps(checked).encode()
        url = f"{self._terms.url.rstrip('/')}{request.scope['path']}"
        headers = {**self._api.headers(request.headers, self._terms.key), "accept-encoding": "identity"}
        try:
            answer = await self._client.request(request.method, url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            return _refusal(502, f"the model's API cannot be reached: {type(error).__name__}")
        return Response(self._mask().whole(answer.content), answer.status_code, self._back(answer.headers))

    async def _answer_paid(self, request: Request) -> Response:
        raw = await _body(request)
        if raw is None:
            return _refusal(400, "the request is too large")
        try:
            found = self._api.request(json.loads(raw))
        except UnfitError as error:
            return self._unfit(error)
        except (ValueError, RecursionError):
            return _refusal(400, "the request is not JSON")
        price = self._terms.price_of(found.model)
        if price is None:
            self._tell({"refused": "model"})
            return _refusal(404, "this runner knows no price of that model, so no run may ask it")
        try:
            admission = await self._meter.admit(price, found.weight.tokens(raw), found.wanted_output)
        except SpentError:
            self._report()
            return self._spent_response()
        except TimeoutError:
            return _refusal(429, "other requests of this run hold what is left of its budget")
        if not thinking_fits(found.body, admission.most_output):
            await self._meter.settle(admission, TokenUse())
            self._meter.is_over = True
            self._report()
            return self._spent_response()
        body = {**found.body, found.output_field: admission.most_output}
        return await self._send_paid(request, json.dumps(body).encode(), admission)

    def _unfit(self, error: UnfitError) -> Response:
        self._tell({"refused": "form"})
        return _refusal(400, str(error))

    async def _send_paid(self, request: Request, body: bytes, admission: TokenReservation) -> Response:
        """Send a paid request to the model, and settle it with the meter exactly once, whatever
        happens.
        """
        url = f"{self._terms.url.rstrip('/')}{request.scope['path']}"
        headers = {**self._api.headers(request.headers, self._terms.key), "accept-encoding": "identity"}
        sent = self._client.build_request("POST", url, content=body, headers=headers)
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx2.ConnectError as error:
            await self._settle(admission, TokenUse())
            self._tell({"refused": "unreachable"})
            return _refusal(502, f"the model's API cannot be reached: {type(error).__name__}")
        except BaseException as error:
            # The model may have answered, so count the highest price.
            await self._settle(admission, None)
            if not isinstance(error, httpx2.HTTPError):
                raise
            self._tell({"refused": "unreachable"})
            return _refusal(502, f"the model's API did not answer: {type(error).__name__}")
        if answer.status_code >= 400:
            await self._settle(admission, TokenUse())
            self._tell({"refused": "upstream", "status": answer.status_code})
            return StreamingResponse(self._mask_answer(answer), answer.status_code, self._back(answer.headers))
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingResponse(self._follow(answer, admission), answer.status_code, self._back(answer.headers))
        try:
            content = b"".join([piece async for piece in _whole(answer)])
        except BaseException:
            await self._settle(admission, None)
            raise
        await self._settle(admission, apis.usage_in_answer(content))
        return Response(self._mask().whole(content), answer.status_code, self._back(answer.headers))

    async def _follow(self, answer: httpx2.Response, admission: TokenReservation) -> AsyncIterator[bytes]:
        """Forward a stream; cut it when it exceeds the run's budget."""
        stream = apis.EventStream()
        try:
            async for piece in answer.aiter_raw():
                stream.feed(piece)
                if stream.written_tokens > admission.most_output:
                    self._meter.is_over = True
                    return
                yield piece
        except (httpx2.HTTPError, ValueError):
            return
        finally:
            # Without a final usage report, count the highest price: the API continues for a while
            # after a cut.
            await asyncio.shield(self._end(answer, admission, stream.usage if stream.is_whole else None))

    async def _end(self, answer: httpx2.Response, admission: TokenReservation, used: TokenUse | None) -> None:
        await self._settle(admission, used)
        await answer.aclose()

    async def _settle(self, admission: TokenReservation, used: TokenUse | None) -> None:
        await self._meter.settle(admission, used)
        self._report()

    def _report(self) -> None:
        meter = self._meter
        said = {"usd": meter.spent_usd, "in": meter.usage.all_input, "out": meter.usage.output}
        self._tell({"spent": {**said, "requests": meter.requests, "over": meter.is_over}})

    def _spent_response(self) -> Response:
        return _refusal(402, "the budget of this run is spent; end your work now")

    async def _host(self, request: Request) -> Response:
        if (refusal := self._count()) is not None:
            return refusal
        host, rest = _split_path(request.scope.get("raw_path", b""))
        destination = Destination.parse(host)
        if destination is None or destination not in self._terms.hosts:
            self._tell({"refused": "host"})
            return _refusal(404, "this run's recipe does not name that host")
        body = await _body(request)
        if body is None:
            return _refusal(400, "the request is too large")
        secrets = self._terms.hosts[destination]
        headers = {name: request.headers[name] for name in _TO_HOSTS if name in request.headers}
        headers |= {**secrets, "accept-encoding": "identity"}
        if body or request.method in ("POST", "PUT", "PATCH"):
            headers["content-length"] = str(len(body))
        query = request.scope["query_string"]
        sent = OutgoingRequest(
            request.method.encode(),
            b"/" + rest + (b"?" + query if query else b""),
            [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            _pieces(body),
        )
        # A host without a secret has none to repeat.
        forms = self._forms if secrets else SecretForms({})
        connection: HostConnection | None = None
        try:
            connection = await HostConnection.open(destination, self._tls, forms)
            answer = await connection.ask(sent)
        except HostError as error:
            if connection is not None:
                await connection.close()
            return _refusal(502, f"{destination}: {error}")
        return StreamingResponse(
            _read_answer(connection, answer), answer.status, self._headers_for_agent(answer.headers)
        )

    async def _mask_answer(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        """Forward an answer with the secrets masked, since a host that echoes its request would
        return them.
        """
        mask = self._mask()
        async for piece in _whole(answer):
            if out := mask.feed(piece):
                yield out
        if rest := mask.end():
            yield rest

    def _mask(self) -> Mask:
        return Mask(self._forms)

    def _back(self, headers: httpx2.Headers) -> dict[str, str]:
        """Return the headers of the model's answer for the agent, with the secrets masked."""
        masked = [(name.encode(), self._mask().whole(value.encode())) for name, value in headers.items()]
        return self._headers_for_agent(masked)

    def _headers_for_agent(self, headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
        """Return those of an answer's headers that the agent gets."""
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        return {
            name: value for name, value in named.items() if name in _BACK or name.startswith("anthropic-ratelimit-")
        }


def _split_path(raw_path: bytes) -> tuple[str, bytes]:
    """Split a path into the host's name and the rest after the third slash, unchanged.

    The host is parsed only here and nothing else determines the target, since two parsers of one
    address can disagree.
    """
    _, _, host, rest = [*raw_path.split(b"/", 3), b"", b"", b""][:4]
    return unquote_to_bytes(host).decode("ascii", "replace"), rest


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body as a request to a host takes it."""
    if body:
        yield body


async def _read_answer(connection: HostConnection, answer: Answer) -> AsyncIterator[bytes]:
    """Yield a host's answer, up to `MOST_ANSWER` bytes, and close the connection."""
    size = 0
    try:
        async for piece in answer.body:
            size += len(piece)
            if size > MOST_ANSWER:
                raise HostError("its answer is too large")
            yield piece
    finally:
        await connection.close()


def _verifying(terms: RunTerms) -> ssl.SSLContext:
    """Return the TLS context. Loads the certificate authorities, which takes 0.1 s, only if a
    target uses TLS.
    """
    has_tls = terms.url.startswith("https:") or terms.hosts
    return ssl.create_default_context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    parts, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BODY:
            return None
        parts.append(piece)
    return b"".join(parts)


async def _whole(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield an answer's body, up to `MOST_ANSWER` bytes."""
    size = 0
    try:
        async for piece in answer.aiter_raw():
            size += len(piece)
            if size > MOST_ANSWER:
                return
            yield piece
    finally:
        await answer.aclose()


def _refusal(status: int, why: str) -> Response:
    """Return a refusal in a format that the clients of both APIs display."""
    return JSONResponse({"type": "error", "error": {"type": _REFUSED.get(status, "api_error"), "message": why}}, status)
