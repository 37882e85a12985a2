"""This machine's key, and the one that takes its place (PROTOCOL.md 7.10); `devices.device_rotation` makes that and tells of it.

    identity.key        who this machine is
    identity.next.key   who it is about to be: on the disk before the daemon hears of it, and until a handshake with it has succeeded

A crash leaves both files. Every connection that finds two tries the next key first: if the daemon takes it, it is put in the place of the
old one; if the daemon does not know it, the rotation never happened, and once the old key has worked the next one is dropped. Files are
changed under a lock, which the rotation itself holds to its end, so that nobody drops a key that is about to be named.
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
from confide_proxy.locks import lock_file, taken
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

Dial = Callable[[Identity, bool], Awaitable["Connection"]]
"""Opens a connection as an identity; the flag says that it is this machine's settled one, which a daemon of ours may be told of."""


class KeysOnDisk(NamedTuple):
    """This machine's keys as they are on the disk: one, or two while a rotation is not finished."""

    current: Stored
    following: Stored | None

    @property
    def public_keys(self) -> tuple[bytes, bytes | None]:
        """Of both, to see whether they have changed."""
        return self.current.public_key, self.following.public_key if self.following else None


class MachineKeys:
    """The keys of one machine, for one connection."""

    def __init__(self, paths: ProxyPaths, *, passphrase: str | None = None, is_locked: bool = False) -> None:
        """
        Args:
            passphrase: opens sealed keys, unlocked or not.
            is_locked: this process holds the lock already.
        """
        self._paths = paths
        self._passphrase = passphrase
        self._is_locked = is_locked
        self._identity: Identity | None = None
        self.called = ""
        """What the daemon called this machine when it last connected; "" before."""

    def identity(self) -> Identity:
        """Whom the last connection was made as, or, before the first one, this machine's key: nobody is asked for it twice.

        Raises KeyFileError, KeyLockedError, KeyringError: it may not be used as it is.
        """
        if self._identity is None:
            self._identity = self.held().current.open(self._passphrase)
        return self._identity

    @contextmanager
    def settled(self) -> Iterator[bool]:
        """Whether this machine has one key alone, and no other process changes that before the block ends."""
        if self._is_locked:
            yield self.held().following is None
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self._paths, wait_s=0))
                is_settled = self.held().following is None
            except ConfideError:
                is_settled = False
            yield is_settled

    def held(self) -> KeysOnDisk:
        """What is on the disk; a machine without a key gets one. Raises KeyFileError."""
        # The next one first: it may take the current one's place in between, and then both are the same.
        path = self._paths.next_identity
        following = identities.read(path) if path.exists() or path.is_symlink() else None
        current = identities.stored(self._paths.identity)
        return KeysOnDisk(current, following if following and following.public_key != current.public_key else None)

    async def connect(self, dial: Dial) -> Connection:
        """A connection with the key that the daemon takes; finishes a rotation that was cut short.

        Raises:
            KeyFileError, KeyLockedError, KeyringError: a key may not be used as it is.
            Whatever `dial` raises.
        """
        held = await asyncio.to_thread(self.held)
        try:
            return await self._connect(dial, held)
        except DeniedError:
            # Another process of this machine may have finished its rotation in between.
            again = await asyncio.to_thread(self.held)
            if again.public_keys == held.public_keys:
                raise
        return await self._connect(dial, again)

    async def _connect(self, dial: Dial, held: KeysOnDisk) -> Connection:
        if held.following is not None:
            try:
                following = await self._opened(held.following)
                connection = await dial(following, False)
            except DeniedError as denied:
                if denied.reason != "unknown":
                    raise
            else:
                self._note(following, connection)
                await self._settle(self._adopt, held)
                return connection
        current = await self._opened(held.current)
        connection = await dial(current, True)
        self._note(current, connection)
        if held.following is not None:
            await self._settle(self._drop, held)
        return connection

    def _note(self, identity: Identity, connection: Connection) -> None:
        self._identity, self.called = identity, str(connection.welcome.get("caller", ""))

    async def _opened(self, kept: Stored) -> Identity:
        return await asyncio.to_thread(kept.open, self._passphrase)

    async def _settle(self, change: Callable[[KeysOnDisk], None], held: KeysOnDisk) -> None:
        """Make a change under the lock, if nobody else does and the keys are still the same."""

        def work() -> None:
            if self._is_locked:
                change(held)
                return
            with exclusive(self._paths, wait_s=0):
                if self.held().public_keys == held.public_keys:
                    change(held)

        try:
            await asyncio.to_thread(work)
        except ConfideError as error:
            # The connection is good all the same, and the next one tries again.
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
    """Be the only one who changes this machine's key files; a process that dies lets go.

    Raises KeyChangeError: another process does; KeyFileError: the lock cannot be made.
    """
    make_private_dir(paths.state)
    try:
        descriptor = lock_file(paths.identity_lock)
        try:
            is_ours = taken(descriptor, wait_s=wait_s)
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
