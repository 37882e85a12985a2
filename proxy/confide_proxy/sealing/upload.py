"""Sealed records on their way up: they are with the daemon before any text that names them is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from confide_crypto.errors import RequestError
from confide_proxy.errors import UnsealableError

if TYPE_CHECKING:
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.wire.document_body import Asks
    from confide_proxy.devices.keyring import Keyring
    from confide_proxy.sealing.sealer import Secret

Item = TypeVar("Item")

DEADLINE_S: Final = 20.0
MAX_RECORDS: Final = 256
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of values in one request, or a single larger one."""
_TRIES: Final = 4
"""Each after the roster was fetched anew: other devices begin new epochs, but not one after the other."""
_MOST_REMEMBERED: Final = 100_000


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
