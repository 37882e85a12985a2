"""How well questions in other languages find English notes, and notes of their own language; and how often a search shows nothing
where nothing fits.

    python -m bench.languages [de fr ...] [--beside quillmark] [--misses]

Each language has a file: twenty notes of a developer, the same ones in each, the question of each (`?`), and five questions that
none answers (`!`). All was written for this bench. A question counts if its note is among the first five that a search shows by
itself (at 0.25). For silence, the five are asked, and all twenty of a memory of something else, `bench/quiet`'s, which also stands
beside the notes.
Hindi is not one of the model's languages: words alone answer there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from bench.quiet.questions import memories
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.embedding.local.multilingual import Multilingual
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

HERE = Path(__file__).parent
LANGUAGES = ("de", "es", "fr", "zh", "ja", "ko", "ru", "ar", "th", "hi")
SHOWN, THRESHOLD = 5, 0.25


def read(language: str) -> tuple[list[str], list[str], list[str]]:
    """The notes, the question of each, and the questions without an answer."""
    lines = (HERE / f"{language}.txt").read_text(encoding="utf-8").splitlines()
    return (
        [line for line in lines if line[0] not in "?!"],
        [line[2:] for line in lines if line[0] == "?"],
        [line[2:] for line in lines if line[0] == "!"],
    )


class Asked:
    """A space with some notes, to which questions are put."""

    def __init__(self, models: list[LoadedModel]) -> None:
        self._models = models
        self._folder = tempfile.TemporaryDirectory(prefix="confide-languages-")

    async def __aenter__(self) -> Asked:
        shared = SpaceShared(IndexSettings(), self._models)
        self._space = await Space.open(Path(self._folder.name) / "space.db", os.urandom(32), shared, space_id="bench")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._space.close()
        self._folder.cleanup()

    async def put(self, path: str, text: str) -> None:
        """Store a note and wait for its vectors."""
        await self._space.documents.put("bench", path, text, base=0, author="bench")

    async def found(self, question: str) -> list[str]:
        """The paths of what a search shows, the best first."""
        query = SearchQuery(question, max_results=SHOWN, min_score=THRESHOLD)
        return [hit.path for hit in (await self._space.index.searcher.search(query)).hits]

    async def ready(self) -> None:
        """Wait until all is indexed."""
        await self._space.wait_indexed(timeout_s=600)


async def share(
    models: list[LoadedModel], notes: list[str], asked: list[str], unanswered: list[str], beside: dict[str, str]
) -> str:
    """R@5 and silence of one language over these notes."""
    async with Asked(models) as space:
        for path, text in beside.items():
            await space.put(path, text)
        for number, note in enumerate(notes):
            await space.put(f"memory/note-{number:02}.md", f"{note}\n")
        await space.ready()
        right = [f"memory/note-{number:02}.md" in await space.found(question) for number, question in enumerate(asked)]
        silent = [not await space.found(question) for question in unanswered]
        misses.extend(question for question, is_right in zip(asked, right, strict=True) if not is_right)
        return f"{100 * sum(right) / max(1, len(right)):4.0f} {100 * sum(silent) / max(1, len(silent)):4.0f}"


misses: list[str] = []


async def measure(languages: list[str], beside: dict[str, str], models: list[LoadedModel]) -> None:
    """Print a row for each language."""
    english, _, _ = read("en")
    print("R@5 and silence in %: over English notes; over its own; over something else")
    for language in languages:
        notes, asked, unanswered = read(language)
        own = english[: len(notes)]
        row = [
            await share(models, own, asked, unanswered, beside),
            await share(models, notes, asked, unanswered, beside),
            (await share(models, [], [], asked, beside)).split()[1] if beside else "",
        ]
        print(f"{language}  {'   '.join(row)}", flush=True)


def main() -> None:
    """Measure the languages that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", default=list(LANGUAGES))
    parser.add_argument("--beside", default="quillmark", help="a memory of bench/quiet; empty for none")
    parser.add_argument("--misses", action="store_true")
    arguments = parser.parse_args()
    every = {memory.name: memory for memory in memories()}
    beside = every[arguments.beside].without(None) if arguments.beside else {}
    models = [
        LoadedModel.ready(load_minilm()),
        LoadedModel(lambda: Multilingual(0), name="multilingual", is_aside=True),
    ]
    asyncio.run(measure(arguments.languages, dict(beside), models))
    if arguments.misses:
        print("\n".join(misses))


if __name__ == "__main__":
    main()
