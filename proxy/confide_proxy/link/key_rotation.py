"""This device's key, and its successor during a rotation (PROTOCOL.md 7.10);
`devices.device_rotation` creates the successor and reports it to the daemon.

    identity.key        the present key
    identity.next.key   the next key, written before the daemon learns of it, and kept until a
                        handshake with it has succeeded

A crash may leave both files. Every connection that finds two tries the next key first. If the
daemon accepts the next key, that replaces the present one. If the daemon does not know it, the
rotation never happened, and the next key is deleted once the present one has worked. Files are
changed under a lock, which a rotation holds to its end, so that a key that is about to be reported
is not deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from confide_crypto.errors import ConfideError, DeniedError
from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import cannot, make_private_dir, remove_private_file, rename_private_file
from confide_crypto.transport.open_channel import Connection
from confide_proxy.errors import KeyChangeError
from confide_proxy.link import daemon
from confide_proxy.link import device_identity as identities
from confide_proxy.link.device_identity import Stored
from confide_proxy.locks import lock_file, try_lock
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

Dial = Callable[[Identity, bool], Awaitable["Connection"]]
"""Opens a connection as an identity. The flag is True for the present key, which a local daemon may
authorize.
"""


class KeysOnDisk(NamedTuple):
    """This device's keys on the disk: one key, or two during an unfinished rotation."""

    current: Stored
    following: Stored | None

    @property
    def public_keys(self) -> tuple[bytes, bytes | None]:
        """Return the public keys of the present and the next key, to detect a change; None for no
        next key.
        """
        return self.current.public_key, self.following.public_key if self.following else None


class MachineKeys:
    """This device's keys, as one connection uses them."""

    def __init__(self, paths: ProxyPaths, *, passphrase: str | None = None, is_locked: bool = False) -> None:
        """Args:
        passphrase: opens sealed keys, unlocked or not.
        is_locked: this process holds the lock already.
        """
        self._paths = paths
        self._passphrase = passphrase
        self._is_locked = is_locked
        self._identity: Identity | None = None
        self.device_name = ""
        """The daemon's name for this device at the last connection; "" before."""

    def identity(self) -> Identity:
        """Return the key pair of the last connection, or the present one before the first
        connection. So a passphrase is asked for once.

        Raises KeyFileError, KeyLockedError or KeyringError if the key cannot be used.
        """
        if self._identity is None:
            self._identity = self.read_keys().current.open(self._passphrase)
        return self._identity

    @contextmanager
    def hold_settled(self) -> Iterator[bool]:
        """Hold the lock on the key files for a `with` block, if possible. Yield True if this device
        has only one key, and no other process can change that within the block.
        """
        if self._is_locked:
            yield self.read_keys().following is None
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self._paths, wait_s=0))
                is_settled = self.read_keys().following is None
            except ConfideError:
                is_settled = False
            yield is_settled

    def read_keys(self) -> KeysOnDisk:
        """Read the keys from the disk; create one if there are none. Raises KeyFileError if a file
        cannot be used.
        """
        # The next key first: it may replace the present one in between, and then both are the same.
        path = self._paths.next_identity
        following = identities.read(path) if path.exists() or path.is_symlink() else None
        current = identities.load_stored(self._paths.identity)
        return KeysOnDisk(current, following if following and following.public_key != current.public_key else None)

    async def connect(self, dial: Dial) -> Connection:
        """Connect with the key that the daemon accepts, and complete an interrupted rotation.

        Args:
            dial: makes a connection with a key.

        Raises KeyFileError, KeyLockedError or KeyringError if a key cannot be used, and all that
        `dial` raises.
        """
        held = await asyncio.to_thread(self.read_keys)
        try:
            return await self._connect(dial, held)
        except DeniedError:
            # Another process of this device may have finished its rotation in between.
            again = await asyncio.to_thread(self.read_keys)
            if again.public_keys == held.public_keys:
                raise
        return await self._connect(dial, again)

    async def _connect(self, dial: Dial, held: KeysOnDisk) -> Connection:
        if held.following is not None:
            try:
                following = await self._open_identity(held.following)
                connection = await dial(following, False)
            except DeniedError as denied:
                if denied.reason != "unknown":
                    raise
            else:
                self._note(following, connection)
                await self._settle(self._adopt, held)
                return connection
        current = await self._open_identity(held.current)
        connection = await dial(current, True)
        self._note(current, connection)
        if held.following is not None:
            await self._settle(self._drop, held)
        return connection

    def _note(self, identity: Identity, connection: Connection) -> None:
        self._identity, self.device_name = identity, str(connection.welcome.get("caller", ""))

    async def _open_identity(self, kept: Stored) -> Identity:
        return await asyncio.to_thread(kept.open, self._passphrase)

    async def _settle(self, change: Callable[[KeysOnDisk], None], held: KeysOnDisk) -> None:
        """Apply a change under the lock, unless another process holds it or the keys have changed."""

        def work() -> None:
            if self._is_locked:
                change(held)
                return
            with exclusive(self._paths, wait_s=0):
                if self.read_keys().public_keys == held.public_keys:
                    change(held)

        try:
            await asyncio.to_thread(work)
        except ConfideError as error:
            # The connection works nevertheless, and the next one tries again.
            log.info("the rotation of this device's key is not finished yet: %s", type(error).__name__)

    def _adopt(self, held: KeysOnDisk) -> None:
        daemon.withdraw(self._paths.daemon_data, held.current.public_key)
        rename_private_file(self._paths.next_identity, self._paths.identity)
        with suppress(ConfideError):  # the old seed is useless now
            held.current.forget()
        log.info("this device has its new key")

    def _drop(self, held: KeysOnDisk) -> None:
        assert held.following is not None
        remove_private_file(self._paths.next_identity)
        with suppress(ConfideError):  # as in `_adopt`
            held.following.forget()
        log.info("a rotation that the daemon never heard of was dropped")


@contextmanager
def exclusive(paths: ProxyPaths, *, wait_s: float) -> Iterator[None]:
    """Hold the lock on this device's key files for a `with` block, after waiting for it up to
    `wait_s` seconds. The lock is also released if the process ends.

    Raises KeyChangeError if another process holds it; KeyFileError if the lock file cannot be
    created.
    """
    make_private_dir(paths.state)
    try:
        descriptor = lock_file(paths.identity_lock)
        try:
            is_ours = try_lock(descriptor, wait_s=wait_s)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        failure = cannot(paths.identity_lock, "be locked", error)
        failure.hint = "is the disk full, read-only, or a network's?"
        raise failure from error
    try:
        if not is_ours:
            raise KeyChangeError("another confide is changing this device's key", hint="try again in a few seconds")
        yield
    finally:
        os.close(descriptor)
