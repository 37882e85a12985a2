"""The judge `local`: a server with OpenAI's interface on this machine, such as Ollama or llama.cpp. No other machine is ever asked."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from confide_learn.local.finding import CannotJudgeError
from confide_learn.local.judges.asking import MOST_ANSWER_BYTES, SCHEMA, answered, question
from confide_proxy.config import is_loopback

if TYPE_CHECKING:
    from confide_learn.local.exchanges import Exchange
    from confide_learn.local.finding import Finding

DEADLINE_S: Final = 60.0
_CONNECT_S: Final = 2.0
_OK: Final = 200
_PART: Final = 16 * 1024


class Local:
    """Asks one model of one server, one question at a time."""

    def __init__(self, url: str, model: str, *, deadline_s: float = DEADLINE_S) -> None:
        """`url`: of this machine, with the path that `/chat/completions` stands behind."""
        self._url = url
        self._model = model
        self._deadline_s = deadline_s

    async def findings(self, window: Sequence[Exchange], _client: str) -> list[Finding]:
        """What the model finds. Raises CannotJudgeError."""
        told, conversation = question(window)
        body = {
            "model": self._model,
            "messages": [{"role": "system", "content": told}, {"role": "user", "content": conversation}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "findings", "strict": True, "schema": SCHEMA},
            },
            "temperature": 0,
            "max_tokens": 1500,
            "stream": False,
        }
        try:
            answer = await asyncio.to_thread(self._asked, json.dumps(body).encode())
        except TimeoutError:
            raise CannotJudgeError(f"it did not answer within {self._deadline_s:.0f} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise CannotJudgeError(f"it cannot be asked: {reason}") from None
        try:
            return answered(_content(answer))
        except ValueError:
            raise CannotJudgeError("it answered with something else than findings") from None

    def _asked(self, body: bytes) -> bytes:
        if not is_loopback(self._url):
            raise CannotJudgeError("its address is not of this machine")
        parts = urlsplit(self._url)
        # A name is looked up, and may be told to lead elsewhere.
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
        end = time.monotonic() + self._deadline_s
        connection = http.client.HTTPConnection(host, parts.port or 80, timeout=min(_CONNECT_S, self._deadline_s))
        try:
            connection.connect()
            connection.sock.settimeout(self._deadline_s)
            path = f"{parts.path.rstrip('/')}/chat/completions"
            connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
            response = connection.getresponse()
            if response.status != _OK:
                raise CannotJudgeError(f"it answered with status {response.status}")
            data = bytearray()
            while part := response.read1(_PART):
                data += part
                if len(data) > MOST_ANSWER_BYTES:
                    raise CannotJudgeError("its answer is too long")
                left = end - time.monotonic()
                if left <= 0:  # it goes on byte by byte
                    raise TimeoutError
                connection.sock.settimeout(left) if connection.sock is not None else None
            return bytes(data)
        finally:
            connection.close()


def _content(answer: bytes) -> str:
    """The text of a chat completion. Raises ValueError: it is none."""
    try:
        table: Any = json.loads(answer)
        content = table["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError, RecursionError):
        raise ValueError("no completion") from None
    if not isinstance(content, str):
        raise ValueError("no text")
    return content
