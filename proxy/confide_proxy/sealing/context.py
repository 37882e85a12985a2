"""What seals a session's texts, in one hand: the keys of its space, what seals with them, and where the sealed goes."""

from __future__ import annotations

import asyncio
import functools
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confide_crypto.errors import ConfideError, RequestError
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import UnsealableError
from confide_proxy.locks import Seat

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.documents import Asks
    from confide_proxy.config import ProxyConfig
    from confide_proxy.link.key_rotation import MachineKeys
    from confide_proxy.paths import Paths
    from confide_proxy.sealing.sealer import Sealer, Secret

log = logging.getLogger(__name__)

_LOOKS: Final = 2
"""At the roster, at once: one that is under way, and one behind it. A daemon may tell of news as often as it likes."""

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


class Sealing:
    """The sealing of one session or command.

    Attributes:
        keyring: the keys of the space that the link leads to.
        deposit: the records that the daemon has from this process.
    """

    def __init__(self, paths: Paths, config: ProxyConfig, machine: MachineKeys) -> None:
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
        return Sealer(self._config.secrets, lambda: self.keyring.keys, load)

    async def open(self, link: Asks, attached: dict[str, Any]) -> None:
        """Have the keys before the first text goes over a link that is up. Raises ConnectionLost, TimeoutError."""
        # A daemon that was restored from an old copy has lost what it had.
        self.deposit.forget()
        await self.keyring.open(link, attached)

    async def reseal(self, link: Asks) -> None:
        """Seal the records of older epochs anew, unless another process of this machine does, or all of it is done."""
        from confide_proxy.devices.reseal import Resealing

        keys = self.keyring.keys
        if keys is None or keys.epoch == 1:
            return
        seat = Seat(self._paths.seats, f"reseal {keys.space.hex()}")
        try:
            work = Resealing(self._paths.rosters, keys)
            if seat.try_take() and await asyncio.to_thread(work.is_due):
                await work.run(link)
        except (ConfideError, TimeoutError, OSError) as error:
            log.info("old records were not all sealed anew: %s", type(error).__name__)
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

    async def look_again(self, link: Asks, attached: dict[str, Any] | None = None) -> None:
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

    async def keep(self, link: Asks, secrets: Iterable[Secret]) -> None:
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

    async def _send(self, link: Asks, keys: SpaceKeys, secrets: tuple[Secret, ...]) -> None:
        from confide_crypto.sealing.record import Record  # only who has secrets to seal needs it

        missing = {
            secret_id: secret
            for secret in secrets
            if (secret_id := keys.secret_id(secret.kind, secret.value)) not in self._kept
        }
        for batch in batches(
            missing.items(), lambda item: len(item[1].value), most=MAX_RECORDS, most_size=MAX_BATCH_BYTES
        ):
            records = [b64encode(Record.seal(keys, one.kind, one.value).encode()).decode() for _, one in batch]
            await link.request("records", {"records": records}, timeout_s=DEADLINE_S)
            if len(self._kept) > _MOST_REMEMBERED:
                self._kept.clear()
            self._kept.update(secret_id for secret_id, _ in batch)


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
