"""How a tool is described to a client.

The parts that a client puts before its model (name, description, input schema) cost tokens in every session of every user, so they
say only what an agent needs to choose the tool and fill it in; a test counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from confide_memory.tools.arguments import Parameters
from confide_memory.tools.call import ALSO_TAKES, LONG_JOB, OFFLINE

Offline = Literal["queue", "local", "fail"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of the catalogue."""

    name: str
    title: str
    description: str
    properties: dict[str, dict[str, Any]]  # the JSON schemas of the parameters, by their names on the wire (camelCase)
    output: dict[str, Any]  # the JSON schema of `structuredContent`
    required: tuple[str, ...] = ()
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    # what the proxy does with a call while the daemon cannot be reached (tools design, last section)
    offline: Offline = "fail"
    is_long: bool = False  # exempt from the ten seconds that every other call has
    # the parameters that are listed only beside the tools of another group, where they cost what they are worth; they are taken all the
    # same
    shown_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> Parameters:
        """What a call's arguments are checked against."""
        return Parameters(self.name, self.properties, self.required)

    def wire(self, groups: Collection[str] = ()) -> dict[str, Any]:
        """The tool as `tools/list` carries it, beside these groups."""
        hidden = {name for name, group in self.shown_with.items() if group not in groups}
        shown = {name: schema for name, schema in self.properties.items() if name not in hidden}
        schema: dict[str, Any] = {"type": "object", "properties": shown}
        if self.required:
            schema["required"] = list(self.required)
        meta: dict[str, Any] = {OFFLINE: self.offline}
        if self.is_long:
            meta[LONG_JOB] = True
        if hidden:
            # For the proxy, which checks calls that the daemon does not see; clients put none of `_meta` before their model.
            meta[ALSO_TAKES] = {name: self.properties[name] for name in self.properties if name in hidden}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "outputSchema": self.output,
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent,
                "openWorldHint": False,
            },
            "_meta": meta,
        }


def record(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of an object that has exactly these properties, all required but the `optional` ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


TEXT: dict[str, Any] = {"type": "string"}
MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
NUMBER: dict[str, Any] = {"type": "number"}
FLAG: dict[str, Any] = {"type": "boolean"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
COUNTS: dict[str, Any] = {"type": "object", "additionalProperties": COUNT}
PROJECT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 256}
PATH: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 512}

# What a tool that changes something answers beside its own.
OUTCOME: dict[str, Any] = {
    "queued": {**FLAG, "description": "Kept on this machine until the daemon can be reached"},
    "onDisk": {**FLAG, "description": "The file on this machine is as the daemon has it"},
    "warnings": TEXTS,
}
