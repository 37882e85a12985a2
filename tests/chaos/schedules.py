"""What can happen to a memory that lives on several machines, as steps that can be drawn at random and carried out: one after the other, or
on all machines at once while the network, the programs and the clocks misbehave."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hypothesis import strategies as st
from tests.chaos import editors
from tests.chaos.book import Book
from tests.chaos.editors import save, text_of
from tests.chaos.fleet import Fleet, Place

SAFE: Final = ("MEMORY.md", "memory/2026-11-21.md", "memory/kept.md", "memory/windows.md", "memory/marked.md")
"""Nobody throws anything away here."""
WILD: Final = (
    *("memory/notes.md", "memory/Notes.md", "memory/deep/er/plan.md", "memory/table.md", "memory/dir/a.md"),
    *(unicodedata.normalize(form, "memory/café.md") for form in ("NFC", "NFD")),
)
ENDS: Final = {"memory/windows.md": "\r\n"}
BEGINS: Final = {"memory/marked.md": "\ufeff"}
FOLDERS: Final = ("memory/dir", "memory/moved")
DAY_S: Final = 86_400
JUMPS_S: Final = [-2 * DAY_S, -3600, -5, 0, 3600, 2 * DAY_S]
"""By how much a clock can be off, as after a wrong battery, a wrong zone, and a network time that came late."""
LARGE: Final = "a line of the large file, which is here to be long enough for the four megabytes\n"
LARGE_LINES: Final = (4 * 2**20 - 4096) // len(LARGE)
DROPS: Final = [0, 10, 300, 3_000, 30_000, 300_000]

ADDING: Final = ("append", "append", "prepend", "insert", "store", "store", "store")
THROWING: Final = (
    *("replace", "line", "line", "delete", "rename", "rename-folder", "swap", "empty", "store", "store-replace"),
    *("append", "touch", "checkout", "other-case"),
)
TROUBLE: Final = (
    *("cut", "mend", "mend", "drop", "drop", "delay", "hold", "kill-proxy", "end-proxy", "start-proxy", "start-proxy"),
    *("freeze-proxy", "kill-daemon", "start-daemon", "start-daemon", "freeze-daemon", "jump", "jump-daemon"),
    *("start-second", "end-second", "kill-second"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: `what` to machine number `who`, with the file `path`, saved so; `other` and `amount` as it needs."""

    what: str
    who: int = 0
    path: str = SAFE[0]
    other: str = SAFE[0]
    amount: int = 0
    how: str = editors.HOW[0]


@dataclass(frozen=True, slots=True)
class Scene:
    """What happens at once: the steps of each machine, and the trouble that they have."""

    machines: list[list[Step]]
    trouble: list[Step]


def _step(kinds: tuple[str, ...], who: st.SearchStrategy[int], paths: tuple[str, ...]) -> st.SearchStrategy[Step]:
    path = st.sampled_from(paths)
    return st.builds(Step, st.sampled_from(kinds), who, path, path, st.integers(0, 5), st.sampled_from(editors.HOW))


def steps(machines: int, *, least: int = 4, most: int = 14) -> st.SearchStrategy[list[Step]]:
    """Schedules for so many machines, of `least` to `most` steps, one after the other.

    Edits and stores are the most frequent, since the rest only matters in between them.
    """
    who = st.integers(0, machines - 1)
    edit = _step(ADDING, who, SAFE) | _step(THROWING, who, WILD) | _step(("pause",), who, SAFE)
    slow = {"hold", "freeze-proxy", "freeze-daemon"}  # nobody would go on meanwhile
    trouble = _step(tuple(kind for kind in TROUBLE if kind not in slow), who, SAFE)
    return st.lists(edit | trouble, min_size=least, max_size=most)


def scenes(machines: int, *, most: int = 8) -> st.SearchStrategy[Scene]:
    """At most so many steps of each machine, all of them at once."""
    one = st.just(0)
    edits = st.lists(_step(ADDING, one, SAFE) | _step(THROWING, one, WILD), min_size=2, max_size=most)
    trouble = st.lists(_step(TROUBLE, st.integers(0, machines - 1), SAFE), max_size=most)
    return st.builds(Scene, st.tuples(*[edits] * machines).map(_numbered), trouble)


def _numbered(machines: tuple[list[Step], ...]) -> list[list[Step]]:
    return [[replace(step, who=who) for step in each] for who, each in enumerate(machines)]


def perform_at_once(scene: Scene, fleet: Fleet, book: Book) -> None:
    """Carry out the steps of all machines, and their trouble, each in a thread."""

    def run(steps: list[Step], pause_s: float) -> None:
        for step in steps:
            perform(step, fleet, book)
            time.sleep(pause_s * step.amount)

    with ThreadPoolExecutor(len(scene.machines) + 1) as threads:
        running = [threads.submit(run, steps, 0.03) for steps in scene.machines]
        running.append(threads.submit(run, scene.trouble, 0.1))
    for one in running:
        one.result()


def perform(step: Step, fleet: Fleet, book: Book) -> None:
    """Carry a step out. Where it makes no sense (a file that is not there) nothing happens."""
    place = fleet.places[step.who]
    of_programs: dict[str, Callable[[], object]] = {
        "pause": lambda: time.sleep(0.1 * step.amount),
        "cut": place.cable.cut,
        "mend": place.cable.mend,
        "drop": lambda: place.cable.drop_after(DROPS[step.amount]),
        "delay": lambda: setattr(place.cable, "delay_s", 0.06 * step.amount),
        "hold": lambda: _held(place, 0.3 * step.amount),
        "kill-proxy": place.kill,
        "end-proxy": place.end,
        "start-proxy": place.start,
        "freeze-proxy": lambda: place.freeze(0.2 * step.amount),
        "start-second": place.start_second,
        "end-second": place.end_second,
        "kill-second": lambda: place.end_second(is_killed=True),
        "kill-daemon": fleet.kill_daemon,
        "start-daemon": fleet.start_daemon,
        "freeze-daemon": lambda: fleet.freeze_daemon(0.3 * step.amount),
        "jump": lambda: place.clock and place.clock.jump(JUMPS_S[step.amount]),
        "jump-daemon": lambda: fleet.clock and fleet.clock.jump(JUMPS_S[step.amount]),
        "store": lambda: _store(step, place, book, "append"),
        "store-replace": lambda: _store(step, place, book, "replace"),
    }
    of_programs.get(step.what, partial(_by_hand, step, place, book))()


def _held(place: Place, seconds: float) -> None:
    place.cable.hold()
    time.sleep(seconds)
    place.cable.mend()


def _store(step: Step, place: Place, book: Book, mode: str) -> None:
    path = unicodedata.normalize("NFC", step.path)
    mark = book.new(path)
    if place.store(path, f"- told {mark}", mode, is_second=bool(step.amount % 2)):
        book.keep(mark)


def _by_hand(step: Step, place: Place, book: Book) -> None:
    root = place.machine.project
    file = root / step.path
    end, begin = ENDS.get(step.path, "\n"), BEGINS.get(step.path, "")
    how = step.how if step.path not in SAFE or step.how in ("by rename", "in place", "same time") else "by rename"

    def mark() -> str:
        return book.new(step.path)

    def insert(text: str) -> str:
        lines = text.splitlines(keepends=True)
        lines.insert(1 + step.amount % (len(lines) or 1), f"- between {mark()}{end}")
        return "".join(lines)

    def line(text: str) -> str:
        lines = text.splitlines(keepends=True) or [f"status: none{end}"]
        lines[len(lines) // 2] = f"status: {mark()} of {place.machine.name}{end}"
        return "".join(lines)

    match step.what:
        case "append":
            save(file, lambda text: _whole(text or begin, end) + f"- noted {mark()}{end}", how, book)
        case "prepend":
            save(file, lambda text: f"{begin}- first {mark()}{end}" + text.removeprefix(begin), how, book)
        case "insert" if text_of(file):
            save(file, lambda text: insert(_whole(text, end)), how, book)
        case "line":
            save(file, line, how, book)
        case "replace":
            save(file, lambda _: f"# Anew{end}{end}- only {mark()}{end}", how, book)
        case "empty":
            save(file, lambda _: "", how, book)
        case "delete":
            editors.delete(file, book)
        case "rename":
            editors.rename(file, root / step.other, book)
        case "other-case":
            editors.rename(root / "memory/notes.md", root / "memory/Notes.md", book)
        case "rename-folder":
            editors.rename(root / FOLDERS[step.amount % 2], root / FOLDERS[1 - step.amount % 2], book)
        case "swap":
            editors.swap(file, step.amount, book)
        case "checkout":
            _checkout(step, place, book)
        case "touch" if file.is_file():
            then = time.time() + (step.amount - 2) * 30 * DAY_S
            with suppress(OSError):
                os.utime(file, (then, then))


def _whole(text: str, end: str) -> str:
    return text if not text or text.endswith("\n") or text == "\ufeff" else text + end


def _checkout(step: Step, place: Place, book: Book) -> None:
    """Many files at once, or a folder of many that goes; at times one as large as a file may be."""
    folder = place.machine.project / "memory/many"
    match step.amount:
        case 0:
            for file in sorted(folder.glob("*.md")):
                editors.delete(file, book)
            with suppress(OSError):
                folder.rmdir()
        case 1 if step.how == "slowly":
            large = folder.with_name("large.md")
            save(large, lambda _: f"- large {book.new('memory/large.md')}\n" + LARGE * LARGE_LINES, "in place", book)
        case _:
            for number in range((0, 20, 20, 40, 60, 120)[step.amount]):
                path = f"memory/many/{number}.md"
                save(
                    place.machine.project / path,
                    lambda _, path=path: f"- many {book.new(path)}\n",  # type: ignore[misc]
                    "in place",
                    book,
                )
