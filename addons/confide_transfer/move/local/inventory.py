"""The inventory of a space at one daemon, for comparing both ends of a move: revisions, documents,
transcripts, links and sealed records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from confide_memory.documents import RequestChannel
from confide_proxy.devices.roster_client import records
from confide_proxy.errors import UnfitAnswerError
from confide_transfer.errors import MoveError
from confide_transfer.move.shared.moved import (
    MOVE_FACTS,
    MOVE_OUT,
    MovedDocument,
    MovedFacts,
    MovedLink,
    MovedRevision,
    MovedSession,
)

PAGE_DEADLINE_S: Final = 60.0
MAX_REVISIONS: Final = 2_000_000
"""Limit of revisions, which are held in memory for comparison, at some 300 bytes each."""
MAX_FACTS: Final = 1_000_000
Revision = tuple[str, str, int]
"""Project, path and number, which identify one revision of a space for good."""


@dataclass(slots=True)
class Holdings:
    """The inventory of a space at one end of a move.

    Attributes:
        revisions: each revision with a digest of its hash, author and time.
        origins: provenance of revisions (docs/agents.md); empty if the daemon does not store it.
        order: ids of revisions in the order of their changes, with the revisions that they name.
        deleted: documents whose newest revision deleted them.
        secrets: the key epochs of the sealed records, by their ids in hex.
        packed_bytes: size of all texts, compressed.
    """

    revisions: dict[Revision, bytes] = field(default_factory=dict)
    origins: dict[Revision, str] = field(default_factory=dict)
    order: dict[int, Revision] = field(default_factory=dict)
    living: set[tuple[str, str]] = field(default_factory=set)
    deleted: set[tuple[str, str]] = field(default_factory=set)
    documents: dict[tuple[str, str], MovedDocument] = field(default_factory=dict)
    sessions: dict[tuple[str, str, str], MovedSession] = field(default_factory=dict)
    links: dict[tuple[str, str], MovedLink] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    packed_bytes: int = 0

    def has(self, other: Holdings, key: Revision) -> bool:
        """Return True if this end has the revision `key` with the same digest as the other end.

        Their provenance must be the same too, unless one end does not store it.
        """
        origins = self.origins.get(key), other.origins.get(key)
        return self.revisions.get(key) == other.revisions[key] and (None in origins or origins[0] == origins[1])

    @property
    def projects(self) -> set[str]:
        """Names of the projects that have documents, deleted ones too."""
        return {project for project, _ in self.living | self.deleted}


async def read_holdings(link: RequestChannel) -> Holdings:
    """Read the inventory of a space from a daemon.

    Raise UnfitAnswerError if a list is not valid or has no end; MoveError if there are too many
    revisions; RequestError, ConnectionLost or TimeoutError if the daemon refuses or cannot be
    reached.
    """
    found = Holdings()
    newest: dict[tuple[str, str], tuple[int, bool]] = {}
    async for page in revisions(link, 0, texts=False):
        for one in page:
            key: Revision = (one.project, one.path, one.revision)
            if key in found.revisions:
                raise UnfitAnswerError
            found.revisions[key] = digest(one)
            if one.made is not None:
                found.origins[key] = f"{one.made} {one.by} {one.doubted}"
            found.order[one.id] = key
            found.packed_bytes += one.bytes
            number, _ = newest.get(key[:2], (0, False))
            if one.revision > number:
                newest[key[:2]] = one.revision, not one.hash
        if len(found.revisions) > MAX_REVISIONS:
            hint = "confide export writes it to a folder, and confide import brings it back"
            raise MoveError(f"this memory has more than {MAX_REVISIONS:,} revisions", hint=hint)
    for document, (_, is_deleted) in newest.items():
        (found.deleted if is_deleted else found.living).add(document)
    async for facts in _facts(link, "documents"):
        found.documents |= {(one.project, one.path): one._replace(id=0) for one in facts["documents"]}
    async for facts in _facts(link, "sessions"):
        found.sessions |= {(one.project, one.agent, one.session): one._replace(id=0) for one in facts["sessions"]}
    answer = await MOVE_FACTS.ask(link, {"kind": "links"}, timeout_s=PAGE_DEADLINE_S, bulk=True)
    found.links = {(one.one, one.other): one for one in answer["links"]}
    async for listed in records(link):
        found.secrets |= {one["id"]: one["epoch"] for one in listed}
    return found


async def revisions(link: RequestChannel, after: int, *, texts: bool) -> AsyncIterator[list[MovedRevision]]:
    """Yield the revisions after the id `after`, page by page; with `texts`, including their texts.

    Raise UnfitAnswerError if a list is not valid or has no end; MoveError if there are too many;
    RequestError, ConnectionLost or TimeoutError if the daemon refuses or cannot be reached.
    """
    following: int | None = after
    while following is not None:
        answer = await MOVE_OUT.ask(link, {"after": following, "texts": texts}, timeout_s=PAGE_DEADLINE_S, bulk=True)
        page, before = answer["revisions"], following
        following = answer["next"]
        ids = [one.id for one in page]
        if bool(page) != (following is not None) or ids != sorted(set(ids)):
            raise UnfitAnswerError
        if page and not (before < ids[0] and ids[-1] == following):
            raise UnfitAnswerError
        if page:
            yield page


async def _facts(link: RequestChannel, kind: str) -> AsyncIterator[MovedFacts]:
    """Yield the items of one kind, page by page. Each daemon has its own ids."""
    after: int | None = 0
    count = 0
    while after is not None:
        answer = await MOVE_FACTS.ask(link, {"kind": kind, "after": after}, timeout_s=PAGE_DEADLINE_S, bulk=True)
        size, before, after = len(answer["documents"]) + len(answer["sessions"]), after, answer["next"]
        if bool(size) != (after is not None) or (after is not None and after <= before) or count > MAX_FACTS:
            raise UnfitAnswerError
        count += size
        yield answer


def digest(one: MovedRevision) -> bytes:
    """Return a 16-byte digest of a revision's hash, author and time."""
    told = json.dumps([one.hash, one.author, one.time]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(told, digest_size=16).digest()
