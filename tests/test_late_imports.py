"""What is imported late is there: the type checker sees neither a module's name in a string nor what is taken of it.

Read from the syntax alone: `importlib.import_module("…")` in all its forms, places of add-ons (`module:attribute`), names that
tests set by string, and programs that stand in strings.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = {path.parent.name: path.parent for path in ROOT.glob("*/confide_*/__init__.py")}
FOLDERS: Final = (
    *PACKAGES.values(),
    *(ROOT / name for name in ("bench", "demo", "fuzz", "mutants", "release", "tests")),
)
FILES: Final = sorted(file for folder in FOLDERS for file in folder.rglob("*.py"))
OURS: Final = re.compile(r"confide_\w+(\.\w+)*")
PLACE: Final = re.compile(r"(confide_\w+(?:\.\w+)*):([A-Za-z_]\w*)")
SETTERS: Final = {"delattr", "setattr", "patch"}
"""What changes an attribute in a test, by its dotted name or by its module and its name."""

Where = str
Taken = tuple[str, str, Where]
"""A module, what is taken of it, and the file and line that take it."""


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of ours."""
    package, *rest = module.split(".")
    if package not in PACKAGES:
        return None
    path = PACKAGES[package].joinpath(*rest)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that statements bind in their own scope."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.alias):
            yield child.asname or child.name.partition(".")[0]
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        else:
            yield from _bound(child)


@cache
def names_of(module: str) -> frozenset[str]:
    """What a module of ours has: its own names, and the modules in it if it is a package."""
    file = file_of(module)
    assert file is not None, module
    below = {path.stem for path in file.parent.iterdir()} if file.name == "__init__.py" else set()
    return frozenset({*_bound(tree_of(file)), *below, "__name__", "__file__", "__doc__", "__path__"})


def is_there(dotted: str) -> bool:
    """Whether `module.name` or `module.Class.name` of ours leads somewhere; what a module has of others is not followed."""
    parts = dotted.split(".")
    end = next((end for end in range(len(parts), 0, -1) if file_of(".".join(parts[:end]))), 0)
    module, rest = ".".join(parts[:end]), parts[end:]
    if not end or not rest:
        return bool(end)
    if rest[0] not in names_of(module):
        return False
    file = file_of(module)
    assert file is not None
    found = [each for each in tree_of(file).body if isinstance(each, ast.ClassDef) and each.name == rest[0]]
    return not found or len(rest) == 1 or bool(found[0].bases) or rest[1] in set(_bound(found[0]))


def _is_loader(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", None)) == "import_module"


def _wrappers(tree: ast.Module) -> dict[str, str]:
    """The functions of a file that import a module by the end of its name, each with the beginning."""
    return {
        each.name: str(part.values[0].value)
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(each)
        if isinstance(call, ast.Call) and any(map(_is_loader, (call.func, *call.args)))
        for part in call.args
        if isinstance(part, ast.JoinedStr) and len(part.values) == 2 and isinstance(part.values[0], ast.Constant)
    }


def _loaded(node: ast.expr, wrappers: dict[str, str]) -> str:
    """The module of ours that an expression imports late; empty if it imports none."""
    call = node.value if isinstance(node, ast.Await) else node
    if not isinstance(call, ast.Call):
        return ""
    texts = [part.value if isinstance(part, ast.Constant) else None for part in call.args]
    for before, text in zip((call.func, *call.args), texts, strict=False):
        if isinstance(text, str) and _is_loader(before):
            return text if OURS.fullmatch(text) else ""
        if isinstance(text, str) and isinstance(before, ast.Name) and before.id in wrappers:
            return wrappers[before.id] + text
    return ""


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    yield ast.Module([each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)], [])


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value; those of `a, b = x, y` one by one."""
    if isinstance(node, ast.Assign):
        for target, value in product(node.targets, [node.value]):
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from zip(target.elts, value.elts, strict=True)
            else:
                yield target, value
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value


def late_modules(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The modules of ours that a file imports late, with their lines."""
    wrappers = _wrappers(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (module := _loaded(node, wrappers)):
            yield module, node.lineno


def late_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The dotted names that a file takes of modules of ours that it imports late, with their lines."""
    wrappers = _wrappers(tree)
    if not wrappers and not any(isinstance(node, ast.expr) and _is_loader(node) for node in ast.walk(tree)):
        return
    for scope in _scopes(tree):
        nodes = list(ast.walk(scope))
        modules: dict[str, str] = {}
        for target, value in (pair for node in nodes for pair in _pairs(node)):
            if isinstance(target, ast.Name) and (module := _loaded(value, wrappers)):
                modules[target.id] = module
        for node in nodes:
            if isinstance(node, ast.Attribute):
                held = modules.get(node.value.id) if isinstance(node.value, ast.Name) else _loaded(node.value, wrappers)
                if held:
                    yield f"{held}.{node.attr}", node.lineno


def places(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What strings such as `confide_learn.local.learner:beside` name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := PLACE.fullmatch(node.value)):
            yield ".".join(found.groups()), node.lineno


def _imports(tree: ast.Module) -> dict[str, str]:
    """The modules of ours that a file names, by the name that it has for them and gives to nothing else."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname: each.name for each in node.names if each.asname and file_of(each.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known = {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            found |= {name: module for name, module in known.items() if file_of(module)}
    others = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    others |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {name: module for name, module in found.items() if name not in others}


def set_by_name(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a test changes by its name: `setattr("module.name", …)` or `setattr(module, "name", …)`."""
    modules = _imports(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        if getattr(call.func, "attr", getattr(call.func, "id", None)) not in SETTERS:
            continue
        first, *more = call.args
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and OURS.fullmatch(first.value):
            yield first.value, call.lineno
        elif isinstance(first, ast.Name) and first.id in modules and more and isinstance(more[0], ast.Constant):
            yield f"{modules[first.id]}.{more[0].value}", call.lineno


def _programs(tree: ast.Module) -> Iterator[tuple[ast.Module, int]]:
    """The programs that stand in a file's strings, with their lines: what parses, and imports something of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "some" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if "import " not in text or "confide_" not in text:
            continue
        try:
            yield ast.parse(textwrap.dedent(text)), node.lineno
        except SyntaxError:
            continue  # a sentence, or a part of a program


def in_programs(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What programs in strings import of ours, and what they take of the modules that they import."""
    for program, line in _programs(tree):
        for node in ast.walk(program):
            if isinstance(node, ast.Import):
                yield from ((each.name, line) for each in node.names if OURS.fullmatch(each.name))
            elif isinstance(node, ast.ImportFrom) and node.module and OURS.fullmatch(node.module):
                yield from ((f"{node.module}.{each.name}", line) for each in node.names if each.name != "some")
        modules = _imports(program)
        for node in ast.walk(program):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                yield f"{modules[node.value.id]}.{node.attr}", line


FORMS: Final = (late_modules, late_names, places, set_by_name, in_programs)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_what_is_named_in_a_string_is_there(form) -> None:  # type: ignore[no-untyped-def]
    found = {
        f"{file.relative_to(ROOT)}:{line}: {dotted}"
        for file in FILES
        for dotted, line in form(tree_of(file))
        if dotted.partition(".")[0] in PACKAGES and not is_there(dotted)
    }
    assert found == set()


@pytest.mark.addons
def test_every_page_of_the_panel_is_there() -> None:
    """They are named by a module of the panel's own, without its package."""
    panel = ROOT / "addons" / "confide_panel"
    found = re.findall(
        r'^    \("[\w/]+", "(\w+):(\w+)", "[A-Z]+"\),$', (panel / "panel_app.py").read_text("utf-8"), re.MULTILINE
    )
    assert len(found) > 30
    assert [page for page in found if not is_there(f"confide_panel.pages.{page[0]}.{page[1]}")] == []


PROGRAM: Final = """
import asyncio, importlib
from confide_proxy.mcp import client as clients

async def _import_module(module):
    return await asyncio.to_thread(importlib.import_module, f"confide_proxy.{module}")

async def run(monkeypatch):
    seat = await asyncio.to_thread(importlib.import_module, "confide_proxy.hooks.server.seat")
    seat.Hooks, seat.Missing
    calls, other = (await _import_module("mcp.client"), await _import_module("mcp.nowhere"))
    calls.CommandClient, calls.missing
    importlib.import_module("confide_proxy.mcp.client").lacking
    monkeypatch.setattr("confide_proxy.mcp.client.CommandClient.nothing", 1)
    monkeypatch.setattr(clients, "absent", 1)
    run("from confide_proxy.mcp import tunnel; tunnel.Tunnel, tunnel.gone")
    return "confide_proxy.mcp.client:nobody"
"""


def test_what_is_missing_is_found_in_every_form() -> None:
    """A name of each form that does not exist is noticed, and the ones beside it that do exist are not."""
    tree = ast.parse(PROGRAM)
    found = {dotted for form in FORMS for dotted, _ in form(tree) if not is_there(dotted)}
    assert found == {
        "confide_proxy.hooks.server.seat.Missing",
        "confide_proxy.mcp.nowhere",
        "confide_proxy.mcp.client.missing",
        "confide_proxy.mcp.client.lacking",
        "confide_proxy.mcp.client.CommandClient.nothing",
        "confide_proxy.mcp.client.absent",
        "confide_proxy.mcp.tunnel.gone",
        "confide_proxy.mcp.client.nobody",
    }
