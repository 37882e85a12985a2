"""An embedding provider on a loopback socket: Voyage's or OpenAI's documented API, or that of a server without keys, faults included.

The vectors are words hashed into features, so texts with words in common are near each other, and the same text always gets the same.
"""

from __future__ import annotations

import base64
import email.utils
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port

from confide_daemon.embedding.providers.hashed import HashedEmbedder

KEY = "sk-loopback-0123456789abcdef"
Dialect = Literal["openai", "voyage", "plain"]
Answer = Callable[["_Handler", dict[str, Any]], None]

MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "openai": {"text-embedding-3-small": (1536,), "text-embedding-3-large": (3072,), "text-embedding-ada-002": (1536,)},
    "voyage": {
        "voyage-4-large": (1024, 256, 512, 2048),
        "voyage-3-large": (1024, 256, 512, 2048),
        "voyage-law-2": (1024,),
    },
    "plain": {"nomic-embed-text": (768,), "all-minilm": (384,)},
}


class ProviderServer:
    """Listens from `with` on; `asked` holds the bodies of all requests, `headers` their headers."""

    def __init__(self, dialect: Dialect = "openai", *, key: str = KEY, tls: ssl.SSLContext | None = None) -> None:
        self.dialect = dialect
        self.key = key
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self.now = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._faults: deque[Answer] = deque()
        self._always: Answer | None = None
        self._bad: dict[str, Answer] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", free_port()), _Handler)
        self._http.provider = self  # type: ignore[attr-defined]
        self._http.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """What `base_url` is to be."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/v1"

    def then(self, *answers: Answer) -> None:
        """Answers the next requests so, one after another."""
        self._faults.extend(answers)

    def always(self, answer: Answer | None) -> None:
        """Answers every request so, until told otherwise with None."""
        self._always = answer

    def whenever(self, word: str, answer: Answer) -> None:
        """Answers so when one of the texts holds this word."""
        self._bad[word] = answer

    def answer(self, handler: _Handler, body: dict[str, Any]) -> None:
        """What a request gets."""
        with self.lock:
            fault = self._faults.popleft() if self._faults else self._always
        if fault is None:
            texts = body.get("input") if isinstance(body.get("input"), list) else []
            fault = next((bad for word, bad in self._bad.items() if any(word in text for text in texts)), documented)
        fault(handler, body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def provider(self) -> ProviderServer:
        return self.server.provider  # type: ignore[attr-defined, no-any-return]

    def do_POST(self) -> None:
        provider = self.provider
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with provider.lock:
            provider.asked.append(body)
            provider.headers.append(dict(self.headers))
            provider.now += 1
            provider.most_at_once = max(provider.most_at_once, provider.now)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                provider.answer(self, body)
        finally:
            with provider.lock:
                provider.now -= 1

    def say(self, status: int, answer: object, **headers: str) -> None:
        """One whole answer."""
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(
        self, status: int, message: str, *, code: str | None = None, kind: str = "invalid_request_error"
    ) -> None:
        """An error as the provider writes it; both repeat what they were sent."""
        if self.provider.dialect == "voyage":
            self.say(status, {"detail": message})
        else:
            self.say(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def documented(handler: _Handler, body: dict[str, Any]) -> None:
    """What the provider's documents say it does."""
    provider = handler.provider
    sent = handler.headers.get("Authorization")
    if handler.path != "/v1/embeddings":
        handler.refuse(404, f"unknown url {handler.path}")
    elif provider.dialect != "plain" and sent != f"Bearer {provider.key}":
        handler.refuse(401, f"Incorrect API key provided: {sent}", code="invalid_api_key")
    elif body["model"] not in MODELS[provider.dialect]:
        status = 400 if provider.dialect == "voyage" else 404
        handler.refuse(status, f"The model {body['model']} does not exist", code="model_not_found")
    elif problem := _problem(provider.dialect, body):
        handler.refuse(400, f"{problem}: {body['input']}")
    else:
        handler.say(200, answer(provider.dialect, body))


def _problem(dialect: Dialect, body: dict[str, Any]) -> str | None:
    texts = body["input"]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        return "input must be a list of strings that are not empty"
    if dialect == "voyage":
        choices = MODELS[dialect][body["model"]]
        if len(texts) > 1000 or body.get("output_dimension", choices[0]) not in choices:
            return "too many inputs, or a wrong output_dimension"
        return None if body.get("input_type") in (None, "query", "document") else "a wrong input_type"
    if len(texts) > (2048 if dialect == "openai" else 32):
        return "too many inputs"
    # A token is at least one character of ours in the tests: words of one letter.
    if any(len(text.split()) > (8192 if dialect == "openai" else 512) for text in texts):
        return "the input length exceeds the context length"
    return None


def answer(dialect: Dialect, body: dict[str, Any]) -> dict[str, Any]:
    """A whole and right answer."""
    size = body.get("output_dimension") or body.get("dimensions") or MODELS[dialect][body["model"]][0]
    # Not of unit length, as those of some servers are not.
    rows = HashedEmbedder(size).embed_documents(body["input"]) * 3
    packed = body.get("encoding_format") == "base64"
    vectors = [base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else row.tolist() for row in rows]
    return {
        "object": "list",
        "data": [{"object": "embedding", "embedding": one, "index": place} for place, one in enumerate(vectors)],
        "model": body["model"],
        "usage": {"prompt_tokens": 7, "total_tokens": sum(len(text.split()) for text in body["input"])},
    }


# ------------------------------------------------------------------ faults


def status(code: int, **headers: str) -> Answer:
    """An error with a body that repeats the texts, as some providers' do."""
    return lambda handler, body: handler.say(code, {"error": {"message": f"no: {body}", "type": "x"}}, **headers)


def error(code: int, word: str) -> Answer:
    """An error as OpenAI writes it, with this code."""
    return lambda handler, body: handler.refuse(code, f"no: {body}", code=word, kind=word)


def busy(wait: str | None = None) -> Answer:
    """Too many requests; `wait` is Retry-After as it stands, `date:<seconds>` a date so far away."""
    if wait is not None and wait.startswith("date:"):
        at = time.time() + float(wait[5:])
        return status(429, Retry_After=email.utils.formatdate(at, usegmt=True))
    return status(429, **({"Retry_After": wait} if wait is not None else {}))


def silence(handler: _Handler, body: dict[str, Any]) -> None:
    """No answer at all, until the server ends."""
    handler.provider.closing.wait(DEADLINE_S)
    handler.close_connection = True


def drip(handler: _Handler, body: dict[str, Any]) -> None:
    """A byte now and then, so that no single wait is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.provider.closing.wait(0.02):
        handler.wfile.write(b" ")


def break_off(handler: _Handler, body: dict[str, Any]) -> None:
    """Half an answer, and the connection closed."""
    data = json.dumps(answer(handler.provider.dialect, body)).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True


def page(handler: _Handler, body: dict[str, Any]) -> None:
    """A page of HTML, as a hotel's network gives it."""
    handler.say(200, b"<html><title>Welcome! Please sign in</title></html>")


def huge(handler: _Handler, body: dict[str, Any]) -> None:
    """An answer without an end."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.provider.closing.is_set():
        handler.wfile.write(b"[" * 65536)


def packed(handler: _Handler, body: dict[str, Any]) -> None:
    """A small answer that would unpack to a large one."""
    handler.say(200, b"\x1f\x8b" + bytes(100), Content_Encoding="gzip")


def redirect(handler: _Handler, body: dict[str, Any]) -> None:
    """To somewhere else."""
    handler.say(307, {}, Location="http://127.0.0.2:9/v1/embeddings")


def changed(change: Callable[[dict[str, Any]], None]) -> Answer:
    """A right answer with something changed."""

    def say(handler: _Handler, body: dict[str, Any]) -> None:
        body = body | {"encoding_format": "float"}
        told = answer(handler.provider.dialect, body)
        change(told)
        handler.say(200, told)

    return say


def first_vector(make: Callable[[list[float]], object]) -> Answer:
    """A right answer whose first vector is another one."""
    return changed(lambda told: told["data"][0].update(embedding=make(told["data"][0]["embedding"])))


fewer = changed(lambda told: told["data"].pop())
shuffled = changed(lambda told: told["data"].reverse())
twice_the_same_index = changed(lambda told: [item.update(index=0) for item in told["data"]])
not_numbers = first_vector(lambda row: [float("nan"), *row[1:]])
zeros = first_vector(lambda row: [0.0] * len(row))
too_short = changed(lambda told: [item.update(embedding=item["embedding"][:-1]) for item in told["data"]])
words = first_vector(lambda row: ["one"] * len(row))
no_base64 = first_vector(lambda row: "?" * 16)


def expected(texts: list[str], dimensions: int) -> np.ndarray[Any, Any]:
    """The vectors that a healthy server's answer becomes."""
    return HashedEmbedder(dimensions).embed_documents(texts)
