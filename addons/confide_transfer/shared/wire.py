"""The requests and answers for import, export and refill (PROTOCOL.md 9.6)."""

from typing import Annotated, Final, NotRequired, TypedDict

from confide_memory.forms import (
    MAX_IMPORTED,
    MAX_REFILLED,
    Told,
    choice,
    is_true,
    items,
    raw,
)
from confide_memory.wire.files import OfProject
from confide_memory.wire.operation import Operation

MAX_EXPORTED: Final = 100_000
"""Limit of documents in one answer, which has at most 16 MiB."""
BECAME: Final = ("new", "known", "identical", "deleted", "refused")
REFILLED: Final = ("new", "same", "differs", "refused")


class ImportRequest(OfProject):
    """Notes to import into a project. The daemon checks each record by itself, so one bad record
    does not fail the request.
    """

    dryRun: NotRequired[bool]
    again: NotRequired[bool]
    records: Annotated[list[dict[str, object]], items(MAX_IMPORTED)]


class Became(TypedDict):
    state: Annotated[str, choice(BECAME)]
    id: NotRequired[Told]
    why: NotRequired[Told]
    project: NotRequired[Told]


Imported = TypedDict("Imported", {"results": Annotated[list[Became], MAX_IMPORTED]})


class ExportRequest(OfProject):
    after: str


class Exported(TypedDict):
    path: str
    text: NotRequired[str | None]
    problem: NotRequired[Told]
    note: NotRequired[Annotated[object, raw]]


ExportPage = TypedDict("ExportPage", {"documents": Annotated[list[Exported], MAX_EXPORTED], "complete": bool})


class RefillRequest(OfProject):
    dryRun: NotRequired[Annotated[bool, is_true]]
    documents: Annotated[list[dict[str, str]], items(MAX_REFILLED)]


Refilled = TypedDict("Refilled", {"state": Annotated[str, choice(REFILLED)], "why": NotRequired[Told]})
RefillAnswer = TypedDict("RefillAnswer", {"results": Annotated[list[Refilled], MAX_REFILLED]})


IMPORT: Final = Operation("import", ImportRequest, Imported, is_large=True)
EXPORT: Final = Operation("export", ExportRequest, ExportPage)
REFILL: Final = Operation("refill", RefillRequest, RefillAnswer, is_large=True)
