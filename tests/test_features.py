"""Each item of docs/features.md names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ITEM = re.compile(r"(?s).{8,}:\s+`(tests/[\w/]+\.py)::(\w+)`")


def test_every_feature_is_shown_by_a_test() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    items = [each.partition("\n\n")[0].strip() for each in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]
    assert len(items) > 80
    for item in items:
        named = ITEM.fullmatch(item)
        assert named, item
        tree = ast.parse((ROOT / named[1]).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert named[2] in functions, item
