"""Parse references to sealed secrets in command lines: optionally `secret:`, and then a name, a
placeholder, or the beginning of a placeholder's digits.
"""

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
    """Return a reference without its prefix and brackets. Raises NoSecretError if nothing is left,
    or if it is too long.
    """
    text = reference.strip().removeprefix(REF).strip().rstrip(")….")
    text = text.removeprefix("(").removeprefix("sealed:")
    if not text or len(text) > LONGEST:
        raise NoSecretError(
            "this names no sealed secret", hint=f"name it as {REF}NAME, or by its placeholder or the first digits of it"
        )
    return text


def refuse_redacted(text: str) -> None:
    """Raise NoSecretError if a text is the placeholder of a redacted value, which was never sent
    and so cannot be opened.
    """
    if text.strip().startswith("(redacted:"):
        hint = "the value was never sent; the file on the device that wrote it still has it"
        raise NoSecretError("what was redacted cannot be opened", hint=hint)
