"""How often the first hit is the right one when somebody asks for a symbol, an error code, a path, an id.

    python -m bench.identifiers [--model local|hashed|none] [--misses] [--json OUT]

The corpus is notes about this Python's standard library (its real symbols, signatures and docstrings) and a log of incidents, in which
every error code, path, version, flag, variable and id has siblings that differ by a digit or a word. 200 questions with a fixed seed:
the name as it stands, in the other spelling (`getLogger` as `get_logger`), by its beginning, or in a sentence.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import random
import re
import sysconfig
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.quality import embedder
from confide_daemon.embedding import LoadedModel
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

SEED = 11
QUESTIONS = 200
MODULES = 60
INCIDENTS = 240
LONGEST_NOTE = 320  # characters of a docstring
SENTENCES = ("where is {} used?", "what do we know about {}", "why did {} fail last time?", "notes on {} please")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the one line that answers it (counted from 1)."""

    kind: str
    text: str
    path: str
    line: int


def modules() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """(module path, [(symbol, signature, docstring)]) of the standard library, in a fixed order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py")):
        if "site-packages" in path.parts or "test" in path.parts or "idlelib" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        found = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                arguments = ast.unparse(node.args) if isinstance(node, ast.FunctionDef) else ""
                summary = " ".join(text.split("\n\n")[0].split())[:LONGEST_NOTE]
                found.append((node.name, f"{node.name}({arguments})"[:160], summary))
        if len(found) >= 8:
            yield str(path.relative_to(folder)), found[:40]


def corpus(chance: random.Random) -> tuple[dict[str, str], list[Asked]]:
    """The files, and more questions than are needed."""
    files: dict[str, list[str]] = {}
    places: dict[str, list[tuple[str, int]]] = {}
    for module, symbols in chance.sample(list(modules()), MODULES):
        path = f"memory/stdlib/{module.removesuffix('.py').replace('/', '-')}.md"
        lines = files[path] = [f"# {module}", ""]
        for symbol, signature, summary in symbols:
            lines.append(f"- `{signature}`: {summary}")
            places.setdefault(symbol, []).append((path, len(lines)))
    asked = list(_symbols(files, places))
    for number, (incident, names) in enumerate(_incidents(chance)):
        path = f"memory/2026-{1 + number // 20:02}-{1 + number % 20:02}.md" if number % 3 else "memory/incidents.md"
        lines = files.setdefault(path, [f"# {path.removeprefix('memory/').removesuffix('.md')}", ""])
        lines.append(incident)
        asked += [Asked(kind, name, path, len(lines)) for kind, name in names]
    return {path: "\n".join(lines) + "\n" for path, lines in files.items()}, asked


def _symbols(files: dict[str, list[str]], places: dict[str, list[tuple[str, int]]]) -> Iterator[Asked]:
    counts = Counter(word for lines in files.values() for line in lines for word in set(re.findall(r"\w+", line)))
    unique = sorted(name for name, where in places.items() if len(where) == 1 and counts[name] == 1 and len(name) > 7)
    for name in unique:
        ((path, line),) = places[name]
        if "_" in name.strip("_"):
            yield Asked("symbol", name, path, line)
            yield Asked(
                "other spelling", re.sub(r"_([a-z])", lambda found: found[1].upper(), name.strip("_")), path, line
            )
        elif re.search(r"[a-z][A-Z]", name):
            yield Asked("symbol", name, path, line)
            yield Asked("other spelling", re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower(), path, line)


def _incidents(chance: random.Random) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A line of a log, and what in it stands nowhere else."""
    parts = ("net", "auth", "cart", "billing", "search", "mail")
    files = ("pool", "session", "token", "retry", "handler", "queue", "cache_store", "user_service")
    for number in range(INCIDENTS):
        part, file = parts[number % len(parts)], files[number // len(parts) % len(files)]
        error = f"ERR_{part.upper()}_{100 + number}"
        place = f"src/{part}/{file}_{number // 48}.py"
        request = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        commit = f"{chance.getrandbits(160):040x}"
        version = f"v{2 + number // 100}.{number // 10 % 10}.{number % 10}"
        flag = f"--{part}-{file.replace('_', '-')}-{('limit', 'timeout', 'size', 'retries', 'off')[number // 48]}"
        variable = f"{part}_{file}_{('max', 'min', 'idle', 'ttl', 'url')[number // 48]}".upper()
        address = f"0x{chance.getrandbits(32):08X}"
        yield (
            f"- {version} of {part} failed with {error} in `{place}` at {address}: request {request}, commit {commit[:12]}; "
            f"we set {variable} and started it with `{flag}`",
            [
                ("error code", error),
                ("path", place),
                ("id", request),
                ("id", commit[:12]),
                ("beginning", request[:18]),
                ("beginning", commit[:8]),
                ("version", version),
                ("flag", flag),
                ("variable", variable),
                ("hex", address),
            ],
        )


def questions(chance: random.Random, asked: list[Asked]) -> list[Asked]:
    """As many of each kind as there are, a third of them in a sentence."""
    by_kind: dict[str, list[Asked]] = {}
    for one in asked:
        by_kind.setdefault(one.kind, []).append(one)
    each = QUESTIONS // len(by_kind)
    chosen = [one for kind in sorted(by_kind) for one in chance.sample(by_kind[kind], each)]
    rest = [one for one in by_kind["symbol"] if one not in chosen]
    chosen += chance.sample(rest, QUESTIONS - len(chosen))
    return [
        Asked(one.kind, chance.choice(SENTENCES).format(one.text) if number % 3 == 2 else one.text, one.path, one.line)
        for number, one in enumerate(chosen)
    ]


async def measure(handle: LoadedModel) -> dict[str, list[tuple[Asked, bool]]]:
    """For each kind the questions, and whether their first hit was right."""
    chance = random.Random(SEED)
    files, asked = corpus(chance)
    found: dict[str, list[tuple[Asked, bool]]] = {}
    with tempfile.TemporaryDirectory(prefix="confide-identifiers-") as folder:
        path, settings = Path(folder) / "space.db", IndexSettings()
        space = await Space.open(path, os.urandom(32), SpaceShared(settings, handle), space_id="bench")
        try:
            for name, text in files.items():
                await space.documents.put("bench", name, text, base=0, author="bench")
            if handle.state == "ready":
                await space.wait_indexed(timeout_s=3600)
            for one in questions(chance, asked):
                result = await space.index.searcher.search(SearchQuery(one.text))
                first = result.hits[0] if result.hits else None
                is_right = (
                    first is not None and first.path == one.path and first.start_line <= one.line <= first.end_line
                )
                found.setdefault(one.kind, []).append((one, is_right))
        finally:
            await space.close()
    return found


def main() -> None:
    """Index, ask, and print the share of right first hits of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["local", "hashed", "none"], default="local")
    parser.add_argument("--misses", action="store_true", help="show what was not found first")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    found = asyncio.run(measure(embedder(arguments.model)))
    every = [is_right for results in found.values() for _, is_right in results]
    figures = {kind: sum(is_right for _, is_right in results) / len(results) for kind, results in found.items()}
    for kind, share in sorted(figures.items()):
        print(f"{kind:16s} {len(found[kind]):4d} questions   hit@1 {100 * share:5.1f} %")
    print(f"{'all':16s} {len(every):4d} questions   hit@1 {100 * sum(every) / len(every):5.1f} %  (must 95, aim 99)")
    if arguments.misses:
        for results in found.values():
            for one, is_right in results:
                if not is_right:
                    print(f"missed: {one.text}  ({one.path}:{one.line})")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures | {"all": sum(every) / len(every)}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
