"""The sync requests that a machine makes on its connection: compare, put, remove, pull (PROTOCOL.md 9).

Messages compare states and are idempotent, so a lost answer or a replay costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.states import BUCKETS, bucket_of, digests
from confide_daemon import transcripts
from confide_daemon.copies import Change, Copies
from confide_daemon.documents import check_text, text_hash
from confide_daemon.errors import (
    ConflictError,
    GrantError,
    InvalidPathError,
    InvalidTextError,
    LinkError,
    LockedError,
    NotFoundError,
    OperationError,
    StorageError,
    TooLargeError,
)
from confide_daemon.grants import Grants
from confide_daemon.space import Space
from confide_daemon.tools.context import GLOBAL_PROJECT

# A folder of notes has hundreds of files; this keeps a broken proxy from sending millions.
MAX_ENTRIES = 100_000
MAX_PROJECT_CHARS = 256
HASH_CHARS = 64


Operation = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Exchange:
    """One connection's sync requests against its space."""

    def __init__(
        self, space: Space, copies: Copies, grants: Callable[[], Grants], publish: Callable[[Change], None]
    ) -> None:
        """`grants` is asked at each step, for what they are then; `publish` tells the other machines of the space of a new revision."""
        self._space = space
        self._copies = copies
        self._grants = grants
        self._publish = publish
        self.compared_at: str | None = None
        self._operations: dict[str, Operation] = {
            "digest": self._digest,
            "compare": self._compare,
            "put": self._put,
            "remove": self._remove,
            "pull": self._pull,
            "transcript": self._transcript,
        }

    def serve(self, operations: Mapping[str, Operation]) -> None:
        """Answer these requests as well."""
        self._operations |= operations

    async def handle(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            RequestError: it cannot be done; the code says why.
        """
        operation = self._operations.get(op)
        if operation is None:
            raise RequestError(
                "invalid", "this daemon does not know that request", "do the versions of confide and confided fit?"
            )
        try:
            return await operation(body)
        except ConfideError as error:
            raise as_request_error(error) from error

    async def _digest(self, body: dict[str, Any]) -> dict[str, Any]:
        """The buckets in which the machine's files are not what it should have; the others are compared with this."""
        project = project_of(body)
        theirs = _items(body, "digests")
        if len(theirs) != BUCKETS or not all(isinstance(item, str) for item in theirs):
            raise RequestError("invalid", f"'digests' must be {BUCKETS} strings")
        grants = self._grants()
        if project == GLOBAL_PROJECT and not grants.has_project(project):
            return {"differ": []}
        grants.require_project(project)
        states = [state for state in await self._space.states(project) if grants.reaches(project, state[0])]
        ours = await asyncio.to_thread(digests, states)
        differ = {number for number, digest in enumerate(ours) if digest != theirs[number]}
        for path, digest, revision in states:
            if bucket_of(path) not in differ:
                self._copies.confirm(project, path, revision, digest)
        self.compared_at = datetime.now(UTC).isoformat(timespec="seconds")
        return {"differ": sorted(differ)}

    async def _compare(self, body: dict[str, Any]) -> dict[str, Any]:
        project, buckets = project_of(body), _buckets(body)
        entries = [_entry(item) for item in _items(body, "entries")]
        gone = [_gone(item) for item in _items(body, "gone")]
        grants = self._grants()
        if project == GLOBAL_PROJECT and not grants.has_project(project):
            # Every machine attaches it unasked: to one that has no grant for it, it is an empty project that takes nothing.
            return {"send": [], "adopt": [], "pull": [], "drop": []}
        grants.require_project(project)
        entries = [entry for entry in entries if grants.reaches(project, entry[0])]
        # A machine that may only read deletes nothing.
        gone = [item for item in gone if grants.may_write and grants.reaches(project, item[0])]
        result = await self._space.compare(project, entries, gone, buckets=buckets, author=grants.alias)
        self.compared_at = datetime.now(UTC).isoformat(timespec="seconds")
        adopted = dict(result.adopt)
        changed = {path for path, *_ in result.pull} | {path for path, *_ in result.drop}
        sent = set(result.send)
        for path, digest, base in entries:
            if path in adopted:
                self._copies.confirm(project, path, adopted[path], digest)
            elif path in sent:
                self._copies.confirm(project, path, base, None)
            elif base and path not in changed:
                self._copies.confirm(project, path, base, digest)
        dropped = dict(result.drop)
        for path, _ in gone:
            self._copies.forget(project, path)
            if dropped.get(path):
                # Which of them are new is not said; a machine that has the file no more, or has made it anew, leaves this be.
                self._publish(Change(project, path, dropped[path], "", None, None))
        return {
            "send": list(result.send) if grants.may_write else [],
            "adopt": [list(item) for item in result.adopt],
            "pull": [list(item) for item in result.pull if grants.reaches(project, item[0])],
            "drop": [list(item) for item in result.drop if grants.reaches(project, item[0])],
        }

    def check_put(self, params: dict[str, Any]) -> None:
        """Refuse a `put` whose text is still to come, if it can be refused without it.

        Raises:
            RequestError: the caller may not write, or the parameters are not those of a put.
        """
        project, path = project_of(params), text_of(params, "path")
        _revision(params, "base"), text_of(params, "hash")
        try:
            self._grants().require_write(project, path)
        except GrantError as error:
            raise as_request_error(error) from error

    async def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        project, path, base = project_of(body), text_of(body, "path"), _revision(body, "base")
        text, digest = text_of(body, "text"), text_of(body, "hash")
        grants = self._grants()
        grants.require_write(project, path)
        if digest != text_hash(check_text(text)):
            raise RequestError("invalid", "the hash is not that of the text", "was the file changed while it was read?")
        result = await self._space.put(project, path, text, base=base, author=grants.alias)
        is_same = result.hash == digest
        # After a merge the machine may or may not take the text (it may be edited again): until it says more, its base is the old one.
        if is_same:
            self._copies.confirm(project, path, result.revision, digest)
        if result.changed:
            self._publish(Change.of(project, path, result, result.previous_hash))
        answer = {
            "revision": result.revision,
            "hash": result.hash,
            "merged": result.merged,
            "clash": result.clash,
            "indexed": True,
            "queued": result.queued,
        }
        return answer if is_same else {**answer, "text": result.text}

    async def _remove(self, body: dict[str, Any]) -> dict[str, Any]:
        project, path = project_of(body), text_of(body, "path")
        self._grants().require_write(project, path)
        before = await self._hash_of(project, path)
        grants = self._grants()
        grants.require_write(project, path)
        result = await self._space.remove(project, path, base=_revision(body, "base"), author=grants.alias)
        if not result.removed:
            return {"revision": result.revision, "removed": False, "text": result.text}
        self._copies.forget(project, path)
        if before is not None:
            self._publish(Change(project, path, result.revision, "", before, None))
        return {"revision": result.revision, "removed": True}

    async def _pull(self, body: dict[str, Any]) -> dict[str, Any]:
        project, path = project_of(body), text_of(body, "path")
        revision = _revision(body, "revision") if body.get("revision") is not None else None
        self._grants().require_read(project, path)
        document = await self._space.read(project, path, revision=revision)
        if revision is None:
            self._copies.confirm(project, path, document.revision, document.hash)
        return {"revision": document.revision, "hash": document.hash, "text": document.text}

    def check_transcript(self, params: dict[str, Any]) -> None:
        """Refuse a `transcript` whose messages are still to come, if it can be refused without them.

        Raises:
            RequestError: the caller may not write, or the parameters are not those of a batch.
        """
        project = project_of(params)
        transcripts.batch_of({**params, "messages": []}, transcripts.name_of(params, project))
        try:
            self._grants().require_write(project, transcripts.FOLDER)
        except GrantError as error:
            raise as_request_error(error) from error

    async def _transcript(self, body: dict[str, Any]) -> dict[str, Any]:
        project = project_of(body)
        name = transcripts.name_of(body, project)
        batch = transcripts.batch_of(body, name)
        grants = self._grants()
        grants.require_write(project, transcripts.FOLDER)
        if body.get("forget") is True:
            return (await self._space.forget_transcript(name, author=grants.alias)).as_json(taken=False)
        if batch is None:
            return (await self._space.transcript(name)).as_json(taken=False)
        state, taken = await self._space.take_transcript(batch, author=grants.alias)
        return state.as_json(taken=taken)

    async def _hash_of(self, project: str, path: str) -> str | None:
        try:
            return (await self._space.read(project, path)).hash
        except NotFoundError:
            return None


def as_request_error(error: ConfideError) -> RequestError:
    """The answer for an error: a code that the proxy acts on, and the sentence for a person."""
    if isinstance(error, RequestError):
        return error
    codes: tuple[tuple[type[ConfideError], str], ...] = (
        (GrantError, "denied"),
        (LockedError, "locked"),
        (NotFoundError, "not_found"),
        (OperationError, "conflict"),
        (ConflictError, "conflict"),
        (LinkError, "invalid"),
        (InvalidPathError, "invalid"),
        (InvalidTextError, "invalid"),
        (TooLargeError, "too_large"),
        (StorageError, "storage_full"),
    )
    code = next((code for kind, code in codes if isinstance(error, kind)), "unavailable")
    return RequestError(code, str(error), error.hint)


def project_of(body: dict[str, Any]) -> str:
    """The project that a request names.

    Raises:
        RequestError: it names none, or one that cannot be a project.
    """
    project = text_of(body, "project")
    if not project.strip() or len(project) > MAX_PROJECT_CHARS or not project.isprintable():
        raise RequestError(
            "invalid", "the project has no usable name", f"1 to {MAX_PROJECT_CHARS} printable characters"
        )
    return project


def text_of(body: dict[str, Any], key: str) -> str:
    """A text in a request.

    Raises:
        RequestError: it is missing or of another type.
    """
    value = body.get(key)
    if not isinstance(value, str):
        raise RequestError("invalid", f"'{key}' must be a string")
    return value


def _revision(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value >= 2**63:
        raise RequestError("invalid", f"'{key}' must be a revision number")
    return value


def _items(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list):
        raise RequestError("invalid", f"'{key}' must be a list")
    if len(value) > MAX_ENTRIES:
        raise RequestError("too_large", f"'{key}' has {len(value)} entries", f"the limit is {MAX_ENTRIES}")
    return value


def _buckets(body: dict[str, Any]) -> frozenset[int] | None:
    if body.get("buckets") is None:
        return None
    numbers = _items(body, "buckets")
    if not all(type(number) is int and 0 <= number < BUCKETS for number in numbers):
        raise RequestError("invalid", f"'buckets' must be numbers below {BUCKETS}")
    return frozenset(numbers)


def _entry(item: Any) -> tuple[str, str, int]:
    match item:
        case [str(path), str(digest), int(base)] if len(digest) == HASH_CHARS and 0 <= base < 2**63:
            return path, digest, base
    raise RequestError("invalid", "an entry is not [path, hash, base]")


def _gone(item: Any) -> tuple[str, int]:
    match item:
        case [str(path), int(base)] if 0 <= base < 2**63:
            return path, base
    raise RequestError("invalid", "a missing file is not [path, base]")
