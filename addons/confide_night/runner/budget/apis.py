"""The models' APIs that the gateway knows: which paths an agent may use, and what becomes of a request before it goes out.

A request goes out as `allowlist` has read it, never as it came: tools that run at the provider could carry what a repository holds to
anywhere, and some options cost more than the table of prices says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confide_night.runner.budget.allowlist import ANTHROPIC, HEADERS, OPENAI, Form, UnfitError, Weight

DEFAULT_OUTPUT: Final = 32_000
"""Tokens that a request may write which does not say how many."""
_DEARER: Final = frozenset({"service_tier", "speed", "inference_geo"})
"""Left out without notice: at what it costs otherwise the request is as good."""


class Request(NamedTuple):
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

    def checked(self, body: Any) -> tuple[dict[str, Any], Weight]:
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

    def request(self, body: Any) -> Request:
        """A paid request. Raises UnfitError as `checked`."""
        found, weight = self.checked(body)
        wanted = found.get(self.output_field)
        wanted = wanted if type(wanted) is int and wanted > 0 else DEFAULT_OUTPUT
        return Request(found, body["model"], wanted, self.output_field, weight)


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


def thinking_fits(body: Mapping[str, Any], most_output: int) -> bool:
    """Whether what a request wants to think fits into what it may write; Anthropic's API refuses one in which it does not."""
    thinking = body.get("thinking")
    wanted = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return type(wanted) is not int or wanted < most_output
