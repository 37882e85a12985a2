"""Reads the output of a client's session: failed commands, tokens, time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from confide_memory.actions import error_messages

_MOST_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Session:
    """The facts of one session of a client.

    Attributes:
        failures: a key for each failed command, equal for failures of one cause.
        tokens_in: tokens that the model read, cached ones included.
        tokens_out: tokens that the model wrote.
        problem: why the session did not end as it should; "" if it did.
    """

    failures: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    problem: str = ""

    @property
    def repeated(self) -> int:
        """How many failures came again after an equal one."""
        return len(self.failures) - len(set(self.failures))


def of_claude(output: str) -> Session:
    """Read what `claude -p --output-format stream-json --verbose` printed."""
    failures: list[str] = []
    usage: dict[str, Any] = {}
    problem = "it printed no result"
    for event in _events(output):
        message = event.get("message")
        parts = message.get("content") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("type") == "tool_result" and part.get("is_error") is True:
                failures.append(failure(_text(part.get("content"))))
        if event.get("type") == "result":
            usage = event.get("usage") or {}
            problem = (
                "" if event.get("subtype") == "success" and not event.get("is_error") else str(event.get("subtype"))
            )
    read = sum(
        usage.get(name) or 0 for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )
    return Session(tuple(failures), read, usage.get("output_tokens") or 0, problem)


def of_codex(output: str) -> Session:
    """Read what `codex exec --json` printed."""
    failures: list[str] = []
    read = written = 0
    problem = "it printed no end of a turn"
    for event in _events(output):
        item = event.get("item") or {}
        is_command = event.get("type") == "item.completed" and item.get("type") == "command_execution"
        if is_command and item.get("exit_code") not in (0, None):
            failures.append(failure(str(item.get("aggregated_output") or "")))
        if event.get("type") == "turn.completed":
            usage = event.get("usage") or {}
            read, written = read + (usage.get("input_tokens") or 0), written + (usage.get("output_tokens") or 0)
            problem = ""
        elif event.get("type") in ("turn.failed", "error"):
            problem = str(event.get("type"))
    return Session(tuple(failures), read, written, problem)


def failure(text: str) -> str:
    """Return the key of a failure: the signature of its last message, or its last line."""
    lines = [line for line in text.strip().splitlines() if line.strip()][-_MOST_LINES:]
    signatures = (error_messages.signature(line) for line in reversed(lines) if error_messages.FAILS.search(line))
    return next((found for found in signatures if found), error_messages.skeleton(lines[-1]) if lines else "")


def _events(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
