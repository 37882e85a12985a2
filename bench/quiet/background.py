"""What stands beside a memory as it grows: daily logs of three made-up teams, and texts that this machine has.

Half of the pieces are logs, half of them in sections by the hour and half in lists; the other half is what installed packages say of
themselves, docstrings of Python's library, manual pages and changelogs. The order is fixed, so a larger background holds each smaller
one. The modules that the side kept aside reads (`measure.MODULES`) are in none of it.
"""

from __future__ import annotations

import gzip
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import cache
from itertools import islice
from pathlib import Path

from bench.quiet.measure import MODULES, SIZES
from bench.quiet.questions import HERE, SEED
from bench.texts import documentation
from confide_daemon.config import ChunkSettings
from confide_daemon.retrieval.chunker import cut

OTHER_PROJECT = 5000
FIRST_DAY = date(2019, 11, 1)
LINES_A_DAY = 5
PARAGRAPHS = 12  # of a document, at most
# Of a paragraph, in words.
SHORTEST, LONGEST = 6, 60
WORDS_A_PIECE = 22
MANUALS = Path("/usr/share/man")
CHANGES = Path("/usr/share/doc")
TEAMS = ("lines.txt", "lines-lab.txt", "lines-firmware.txt")

Document = tuple[str, str]  # path, text


def forms(name: str) -> tuple[list[str], dict[str, list[str]]]:
    """The forms of a team's lines, and the words for each name in braces."""
    text, _, lists = (HERE / "year" / name).read_text(encoding="utf-8").partition("\n\n")
    words: dict[str, list[str]] = {}
    for line in lists.splitlines():
        if named := re.fullmatch(r"\[(\w+)\]", line):
            some = words.setdefault(named[1], [])
        elif line:
            some.append(line)
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")], words


def logs(name: str, seed: int) -> Iterator[Document]:
    """The days of one team, without end."""
    lines, words = forms(name)
    chance = random.Random(f"{seed} {name}")
    team = name.removesuffix(".txt")
    number = 0
    while True:
        day = (FIRST_DAY + timedelta(number)).isoformat()
        said = [
            re.sub(r"\{(\w+)\}", lambda named: chance.choice(words[named[1]]), form)
            for form in chance.sample(lines, LINES_A_DAY)
        ]
        said = [line[:1].upper() + line[1:] for line in said]
        if number % 2:
            hours = sorted(chance.sample(range(8, 19), LINES_A_DAY))
            text = "\n\n".join(
                f"## {hour:02}:{chance.randrange(60):02}\n{line}" for hour, line in zip(hours, said, strict=True)
            )
        else:
            text = "\n".join(f"- {line}" for line in said)
        yield f"memory/{team}/{day}.md", f"# {day}\n\n{text}\n"
        number += 1


def manual(text: str) -> str:
    """A manual page without its roff: its paragraphs, divided by empty lines."""
    text = re.sub(
        r"\\f\[?\w+\]?|\\[&|^/,]|\\s[-+]?\d", "", re.sub(r"(?m)^[.'](?:PP|TP|IP|sp|SH|SS|P|LP|HP).*$", "\n", text)
    )
    text = re.sub(r"\\\((?:em|en|hy)|\\-", "-", re.sub(r"\\\(.q|\\\*?[(\[]\w\w\]?", "'", text))
    return re.sub(r"(?m)^[.'].*$", "", re.sub(r"(?m)^\.(?:B|I|BR|IR|RB|BI|RI) ", "", text))


def _read(path: Path, most: int) -> str:
    """The beginning of a file, compressed or not."""
    if path.suffix != ".gz":
        return path.read_text(encoding="utf-8", errors="replace")[:most]
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read(most)


@cache
def texts() -> list[list[tuple[str, str]]]:
    """(title, text) by kind."""
    chance = random.Random(SEED)
    packages = []
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).glob("*.dist-info/METADATA")):
        _, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n\n")
        packages.append(
            (path.parent.name.split("-")[0], re.sub(r"\[!?\[.*?\]\(.*?\)\S*|https?://\S+|<[^>]+>", "", text))
        )
    modules = [(name, text) for name, text in documentation() if name.split("/")[0] not in MODULES]
    pages = sorted(path for path in MANUALS.glob("man[1578]/*.gz") if not path.name.startswith("gcloud"))
    pages = chance.sample(pages, min(700, len(pages)))
    manuals = [(path.name.split(".")[0], manual(_read(path, 60_000))) for path in pages]
    logs_of_changes = sorted(CHANGES.glob("*/changelog*.gz"))
    changes = [
        (path.parent.name, re.sub(r"(?m)^\s*[*-] ", "\n", _read(path, 12_000)))
        for path in chance.sample(logs_of_changes, min(250, len(logs_of_changes)))
    ]
    return [packages, modules, manuals, changes]


def documents(seed: int) -> Iterator[Document]:
    """Paragraphs of all kinds by turns, some of one text in a file, until none are left."""
    chance = random.Random(seed)
    kinds = []
    for number, kind in enumerate(texts()):
        found = []
        for title, text in kind:
            parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
            parts = [part for part in parts if SHORTEST <= len(part.split()) <= LONGEST and not part.startswith("--")]
            for start in range(0, len(parts), PARAGRAPHS):
                some = parts[start : start + PARAGRAPHS]
                path = f"memory/texts{number}/{title.replace('/', '-')}-{len(found)}.md"
                found.append((path, f"# {title}\n\n" + "\n\n".join(some) + "\n"))
        chance.shuffle(found)
        kinds.append(iter(found))
    while kinds:
        for some in list(kinds):
            document = next(some, None)
            if document is None:
                kinds.remove(some)
            else:
                yield document


def pieces_of(document: Document) -> int:
    """About how many pieces a document is cut into; cutting all takes a minute."""
    lines = [line for line in document[1].splitlines() if line and not line.startswith("#")]
    return max(len(lines) if "/lines" in document[0] else 1, len(document[1].split()) // WORDS_A_PIECE)


def background(pieces: int, seed: int = SEED) -> Iterator[tuple[int, Document]]:
    """Documents of so many pieces in all, half of them logs, each with the number of pieces up to its end."""
    chance = random.Random(seed)
    teams = [logs(name, seed) for name in TEAMS]
    texts = documents(seed)
    counts = [0, 0]  # of logs, of texts
    while sum(counts) < pieces:
        is_log = counts[0] <= counts[1]
        document = None if is_log else next(texts, None)
        document = document or next(chance.choice(teams))
        counts[0 if is_log else 1] += pieces_of(document)
        yield sum(counts), document


def other_project(pieces: int = OTHER_PROJECT) -> Iterator[Document]:
    """A vault that is not asked: the texts that no background reaches."""
    reached = {path for _, (path, _) in background(SIZES[-1])}
    total = 0
    for document in documents(SEED + 1):
        if total >= pieces:
            return
        if document[0] not in reached:
            total += pieces_of(document)
            yield document


def texts_of(found: Iterable[Document], most: int) -> Iterator[str]:
    """The texts of the first pieces, as they are embedded."""
    pieces = (piece.text for _, text in found for piece in cut(text, ChunkSettings.parse("small")))
    yield from islice(pieces, most)
