"""Count what the house is made of: lines, modules, wiring, untyped bodies, long functions.

It reads the source alone; radon counts complexity. How many functions a call runs through is counted
by `bench.modules_entered`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from radon.complexity import cc_visit

ROOT: Final = Path(__file__).parents[1]
CORE: Final = ("crypto", "memory", "proxy", "daemon")
MOST_LINES, MOST_COMPLEX, MOST_WIRING = 60, 25, 45
WIRING: Final = {
    "Daemon.__init__": "daemon/confide_daemon/server/server.py",
    "Space.open": "daemon/confide_daemon/spaces/space.py",
    "Space.__init__": "daemon/confide_daemon/spaces/space.py",
    "Session.__init__": "daemon/confide_daemon/server/session.py",
}
UNTYPED: Final = ("dict[str, Any]", "Mapping[str, Any]")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A source file of one of the packages."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How many lines it has, blank ones included."""
        return self.text.count("\n")


def modules(*folders: str) -> list[Module]:
    """All modules of the packages below these folders of the repository."""
    paths = sorted(path for folder in folders for path in ROOT.glob(f"{folder}/confide_*/**/*.py"))
    return [Module(path, text := path.read_text("utf-8"), ast.parse(text)) for path in paths]


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Each function of a module with its qualified name."""

    def below(node: ast.AST, owner: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield owner + child.name, child
                yield from below(child, f"{owner}{child.name}.")
            else:
                yield from below(child, f"{owner}{child.name}." if isinstance(child, ast.ClassDef) else owner)

    yield from below(module.tree, "")


def length(function: Function) -> int:
    """Lines from `def` to the last one."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def callables(of: list[Module]) -> tuple[int, int]:
    """Callables that constructors take, and the classes that take any."""
    counts = []
    for module in of:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                made = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
                taken = [each.annotation for init in made for each in (*init.args.args, *init.args.kwonlyargs)]
                counts.append(sum(each is not None and "Callable" in ast.unparse(each) for each in taken))
    return sum(counts), sum(map(bool, counts))


def imports(of: list[Module]) -> tuple[int, int]:
    """Imports within functions, and imports for types only."""
    late = types = 0
    for module in of:
        at_type_checking = [
            node
            for node in ast.walk(module.tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        for_types = {
            id(each)
            for node in at_type_checking
            for each in ast.walk(node)
            if isinstance(each, ast.Import | ast.ImportFrom)
        }
        inside = {
            id(each)
            for _, function in functions(module)
            for each in ast.walk(function)
            if isinstance(each, ast.Import | ast.ImportFrom)
        }
        types += len(for_types)
        late += len(inside - for_types)
    return late, types


def complex_functions(of: list[Module]) -> list[str]:
    """Functions of a cyclomatic complexity above the bound, with it."""
    return [
        f"{module.path.relative_to(ROOT)}: {block.fullname} {block.complexity}"
        for module in of
        for block in cc_visit(module.text)
        if block.letter != "C" and block.complexity > MOST_COMPLEX
    ]


def main() -> None:
    """Print each number beside its bound."""
    core, addons = modules(*CORE), modules("addons")
    whole = core + addons
    rows: list[tuple[str, str, str]] = [
        ("lines of the core", f"{sum(each.lines for each in core):,}", "69,000"),
        ("lines of add-ons", f"{sum(each.lines for each in addons):,}", "28,000"),
        ("modules of the core", str(len(core)), "400"),
    ]
    for name, path in WIRING.items():
        found = [
            length(each)
            for module in core
            if module.path == ROOT / path
            for at, each in functions(module)
            if at == name
        ]
        rows.append((f"lines of {name}", str(found[0]) if found else "-", str(MOST_WIRING)))
    taken, classes = callables(whole)
    late, types = imports(whole)
    untyped = sum(module.text.count(each) for module in whole for each in UNTYPED)
    long = [f"{at} {length(each)}" for module in whole for at, each in functions(module) if length(each) > MOST_LINES]
    rows += [
        ("callables handed to constructors", f"{taken} in {classes} classes", "70"),
        (" + ".join(UNTYPED), str(untyped), "400"),
        ("late imports + imports for types", f"{late} + {types} = {late + types}", "300"),
        (f"functions over {MOST_LINES} lines", f"{len(long)}  {', '.join(long)}", "0"),
        (f"functions of complexity over {MOST_COMPLEX}", str(len(too_complex := complex_functions(whole))), "0"),
    ]
    for what, value, most in rows:
        print(f"{what:38} {value:24} must: {most}")
    for each in too_complex:
        print(f"    {each}")
    for folder in sorted((ROOT / "addons").glob("confide_*")):
        own = [module for module in addons if module.path.is_relative_to(folder)]
        print(f"  {folder.name:36} {sum(each.lines for each in own):,} lines, {len(own)} modules")


if __name__ == "__main__":
    main()
