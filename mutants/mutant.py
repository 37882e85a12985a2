"""The faults of `list.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        file: below the root of the tree.
        loses: what somebody loses by it.
        old: what stands in the file, once.
        new: what takes its place.
        tests: files or folders, of which one test has to fail.
    """

    file: str
    loses: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError: the code has changed, so that the fault is nowhere, or in two places."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {text.count(self.old)} times")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All of them, in the order of the list."""
    listed = tomllib.loads((Path(__file__).with_name("list.toml")).read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**each, "tests": tuple(each["tests"])}) for each in listed]
