"""Requests about a space's devices, sealed records and unsealed texts (PROTOCOL.md 9.7, 10).

The content of roster entries, cards, records and wraps is checked by the code in
`confide_crypto.sealing`.
"""

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from confide_crypto.errors import RequestError
from confide_crypto.handshake.invite import INVITE_ID_LENGTH
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.sealing.pairing import ANSWER_LENGTH, REQUEST_LENGTH
from confide_crypto.sealing.placeholder import SECRET_ID_LENGTH, is_kind
from confide_crypto.sealing.record import MAX_RECORD
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import CARD_LENGTH, HASH_LENGTH, MAX_ENTRY_BYTES, MAX_EPOCHS
from confide_memory.forms import (
    MAX_LISTED,
    UNREAD,
    Carried,
    Coded,
    Mark,
    Moment,
    Revision,
    Shown,
    Size,
    bytes_of,
    choice,
    count,
    data,
    flag,
    from_base64,
    hex_of,
    place,
    raw,
    text,
    to_base64,
)
from confide_memory.wire.operation import Nothing, Operation
from confide_memory.wire.session import CUSTODIES

LONGEST_TTL_S: Final = 30 * 86_400
"""The longest validity of an invite, in seconds."""
PSK_LENGTH: Final = 32
DATABASE_KEY_LENGTH: Final = 32
MAX_CHANGES: Final = 256
MAX_LISTED_RECORDS: Final = 1000
MAX_WAITING: Final = 256
MAX_TEXTS: Final = 100_000
"""Texts in one answer, which has at most 16 MiB."""
SCOPES: Final[tuple[Literal["read", "write", "admin"], ...]] = ("read", "write", "admin")


def _keys(body: Carried, name: str) -> dict[int, bytes]:
    said = body.get(name)
    if not isinstance(said, dict) or not 0 < len(said) <= MAX_EPOCHS:
        problem = f"'{name}' must be 1 to {MAX_EPOCHS} keys of the space's database, by their epochs"
        raise RequestError("invalid", problem)
    found = {_epoch_in(epoch): from_base64(key, name, DATABASE_KEY_LENGTH) for epoch, key in said.items()}
    if any(len(key) != DATABASE_KEY_LENGTH for key in found.values()):
        raise RequestError("invalid", f"a key of a database has {DATABASE_KEY_LENGTH} bytes")
    return found


def _epoch_in(said: str) -> int:
    if not (said.isascii() and said.isdecimal() and len(said) <= len(str(MAX_EPOCHS))):
        raise RequestError("invalid", "an epoch is a number")
    return int(said)


def _digits(body: Carried, name: str) -> str:
    found: bytes = _secret_id(body, name)
    return found.hex()


def _following(body: Carried, name: str) -> str | None:
    # Required, since a missing value would mean the end of the list.
    if name not in body:
        raise RequestError("invalid", f"'{name}' is missing")
    return None if body[name] is None else _digits(body, name)


def _secret_kind(body: Carried, name: str) -> str:
    value = text(body, name)
    if not is_kind(value):
        raise RequestError("invalid", f"'{name}' is no kind of a secret")
    return value


def _changes(body: Carried, name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or len(value) > MAX_CHANGES:
        raise RequestError("invalid", f"'{name}' must be a list of at most {MAX_CHANGES}")
    return value


_secret_id: Final = hex_of(SECRET_ID_LENGTH)
Key = Annotated[bytes, hex_of(KEY_LENGTH)]
SecretId = Annotated[bytes, _secret_id]
Head = Annotated[bytes, hex_of(HASH_LENGTH, or_empty=True)]
Number = Annotated[int, count(MAX_ENTRIES - 1, least=-1)]
Epoch = Annotated[int, count(2**32 - 1, least=1)]
Entry = Annotated[bytes, data(MAX_ENTRY_BYTES)]
PairRequest = Annotated[bytes, bytes_of(REQUEST_LENGTH)]
PairAnswer = Annotated[bytes, bytes_of(ANSWER_LENGTH)]
Card = Annotated[bytes, bytes_of(CARD_LENGTH)]
_Keys = Annotated[
    dict[int, bytes], Coded(_keys, lambda keys: {str(epoch): to_base64(key) for epoch, key in keys.items()})
]
Scope = Annotated[str, choice(SCOPES)]
GatewayScope = Annotated[str, choice(SCOPES[:2])]

# Devices.
RosterRequest = TypedDict("RosterRequest", {"from": Annotated[int, count(MAX_ENTRIES)]})


class WaitingMachine(TypedDict):
    key: Key
    name: str
    card: Card | None
    request: PairRequest | None


class RosterAnswer(TypedDict):
    space: Mark
    entries: Annotated[list[Entry], MAX_ENTRIES]
    number: Number
    head: Head
    custody: Annotated[str, choice(CUSTODIES)]
    isLocked: bool
    needs: Annotated[list[Annotated[int, count(MAX_EPOCHS, least=1)]], MAX_EPOCHS]
    waiting: Annotated[list[WaitingMachine], MAX_WAITING]


class GatewayClient(TypedDict):
    name: Shown
    scope: GatewayScope
    trusted: bool
    expires: Moment | None
    used: Moment | None
    by: Key | None


GatewayClients = TypedDict("GatewayClients", {"clients": Annotated[list[GatewayClient], MAX_LISTED]})
MoveRosterRequest = TypedDict("MoveRosterRequest", {"entries": Annotated[list[Entry], MAX_ENTRIES]})
MovedRoster = TypedDict("MovedRoster", {"number": Number})
ExtendRequest = TypedDict("ExtendRequest", {"entry": Entry})
EndedCaller = TypedDict("EndedCaller", {"key": Key, "name": Shown, "isApp": bool})


class Extended(TypedDict):
    """The answer to a new roster entry.

    Attributes:
        ended: the callers that lost access because the entry removes a device; apps that use HTTP
            are included. None if the removed device may still connect, or the daemon is older than
            0.4.0.
    """

    number: NotRequired[Annotated[int, UNREAD]]
    ended: NotRequired[Annotated[list[EndedCaller], MAX_LISTED] | None]


class PairingRequest(TypedDict):
    """A request to join a space: a device with a pair secret sends a pairing request, any other
    device sends its card (its public keys).
    """

    request: NotRequired[PairRequest | None]
    card: NotRequired[Card | None]


Paired = TypedDict("Paired", {"answer": PairAnswer | None})
PairAnswerRequest = TypedDict("PairAnswerRequest", {"key": Key, "answer": PairAnswer})


class InviteRequest(TypedDict):
    inviteId: Annotated[bytes, hex_of(INVITE_ID_LENGTH)]
    psk: Annotated[bytes, hex_of(PSK_LENGTH)]
    name: str
    ttlS: Annotated[int, count(LONGEST_TTL_S, least=1)]
    scope: Scope


Invited = TypedDict("Invited", {"expiresAt": Moment})
UnlockRequest = TypedDict("UnlockRequest", {"keys": _Keys})
Unlocked = TypedDict("Unlocked", {"isLocked": Annotated[bool, flag(default=True)]})


ROSTER: Final = Operation("roster", RosterRequest, RosterAnswer)
EXTEND: Final = Operation("extend", ExtendRequest, Extended)
PAIR: Final = Operation("pair", PairingRequest, Paired)
PAIR_ANSWER: Final = Operation("pair-answer", PairAnswerRequest, Nothing)
INVITE: Final = Operation("invite", InviteRequest, Invited)
UNLOCK: Final = Operation("unlock", UnlockRequest, Unlocked)
GATEWAY: Final = Operation("gateway", Nothing, GatewayClients)
MOVE_ROSTER: Final = Operation("move-roster", MoveRosterRequest, MovedRoster, is_large=True)


# Sealed records, and texts that are not sealed yet.
class RecordsRequest(TypedDict):
    """A request to store sealed records. They are megabytes of base64, decoded only after the
    sender's permission is checked.
    """

    records: Annotated[list[str], raw]


Stored = TypedDict("Stored", {"stored": NotRequired[Annotated[int, UNREAD]]})
RecordRequest = TypedDict("RecordRequest", {"id": SecretId})
RecordAnswer = TypedDict("RecordAnswer", {"record": Annotated[bytes, data(MAX_RECORD)]})


class RecordListRequest(TypedDict):
    after: Annotated[bytes, hex_of(SECRET_ID_LENGTH, or_empty=True)]
    limit: Annotated[int, count(MAX_LISTED_RECORDS, least=1)]
    below: NotRequired[Annotated[int, count(2**32 - 1)] | None]


class RecordRow(TypedDict):
    id: Annotated[str, _digits]
    kind: Annotated[str, _secret_kind]
    epoch: Epoch
    at: Moment


class RecordList(TypedDict):
    records: Annotated[list[RecordRow], MAX_LISTED_RECORDS]
    next: Annotated[str | None, _following]


class SensitiveRequest(TypedDict):
    """A request about a document by its path, or a note by its id; the answering code reads the
    fields.
    """

    project: NotRequired[Annotated[str, UNREAD]]
    path: NotRequired[Annotated[str, UNREAD]]
    id: NotRequired[Annotated[str, UNREAD]]


Sensitive = TypedDict("Sensitive", {"sensitive": Annotated[bool, flag(default=True)]})
StoredTextsRequest = TypedDict("StoredTextsRequest", {"after": NotRequired[Annotated[int, place]]})


class StoredTextRow(TypedDict):
    id: Revision
    project: str
    path: str
    revision: Revision
    isNewest: bool
    hash: str
    packed: str


class StoredTextsAnswer(TypedDict):
    texts: Annotated[list[StoredTextRow], MAX_TEXTS]
    next: Revision | None
    total: Size
    isClean: bool


RewrittenText = TypedDict("RewrittenText", {"id": int, "hash": str, "packed": str})
RewriteRequest = TypedDict("RewriteRequest", {"changes": Annotated[list[RewrittenText], _changes]})


class Rewritten(TypedDict):
    results: Annotated[list[Annotated[str, choice(("rewritten", "same", "changed", "gone"))]], MAX_CHANGES]


Erased = TypedDict("Erased", {"damagedCopies": Size, "bytes": NotRequired[Annotated[int, UNREAD]]})
UnsealedRequest = TypedDict("UnsealedRequest", {"findings": NotRequired[Annotated[int, place] | None]})
Unsealed = TypedDict("Unsealed", {"findings": Size | None, "seenAt": Moment | None, "isDue": bool})


RECORDS: Final = Operation("records", RecordsRequest, Stored, is_large=True)
RECORD: Final = Operation("record", RecordRequest, RecordAnswer)
RECORD_LIST: Final = Operation("record-list", RecordListRequest, RecordList)
IS_SENSITIVE: Final = Operation("is-sensitive", SensitiveRequest, Sensitive, is_free=True)
STORED_TEXTS: Final = Operation("stored-texts", StoredTextsRequest, StoredTextsAnswer)
REWRITE: Final = Operation("rewrite", RewriteRequest, Rewritten, is_large=True)
ERASE: Final = Operation("erase", Nothing, Erased)
UNSEALED: Final = Operation("unsealed", UnsealedRequest, Unsealed)
