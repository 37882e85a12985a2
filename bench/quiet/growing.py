"""Whether what fits a prompt still comes as a memory grows: twelve notes of a line each beside ever more daily logs, and beside a vault.

    python -m bench.quiet.growing [--prompts 0.4]

`year/` has two such memories, each with 22 prompts that one of its notes helps with, 62 prompts that none does, and the forms of the
lines of logs, five a day. The vault is another project of the same space: 500 notes made of Python's own documentation, as `bench.vault`
makes them. Prompts are asked as a hook asks them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import tempfile
from datetime import date, timedelta
from pathlib import Path

from bench.quality import embedder
from bench.quiet.measure import Answer, ask, put
from bench.quiet.questions import HERE, SEED, Asked, Memory, read_memory
from bench.vault import make
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

YEAR = HERE / "year"
PROJECTS = ("booking", "shop")
DAYS = (0, 10, 30, 120, 360)
LINES_A_DAY = 5
FIRST_DAY = date(2025, 11, 1)
VAULT_NOTES = 500
HITS = 3  # as many as a prompt is answered with


def logs(days: int) -> dict[str, str]:
    """Daily logs of so many days; those of fewer days are among them."""
    text, _, lists = (YEAR / "lines.txt").read_text(encoding="utf-8").partition("\n\n")
    forms = [line for line in text.splitlines() if line.startswith("- ")]
    words: dict[str, list[str]] = {}
    for line in lists.splitlines():
        if named := re.fullmatch(r"\[(\w+)\]", line):
            some = words.setdefault(named[1], [])
        elif line:
            some.append(line)
    chance = random.Random(SEED)
    found: dict[str, str] = {}
    for number in range(days):
        day = (FIRST_DAY + timedelta(number)).isoformat()
        lines = [
            re.sub(r"\{(\w+)\}", lambda name: chance.choice(words[name[1]]), form)
            for form in chance.sample(forms, LINES_A_DAY)
        ]
        found[f"memory/{day}.md"] = "\n".join([f"# {day}", "", *lines, ""])
    return found


def vault() -> dict[str, str]:
    """500 notes that are of another project, of 4.5 kB each."""
    with tempfile.TemporaryDirectory(prefix="confide-vault-") as folder:
        make(Path(folder), VAULT_NOTES)
        paths = sorted(Path(folder).rglob("*.md"))
        return {f"memory/{path.relative_to(folder)}": path.read_text(encoding="utf-8") for path in paths}


def notes(project: str) -> Memory:
    """The twelve notes of a project, and what is typed that one of them helps with."""
    return read_memory(project, (YEAR / f"{project}.txt").read_text(encoding="utf-8"))


def prompts(project: str) -> list[Asked]:
    """Those that a note helps with, and those that none does."""
    known = [Asked("prompt", text, project, fact.places) for fact in notes(project).facts for text in fact.prompts]
    lines = (YEAR / "noise.txt").read_text(encoding="utf-8").splitlines()
    return known + [Asked("everyday", line, project) for line in lines if not line.startswith("# ")]


async def measured(model: str = "local", *, days: tuple[int, ...] = DAYS, with_vault: bool = True) -> list[Answer]:
    """The answers at each size, then beside the vault: with all of the logs, and with the notes alone."""
    found: list[Answer] = []
    with tempfile.TemporaryDirectory(prefix="confide-growing-") as folder:
        path = Path(folder) / "space.db"
        handle = embedder(model)
        space = await Space.open(path, os.urandom(32), SpaceShared(IndexSettings(), handle), space_id="bench")
        try:
            for project in PROJECTS:
                await put(space, project, notes(project).without(None))
            there: set[str] = set()
            for number in days:
                fresh = {name: text for name, text in logs(number).items() if name not in there}
                there |= fresh.keys()
                for project in PROJECTS:
                    await put(space, project, fresh)
                found += await _asked(space, f"{number} days")
            if with_vault:
                await put(space, "vault", vault())
                found += await _asked(space, f"{days[-1]} days and a vault")
                for project in PROJECTS:
                    for name in there:
                        await space.documents.delete(project, name, author="bench")
                found += await _asked(space, "a vault")
        finally:
            await space.close()
    return found


async def _asked(space: Space, beside: str) -> list[Answer]:
    await space.wait_indexed(timeout_s=3600)
    found: list[Answer] = []
    for project in PROJECTS:
        query = SearchQuery("", projects=frozenset({project}), project=project)
        found += [await ask(space, one, project, beside, query=query) for one in prompts(project)]
    return found


def is_right(answer: Answer, least: float) -> bool:
    """Whether a right hit is among the first that are so good."""
    shown = [hit for hit in answer.hits if hit["ownScore"] >= least]
    return any(hit["isRight"] for hit in shown[:HITS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=float, default=0.4)
    parser.add_argument("--model", choices=["local", "hashed", "none"], default="local")
    arguments = parser.parse_args()
    found = asyncio.run(measured(arguments.model))
    for origin, beside in dict.fromkeys((answer.origin, answer.beside) for answer in found):
        some = [answer for answer in found if (answer.origin, answer.beside) == (origin, beside)]
        known = [answer for answer in some if answer.asked.gold]
        noise = [answer for answer in some if not answer.asked.gold]
        got = sum(is_right(answer, arguments.prompts) for answer in known)
        loud = sum(answer.best >= arguments.prompts for answer in noise)
        print(
            f"{origin:8s} {beside:24s} {got:2d} of {len(known)} get their note, {loud} of {len(noise)} others get one"
        )


if __name__ == "__main__":
    main()
