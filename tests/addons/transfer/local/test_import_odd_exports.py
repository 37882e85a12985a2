"""Exports in which any one value is another than it should be: what can be read is, and nothing but the one error comes of it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.imports import FIXTURES

from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import to_json
from confide_transfer.local.reader import Losses
from confide_transfer.local.readers import chatgpt, claude_ai

ODD = (None, 7, 1.5e300, "x", [], {}, [[]], {"a": [{}]}, [{"a": 7}], "\ud800", {"parts": 7})
STEP = 13
"""One case in so many is tried: enough that each value meets each kind of place."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return value


@pytest.mark.parametrize("reader", [chatgpt.READER, claude_ai.READER], ids=lambda reader: reader.name)
def test_any_value_may_be_another(reader: Any, tmp_path: Path) -> None:
    export = tmp_path / "export"
    shutil.copytree(FIXTURES / reader.name, export)
    tried = 0
    for file in sorted(export.glob("*.json")):
        good = json.loads(file.read_text())
        cases = [(path, odd) for path in places(good) for odd in ODD]
        for path, odd in cases[::STEP]:
            file.write_text(json.dumps(replaced(good, path, odd)))
            reader.recognises(export)
            try:
                records = list(reader.read(export, Losses()))
            except UnreadableError:
                continue
            for record in records:
                assert record.content.strip()
                assert record.note_id.startswith("mem_")
                json.dumps([record.title, record.content, to_json(record.metadata)], ensure_ascii=False).encode()
            tried += 1
        file.write_text(json.dumps(good))
    assert tried > 100
