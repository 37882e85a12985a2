"""A process that writes to a space until it is killed; it says each acknowledged write on stdout.

Each line of its standard input is one such life, in a fork whose id it says first: KEYHEX START MODE DB. When it is over it says `over`.

MODE put: documents one after the other. MODE index: few documents, vectors slowly, so that the kill falls into the indexing.
MODE generation: the same with a second model, so that it falls into the building or the swap of a generation.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

DEADLINE_S = 120.0  # as tests/support/deadline.py, which is not there for a program that is run by its path


class SlowEmbedder(HashedEmbedder):
    """Hashed words, some milliseconds a batch: the time a real model takes."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        time.sleep(0.004)
        return super().embed_documents(texts)


def text_of(number: int, version: int) -> str:
    """The text of a document: its number and version stand in each paragraph."""
    return (
        "\n\n".join(
            f"# Part {part}\n\ndocument{number} version{version} part{part} about the pool" for part in range(8)
        )
        + "\n"
    )


async def write(path: Path, key: bytes, start: int, mode: str) -> None:
    model = f"words-{start}" if mode == "generation" else "words"
    embedder = LoadedModel.ready(SlowEmbedder(64, model=model))
    space = await Space.open(path, key, SpaceShared(IndexSettings(), embedder), space_id="crash")
    print("open", flush=True)
    for version in range(start, start + 1_000_000):
        number = version % 10
        document = await current(space, number)
        result = await space.documents.put(
            "p", f"{number}.md", text_of(number, version), base=document, author="writer"
        )
        print(f"ack {number} {version} {result.revision}", flush=True)
        if mode != "put" and version >= start + 10:
            await space.wait_indexed(timeout_s=DEADLINE_S)


async def current(space: Space, number: int) -> int:
    from confide_daemon.errors import NotFoundError

    try:
        return (await space.documents.read("p", f"{number}.md")).revision
    except NotFoundError:
        return 0


if __name__ == "__main__":
    for line in sys.stdin:
        key, start, mode, path = line.rstrip("\n").split(" ", 3)
        pid = os.fork()
        if pid == 0:
            try:
                print(os.getpid(), flush=True)
                asyncio.run(write(Path(path), bytes.fromhex(key), int(start), mode))
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        print("\nover", flush=True)  # whatever the last line was
