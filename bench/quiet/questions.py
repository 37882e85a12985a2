"""The test bed: small memories, questions that they answer and questions that they do not, and everyday prompts.

`memories/*.txt` and `prompts.txt` are written by hand; README.md has their form. The rest is made by rules, with a fixed seed: a question
whose answer is taken out of its memory, one that is put to another memory, one with the name or the day of something else.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SEED = 16
# Memories that no weight and no threshold was chosen on.
KEPT_ASIDE = frozenset({"birchlab", "harborlight", "mossgate", "saltmarsh", "wrenplay"})
PARTS = 4  # a quarter of the facts is taken out at a time, so that the rest stays a memory
FOREIGN = 2  # other memories that a question is put to
MEMORIES_A_PROMPT = 3

# With an answer, and without one; "prompt" and "everyday" are not questions but what is typed to an agent all day.
ANSWERED = ("answered", "day", "prompt")
UNANSWERED = ("removed", "edited", "absent", "foreign", "name", "no such day", "everyday", "foreign prompt")
PROMPTS = ("prompt", "everyday", "foreign prompt")
SAME_PROJECT = ("removed", "edited", "absent", "name")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME = re.compile(r"(?<=[a-z,] )(?:[A-Z][\w-]+)(?: [A-Z][\w-]+)*")
DAYS_ASKED = ("what did we do on {}?", "notes of {}")
NO_DAY = "2024-07-{:02}"


Place = tuple[str, int, int]  # path, first line and last; the first line of a file has number 1


@dataclass(frozen=True, slots=True)
class Fact:
    """Some lines, and what may be asked about them."""

    places: tuple[Place, ...]
    questions: tuple[str, ...]
    edited: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


@dataclass(slots=True)
class Memory:
    """What one project has stored: `files` by path, line by line."""

    name: str
    files: dict[str, list[str]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    @property
    def is_kept_aside(self) -> bool:
        return self.name in KEPT_ASIDE

    def without(self, part: int | None) -> dict[str, str]:
        """The files' texts; without a quarter of the facts, if `part` says which."""
        left = {path: dict(enumerate(lines, 1)) for path, lines in self.files.items()}
        for path, first, last in (place for fact in self.part(part) for place in fact.places):
            for line in range(first, last + 1):
                left[path].pop(line, None)
        texts = {path: "\n".join(_headed(list(lines.values()))) + "\n" for path, lines in left.items()}
        return {path: text for path, text in texts.items() if text.strip()}

    def part(self, part: int | None) -> list[Fact]:
        return [] if part is None else self.facts[part::PARTS]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, of which memory it is asked, and the lines that answer it, if any do."""

    kind: str
    text: str
    memory: str
    gold: tuple[Place, ...] = ()
    part: int | None = None  # what is taken out of the memory
    more: str = ""  # the kind of an everyday prompt


def _headed(lines: list[str]) -> list[str]:
    """The lines without the headings that have lost all that stood below them."""
    kept: list[str] = []
    for line in reversed(lines):
        if not _level(line) or (kept and (not _level(kept[-1]) or _level(kept[-1]) > _level(line))):
            kept.append(line)
    return kept[::-1]


def _level(line: str) -> int:
    """Of a heading; 0 for any other line."""
    return len(line) - len(line.lstrip("#"))


def memories() -> list[Memory]:
    """All that are written down, by name."""
    return [read_memory(path.stem, path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("memories/*.txt"))]


def read_memory(name: str, text: str) -> Memory:
    """A memory in the form that README.md describes."""
    memory = Memory(name)
    lines: list[str] = []
    path, first = "", 0
    asked: dict[str, list[str]] = {"? ": [], "?? ": [], "+ ": []}

    def ended() -> None:
        """What was asked belongs to the lines before."""
        nonlocal first
        if any(asked.values()):
            questions, edited, prompts = (tuple(found) for found in asked.values())
            memory.facts.append(Fact(((path, first, len(lines)),), questions, edited, prompts))
            first = 0
            for found in asked.values():
                found.clear()

    for line in text.splitlines():
        mark = next((mark for mark in asked if line.startswith(mark)), None)
        if mark is not None:
            asked[mark].append(line.removeprefix(mark))
        elif line.startswith("! "):
            memory.absent.append(line.removeprefix("! "))
        else:
            ended()
            if line.startswith("> "):
                path, lines = line.removeprefix("> "), []
                memory.files[path] = lines
            else:
                lines.append(line)
                first = 0 if line.startswith("#") else first or len(lines)
    ended()
    return memory


def prompts(*, kept_aside: bool) -> list[tuple[str, str]]:
    """(kind, text) of everyday prompts; the second half of each kind is kept aside."""
    kinds: dict[str, list[str]] = {}
    for line in (HERE / "prompts.txt").read_text(encoding="utf-8").splitlines():
        if kind := re.fullmatch(r"\[(.+)\]", line):
            found = kinds.setdefault(kind[1], [])
        elif line and not line.startswith("# "):
            found.append(line.replace("\\n", "\n"))
    halves = {kind: (texts[: len(texts) // 2], texts[len(texts) // 2 :]) for kind, texts in kinds.items()}
    return [(kind, text) for kind, both in halves.items() for text in both[kept_aside]]


def questions(all_memories: Sequence[Memory], *, kept_aside: bool) -> list[Asked]:
    """What is asked of the memories of one side of the split. Nothing of the other side is in it."""
    chance = random.Random(SEED + kept_aside)
    side = [memory for memory in all_memories if memory.is_kept_aside == kept_aside]
    found: list[Asked] = []
    for memory in side:
        others = [other for other in side if other is not memory]
        found += _own(memory, chance, others)
        for other in others:
            found += _of_another(memory, other, chance, share=FOREIGN / len(others))
    for kind, text in prompts(kept_aside=kept_aside):
        found += [Asked("everyday", text, one.name, more=kind) for one in chance.sample(side, MEMORIES_A_PROMPT)]
    return found


def _own(memory: Memory, chance: random.Random, others: Sequence[Memory]) -> Iterator[Asked]:
    own = " ".join(memory.without(None).values()).lower()
    names = sorted({name for other in others for fact in other.facts for name in _names(fact)})
    foreign = [name for name in names if name.lower() not in own]
    for number, fact in enumerate(memory.facts):
        part = number % PARTS
        for text in fact.questions:
            yield Asked("answered", text, memory.name, fact.places)
            yield Asked("removed", text, memory.name, part=part)
            for name in _NAME.findall(text)[:1]:
                yield Asked("name", text.replace(name, chance.choice(foreign)), memory.name)
        for text in fact.edited:
            yield Asked("edited", text, memory.name)
        for text in fact.prompts:
            yield Asked("prompt", text, memory.name, fact.places)
    for text in memory.absent:
        yield Asked("absent", text, memory.name)
    for path, lines in memory.files.items():
        for day in _DAY.findall(path)[:1]:
            yield from (Asked("day", form.format(day), memory.name, ((path, 1, len(lines)),)) for form in DAYS_ASKED)
            other = NO_DAY.format(chance.randint(1, 31))
            yield Asked("no such day", chance.choice(DAYS_ASKED).format(other), memory.name)


def _names(fact: Fact) -> Iterator[str]:
    for text in fact.questions:
        yield from _NAME.findall(text)


def _of_another(memory: Memory, other: Memory, chance: random.Random, *, share: float) -> Iterator[Asked]:
    """What is asked of this memory, though the other one answers it."""
    for fact in other.facts:
        yield from (Asked("foreign", text, memory.name) for text in fact.questions if chance.random() < share)
        yield from (Asked("foreign prompt", text, memory.name) for text in fact.prompts if chance.random() < share)
