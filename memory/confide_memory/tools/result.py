"""What a call of a tool is answered with, as both programs write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered with; `structured` is None for an error."""

    text: str
    structured: dict[str, Any] | None = None

    def as_result(self, *, is_modern: bool) -> dict[str, Any]:
        """The result of `tools/call`, in the era of the 2026-07-28 protocol or before."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": self.text}]}
        if self.structured is None:
            result["isError"] = True
        else:
            result["structuredContent"] = self.structured
        return {**result, "resultType": "complete"} if is_modern else result
