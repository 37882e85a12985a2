"""Storage of sealed records in a HashiCorp Vault or OpenBao, without blocking the event loop.

Each write of a record uses a new path, `<mount>/<prefix>/<space id>/<secret id>/<place>`, so
nothing is ever overwritten: a late or repeated request writes the same data again. The last part of
the path is 16 random bytes and a digest of the record. Long records are split into pieces, since
Vault's integrated storage accepts 1 MiB per value and Consul's half of that.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from confide_crypto.sealing.record import MAX_RECORD
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_daemon.config import VaultConfig
from confide_daemon.errors import VaultError
from confide_memory.errors import with_extra

if TYPE_CHECKING:
    from confide_daemon.sealing.vault_client import VaultClient

log = logging.getLogger(__name__)
T = TypeVar("T")

THREADS: Final = 4
PIECE: Final = 360 * 1024
"""Bytes per piece; in base64, with the JSON around it, less than 512 KiB."""
MAX_PIECES: Final = -(-MAX_RECORD // PIECE)
RANDOM: Final = 16
CHECK: Final = "check"
"""Used instead of a space's id by `Vault.check`."""
KEPT_DAYS: Final = 30
"""Days for which replaced records stay in the vault, for a daemon whose data folder is restored
from an older backup.
"""
RETRY_S: Final = 30.0
# Threads observe the deadline themselves; this is for one that doesn't.
GRACE_S: Final = 2.0


class LostError(VaultError):
    """Raised if a record is missing in the vault or was changed there."""


class Vault:
    """The connection to a vault. Create it with `open` in a running event loop; end it with
    `close`.
    """

    def __init__(self, client: VaultClient, settings: VaultConfig) -> None:
        self._client = client
        self._settings = settings
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="confide-vault")
        self._renewing = asyncio.create_task(self._renew())

    @classmethod
    def open(cls, settings: VaultConfig) -> Vault:
        """Create a vault client without connecting. Raises VaultError if hvac is not installed."""
        try:
            from confide_daemon.sealing.vault_client import VaultClient
        except ImportError:
            raise VaultError(
                "a vault is configured, and hvac, which talks to it, is not installed",
                hint=with_extra("daemon", "vault"),
            ) from None
        return cls(VaultClient(settings), settings)

    async def keep(self, space_id: str, secret_id: bytes, place: bytes, record: bytes) -> None:
        """Store a record in the vault; on return it is stored. `place`: the last part of its path,
        made for this attempt with `place_for`.

        Raises VaultError if the vault fails. The record may be stored nevertheless; a repeated
        attempt is safe.
        """
        pieces = [record[start : start + PIECE] for start in range(0, len(record), PIECE)]
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> None:
            # The first piece is written last, since it contains the number of pieces.
            for number in reversed(range(len(pieces))):
                said = {"record": base64.b64encode(pieces[number]).decode(), "pieces": len(pieces)}
                self._client.write(_piece_path(path, number), said, deadline)

        await self._run(work)

    async def fetch(self, space_id: str, secret_id: bytes, place: bytes) -> bytes:
        """Return the record at a location. Raises LostError if the record is missing or was
        changed, VaultError if the vault is unavailable.
        """
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> bytes:
            data, count = self._piece(path, deadline)
            for number in range(1, count):
                data += self._piece(_piece_path(path, number), deadline)[0]
            if digest_of(data) != place[RANDOM:]:
                raise changed_record_error()
            return data

        return await self._run(work)

    async def destroy(self, space_id: str, secret_id: bytes, place: bytes) -> None:
        """Delete a record from the vault, also one that was written only in part. Raises VaultError
        if the vault is unavailable.
        """
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> None:
            first = self._client.read(path, deadline)
            # The number of pieces of an incomplete record is unknown, but its last piece was
            # written first.
            count = first.get("pieces") if first is not None else self._count(path, deadline)
            if not isinstance(count, int) or not 1 <= count <= MAX_PIECES:
                count = MAX_PIECES
            for number in reversed(range(count)):
                self._client.destroy(_piece_path(path, number), deadline)

        await self._run(work)

    async def check(self) -> None:
        """Write, read and delete a test value, as is done with records. Raises VaultError if a step
        fails.
        """
        secret_id, value = bytes(16), b"confide"
        place = place_for(value)
        await self.keep(CHECK, secret_id, place, value)
        await self.fetch(CHECK, secret_id, place)
        await self.destroy(CHECK, secret_id, place)

    async def close(self) -> None:
        """Stop renewing the token and close the thread pool. Running requests finish first."""
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _renew(self) -> None:
        """Renew the token also while no records are read or written."""
        has_failed = False
        while True:
            try:
                left_s = await self._run(self._client.keep_token)
                has_failed = False
            except VaultError as error:
                raise_if_cancelled()
                if not has_failed:
                    log.warning("the vault for sealed records: %s", error)
                has_failed, left_s = True, RETRY_S
            except Exception as error:
                raise_if_cancelled()
                log.error("the login at the vault broke: %s", type(error).__name__)
                left_s = RETRY_S
            await asyncio.sleep(left_s)

    async def _run(self, work: Callable[[float], T]) -> T:
        timeout_s = self._settings.timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            # Not wait_for, which in Python 3.11 loses a cancellation that meets the end of the
            # work.
            async with asyncio.timeout(timeout_s + GRACE_S):
                return await asyncio.get_running_loop().run_in_executor(self._pool, work, deadline)
        except TimeoutError:
            raise VaultError("the vault does not answer in time", hint="try again in a moment") from None

    def _piece(self, path: str, deadline: float) -> tuple[bytes, int]:
        said = self._client.read(path, deadline)
        if said is None:
            raise LostError(
                "a sealed record is not in the vault any more",
                hint="restore the vault from a backup of the time of the daemon's folder: a record that was replaced, as when a device was "
                f"removed, is in the vault for {KEPT_DAYS} days only; a file that holds the secret has it still",
            )
        text, count = said.get("record"), said.get("pieces")
        if not isinstance(text, str) or not isinstance(count, int) or not 1 <= count <= MAX_PIECES:
            raise changed_record_error()
        try:
            return base64.b64decode(text, validate=True), count
        except ValueError:
            raise changed_record_error() from None

    def _count(self, path: str, deadline: float) -> int:
        """Return the number of pieces of a record whose first piece is missing."""
        for number in range(1, MAX_PIECES):
            if (found := self._client.read(_piece_path(path, number), deadline)) is not None:
                count = found.get("pieces")
                return count if isinstance(count, int) else MAX_PIECES
        return 1

    def _path(self, space_id: str, secret_id: bytes, place: bytes) -> str:
        return f"{self._settings.prefix}/{space_id}/{secret_id.hex()}/{place.hex()}"


def place_for(record: bytes) -> bytes:
    """Return a new last part of a record's path: 16 random bytes and the record's digest."""
    return secrets.token_bytes(RANDOM) + digest_of(record)


def digest_of(record: bytes) -> bytes:
    """Return the BLAKE2b-128 digest of a record, which is part of its path. It identifies the
    record but does not authenticate it; only the space's devices can do that.
    """
    return hashlib.blake2b(record, digest_size=16).digest()


def _piece_path(path: str, number: int) -> str:
    return path if number == 0 else f"{path}-{number}"


def changed_record_error() -> LostError:
    """Return the error for a record that someone has changed in the vault."""
    return LostError("a sealed record was changed in the vault", hint="it comes back with the vault's own backup")


def try_out(settings: VaultConfig) -> None:
    """Test the vault with `Vault.check`, where no event loop runs. Raises VaultError if the test
    fails.
    """

    async def check() -> None:
        vault = Vault.open(settings)
        try:
            await vault.check()
        finally:
            await vault.close()

    asyncio.run(check())
