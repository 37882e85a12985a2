"""The keys and the sealer of a session, the encrypted records that it has sent to the daemon, and
the sealer of the files in its folders.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from confide_crypto.errors import ConfideError, LinkError, RequestError
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.wire.sealing import RECORDS
from confide_memory.wire.session import Attached
from confide_proxy import VERSION
from confide_proxy.config import Policy, ProxyConfig
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import BlockedError, FolderError, UnsealableError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.known_values import KnownValues

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Sealed, Sealer, Secret

log = logging.getLogger(__name__)

_LOOKS: Final = 2
"""Roster fetches at a time: one that runs and one that waits. A daemon may announce changes as
often as it likes.
"""

_QUICK_CHARS: Final = 8 * 1024
"""Characters of a message that are searched for known values in the event loop."""
_POLL_S: Final = 2.0
_POLL_WITH_KEYS_S: Final = 60.0
Item = TypeVar("Item")

DEADLINE_S: Final = 20.0
MAX_RECORDS: Final = 256
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of values in one request; a single larger value goes alone."""
_TRIES: Final = 4
"""Attempts to send records. The roster is fetched again before each retry, since another device may
have begun a new epoch.
"""
_MOST_REMEMBERED: Final = 100_000

NAME_TELLS: Final = "has a name with what looks like a credential in it: give it another one"
ID_TELLS: Final = "has a note's id with what looks like a credential in it: give it another one"
_ID_LINE: Final = re.compile(r"\ufeff?---[^\S\n]*\n(?:(?!---|\.\.\.).*\n){0,200}?(id:[ \t]*[\"']?mem_.*)")
"""The front matter up to and including the line with the note's id."""
_SOURCE: Final = "files"
_SEALED: Final = "(sealed:"
_REDACTED: Final = "(redacted:"
_NOTE: Final = "(sealed:note:"


class SessionSealing:
    """Seals and opens credentials for one session or command.

    Attributes:
        keyring: the keys of the space that the link leads to.
        deposit: sends the encrypted records of credentials, and remembers which ones were sent.
    """

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, machine: MachineKeys) -> None:
        """`machine` holds the key that authenticates the link."""
        self._paths = paths
        self._config = config
        self.keyring = Keyring(paths, machine)
        self.deposit = Deposit(self.keyring)
        self._looks = 0

    @property
    def state(self) -> Path:
        """The path of this device's state folder."""
        return self._paths.state

    @functools.cached_property
    def sealer(self) -> Sealer:
        """The sealer of texts, created at its first use so that a start doesn't load its patterns."""
        from confide_proxy.sealing.sealer import Sealer, load_fingerprints

        load = functools.cache(lambda: load_fingerprints(self._paths.fingerprint_key))
        return Sealer(self._config.secrets, lambda: self.keyring.keys, load, self.known_values)

    @functools.cached_property
    def known_values(self) -> KnownValues:
        """The secret values that this device has sealed or opened before."""

        return KnownValues(self._paths.known, lambda: self.keyring.last_keys)

    @property
    def knows_any(self) -> bool:
        """Return True if this device may have sealed or opened a secret value before."""
        return "known" in self.__dict__ or self._paths.known.exists()

    def may_know(self, said: Any) -> bool:
        """Return True if a JSON value may contain a secret value that this device knows.

        Fast enough for the event loop: it also returns True if the JSON value is too long for a
        quick search.
        """
        return self.knows_any and self.known_values.are_in(said, _QUICK_CHARS)

    async def open(self, link: RequestChannel, attached: Attached) -> None:
        """Load the keys over a new link, before any text is sent over it.

        Raises ConnectionLost or TimeoutError if the link fails.
        """
        # A daemon restored from an old copy has lost records that it had.
        self.deposit.forget()
        await self.keyring.open(link, attached)

    async def reseal(self, link: RequestChannel) -> None:
        """Encrypt the records under older keys of the space again with its newest key. Does nothing
        if another process of this device is doing so; errors are only logged.
        """
        from confide_proxy.devices.reseal import Resealing

        keys = self.keyring.keys
        if keys is None or keys.epoch == 1:
            return
        seat = Seat(self._paths.seats, f"reseal {keys.space.hex()}")
        try:
            if seat.try_take():
                await Resealing(keys).run(link)
        except (ConfideError, TimeoutError, OSError) as error:
            log.info("not all old records were sealed again: %s", type(error).__name__)
        finally:
            seat.leave()

    async def attend(self, look_again: Callable[[], Awaitable[None]]) -> None:
        """Watch the file of the roster, which is the signed list of the space's devices, and reload
        the keys when it changes.

        It changes when another process of this device has received a newer roster, or when the user
        has confirmed the space there. No message from the daemon is needed. Runs until cancelled.
        """
        stamp = self._stamp()
        while True:
            await asyncio.sleep(_POLL_S if self.keyring.keys is None else _POLL_WITH_KEYS_S)
            known, stamp = stamp, self._stamp()
            if stamp == known:
                continue
            if self.keyring.keys is None:
                await look_again()
            else:
                await self.keyring.catch_up()

    def _stamp(self) -> int:
        with suppress(OSError):
            return self._paths.rosters.stat().st_mtime_ns
        return 0

    async def look_again(self, link: RequestChannel, attached: Attached | None = None) -> None:
        """Fetch changes of the roster (the signed list of the space's devices) from the daemon.
        Then encrypt old records again with the newest key.

        Errors are ignored: after a lost connection the next one fetches the roster again.
        """
        if self._looks == _LOOKS:
            return  # the waiting fetch sees these changes too
        self._looks += 1
        try:
            with suppress(ConfideError, TimeoutError):
                await (self.keyring.refresh(link) if attached is None else self.keyring.open(link, attached))
        finally:
            self._looks -= 1
        await self.reseal(link)


class Deposit:
    """Sends encrypted records of credentials to the daemon, and remembers which ones this process
    has sent.
    """

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._sent_ids: set[bytes] = set()

    def forget(self) -> None:
        """Forget which records were sent, because the link leads to another space, or to a daemon
        that may have been restored from a backup.
        """
        self._sent_ids.clear()

    async def keep(self, link: RequestChannel, secrets: Iterable[Secret]) -> None:
        """Encrypt these secrets under the space's newest key, and send the records to the daemon.

        Records that this process has sent before are skipped.

        Raises:
            UnsealableError: this device has no keys, or has lost them.
            RequestError, ConnectionLost, TimeoutError: the request fails; code `unavailable` if the
                space's key changes again and again.
            RosterError: the daemon returned a list of devices that fails verification.
        """
        wanted = tuple(secrets)
        for tries_left in reversed(range(_TRIES)):
            keys = self._keyring.keys
            if keys is None:
                if not wanted:
                    return
                raise UnsealableError(wanted[0].kind)
            try:
                await self._send(link, keys, wanted)
            except RequestError as error:
                if error.code != "conflict":
                    raise
                if not tries_left:
                    # Not final for the caller, as `conflict` would be.
                    raise RequestError("unavailable", "the keys of this space change just now", "try again") from error
                await self._keyring.refresh(link)
            else:
                return

    async def keep_of_file(self, link: RequestChannel, path: str, secrets: Iterable[Secret]) -> None:
        """Send the records of a file's secrets, as `keep` does. Call it before the file's text is
        sent.

        Raises FolderError if the secrets cannot be sealed now, and RequestError, ConnectionLost or
        TimeoutError if the request fails.
        """
        try:
            await self.keep(link, secrets)
        except (RequestError, LinkError):
            raise
        except ConfideError as error:
            raise FolderError(path, f"cannot be sealed now: {error}", hint=error.hint) from error

    async def _send(self, link: RequestChannel, keys: SpaceKeys, secrets: tuple[Secret, ...]) -> None:
        missing = {
            secret_id: secret
            for secret in secrets
            if (secret_id := keys.secret_id(secret.kind, secret.value)) not in self._sent_ids
        }
        for batch in batches(
            missing.items(), lambda item: len(item[1].value), most=MAX_RECORDS, most_size=MAX_BATCH_BYTES
        ):
            records = [b64encode(SealedRecord.seal(keys, one.kind, one.value).encode()).decode() for _, one in batch]
            await RECORDS.ask(link, {"records": records}, timeout_s=DEADLINE_S)
            if len(self._sent_ids) > _MOST_REMEMBERED:
                self._sent_ids.clear()
            self._sent_ids.update(secret_id for secret_id, _ in batch)


class SealedFile(NamedTuple):
    """A file's text in the form in which it is sent.

    Attributes:
        sealed: the sealed text, and the values of its placeholders.
        mark: the `FileSealer.mark` at the time of sealing.
        is_waiting: True if a value is redacted only because this device has no keys yet.
    """

    sealed: Sealed
    mark: str
    is_waiting: bool


class FileSealer:
    """Seals and restores the files in one session's folders. Safe to use from several threads."""

    def __init__(self, sealing: SessionSealing, policy: Policy) -> None:
        self._sealing = sealing
        self._policy = policy
        self._known_mark: tuple[SpaceKeys | None, str] | None = None

    @property
    def mark(self) -> str:
        """A hash of everything that decides how a file is sealed: detection rules, policy, and the
        space's keys.

        A file that was sealed under another mark must be read and sealed again.
        """
        return self._mark(self._sealing.keyring.keys)

    def _mark(self, keys: SpaceKeys | None) -> str:
        known = self._known_mark
        if known is not None and known[0] is keys:
            return known[1]
        # Rules change only with the version. The secret id of a fixed value identifies a space's
        # keys, and is the same in all epochs.
        parts = [VERSION, self._policy.files, self._policy.local, str(self._policy.min_confidence), *self._policy.allow]
        parts.append(keys.secret_id("mark", b"").hex() if keys else "")
        mark = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
        self._known_mark = (keys, mark)
        return mark

    def seal(self, path: str, text: str) -> SealedFile:
        """Seal the text of a file.

        Raises FolderError if the policy blocks the text, if it cannot be sealed, or if the file's
        name or its note's id contains a credential, since names cannot be sealed.
        """
        keys = self._sealing.keyring.keys
        if self.seal_path(path) != path:
            raise FolderError(path, NAME_TELLS)
        try:
            sealed = self._sealing.sealer.seal(text, _SOURCE)
        except BlockedError as error:
            raise FolderError(
                path, f"holds what looks like a credential ({error.kind}, line {error.line}), which your policy blocks"
            ) from None
        except ConfideError as error:
            raise FolderError(path, f"cannot be sealed: {error}", hint=error.hint) from None
        if sealed.values and (own := _ID_LINE.match(text)) and own[1] not in sealed.text:
            raise FolderError(path, ID_TELLS)
        # The keys may have been loaded or dropped meanwhile.
        has_keys = None not in (keys, self._sealing.keyring.keys)
        is_waiting = not has_keys and any(placeholder.startswith(_REDACTED) for placeholder in sealed.values)
        if is_waiting and self._policy.files == "redact":
            is_waiting = any(placeholder.startswith("(redacted:note:") for placeholder in sealed.values)
        return SealedFile(sealed, self._mark(keys), is_waiting)

    def seal_path(self, path: str) -> str:
        """Return a path with the credentials in it sealed, to send it to the daemon."""
        try:
            return self._sealing.sealer.seal(path, _SOURCE, is_sensitive=False).text
        except ConfideError:
            return "(a file)"

    def restore(self, path: str, text: str, before: str, values: Mapping[str, str]) -> str:
        """Return a text from the daemon with placeholders replaced by the values in the local file
        that it replaces.

        Values are put back only if the user has configured `local = "keep"`. A placeholder stays if
        another device has moved it to where no rule would find its value again and the value isn't
        known (`KnownValues`), or into an address, which a program that shows the text would fetch.

        `before` is the local file as it was sent, and `values` are its values by placeholder.
        Values that another device has sealed in `before` become known to this device.

        Raises FolderError if a value that only this file contains would be lost, or if the text
        cannot be sealed.
        """
        values = {**values, **self._sealing.known_values.learn(text, before, values)}
        if self._policy.local == "replace":
            values = {
                placeholder: value for placeholder, value in values.items() if not placeholder.startswith(_SEALED)
            }
        try:
            restored = self._sealing.sealer.restore(text, values, _SOURCE, before=before)
        except ConfideError as error:
            raise FolderError(path, f"cannot be sealed: {error}", hint=error.hint) from None
        here_alone = {placeholder: value for placeholder, value in values.items() if placeholder.startswith(_REDACTED)}
        if any(placeholder in restored for placeholder in here_alone):
            problem = (
                "stays as it is: another device has put a credential that is here alone where no rule would know it"
            )
            raise FolderError(path, problem)
        if any(placeholder not in text and value not in text for placeholder, value in here_alone.items()):
            problem = "stays as it is: another device has removed a credential that is here alone; remove it here too"
            raise FolderError(path, problem)
        return restored

    def check_removable(self, path: str, values: Mapping[str, str]) -> None:
        """Raise FolderError if a file contains a secret value that is stored nowhere else. Another
        device's deletion must not destroy it.
        """
        if any(placeholder.startswith(_REDACTED) for placeholder in values):
            problem = (
                "stays: another device has deleted it, and it holds a credential that is here alone; delete it here too"
            )
            raise FolderError(path, problem)

    def is_to_be_sent(self, path: str, text: str, restored: str) -> bool:
        """Return True if a file that was just written from a daemon's text must be sent back
        sealed.

        That is so if the daemon's text contains a value in clear that should be sealed. Parts of
        sensitive notes are excepted: two devices that each have a part of one in clear would answer
        each other forever.
        """
        return self.seal(path, text).sealed.text != text and _NOTE not in restored

    def is_replaced(self, values: Mapping[str, str]) -> bool:
        """Return True if the user's configuration requires placeholders in place of these values in
        the local file too.
        """
        return self._policy.local == "replace" and any(placeholder.startswith(_SEALED) for placeholder in values)

    def why_withheld(self) -> str:
        """Return the reason why a file is not sent now, although it could be sent with its
        credentials redacted.
        """
        problem = self._sealing.keyring.problem
        return f"holds a credential that this device cannot seal now{f': {problem}' if problem else ''}"


def batches(
    items: Iterable[Item], size_of: Callable[[Item], int], *, most: int, most_size: int
) -> Iterator[list[Item]]:
    """Split the items into lists of at most `most` items and `most_size` total size. An item that
    is larger than that is a list of its own.
    """
    batch: list[Item] = []
    size = 0
    for item in items:
        length = size_of(item)
        if batch and (len(batch) == most or size + length > most_size):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch
