"""A sealed secret opened on this machine: its record from the daemon, the key from the roster, and a check that it is what was named."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_crypto.errors import RequestError
from confide_crypto.sealing.errors import RecordError, UnknownEpochError
from confide_crypto.sealing.placeholders import Placeholder
from confide_crypto.sealing.records import Record
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH
from confide_proxy.errors import NoSecretError, UnfitAnswerError

if TYPE_CHECKING:
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_proxy.sealing.keyring import Keyring
    from confide_proxy.sealing.requests import Asks

DEADLINE_S: Final = 20.0


class Opened(NamedTuple):
    """A secret. The repr shows no value."""

    kind: str
    value: bytes

    def __repr__(self) -> str:
        return f"Opened({self.kind}, {len(self.value)} bytes)"


def secret_id_of(text: str) -> bytes:
    """The id that somebody names: a placeholder, or the id alone (32 hex digits).

    Raises:
        NoSecretError: it is neither.
    """
    if text.strip().startswith("(redacted:"):
        hint = "it stands in for a value that was never sent; the machine whose file it is in has that"
        raise NoSecretError("what was redacted cannot be opened", hint=hint)
    placeholder = Placeholder.parse(text.strip())
    if placeholder is not None:
        return placeholder.secret_id
    try:
        found = bytes.fromhex(text.strip())
    except ValueError:
        found = b""
    if len(found) != SECRET_ID_LENGTH:
        raise NoSecretError(
            "that names no sealed secret", hint="it looks like (sealed:github-token:4f2a…), or its 32 hex digits"
        )
    return found


async def open_secret(link: Asks, keyring: Keyring, named: str) -> Opened:
    """The secret that somebody names, as `secret_id_of` takes it.

    Raises:
        NoSecretError: it names none; the daemon has no such record, or does not show it to this machine.
        ConfideError: `Keyring.problem`, where this machine has no keys.
        RecordError: the record was changed, or is another secret's.
        RosterError, RequestError, ConnectionLost, TimeoutError: as `Keyring.refresh`.
    """
    secret_id, placeholder = secret_id_of(named), Placeholder.parse(named.strip())
    if keyring.keys is None:
        await keyring.refresh(link)
    try:
        answer = await link.request("record", {"id": secret_id.hex()}, timeout_s=DEADLINE_S)
    except RequestError as error:
        if error.code != "not_found":
            raise
        hint = "was the placeholder changed, or is it of a space that this machine has left?"
        raise NoSecretError("there is no such sealed secret", hint=hint) from None
    packed = answer.get("record")
    if not isinstance(packed, str):
        raise UnfitAnswerError
    try:
        record = await asyncio.to_thread(lambda: Record.parse(b64decode(packed, validate=True)))
    except ValueError:
        raise UnfitAnswerError from None
    # Any record of the space opens, so a daemon could answer with another one; and a text can say what it likes of what it names.
    if record.secret_id != secret_id or (placeholder is not None and record.kind != placeholder.kind):
        raise RecordError("the daemon has answered with another secret's record")
    try:
        return await asyncio.to_thread(_opened, record, _keys(keyring))
    except UnknownEpochError:
        await keyring.refresh(link)
        return await asyncio.to_thread(_opened, record, _keys(keyring))


def _keys(keyring: Keyring) -> SpaceKeys:
    if keyring.keys is None:
        assert keyring.problem is not None
        raise keyring.problem
    return keyring.keys


def _opened(record: Record, keys: SpaceKeys) -> Opened:
    return Opened(record.kind, record.open(keys))
