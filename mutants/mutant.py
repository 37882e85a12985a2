"""The faults of `list.toml`, each addressed by a definition and a place in its syntax tree (README.md)."""

from __future__ import annotations

import ast
import builtins
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mutants.syntax import (
    HOLE,
    KINDS,
    ROOT,
    VARIABLE,
    Place,
    alike,
    at,
    becoming,
    bound,
    definition,
    matching,
    named,
    nodes,
    parsed,
    put,
)

__all__ = ["ROOT", "Mutant", "mutants"]

_FORMS: Final = (*KINDS, "like", "text")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        within: the end of the dotted name of a function, a class or a constant, which no other one has; or a file that is no Python.
        loses: what somebody loses by it.
        kind: of which kind the place is (`KINDS`), or "like": a snippet, or "text": a piece of a string.
        marks: what it mentions, or that snippet, or that piece.
        becomes: the code that takes its place; None where it is left out.
        tests: files or folders, of which one test has to fail.
    """

    within: str
    loses: str
    kind: str
    marks: str
    becomes: str | None
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file that it is made in. Raises ValueError: nothing is defined there, or more than one thing."""
        return ROOT / self.within if "/" in self.within else definition(self.within)[0]

    @property
    def file(self) -> str:
        """That file, below the root of the tree."""
        return str(self.path.relative_to(ROOT))

    def made(self) -> str:
        """That file's text with the fault. Raises ValueError: the code has changed, so that its place is nowhere, or in two places."""
        if "/" in self.within:
            text = self.path.read_text(encoding="utf-8")
            if text.count(self.marks) != 1:
                raise ValueError(f"{self.within} has {self.marks!r} {text.count(self.marks)} times")
            return text.replace(self.marks, self.becomes or "")
        file, place = definition(self.within)
        changed = put(parsed(file), place, self.changed(self.definition))
        return ast.unparse(ast.fix_missing_locations(changed)) + "\n"

    @property
    def definition(self) -> ast.AST:
        """What it is made in, as it is."""
        file, place = definition(self.within)
        return at(parsed(file), place)

    def unknown(self) -> list[str]:
        """The names in its new code that are none where it comes to stand: of a variable that was renamed, say."""
        if self.becomes is None or self.kind == "text":
            return []
        code = ast.parse(HOLE.sub("_0", self.becomes))
        used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name) and not VARIABLE.fullmatch(node.id)}
        used -= {"self", "cls", *dir(builtins), *bound(code, ())}
        file, place = definition(self.within)
        return sorted(used - bound(parsed(file), place)) if used else []

    def changed(self, root: ast.AST) -> ast.AST:
        """A definition with the fault. Raises ValueError, as `made` does."""
        if self.kind == "text":
            return self._with_other_text(root)
        if self.kind == "like":
            return self._with_other_snippet(root)
        place = self._one(matching(nodes(root), self.kind, frozenset(self.marks.split())))
        return put(root, place, becoming(self.becomes, at(root, place)) if self.becomes is not None else None)

    def _with_other_snippet(self, root: ast.AST) -> ast.AST:
        found = {place: (count, held) for place, count, held in alike(root, self.marks)}
        place = self._one(list(found))
        count, held = found[place]
        made = named(self.becomes, held) if self.becomes is not None else []
        if isinstance(at(root, place), ast.expr) and isinstance(at(root, place[:-1]), ast.Expr):
            place = place[:-1]
        if isinstance(at(root, place), ast.expr):
            return put(root, place, made[0].value if made and isinstance(made[0], ast.Expr) else None)
        field, first = place[-1]
        assert first is not None
        for number in range(first + count - 1, first, -1):
            root = put(root, (*place[:-1], (field, number)), None)
        return put(root, place, list(made) or None)

    def _with_other_text(self, root: ast.AST) -> ast.AST:
        found = list(_texts(root, self.marks))
        place = self._one(found)
        old = at(root, place)
        text = old.value if isinstance(old, ast.Constant) and isinstance(old.value, str) else ""
        if text.count(self.marks) != 1:
            raise ValueError(f"{self.within} has {self.marks!r} {text.count(self.marks)} times in a string")
        return put(root, place, ast.Constant(text.replace(self.marks, self.becomes or "")))

    def _one(self, places: list[Place]) -> Place:
        if len(places) != 1:
            raise ValueError(f"{self.within} has {len(places)} places of {self.kind} = {self.marks!r}")
        return places[0]


def _texts(node: ast.AST, piece: str, place: Place = ()) -> Iterator[Place]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and piece in node.value:
        yield place
    for name, value in ast.iter_fields(node):
        for number, each in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(each, ast.AST):
                yield from _texts(each, piece, (*place, (name, number if isinstance(value, list) else None)))


def of(entry: dict[str, Any]) -> Mutant:
    """The fault that a table of the list says. Raises ValueError: it names no kind of place, or two."""
    (kind,) = [name for name in _FORMS if name in entry]
    rest = set(entry) - {"in", "loses", "tests", "becomes", kind}
    if rest:
        raise ValueError(f"{entry['loses']}: nothing reads {', '.join(sorted(rest))}")
    return Mutant(entry["in"], entry["loses"], kind, entry[kind], entry.get("becomes"), tuple(entry["tests"]))


def mutants() -> list[Mutant]:
    """All of them, in the order of the list."""
    listed = tomllib.loads((Path(__file__).with_name("list.toml")).read_text(encoding="utf-8"))["mutant"]
    return [of(each) for each in listed]
