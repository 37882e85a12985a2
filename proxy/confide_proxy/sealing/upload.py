"""Sealed records on their way up: they are with the daemon before any text that names them is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from confide_crypto.errors import RequestError
from confide_proxy.errors import UnsealableError

if TYPE_CHECKING:
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_proxy.sealing.sealer import Secret

DEADLINE_S: Final = 20.0
MAX_RECORDS: Final = 256
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of values in one request, or a single larger one."""
_TRIES: Final = 4
"""Each after the roster was fetched anew: other devices begin new epochs, but not one after the other."""
_MOST_REMEMBERED: Final = 100_000


class Requests(Protocol):
    """The way to the daemon: a link or a connection."""

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """As `Connection.request`."""
        ...


class Keys(Protocol):
    """Where the keys come from (`keyring.Keyring`)."""

    @property
    def keys(self) -> SpaceKeys | None:
        """Those of the space now."""
        ...

    async def refresh(self, link: Any) -> None:
        """Have the roster's news."""
        ...


class Deposit:
    """The records of one space that this process has given to the daemon."""

    def __init__(self, keyring: Keys) -> None:
        self._keyring = keyring
        self._kept: set[bytes] = set()

    def forget(self) -> None:
        """Take nothing for kept any more: the link leads to another space, or to a daemon that may have been restored from a copy."""
        self._kept.clear()

    async def keep(self, link: Requests, secrets: Iterable[Secret]) -> None:
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

    async def _send(self, link: Requests, keys: SpaceKeys, secrets: tuple[Secret, ...]) -> None:
        from confide_crypto.sealing.records import Record  # only who has secrets to seal needs it

        missing = {
            secret_id: secret
            for secret in secrets
            if (secret_id := keys.secret_id(secret.kind, secret.value)) not in self._kept
        }
        for batch in _batches(missing):
            records = [b64encode(Record.seal(keys, one.kind, one.value).encode()).decode() for one in batch.values()]
            await link.request("records", {"records": records}, timeout_s=DEADLINE_S)
            if len(self._kept) > _MOST_REMEMBERED:
                self._kept.clear()
            self._kept.update(batch)


def _batches(secrets: dict[bytes, Secret]) -> Iterator[dict[bytes, Secret]]:
    batch: dict[bytes, Secret] = {}
    size = 0
    for secret_id, secret in secrets.items():
        if batch and (len(batch) == MAX_RECORDS or size + len(secret.value) > MAX_BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[secret_id] = secret
        size += len(secret.value)
    if batch:
        yield batch
