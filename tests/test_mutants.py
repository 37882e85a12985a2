"""The list of faults fits the code: each can be made, and each names tests that are there. Whether they notice it is `make mutants`."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest
from mutants.__main__ import answer, asking
from mutants.mutant import ROOT, Mutant, mutants


def test_there_are_enough_of_them_and_none_twice() -> None:
    listed = mutants()
    assert len(listed) >= 60
    assert len({(one.file, one.old, one.new) for one in listed}) == len({one.loses for one in listed}) == len(listed)


@functools.cache
def structure(file: str) -> str:
    """What a module says, without its comments."""
    return ast.dump(ast.parse((ROOT / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.loses)
def test_a_fault_can_be_made(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    made = mutant.applied_to(text)
    assert ast.dump(ast.parse(made)) != structure(mutant.file)
    assert mutant.tests
    assert [name for name in mutant.tests if not (ROOT / name).exists()] == []


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
