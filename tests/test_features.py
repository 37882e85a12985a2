"""Each row of docs/features.md names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| [1-5al, ]+ .+ \| .+ \| `(tests/[\w/]+\.py)::(\w+)` \|$")


def test_every_feature_is_shown_by_a_test() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 30
    for row in rows:
        named = ROW.match(row)
        assert named, row
        tree = ast.parse((ROOT / named[1]).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert named[2] in functions, row
