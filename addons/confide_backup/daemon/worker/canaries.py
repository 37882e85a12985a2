"""Test searches, called canaries: their results are hashed when a space is copied, and must be the
same in the copy.

The queries are headings of the space itself with the vectors of the chunks below them, so nothing
is embedded and no text leaves the database. The content of the database alone determines which
headings these are. Only one hash of all results is kept, keyed by the database's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from confide_backup.daemon.manifest import HASH_BYTES
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.errors import DamagedError
from confide_daemon.retrieval.indexing.generations import live_generation
from confide_daemon.retrieval.search import engine
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.pieces import Generation
from confide_memory.markdown_blocks import line_headings

MOST: Final = 20
_LOOKED_AT: Final = 200
"""Number of documents to search for headings."""
_LEAST_WORDS: Final = 2
_LONGEST: Final = 200
_PERSON: Final = b"confide-canary-1"

Follow = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Canary:
    question: str
    vector: Vectors | None  # None: keyword search only


def answers(store: Store, key: bytes, *, now: int, follow: Follow) -> tuple[bytes, int]:
    """Return a hash of the results of all test searches in the space, and their number. Runs in the
    caller's transaction.

    Args:
        key: the key of the database.
        now: the time for the age of notes in the ranking: the snapshot's.
        follow: called after each search.
    """
    live = live_generation(store)
    digest = hashlib.blake2b(key=key, person=_PERSON, digest_size=HASH_BYTES)
    asked = 0
    canaries = list(_canaries(store, live))
    if live is not None and any(canary.vector is not None for canary in canaries):
        store.vectors.warm_in_view(live.id)
    for canary in canaries:
        found = engine.run(
            store,
            SearchQuery(canary.question, min_score=0.0),
            generation=live if canary.vector is not None else None,
            vector=canary.vector,
            weights=Weights(),
            now=float(now),
            timings={},
        )
        shown = [
            [
                hit.project,
                hit.path,
                store.one("SELECT revision FROM document WHERE id = ?", (hit.document,)),
                hit.start_line,
            ]
            for hit in found.hits
        ]
        digest.update(json.dumps([canary.question, shown], ensure_ascii=True).encode() + b"\n")
        asked += 1
        follow()
    return digest.digest(), asked


def _canaries(store: Store, live: Generation | None) -> Iterator[Canary]:
    """Yield headings of documents in the order of their hashes, which is as good as random."""
    sql = "SELECT id, revision FROM document WHERE NOT deleted AND source = 'memory' AND hash <> '' ORDER BY hash, id LIMIT ?"
    asked: set[str] = set()
    for document, number in store.rows(sql, (_LOOKED_AT,)):
        revision = store.documents.revision(document, number)
        text = revision.text if revision is not None else None
        titles = [heading.title[:_LONGEST] for heading in line_headings(text or "")]
        title = next((one for one in titles if len(one.split()) >= _LEAST_WORDS and one not in asked), None)
        if title is None:
            continue
        asked.add(title)
        yield Canary(title, _vector(store, document, live))
        if len(asked) == MOST:
            return


def _vector(store: Store, document: int, live: Generation | None) -> Vectors | None:
    """Return the vector of the document's first chunk."""
    if live is None:
        return None
    sql = f"""SELECT v.embedding FROM chunk c JOIN vector_{live.id} v ON v.chunk = c.id
              WHERE c.document = ? ORDER BY c.position LIMIT 1"""  # noqa: S608 - a number of ours
    found = store.rows(sql, (document,))
    if not found:
        return None
    vector = np.frombuffer(found[0][0], dtype=np.float32)
    if len(vector) != live.dimensions:
        raise DamagedError("a vector has another length than its model's")
    return vector
