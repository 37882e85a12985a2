"""The models' APIs that the gateway knows: which paths an agent may use, what becomes of a request before it goes out, and what an answer,
whole or a stream of events, says that it has cost.

A request goes out as `allowlist` has read it, never as it came: tools that run at the provider could carry what a repository holds to
anywhere, and some options cost more than the table of prices says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confide_night.runner.budget.allowlist import ANTHROPIC, HEADERS, OPENAI, Form, UnfitError, Weight
from confide_night.runner.settings.prices import TokenUse

MOST_LINE: Final = 16 * 2**20
"""Bytes of one event; OpenAI's last one repeats the whole answer."""
_BYTES_A_TOKEN: Final = 8
"""More than texts have: a stream is cut only where its API has surely written more than it was let. What it may write it was told."""
_SLACK_BYTES: Final = 4096
_WRITTEN: Final = ("text", "thinking", "partial_json")


def of_answer(body: bytes) -> TokenUse | None:
    """What a whole answer has cost; None: it does not say."""
    try:
        return of_usage(json.loads(body)["usage"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def of_usage(usage: Any) -> TokenUse | None:
    """The tokens of a `usage`, of Anthropic's form or of OpenAI's; None: it is of neither."""
    if not isinstance(usage, dict) or "input_tokens" not in usage:
        return None
    taken, written = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if "input_tokens_details" in usage:
        # OpenAI counts what came from the cache as input too.
        cached = min(taken, _count(usage["input_tokens_details"], "cached_tokens"))
        return TokenUse(taken - cached, written, cached)
    made = _count(usage, "cache_creation_input_tokens")
    for_an_hour = min(made, _count(usage.get("cache_creation"), "ephemeral_1h_input_tokens"))
    return TokenUse(taken, written, _count(usage, "cache_read_input_tokens"), made - for_an_hour, for_an_hour)


def _count(table: Any, name: str) -> int:
    value = table.get(name) if isinstance(table, dict) else None
    return value if type(value) is int and value >= 0 else 0


class EventStream:
    """Follows a stream of server-sent events.

    Attributes:
        used: what it has said of its cost, last; None: nothing yet.
        is_whole: whether that is the last word.
        written: tokens that have come, at least: by their length until it is said.
    """

    def __init__(self) -> None:
        self.used: TokenUse | None = None
        self.is_whole = False
        self._bytes = 0
        self._rest = b""

    @property
    def written(self) -> int:
        said = self.used.output if self.used else 0
        return max(said, (self._bytes - _SLACK_BYTES) // _BYTES_A_TOKEN)

    def feed(self, piece: bytes) -> None:
        """Read on. Raises ValueError: an event is longer than any is."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MOST_LINE:
            raise ValueError("an event is too long")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip())

    def _take(self, data: bytes) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        kind = event.get("type")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self._hear(event["message"].get("usage"))
        elif kind == "message_delta":
            usage = event.get("usage")
            before = self.used or TokenUse()
            said = of_usage(usage) or TokenUse(output=_count(usage, "output_tokens"))
            # Some servers repeat what was read there, others do not.
            self.used = (
                said
                if said.taken_in
                else TokenUse(before.input, said.output, before.cache_read, before.cache_write, before.cache_write_1h)
            )
        elif kind == "message_stop":
            self.is_whole = self.used is not None
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            self._hear(response.get("usage") if isinstance(response, dict) else None)
            self.is_whole = self.used is not None
        elif isinstance(kind, str) and kind.endswith("delta"):
            delta = event.get("delta")
            texts = (
                [delta]
                if isinstance(delta, str)
                else [delta.get(name) for name in _WRITTEN]
                if isinstance(delta, dict)
                else []
            )
            self._bytes += sum(len(text) for text in texts if isinstance(text, str))

    def _hear(self, usage: Any) -> None:
        if (found := of_usage(usage)) is not None:
            self.used = found


DEFAULT_OUTPUT: Final = 32_000
"""Tokens that a request may write which does not say how many."""
_DEARER: Final = frozenset({"service_tier", "speed", "inference_geo"})
"""Left out without notice: at what it costs otherwise the request is as good."""


class PricedRequest(NamedTuple):
    """A request that costs something.

    Attributes:
        body: as it goes out; `output_field` is to be set in it.
        wanted_output: tokens that it asks to write.
        weight: what it has in it besides text.
    """

    body: dict[str, Any]
    model: str
    wanted_output: int
    output_field: str
    weight: Weight


class Api(NamedTuple):
    """One API. `paid` are the paths that cost something, `free` the others that may be used, both with their methods."""

    paid: frozenset[tuple[str, str]]
    free: frozenset[tuple[str, str]]
    form: Form
    output_field: str
    key_header: str
    key_form: str

    def headers(self, given: Mapping[str, str], key: str) -> dict[str, str]:
        """The headers of a request as it goes out: what the API takes of those that came, and the real key."""
        passed = {name: found for name, taken in HEADERS.items() if (found := taken(given.get(name, "")))}
        return {**passed, "content-type": "application/json", self.key_header: self.key_form.format(key)}

    def checked(self, body: Any) -> tuple[dict[str, object], Weight]:
        """A request as it goes out. Raises UnfitError: it is none, or has in it what is not named in the list."""
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            raise UnfitError("this is no request of the API: an object with a model")
        weight = Weight()
        found: dict[str, Any] = self.form(
            {name: each for name, each in body.items() if name not in _DEARER}, "", weight
        )
        if not found.get("tools"):
            found.pop("tools", None)
            found.pop("tool_choice", None)
        return found, weight

    def request(self, body: Any) -> PricedRequest:
        """A paid request. Raises UnfitError as `checked`."""
        found, weight = self.checked(body)
        wanted = found.get(self.output_field)
        wanted = wanted if type(wanted) is int and wanted > 0 else DEFAULT_OUTPUT
        return PricedRequest(found, body["model"], wanted, self.output_field, weight)


APIS: Final = {
    "anthropic": Api(
        frozenset({("POST", "/v1/messages")}),
        frozenset({("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")}),
        ANTHROPIC,
        "max_tokens",
        "x-api-key",
        "{}",
    ),
    "openai": Api(
        frozenset({("POST", "/v1/responses")}),
        frozenset({("GET", "/v1/models")}),
        OPENAI,
        "max_output_tokens",
        "authorization",
        "Bearer {}",
    ),
}


def thinking_fits(body: Mapping[str, object], most_output: int) -> bool:
    """Whether what a request wants to think fits into what it may write; Anthropic's API refuses one in which it does not."""
    thinking = body.get("thinking")
    wanted = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return type(wanted) is not int or wanted < most_output
