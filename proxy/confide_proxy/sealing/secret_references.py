"""How a command line names a sealed secret: `secret:` and a name, a placeholder, or the beginning of one."""

from __future__ import annotations

import re
from typing import Final

from confide_proxy.errors import NoSecretError

REF: Final = "secret:"
"""The optional prefix of a reference to a secret."""
DIGITS: Final = re.compile(r"[0-9a-f]{4,32}")
LONGEST: Final = 120
LISTED: Final = "confide secrets ls lists them"
"""Hint for a user who looks for a secret."""


def bare(reference: str) -> str:
    """Return a reference without what may stand around it. Raises NoSecretError if nothing is left."""
    text = reference.strip().removeprefix(REF).strip().rstrip(")….")
    text = text.removeprefix("(").removeprefix("sealed:")
    if not text or len(text) > LONGEST:
        raise NoSecretError(
            "this names no sealed secret", hint=f"name it as {REF}NAME, or by its placeholder or the first digits of it"
        )
    return text


def refuse_redacted(text: str) -> None:
    """Raise NoSecretError if a text stands for a value that was never sent."""
    if text.strip().startswith("(redacted:"):
        hint = "the value was never sent; the file on the device that wrote it still has it"
        raise NoSecretError("what was redacted cannot be opened", hint=hint)
