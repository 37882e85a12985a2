"""Validation of a tool's structured result by its output schema.

A field that is in the schema must have the schema's type, at any depth. A missing field raises an
error only when it is read, since an older daemon may lack it. Unknown fields stay unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from confide_memory.errors import UnfitAnswerError

_MOST: Final = 2**63
"""Larger numbers are refused: they are no valid count, and may not fit a float."""
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class ResultFields(dict[str, object]):
    """A JSON object from the daemon. Reading a missing field raises UnfitAnswerError."""

    def __missing__(self, key: str) -> Any:
        raise UnfitAnswerError


def read(schema: Mapping[str, Any], content: Any) -> Any:
    """Validate a tool's structured result by its output schema, and return it. Raises
    UnfitAnswerError if a value has the wrong type.
    """
    said = schema.get("type", ())
    kinds = [kind for name in ([said] if isinstance(said, str) else said) for kind in _KINDS.get(name, (object,))]
    is_kind = isinstance(content, tuple(kinds)) and (not isinstance(content, bool) or {bool, object} & {*kinds})
    if kinds and not is_kind:
        raise UnfitAnswerError
    if isinstance(content, dict):
        properties: Mapping[str, Any] = schema.get("properties", {})
        return ResultFields({name: read(properties.get(name, {}), inner) for name, inner in content.items()})
    if isinstance(content, list):
        items: Mapping[str, Any] = schema.get("items", {})
        return [read(items, inner) for inner in content]
    if isinstance(content, int | float) and not (math.isfinite(content) and abs(content) < _MOST):
        raise UnfitAnswerError
    return content
