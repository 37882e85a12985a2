"""A record as it leaves the machine: its texts sealed, and an id that tells nothing of what was in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confide_crypto.sealing.placeholder import STANDIN
from confide_proxy.sealing import arguments
from confide_proxy.sealing.detection import scanner
from confide_proxy.transfer.fields import as_json
from confide_proxy.transfer.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confide_proxy.sealing.sealer import Sealer, Secret

SOURCE: Final = "imports"
_CALLED: Final = ("title", "type", "category", "entity", "source", "status")
_TEXTS: Final = ("content", *_CALLED)
_LISTS: Final = ("tags", "keywords")
LEAST: Final = 0.6
"""From which confidence on a word is no name."""


_RUN: Final = 8
"""So many letters and digits of a credential in a row tell of it."""


class Tellings:
    """Parts of credentials. What a note is called is made of its text, cut off and without markup, so that nothing knows them for one."""

    def __init__(self, credentials: Iterable[str]) -> None:
        """`credentials` of the note."""
        bare = list(map(_bare, credentials))
        self._runs = {value[at : at + _RUN] for value in bare for at in range(max(1, len(value) - _RUN + 1))} - {""}
        self._sizes = sorted({len(run) for run in self._runs})

    def without(self, text: str) -> str | None:
        """The text up to the first of them; None where nothing is left."""
        masked = STANDIN.sub(lambda found: "\0" * len(found[0]), text)
        places = [at for at, letter in enumerate(masked) if letter.isalnum() or letter == "\0"]
        bare = "".join(masked[at].lower()[0] for at in places)
        for begin, at in enumerate(places):
            if any(bare[begin : begin + size] in self._runs for size in self._sizes):
                return f"{text[:at]}…" if text[:at].strip() else None
        return text


def _bare(text: str) -> str:
    return "".join(letter.lower()[0] for letter in text if letter.isalnum())


def _is_of(title: str, text: str) -> bool:
    return _bare(title) in _bare(text)


class SealedRecord(NamedTuple):
    """What is sent of a record; the daemon has to have the records of its secrets first."""

    record: Record
    secrets: tuple[Secret, ...]


def seal(record: Record, sealer: Sealer) -> SealedRecord:
    """The record with a stand-in for each credential in what it says: a text, a list of words, a value of its metadata.

    Where its metadata says `sensitive: true`, all of its content is one secret.

    Raises:
        BlockedError, UnsealableError, KeyFileError: as `Sealer.seal`.
        ToolError: its metadata is nested too deep to be looked through.
    """
    said: dict[str, Any] = {name: getattr(record, name) for name in _TEXTS}
    said |= {name: list(getattr(record, name)) for name in _LISTS}
    said["metadata"] = as_json(record.metadata)
    if not arguments.gives_reason(said) and record.metadata.get("sensitive") is not True:
        return SealedRecord(record, ())
    whole = "content" if record.metadata.get("sensitive") is True else None
    found: set[str] = set()
    sealed, secrets = arguments.seal(said, sealer, SOURCE, whole=whole, found=found)
    tellings = Tellings(found)
    sealed |= {name: tellings.without(sealed[name]) for name in _CALLED if sealed[name]}
    sealed |= {name: tuple(filter(None, map(tellings.without, sealed[name]))) for name in _LISTS}
    if whole and _is_of(record.title or "", record.content):
        sealed["title"] = None
    named = id_of(record, is_told=sealed["entity"] == record.entity)
    return SealedRecord(replace(record, **sealed, id=named), secrets)


def seal_origin(note: dict[str, Any], sealer: Sealer) -> tuple[dict[str, Any], tuple[Secret, ...]]:
    """The body of a note with what says where it comes from sealed too, as the address of an export may hold its key. Raises as `seal`."""
    metadata = note.get("metadata") or {}
    about = {name: metadata[name] for name in ("origin", "relations") if name in metadata}
    if not arguments.gives_reason(about):
        return note, ()
    sealed, secrets = arguments.seal(about, sealer, SOURCE)
    return {**note, "metadata": {**metadata, **sealed}}, secrets


def id_of(record: Record, *, is_told: bool = True) -> str:
    """The id of the note that a record becomes; its entity is in it unless that is a credential, or `is_told` is False."""
    if record.entity is None or (is_told and not scanner.scan(record.entity, LEAST)):
        return record.note_id
    return replace(record, entity=None).note_id
