"""What stands in a text in place of what was sealed or redacted on a machine (PROTOCOL.md 10.4); the daemon can open none of it."""

from __future__ import annotations

import re
from typing import Final

from confide_crypto.sealing.records import KIND_PATTERN

_STANDIN: Final = rf"\((?:sealed:{KIND_PATTERN}:[0-9a-f]{{32}}|redacted:{KIND_PATTERN}:[0-9a-f]{{24}})\)"
_FOUND: Final = re.compile(_STANDIN)
_ALONE: Final = re.compile(rf"(?:\s|{_STANDIN})*")


def only(text: str) -> bool:
    """Whether a text consists of them and blanks alone."""
    return _ALONE.fullmatch(text) is not None


def in_order(text: str) -> tuple[str, ...]:
    """Those in a text."""
    return tuple(_FOUND.findall(text))
