"""Receipts: what a machine keeps of a space, and shows again, so that a daemon whose data folder was put back from an older copy finds out.

A receipt says in which life of the database it was given, and after how many changes. It is sealed with a key that every copy of the
database has, so that a machine can make none, and learns nothing from one, not even whether anything has changed. One that this database
cannot have given, by what it knows of its lives, is from a time that it has forgotten (PROTOCOL.md 9.2).
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
    """What a machine is told of the space's past.

    Attributes:
        receipt: to be shown again; "" where none can be made.
        restores: how often the data folder was found to be put back.
        back_to: to which time, when it was last; in seconds since 1970; None: it never was.
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
    """The receipts of one space."""

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads

    async def is_empty(self) -> bool:
        """Return whether nothing was ever stored or sealed in the space."""
        return await self._threads.read(lambda store: store.lives.is_empty())

    async def standing(self, shown: str = "") -> ReceiptStatus:
        """How the space stands, and a receipt of it. `shown`: the receipt that a machine had last, "" for none."""
        found = await self._threads.read(lambda store: _read(store, shown))
        if found is None:
            await self._threads.write(lambda store: _note(store, shown))
            found = await self._threads.read(_standing)
        return found


def _read(store: Store, shown: str) -> ReceiptStatus | None:
    """None: there is something to be noted."""
    with store.reading():
        return None if shown and _lost(store, shown) is not None else _standing(store)


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


def _lost(store: Store, shown: str) -> float | None:
    """The time, in seconds since 1970, to which the database was put back, where a receipt is from a time that it has forgotten, and of
    which it has not heard; None otherwise, and for what is no receipt of it."""
    receipt, present, oldest = _opened(store, shown), store.lives.newest(), store.lives.oldest()
    # One with a smaller count is of a time that was known to be lost before it was.
    if receipt is None or present is None or oldest is None or receipt.restores < present.restores:
        return None
    life = store.lives.of(receipt.life)
    if life is None:
        # Another one has its number here: what was made from that one's beginning on was made behind the loss.
        instead = store.lives.numbered(receipt.number) or present
        return instead.last_at if receipt.number >= oldest.number else None
    following = store.lives.following(life)
    end = store.lives.changes() if following is None else following.change
    return None if receipt.change <= end else (following or present).last_at


def _note(store: Store, shown: str) -> None:
    """Count that the database was put back, once, and give revisions numbers from there on that it never gave."""
    with store.writing():
        to, receipt, present = _lost(store, shown), _opened(store, shown), store.lives.newest()
        if to is None or receipt is None or present is None:
            return  # another machine was first
        store.lives.put_back(present, restores=max(present.restores, receipt.restores) + 1, to=to)
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(to))
    log.warning("the data folder was put back: a machine was told of more than this copy has, which ends at %s", moment)


def _opened(store: Store, shown: str) -> _Receipt | None:
    key = store.lives.key()
    try:
        data = base64.b64decode(shown, validate=True)
        text = unsealed(data[_NONCE:], _ABOUT, data[:_NONCE], key) if key else b""
    except (binascii.Error, CryptoError, ValueError):
        return None
    if len(text) != _LENGTH:
        return None
    return _Receipt(text[:16], *(int.from_bytes(text[at : at + 8]) for at in (16, 24, 32)))
