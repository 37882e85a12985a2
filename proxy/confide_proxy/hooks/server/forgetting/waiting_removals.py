"""Report removals that are not complete: forgotten texts that another device still has, lost
devices that the daemon does not know of yet, and a key that no device has replaced yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, printable
from confide_crypto.sealing.roster import Roster
from confide_memory.documents import RequestChannel
from confide_memory.errors import ReceiptError
from confide_memory.forgetting import SignedRecord, canonical, receipt_of
from confide_proxy.devices.duties import LostDevices
from confide_proxy.devices.keyring import Keyring
from confide_proxy.hooks.server.forgetting.forget_everywhere import fetch_receipt
from confide_proxy.paths import ProxyPaths

_MOST_RECEIPTS: Final = 20
"""The newest ones that are looked at: each that waits costs a request."""
_ASKED_S: Final = 5.0
"""Seconds for all of these requests; receipts without an answer by then count as they were."""
_MOST_BYTES: Final = 8 << 20
_PENDING: Final = "pending"
_WHEN_IT_CONNECTS: Final = "gone when it connects"
STUCK: Final = "still has access, which this device could not end"
"""In the sentence about a removal that does not go on by itself."""


async def waiting_removals(paths: ProxyPaths, keyring: Keyring, link: RequestChannel | None) -> list[str]:
    """Return a sentence for each removal that is not complete.

    `link` is the connection to the daemon, which knows the present state of each removal; None if
    it is unreachable.
    """
    roster = keyring.roster
    bodies = await asyncio.to_thread(lambda: [body for body in _receipts(paths) if _waits_for(body, roster)])
    found: list[str] = []
    since: dict[str, int] = {}
    until = asyncio.get_running_loop().time() + _ASKED_S
    for body in bodies:
        for name in _waits_for(await _present(body, paths, keyring, link, until), roster):
            since[name] = min(body["record"]["at"], since.get(name, body["record"]["at"]))
    for name, at in since.items():
        day = time.strftime("%Y-%m-%d", time.localtime(at))
        if name:
            found.append(f"{printable(name)} still has what was forgotten since {day}, until it connects")
        else:
            found.append(f"the daemon has not removed everything yet that was forgotten since {day}")
    if roster is not None:
        for name in await asyncio.to_thread(_lost, paths, roster):
            # A connection removes it first, before anything else is asked.
            state = "has access until this device reaches the daemon"
            if link is not None:
                state = f"{STUCK}: confide device lost {name} says why"
            found.append(f"{name} is declared lost, and {state}")
    shown = keyring.daemon_roster
    if link is not None and keyring.custody == "caller" and shown is not None and shown.needs:
        found.append(
            "the key of the database is still one that a removed device knew: it changes when a device connects that may write"
        )
    return found


def _receipts(paths: ProxyPaths) -> Iterator[dict[str, Any]]:
    """Yield the content of the newest receipts of this device."""
    files = list(paths.forget_receipts.glob("*.json")) if paths.forget_receipts.is_dir() else []
    for file in sorted(files, key=_changed_at, reverse=True)[:_MOST_RECEIPTS]:
        try:
            with file.open("rb") as opened:
                yield receipt_of(opened.read(_MOST_BYTES))
        except (OSError, ReceiptError):
            continue  # `confide forget --verify` says so


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _waits_for(body: dict[str, Any], roster: Roster | None) -> list[str]:
    """Return the devices that a receipt waits for; an empty name is the daemon. No recovery code is
    waited for, nor a device that is no longer in the space.
    """
    devices = None if roster is None else {one.name for one in roster.devices.values() if not one.is_paper}
    names = [
        place["name"]
        for place in body["places"]
        if (place["place"], place["level"]) == ("device", _WHEN_IT_CONNECTS)
        and (devices is None or place["name"] in devices)
    ]
    is_pending = any(place["level"] == _PENDING for place in body["places"])
    return [*names, *([""] if is_pending else [])]


async def _present(
    body: dict[str, Any], paths: ProxyPaths, keyring: Keyring, link: RequestChannel | None, until: float
) -> dict[str, Any]:
    """Return a receipt's content as it is now, or as it was if the daemon does not say by `until`, a
    time of the event loop.
    """
    if link is None:
        return body
    signed = SignedRecord(canonical(body["record"]), bytes.fromhex(body["recordSignature"]))
    try:
        async with asyncio.timeout_at(until):
            return (await fetch_receipt(paths, keyring, link, signed)).body
    except (ConfideError, TimeoutError):
        return body


def _lost(paths: ProxyPaths, roster: Roster) -> list[str]:
    try:
        keys = LostDevices(paths.rosters).of(roster.space)
    except ConfideError:
        return []
    return [printable(device.name) for key in keys if (device := roster.current(key)) is not None]
