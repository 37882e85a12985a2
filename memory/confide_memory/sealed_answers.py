"""What the answers to requests about devices, sealed records and unsealed texts carry (PROTOCOL.md 9.7, 10); `answers` has the others. What
an entry, a card, a record or a wrap says is checked by who reads it, in `confide_crypto.sealing`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.sealing.pairing import ANSWER_LENGTH, REQUEST_LENGTH
from confide_crypto.sealing.record import MAX_RECORD, is_kind
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import CARD_LENGTH, HASH_LENGTH, MAX_ENTRY_BYTES, MAX_EPOCHS
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH
from confide_memory.forms import (
    Kind,
    bounded,
    choice,
    count,
    data,
    each,
    flag,
    hexed,
    items,
    moment,
    optional,
    records,
    revision,
    sized,
    text,
)
from confide_memory.requests import MAX_CHANGES, MAX_LISTED_RECORDS
from confide_memory.wire import Fields, add

MAX_WAITING: Final = 256
MAX_TEXTS: Final = 100_000
"""In one answer, which has at most 16 MiB."""
_MAX_MARK: Final = 256
_CUSTODIES: Final = ("server", "caller")


def _digits(size: int) -> Kind:
    return lambda body, name: str(hexed(size)(body, name).hex())


def _following(body: Mapping[str, Any], name: str) -> str | None:
    # Required: an end that was left out would be the end of the list.
    if name not in body:
        raise RequestError("invalid", f"'{name}' is missing")
    found: str | None = optional(_digits(SECRET_ID_LENGTH))(body, name)
    return found


def _secret_kind(body: Mapping[str, Any], name: str) -> str:
    value = text(body, name)
    if not is_kind(value):
        raise RequestError("invalid", f"'{name}' is no kind of a secret")
    return value


def _head(body: Mapping[str, Any], name: str) -> bytes:
    return b"" if body.get(name) == "" else bytes(hexed(HASH_LENGTH)(body, name))


_epoch: Final = count(MAX_EPOCHS, least=1)
_number: Final = count(MAX_ENTRIES - 1, least=-1)
_size: Final = count(2**53 - 1)

_ANSWERS: Final[Mapping[str, Fields]] = {
    # Devices.
    "roster": {
        "space": bounded(_MAX_MARK),
        "entries": items(MAX_ENTRIES, each(data(MAX_ENTRY_BYTES))),
        "number": _number,
        "head": _head,
        "custody": choice(_CUSTODIES),
        "isLocked": flag(),
        "needs": items(MAX_EPOCHS, each(_epoch)),
        "waiting": records(
            MAX_WAITING,
            key=hexed(KEY_LENGTH),
            name=text,
            card=optional(sized(CARD_LENGTH)),
            request=optional(sized(REQUEST_LENGTH)),
        ),
    },
    "extend": {},
    "pair": {"answer": optional(sized(ANSWER_LENGTH))},
    "pair-answer": {},
    "invite": {"expiresAt": moment},
    "unlock": {"isLocked": flag(default=True)},
    # Sealed records, and what is not sealed yet.
    "record": {"record": data(MAX_RECORD)},
    "record-list": {
        "records": records(
            MAX_LISTED_RECORDS,
            id=_digits(SECRET_ID_LENGTH),
            kind=_secret_kind,
            epoch=count(2**32 - 1, least=1),
            at=moment,
        ),
        "next": _following,
    },
    "stored-texts": {
        "texts": records(
            MAX_TEXTS,
            id=revision,
            project=text,
            path=text,
            revision=revision,
            isNewest=flag(),
            hash=text,
            packed=text,
        ),
        "next": optional(revision),
        "total": _size,
        "isClean": flag(),
    },
    "rewrite": {"results": items(MAX_CHANGES, each(choice(("rewritten", "same", "changed", "gone"))))},
    "erase": {"damagedCopies": _size},
    "unsealed": {"findings": optional(_size), "seenAt": optional(moment), "isDue": flag()},
}
add(answers=_ANSWERS)
