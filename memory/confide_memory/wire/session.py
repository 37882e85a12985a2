"""Requests that every connection may send (PROTOCOL.md 9.1, 9.2): ping, tools, attaching a project,
key rotation, queued calls.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict

from confide_crypto.errors import RequestError
from confide_memory.forms import (
    UNREAD,
    Carried,
    Mark,
    Moment,
    Project,
    choice,
    count,
    flag,
    list_of,
    optional,
    text,
    text_up_to,
)
from confide_memory.wire.operation import Nothing, Operation

MAX_LABEL_CHARS: Final = 128
MAX_TOOLSETS: Final = 32
CUSTODIES: Final = ("server", "caller")
_MAX_NEEDS: Final = 256
_MOST: Final = 2**32


def _toolsets(body: Carried, name: str) -> list[str]:
    value = body.get(name, ["core"])
    if not isinstance(value, list) or len(value) > MAX_TOOLSETS or not all(isinstance(item, str) for item in value):
        raise RequestError("invalid", f"'{name}' must be a list of names")
    return value or ["core"]


def _label(body: Carried, name: str) -> str:
    return text(body, name)[:MAX_LABEL_CHARS] if name in body else ""


def _object(body: Carried, name: str) -> dict[str, object]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise RequestError("invalid", f"'{name}' must be an object")
    return value


def _definitions(body: Carried, name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise RequestError("invalid", f"'{name}' must be a list")
    return value


Toolsets = Annotated[list[str], _toolsets]
Label = Annotated[str, _label]
Definitions = Annotated[list[dict[str, object]], _definitions]
Object = Annotated[dict[str, object], _object]
"""An object that belongs to a tool: its arguments or its result."""


Receipt = TypedDict("Receipt", {"receipt": Mark})
CatalogueRequest = TypedDict("CatalogueRequest", {"toolsets": NotRequired[Toolsets]})


class CatalogueAnswer(TypedDict):
    tools: Definitions
    prompts: Definitions
    resourceTemplates: Definitions


class RotationStatement(TypedDict):
    """The statement that a device has a new key, signed by the old and the new key (PROTOCOL.md
    7.10). `verify_rotation` checks it.
    """

    key: str
    old: str
    new: str


class AttachRequest(TypedDict):
    project: Project
    toolsets: NotRequired[Toolsets]
    watches: NotRequired[Annotated[bool, flag(default=True)]]
    machine: NotRequired[Label]
    proxyVersion: NotRequired[Label]
    receipt: NotRequired[Label]


class Devices(TypedDict):
    """The state of the space's device list, which a device gets when it attaches to a project."""

    number: Annotated[int, count(_MOST, least=-1)]
    head: Annotated[str, optional(text_up_to(256), "")]
    epoch: NotRequired[Annotated[int, UNREAD]]
    custody: Annotated[str, choice(CUSTODIES)]
    needs: Annotated[Sequence[int], optional(list_of(_MAX_NEEDS, count(_MOST)), ())]


Limits = TypedDict("Limits", {"documentBytes": int})


class Attached(TypedDict):
    space: Mark
    project: NotRequired[Annotated[str, UNREAD]]
    daemonVersion: Annotated[str, optional(text_up_to(256), "")]
    limits: NotRequired[Annotated[Limits, UNREAD]]
    catalogue: Annotated[str, optional(text, "")]
    sealing: Devices | None
    receipt: Annotated[str, optional(text_up_to(256), "")]
    restores: Annotated[int, optional(count(_MOST), 0)]
    bounds: bool
    forgotten: Annotated[str, optional(text_up_to(64), "")]
    backTo: Moment | None


_Waited = TypedDict("_Waited", {"class": NotRequired[Annotated[str, UNREAD]]})


class CallRequest(_Waited):
    """A tool call that a device has queued to be sent later. The code that executes it reads the
    other fields.
    """

    project: Project
    operation: NotRequired[Annotated[object, UNREAD]]
    said: NotRequired[Annotated[object, UNREAD]]
    tool: NotRequired[Annotated[object, UNREAD]]
    arguments: NotRequired[Annotated[object, UNREAD]]
    seen: NotRequired[Annotated[object, UNREAD]]


Made = TypedDict("Made", {"result": NotRequired[Annotated[object, UNREAD]]})


class LookupRequest(TypedDict):
    project: Project
    tool: str
    arguments: Object
    meta: NotRequired[Annotated[dict[str, Any], optional(_object, {})]]


Found = TypedDict("Found", {"result": Object})


PING: Final = Operation("ping", Nothing, Nothing)
RECEIPT: Final = Operation("receipt", Nothing, Receipt)
CATALOGUE: Final = Operation("catalogue", CatalogueRequest, CatalogueAnswer)
ROTATE: Final = Operation("rotate", RotationStatement, Nothing, is_free=True)
ATTACH: Final = Operation("attach", AttachRequest, Attached)
CALL: Final = Operation("call", CallRequest, Made, is_free=True, is_large=True)
LOOKUP: Final = Operation("lookup", LookupRequest, Found)
