"""The four attacks of a published residue protocol (tombstone-erase 0.1.1), in words of our own, against an index after `confide forget`.

By retrieval: by name, by filter, by the nearest forty to the first, middle and last words, also spread out. By bytes: the fingerprint of a
vector, in every page that a holder of the key sees. By inversion: whichever bytes are near a vector are matched with guessed texts. By an
echo: whether what is near a text tells if it was that which was forgotten, or something else (Ghost Echoes; 70 % is reported of graphs).
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tests.support.daemon import residue
from tests.support.daemon.forgetful import vectors
from tests.support.deadline import DEADLINE_S

from confide_crypto.keys.identity import Identity
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.forgetting import ForgetRecord, key_id

KEY: Final = bytes(range(32))
DIMENSIONS: Final = 256
MOST: Final = 40
TOPICS: Final = (
    "the heron fishes in the shallow water of the old river at dawn",
    "the parser reads a token and returns a tree of the whole program",
    "bread of rye needs a sour dough that rests for a whole night",
)
SUBJECTS: Final = tuple(range(1, 24, 4))
"""Numbers of the documents that are forgotten, two of each topic."""
FINGERPRINT: Final = 32 * 4
"""Bytes of the first 32 numbers of a vector."""
NEAR: Final = 0.95
"""The least cosine of a vector that is taken for that of a guess; in this index other texts come to 0.9."""


_TURN: Final = np.linalg.qr(np.random.default_rng(1).normal(size=(DIMENSIONS, DIMENSIONS)))[0].astype(np.float32)


class DenseEmbedder(HashedEmbedder):
    """Hashed words, turned: no number is zero, as in a model's vectors, so that a few of them are a fingerprint."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return np.asarray(super().embed_documents(texts) @ _TURN, dtype=np.float32)


def line(number: int) -> str:
    """The text of a document: of a topic, with words and a number of its own."""
    own = " ".join(f"{word}{number:02d}" for word in ("qua", "zil", "mer", "tov"))
    return f"{own} {TOPICS[number % len(TOPICS)]} for customer {7_000_000 + number * 7919}"


def path(number: int) -> str:
    return f"memory/{number:02d}.md"


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[Space]:
    model = LoadedModel.ready(DenseEmbedder(DIMENSIONS, model="turned"))
    space = await Space.open(file, KEY, SpaceShared(IndexSettings(), model), space_id="s")
    try:
        yield space
    finally:
        await space.close()


async def fill(space: Space, written: Callable[[int], str] = line) -> None:
    """`written`: the texts of the documents that will be forgotten."""
    for number in range(36):
        text = (written if number in SUBJECTS else line)(number)
        await space.documents.put("p", path(number), f"# Note\n\n{text}.\n", base=0, author="a")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)


def something_else(number: int) -> str:
    """Of another topic and length."""
    return f"tin and copper {number} " + "melt slowly " * (number // 4)


async def forget(space: Space) -> None:
    """One after another, as a person does."""
    key, identity = await space.forgetting.key(), Identity(bytes(32))
    for number in SUBJECTS:
        _, plan = await space.forgetting.plan("p", [path(number)], [], lambda _project, _path: True)
        content = (plan.names, plan.texts, plan.parts, plan.of_parts, plan.sealed)
        record = ForgetRecord(
            number.to_bytes(16), "00" * 16, int(time.time()), identity.public_key, key_id(key), *content
        )
        await space.forgetting.take(record.sign(identity), key, author="a")


async def hits(space: Space, text: str, **filters: Any) -> list[tuple[str, float, float | None, float | None]]:
    """Path and scores of the nearest, by path: equal ones come by their times too, which differ in two spaces."""
    query = SearchQuery(text, max_results=MOST, min_score=0.0, **filters)
    found = (await space.index.searcher.search(query)).hits
    return sorted((hit.path, hit.score, hit.vector, hit.keyword) for hit in found)


def probes(number: int) -> list[str]:
    words = line(number).split()
    middle = len(words) // 2
    return [" ".join(words[:8]), " ".join(words[middle - 4 : middle + 4]), " ".join(words[-8:])]


def nearest(image: bytes, guesses: np.ndarray[Any, Any]) -> float:
    """The largest cosine of a guess with any run of bytes of the image, read as a stored vector is: 32-bit floats, at every byte."""
    found = 0.0
    for begin in range(4):
        numbers = np.frombuffer(image[begin : begin + (len(image) - begin) // 4 * 4], dtype=np.float32)
        numbers = np.where(np.abs(numbers) <= 1.0, numbers, 0.0)  # no other is part of a vector of length 1
        runs = np.lib.stride_tricks.sliding_window_view(numbers, DIMENSIONS)
        for at in range(0, len(runs), 16_384):
            some = runs[at : at + 16_384]
            lengths = np.maximum(np.linalg.norm(some, axis=1), 1e-6)
            found = max(found, float((some @ guesses.T / lengths[:, None]).max()))
    return found


@pytest.fixture(scope="module")
def guesses() -> np.ndarray[Any, Any]:
    """What an attacker who knows the form of the texts guesses: the texts themselves, as the index cuts them."""
    texts = [form for number in SUBJECTS for form in (f"# Note\n\n{line(number)}.", f"{line(number)}.", line(number))]
    return np.asarray(DenseEmbedder(DIMENSIONS, model="turned").embed_documents(texts))


async def test_four_attacks_recover_nothing(tmp_path: Path, guesses: np.ndarray[Any, Any]) -> None:
    """Those that look for the text find all of it before, so that they can tell; no score tells it from another that was forgotten."""
    with_them, other = tmp_path / "with.db", tmp_path / "other.db"
    kept = [number for number in range(36) if number not in SUBJECTS]
    async with opened(with_them) as space:
        await fill(space)
        before = {number: vectors(with_them, KEY, path(number)) for number in SUBJECTS}
        for number in SUBJECTS:
            assert path(number) in [found for found, *_ in await hits(space, probes(number)[0])]
    image = residue.image(with_them, KEY)
    assert all(vector[:FINGERPRINT] in image for found in before.values() for vector in found)
    assert nearest(image, guesses) > NEAR
    async with opened(with_them) as space:
        await forget(space)
        for number in SUBJECTS:
            assert await space.documents.newest_text("p", path(number)) is None
            assert await hits(space, line(number), path=path(number)) == []
            for probe in probes(number):
                for rank in ("relevance", "balanced"):
                    assert path(number) not in [found for found, *_ in await hits(space, probe, rank=rank)]
    image = residue.image(with_them, KEY)
    left = [vector for number in kept for vector in vectors(with_them, KEY, path(number))]
    for number, found in before.items():
        assert not [vector for vector in found if vector not in left and vector[:FINGERPRINT] in image]
        assert line(number).split()[0] not in " ".join(residue.words(with_them, KEY))
        assert line(number).encode() not in image
    assert nearest(image, guesses) < NEAR
    async with opened(other) as never:
        await fill(never, something_else)
        await forget(never)
    async with opened(other) as never, opened(with_them) as space:
        drawn = random.Random(1)
        for number in SUBJECTS:
            for words in (line(number).split(), *(line(drawn.choice(kept)).split() for _ in range(4))):
                drawn.shuffle(words)
                assert await hits(space, " ".join(words)) == await hits(never, " ".join(words))
