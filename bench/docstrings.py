"""Draw docstrings of public names at random, for a reader who grades them (CONTRIBUTING.md, "Words").

`python -m bench.docstrings` prints a hundred with their names and signatures and without any code: who
grades them must not have it. A: plain English. B: understood. C: only with the code open. D: not at all.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("crypto", "memory", "proxy", "daemon", "addons")
COUNT = 100
SEED = 41

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(node: Documented, name: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name, with its signature, and the docstring of each public name in a module."""
    text = ast.get_docstring(node)
    if text:
        yield name, inspect.cleandoc(text)
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        signature = ""
        if not isinstance(child, ast.ClassDef):
            result = f" -> {ast.unparse(child.returns)}" if child.returns else ""
            signature = f"({ast.unparse(child.args)}){result}"
        yield from documented(child, f"{name}.{child.name}{signature}")


def draw(count: int, seed: int) -> list[tuple[str, str]]:
    """Draw docstrings of public names of the product, the same ones for the same tree and seed."""
    every = [
        each
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for each in documented(ast.parse(path.read_text("utf-8")), path.relative_to(ROOT).with_suffix("").as_posix())
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.docstrings", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    for number, (name, text) in enumerate(draw(options.count, options.seed), 1):
        print(f"{number}. {name}\n{text}\n")


if __name__ == "__main__":
    main()
