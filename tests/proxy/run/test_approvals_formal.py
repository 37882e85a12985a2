"""The model of `confide run` in crypto/formal/ remembers an approval by what the code remembers it by."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.support.crypto.model_terms import model, term

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.run.approvals import PlannedUse

TOKEN = Placeholder("npm-token", bytes(range(16)))


@pytest.mark.parametrize(
    ("kind", "program", "line"),
    [
        ("plain", "/opt/tool/npm-publish", ("npm-publish", "--dry-run")),
        ("interpreter", "/opt/tool/bash", ("bash", "-c", "npm publish")),
        ("interpreter", "/opt/tool/run", ("python3.11", "publish.py")),
    ],
)
def test_a_mark_is_the_models(kind: str, program: str, line: tuple[str, ...]) -> None:
    """Of a program its path, of an interpreter the whole line and its folder too; each behind a zero byte. None is on this disk."""
    text = model("mark_whole.pvl", "Mark").partition(f"{kind}(path) = p in hash(")[2]
    fields = term(f"({text}", "(").parts
    known = {"credential": str(TOKEN), "path": program, "arguments": "\0".join((*line, str(Path.cwd())))}
    expected = hashlib.sha256("\0".join(known[each.name] for each in fields).encode()).hexdigest()
    assert PlannedUse(program, line, [TOKEN], {}).marks() == {expected}
    assert Path(program).name
