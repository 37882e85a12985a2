"""A HashiCorp Vault or OpenBao as the place of sealed records: whole records in and out, without blocking the event loop.

Each time a record is kept it gets a place of its own, at `<mount>/<prefix>/<space id>/<secret id>/<place>`, so that nothing that is
there is ever written over: a request that comes late, or twice, says the same again. Half of a place's name is the digest of what is
there. What is longer than a piece lies in several, since Vault's integrated storage takes 1 MiB a value and Consul's half of that.
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
"""Bytes; in base64 with what is around them less than 512 KiB."""
MAX_PIECES: Final = -(-MAX_RECORD // PIECE)
RANDOM: Final = 16
CHECK: Final = "check"
"""In place of a space's id, for trying it out."""
KEPT_DAYS: Final = 30
"""How long what was replaced stays, for a daemon whose folder is restored from an older copy."""
RETRY_S: Final = 30.0
# A thread gives up by itself; this is for one that does not.
GRACE_S: Final = 2.0


class LostError(VaultError):
    """There is nothing at a record's place any more, or something else."""


class Vault:
    """Made by `open` in a running event loop, ended by `close`."""

    def __init__(self, client: VaultClient, settings: VaultConfig) -> None:
        self._client = client
        self._settings = settings
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="confide-vault")
        self._renewing = asyncio.create_task(self._renew())

    @classmethod
    def open(cls, settings: VaultConfig) -> Vault:
        """Connects to nothing yet. Raises VaultError where the library for it is not installed."""
        try:
            from confide_daemon.sealing.vault_client import VaultClient
        except ImportError:
            raise VaultError(
                "a vault is configured, and hvac, which talks to it, is not installed",
                hint=with_extra("daemon", "vault"),
            ) from None
        return cls(VaultClient(settings), settings)

    async def keep(self, space_id: str, secret_id: bytes, place: bytes, record: bytes) -> None:
        """Has the record when it returns.

        `place`: of this record and this attempt (`place_for`). Raises VaultError: nobody knows whether it is there; saying the same again
        does no harm.
        """
        pieces = [record[start : start + PIECE] for start in range(0, len(record), PIECE)]
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> None:
            # The first last, as it says that there are others.
            for number in reversed(range(len(pieces))):
                said = {"record": base64.b64encode(pieces[number]).decode(), "pieces": len(pieces)}
                self._client.write(_piece_path(path, number), said, deadline)

        await self._run(work)

    async def fetch(self, space_id: str, secret_id: bytes, place: bytes) -> bytes:
        """The record. Raises LostError where it is not there any more, or is not what was kept; VaultError where it cannot be had now."""
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> bytes:
            data, count = self._piece(path, deadline)
            for number in range(1, count):
                data += self._piece(_piece_path(path, number), deadline)[0]
            if digest_of(data) != place[RANDOM:]:
                raise changed()
            return data

        return await self._run(work)

    async def destroy(self, space_id: str, secret_id: bytes, place: bytes) -> None:
        """Nothing is there any more. Raises VaultError."""
        path = self._path(space_id, secret_id, place)

        def work(deadline: float) -> None:
            first = self._client.read(path, deadline)
            # Of one that was not kept to its end nobody knows how many pieces there are, but the last was written first.
            count = first.get("pieces") if first is not None else self._count(path, deadline)
            if not isinstance(count, int) or not 1 <= count <= MAX_PIECES:
                count = MAX_PIECES
            for number in reversed(range(count)):
                self._client.destroy(_piece_path(path, number), deadline)

        await self._run(work)

    async def check(self) -> None:
        """Keeps, fetches and destroys a value of no meaning, as records are. Raises VaultError."""
        secret_id, value = bytes(16), b"confide"
        place = place_for(value)
        await self.keep(CHECK, secret_id, place, value)
        await self.fetch(CHECK, secret_id, place)
        await self.destroy(CHECK, secret_id, place)

    async def close(self) -> None:
        """Ends after what is under way."""
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _renew(self) -> None:
        """Keeps the token alive also while no record comes or goes."""
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
            # Not wait_for, which in Python 3.11 loses a cancellation that meets the end of the work.
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
            raise changed()
        try:
            return base64.b64decode(text, validate=True), count
        except ValueError:
            raise changed() from None

    def _count(self, path: str, deadline: float) -> int:
        """How many pieces there are of one whose first is missing."""
        for number in range(1, MAX_PIECES):
            if (found := self._client.read(_piece_path(path, number), deadline)) is not None:
                count = found.get("pieces")
                return count if isinstance(count, int) else MAX_PIECES
        return 1

    def _path(self, space_id: str, secret_id: bytes, place: bytes) -> str:
        return f"{self._settings.prefix}/{space_id}/{secret_id.hex()}/{place.hex()}"


def place_for(record: bytes) -> bytes:
    """A new name: 16 random bytes, and BLAKE2b-128 of the record."""
    return secrets.token_bytes(RANDOM) + digest_of(record)


def digest_of(record: bytes) -> bytes:
    """As it stands in the name of a place. It tells which record it is, not who made it: that only the space's devices can."""
    return hashlib.blake2b(record, digest_size=16).digest()


def _piece_path(path: str, number: int) -> str:
    return path if number == 0 else f"{path}-{number}"


def changed() -> LostError:
    """What is in the vault is not what was kept there."""
    return LostError("a sealed record was changed in the vault", hint="it comes back with the vault's own backup")


def try_out(settings: VaultConfig) -> None:
    """`Vault.check`, where no event loop runs. Raises VaultError."""

    async def check() -> None:
        vault = Vault.open(settings)
        try:
            await vault.check()
        finally:
            await vault.close()

    asyncio.run(check())
