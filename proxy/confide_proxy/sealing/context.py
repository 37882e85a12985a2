"""What seals a session's texts, in one hand: the keys of its space, what seals with them, and where the sealed goes."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError
from confide_proxy.devices.keyring import Keyring
from confide_proxy.locks import Seat
from confide_proxy.sealing.upload import Deposit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from confide_memory.wire.document_body import Asks
    from confide_proxy.config import ProxyConfig
    from confide_proxy.link.key_rotation import MachineKeys
    from confide_proxy.paths import Paths
    from confide_proxy.sealing.sealer import Sealer


log = logging.getLogger(__name__)

_LOOKS: Final = 2
"""At the roster, at once: one that is under way, and one behind it. A daemon may tell of news as often as it likes."""

_POLL_S: Final = 2.0
_POLL_WITH_KEYS_S: Final = 60.0


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
        from confide_proxy.sealing import fingerprints
        from confide_proxy.sealing.sealer import Sealer

        load = functools.cache(lambda: fingerprints.load(self._paths.fingerprint_key))
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
