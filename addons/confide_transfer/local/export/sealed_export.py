"""The sealed secrets of an export, in the file `sealed.jsonl` beside its notes.

The first line has the roster, the list of the space's devices. Each further line is a sealed record
as the daemon stores it. So only a device of that space can open them. To restore them in a space
with other devices, a device of both spaces opens each record, seals it again, and puts the new
placeholders into the texts.
"""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto import portable
from confide_crypto.errors import RequestError, SealingError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing import placeholder
from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.record import MAX_RECORD, SealedRecord
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_memory.documents import RequestChannel
from confide_memory.forms import to_base64
from confide_memory.wire.sealing import RECORD
from confide_proxy.devices import roster_client
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.roster_client import records
from confide_proxy.errors import UnfitAnswerError, UnsealableError
from confide_proxy.sealing.sealer import Secret
from confide_transfer.errors import ExportError
from confide_transfer.local.export import export_manifest
from confide_transfer.local.export.export_manifest import SECRETS

MAX_BYTES: Final = 1024 * 1024 * 1024
"""Limit of the file: its records are held in memory while they are opened."""
_DEADLINE_S: Final = 30.0
_AT_ONCE: Final = 16
_PAGE: Final = 1000
_MAX_NESTED: Final = 16
_NOT_LISTED: Final = frozenset({"denied", "invalid"})
"""Error codes for a device that may not list all records, and of a daemon that has no records."""


@dataclass(frozen=True, slots=True)
class OpenedRecords:
    """The sealed records of an export that this device can restore.

    Attributes:
        secrets: the secrets to seal in the target space, by their placeholders in the export.
        names: the new placeholders, by the placeholders in the export.
        closed_records: number of records that this device cannot open.
    """

    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    closed_records: int = 0

    def rename_in(self, text: str) -> str:
        """Replace the export's placeholders in a text by the new ones."""
        return placeholder.replace(text, lambda old: self.names.get(str(old)))


async def write(link: RequestChannel, into: Path, named: set[bytes], *, is_whole: bool) -> int:
    """Write the sealed records and their roster, and return the number of records. If there are
    none, delete the file.

    With `is_whole`, write all records of the space. Otherwise keep the records in the file, and add
    those that the export's texts refer to (`named`).

    Raise ExportError if the file cannot be written; RequestError, ConnectionLost or TimeoutError if
    the daemon refuses or cannot be reached.
    """
    lines = {} if is_whole else dict(_former(into / SECRETS))
    ids = await _list_ids(link) if is_whole else None
    wanted = sorted(named) if ids is None else ids
    for at in range(0, len(wanted), _AT_ONCE):
        for record in await asyncio.gather(*(_record(link, secret_id) for secret_id in wanted[at : at + _AT_ONCE])):
            if record is not None:
                lines[record.secret_id.hex()] = export_manifest.to_json(
                    {"id": record.secret_id.hex(), "kind": record.kind, "record": to_base64(record.encode())}
                )
    if not lines:
        with suppress(OSError):
            (into / SECRETS).unlink()
        return 0
    roster = export_manifest.to_json(
        {"roster": [to_base64(entry) for entry in (await roster_client.roster(link, 0)).entries]}
    )
    export_manifest.put(
        into / SECRETS, "".join(f"{line}\n" for line in [roster, *(lines[name] for name in sorted(lines))])
    )
    return len(lines)


async def open_records(tree: Path, keyring: Keyring) -> OpenedRecords:
    """Open the records of an export as far as this device can.

    Raise ExportError if the file is damaged or too large, UnsealableError if this device has no
    keys to seal the records again, and KeyFileError, KeyLockedError or KeyringError if its own key
    cannot be used.
    """
    place = tree / SECRETS
    if place.is_symlink() or not place.is_file():
        return OpenedRecords()
    return await asyncio.to_thread(_open_records, place, keyring.keys, await keyring.identity())


def _open_records(place: Path, keys: SpaceKeys | None, identity: Identity) -> OpenedRecords:
    if place.stat().st_size > MAX_BYTES:
        raise ExportError(f"{place} is too large to hold sealed records")
    lines = _lines(place)
    try:
        roster = Roster.read(b64decode(entry, validate=True) for entry in next(lines)["roster"])
        own = [roster.open(WrapKey(identity))] if identity.public_key in roster.devices else []
    except (StopIteration, KeyError, TypeError, ValueError, SealingError):
        # The records may still belong to this space.
        own = []
    own += [keys] if keys is not None else []
    found: dict[str, Secret] = {}
    closed = 0
    for line in lines:
        try:
            record = SealedRecord.parse(b64decode(line["record"], validate=True))
        except (KeyError, TypeError, ValueError, SealingError) as error:
            raise ExportError(f"{place} holds what is no sealed record", hint="is it whole? export again") from error
        for each in own:
            with suppress(SealingError):
                found[str(Placeholder(record.kind, record.secret_id))] = Secret(record.kind, record.open(each))
                break
        else:
            closed += 1
    if found and keys is None:
        raise UnsealableError(next(iter(found.values())).kind)
    return _rename(found, keys, closed) if keys is not None else OpenedRecords(closed_records=closed)


def _rename(found: Mapping[str, Secret], keys: SpaceKeys, closed: int) -> OpenedRecords:
    """Return the secrets with their placeholders in the space of `keys`.

    A sealed note may name other secrets, whose placeholders change too.
    """
    secrets: dict[str, Secret] = {}
    names: dict[str, str] = {}

    def name(old: str, depth: int = 0) -> str | None:
        secret = found.get(old)
        if secret is None or depth > _MAX_NESTED or old in names:
            return names.get(old)
        text = secret.value.decode("utf-8", "surrogatepass")
        value = placeholder.replace(text, lambda inner: name(str(inner), depth + 1)).encode("utf-8", "surrogatepass")
        secrets[old] = Secret(secret.kind, value)
        names[old] = str(Placeholder(secret.kind, keys.secret_id(secret.kind, value)))
        return names[old]

    for old in found:
        name(old)
    return OpenedRecords(secrets, names, closed)


async def _list_ids(link: RequestChannel) -> list[bytes] | None:
    """Return the ids of all records, or None if this device may not list them."""
    try:
        return [bytes.fromhex(one["id"]) async for page in records(link) for one in page]
    except RequestError as error:
        if error.code in _NOT_LISTED:
            return None
        raise


async def _record(link: RequestChannel, secret_id: bytes) -> SealedRecord | None:
    """Return a record, or None if no record has this id, as in a text about placeholders."""
    try:
        answer = await RECORD.ask(link, {"id": secret_id}, timeout_s=_DEADLINE_S)
        record = SealedRecord.parse(answer["record"])
    except RequestError as error:
        if error.code in (*_NOT_LISTED, "not_found"):
            return None
        raise
    except (ValueError, SealingError) as error:
        raise UnfitAnswerError from error
    if record.secret_id != secret_id:
        raise UnfitAnswerError
    return record


def _former(place: Path) -> Iterator[tuple[str, str]]:
    """Yield the ids and lines of the records in an existing file, except damaged ones."""
    if place.is_symlink() or not place.is_file() or place.stat().st_size > MAX_BYTES:
        return
    with suppress(ExportError):
        for line in _lines(place):
            if isinstance(line.get("id"), str) and isinstance(line.get("record"), str):
                yield line["id"], export_manifest.to_json(line)


def _lines(place: Path) -> Iterator[dict[str, Any]]:
    try:
        descriptor = os.open(place, os.O_RDONLY | portable.NO_LINK | portable.CLOSED)
        with open(descriptor, encoding="utf-8", newline="\n") as file:
            while line := file.readline(4 * MAX_RECORD):
                said = json.loads(line)
                if not isinstance(said, dict):
                    raise ValueError
                yield said
    except (OSError, ValueError, RecursionError):
        raise ExportError(f"{place} cannot be read", hint="is it whole? export again") from None
