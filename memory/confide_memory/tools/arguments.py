"""Validation of a tool call's arguments by the tool's own input schema.

The schemas use few keywords, and an agent needs an error message that it can act on. So this code
reads the schema itself instead of translating the errors of a validator library. Both spellings of
a name are valid (`maxResults`, `max_results`). Models and inspectors send strings instead of other
values; a string is converted if it can mean only one value (`_convert`).

Several clients fill in every option that a tool lists, and send null, "", [] or [""] for an option
that they do not use. A blank option counts as missing, and blank entries of a list are dropped. For
some options (`Parameters.clears`) a blank clears the stored value. It does so only if the call does
not fill in everything, which a blank in an option that cannot be cleared shows.

The daemon validates every call. A device validates the calls that it answers itself or queues, with
the schemas of its catalogue, since a call that the daemon would refuse must not be queued.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from confide_crypto.errors import printable
from confide_memory.documents import to_nfc
from confide_memory.errors import ToolError
from confide_memory.tools.call import ALSO_TAKES, CLEARS, NO_OBJECT, OBJECT_HINT, is_blank, spelled_out

MAX_OBJECT_BYTES = 16 * 1024
MAX_ITEMS = 64
"""Entries of a list whose schema sets no limit."""

MAX_PROBLEMS = 16
"""Problems that one error message reports."""

MAX_NUMBER_CHARS = 20
"""Characters of a number that is sent as a string."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]+")

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a string", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "array": ("a list", (list,)),
    "object": ("an object", (dict,)),
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a tool.

    Attributes:
        name: the tool's name.
        properties: the JSON schemas of the parameters, by their names on the wire (camelCase).
        required: the names of the parameters that a call must have.
        listed: the names that an error message lists; None for all.
        is_own: True if the schemas are this program's. The schemas of a catalogue may be a newer
            daemon's: then unknown keywords are accepted, the daemon checks the sizes of objects,
            and error messages say less.
        clears: options that a blank value clears. None for a tool of an older daemon that does not
            say which; then the daemon handles blank values.
    """

    name: str
    properties: Mapping[str, Mapping[str, Any]]
    required: Sequence[str] = ()
    listed: Collection[str] | None = None
    is_own: bool = True
    clears: Collection[str] | None = ()

    @classmethod
    def of_catalogue(cls, tool: Mapping[str, Any]) -> Self:
        """Return the parameters of a tool from its entry in a `tools/list` result."""
        schema = tool["inputSchema"]
        listed: Mapping[str, Any] = schema.get("properties", {})
        meta = tool.get("_meta", {})
        properties = {**listed, **meta.get(ALSO_TAKES, {})}
        is_read_only = tool.get("annotations", {}).get("readOnlyHint", False)
        clears = meta.get(CLEARS, () if is_read_only else None)
        return cls(tool["name"], properties, schema.get("required", ()), listed, is_own=False, clears=clears)


def check(parameters: Parameters, given: Any) -> dict[str, Any]:
    """Check the arguments of a tool call. Return them by their names on the wire, with defaults
    filled in. The arguments may also be a JSON string.

    Raises ToolError, which names all problems: unknown names, missing required ones, and values
    that do not fit their schema.
    """
    named, problems = _by_wire_name(parameters, _object(given))
    checked: dict[str, object] = {}
    for name, value in _meant_ones(parameters, named).items():
        try:
            if name in parameters.required and isinstance(value, str | list) and is_blank(value):
                raise ToolError(f"'{name}' is empty")
            checked[name] = _value(name, value, parameters.properties[name], is_own=parameters.is_own)
        except ToolError as error:
            problems.append(error)
    if isinstance(path := checked.get("path"), str):
        checked["path"] = to_nfc(path).removeprefix("./")
    missing = [name for name in parameters.required if name not in named]
    if missing:
        hint = f"{parameters.name} needs {', '.join(parameters.required)}" if parameters.is_own else None
        problems += [ToolError(f"'{name}' is missing", hint=hint) for name in missing]
    if problems:
        raise all_of(problems)
    for name, schema in parameters.properties.items():
        if name not in checked and "default" in schema:
            checked[name] = schema["default"]
    return checked


def _object(given: Any) -> Mapping[str, object]:
    given = spelled_out(given)
    if not isinstance(given, Mapping | None):
        raise ToolError(NO_OBJECT, hint=OBJECT_HINT)
    return given or {}


def _by_wire_name(parameters: Parameters, given: Mapping[str, object]) -> tuple[dict[str, object], list[ToolError]]:
    """Return the values that are not null by their wire names, and the problems of the names."""
    named: dict[str, object] = {}
    problems: list[ToolError] = []
    for key, value in given.items():
        if len(problems) == MAX_PROBLEMS:
            break
        try:
            name = _wire_name(parameters, key)
        except ToolError as error:
            problems.append(error)
            continue
        if name in named:
            hint = f"send {name} alone, without {_snake(name)}" if parameters.is_own else None
            problems.append(ToolError(f"'{name}' is given twice", hint=hint))
        elif value is not None:
            named[name] = value
    return named, problems


def _meant_ones(parameters: Parameters, named: Mapping[str, object]) -> dict[str, object]:
    """Return the values without blank options, but for those that a blank clears, and without blank
    entries of lists.
    """
    clears = parameters.clears
    if clears is None:
        return dict(named)
    meant = {}
    options = named.keys() - set(parameters.required)
    kinds_of = {name: _kinds_of(parameters.properties[name]) for name in named}
    spelled = {
        name: _convert(value, kinds_of[name]) if isinstance(value, str) and "string" not in kinds_of[name] else value
        for name, value in named.items()
    }
    is_filled_in = any(is_blank(spelled[name]) and name not in clears for name in options)
    for name, value in spelled.items():
        kinds = kinds_of[name]
        if name not in options or not is_blank(value):
            meant[name] = [one for one in value if not is_blank(one)] if isinstance(value, list) else value
        elif name in clears and not is_filled_in:
            meant[name] = "" if "string" in kinds else [] if "array" in kinds else {}
    return meant


def all_of(problems: Sequence[ToolError]) -> ToolError:
    """Join several problems into one error, so that an agent can correct all of them with its next
    call.
    """
    if len(problems) == 1:
        return problems[0]
    hints = dict.fromkeys(error.hint for error in problems if error.hint)
    return ToolError("; ".join(str(error) for error in problems), hint="; ".join(hints) or None)


def _wire_name(parameters: Parameters, key: str) -> str:
    names = {_snake(name): name for name in parameters.properties}
    if key in parameters.properties:
        return key
    if key in names:
        return names[key]
    near = difflib.get_close_matches(_snake(key), names, n=1) if parameters.is_own else []
    known = parameters.properties if parameters.listed is None else parameters.listed
    takes = ", ".join(known) or ("none" if parameters.is_own else "")
    hint = f"did you mean '{names[near[0]]}'?" if near else f"{parameters.name} takes: {takes}"
    raise ToolError(f"unknown parameter '{printable(key[:40])}'", hint=hint)


def _value(name: str, value: Any, schema: Mapping[str, Any], *, is_own: bool) -> Any:
    asked = _kinds_of(schema)
    known = [_KINDS.get(one, ("", (object,))) for one in asked]
    kind, types = " or ".join(words for words, _ in known), tuple(one for _, each in known for one in each)
    if isinstance(value, str) and "string" not in asked:
        value = _convert(value, asked)
    if asked == ["integer"] and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one number type, and some clients write 8 as 8.0.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        raise ToolError(f"'{name}' must be {kind}" + (f", not {_kind_of(value)}" if is_own else ""))
    if "enum" in schema and value not in schema["enum"]:
        raise ToolError(f"'{name}' must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        _check_text(name, value, schema)
    elif isinstance(value, list):
        return _items(name, value, schema, is_own=is_own)
    elif isinstance(value, dict) and is_own:
        _check_object(name, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(name, value, schema)
    return value


def _kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """List the types that a value may have. Several are in `anyOf`, since some clients' validators
    warn about a list of types.
    """
    said = schema.get("type", [one.get("type", "") for one in schema.get("anyOf", ())] or "")
    return said if isinstance(said, list) else [said]


def _convert(text: str, asked: Sequence[str]) -> Any:
    """Convert a string where no string is valid: to the number, boolean, list or object that it
    spells, or to a list with it; return other strings unchanged.
    """
    words = text.strip()
    if "boolean" in asked:
        return {"true": True, "false": False}.get(words.lower(), text)
    if len(words) <= MAX_NUMBER_CHARS and ("integer" in asked or "number" in asked):
        if _WHOLE.fullmatch(words):
            return int(words)
        if _DECIMAL.fullmatch(words):
            return float(words)
    if ("array" in asked and words.startswith("[")) or ("object" in asked and words.startswith("{")):
        try:
            spelled = json.loads(words)
        except (ValueError, RecursionError):
            spelled = None
        if isinstance(spelled, list | dict):
            return spelled
    return [text] if "array" in asked else text


def split_words(given: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a list option such as `tags`, in order. Clients also send several of them
    in one string, with commas between, and tags with their "#".
    """
    words = (word.strip().lstrip("#") for one in given for word in one.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


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
        # JSON can escape half of a surrogate pair, which no file can hold.
        raise ToolError(f"'{name}' is not valid text: it holds half of a surrogate pair") from None


def _check_range(name: str, value: float, schema: Mapping[str, Any]) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    # A comparison with NaN is false, so this tests that the value is inside.
    inside = (least is None or value >= least) and (most is None or value <= most)
    if not inside or value != value:
        bounds = f"between {least} and {most:,}" if most is not None else f"{least} or more"
        raise ToolError(f"'{name}' must be {bounds}")


def _check_object(name: str, value: dict[str, object]) -> None:
    try:
        size = len(json.dumps(value, ensure_ascii=False).encode())
    except (UnicodeEncodeError, RecursionError):
        raise ToolError(f"'{name}' is not an object of plain JSON values") from None
    if size > MAX_OBJECT_BYTES:
        raise ToolError(f"'{name}' is too large: {size:,} bytes", hint=f"the limit is {MAX_OBJECT_BYTES:,}")


def _items(name: str, values: list[Any], schema: Mapping[str, Any], *, is_own: bool) -> list[Any]:
    most = schema.get("maxItems", MAX_ITEMS)
    if len(values) > most:
        raise ToolError(f"'{name}' has {len(values)} entries", hint=f"the limit is {most}")
    items = schema.get("items", {})
    return [_value(f"{name}[{number}]", item, items, is_own=is_own) for number, item in enumerate(values)]


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    for kind, types in _KINDS.values():
        if isinstance(value, types):
            return kind
    return "null" if value is None else "an object"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
