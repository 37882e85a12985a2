"""What a machine's requests carry (PROTOCOL.md 9): the fields of each, with their form, bounds and defaults, in one table.

`read` gives them to whoever answers, under the names that Python would write (`dryRun` is `dry_run`). What depends on the caller, on
another field, or on what is stored is checked by whoever answers. Bytes are hex where people may compare them, base64 for everything
longer (9.7). What a request lacks is told to who sent it, in a `RequestError`; an answer that lacks something is the daemon's mistake, an
`UnfitAnswerError`, and its texts are made printable.
"""

from __future__ import annotations

import base64
import binascii
import keyword
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from confide_crypto.errors import RequestError, printable
from confide_crypto.handshake.invite import INVITE_ID_LENGTH
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.sealing.pairing import ANSWER_LENGTH, REQUEST_LENGTH
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import MAX_ENTRY_BYTES, MAX_EPOCHS
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH
from confide_memory.documents import BUCKETS, MAX_SENT
from confide_memory.errors import UnfitAnswerError

MAX_PROJECT_CHARS: Final = 256
MAX_LABEL_CHARS: Final = 128
MAX_TOOLSETS: Final = 32
HASH_CHARS: Final = 64
MAX_FILES: Final = 100_000
"""A folder of notes has hundreds; this keeps a broken proxy from sending millions."""
MAX_REVISIONS: Final = 100
USUAL_REVISIONS: Final = 20
MAX_IMPORTED: Final = 200
"""Written in one transaction, and the space's other writes wait for it."""
MAX_REFILLED: Final = 500
MAX_CHANGES: Final = 256
MAX_LISTED_RECORDS: Final = 1000
LONGEST_TTL_S: Final = 30 * 86_400
"""Of an invite."""
PSK_LENGTH: Final = 32
DATABASE_KEY_LENGTH: Final = 32
_MAX_REVISION: Final = 2**63 - 1
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")

Kind = Callable[[Mapping[str, Any], str], Any]
"""Reads a field of a body by its name. Raises RequestError where it is not of its form."""


def read(op: str, body: Mapping[str, Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a request, which `REQUESTS` has; `without`: those that are still to come.

    Raises RequestError: one of them is missing, of another form, or out of its bounds.
    """
    return {_parameter(name): kind(body, name) for name, kind in REQUESTS[op].items() if name not in without}


def project(body: Mapping[str, Any], name: str = "project") -> str:
    """The name of a project. Raises RequestError where it is none."""
    value = text({"project": body.get(name)}, "project")
    if not value.strip() or len(value) > MAX_PROJECT_CHARS or not value.isprintable():
        hint = f"1 to {MAX_PROJECT_CHARS} printable characters"
        raise RequestError("invalid", "the project has no usable name", hint)
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    """Any text. Raises RequestError where it is none."""
    value = body.get(name)
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{name}' must be a string")
    return value


def whole(body: Mapping[str, Any], _name: str) -> dict[str, Any]:
    """The body as it came, whose form belongs to whoever answers."""
    return dict(body)


def raw(body: Mapping[str, Any], name: str) -> Any:
    """A field as it came."""
    return body.get(name)


def is_true(body: Mapping[str, Any], name: str) -> bool:
    """Whether it says so; anything else is no."""
    return body.get(name) is True


def flag(*, default: bool = False) -> Kind:
    """Yes or no."""

    def flag_of(body: Mapping[str, Any], name: str) -> bool:
        value = body.get(name, default)
        if not isinstance(value, bool):
            raise RequestError("invalid", f"'{name}' must be true or false")
        return value

    return flag_of


def optional(kind: Kind, default: Any = None) -> Kind:
    """What may be left out."""
    return lambda body, name: default if body.get(name) is None else kind(body, name)


def later(kind: Kind) -> Kind:
    """What is read when whoever answers calls it: once it is known that the caller may ask at all."""
    return lambda body, name: partial(kind, body, name)


def _bounded(form: str, least: int, most: int, default: int | None = None) -> Kind:
    def bounded_of(body: Mapping[str, Any], name: str) -> int:
        value = body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RequestError("invalid", f"'{name}' must be {form}")
        return value

    return bounded_of


revision: Final = _bounded("a revision number", 0, _MAX_REVISION)
"""The number of a revision; 0 for none."""
place: Final = _bounded("a whole number from 0 on", 0, 2**53 - 1, default=0)
"""Where to go on, or how many there are; 0 where it is left out."""


def number(most: int) -> Kind:
    """A number from 1, as people count."""
    return _bounded(f"a number between 1 and {most:,}", 1, most)


def count(most: int, *, least: int = 0) -> Kind:
    """A number within bounds."""
    return _bounded(f"a number from {least} to {most}", least, most)


def hexed(size: int) -> Kind:
    """So many bytes, in lower-case hex."""

    def hexed_of(body: Mapping[str, Any], name: str) -> bytes:
        value = body.get(name)
        if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
            raise RequestError("invalid", f"'{name}' must be {2 * size} lower-case hex digits")
        return bytes.fromhex(value)

    return hexed_of


def data(most: int) -> Kind:
    """At most so many bytes, in base64."""
    return lambda body, name: decoded(body.get(name), name, most)


def decoded(value: object, name: str, most: int) -> bytes:
    """The bytes of a base64 text, at most so many. Raises RequestError: it is none, or longer."""
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{name}' must be base64")
    if len(value) > 4 * (-(-most // 3)):
        raise RequestError("too_large", f"'{name}' is too large", f"the limit is {most:,} bytes")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError("invalid", f"'{name}' must be base64") from None
    if len(data) > most:
        raise RequestError("too_large", f"'{name}' is too large", f"the limit is {most:,} bytes")
    return data


def sized(size: int) -> Kind:
    """Just so many bytes, in base64."""

    def sized_of(body: Mapping[str, Any], name: str) -> bytes:
        found = decoded(body.get(name), name, size)
        if len(found) != size:
            raise RequestError("invalid", f"'{name}' must have {size} bytes")
        return found

    return sized_of


def choice(choices: tuple[str, ...]) -> Kind:
    """One of these words."""

    def choice_of(body: Mapping[str, Any], name: str) -> str:
        value = text(body, name)
        if value not in choices:
            raise RequestError("invalid", f"'{name}' must be one of {', '.join(choices)}")
        return value

    return choice_of


def items(most: int, item: Callable[[Any], Any] | None = None) -> Kind:
    """A list, each of whose entries `item` reads."""

    def items_of(body: Mapping[str, Any], name: str) -> list[Any]:
        value = body.get(name)
        if not isinstance(value, list):
            raise RequestError("invalid", f"'{name}' must be a list")
        if len(value) > most:
            raise RequestError("too_large", f"'{name}' has {len(value)} entries", f"the limit is {most}")
        return value if item is None else [item(one) for one in value]

    return items_of


def _parameter(name: str) -> str:
    found = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name).replace("-", "_")
    return f"{found}_" if keyword.iskeyword(found) else found


def _toolsets(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name, ["core"])
    if not isinstance(value, list) or len(value) > MAX_TOOLSETS or not all(isinstance(item, str) for item in value):
        raise RequestError("invalid", f"'{name}' must be a list of names")
    return tuple(value) or ("core",)


def _label(body: Mapping[str, Any], name: str) -> str:
    return text(body, name)[:MAX_LABEL_CHARS] if name in body else ""


def _digests(body: Mapping[str, Any], name: str) -> list[str]:
    found: list[str] = items(MAX_FILES)(body, name)
    if len(found) != BUCKETS or not all(isinstance(item, str) for item in found):
        raise RequestError("invalid", f"'{name}' must be {BUCKETS} strings")
    return found


def _buckets(body: Mapping[str, Any], name: str) -> frozenset[int]:
    numbers = items(MAX_FILES)(body, name)
    if not all(type(number) is int and 0 <= number < BUCKETS for number in numbers):
        raise RequestError("invalid", f"'{name}' must be numbers below {BUCKETS}")
    return frozenset(numbers)


def _entry(item: Any) -> tuple[str, str, int]:
    match item:
        case [str(path), str(digest), int(base)] if len(digest) == HASH_CHARS and 0 <= base <= _MAX_REVISION:
            return path, digest, base
    raise RequestError("invalid", "an entry is not [path, hash, base]")


def _digest(item: Any) -> str:
    if isinstance(item, str) and len(item) == HASH_CHARS:
        return item
    raise RequestError("invalid", "a text is not named by its hash")


def _gone(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), int(base)] if 0 <= base <= _MAX_REVISION:
            return path, base
    raise RequestError("invalid", "a missing file is not [path, base]")


def _content_hash(body: Mapping[str, Any], name: str) -> str:
    found: bytes = hexed(HASH_CHARS // 2)(body, name)
    return found.hex()


def _content_hashes(body: Mapping[str, Any], name: str) -> list[str]:
    return [_content_hash({name: item}, name) for item in items(MAX_FILES)(body, name)]


def _changes(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or len(value) > MAX_CHANGES:
        raise RequestError("invalid", f"'{name}' must be a list of at most {MAX_CHANGES}")
    return value


def _secret_id(body: Mapping[str, Any], name: str) -> bytes:
    return b"" if body.get(name) == "" else hexed(SECRET_ID_LENGTH)(body, name)


def _keys(body: Mapping[str, Any], name: str) -> dict[int, bytes]:
    said = body.get(name)
    if not isinstance(said, dict) or not 0 < len(said) <= MAX_EPOCHS:
        problem = f"'{name}' must be 1 to {MAX_EPOCHS} keys of the space's database, by their epochs"
        raise RequestError("invalid", problem)
    found = {_epoch(epoch): decoded(key, name, DATABASE_KEY_LENGTH) for epoch, key in said.items()}
    if any(len(key) != DATABASE_KEY_LENGTH for key in found.values()):
        raise RequestError("invalid", f"a key of a database has {DATABASE_KEY_LENGTH} bytes")
    return found


def _epoch(said: str) -> int:
    if not (said.isascii() and said.isdecimal() and len(said) <= len(str(MAX_EPOCHS))):
        raise RequestError("invalid", "an epoch is a number")
    return int(said)


# In the order in which they are read: of several that are wrong, the first is told of.
REQUESTS: Final[Mapping[str, Mapping[str, Kind]]] = {
    # Of every connection.
    "ping": {},
    "receipt": {},
    "catalogue": {"toolsets": _toolsets},
    "rotate": {"body": whole},
    "attach": {
        "project": project,
        "toolsets": _toolsets,
        "watches": flag(default=True),
        "machine": _label,
        "proxyVersion": _label,
        "receipt": _label,
    },
    "call": {"project": project, "body": whole},
    # Files.
    "digest": {"project": project, "digests": _digests},
    "compare": {
        "project": project,
        "buckets": optional(_buckets),
        "entries": items(MAX_FILES, _entry),
        "gone": items(MAX_FILES, _gone),
        "goneHashes": optional(_content_hashes),
    },
    "put": {
        "project": project,
        "path": text,
        "base": revision,
        "baseHash": optional(_content_hash),
        "text": text,
        "hash": text,
        "sent": optional(items(MAX_SENT, _digest), ()),
    },
    "remove": {"project": project, "path": text, "base": later(revision), "baseHash": optional(_content_hash)},
    "pull": {"project": project, "path": text, "revision": optional(revision)},
    "transcript": {"project": project, "body": whole},
    # What was.
    "history": {"project": project, "path": text, "limit": optional(number(MAX_REVISIONS), USUAL_REVISIONS)},
    "deleted": {"project": project},
    "restore": {"project": project, "path": text, "revision": optional(number(2**53))},
    # Projects.
    "projects": {"project": project},
    "links": {"project": project},
    "link": {"project": project, "other": project},
    "unlink": {"project": project, "other": project},
    # Whole memories.
    "import": {"project": project, "dryRun": flag(), "again": flag(), "records": items(MAX_IMPORTED)},
    "export": {"project": project, "after": text},
    "refill": {"project": project, "dryRun": is_true, "documents": items(MAX_REFILLED)},
    # Devices.
    "roster": {"from": count(MAX_ENTRIES)},
    "extend": {"entry": data(MAX_ENTRY_BYTES)},
    "pair": {"request": later(optional(sized(REQUEST_LENGTH))), "body": whole},
    "pair-answer": {"key": hexed(KEY_LENGTH), "answer": sized(ANSWER_LENGTH)},
    "invite": {
        "inviteId": hexed(INVITE_ID_LENGTH),
        "psk": hexed(PSK_LENGTH),
        "name": text,
        "ttlS": later(count(LONGEST_TTL_S, least=1)),
        "scope": later(choice(("read", "write", "admin"))),
    },
    "unlock": {"keys": _keys},
    # Sealed records, and what is not sealed yet.
    "records": {"records": raw},
    "record": {"id": hexed(SECRET_ID_LENGTH)},
    "record-list": {
        "after": _secret_id,
        "limit": count(MAX_LISTED_RECORDS, least=1),
        "below": optional(count(2**32 - 1)),
    },
    "is-sensitive": {"body": whole},
    "stored-texts": {"after": later(place)},
    "rewrite": {"changes": _changes},
    "erase": {},
    "unsealed": {"findings": optional(later(place))},
}


def encoded(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def encoded_or_none(data: bytes | None) -> str | None:
    """The same of what may be missing."""
    return None if data is None else encoded(data)


def records(answer: Mapping[str, Any], key: str, **kinds: type) -> list[dict[str, Any]]:
    """The list of records at `key`, each with values of these kinds and nothing else; texts are made printable.

    Raises UnfitAnswerError: it is not that.
    """
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UnfitAnswerError
    return [{name: value(item, name, kind) for name, kind in kinds.items()} for item in found]


def value(answer: Mapping[str, Any], key: str, kind: type) -> Any:
    """One value of this kind; a text is made printable. Raises UnfitAnswerError: it is not there, or of another kind."""
    found = answer.get(key)
    if type(found) is not kind:
        raise UnfitAnswerError
    return printable(found) if isinstance(found, str) else found


def names(answer: Mapping[str, Any], key: str) -> list[str]:
    """The list of texts at `key`. Raises UnfitAnswerError: it is not that."""
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UnfitAnswerError
    return [printable(item) for item in found]


def local_time(text: str) -> str:
    """A time of the daemon's (ISO 8601), for people here."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        raise UnfitAnswerError from None
