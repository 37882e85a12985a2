"""A machine's requests (PROTOCOL.md 9 and 10), one module a family."""

from collections.abc import Awaitable, Callable
from typing import Any

Operation = Callable[..., Awaitable[dict[str, Any]]]
"""Answers a request; gets its fields as `confide_memory.requests` has them."""
