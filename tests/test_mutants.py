"""The list of faults fits the code: each can be made, and each names tests that are there. Whether they notice it is `make mutants`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from mutants.__main__ import answer, asking
from mutants.mutant import ROOT, Mutant, mutants


def test_there_are_enough_of_them_and_none_twice() -> None:
    listed = mutants()
    assert len(listed) >= 60
    made = {(one.within, one.kind, one.marks, one.becomes) for one in listed}
    assert len(made) == len({one.loses for one in listed}) == len(listed)


def written(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.loses)
def test_a_fault_can_be_made(mutant: Mutant) -> None:
    if mutant.path.suffix == ".py":
        before, after = mutant.definition, mutant.changed(mutant.definition)
        assert ast.dump(ast.parse(written(after))) != ast.dump(ast.parse(written(before)))
    else:
        assert mutant.made() != mutant.path.read_text(encoding="utf-8")
    assert mutant.unknown() == []
    assert mutant.tests
    assert [name for name in mutant.tests if not (ROOT / name).exists()] == []


SOURCE = """
def taken(code, kept):
    if code is None or not fits(code):
        raise RefusalError("no such code")
    kept.note(code, at=now())
    return [each for each in kept if each.is_whole and each.code == code]
"""
RENAMED = """
def taken(
    word, books
):
    books.note(word, at=now())
    if word is None or not fits(word): raise RefusalError("no such code")
    return [one for one in books if one.is_whole and one.code == word]
"""


@pytest.mark.parametrize(
    ("kind", "marks", "becomes", "gone", "come"),
    [
        ("condition", "fits", "False", "{0} is None or not fits({0})", "False"),
        ("condition", "RefusalError", "not $1", "{0} is None or not fits({0})", "not (not fits({0}))"),
        ("operand", "fits", None, " or not fits({0})", ""),
        ("operand", "is_whole", None, "{2}.is_whole and ", ""),
        ("comparison", "code", "$1 != $0", "{2}.code == {0}", "{0} != {2}.code"),
        ("statement", "note", None, "    {1}.note({0}, at=now())\n", ""),
        ("argument", "at", None, ", at=now()", ""),
        ("argument", "at", "0", "at=now()", "at=0"),
        ("call", "now", "$0", "now()", "now"),
        ("text", "no such", "any", "no such code", "any code"),
        ("like", "_1.note(_2, at=now())", "_1.note(_1, at=now())", "note({0},", "note({1},"),
        ("like", "_1.note(_2, at=now())", None, "    {1}.note({0}, at=now())\n", ""),
    ],
)
@pytest.mark.parametrize(
    ("source", "names"),
    [(SOURCE, ("code", "kept", "each")), (RENAMED, ("word", "books", "one"))],
    ids=["it", "renamed"],
)
def test_a_place_is_found_whatever_its_variables_and_lines_are(
    source: str, names: tuple[str, ...], kind: str, marks: str, becomes: str | None, gone: str, come: str
) -> None:
    root = ast.parse(source).body[0]
    whole, made = written(root), written(Mutant("taken", "", kind, marks, becomes, ()).changed(root))
    assert gone.format(*names) in whole
    assert made == written(ast.parse(whole.replace(gone.format(*names), come.format(*names))))
    assert written(root) == whole


@pytest.mark.parametrize(
    ("kind", "marks"),
    [("call", "kept"), ("operand", "None"), ("element", "code"), ("like", "_1.each"), ("text", "no such answer")],
)
def test_a_place_that_is_nowhere_or_twice_is_said(kind: str, marks: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} = "):
        Mutant("taken", "", kind, marks, None, ()).changed(ast.parse(SOURCE + "\ntaken(1, 2)").body[0])


@pytest.mark.parametrize(
    ("program", "is_answered"),
    [
        ("input(); print(1, flush=True); input()", 1),
        ("input()", None),
        ("import os; os._exit(1)", None),
        ("import time; input(); time.sleep(600)", None),
    ],
)
def test_a_process_that_gives_no_answer_is_ended(tmp_path: Path, program: str, is_answered: int | None) -> None:
    """It has died, before the question or after it, or hangs; the runner waits for its deadline and no longer."""
    asked = asking(tmp_path, [sys.executable, "-c", program])
    hangs = "sleep" in program
    assert answer(asked, {"arguments": []}, 0.3 if hangs else 60.0) == is_answered
    assert (asked.poll() is None) == (is_answered is not None)
    if is_answered is not None:
        asked.kill()
        asked.communicate()
