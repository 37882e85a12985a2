"""Sends requests to a provider's JSON API, with a deadline and retries. Classifies errors by what
can be done about them.

No part of a response appears in an error or a log, because providers echo texts and parts of the
API key. Redirects are not followed, since the key would be sent along. Proxies are taken from the
environment (`HTTPS_PROXY`, `NO_PROXY`), but not used for this computer itself. Certificates are the
system's.

Requests run on an event loop in a separate thread, where one deadline covers everything: name
resolution, connecting, TLS, and a server that sends a byte now and then. Callers wait in their own
threads.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import json
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from confide_daemon import __version__
from confide_daemon.datadir.credentials import SecretKey
from confide_daemon.embedding.embedder import BadVectorError
from confide_daemon.errors import EmbedderError, ProviderDownError, QuotaError

T = TypeVar("T")

# Delays between retries, with full jitter: uniform in [0, min(cap, base * 2^n)] (AWS blog 2015,
# "Exponential Backoff and Jitter").
BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
CONNECT_S = 10.0
# Only the code of an error is read.
MAX_ERROR_BYTES = 64 * 1024
# A day: longer requested pauses are cut to it.
MAX_RETRY_AFTER_S = 86_400.0

# Codes of OpenAI and compatible APIs for payment problems, as opposed to rate limits.
QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded", "insufficient_balance"}
)
# Error codes and parameters of requests that fail for any text.
SETTING_CODES = frozenset({"model_not_found", "invalid_model", "unsupported_model"})
SETTING_PARAMETERS = frozenset({"model", "dimensions", "output_dimension", "encoding_format", "input_type"})


class UnusableAnswerError(ProviderDownError):
    """The provider responds, but refuses this request or fails on it. If `is_final` is True, a
    retry within this call is useless.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class ProviderEndpoint:
    """A URL of a provider that accepts JSON with an API key and returns JSON. Usable from any
    thread, concurrently.

    `name` and `model` appear in error messages. `model_hint` says what to do if the provider does
    not know the model.
    """

    def __init__(self, url: str, *, key: SecretKey, name: str, model: str, model_hint: str, connections: int) -> None:
        self.name = name
        self._url = url
        self._key = key
        self._model = model
        self._model_hint = model_hint
        self._connections = connections
        self._client: httpx2.AsyncClient | None = None

    def post(
        self, body: dict[str, object], read: Callable[[Any], T], *, deadline_s: float, tries: int, max_bytes: int
    ) -> T:
        """Send a request, and return the result of `read` for the JSON of the response. If `read`
        raises EmbedderError, the request counts as failed and is retried.

        Args:
            deadline_s: limit in seconds for everything, including retries and pauses.
            tries: maximum number of requests.
            max_bytes: maximum length of a response; a longer one is not read to its end.

        Raises:
            QuotaError: if a retry is useless until a person acts.
            UnusableAnswerError: if the provider responds, but cannot answer this request.
            ProviderDownError: if the provider does not respond, or requests a pause.
        """
        # Encoded here, not on the loop: a batch takes some ten milliseconds that would delay other
        # requests.
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", errors="replace")
        call = self._post(data, read, deadline_s=deadline_s, tries=tries, max_bytes=max_bytes)
        return _run(call)

    def close(self) -> None:
        """Close the connections to the provider. A later request reconnects."""
        client, self._client = self._client, None
        if client is not None:
            _run(client.aclose())

    async def _post(self, data: bytes, read: Callable[[Any], T], *, deadline_s: float, tries: int, max_bytes: int) -> T:
        end = time.monotonic() + deadline_s
        last: ProviderDownError | None = None
        try:
            async with asyncio.timeout(deadline_s):
                for attempt in range(tries):
                    try:
                        return await self._once(data, read, deadline_s=deadline_s, max_bytes=max_bytes)
                    except ProviderDownError as error:
                        last = error
                    if isinstance(last, UnusableAnswerError) and last.is_final:
                        raise last
                    pause = random.uniform(0, min(MAX_BACKOFF_S, BACKOFF_S * 2**attempt))  # noqa: S311
                    pause += last.retry_after_s or 0.0
                    # A requested pause beyond the deadline is not waited for: the caller gets an
                    # error and can do something else.
                    if attempt == tries - 1 or time.monotonic() + pause >= end:
                        raise last
                    await asyncio.sleep(pause)
        except TimeoutError:
            if last is not None:
                raise last from None
            raise ProviderDownError(f"{self.name} did not answer within {deadline_s:g} s") from None
        raise AssertionError("at least one try")

    async def _once(self, data: bytes, read: Callable[[Any], T], *, deadline_s: float, max_bytes: int) -> T:

        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # A small compressed answer could expand to gigabytes; numbers gain little from
            # compression.
            "Accept-Encoding": "identity",
            "User-Agent": f"confide/{__version__}",
        }
        if (key := self._key.read()) is not None:
            headers["Authorization"] = f"Bearer {key}"
        # Half of the time per silent server leaves the other half for a retry.
        timeout = httpx2.Timeout(deadline_s / 2, connect=min(CONNECT_S, deadline_s / 2))
        try:
            async with self._open_client().stream(
                "POST", self._url, content=data, headers=headers, timeout=timeout
            ) as response:
                is_ok = response.status_code == 200
                answer = await self._body(response, max_bytes if is_ok else MAX_ERROR_BYTES)
                if not is_ok:
                    raise self._refusal(response, _json(answer))
        except httpx2.TimeoutException:
            raise ProviderDownError(f"{self.name} did not answer in time") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ProviderDownError(
                f"cannot reach {self.name}: {_kind(error)}", hint="are the network and base_url right?"
            ) from None
        if answer is None or (parsed := _json(answer)) is None:
            what = "not JSON" if answer is not None else "longer than any that was asked for, or packed"
            raise ProviderDownError(
                f"the answer of {self.name} is {what}",
                hint="does base_url lead to the provider itself, and not to some page in between?",
            )
        try:
            return read(parsed)
        except BadVectorError as error:
            # Some servers answer certain texts like this.
            raise UnusableAnswerError(f"the answer of {self.name} is unusable: {error}", is_final=False) from None
        except EmbedderError as error:
            raise ProviderDownError(f"the answer of {self.name} is unusable: {error}") from None

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            for library in ("httpx2", "httpcore2"):
                # The libraries' debug lines contain headers and URLs.
                logging.getLogger(library).setLevel(logging.WARNING)
            limits = httpx2.Limits(max_connections=self._connections, keepalive_expiry=60.0)
            # A proxy cannot reach this computer's own ports, and need not read local traffic.
            is_outside = not _is_loopback(self._url)
            self._client = httpx2.AsyncClient(limits=limits, follow_redirects=False, trust_env=is_outside)
        return self._client

    async def _body(self, response: httpx2.Response, max_bytes: int) -> bytes | None:
        """Return the answer's bytes, or None if it is too long or compressed."""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            return None
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > max_bytes:
                return None
        return bytes(data)

    def _refusal(self, response: httpx2.Response, answer: Any) -> EmbedderError:
        """Return the error for a status other than 200."""
        status = response.status_code
        codes, parameter = _error_codes(answer)
        if codes & QUOTA_CODES or status == 402:
            return QuotaError(
                f"the quota of {self.name} is exhausted",
                hint="raise the limit or add credit at the provider; it is asked again every quarter of an hour",
            )
        if codes & SETTING_CODES or status == 404 or (status in (400, 422) and parameter in SETTING_PARAMETERS):
            return QuotaError(
                f"{self.name} does not know the model {self._model} with these settings ({status})",
                hint=self._model_hint,
            )
        if status in (401, 403):
            why = "refuses the key" if status == 401 else "forbids this to the key, or to this country or network"
            return QuotaError(
                f"{self.name} {why} ({status})",
                hint="put a valid key in its place; it is tried again within a quarter of an hour, or when the daemon starts",
            )
        if 300 <= status < 400:
            return QuotaError(
                f"{self.name} answers with a redirect ({status}), which is not followed: the key would be sent there",
                hint="set base_url to the address it leads to",
            )
        if status in (400, 413, 422):
            return UnusableAnswerError(f"{self.name} refuses a text ({status})", is_final=True)
        if status == 429:
            return ProviderDownError(
                f"{self.name} limits the rate of requests (429)",
                hint="it is asked again when it allows; a paid plan has higher limits",
                retry_after_s=retry_after(response.headers.get("retry-after"), now=time.time()),
            )
        if status == 500:
            return UnusableAnswerError(f"{self.name} failed (500)", is_final=False)
        if status >= 500 or status in (408, 409, 425):
            return ProviderDownError(
                f"{self.name} is not available ({status})",
                retry_after_s=retry_after(response.headers.get("retry-after"), now=time.time()),
            )
        return QuotaError(
            f"{self.name} answers in a way that is not its documented one ({status})", hint="is base_url right?"
        )


def retry_after(value: str | None, *, now: float) -> float | None:
    """Return the seconds to wait that a Retry-After header gives, as a number or a date (RFC 9110
    10.2.3). Return None if the header is missing or unusable. `now` is in seconds since 1970.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, at - now), MAX_RETRY_AFTER_S)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _error_codes(answer: Any) -> tuple[frozenset[str], str]:
    """Return the machine-readable parts of an error in OpenAI's format: (code and type, param)."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return frozenset(), ""
    codes = frozenset(str(error[name])[:64].lower() for name in ("code", "type") if error.get(name))
    return codes, str(error.get("param") or "")[:64]


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _kind(error: BaseException) -> str:
    """Return a word for a transport failure, whose own text may contain addresses and parts of the
    request.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        if isinstance(cause, socket.gaierror):
            return "there is no such name"
        if isinstance(cause, ConnectionRefusedError):
            return "no server listens there"
        cause = cause.__cause__ or cause.__context__
    kinds = {
        "ConnectError": "no connection",
        "ProxyError": "the proxy refuses",
        "ReadError": "the connection broke off",
        "WriteError": "the connection broke off",
        "CloseError": "the connection broke off",
        "RemoteProtocolError": "it does not speak HTTP, or broke off",
        "UnsupportedProtocol": "it is not an address",
    }
    return kinds.get(type(error).__name__, type(error).__name__)


class _Loop:
    """The thread for requests; started with the first one, it lives as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="confide-providers", daemon=True).start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(call, loop).result()


_run = _Loop().run
