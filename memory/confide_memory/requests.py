"""What a machine's requests carry (PROTOCOL.md 9): the fields of each, with their form, bounds and defaults, in one table.

`read` gives them to whoever answers, under the names that Python would write (`dryRun` is `dry_run`). What depends on the caller, on
another field, or on what is stored is checked by whoever answers. Bytes are hex where people may compare them, base64 for everything
longer (9.7). What a request lacks is told to who sent it, in a `RequestError`. What answers carry stands in `answers`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.handshake.invite import INVITE_ID_LENGTH
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.sealing.pairing import ANSWER_LENGTH, REQUEST_LENGTH
from confide_crypto.sealing.roster import MAX_ENTRIES
from confide_crypto.sealing.roster_entry import MAX_ENTRY_BYTES, MAX_EPOCHS
from confide_crypto.sealing.space_keys import SECRET_ID_LENGTH
from confide_memory.classes import CLASSES, OWNER
from confide_memory.documents import BUCKETS, MAX_PATH_BYTES, MAX_SENT
from confide_memory.forms import (
    HASH_CHARS,
    MAX_FILES,
    MAX_IMPORTED,
    MAX_LISTED,
    MAX_REFILLED,
    MAX_REVISION,
    MAX_REVISIONS,
    buckets,
    choice,
    content_hash,
    count,
    data,
    decoded,
    each,
    flag,
    hexed,
    is_true,
    items,
    later,
    moment,
    number,
    optional,
    place,
    project,
    raw,
    revision,
    sized,
    text,
    whole,
)
from confide_memory.wire import REQUESTS, Fields, add

MAX_LABEL_CHARS: Final = 128
MAX_TOOLSETS: Final = 32
USUAL_REVISIONS: Final = 20
USUAL_LISTED: Final = 100
MAX_CHANGES: Final = 256
MAX_LISTED_RECORDS: Final = 1000
LONGEST_TTL_S: Final = 30 * 86_400
"""Of an invite."""
MAX_GRANTED_PROJECTS: Final = 256
MAX_GRANTED_DAYS: Final = 3650
"""Of a program that reaches the space by HTTP."""
PSK_LENGTH: Final = 32
DATABASE_KEY_LENGTH: Final = 32


def read(op: str, body: Mapping[str, Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a request, which `REQUESTS` has; `without`: those that are still to come.

    Raises RequestError: one of them is missing, of another form, or out of its bounds.
    """
    return {_parameter(name): kind(body, name) for name, kind in REQUESTS[op].items() if name not in without}


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


def _arguments(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise RequestError("invalid", f"'{name}' must be an object")
    return value


def _digests(body: Mapping[str, Any], name: str) -> list[str]:
    found: list[str] = items(MAX_FILES)(body, name)
    if len(found) != BUCKETS or not all(isinstance(item, str) for item in found):
        raise RequestError("invalid", f"'{name}' must be {BUCKETS} strings")
    return found


def _entry(item: Any) -> tuple[str, str, int]:
    match item:
        case [str(path), str(digest), int(base)] if len(digest) == HASH_CHARS and 0 <= base <= MAX_REVISION:
            return path, digest, base
    raise RequestError("invalid", "an entry is not [path, hash, base]")


def _digest(item: Any) -> str:
    if isinstance(item, str) and len(item) == HASH_CHARS:
        return item
    raise RequestError("invalid", "a text is not named by its hash")


def _name(item: Any) -> str:
    if isinstance(item, str) and item.strip() and len(item.encode(errors="surrogatepass")) <= MAX_PATH_BYTES:
        return item
    raise RequestError("invalid", f"a name is a file, a folder or a glob, of at most {MAX_PATH_BYTES} bytes")


def _gone(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), int(base)] if 0 <= base <= MAX_REVISION:
            return path, base
    raise RequestError("invalid", "a missing file is not [path, base]")


def _content_hashes(body: Mapping[str, Any], name: str) -> list[str]:
    return [content_hash({name: item}, name) for item in items(MAX_FILES)(body, name)]


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
_REQUESTS: Final[Mapping[str, Fields]] = {
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
    "lookup": {"project": project, "tool": text, "arguments": _arguments, "meta": optional(_arguments, {})},
    # Files.
    "digest": {"project": project, "digests": _digests},
    "compare": {
        "project": project,
        "buckets": optional(buckets),
        "entries": items(MAX_FILES, _entry),
        "gone": items(MAX_FILES, _gone),
        "goneHashes": optional(_content_hashes),
    },
    "put": {
        "project": project,
        "path": text,
        "base": revision,
        "baseHash": optional(content_hash),
        "text": text,
        "hash": text,
        "sent": optional(items(MAX_SENT, _digest), ()),
        "class": optional(choice(CLASSES), OWNER),
    },
    "remove": {
        "project": project,
        "path": text,
        "base": later(revision),
        "baseHash": optional(content_hash),
        "sent": optional(items(MAX_SENT, _digest), ()),
    },
    "pull": {"project": project, "path": text, "revision": optional(revision), "hash": optional(content_hash)},
    "transcript": {"project": project, "body": whole},
    # What was.
    "history": {"project": project, "path": text, "limit": optional(number(MAX_REVISIONS), USUAL_REVISIONS)},
    "documents": {
        "project": project,
        "path": optional(text, ""),
        "limit": optional(number(MAX_LISTED), USUAL_LISTED),
    },
    "changes": {
        "project": project,
        "path": optional(text, ""),
        "since": optional(moment),
        "after": optional(count(2**53 - 1)),
        "limit": optional(number(MAX_LISTED), USUAL_LISTED),
    },
    "deleted": {"project": project},
    "days": {"since": moment, "zone": optional(count(840, least=-840), 0)},
    "relations": {"project": project, "limit": optional(number(MAX_LISTED), USUAL_LISTED)},
    "briefing": {"project": project},
    "restore": {"project": project, "path": text, "revision": optional(number(2**53))},
    "forget": {"project": project, "paths": items(MAX_LISTED, _name), "undo": flag(), "dryRun": flag()},
    # Where texts come from.
    "trust": {"project": project, "path": text, "hash": optional(content_hash)},
    "lower": {"project": project, "path": text, "revision": number(MAX_REVISION)},
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
    "gateway": {},
    "gateway-end": {"name": text},
    "sign-in": {"words": text},
    "sign-in-approve": {
        "words": text,
        "name": optional(text, ""),
        "scope": choice(("read", "write")),
        "projects": optional(items(MAX_GRANTED_PROJECTS, each(text))),
        "trusted": flag(),
        "days": count(MAX_GRANTED_DAYS, least=1),
    },
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
add(_REQUESTS)
