"""docs/troubleshooting.md has a row for every exit code and every class of error, and the sentences that stand in the programs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_crypto import errors

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
PACKAGES = sorted(file.parent for file in ROOT.glob("*/confide_*/errors.py"))
SHORTEST_HEAD = 12
"""Letters. What is shorter, such as `cannot`, tells nobody which message it is."""
LONGEST_HEAD = 40


def classes(package: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse((package / "errors.py").read_text("utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def marked() -> set[str]:
    """Name the classes of the page's comments, which readers do not see: `<!--ThisError,daemon.ThatError-->`.

    `daemon.` marks a class of the daemon whose name another package has too.
    """
    return {name for comment in re.findall(r"<!--(\S+?)-->", PAGE) for name in comment.split(",")}


def head(call: ast.Call) -> str | None:
    """The first part of the sentence that is always the same."""
    if not call.args:
        return None
    parts = [call.args[0]] if isinstance(call.args[0], ast.Constant) else getattr(call.args[0], "values", [])
    literals = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return next((each for each in literals if len(each.strip()) >= SHORTEST_HEAD), None)


def test_every_exit_code_has_a_heading_and_a_row_in_the_table_of_commands() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text("utf-8")
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")} - {errors.EXIT_OK} | {
        9,
        10,
        130,
    }
    headings = {
        int(each)
        for line in re.findall(r"^## Exit code .*$", PAGE, re.MULTILINE)
        for each in re.findall(r"\b\d+\b", line)
    }
    rows = {int(each) for each in re.findall(r"^\| (\d+) \|", commands, re.MULTILINE)}
    assert headings == codes
    assert codes <= rows


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_class_of_error_has_a_row(package: Path) -> None:
    """Whoever adds a class says what a person does about it."""
    missing = [node.name for node in classes(package) if not {node.name, f"daemon.{node.name}"} & marked()]
    assert not missing


def test_no_row_is_about_a_class_that_is_gone() -> None:
    known = {node.name for package in PACKAGES for node in classes(package)}
    assert {name.removeprefix("daemon.") for name in marked()} <= known


def test_the_sentences_of_the_classes_are_found_as_they_are_printed() -> None:
    """A person searches the page for what a command has said."""
    missing = []
    for package in PACKAGES:
        for node in classes(package):
            for call in ast.walk(node):
                is_root = (
                    isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
                )
                said = head(call) if is_root and isinstance(call, ast.Call) else None
                if said and said.strip(" :,'")[:LONGEST_HEAD] not in PAGE:
                    missing.append(f"{node.name}: {said}")
    missing += [sentence for sentence, _ in errors._DENIALS.values() if sentence not in PAGE]
    assert not missing
