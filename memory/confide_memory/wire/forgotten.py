"""Requests about forgotten texts, which users have deleted for good (PROTOCOL.md 9.11)."""

from collections.abc import Iterable
from typing import Annotated, Final, NotRequired, TypedDict

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH
from confide_memory.documents import MAX_PATH_BYTES
from confide_memory.forgetting import MOST_NAMES, MOST_PARTS, MOST_RECORD, MOST_SEALED, MOST_TEXTS
from confide_memory.forms import MAX_LISTED, Shown, Size, data, flag, hex_of, items, optional, printable_text
from confide_memory.wire.operation import Operation

MOST_RECORDS: Final = 10_000
"""Records of a space."""
MOST_RECEIPT: Final = 3 << 20
_PART_BYTES: Final = 16


def _name(item: object) -> str:
    if isinstance(item, str) and len(item.encode(errors="surrogatepass")) <= MAX_PATH_BYTES:
        return item
    raise RequestError("invalid", f"a name is a file, a folder or a glob, of at most {MAX_PATH_BYTES} bytes")


def _id(item: object) -> str:
    found: bytes = hex_of(16)({"id": item}, "id")
    return found.hex()


_Id = Annotated[bytes, hex_of(16)]
_Ids = Annotated[list[str], optional(items(MOST_RECORDS, _id), ())]
_Signature = Annotated[bytes, hex_of(SIGNATURE_LENGTH)]
_Key = Annotated[bytes, hex_of(KEY_LENGTH)]
_Record = Annotated[bytes, data(MOST_RECORD)]
_Lifted = Annotated[bytes, optional(data(16 * (MOST_NAMES + MOST_TEXTS + MOST_PARTS)), b"")]
"""Hashes that a person has stored again, each after a byte with its length."""
_Of = Annotated[str, optional(printable_text, "")]


class ForgetPlanRequest(TypedDict):
    """A request for the content of a future record of forgotten texts: for names in a project, or
    for the parts of a text.

    Attributes:
        project: the project of the names; "" if parts are given.
        paths: names of documents and folders; empty for the whole project.
        parts: hashed runs of words, packed, made with the key of an earlier answer.
    """

    project: NotRequired[_Of]
    paths: NotRequired[Annotated[list[str], optional(items(MAX_LISTED, _name), ())]]
    parts: NotRequired[Annotated[bytes, optional(data(_PART_BYTES * MOST_PARTS), b"")]]


ForgetDocument = TypedDict("ForgetDocument", {"project": Shown, "path": Shown})


class ForgetPlanned(TypedDict):
    key: _Key
    documents: Annotated[list[ForgetDocument], MAX_LISTED]
    total: Size
    shared: Annotated[list[ForgetDocument], MAX_LISTED]
    names: Annotated[bytes, data(16 * MOST_NAMES)]
    texts: Annotated[bytes, data(16 * MOST_TEXTS)]
    parts: Annotated[bytes, data(_PART_BYTES * MOST_PARTS)]
    ofParts: Size
    sealed: Annotated[bytes, data(16 * MOST_SEALED)]


class ForgetTakeRequest(TypedDict):
    record: _Record
    signature: _Signature
    key: _Key
    lifted: NotRequired[_Lifted]


ForgetTaken = TypedDict("ForgetTaken", {"documents": Size, "done": Annotated[bool, flag()]})


class ForgetSyncRequest(TypedDict):
    """A request to exchange records of forgotten texts between a device and the daemon.

    Attributes:
        have: ids of the records that the device has, in hex.
        done: ids of the records that it has applied to its own files.
    """

    have: NotRequired[_Ids]
    done: NotRequired[_Ids]


class ForgetItem(TypedDict):
    record: _Record
    signature: _Signature
    key: _Key
    lifted: NotRequired[_Lifted]


class ForgetSynced(TypedDict):
    """The answer to an exchange of records of forgotten texts: the records that the device lacks,
    as many as fit, and the ids of the records that the daemon lacks.
    """

    records: Annotated[list[ForgetItem], MAX_LISTED]
    complete: bool
    wanted: Annotated[list[str], items(MOST_RECORDS, _id)]


class ForgetUndoRequest(TypedDict):
    """A request to allow forgotten names of a project, or forgotten parts of a text, to be stored
    again.
    """

    project: NotRequired[_Of]
    paths: NotRequired[Annotated[list[str], optional(items(MAX_LISTED, _name), ())]]
    parts: NotRequired[Annotated[bytes, optional(data(_PART_BYTES * MOST_PARTS), b"")]]


ForgetUndone = TypedDict("ForgetUndone", {"count": Size})
ForgetReceiptRequest = TypedDict("ForgetReceiptRequest", {"id": _Id})


ForgetBackups = TypedDict("ForgetBackups", {"dropped": Annotated[list[Shown], MAX_LISTED]})


class ForgetReceipt(TypedDict):
    receipt: Annotated[bytes, data(MOST_RECEIPT)]
    signature: _Signature


FORGET_PLAN: Final[Operation[ForgetPlanRequest, ForgetPlanned]] = Operation(
    "forget-plan", ForgetPlanRequest, ForgetPlanned, is_large=True
)
FORGET_TAKE: Final[Operation[ForgetTakeRequest, ForgetTaken]] = Operation(
    "forget-take", ForgetTakeRequest, ForgetTaken, is_large=True
)
FORGET_SYNC: Final[Operation[ForgetSyncRequest, ForgetSynced]] = Operation(
    "forget-sync", ForgetSyncRequest, ForgetSynced, is_large=True
)
FORGET_UNDO: Final[Operation[ForgetUndoRequest, ForgetUndone]] = Operation(
    "forget-undo", ForgetUndoRequest, ForgetUndone, is_large=True
)
FORGET_RECEIPT: Final[Operation[ForgetReceiptRequest, ForgetReceipt]] = Operation(
    "forget-receipt", ForgetReceiptRequest, ForgetReceipt
)
FORGET_BACKUPS: Final[Operation[ForgetReceiptRequest, ForgetBackups]] = Operation(
    "forget-backups", ForgetReceiptRequest, ForgetBackups
)


def packed_hashes(hashes: Iterable[bytes]) -> bytes:
    """Join hashes of different lengths into one value, each after a byte with its length."""
    return b"".join(bytes([len(one)]) + one for one in sorted(hashes))


def hashes_of(value: bytes) -> frozenset[bytes]:
    """Split a value that `packed_hashes` made into its hashes."""
    found, at = set(), 0
    while at < len(value):
        size = value[at]
        found.add(value[at + 1 : at + 1 + size])
        at += 1 + size
    return frozenset(found)
