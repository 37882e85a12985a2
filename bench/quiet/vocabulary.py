"""Writes `general_words.txt`: for each stem the number of paragraphs of this machine's texts that have it.

python -m bench.quiet.vocabulary
"""

from __future__ import annotations

import random
import re
from collections import Counter

from bench.quiet.background import LONGEST, SHORTEST, texts
from bench.quiet.questions import SEED
from confide_daemon.retrieval.search import cohort
from confide_daemon.retrieval.search.scoring import stem_line

TEXTS, PARAGRAPHS = 220, 14  # of a kind, and of a text
LEAST = 3


def main() -> None:
    """Count the stems, which takes some seconds, and write the file."""
    chance = random.Random(SEED + 2)
    paragraphs: list[str] = []
    for kind in texts():
        for _, text in chance.sample(kind, min(len(kind), TEXTS)):
            parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
            parts = [part for part in parts if SHORTEST <= len(part.split()) <= LONGEST]
            paragraphs += chance.sample(parts, min(len(parts), PARAGRAPHS))
    counted = Counter(stem for text in paragraphs for stem in set(stem_line(text).split()))
    lines = [f"{stem} {count}" for stem, count in sorted(counted.items()) if count >= LEAST and not stem.isdecimal()]
    text = "\n".join([str(len(paragraphs)), *lines])
    (cohort.HERE / "general_words.txt").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
