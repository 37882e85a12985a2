"""Decrypt a sealed secret on this device. The encrypted record comes from the daemon and the key
from this device's keyring; the record must match the secret's id.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from confide_crypto.errors import (
    ConfideError,
    ConnectionLost,
    RecordError,
    RequestError,
    UnknownEpochError,
    WrongKeyError,
)
from confide_crypto.sealing.placeholder import SECRET_ID_LENGTH, Placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.tools.arguments import Parameters, check
from confide_memory.tools.call import ToolAnswer
from confide_memory.wire.sealing import RECORD, RECORD_LIST
from confide_proxy.devices import roster_client
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import NoSecretError
from confide_proxy.link.session_values import LONGEST, MOST_REFERENCES, NONCE_BYTES, PAGE, SessionValues, seal_values
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.known_values import NOTE
from confide_proxy.sealing.secret_references import DIGITS, LISTED, bare, refuse_redacted
from confide_proxy.sealing.use_log import UseLog

_DEADLINE_S: Final = 20.0
TOOL: Final[dict[str, object]] = {
    "name": "secret_get",
    "inputSchema": {
        "type": "object",
        "properties": {"id": {"type": "string", "minLength": 32, "maxLength": 80}},
        "required": ["id"],
    },
}
"""The tool as the daemon lists it; a test keeps both equal."""
_STORE_AGAIN: Final = "store the value again, from its source or a file that has it"
_CALL_DEADLINE_S: Final = 9.0
"""Less than the ten seconds that a tool call has."""
_AT_ONCE: Final = 16
"""Records that are asked for at once."""


class OpenedSecret(NamedTuple):
    """The kind and the decrypted value of a secret. Its repr does not show the value."""

    kind: str
    value: bytes

    def __repr__(self) -> str:
        return f"OpenedSecret({self.kind}, {len(self.value)} bytes)"


def secret_id_of(text: str) -> bytes:
    """Return the secret id from a placeholder, or from its 32 hex digits. Raises NoSecretError if
    the text is neither.
    """
    refuse_redacted(text)
    placeholder = Placeholder.parse(text.strip())
    if placeholder is not None:
        return placeholder.secret_id
    try:
        found = bytes.fromhex(text.strip())
    except ValueError:
        found = b""
    if len(found) != SECRET_ID_LENGTH:
        raise NoSecretError(
            "this is not the placeholder of a sealed secret",
            hint="it looks like (sealed:github-token:4f2a…), or its 32 hex digits",
        )
    return found


async def open_secret(link: RequestChannel, sealing: SessionSealing, named: str) -> OpenedSecret:
    """Fetch and decrypt the secret that `named` identifies (see `secret_id_of`), and remember its
    value as known on this device.

    Raises:
        NoSecretError: `named` isn't an id, the daemon has no such record or doesn't show it to this
            device, or it is encrypted with a key that this device does not have.
        ConfideError: this device has no keys (`Keyring.problem` says why).
        RecordError: the record was changed, or belongs to another secret.
        RosterError, RequestError, ConnectionLost, TimeoutError: the keys or the record cannot be
            fetched.
    """
    keyring = sealing.keyring
    secret_id, placeholder = secret_id_of(named), Placeholder.parse(named.strip())
    if keyring.keys is None:
        await keyring.refresh(link)
    try:
        answer = await RECORD.ask(link, {"id": secret_id}, timeout_s=_DEADLINE_S)
    except RequestError as error:
        if error.code != "not_found":
            raise
        hint = f"was the placeholder changed, or is it of a space that this device has left? {_STORE_AGAIN}"
        raise NoSecretError("there is no such sealed secret", hint=hint) from None
    record = await asyncio.to_thread(SealedRecord.parse, answer["record"])
    # Any record of the space opens, so a daemon could return another one; and a text can pair any
    # kind with an id.
    if record.secret_id != secret_id or (placeholder is not None and record.kind != placeholder.kind):
        raise RecordError("the daemon has answered with another secret's record")
    try:
        opened = await asyncio.to_thread(_open_record, record, _keys(keyring))
    except UnknownEpochError:
        await keyring.refresh(link)
        try:
            opened = await asyncio.to_thread(_open_record, record, _keys(keyring))
        except UnknownEpochError:
            raise _of_others() from None
    except WrongKeyError:
        raise _of_others() from None
    await asyncio.to_thread(sealing.known_values.remember, (opened,))  # before it is returned
    return opened


async def resolve_references(
    link: RequestChannel, references: Iterable[str], names: Mapping[str, Placeholder]
) -> dict[str, Placeholder]:
    """Return the secret that each reference means. A reference is a name, a placeholder, its hex
    digits, or the beginning of the digits of exactly one secret.

    Raises NoSecretError if a reference means no secret or several; RequestError, ConnectionLost or
    TimeoutError if the daemon's list cannot be fetched.
    """
    found: dict[str, Placeholder] = {}
    listed: list[Placeholder] | None = None
    for reference in references:
        text = bare(reference)
        whole = Placeholder.parse(f"(sealed:{text})")
        if (known := names.get(text) or whole) is not None:
            found[reference] = known
            continue
        if listed is None:
            pages = roster_client.records(link)
            listed = [Placeholder(one["kind"], bytes.fromhex(one["id"])) async for page in pages for one in page]
        begins = [one for one in listed if str(one).startswith(f"(sealed:{text}")]
        if DIGITS.fullmatch(text.lower()):
            begins += [one for one in listed if one.secret_id.hex().startswith(text.lower())]
        if len(begins) != 1:
            why = f"{len(begins)} sealed secrets begin" if begins else "no sealed secret begins"
            raise NoSecretError(f"{why} with {text}", hint=LISTED)
        found[reference] = begins[0]
    return found


def _keys(keyring: Keyring) -> SpaceKeys:
    if keyring.keys is None:
        assert keyring.problem is not None
        raise keyring.problem
    return keyring.keys


def _of_others() -> NoSecretError:
    hint = f"a device that had the space when it was sealed can open it; if there is none any more: {_STORE_AGAIN}"
    return NoSecretError("this secret is sealed with a key that the devices of this space do not have", hint=hint)


def _open_record(record: SealedRecord, keys: SpaceKeys) -> OpenedSecret:
    return OpenedSecret(record.kind, record.open(keys))


async def answer(
    given: Any,
    sealing: SessionSealing,
    link: RequestChannel,
    *,
    refusal: Callable[[str], Awaitable[str | None]] | None = None,
    uses: Path | None = None,
) -> ToolAnswer:
    """Answer an agent's `secret_get` call on this device, since the daemon has no keys. Only the
    calling agent gets the value.

    Errors are returned as answers too.

    Args:
        given: the call's arguments, unchecked.
        refusal: returns the reason why the agent may not have the secret, given the secret's name,
            or None if it may.
        uses: file of the `UseLog`; None keeps no log.
    """
    try:
        named = check(Parameters.of_catalogue(TOOL), given)["id"]
        secret_id = secret_id_of(named)
        if refusal is not None and (why := await refusal(named)) is not None:
            return ToolAnswer(why)
        async with asyncio.timeout(_CALL_DEADLINE_S):
            opened = await open_secret(link, sealing, named)
    except TimeoutError:
        return ToolAnswer("the daemon, which keeps the sealed records, did not answer in time: try again")
    except ConnectionLost:
        return ToolAnswer(
            "the link to the daemon broke; it keeps the sealed records, this device only the keys: try again"
        )
    except ConfideError as error:
        return ToolAnswer(f"{error}\nhint: {error.hint}" if error.hint else str(error))
    if uses is not None:
        secret = Placeholder(opened.kind, secret_id)
        try:
            await asyncio.to_thread(UseLog(uses).note, [secret], "secret_get", "agent's client")
        except OSError as error:
            return ToolAnswer(f"the use cannot be listed, so the secret is not shown: {error.strerror}")
    value = opened.value.decode("utf-8", "replace")
    return ToolAnswer(value, {"id": secret_id.hex(), "kind": opened.kind, "value": value})


async def answer_run(asked: Mapping[str, object], link: RequestChannel, sealing: SessionSealing) -> dict[str, object]:
    """Answer the request of a `confide run` for secret values (`session_values.request` or
    `page_request`); {} for any other message.

    Raises the errors of `resolve_references`, `open_secret` and `Keyring.identity`.
    """
    references, nonce, after = asked.get("references"), _nonce(asked.get("nonce")), asked.get("after")
    if len(nonce) != NONCE_BYTES:
        return {}
    if isinstance(after, str):
        page = await _page(after, link, sealing)
        return seal_values(page, (await sealing.keyring.identity()).seed, nonce) if page is not None else {}
    if not isinstance(references, list) or not 0 < len(references) <= MOST_REFERENCES:
        return {}
    if not all(isinstance(each, str) for each in references):
        return {}
    secrets = await resolve_references(link, references, {})
    values = [(await open_secret(link, sealing, str(one))).value for one in secrets.values()]
    keys, identity = sealing.keyring.keys, await sealing.keyring.identity()
    if keys is None:
        return {}
    return seal_values(SessionValues(secrets, values, keys.space, keys.epochs[0]), identity.seed, nonce)


async def all_values(link: RequestChannel, sealing: SessionSealing) -> AsyncIterator[SessionValues]:
    """Yield the values of all secrets, page by page. Secrets that are too long or cannot be
    decrypted are left out.

    Raises the errors of `open_secret`, and RequestError, ConnectionLost or TimeoutError if the list
    of secrets cannot be fetched.
    """
    after: str | None = ""
    while after is not None and (page := await _page(after, link, sealing)) is not None:
        yield page
        after = page.following if page.following is not None and page.following > after else None


async def _page(after: str, link: RequestChannel, sealing: SessionSealing) -> SessionValues | None:
    """Return a page of the values of all secrets, without long ones and those that do not open."""
    try:
        begin = bytes.fromhex(after)
    except ValueError:
        return None
    answer = await RECORD_LIST.ask(link, {"after": begin, "limit": PAGE, "below": None}, timeout_s=_DEADLINE_S)
    wanted = [Placeholder(one["kind"], bytes.fromhex(one["id"])) for one in answer["records"] if one["kind"] != NOTE]
    opened: dict[str, Placeholder] = {}
    values: list[bytes] = []
    turn = asyncio.Semaphore(_AT_ONCE)

    async def open_one(one: Placeholder) -> None:
        async with turn:
            try:
                value = (await open_secret(link, sealing, str(one))).value
            except (NoSecretError, RecordError):
                return
        if len(value) <= LONGEST:
            opened[one.secret_id.hex()] = one
            values.append(value)

    await asyncio.gather(*map(open_one, wanted))
    keys = sealing.keyring.keys
    if keys is None:
        return None
    return SessionValues(opened, values, keys.space, keys.epochs[0], answer["next"])


def _nonce(given: object) -> bytes:
    try:
        return b64decode(given, validate=True) if isinstance(given, str) else b""
    except binascii.Error:
        return b""
