"""The arguments of a tool call, held against the tool's own input schema, as the daemon does it.

Used for calls that the daemon does not see, or not yet: what it would refuse must not be queued.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from confide_proxy.errors import ToolError

_KINDS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "string": ("a string", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list,)),
    "object": ("an object", (dict,)),
}


def checked(tool: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """The arguments under their wire names, with the schema's defaults; both spellings of a name are taken, and null means left out.

    Raises:
        ToolError: a name that the tool does not have, a required one missing, or a value outside its schema.
    """
    schema = tool["inputSchema"]
    shown: Mapping[str, Any] = schema.get("properties", {})
    properties = {**shown, **tool.get("_meta", {}).get("confide/alsoTakes", {})}
    if not isinstance(given, Mapping | None):
        raise ToolError("the arguments of a tool are an object")
    names = {**{_snake(name): name for name in properties}, **{name: name for name in properties}}
    found: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = names.get(key)
        if name is None:
            raise ToolError(f"unknown parameter '{_shown(key)}'", hint=f"{tool['name']} takes: {', '.join(shown)}")
        if name in found:
            raise ToolError(f"'{name}' is given twice")
        if value is not None:
            found[name] = _value(name, value, properties[name])
    for name in schema.get("required", ()):
        if name not in found:
            raise ToolError(f"'{name}' is missing")
    return {**{name: each["default"] for name, each in properties.items() if "default" in each}, **found}


def _value(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    kinds = schema.get("type", "")
    asked = [_KINDS.get(one, ("", (object,))) for one in (kinds if isinstance(kinds, list) else [kinds])]
    kind, types = " or ".join(one for one, _ in asked), tuple(one for _, some in asked for one in some)
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        raise ToolError(f"'{name}' must be {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise ToolError(f"'{name}' must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        _check_text(name, value, schema)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", 64):
            raise ToolError(f"'{name}' has {len(value)} entries", hint=f"the limit is {schema.get('maxItems', 64)}")
        return [_value(f"{name}[{number}]", item, schema.get("items", {})) for number, item in enumerate(value)]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        # A comparison with NaN is false, so the range is stated as what must hold.
        if not ((least is None or value >= least) and (most is None or value <= most)) or value != value:
            raise ToolError(
                f"'{name}' must be between {least} and {most:,}"
                if most is not None
                else f"'{name}' must be {least} or more"
            )
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
        raise ToolError(f"'{name}' is not valid text: it holds half of a surrogate pair") from None


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _shown(key: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in key[:40])
