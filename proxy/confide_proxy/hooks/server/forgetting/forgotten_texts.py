"""The signed records of forgotten texts that this device keeps, and their effect on its own files
(PROTOCOL.md 9.11).

The device keeps every record with the key of its hashes. A daemon that was restored from an older
backup gets the records again at the next connection, and removes the texts again. On this device
each record is applied once: it removes the text from queued calls, briefings and the files of
add-ons. Memory files stay, unless the record says otherwise; in that case the daemon sends their
change like any other.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_crypto.sealing.roster import Roster
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import ForgetGuard, SignedRecord, ids_digest
from confide_memory.wire.forgotten import FORGET_SYNC, FORGET_TAKE, ForgetTakeRequest, hashes_of, packed_hashes
from confide_memory.wire.session import Attached
from confide_proxy import addons
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import StateError
from confide_proxy.hooks.server import usage
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.offline.journal import Journal
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

DEADLINE_S: Final = 30.0
TAKE_DEADLINE_S: Final = 600.0
_LOCK_S: Final = 5.0
_MOST_ROUNDS: Final = 10_000
_MOST_CACHE: Final = 1 << 20
_PASSES: Final = 16
"""Passes over the files, of which sessions may write some meanwhile."""


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """A signed record of forgotten texts that this device keeps.

    Attributes:
        key: the key of the record's hashes.
        lifted: hashes of texts that a person has stored again, so that they are no longer
            forgotten.
        is_done: True if the record was applied to this device's own files.
        is_refused: True if the record came from a device that had been removed: it has no effect
            here.
    """

    signed: SignedRecord
    key: bytes
    lifted: frozenset[bytes] = frozenset()
    is_done: bool = False
    is_refused: bool = False


class ForgetRecords:
    """The records of forgotten texts on this device, by space and record id. Methods block briefly,
    and raise StateError if the disk fails.
    """

    def __init__(self, paths: ProxyPaths) -> None:
        self._file = paths.forgotten

    def of(self, space: str) -> dict[bytes, KnownRecord]:
        """Return the records of a space by record id. `space` is the id of its roster in hex."""
        return dict(self._read().get(space, {}))

    def add(self, space: str, record: KnownRecord) -> None:
        """Store a record. If this device has it already, its applied state and its lifted hashes
        are kept.
        """
        with self._changing() as spaces:
            known = spaces.setdefault(space, {})
            before = known.get(record.signed.record.id)
            if before is not None and not before.is_refused:
                lifted = before.lifted | record.lifted
                is_done = before.is_done or record.is_done
                record = replace(record, lifted=lifted, is_done=is_done, is_refused=False)
            known[record.signed.record.id] = record

    def guards(self) -> list[ForgetGuard]:
        """Return the filters that recognize the forgotten texts of all spaces of this device."""
        stamp = _stamp(self._file)
        return list(_guards(self._file, stamp)) if stamp else []

    def is_forgotten(self, text: str) -> bool:
        """Return True if a text contains anything that was forgotten."""
        return any(guard.is_in(text) for guard in self.guards())

    def _read(self) -> dict[str, dict[bytes, KnownRecord]]:
        try:
            table = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(self._file, error) from error
        except (ValueError, RecursionError):
            return {}  # damaged: the daemon has them
        return parse_records(table)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, dict[bytes, KnownRecord]]]:
        try:
            fd = lock_file(self._file.with_suffix(".lock"))
            try:
                if not try_lock(fd, wait_s=_LOCK_S):
                    raise OSError(None, "another process holds it for too long")
                spaces = self._read()
                yield spaces
                atomic.write(self._file, json.dumps(_records_json(spaces)).encode())
            finally:
                os.close(fd)
        except OSError as error:
            raise StateError(self._file, error) from error


def parse_records(table: Any) -> dict[str, dict[bytes, KnownRecord]]:
    """Return the records in the parsed JSON of their file, by space and record id. Damaged records
    are skipped.
    """
    spaces: dict[str, dict[bytes, KnownRecord]] = {}
    for space, rows in table.items() if isinstance(table, dict) else ():
        known = spaces.setdefault(str(space), {})
        for row in rows if isinstance(rows, list) else ():
            try:
                signed = SignedRecord(base64.b64decode(row["record"]), bytes.fromhex(row["signature"]))
                lifted = frozenset(map(bytes.fromhex, row["lifted"]))
                is_refused = row.get("refused") is True
                found = KnownRecord(signed, bytes.fromhex(row["key"]), lifted, row["done"] is True, is_refused)
                known[signed.record.id] = found
            except (ValueError, KeyError, TypeError, UnfitAnswerError):
                log.warning("a damaged record of what was forgotten is left out")
    return spaces


def _records_json(spaces: dict[str, dict[bytes, KnownRecord]]) -> dict[str, list[dict[str, object]]]:
    return {
        space: [
            {
                "record": base64.b64encode(one.signed.data).decode(),
                "signature": one.signed.signature.hex(),
                "key": one.key.hex(),
                "lifted": sorted(each.hex() for each in one.lifted),
                "done": one.is_done,
                "refused": one.is_refused,
            }
            for one in known.values()
        ]
        for space, known in spaces.items()
    }


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=4)
def _guards(file: Path, _stamp: tuple[int, int]) -> tuple[ForgetGuard, ...]:
    try:
        spaces = parse_records(json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(guard for known in spaces.values() for guard in guards_of(known.values()))


def guards_of(records: Iterable[KnownRecord]) -> list[ForgetGuard]:
    """Return the filters that recognize the texts of these records, one for each key. Refused
    records are skipped.
    """
    by_key: dict[bytes, list[KnownRecord]] = {}
    for one in records:
        if one.is_refused:
            continue
        by_key.setdefault(one.key, []).append(one)
    return [
        ForgetGuard(key, [one.signed.record for one in some], frozenset().union(*(one.lifted for one in some)))
        for key, some in by_key.items()
    ]


async def exchange(paths: ProxyPaths, link: RequestChannel, keyring: Keyring, attached: Attached) -> int:
    """Exchange records of forgotten texts with the daemon, so that both have all of them, and apply
    the new ones to this device's files. Return how many were applied.

    Raises StateError, RequestError, ConnectionLost, TimeoutError or SpaceKeysError if that fails;
    the next connection continues.
    """
    roster = keyring.roster
    if roster is None:
        return 0
    space = roster.space.hex()
    records = ForgetRecords(paths)
    known = await asyncio.to_thread(records.of, space)
    is_even = attached["forgotten"] == ids_digest(known)
    if is_even and not _orphans(known, roster) and all(one.is_done for one in known.values()):
        return 0
    for _ in range(_MOST_ROUNDS if not is_even else 0):
        answer = await FORGET_SYNC.ask(link, {"have": [one.hex() for one in known]}, timeout_s=DEADLINE_S)
        for item in answer["records"]:
            found = KnownRecord(SignedRecord(item["record"], item["signature"]), item["key"], hashes_of(item["lifted"]))
            if not _is_of_space(found, roster):
                log.warning("the daemon shows a record of forgetting that no device of the space has signed")
                return 0
            if found.signed.record.by not in roster.devices:
                log.warning("a record of forgetting by a device that was removed has no effect here")
                found = replace(found, is_done=True, is_refused=True)
            await asyncio.to_thread(records.add, space, found)
            known[found.signed.record.id] = found
        for wanted in map(bytes.fromhex, answer["wanted"]):
            if (one := known.get(wanted)) is not None and not one.is_refused:
                await give(link, one)
        if answer["complete"] or not answer["records"]:
            break
    if orphans := _orphans(known, roster):
        await _sign_again(paths, link, keyring, orphans)
    return await apply(paths, link, roster)


def _orphans(known: Mapping[bytes, KnownRecord], roster: Roster) -> list[KnownRecord]:
    """Return the records that this device took while their signer was on the roster, which it is no
    more, and which no other device has signed again.
    """
    return [
        one
        for one in known.values()
        if not one.is_refused
        and one.signed.record.by not in roster.devices
        and one.signed.record.signed_again_id not in known
    ]


async def _sign_again(paths: ProxyPaths, link: RequestChannel, keyring: Keyring, orphans: list[KnownRecord]) -> None:
    """Vouch for the records of a removed device, so that they count on devices that lack them."""
    identity = await keyring.identity()
    for one in orphans:
        record = one.signed.record
        again = replace(record, id=record.signed_again_id, by=identity.public_key)
        renewed = replace(one, signed=again.sign(identity))
        await asyncio.to_thread(ForgetRecords(paths).add, record.space, renewed)
        await give(link, renewed)


async def give(link: RequestChannel, one: KnownRecord) -> int:
    """Send a record to the daemon, which removes the texts. Return the number of documents that it
    removed or changed.
    """
    body: ForgetTakeRequest = {
        "record": one.signed.data,
        "signature": one.signed.signature,
        "key": one.key,
        "lifted": packed_hashes(one.lifted),
    }
    answer = await FORGET_TAKE.ask(link, body, timeout_s=TAKE_DEADLINE_S)
    return answer["documents"]


async def apply(paths: ProxyPaths, link: RequestChannel, roster: Roster) -> int:
    """Remove the texts of new records from this device's own files, and report that to the daemon.
    Return the number of these records.
    """
    space = roster.space.hex()
    records = ForgetRecords(paths)
    known = await asyncio.to_thread(records.of, space)
    due = [one for one in known.values() if not one.is_done]
    if due:
        await asyncio.to_thread(scrub, paths, guards_of(due))
        for one in due:
            await asyncio.to_thread(records.add, space, replace(one, is_done=True))
        done = [one.signed.record.id.hex() for one in due]
        have = [one.hex() for one in known]
        await FORGET_SYNC.ask(link, {"have": have, "done": done}, timeout_s=DEADLINE_S)
    return len(due)


def _is_of_space(one: KnownRecord, roster: Roster) -> bool:
    """Return True if a device that is or was on the roster has signed the record, for this space."""
    try:
        record = one.signed.record
    except UnfitAnswerError:
        return False
    is_ours = record.by in roster.devices or record.by in roster.removed
    return is_ours and record.space == roster.space.hex() and one.signed.is_signed


def scrub(paths: ProxyPaths, guards: list[ForgetGuard]) -> int:
    """Remove forgotten texts from queued calls, briefings, counters of notes, and the files of
    add-ons. Return how many entries were removed. Blocks.

    Raises StateError, JournalError or KeyFileError if a file cannot be read or changed.
    """

    def is_in(text: str) -> bool:
        return any(guard.is_in(text) for guard in guards)

    removed = 0
    if paths.journal.exists():
        journal = Journal(paths.journal)
        for head in journal.heads():
            entry = journal.get(head.id)
            named = entry is not None and any(guard.has_name(entry.target, entry.path) for guard in guards)
            if entry is not None and (named or any(map(is_in, _texts(entry.arguments)))):
                removed += journal.drop(entry.id)
        if removed:
            journal.tidy()
    removed += _scrub_caches(paths, is_in)
    removed += _scrub_usage(paths, guards)
    for forget in addons.each("forgotten"):
        removed += forget(paths, is_in)
    return removed


def _scrub_caches(paths: ProxyPaths, is_in: Callable[[str], bool]) -> int:
    removed = 0
    gone: FileNotFoundError | None = None
    try:
        for _ in range(_PASSES):
            files = [file for file in paths.briefings.iterdir() if file.is_file()] if paths.briefings.is_dir() else []
            gone = None
            for file in files:
                try:
                    data = file.read_bytes()
                    is_known = len(data) <= _MOST_CACHE
                    if not is_known or any(map(is_in, _texts(_parse_json(data)))):
                        file.unlink()
                        removed += 1
                except FileNotFoundError as error:
                    # A session has just renamed it over a file that may have been read before.
                    gone = error
            if gone is None:
                return removed
    except OSError as error:
        raise StateError(paths.briefings, error) from error
    assert gone is not None
    raise StateError(paths.briefings, gone)


def _scrub_usage(paths: ProxyPaths, guards: list[ForgetGuard]) -> int:
    """Remove the counters of forgotten notes."""
    notes = [*usage.UsageFile(paths.state).refresh().notes.values()]
    gone = [note for note in notes if any(guard.has_name(note.project, note.path) for guard in guards)]
    for note in gone:
        usage.forget(paths.state, note.project, [note.path])
    return len(gone)


def _parse_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode(errors="replace")


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        # The lines of one text may stand apart.
        yield "\n".join(each for each in value if isinstance(each, str))
        for each in value:
            if not isinstance(each, str):
                yield from _texts(each)
