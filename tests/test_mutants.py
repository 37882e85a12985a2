"""The list of faults fits the code: each can be made, and each names tests that are there. Whether they notice it is `make mutants`."""

from __future__ import annotations

import ast

import pytest
from mutants.mutant import ROOT, Mutant, mutants


def test_there_are_enough_of_them_and_none_twice() -> None:
    listed = mutants()
    assert len(listed) >= 60
    assert len({(one.file, one.old, one.new) for one in listed}) == len({one.loses for one in listed}) == len(listed)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.loses)
def test_a_fault_can_be_made(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    made = mutant.applied_to(text)
    assert ast.dump(ast.parse(made)) != ast.dump(ast.parse(text))
    assert mutant.tests
    assert [name for name in mutant.tests if not (ROOT / name).exists()] == []
