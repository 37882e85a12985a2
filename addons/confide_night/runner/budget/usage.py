"""What an answer of a model's API says that it has cost: a whole one, or a stream of events while it comes."""

from __future__ import annotations

import json
from typing import Any, Final

from confide_night.runner.settings.prices import Tokens

MOST_LINE: Final = 16 * 2**20
"""Bytes of one event; OpenAI's last one repeats the whole answer."""
_BYTES_A_TOKEN: Final = 8
"""More than texts have: a stream is cut only where its API has surely written more than it was let. What it may write it was told."""
_SLACK_BYTES: Final = 4096
_WRITTEN: Final = ("text", "thinking", "partial_json")


def of_answer(body: bytes) -> Tokens | None:
    """What a whole answer has cost; None: it does not say."""
    try:
        return of_usage(json.loads(body)["usage"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def of_usage(usage: Any) -> Tokens | None:
    """The tokens of a `usage`, of Anthropic's form or of OpenAI's; None: it is of neither."""
    if not isinstance(usage, dict) or "input_tokens" not in usage:
        return None
    taken, written = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if "input_tokens_details" in usage:
        # OpenAI counts what came from the cache as input too.
        cached = min(taken, _count(usage["input_tokens_details"], "cached_tokens"))
        return Tokens(taken - cached, written, cached)
    made = _count(usage, "cache_creation_input_tokens")
    for_an_hour = min(made, _count(usage.get("cache_creation"), "ephemeral_1h_input_tokens"))
    return Tokens(taken, written, _count(usage, "cache_read_input_tokens"), made - for_an_hour, for_an_hour)


def _count(table: Any, name: str) -> int:
    value = table.get(name) if isinstance(table, dict) else None
    return value if type(value) is int and value >= 0 else 0


class Stream:
    """Follows a stream of server-sent events.

    Attributes:
        used: what it has said of its cost, last; None: nothing yet.
        is_whole: whether that is the last word.
        written: tokens that have come, at least: by their length until it is said.
    """

    def __init__(self) -> None:
        self.used: Tokens | None = None
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
            before = self.used or Tokens()
            said = of_usage(usage) or Tokens(output=_count(usage, "output_tokens"))
            # Some servers repeat what was read there, others do not.
            self.used = (
                said
                if said.taken_in
                else Tokens(before.input, said.output, before.cache_read, before.cache_write, before.cache_write_1h)
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
