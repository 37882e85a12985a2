"""The models' APIs that the gateway supports: allowed paths, rewriting of requests, and the cost
reported by an answer or a stream of events.

A request is sent as rebuilt by `allowlist`, never as received: tools that run at the provider could
send a repository's content anywhere, and some options cost more than the table of prices states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confide_night.runner.budget.allowlist import ANTHROPIC, HEADERS, OPENAI, Form, UnfitError, Weight
from confide_night.runner.settings.prices import TokenUse

MOST_LINE: Final = 16 * 2**20
"""Most bytes of one event; OpenAI's last event repeats the whole answer."""
_BYTES_A_TOKEN: Final = 8
"""More bytes per token than texts have, so a stream is cut only if its API has certainly exceeded
the output limit of the request.
"""
_SLACK_BYTES: Final = 4096
_WRITTEN: Final = ("text", "thinking", "partial_json")


def usage_in_answer(body: bytes) -> TokenUse | None:
    """Return the tokens that a complete answer reports; None if it reports none."""
    try:
        return parse_usage(json.loads(body)["usage"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_usage(usage: Any) -> TokenUse | None:
    """Parse a `usage` object of Anthropic or OpenAI; return None if it is neither."""
    if not isinstance(usage, dict) or "input_tokens" not in usage:
        return None
    taken, written = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if "input_tokens_details" in usage:
        # OpenAI's input count includes cached tokens.
        cached = min(taken, _count(usage["input_tokens_details"], "cached_tokens"))
        return TokenUse(taken - cached, written, cached)
    made = _count(usage, "cache_creation_input_tokens")
    for_an_hour = min(made, _count(usage.get("cache_creation"), "ephemeral_1h_input_tokens"))
    return TokenUse(taken, written, _count(usage, "cache_read_input_tokens"), made - for_an_hour, for_an_hour)


def _count(table: Any, name: str) -> int:
    value = table.get(name) if isinstance(table, dict) else None
    return value if type(value) is int and value >= 0 else 0


class EventStream:
    """Parses a stream of server-sent events.

    Attributes:
        usage: the usage reported last; None before the first report.
        is_whole: True if that report is final.
        written_tokens: lower bound of the output tokens so far, estimated from the length until reported.
    """

    def __init__(self) -> None:
        self.usage: TokenUse | None = None
        self.is_whole = False
        self._bytes = 0
        self._rest = b""

    @property
    def written_tokens(self) -> int:
        said = self.usage.output if self.usage else 0
        return max(said, (self._bytes - _SLACK_BYTES) // _BYTES_A_TOKEN)

    def feed(self, piece: bytes) -> None:
        """Parse the next piece. Raises ValueError if an event is too long."""
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
            before = self.usage or TokenUse()
            said = parse_usage(usage) or TokenUse(output=_count(usage, "output_tokens"))
            # Some servers repeat the input count here, others do not.
            self.usage = (
                said
                if said.all_input
                else TokenUse(before.input, said.output, before.cache_read, before.cache_write, before.cache_write_1h)
            )
        elif kind == "message_stop":
            self.is_whole = self.usage is not None
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            self._hear(response.get("usage") if isinstance(response, dict) else None)
            self.is_whole = self.usage is not None
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
        if (found := parse_usage(usage)) is not None:
            self.usage = found


DEFAULT_OUTPUT: Final = 32_000
"""Output limit of a request that states none, in tokens."""
_DEARER: Final = frozenset({"service_tier", "speed", "inference_geo"})
"""Options that raise the price and are not needed; they are silently left out."""


class PricedRequest(NamedTuple):
    """A request that costs money.

    Attributes:
        body: the body to send; the field `output_field` must still be set.
        wanted_output: the requested output limit, in tokens.
        weight: its non-text content.
    """

    body: dict[str, Any]
    model: str
    wanted_output: int
    output_field: str
    weight: Weight


class Api(NamedTuple):
    """The rules of an API. `paid_paths` and `free` list the allowed methods and paths that do and do not
    cost money.
    """

    paid_paths: frozenset[tuple[str, str]]
    free: frozenset[tuple[str, str]]
    form: Form
    output_field: str
    key_header: str
    key_form: str

    def headers(self, given: Mapping[str, str], key: str) -> dict[str, str]:
        """Return the headers to send: the allowed ones of the agent, and the real key."""
        passed = {name: found for name, taken in HEADERS.items() if (found := taken(given.get(name, "")))}
        return {**passed, "content-type": "application/json", self.key_header: self.key_form.format(key)}

    def check(self, body: Any) -> tuple[dict[str, object], Weight]:
        """Return the request body to send and its weight. Raises UnfitError if it is invalid or
        contains anything not allowed.
        """
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
        """Check the body of a paid request, and return it with what its price depends on. Raises
        UnfitError if it is invalid or contains anything not allowed.
        """
        found, weight = self.check(body)
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
    """Return True if the thinking budget of a request is below its output limit; otherwise
    Anthropic's API would refuse it.
    """
    thinking = body.get("thinking")
    wanted = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return type(wanted) is not int or wanted < most_output
