"""Measures the verdicts on notes about code that changes: how many are wrong, and how long each takes.

    python -m bench.stale.judge [--mutations N]

Small repositories of eleven languages are made by a script, and each mutation's effect on each part of a file is known: a whole file,
a definition, and its lines.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.stale import repositories
from bench.stale.repositories import CHANGES, FORMS, Repository, SourceFile
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.freshness.note_ties import ProjectTies, TieState

SEED: Final = 43
MUTATIONS: Final = 10_000
BRANCHES_EVERY: Final = 50
GOAL_MS: Final = 2.0


@dataclass
class Judged:
    """Counts of verdicts.

    Attributes:
        wrong: (mutation, part) of stale parts that are shown as fresh.
        needless: the same of fresh parts that are shown as changed or gone.
        times: seconds of a processor for each verdict.
    """

    mutations: int = 0
    stale: int = 0
    fresh: int = 0
    unchecked: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    needless: list[tuple[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def look(self, ties: ProjectTies, seen: dict[str, str], expected: dict[str, bool], kind: str) -> None:
        """Ask for a verdict on each part."""
        for part, is_fresh in expected.items():
            began = time.thread_time()
            verdict = ties.verdict({part: seen[part]}, until=time.monotonic() + 60)
            self.times.append(time.thread_time() - began)
            assert verdict is not None
            self.fresh += is_fresh
            self.stale += not is_fresh
            self.unchecked += verdict.state is TieState.UNCHECKED
            if not is_fresh and verdict.state is TieState.FRESH:
                self.wrong.append((kind, part))
            if is_fresh and verdict.state in (TieState.CHANGED, TieState.GONE):
                self.needless.append((kind, part))


def judged(folder: Path, mutations: int, *, seed: int = SEED, files: int = 3) -> Judged:
    """Make a repository, tie notes to all its parts, and mutate it so often."""
    chance = random.Random(seed)
    repository = repositories.made(folder / "shop", chance, files=files)
    keys = SpaceKeys.generate()
    ties = ProjectTies(repository.root, lambda: keys)
    seen = ties_of(ties, repository)
    found = Judged()
    for file in repository.files:
        found.look(ties, seen, dict.fromkeys(file.parts(), True), "nothing")
    while found.mutations < mutations:
        if found.mutations % BRANCHES_EVERY == BRANCHES_EVERY - 1:
            switch(repository, ties, seen, chance, found)
        else:
            file = chance.choice(repository.files)
            kind = chance.choice(sorted(CHANGES))
            expected = CHANGES[kind](repository, file, chance)
            found.look(ties, seen, expected, kind)
            repositories.restored(repository, file)
        found.mutations += 1
    return found


def ties_of(ties: ProjectTies, repository: Repository) -> dict[str, str]:
    """Return what is seen of all parts of a repository."""
    seen: dict[str, str] = {}
    for file in repository.files:
        parts = list(file.parts())
        for at in range(0, len(parts), 16):
            seen |= ties.seen_for_parts(parts[at : at + 16])
        missing = set(parts) - seen.keys()
        assert not missing, missing
    return seen


def switch(
    repository: Repository, ties: ProjectTies, seen: dict[str, str], chance: random.Random, found: Judged
) -> None:
    """Go to a branch on which three files differ, and back."""
    repository.git("checkout", "-q", "-B", "other", "main")
    changed: dict[str, dict[str, bool]] = {}
    for file in chance.sample(repository.files, 3):
        changed[file.path] = CHANGES[chance.choice(("edit", "move", "comment", "delete_file"))](
            repository, file, chance
        )
    repository.git("commit", "-q", "-a", "--allow-empty", "-m", "other")
    files: list[SourceFile] = chance.sample(repository.files, 6)
    for expected in changed.values():
        found.look(ties, seen, expected, "branch")
    repository.git("checkout", "-q", "main")
    for file in (*files, *(one for one in repository.files if one.path in changed)):
        found.look(ties, seen, dict.fromkeys(file.parts(), True), "branch and back")


def large(folder: Path) -> dict[str, tuple[float, float, float]]:
    """Return, by ending, the milliseconds of a verdict on a definition in a file of 1 MB: unchanged and never looked at, looked at
    before, and just edited elsewhere.
    """
    chance = random.Random(SEED)
    keys = SpaceKeys.generate()
    found = {}
    for ending, form in FORMS.items():
        name = "Needle1" if ending in ("java", "go") else "needle_1"
        blocks = [repositories.filled(form, name, chance)]
        names = [name]
        size = 0
        while size < 1_000_000:
            names.append(f"filler_{len(names)}")
            blocks.append(repositories.filled(form, names[-1], chance))
            size += sum(len(line) + 1 for line in blocks[-1])
        file = SourceFile(f"big.{ending}", ending, names[:1], blocks[:1])
        text = "\n".join(line for block in blocks for line in (*block, "")) + "\n"
        root = folder / ending
        root.mkdir()
        (root / file.path).write_text(text)
        part = f"{file.path}#{name}"
        seen = ProjectTies(root, lambda: keys).seen_for_parts([part])
        time.sleep(2.1)  # the file's times are old enough to be relied on
        ties = ProjectTies(root, lambda: keys)
        times = []
        for _ in range(2):
            began = time.perf_counter()
            verdict = ties.verdict(seen, until=time.monotonic() + 60)
            times.append((time.perf_counter() - began) * 1e3)
            assert verdict == (TieState.FRESH, verdict.since if verdict else "", ()), ending
        (root / file.path).write_text(text + "\n")
        began = time.perf_counter()
        verdict = ties.verdict(seen, until=time.monotonic() + 60)
        assert verdict == (TieState.FRESH, verdict.since if verdict else "", ()), ending
        found[ending] = (times[0], times[1], (time.perf_counter() - began) * 1e3)
    return found


def main() -> None:
    """Print the figures; exit code 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=MUTATIONS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        found = judged(Path(folder), asked.mutations)
        took_s = time.process_time() - began
        times = sorted(found.times)
        p50, p95 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.95))
        print(
            f"{found.mutations} mutations, {found.stale} stale and {found.fresh} fresh parts; {took_s:.0f} s of a processor"
        )
        print(f"stale shown as fresh: {len(found.wrong)} (goal: 0)")
        print(
            f"fresh marked as changed: {len(found.needless)}, {len(found.needless) / max(1, found.fresh):.2%} (goal: 1 %)"
        )
        print(f"not checked: {found.unchecked}")
        print(f"a verdict, of a processor: p50 {p50:.2f} ms, p95 {p95:.2f} ms (goal: {GOAL_MS} ms)")
        for kind, part in (*found.wrong[:10], *found.needless[:10]):
            print(f"  {kind}: {part}")
        print("  needless by mutation:", dict(Counter(kind for kind, _ in found.needless)))
        for ending, (cold, warm, after) in large(Path(folder)).items():
            print(
                f"1 MB of {ending}: unchanged {cold:.2f} ms, again {warm:.2f} ms, after an edit elsewhere {after:.0f} ms"
            )
    if found.wrong or len(found.needless) > found.fresh / 100:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
