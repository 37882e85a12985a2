"""Receipts by which a daemon detects that its data folder was restored from an older copy. Devices
keep them and present them later.

A receipt names the opening ("life") of the database during which it was issued, and the number of
changes until then. It is encrypted with a key that every copy of the database has, so a device can
neither forge one nor learn anything from it. If a receipt is valid, and yet this database, by the
record of its openings, cannot have issued it, then it comes from a time that the restore has lost
(PROTOCOL.md 9.2).
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import time
from dataclasses import dataclass
from typing import Final

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as unsealed
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as sealed
from nacl.exceptions import CryptoError

from confide_daemon.store.space_store import Store
from confide_daemon.store.threads import StoreThreads

log = logging.getLogger(__name__)

_ABOUT: Final = b"confide receipt 1"
_NONCE: Final = 24
_LENGTH: Final = 16 + 8 + 8 + 8


@dataclass(frozen=True, slots=True)
class ReceiptStatus:
    """The facts about a space's restores that a device receives.

    Attributes:
        receipt: the new receipt, for the device to present later; "" if none can be issued.
        restores: the number of detected restores of the data folder.
        back_to: the time of the copy that was last restored, in seconds since 1970; None if there
            was no restore.
    """

    receipt: str
    restores: int
    back_to: float | None


@dataclass(frozen=True, slots=True)
class _Receipt:
    life: bytes
    number: int
    change: int
    restores: int


class Receipts:
    """Issues and checks the receipts of a space."""

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads

    async def is_empty(self) -> bool:
        """Return True if nothing was ever stored or sealed in the space."""
        return await self._threads.read(lambda store: store.lives.is_empty())

    async def standing(self, shown: str = "") -> ReceiptStatus:
        """Return the space's status with a new receipt. If the receipt `shown` reveals a restore
        that is not recorded yet, record it first.

        `shown`: the device's last receipt, or "" if it has none.
        """
        found = await self._threads.read(lambda store: _read(store, shown))
        if found is None:
            await self._threads.write(lambda store: _note(store, shown))
            found = await self._threads.read(_standing)
        return found


def _read(store: Store, shown: str) -> ReceiptStatus | None:
    """Return the status, or None if `shown` reveals a restore that must be recorded."""
    with store.reading():
        return None if shown and _unrecorded_restore(store, shown) is not None else _standing(store)


def _standing(store: Store) -> ReceiptStatus:
    life, key = store.lives.newest(), store.lives.key()
    if life is None or key is None:
        return ReceiptStatus("", 0, None)
    numbers = (life.number, store.lives.changes(), life.restores)
    nonce = os.urandom(_NONCE)
    text = life.id + b"".join(number.to_bytes(8) for number in numbers)
    return ReceiptStatus(
        base64.b64encode(nonce + sealed(text, _ABOUT, nonce, key)).decode(), life.restores, life.back_to
    )


def _unrecorded_restore(store: Store, shown: str) -> float | None:
    """Return the time, in seconds since 1970, to which the database was restored, if the receipt
    reveals a restore that is not recorded yet. Return None otherwise, and for an invalid receipt.
    """
    receipt, present, oldest = _decrypt(store, shown), store.lives.newest(), store.lives.oldest()
    # A receipt with fewer restores is from a time before the last recorded restore.
    if receipt is None or present is None or oldest is None or receipt.restores < present.restores:
        return None
    life = store.lives.of(receipt.life)
    if life is None:
        # Another opening has its number here: changes since that one began were made after the
        # loss.
        instead = store.lives.life_from(receipt.number) or present
        return instead.last_at if receipt.number >= oldest.number else None
    following = store.lives.following(life)
    end = store.lives.changes() if following is None else following.change
    return None if receipt.change <= end else (following or present).last_at


def _note(store: Store, shown: str) -> None:
    """Record a restore once, so that new revisions get numbers that were never given."""
    with store.writing():
        to, receipt, present = _unrecorded_restore(store, shown), _decrypt(store, shown), store.lives.newest()
        if to is None or receipt is None or present is None:
            return  # another device's receipt was first
        store.lives.put_back(present, restores=max(present.restores, receipt.restores) + 1, to=to)
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(to))
    log.warning("the data folder was restored: a device has seen more than this copy has, which ends at %s", moment)


def _decrypt(store: Store, shown: str) -> _Receipt | None:
    key = store.lives.key()
    try:
        data = base64.b64decode(shown, validate=True)
        text = unsealed(data[_NONCE:], _ABOUT, data[:_NONCE], key) if key else b""
    except (binascii.Error, CryptoError, ValueError):
        return None
    if len(text) != _LENGTH:
        return None
    return _Receipt(text[:16], *(int.from_bytes(text[at : at + 8]) for at in (16, 24, 32)))
