"""The structured result of a tool, read against the tool's own output schema, as `arguments` reads what goes the other way.

What the schema names is of its kind, at any depth. A name that is missing is the daemon's mistake once somebody looks for it, since an
older daemon may not have it; one that the schema does not know is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from confide_memory.errors import UnfitAnswerError

_MOST: Final = 2**63
"""A number that is larger cannot be written as a float, or be anything that is counted."""
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
    """A JSON object of the daemon's: what is not in it is its fault, and is said so."""

    def __missing__(self, key: str) -> Any:
        raise UnfitAnswerError


def read(schema: Mapping[str, Any], content: Any) -> Any:
    """A tool's structured content, as its output schema says. Raises UnfitAnswerError: something in it is of another kind."""
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
