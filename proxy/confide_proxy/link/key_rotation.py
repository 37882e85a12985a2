"""This machine's new key: made, told to the daemon, and put in the place of the old one (PROTOCOL.md 7.10).

    identity.key        who this machine is
    identity.next.key   who it is about to be: on the disk before the daemon hears of it, and until a handshake with it has succeeded

A crash leaves both files. Every connection that finds two tries the next key first: if the daemon takes it, it is put in the place of the
old one; if the daemon does not know it, the rotation never happened, and once the old key has worked the next one is dropped. Files are
changed under a lock, which the rotation itself holds to its end, so that nobody drops a key that is about to be named.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, DeniedError, KeyFileError, RequestError
from confide_crypto.keys import Identity
from confide_crypto.private import cannot, make_private_dir, remove_private_file, rename_private_file
from confide_proxy import identity as identities
from confide_proxy import ondemand
from confide_proxy.errors import KeyChangeError
from confide_proxy.identity import Form, Stored
from confide_proxy.paths import Paths

if TYPE_CHECKING:
    from confide_crypto.connection import Connection
    from confide_proxy.config import ProxyConfig

log = logging.getLogger(__name__)

REQUEST_DEADLINE_S: Final = 10.0
_LOCK_DEADLINE_S: Final = 2.0
_LOCK_POLL_S: Final = 0.05
Dial = Callable[[Identity, bool], Awaitable["Connection"]]
"""Opens a connection as an identity; the flag says that it is this machine's settled one, which a daemon of ours may be told of."""


@dataclass(frozen=True, slots=True)
class Held:
    """This machine's keys as they are on the disk: one, or two while a rotation is not finished."""

    current: Stored
    following: Stored | None

    @property
    def public_keys(self) -> tuple[bytes, bytes | None]:
        """Of both, to see whether they have changed."""
        return self.current.public_key, self.following.public_key if self.following else None


class MachineKeys:
    """The keys of one machine, for one connection."""

    def __init__(self, paths: Paths, *, passphrase: str | None = None, is_locked: bool = False) -> None:
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

        Raises:
            KeyFileError, KeyLockedError, KeyringError: it may not be used as it is.
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

    def held(self) -> Held:
        """What is on the disk; a machine without a key gets one. Raises KeyFileError."""
        # The next one first: it may take the current one's place in between, and then both are the same.
        path = self._paths.next_identity
        following = identities.read(path) if path.exists() or path.is_symlink() else None
        current = identities.stored(self._paths.identity)
        return Held(current, following if following and following.public_key != current.public_key else None)

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

    async def _connect(self, dial: Dial, held: Held) -> Connection:
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

    async def _settle(self, change: Callable[[Held], None], held: Held) -> None:
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
            log.info("the rotation of this machine's key is not finished yet: %s", type(error).__name__)

    def _adopt(self, held: Held) -> None:
        ondemand.withdraw(self._paths.daemon_data, held.current.public_key)
        rename_private_file(self._paths.next_identity, self._paths.identity)
        identities.forget_quietly(held.current)
        log.info("this machine has its new key")

    def _drop(self, held: Held) -> None:
        assert held.following is not None
        remove_private_file(self._paths.next_identity)
        identities.forget_quietly(held.following)
        log.info("a rotation that the daemon never heard of was dropped")


async def rotate(paths: Paths, config: ProxyConfig, *, passphrase: str | None = None) -> tuple[bytes, bytes]:
    """Give this machine a new key, in the form of the old one. Returns the old and the new Ed25519 public key.

    Args:
        passphrase: seals the new key, and opens the old one; needed where the old one is sealed.

    Raises:
        KeyChangeError: another process changes the key, or the new key is not in force yet; a later connection finishes that.
        PassphraseError: it does not open the old key.
        RequestError: the daemon refuses the new key.
        RosterError: the daemon shows a list of devices that is not to be believed, so the new key cannot be put on it.
        Whatever `open_connection` raises.
    """
    from confide_crypto.rotation import sign_rotation
    from confide_proxy.dialing import open_connection
    from confide_proxy.sealing import succession
    from confide_proxy.sealing.keyring import Keyring
    from confide_proxy.sealing.space_connection import SpaceConnection

    keys = MachineKeys(paths, passphrase=passphrase, is_locked=True)
    with exclusive(paths, wait_s=_LOCK_DEADLINE_S):
        connection = await open_connection(paths, config, keys=keys)
        serving = asyncio.create_task(connection.serve(on_message=_pass_over, on_request=_refuse))
        try:
            held = await asyncio.to_thread(keys.held)
            if held.following is not None:
                raise KeyChangeError(
                    "an earlier rotation could not be finished",
                    hint="confide key show tells where the keys are; is the disk full?",
                )
            old = await asyncio.to_thread(held.current.open, passphrase)
            new = Identity.generate()
            await asyncio.to_thread(_prepare, paths, held.current, new, passphrase)
            # Before the daemon hears of it: from then on the old key cannot connect, and without it nobody could add the new one.
            await succession.prepare(paths.rosters, Keyring(paths, keys), connection, old, new, now=int(time.time()))
            body = sign_rotation(old, new, connection.session_id)
            await connection.request("rotate", body, timeout_s=REQUEST_DEADLINE_S)
        finally:
            await connection.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        async with SpaceConnection(paths, config, machine=keys) as space:
            with suppress(
                ConfideError, TimeoutError
            ):  # else the next connection takes the old key from the list of devices
                await space.keyring.refresh(space.connection)
        if (await asyncio.to_thread(keys.held)).public_keys != (new.public_key, None):
            raise KeyChangeError(
                "the daemon was told of the new key, but it is not in force here yet", hint="confide status tries again"
            )
    return old.public_key, new.public_key


def _prepare(paths: Paths, current: Stored, new: Identity, passphrase: str | None) -> None:
    """Have the next key on the disk, and unlocked for as long as the current one: sessions come back with it by themselves."""
    if current.form is Form.PASSPHRASE:
        from confide_proxy import unlocked

        if found := unlocked.find(current.public_key):
            unlocked.keep(new, found.until)
    identities.write(paths.next_identity, new, current.form, passphrase=passphrase)


async def _pass_over(_message: bytes) -> None:
    """No agent's session runs here."""


async def _refuse(_op: str, _body: dict[str, Any]) -> dict[str, Any]:
    raise RequestError("unavailable", "this connection only brings a new key")


@contextmanager
def exclusive(paths: Paths, *, wait_s: float) -> Iterator[None]:
    """Be the only one who changes this machine's key files; a process that dies lets go.

    Raises:
        KeyChangeError: another process does.
        KeyFileError: the lock cannot be made.
    """
    make_private_dir(paths.state)
    path: Path = paths.identity_lock
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _no_lock(path, error) from error
    try:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise KeyChangeError(
                        "another confide is changing this machine's key", hint="try again in a few seconds"
                    ) from None
            except OSError as error:
                raise _no_lock(path, error) from error
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _no_lock(path: Path, error: OSError) -> KeyFileError:
    failure = cannot(path, "be locked", error)
    failure.hint = "is the disk full, read-only, or a network's?"
    return failure
