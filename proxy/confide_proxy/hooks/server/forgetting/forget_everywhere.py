"""Forget documents or a text everywhere (docs/forgetting.md): plan the removal, carry it out, and
keep its receipt. The command, an agent's tool and the panel use these functions.

Nothing here asks the user for consent: the callers show them the result of `plan_forgetting` first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from confide_crypto import atomic
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import verify
from confide_crypto.sealing.roster import Roster
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import (
    MOST_PARTS,
    RECEIPT_LABEL,
    ForgetPart,
    ForgetRecord,
    Hashes,
    SignedRecord,
    canonical,
    hashes_of,
    key_id,
    unpacked_parts,
)
from confide_memory.globs import is_glob
from confide_memory.wire.forgotten import FORGET_BACKUPS, FORGET_PLAN, FORGET_RECEIPT, ForgetPlanned
from confide_memory.wire.revisions import FORGET
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import InputError, SpaceKeysError
from confide_proxy.hooks.server.forgetting import forgotten_texts
from confide_proxy.hooks.server.forgetting.forgotten_texts import ForgetRecords, KnownRecord
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.workspace import Files

DEADLINE_S: Final = 30.0
PLAN_DEADLINE_S: Final = 300.0
_MOST_STEPS: Final = 20_000
_NAMED: Final = 8
LEVELS: Final = {
    "gone": "gone",
    "gone when it connects": "goes when it connects",
    "pending": "not removed yet",
    "kept": "kept",
    "not known": "not known",
}
"""States of a place in a receipt, as users read them."""


class ForgetPlace(NamedTuple):
    """This device's files and keys, and its connection to the daemon, as far as forgetting needs
    them.
    """

    paths: ProxyPaths
    link: RequestChannel
    sealing: SessionSealing
    files: Files

    def receipt_file(self, identity: bytes) -> Path:
        """Return the path at which this device keeps the receipt of a removal. `identity` is the id
        of its record.
        """
        return _receipt_file(self.paths, identity)

    @property
    def roster(self) -> Roster:
        """The signed list of the space's devices. Raises the error that explains why this device
        has no keys, if it has none.
        """
        keyring = self.sealing.keyring
        if keyring.roster is None:
            raise keyring.problem or SpaceKeysError("this device has no keys of the space yet")
        return keyring.roster


class ForgetTargets(NamedTuple):
    """The documents or the text that a user wants to have forgotten.

    These are either documents of one project (all of them if `paths` is empty), or hashed parts of
    a text, which is removed from all projects. In the second case `project` is "".
    """

    project: str
    paths: list[str]
    parts: list[ForgetPart]

    @property
    def packed_parts(self) -> bytes:
        return b"".join(part.pack() for part in self.parts)


@dataclass(eq=False)
class Removal:
    """A removal that has begun; it may take further connections to finish.

    Attributes:
        signed: the signed record of what is removed.
        documents: the number of documents that the daemon has removed or changed.
        dropped: names of the server's snapshots that the memory was removed from.
        warnings: what is not removed yet, and why.
    """

    signed: SignedRecord
    documents: int = 0
    dropped: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def id(self) -> bytes:
        return self.signed.record.id


class KeptReceipt(NamedTuple):
    """A receipt of a removal that this device keeps.

    Attributes:
        file: the path of the receipt.
        body: its content (`confide_memory.forgetting.receipt_of`).
    """

    file: Path
    body: dict[str, Any]

    def names(self, *, place: str = "", level: str = "") -> list[str]:
        """Return the names of the locations in the receipt, such as devices and snapshots. `place`
        selects those of one kind and `level` those in one state (see `LEVELS`); "" selects all.
        """
        places = self.body["places"]
        return [one["name"] for one in places if place in ("", one["place"]) and level in ("", one["level"])]


async def parts_of(place: ForgetPlace, text: str) -> list[ForgetPart]:
    """Return the hashed parts of a text, both as the user gave it and with its credentials sealed.

    Raises InputError if the text is too short or too long.
    """
    answer = await FORGET_PLAN.ask(place.link, {}, timeout_s=DEADLINE_S)
    hashes = Hashes(answer["key"])
    sealed = await asyncio.to_thread(place.sealing.sealer.seal, text, "files")
    parts = list(dict.fromkeys([*hashes.of_text(text), *hashes.of_text(sealed.text)]))
    if not parts:
        raise InputError("the text is too short: it needs twelve letters or digits in a line")
    if len(parts) > MOST_PARTS:
        raise InputError("the text is too long; name the files instead")
    return parts


async def plan_forgetting(place: ForgetPlace, targets: ForgetTargets) -> ForgetPlanned:
    """Ask the daemon what it would remove for these targets, without removing anything.

    Raises RequestError if nothing is stored under the paths, and SpaceKeysError if this device has
    no keys and so could not sign the removal.
    """
    _ = place.roster
    plan = await FORGET_PLAN.ask(
        place.link,
        {"project": targets.project, "paths": targets.paths, "parts": targets.packed_parts},
        timeout_s=PLAN_DEADLINE_S,
    )
    if not plan["total"] and targets.paths:
        named = ", ".join(targets.paths[:_NAMED])
        hint = "confide ls --all lists it"
        raise RequestError("not_found", f"nothing of {targets.project} is stored under {named}", hint)
    return plan


def digest_of(plan: ForgetPlanned) -> str:
    """Return a hash of all that a plan would remove. It binds the user's consent to what was shown."""
    found = hashlib.blake2b(digest_size=16, person=b"confide-plan")
    for part in (plan["key"], plan["names"], plan["texts"], plan["parts"], plan["sealed"]):
        found.update(len(part).to_bytes(8, "big") + part)
    found.update(json.dumps([plan["documents"], plan["total"]]).encode())
    return found.hexdigest()


async def run_forgetting(
    place: ForgetPlace, targets: ForgetTargets, plan: ForgetPlanned, *, with_files: bool
) -> Removal:
    """Sign the record of a planned removal, store it on this device, and remove the texts from the
    daemon and from this device.

    With `with_files`, the memory files on all devices are changed or deleted too.
    `Removal.warnings` lists what cannot be removed now; the next connection continues with it.
    Raises StateError if the disk is full; nothing is removed then.
    """
    roster, identity = place.roster, await place.sealing.keyring.identity()
    record = ForgetRecord(
        os.urandom(16),
        roster.space.hex(),
        int(time.time()),
        identity.public_key,
        key_id(plan["key"]),
        hashes_of(plan["names"]),
        hashes_of(plan["texts"]),
        tuple(unpacked_parts(plan["parts"])),
        plan["ofParts"],
        hashes_of(plan["sealed"]),
        with_files,
    )
    one = KnownRecord(record.sign(identity), plan["key"])
    # Kept before it is sent, so that an interrupted removal is finished at the next connection.
    await asyncio.to_thread(ForgetRecords(place.paths).add, record.space, one)
    done = Removal(one.signed)
    try:
        done.documents = await forgotten_texts.give(place.link, one)
        await _refuse_globs(place.link, targets)
    except (ConfideError, TimeoutError) as error:
        done.warnings += [
            f"not everything is removed yet: {error}",
            "hint: it goes on by itself; confide forget --verify RECEIPT shows how far it is",
        ]
    try:
        await forgotten_texts.apply(place.paths, place.link, roster)
    except (ConfideError, TimeoutError) as error:
        done.warnings.append(f"files of this device may still have it, until the next connection: {error}")
    for project in {each["project"] for each in plan["documents"]}:
        paths = [each["path"] for each in plan["documents"] if each["project"] == project]
        await asyncio.to_thread(place.files.note_forgotten, project, paths)
    return done


async def drop_from_backups(place: ForgetPlace, done: Removal) -> None:
    """Remove the forgotten texts from the server's older snapshots too, and add the snapshots'
    names to `done.dropped`.

    Raises RequestError, ConnectionLost or TimeoutError if the request fails.
    """
    answer = await FORGET_BACKUPS.ask(place.link, {"id": done.id}, timeout_s=PLAN_DEADLINE_S)
    done.dropped += answer["dropped"]


async def receipt_for(place: ForgetPlace, signed: SignedRecord) -> KeptReceipt:
    """Fetch, sign and store the receipt of a removal, as `fetch_receipt` does."""
    return await fetch_receipt(place.paths, place.sealing.keyring, place.link, signed)


async def fetch_receipt(paths: ProxyPaths, keyring: Keyring, link: RequestChannel, signed: SignedRecord) -> KeptReceipt:
    """Fetch the daemon's receipt of a removal, sign it with this device's key, and store both.

    Raises UnfitAnswerError if the receipt is not for exactly this record, or if the daemon's
    signature is invalid.
    """
    identity = signed.record.id
    answer = await FORGET_RECEIPT.ask(link, {"id": identity}, timeout_s=DEADLINE_S)
    try:
        body: dict[str, Any] = json.loads(answer["receipt"])
        is_fit = (
            canonical(body) == answer["receipt"]
            # All of it: with its id alone the daemon could have another record signed here.
            and body["record"] == signed.body
            and body["recordSignature"] == signed.signature.hex()
            and verify(bytes.fromhex(body["daemon"]), RECEIPT_LABEL, answer["receipt"], answer["signature"])
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_fit = False
    if not is_fit:
        raise UnfitAnswerError
    own = await keyring.identity()
    whole = {
        "receipt": body,
        "device": own.public_key.hex(),
        "daemonSignature": answer["signature"].hex(),
        "deviceSignature": own.sign(RECEIPT_LABEL, answer["receipt"]).hex(),
    }
    file = _receipt_file(paths, identity)

    def write() -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(file, canonical(whole))

    await asyncio.to_thread(write)
    return KeptReceipt(file, body)


def _receipt_file(paths: ProxyPaths, identity: bytes) -> Path:
    return paths.forget_receipts / f"{identity.hex()}.json"


async def _refuse_globs(link: RequestChannel, targets: ForgetTargets) -> None:
    """Refuse later documents that a glob names, too."""
    globs = [path for path in targets.paths if is_glob(path)]
    if not globs:
        return
    for _ in range(_MOST_STEPS):
        step = await FORGET.ask(link, {"project": targets.project, "paths": globs}, timeout_s=DEADLINE_S)
        if step["complete"]:
            break
