"""What seals a session's texts, in one hand: the keys of its space, what seals with them, and where the sealed goes; and the files of its
folders as they leave the machine, and as they keep their plaintext when a change comes back.
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
"""At the roster, at once: one that is under way, and one behind it. A daemon may tell of news as often as it likes."""

_QUICK_CHARS: Final = 8 * 1024
"""Of a message that is looked through in the event loop for values that this machine knows."""
_POLL_S: Final = 2.0
_POLL_WITH_KEYS_S: Final = 60.0
Item = TypeVar("Item")

DEADLINE_S: Final = 20.0
MAX_RECORDS: Final = 256
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of values in one request, or a single larger one."""
_TRIES: Final = 4
"""Each after the roster was fetched anew: other devices begin new epochs, but not one after the other."""
_MOST_REMEMBERED: Final = 100_000

NAME_TELLS: Final = "has a name with what looks like a credential in it: give it another one"
ID_TELLS: Final = "has a note's id with what looks like a credential in it: give it another one"
_ID_LINE: Final = re.compile(r"\ufeff?---[^\S\n]*\n(?:(?!---|\.\.\.).*\n){0,200}?(id:[ \t]*[\"']?mem_.*)")
"""The line that names a note, behind the front matter before it."""
_SOURCE: Final = "files"
_SEALED: Final = "(sealed:"
_REDACTED: Final = "(redacted:"
_NOTE: Final = "(sealed:note:"


class SessionSealing:
    """The sealing of one session or command.

    Attributes:
        keyring: the keys of the space that the link leads to.
        deposit: the records that the daemon has from this process.
    """

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, machine: MachineKeys) -> None:
        """`machine` has the key that the link is made with."""
        self._paths = paths
        self._config = config
        self.keyring = Keyring(paths, machine)
        self.deposit = Deposit(self.keyring)
        self._looks = 0

    @functools.cached_property
    def sealer(self) -> Sealer:
        """Seals texts. Made at the first need: a start does without its patterns."""
        from confide_proxy.sealing.sealer import Sealer, load_fingerprints

        load = functools.cache(lambda: load_fingerprints(self._paths.fingerprint_key))
        return Sealer(self._config.secrets, lambda: self.keyring.keys, load, self.known)

    @functools.cached_property
    def known(self) -> KnownValues:
        """The values that this machine has sealed or opened."""

        return KnownValues(self._paths.known, lambda: self.keyring.last_keys)

    @property
    def knows_any(self) -> bool:
        """Whether this machine has sealed or opened something yet."""
        return "known" in self.__dict__ or self._paths.known.exists()

    def may_know(self, said: Any) -> bool:
        """Whether a JSON value may hold a value that this machine knows, by a look that is short; True where it would be long."""
        return self.knows_any and self.known.are_in(said, _QUICK_CHARS)

    async def open(self, link: RequestChannel, attached: Attached) -> None:
        """Have the keys before the first text goes over a link that is up. Raises ConnectionLost, TimeoutError."""
        # A daemon that was restored from an old copy has lost what it had.
        self.deposit.forget()
        await self.keyring.open(link, attached)

    async def reseal(self, link: RequestChannel) -> None:
        """Seal the records of older epochs anew, unless another process of this machine does."""
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
        """Look again when another process of this machine has seen more, or a person has confirmed the space there: no daemon need tell."""
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
        """Have the news of the devices, as far as they can be had now; a connection that breaks begins with them again."""
        if self._looks == _LOOKS:
            return  # the one that waits sees these news too
        self._looks += 1
        try:
            with suppress(ConfideError, TimeoutError):
                await (self.keyring.refresh(link) if attached is None else self.keyring.open(link, attached))
        finally:
            self._looks -= 1
        await self.reseal(link)


class Deposit:
    """The records of one space that this process has given to the daemon."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._kept: set[bytes] = set()

    def forget(self) -> None:
        """Take nothing for kept any more: the link leads to another space, or to a daemon that may have been restored from a copy."""
        self._kept.clear()

    async def keep(self, link: RequestChannel, secrets: Iterable[Secret]) -> None:
        """Have the records of these secrets with the daemon, sealed under the space's newest key.

        Raises:
            UnsealableError: this machine has no keys (any more).
            RequestError, ConnectionLost, TimeoutError: from the link; `unavailable` where the daemon takes no record of the newest key.
            RosterError: the daemon shows a roster that is not to be believed.
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
                    # No last word on what is to be sent, as a conflict would be.
                    raise RequestError("unavailable", "the keys of this space change just now", "try again") from error
                await self._keyring.refresh(link)
            else:
                return

    async def keep_of_file(self, link: RequestChannel, path: str, secrets: Iterable[Secret]) -> None:
        """The same for those of a file, before its text is with the daemon.

        Raises FolderError: they cannot be made now; RequestError, ConnectionLost, TimeoutError: as `keep`.
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
            if (secret_id := keys.secret_id(secret.kind, secret.value)) not in self._kept
        }
        for batch in batches(
            missing.items(), lambda item: len(item[1].value), most=MAX_RECORDS, most_size=MAX_BATCH_BYTES
        ):
            records = [b64encode(SealedRecord.seal(keys, one.kind, one.value).encode()).decode() for _, one in batch]
            await RECORDS.ask(link, {"records": records}, timeout_s=DEADLINE_S)
            if len(self._kept) > _MOST_REMEMBERED:
                self._kept.clear()
            self._kept.update(secret_id for secret_id, _ in batch)


class SealedFile(NamedTuple):
    """A file's text as it goes out.

    Attributes:
        sealed: the text, and what was in it.
        mark: with what it was sealed, as `FileSealer.mark`.
        is_waiting: something in it is redacted only because this machine has no keys.
    """

    sealed: Sealed
    mark: str
    is_waiting: bool


class FileSealer:
    """Seals the files of one session's folders. Safe to use from several threads."""

    def __init__(self, sealing: SessionSealing, policy: Policy) -> None:
        self._sealing = sealing
        self._policy = policy
        self._known_mark: tuple[SpaceKeys | None, str] | None = None

    @property
    def mark(self) -> str:
        """With what a file is sealed now: rules, the user's wishes, keys of the space. What was sealed with others is read anew."""
        return self._mark(self._sealing.keyring.keys)

    def _mark(self, keys: SpaceKeys | None) -> str:
        known = self._known_mark
        if known is not None and known[0] is keys:
            return known[1]
        # Rules change with the version alone. The name of a fixed value tells one space's keys from another's, in all epochs the same.
        parts = [VERSION, self._policy.files, self._policy.local, str(self._policy.min_confidence), *self._policy.allow]
        parts.append(keys.secret_id("mark", b"").hex() if keys else "")
        mark = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
        self._known_mark = (keys, mark)
        return mark

    def seal(self, path: str, text: str) -> SealedFile:
        """The text of a file as it goes out.

        Raises:
            FolderError: it is not let out, or cannot be sealed; or its name, or its note's id, holds a credential: a name cannot be sealed.
        """
        keys = self._sealing.keyring.keys
        if self.shown(path) != path:
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
        # They may be gone, or there, since this began.
        has_keys = None not in (keys, self._sealing.keyring.keys)
        is_waiting = not has_keys and any(placeholder.startswith(_REDACTED) for placeholder in sealed.values)
        if is_waiting and self._policy.files == "redact":
            is_waiting = any(placeholder.startswith("(redacted:note:") for placeholder in sealed.values)
        return SealedFile(sealed, self._mark(keys), is_waiting)

    def shown(self, path: str) -> str:
        """A path as the daemon may see it."""
        try:
            return self._sealing.sealer.seal(path, _SOURCE, is_sensitive=False).text
        except ConfideError:
            return "(a file)"

    def restore(self, path: str, text: str, before: str, values: Mapping[str, str]) -> str:
        """The text with the values of the file that it replaces back in their places; those that are sealed only with `local = "keep"`.

        A sealed value that another machine has moved to where no rule would find it, and that is not known (`KnownValues`), stays sealed.
        So does one that it has moved into an address, which whoever renders the file would fetch.

        `before`: the file as it went out, and its `values`; what another machine knew in it is known here from now on.

        Raises FolderError: a value that is nowhere but in this file would be lost, or as `seal`.
        """
        values = {**values, **self._sealing.known.learned(text, before, values)}
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
        """Raise FolderError where a file has a value that is nowhere else, so that no other machine's wish deletes it."""
        if any(placeholder.startswith(_REDACTED) for placeholder in values):
            problem = (
                "stays: another device has deleted it, and it holds a credential that is here alone; delete it here too"
            )
            raise FolderError(path, problem)

    def is_to_be_sent(self, path: str, text: str, restored: str) -> bool:
        """Whether a file that was written in a text's place is to be sent as it seals now, though the daemon has that text.

        It is where the text says what should be sealed. Where several machines hold a part of a sensitive note in clear each, nobody does:
        they would answer each other for ever.
        """
        return self.seal(path, text).sealed.text != text and _NOTE not in restored

    def is_replaced(self, values: Mapping[str, str]) -> bool:
        """Whether a file with these values is to hold placeholders in their places as well."""
        return self._policy.local == "replace" and any(placeholder.startswith(_SEALED) for placeholder in values)

    def why_withheld(self) -> str:
        """Why a file that would go out redacted waits."""
        problem = self._sealing.keyring.problem
        return f"holds a credential that this device cannot seal now{f': {problem}' if problem else ''}"


def batches(
    items: Iterable[Item], size_of: Callable[[Item], int], *, most: int, most_size: int
) -> Iterator[list[Item]]:
    """The items, at most so many and so large in one list, or a single larger one."""
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
