"""Places in a syntax tree, told by what they are and by what they mention, which a renamed variable or a moved line leaves alone.

A *place* is the way from a definition down to a node: the names of fields, and the numbers in lists. A *mark* is what a node mentions
that is no variable of its function: an attribute, a called name, the name of an argument, a constant as Python writes it.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("crypto", "memory", "proxy", "daemon", "addons")

KINDS: Final = (
    "condition",
    "operand",
    "comparison",
    "argument",
    "element",
    "value",
    "call",
    "statement",
    "block",
    "handler",
    "expression",
)
"""What a place is of: see README.md."""

Place = tuple[tuple[str, int | None], ...]

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINED: Final = re.compile(r"^[ ]*(?:async +def|def|class) +(\w+)|^[ ]*(\w+)(?: *:[^=\n]+)? *= ", re.MULTILINE)
_WORD: Final = re.compile(r"\w{3,}")
_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)
_CHOICES: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try)
_VALUES: Final = (
    *(ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Yield, ast.Await, ast.Lambda),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.Raise, ast.ListComp, ast.SetComp, ast.GeneratorExp),
    *(ast.Starred, ast.DictComp),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One node of a definition.

    Attributes:
        own: the marks of the node.
        around: those of what a condition guards.
    """

    place: Place
    kinds: frozenset[str]
    own: frozenset[str]
    around: frozenset[str]


# -- definitions ------------------------------------------------------------------------------------------------------


@functools.cache
def _names() -> dict[str, list[Path]]:
    """In which files each name is defined, as far as a line shows it."""
    found: dict[str, list[Path]] = {}
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for name in {one or other for one, other in _DEFINED.findall(file.read_text(encoding="utf-8"))}:
                found.setdefault(name, []).append(file)
    return found


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def module_name(file: Path) -> str:
    """The dotted name that it is imported by."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def defined(node: ast.AST) -> str | None:
    """The name that a statement gives to something."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return node.name
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    return target.id if isinstance(target, ast.Name) else None


@functools.cache
def definitions(file: Path) -> dict[str, Place]:
    """Every function, class and constant of a module by its dotted name, the module's included. The first of two that have one name."""
    found: dict[str, Place] = {}

    def walk(node: ast.AST, place: Place, name: str, is_in_function: bool) -> None:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and field in ("body", "orelse", "handlers", "finalbody"):
                for number, each in enumerate(value):
                    inner, below = (*place, (field, number)), defined(each)
                    is_scope = isinstance(each, (*_FUNCTIONS, ast.ClassDef))
                    if below is not None and (is_scope or not is_in_function):
                        found.setdefault(f"{name}.{below}", inner)
                    if is_scope:
                        walk(each, inner, f"{name}.{below}", isinstance(each, _FUNCTIONS))
                    elif not isinstance(each, ast.expr):
                        walk(each, inner, name, is_in_function)

    walk(parsed(file), (), module_name(file), False)
    return found


def definition(name: str) -> tuple[Path, Place]:
    """Where the one definition is whose dotted name ends like this. Raises ValueError: there is none, or more than one."""
    last, found = name.rsplit(".", 1)[-1], []
    for file in _names().get(last, []):
        found += [
            (file, place) for whole, place in definitions(file).items() if whole == name or whole.endswith(f".{name}")
        ]
    if len(found) != 1:
        where = ", ".join(str(file.relative_to(ROOT)) for file, _ in found)
        raise ValueError(f"{name} is defined {len(found)} times{': ' if where else ''}{where}")
    return found[0]


# -- nodes of a definition ---------------------------------------------------------------------------------------------


def at(node: ast.AST, place: Place) -> ast.AST:
    """What stands at a place."""
    for field, number in place:
        value = getattr(node, field)
        node = value if number is None else value[number]
    return node


def variables(node: ast.AST) -> frozenset[str]:
    """The names that a function's own code gives: its parameters, and what it assigns. None of a class or of a module."""
    if not isinstance(node, _FUNCTIONS):
        return frozenset()
    found = {"self", "cls"}
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, (ast.Store, ast.Del)):
            found.add(each.id)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            found.add(each.name)
    return frozenset(found)


def bound(module: ast.Module, place: Place) -> frozenset[str]:
    """The names that code at a place may use: the module's own, and those of the outermost definition around it."""

    def given(node: ast.AST, *, is_deep: bool) -> Iterator[str]:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                yield each.name
            elif isinstance(each, ast.alias):
                yield (each.asname or each.name).split(".")[0]
            elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
                yield each.id
            elif isinstance(each, ast.arg):
                yield each.arg
            elif isinstance(each, ast.ExceptHandler) and each.name:
                yield each.name
            if is_deep or not isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                yield from given(each, is_deep=is_deep)

    around = given(at(module, place[:1]), is_deep=True) if place else ()
    return frozenset((*given(module, is_deep=False), *around))


def _marks(node: ast.AST, local: frozenset[str]) -> set[str]:
    """What this node itself mentions: one mark, or the words of a text."""
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Name):
        return set() if node.id in local else {node.id}
    if isinstance(node, ast.keyword):
        return {node.arg} if node.arg else set()
    if isinstance(node, ast.Constant) and not (node.value is None or isinstance(node.value, bool)):
        written = repr(node.value)
        return set(_WORD.findall(node.value)) if isinstance(node.value, str) and " " in written else {written}
    return set()


def _kinds(node: ast.AST, parent: ast.AST, field: str) -> frozenset[str]:
    found = set()
    if isinstance(node, ast.stmt):
        found.add("block" if isinstance(node, _BLOCKS) else "statement")
    elif isinstance(node, ast.ExceptHandler):
        found.add("handler")
    elif isinstance(node, ast.keyword):
        found.add("argument")
    elif isinstance(node, ast.expr):
        found.add("expression")
        if field in ("test", "guard", "ifs"):
            found.add("condition")
        if isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.BinOp) and field in ("left", "right")):
            found.add("operand")
        if isinstance(parent, ast.Call) and field == "args":
            found.add("argument")
        if field == "elts" or (isinstance(parent, ast.Dict) and field == "values"):
            found.add("element")
        if isinstance(parent, _VALUES) and field in ("value", "body", "elt", "iter", "context_expr", "exc", "key"):
            found.add("value")
        if isinstance(node, ast.Call):
            found.add("call")
        if isinstance(node, ast.Compare):
            found.add("comparison")
    return frozenset(found)


def nodes(root: ast.AST) -> list[Found]:
    """All that a definition is made of, with its marks."""
    local, found = variables(root), []

    def marks_of(value: ast.AST | list[ast.AST]) -> frozenset[str]:
        each = value if isinstance(value, list) else [value]
        return frozenset(mark for one in each for node in ast.walk(one) for mark in _marks(node, local))

    def walk(node: ast.AST, parent: ast.AST, field: str, place: Place) -> frozenset[str]:
        own = _marks(node, local)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                for number, each in enumerate(value):
                    if isinstance(each, ast.AST):
                        own |= walk(each, node, name, (*place, (name, number)))
            elif isinstance(value, ast.AST):
                own |= walk(value, node, name, (*place, (name, None)))
        around: frozenset[str] = frozenset()
        if field == "test" and isinstance(parent, (ast.If, ast.While)):
            around = marks_of([each for each in parent.body if not isinstance(each, (*_CHOICES, *_FUNCTIONS))])
        elif field == "test" and isinstance(parent, ast.IfExp):
            around = marks_of([parent.body, parent.orelse])
        elif field == "value" and isinstance(parent, ast.Assign):
            around = marks_of(list(parent.targets))
        elif field == "value" and isinstance(parent, (ast.AnnAssign, ast.AugAssign)):
            around = marks_of(parent.target)
        elif isinstance(parent, ast.Dict) and field == "values" and place[-1][1] is not None:
            key = parent.keys[place[-1][1]]
            around = marks_of(key) if key is not None else around
        if kinds := _kinds(node, parent, field):
            found.append(Found(place, kinds, frozenset(own), around))
        return frozenset(own)

    for name, value in ast.iter_fields(root):
        for number, each in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(each, ast.AST) and name not in ("decorator_list", "returns", "type_params"):
                walk(each, root, name, ((name, number if isinstance(value, list) else None),))
    return found


def matching(found: list[Found], kind: str, marks: frozenset[str]) -> list[Place]:
    """The innermost places of a kind that have all these marks."""
    places = [each.place for each in found if kind in each.kinds and marks <= (each.own | each.around)]
    return [one for one in places if not any(other != one and other[: len(one)] == one for other in places)]


# -- a changed tree, which shares with the old one what stays ---------------------------------------------------------------


def put(root: ast.AST, place: Place, new: list[ast.AST] | ast.AST | None) -> ast.AST:
    """The tree with something else at a place: a node, statements in a row, or nothing."""
    (field, number), below = place[0], place[1:]
    value = getattr(root, field)
    old = value if number is None else value[number]
    if below:
        made: list[ast.AST] | ast.AST | None = put(old, below, new)
    elif new is None and isinstance(root, ast.BinOp):
        return root.right if field == "left" else root.left
    else:
        made = new
    changed = copy.copy(root)
    if number is None:
        if made is None or isinstance(made, list):
            raise ValueError(f"{field} of {type(root).__name__} cannot be left out")
        setattr(changed, field, made)
        return changed
    some = made if isinstance(made, list) else [] if made is None else [made]
    listed = [*value[:number], *some, *value[number + 1 :]]
    if isinstance(root, ast.Dict) and made is None:
        changed.keys = [*root.keys[:number], *root.keys[number + 1 :]]  # type: ignore[attr-defined]
    if isinstance(root, ast.BoolOp) and len(listed) == 1:
        return cast("ast.AST", listed[0])
    if field == "body" and not listed:
        listed = [ast.Pass()]
    setattr(changed, field, listed)
    return changed


HOLE: Final = re.compile(r"\$(\d+(?:\.\d+)*)?")


def parts(node: ast.AST) -> list[ast.AST]:
    """The expressions right below a node, by which `$0`, `$1` count them; of a named argument, its value."""
    found: list[ast.AST] = []
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.keyword):
            found.append(each.value)
        elif isinstance(each, (ast.expr, ast.stmt, ast.comprehension, ast.withitem, ast.ExceptHandler)):
            found.append(each)
    return found


class _Filled(ast.NodeTransformer):
    def __init__(self, holes: dict[str, ast.AST]) -> None:
        self._holes = holes

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Name) and isinstance(held := self._holes.get(node.value.id), ast.stmt):
            return held
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        held = self._holes.get(node.id, node)
        if isinstance(node.ctx, ast.Store) and held is not node:
            held = copy.copy(held)
            held.ctx = ast.Store()  # type: ignore[attr-defined]
        return held


def filled(text: str, holes: dict[str, ast.AST]) -> list[ast.stmt]:
    """Code with nodes in place of some names."""
    return [_Filled(holes).visit(each) for each in ast.parse(text).body]


def becoming(text: str, old: ast.AST) -> ast.AST | list[ast.AST]:
    """The code that takes the place of a node: `$` stands for that node, `$0`, `$1.2` for parts of it."""
    holes: dict[str, ast.AST] = {}

    def hole(match: re.Match[str]) -> str:
        node, name = old, "_of_old_" + (match[1] or "").replace(".", "_")
        for number in match[1].split(".") if match[1] else ():
            node = parts(node)[int(number)]
        holes[name] = node
        return name

    made = filled(HOLE.sub(hole, text), holes)
    if isinstance(old, ast.stmt):
        return list(made)
    if isinstance(old, ast.ExceptHandler):
        return ast.ExceptHandler(old.type, old.name, made)
    if len(made) != 1 or not isinstance(made[0], ast.Expr):
        raise ValueError(f"{text!r} is no expression")
    return ast.keyword(old.arg, made[0].value) if isinstance(old, ast.keyword) else made[0].value


# -- snippets: code whose variables are _1, _2, … ---------------------------------------------------------------------------

VARIABLE: Final = re.compile(r"_\d+")


def _agrees(pattern: object, node: object, held: dict[str, str]) -> bool:
    """Whether they say the same; a variable of the pattern stands for one and the same name."""
    if isinstance(pattern, list):
        return (
            isinstance(node, list)
            and len(pattern) == len(node)
            and all(_agrees(one, other, held) for one, other in zip(pattern, node, strict=True))
        )
    if not isinstance(pattern, ast.AST):
        if isinstance(pattern, str) and isinstance(node, str) and VARIABLE.fullmatch(pattern):
            return held.setdefault(pattern, node) == node
        return pattern == node and type(pattern) is type(node)
    if type(pattern) is not type(node):
        return False
    return all(
        _agrees(value, getattr(node, name, None), held)
        for name, value in ast.iter_fields(pattern)
        if name not in ("type_comment", "kind")
    )


def alike(root: ast.AST, snippet: str) -> Iterator[tuple[Place, int, dict[str, str]]]:
    """Where a definition says what a snippet says: the place, how many statements, and what its variables are called there."""
    said = ast.parse(snippet).body
    wanted: list[ast.AST] = [said[0].value] if len(said) == 1 and isinstance(said[0], ast.Expr) else list(said)

    def walk(node: ast.AST, place: Place) -> Iterator[tuple[Place, int, dict[str, str]]]:
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                yield from found(value, (*place, (name, None)))
            elif isinstance(value, list):
                for number, each in enumerate(value):
                    if not isinstance(each, ast.AST):
                        continue
                    inner = (*place, (name, number))
                    if isinstance(wanted[0], ast.stmt):
                        called: dict[str, str] = {}
                        if _agrees(wanted, value[number : number + len(wanted)], called):
                            yield inner, len(wanted), called
                        yield from walk(each, inner)
                    else:
                        yield from found(each, inner)

    def found(node: ast.AST, place: Place) -> Iterator[tuple[Place, int, dict[str, str]]]:
        held: dict[str, str] = {}
        if isinstance(wanted[0], ast.expr) and _agrees(wanted[0], node, held):
            yield place, 1, held
        yield from walk(node, place)

    yield from walk(root, ())


def named(text: str, held: dict[str, str]) -> list[ast.stmt]:
    """Code in which the variables of a snippet have the names that they have in the definition."""
    return ast.parse(VARIABLE.sub(lambda match: held.get(match[0], match[0]), text)).body
