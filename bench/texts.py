"""Real text that every machine with this Python has, and its vectors: the documentation in the standard library and in numpy.

The vectors are of the packaged model. They are made once and kept in the folder for temporary files (`confide-bench-...`), because
25,000 pieces take minutes; the name holds a hash of all texts, so other texts never meet them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import random
import re
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from confide_daemon.embedding.embedder import Vectors
from confide_daemon.embedding.local.minilm import load_minilm

SEED = 7
# Of a piece at most: 36 words in 48 tokens.
WORDS, CHARACTERS = 36, 200
PACKAGES = ("numpy", "pydantic", "mcp", "click", "cryptography", "pygments", "pytest", "_pytest", "hypothesis")


def documentation(*, packages: bool = False) -> Iterator[tuple[str, str]]:
    """(module, markdown) of the standard library's docstrings, then of some packages', in a fixed order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    yield from _docstrings(folder, [path for path in sorted(folder.rglob("*.py")) if "site-packages" not in path.parts])
    if packages:
        folder = Path(sysconfig.get_paths()["purelib"])
        yield from _docstrings(folder, [path for name in PACKAGES for path in sorted((folder / name).rglob("*.py"))])


def _docstrings(folder: Path, paths: list[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if {"test", "tests"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        sections = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                sections.append(f"## {getattr(node, 'name', path.stem)}\n\n{text}\n")
        if sections:
            yield str(path.relative_to(folder).with_suffix("")), "\n".join(sections)


def questions(texts: list[str], count: int) -> list[str]:
    """Sentences of the text cut to five to twelve words, spread over it."""
    chance = random.Random(SEED)
    sentences = [s for text in texts for s in re.split(r"(?<=[.])\s+", text) if 6 <= len(s.split()) <= 40]
    return [" ".join(s.split()[: chance.randint(5, 12)]) for s in chance.sample(sentences, count)]


def pieces(text: str) -> Iterator[str]:
    """About what the chunker makes of it. Not the chunker itself: its next version would ask for all vectors again."""
    held = ""
    for sentence in re.split(r"(?<=[.:])\s+|\n\s*\n", text):
        words = sentence.split()
        for start in range(0, len(words), WORDS):
            part = " ".join(words[start : start + WORDS])
            if held and len(held) + len(part) > CHARACTERS:
                yield held
                held = ""
            held = f"{held} {part}".strip()
    if held:
        yield held


def embedded(limit: int, *, asked: int) -> tuple[Vectors, Vectors]:
    """Real MiniLM vectors of unit length: of the first pieces (each text once, in the order of the documents), and of questions on them."""
    documents = [text for _, text in documentation(packages=True)]
    texts = list(dict.fromkeys(piece for text in documents for piece in pieces(text)))[:limit]
    texts += questions(documents, asked)
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"confide-bench-minilm-{digest}.npy"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.npy")
        np.save(part, load_minilm().embed_documents(texts))
        part.rename(path)
    vectors = np.load(path)
    return vectors[: len(texts) - asked], vectors[len(texts) - asked :]
