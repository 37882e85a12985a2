"""What the answers to requests carry (PROTOCOL.md 9): the fields of each that this version reads, with their form and bounds, in one table;
`sealed_answers` has those about devices and records.

`ask` is the one way in which a machine asks its daemon: nobody sees an answer that is not of the agreed form, so nobody has to look. What
a daemon asks of a machine it reads by `read_of_machine`, for the same reason.
Fields that are not in the table are left out, since a newer daemon may send more. Texts that people are shown are printable, those of
documents are as they came; hashes and ids that are compared or shown are hex, what is binary are bytes. What depends on the question
(how many results, whether a page goes on) is checked by who asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from confide_crypto.errors import RequestError, printable
from confide_memory.classes import CLASSES, UNTRUSTED
from confide_memory.documents import MAX_SENT, Asks, send_text, text_hash
from confide_memory.errors import UnfitAnswerError, UnknownRequestError
from confide_memory.forms import (
    MAX_DAYS,
    MAX_FILES,
    MAX_IMPORTED,
    MAX_LISTED,
    MAX_REFILLED,
    MAX_REVISIONS,
    Kind,
    bounded,
    buckets,
    choice,
    content_hash,
    count,
    each,
    fields_of,
    flag,
    hexed,
    items,
    moment,
    number,
    optional,
    project,
    raw,
    record,
    records,
    revision,
    shown,
    text,
)
from confide_memory.versions import SINCE, UNKNOWN
from confide_memory.wire import ANSWERS, Fields, add

MAX_EXPORTED: Final = 100_000
"""Documents in one answer, which has at most 16 MiB."""
_MAX_NAMED: Final = 2 * MAX_FILES
"""Files in one list of a comparison."""
_MAX_AGES: Final = 16
MAX_DOUBTED: Final = 10_000
"""Parts of a document that are untrusted."""
MAX_PIECES: Final = 64
"""Pieces in each list of a briefing."""
MAX_TROUBLES: Final = 16
MAX_TOLD_CHARS: Final = 256
"""Of a name or a reason that a machine tells; what is longer is cut."""
_MAX_MARK: Final = 256
_KEY_BYTES: Final = 32
_MOST: Final = 2**32
CUSTODIES: Final = ("server", "caller")


async def ask(
    link: Asks,
    op: str,
    body: dict[str, Any],
    *,
    timeout_s: float,
    bulk: bool = False,
    document: str | None = None,
    whole: bytes | None = None,
) -> dict[str, Any]:
    """Ask the daemon: the fields of its answer that `ANSWERS` has, under their names on the wire.

    Args:
        document: a text that goes along, as `send_text` sends it.
        whole: a body that goes along (PROTOCOL.md 7.4).

    Raises:
        UnfitAnswerError: the answer is not of the agreed form.
        UnknownRequestError: the daemon is too old for it.
        RequestError, ConnectionLost, TimeoutError: as `Connection.request`.
    """
    try:
        if document is not None:
            answer = await send_text(link, op, body, document, timeout_s=timeout_s)
        elif whole is not None:
            answer = await link.upload(op, body, whole, timeout_s=timeout_s)
        else:
            answer = await link.request(op, body, timeout_s=timeout_s, bulk=bulk)
    except RequestError as error:
        if not error.message.endswith(UNKNOWN):
            raise
        # The first version says `invalid`, as if the question were wrong.
        raise UnknownRequestError(error.message, SINCE.get(op)) from None
    return read(op, answer)


def read(op: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an answer that came. Raises UnfitAnswerError: one is missing, of another form, or out of its bounds."""
    try:
        return fields_of(answer, ANSWERS[op] if op in ANSWERS else _rarer(op))
    except RequestError:
        raise UnfitAnswerError from None


def read_of_machine(op: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a machine's answer to what its daemon asked (9.4). Raises RequestError: it is not of the agreed form."""
    try:
        return fields_of(answer, MACHINES_ANSWERS[op])
    except RequestError:
        problem = "the machine's answer is not of the agreed form"
        raise RequestError("invalid", problem, "update confide on that machine") from None


def _rarer(op: str) -> Fields:
    # Imported late, with what reads rosters and records: a start does without.
    import confide_memory.sealed_answers  # noqa: F401 - adds them

    return ANSWERS[op]


def local_time(told: str) -> str:
    """A time of the daemon's (ISO 8601), for people here, with its zone. Raises UnfitAnswerError: it is none."""
    try:
        return datetime.fromisoformat(told).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except (ValueError, OverflowError):
        raise UnfitAnswerError from None


def _placed(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), _]:
            return path, revision({"": item[1]}, "")
    raise RequestError("invalid", "an entry is not [path, revision]")


def _pulled(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), _, str()]:
            return path, revision({"": item[1]}, "")
    raise RequestError("invalid", "an entry is not [path, revision, hash]")


def _hash_of_text(body: Mapping[str, Any], name: str) -> str:
    # Else a file that holds an unsent edit, whose hash is named here, would be overwritten with another text as if it were the same.
    found = text_hash(text(body, "text"))
    if body.get(name) != found:
        raise RequestError("invalid", f"'{name}' is not that of the text")
    return found


def _named(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise RequestError("invalid", f"'{name}' must be a list")
    return value


def _table(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise RequestError("invalid", f"'{name}' must be an object")
    return value


def _held(kind: Kind) -> Kind:
    """What only a machine that did not make the change says."""
    return lambda body, name: None if body.get("applied") is True else kind(body, name)


def _beginning(body: Mapping[str, Any], name: str) -> str | None:
    value = optional(text)(body, name)
    return None if value is None else value[:MAX_TOLD_CHARS]


def _trouble(body: Mapping[str, Any], name: str) -> str:
    return printable(text(body, name)[:MAX_TOLD_CHARS])


def _class(body: Mapping[str, Any], name: str) -> str:
    """As it is, where it is one that is known here; a daemon that does not say it keeps none."""
    value = body.get(name)
    return value if value in CLASSES else UNTRUSTED


_size: Final = count(2**53 - 1)
_pieces: Final = records(
    MAX_PIECES,
    path=shown,
    project=shown,
    startLine=number(2**53),
    endLine=number(2**53),
    snippet=text,
    heading=text,
    author=shown,
    updatedAt=moment,
    **{"class": _class},
)
_linked: Final[Mapping[str, Kind]] = {"linked": items(MAX_LISTED, each(shown))}
_told: Final = optional(shown, "")

_ANSWERS: Final[Mapping[str, Fields]] = {
    # Of every connection.
    "ping": {},
    "catalogue": dict.fromkeys(("tools", "prompts", "resourceTemplates"), _named),
    "rotate": {},
    "attach": {
        "space": bounded(_MAX_MARK),
        "catalogue": optional(text, ""),
        "daemonVersion": optional(bounded(_MAX_MARK), ""),
        "sealing": optional(
            record(
                number=count(_MOST, least=-1),
                head=optional(bounded(_MAX_MARK), ""),
                custody=choice(CUSTODIES),
                needs=optional(items(_MAX_MARK, each(count(_MOST))), ()),
            )
        ),
        "receipt": optional(bounded(_MAX_MARK), ""),
        "restores": optional(count(_MOST), 0),
        "backTo": optional(moment),
        "bounds": flag(),
    },
    "receipt": {"receipt": bounded(_MAX_MARK)},
    "call": {},
    "lookup": {"result": _table},
    # Files.
    "digest": {"differ": buckets},
    "compare": {
        "send": items(_MAX_NAMED, each(text)),
        "adopt": items(_MAX_NAMED, _placed),
        "pull": items(_MAX_NAMED, _pulled),
        "drop": items(_MAX_NAMED, _placed),
        "forgotten": optional(items(_MAX_NAMED, each(text)), []),
    },
    "put": {"revision": revision, "text": optional(text)},
    "remove": {"revision": revision, "text": optional(text)},
    "pull": {"revision": revision, "text": text, "hash": _hash_of_text},
    "transcript": {
        "version": revision,
        "offset": _size,
        "head": bounded(_MAX_MARK),
        "mark": bounded(_MAX_MARK),
        "forgotten": flag(),
        "taken": flag(),
    },
    # What was.
    "history": {
        "revisions": records(
            MAX_REVISIONS,
            revision=revision,
            author=shown,
            time=moment,
            bytes=_size,
            deleted=flag(),
            clash=flag(),
            **{"class": _class},
        )
    },
    "documents": {
        "documents": records(
            MAX_LISTED,
            path=shown,
            revision=revision,
            author=shown,
            time=moment,
            bytes=_size,
            lines=optional(_size),
            title=_told,
            id=optional(shown),
            clash=flag(),
            **{"class": _class},
        ),
        "total": _size,
    },
    "changes": {
        "changes": records(
            MAX_LISTED,
            path=shown,
            revision=revision,
            author=shown,
            time=moment,
            bytes=_size,
            deleted=flag(),
            clash=flag(),
            words=_told,
            change=optional(count(_MOST)),
            id=optional(shown),
        )
    },
    "deleted": {
        "documents": records(
            MAX_LISTED, path=shown, revision=revision, bytes=_size, author=shown, time=moment, restorableUntil=moment
        )
    },
    "restore": {"revision": revision, "changed": flag()},
    "forget": {"documents": items(MAX_LISTED, each(shown)), "total": _size, "complete": flag()},
    "days": {
        "days": records(MAX_DAYS, day=shown, project=shown, kind=shown, count=_size),
        "ages": records(_MAX_AGES, days=optional(_size), recalls=_size),
    },
    "relations": {
        "relations": records(
            MAX_LISTED,
            id=shown,
            title=shown,
            relation=shown,
            otherId=shown,
            otherTitle=shown,
            otherProject=shown,
        )
    },
    "briefing": {"head": _pieces, "newest": _pieces},
    # Where texts come from.
    "trust": {
        "class": _class,
        "hash": content_hash,
        "doubted": records(MAX_DOUBTED, first=_size, last=_size, why=shown),
        "trusted": flag(),
    },
    "lower": {"lowered": flag(), "class": _class},
    # Projects.
    "projects": {
        "projects": records(MAX_LISTED, name=project, files=_size, updated=moment, linked=flag()),
        "complete": flag(),
    },
    "links": _linked,
    "link": _linked,
    "unlink": _linked,
    # Whole memories.
    "import": {
        "results": records(
            MAX_IMPORTED,
            state=choice(("new", "known", "identical", "deleted", "refused")),
            id=_told,
            why=_told,
            project=_told,
        )
    },
    "export": {
        "documents": records(MAX_EXPORTED, path=text, text=optional(text), problem=_told, note=raw),
        "complete": flag(),
    },
    "refill": {"results": records(MAX_REFILLED, state=choice(("new", "same", "differs", "refused")), why=_told)},
    # Who reaches the space by HTTP.
    "gateway": {
        "clients": records(
            MAX_LISTED,
            name=shown,
            scope=choice(("read", "write")),
            trusted=flag(),
            expires=optional(moment),
            used=optional(moment),
            by=optional(hexed(_KEY_BYTES)),
        )
    },
    "gateway-end": {},
    "sign-in": {
        "application": shown,
        "registered": flag(),
        "redirect": shown,
        "scope": choice(("read", "write")),
        "expires": moment,
    },
    "sign-in-approve": {
        "scope": choice(("read", "write")),
        "days": optional(count(MAX_DAYS)),
    },
    # What is sealed, as far as every session asks it.
    "records": {},
    "is-sensitive": {"sensitive": flag(default=True)},
}
add(answers=_ANSWERS)

MACHINES_ANSWERS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "apply": {
        "applied": flag(),
        "text": _held(text),
        "hash": _held(_hash_of_text),
        "base": optional(revision),
        "baseHash": optional(content_hash),
        "sent": optional(items(MAX_SENT, each(content_hash)), ()),
    },
    "flush": {},
    "backlog": {
        **dict.fromkeys(("pendingUploads", "queuedOffline", "deadLetters"), optional(_size)),
        "troubles": optional(items(MAX_TROUBLES, each(_trouble)), ()),
    },
    "workplace": {
        **dict.fromkeys(("platform", "directory", "time", "claim"), _beginning),
        "git": optional(record(**dict.fromkeys(("repository", "branch", "remote"), _beginning))),
    },
    "scan": {
        **dict.fromkeys(("filesScanned", "sent", "pulled", "removed"), optional(_size, 0)),
        "skipped": optional(records(MAX_FILES, path=_beginning, reason=_beginning), ()),
    },
    "roster": {},
    "tasks": {},
}
