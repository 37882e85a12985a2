"""The arguments of a tool call, checked against the tool's own input schema.

The schemas use few keywords, and what an agent needs from a refusal is a sentence that it can act on, so this reads the schema itself
rather than translating a validator's error tree. Both spellings of a name are taken (`maxResults`, `max_results`), and a null for an
optional parameter means that it was left out, as several clients send it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.tools.definition import Definition

MAX_OBJECT_BYTES = 16 * 1024

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a string", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list,)),
    "object": ("an object", (dict,)),
}


def check(definition: Definition, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments under their wire names, with the schema's defaults filled in.

    Raises:
        ToolError: a name that the tool does not have, a required one missing, or a value outside its schema.
    """
    checked: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = _wire_name(definition, key)
        if name in checked:
            raise ToolError(f"'{name}' is given twice", hint=f"send {name} alone, without {_snake(name)}")
        if value is not None:
            checked[name] = _value(name, value, definition.properties[name])
    for name in definition.required:
        if name not in checked:
            raise ToolError(f"'{name}' is missing", hint=f"{definition.name} needs {', '.join(definition.required)}")
    for name, schema in definition.properties.items():
        if name not in checked and "default" in schema:
            checked[name] = schema["default"]
    return checked


def _wire_name(definition: Definition, key: str) -> str:
    names = {_snake(name): name for name in definition.properties}
    if key in definition.properties:
        return key
    if key in names:
        return names[key]
    near = difflib.get_close_matches(_snake(key), names, n=1)
    known = ", ".join(definition.properties) or "none"
    hint = f"did you mean '{names[near[0]]}'?" if near else f"{definition.name} takes: {known}"
    raise ToolError(f"unknown parameter '{_shown(key)}'", hint=hint)


def _value(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    asked = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = " or ".join(_KINDS[one][0] for one in asked)
    types = tuple(one for name in asked for one in _KINDS[name][1])
    if asked == ["integer"] and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one number type, and some clients write 8 as 8.0.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ToolError(f"'{name}' must be {kind}, not {_kind_of(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise ToolError(f"'{name}' must be one of {', '.join(schema['enum'])}")
    if isinstance(value, str):
        _check_text(name, value, schema)
    elif isinstance(value, list):
        return _items(name, value, schema)
    elif isinstance(value, dict):
        _check_object(name, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(name, value, schema)
    return value


def _check_text(name: str, value: str, schema: Mapping[str, Any]) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least and not value.strip():
        raise ToolError(f"'{name}' is empty")
    if len(value) < least:
        raise ToolError(f"'{name}' is too short: {len(value)} characters", hint=f"it has {least} at least")
    if most is not None and len(value) > most:
        raise ToolError(f"'{name}' is too long: {len(value):,} characters", hint=f"the limit is {most:,}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # JSON can spell half of a surrogate pair; no file can hold it.
        raise ToolError(f"'{name}' is not valid text: it holds half of a surrogate pair") from None


def _check_range(name: str, value: float, schema: Mapping[str, Any]) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    # A comparison with NaN is false, so the range is stated as what must hold.
    inside = (least is None or value >= least) and (most is None or value <= most)
    if not inside or value != value:
        bounds = f"between {least} and {most:,}" if most is not None else f"{least} or more"
        raise ToolError(f"'{name}' must be {bounds}")


def _check_object(name: str, value: dict[str, Any]) -> None:
    try:
        size = len(json.dumps(value, ensure_ascii=False).encode())
    except (UnicodeEncodeError, RecursionError):
        raise ToolError(f"'{name}' is not an object of plain JSON values") from None
    if size > MAX_OBJECT_BYTES:
        raise ToolError(f"'{name}' is too large: {size:,} bytes", hint=f"the limit is {MAX_OBJECT_BYTES:,}")


def _items(name: str, values: list[Any], schema: Mapping[str, Any]) -> list[Any]:
    most = schema.get("maxItems", 64)
    if len(values) > most:
        raise ToolError(f"'{name}' has {len(values)} entries", hint=f"the limit is {most}")
    return [_value(f"{name}[{number}]", item, schema["items"]) for number, item in enumerate(values)]


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    for kind, types in _KINDS.values():
        if isinstance(value, types):
            return kind
    return "null" if value is None else "an object"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _shown(key: str) -> str:
    """A key as an error may repeat it: short, on one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in key[:40])
