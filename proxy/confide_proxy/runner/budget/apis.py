"""The forms of the models' APIs that the gateway knows: which paths an agent may use, and what a request may not ask for.

A request goes out as this module has read it, never as it came. What would reach beyond the model is taken out or refused: tools that run
at the provider could carry what a repository holds to anywhere, and some options cost more than the table of prices says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

DEFAULT_OUTPUT: Final = 32_000
"""Tokens that a request may write which does not say how many."""
_OURS: Final = frozenset({"custom", "function", "namespace", "local_shell", "shell", "apply_patch"})
_OURS_BEGIN: Final = ("bash_", "text_editor_", "memory_", "computer_", "tool_search_tool_")
"""Kinds of tools that the agent itself does, with or without a date behind them."""
_DEARER: Final = ("service_tier", "speed", "inference_geo")
_BEYOND: Final = ("mcp_servers", "container", "background", "prompt", "conversation", "previous_response_id")
_PASSED: Final = ("accept", "anthropic-beta", "anthropic-version", "openai-beta", "user-agent")


class Request(NamedTuple):
    """A request that costs something.

    Attributes:
        body: as it goes out; `output_field` is to be set in it.
        wanted_output: tokens that it asks to write.
    """

    body: dict[str, Any]
    model: str
    wanted_output: int
    output_field: str


class UnfitError(Exception):
    """A request that is not let out; its text is for the agent."""


class Api(NamedTuple):
    """One API. `paid` are the paths that cost something, `free` the others that may be used, both with their methods."""

    paid: frozenset[tuple[str, str]]
    free: frozenset[tuple[str, str]]
    output_field: str
    key_header: str
    key_form: str

    def headers(self, given: Mapping[str, str], key: str) -> dict[str, str]:
        """The headers of a request as it goes out: what the API takes of those that came, and the real key."""
        passed = {name: given[name] for name in _PASSED if name in given}
        return {**passed, "content-type": "application/json", self.key_header: self.key_form.format(key)}

    def request(self, body: Any) -> Request:
        """A paid request. Raises UnfitError: it is none, or asks for what nobody here has allowed."""
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            raise UnfitError("this is no request of the API: an object with a model")
        for name in _BEYOND:
            if body.get(name):
                raise UnfitError(f"'{name}' is not allowed here: this run may ask the model, and nothing beyond it")
        found = {name: value for name, value in body.items() if name not in (*_DEARER, *_BEYOND)}
        if isinstance(tools := body.get("tools"), list):
            found["tools"] = [each for each in tools if _is_ours(each)]
            if not found["tools"]:
                del found["tools"]
                found.pop("tool_choice", None)
        wanted = body.get(self.output_field)
        wanted = wanted if type(wanted) is int and wanted > 0 else DEFAULT_OUTPUT
        return Request(found, body["model"], wanted, self.output_field)


def _is_ours(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    kind = tool.get("type", "custom")
    return isinstance(kind, str) and (kind in _OURS or kind.startswith(_OURS_BEGIN))


APIS: Final = {
    "anthropic": Api(
        frozenset({("POST", "/v1/messages")}),
        frozenset({("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")}),
        "max_tokens",
        "x-api-key",
        "{}",
    ),
    "openai": Api(
        frozenset({("POST", "/v1/responses")}),
        frozenset({("GET", "/v1/models")}),
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
