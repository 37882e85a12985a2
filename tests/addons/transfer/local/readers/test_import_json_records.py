"""JSON and JSONL of memories, in the forms that programs write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers.json_records import READER

OURS: dict[str, Any] = {
    "id": "0123456789abcdef0123",
    "content": "We use Postgres.",
    "title": "Database",
    "taskId": "t-1",
    "scope": "task",
    "tags": ["db", "sql"],
    "importance": "HIGH",
    "keywords": "row, lock",
    "created_at": 1700000000000,
    "updatedAt": "2024-05-01T10:00:00+02:00",
    "relations": [{"relation": "supersedes", "id": "other"}, {"kind": "hates", "id": "x"}],
    "metadata": {"ticket": 7},
    "confidence": 0.5,
}


def read(path: Path, losses: Losses | None = None) -> list[MemoryRecord]:
    found = Losses()
    records = list(READER.read(path, losses or found))
    assert found.count == 0, found.skips
    return records


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["array", "object", "one", "lines", "lines named json"])
def test_each_form_is_read_alike(tmp_path: Path, form: str) -> None:
    line = json.dumps(OURS) + "\n"
    value, name = {
        "array": ([OURS], "a.json"),
        "object": ({"version": 1, "memories": [OURS]}, "a.json"),
        "one": (OURS, "a.json"),
        "lines": ("\n" + line, "a.jsonl"),
        "lines named json": (line + line.replace("0123456789", "9876543210"), "a.json"),
    }[form]
    file = written(tmp_path / name, value)
    assert READER.recognises(file)
    record = read(file)[0]
    assert (record.content, record.title, record.task_id, record.scope) == (
        "We use Postgres.",
        "Database",
        "t-1",
        "task",
    )
    assert (record.tags, record.importance, record.keywords) == (("db", "sql"), "high", ("row", "lock"))
    assert (record.created, record.updated) == ("2023-11-14T22:13:20Z", "2024-05-01T08:00:00Z")
    assert record.relations[0] == ("supersedes", "other")
    assert record.metadata["ticket"] == 7
    assert record.metadata["confidence"] == 0.5
    assert record.origin == OURS["id"]


def test_other_names_of_the_text_are_known(tmp_path: Path) -> None:
    items = [{"text": "a"}, {"value": "b"}, {"memory": "c", "note": 3}, "d"]
    assert [record.content for record in read(written(tmp_path / "a.json", items))] == ["a", "b", "c", "d"]


def test_ids_are_of_their_file_and_texts_of_themselves(tmp_path: Path) -> None:
    """So that the first record of one file is not taken for that of another, and one without an id is not stored twice."""
    one = read(written(tmp_path / "one.json", [{"id": 1, "text": "a"}, {"text": "same"}]))
    two = read(written(tmp_path / "two.json", [{"id": 1, "text": "b"}, {"text": "new"}, {"text": "same"}]))
    assert one[0].note_id != two[0].note_id
    assert one[1].note_id == two[2].note_id


def test_a_short_id_is_of_the_place_of_its_file_and_of_one_text(tmp_path: Path) -> None:
    """Files of one name, and keys that are no ids, cost no memory."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    items = [{"id": 1, "text": "one"}, {"id": 1, "text": "two"}, {"id": 1, "text": "one"}]
    first = read(written(tmp_path / "a" / "m.json", items))
    (second,) = read(written(tmp_path / "b" / "m.json", [{"id": 1, "text": "other"}]))
    assert len({record.note_id for record in (*first, second)}) == 3
    assert first[0].note_id == first[2].note_id
    assert [record.note_id for record in read(tmp_path / "a" / "m.json")] == [record.note_id for record in first]


def test_relations_name_records_by_the_ids_that_they_have(tmp_path: Path) -> None:
    items = [{"id": 1, "text": "new", "relations": [{"relation": "supersedes", "id": "2"}]}, {"id": 2, "text": "old"}]
    new, old = read(written(tmp_path / "m.json", items))
    assert new.relations == (("supersedes", old.origin),)


def test_what_is_broken_is_left_out_and_told(tmp_path: Path) -> None:
    good = json.dumps({"text": "good"}).encode()
    lines = [
        good,
        b"{broken",
        b'{"text": "\xff"}',
        b'{"text": 7}',
        b"[" * 100_000,
        b'{"text": "' + b"x" * 2_000_000 + b'"}',
        good[:-6] + b'last"}',
    ]
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join(lines))
    losses = Losses()
    assert [record.content for record in read(file, losses)] == ["good", "last"]
    assert [(one.origin, one.reason) for one in losses.skips] == [
        ("line 2", "is not JSON"),
        ("line 3", "is not UTF-8 text"),
        ("record 2", "has no text"),
        ("line 5", "is not JSON"),
        ("line 6", "is longer than 1000 kB"),
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", '{"mcpServers": {}}', "null", "7", '[{"a": 1}]', "{}\n{]"]
)
def test_what_holds_no_memories_is_an_error_with_a_way_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        list(READER.read(written(tmp_path / "a.json", text), Losses()))
    assert "a.json" in str(caught.value)


def test_odd_values_become_metadata_that_can_be_sent(tmp_path: Path) -> None:
    text = '{"text": "a", "importance": NaN, "tags": 7, "created": "soon", "title": {"x": 1}, "half": "\\ud800", "n": 1e999}'
    (record,) = read(written(tmp_path / "a.json", text))
    assert json.loads(json.dumps(record.metadata, allow_nan=False).encode()) == {
        "importance": "nan",
        "tags": 7,
        "created": "soon",
        "title": {"x": 1},
        "half": "?",
        "n": "inf",
    }


def test_a_line_goes_on_behind_a_separator_of_another_kind(tmp_path: Path) -> None:
    """A JSON text may hold U+2028 as it is, in a file of lines by either name."""
    text = '{"content":"one\u2028and more\u0085"}\n{"content":"two"}\r\n'
    for name in ("a.json", "a.jsonl"):
        assert [record.content for record in read(written(tmp_path / name, text))] == ["one\u2028and more\u0085", "two"]


def test_another_encoding_is_named(tmp_path: Path) -> None:
    """As PowerShell writes it: it was said to be of no form that is known."""
    path = tmp_path / "a.json"
    path.write_text('[{"content": "one"}]', encoding="utf-16")
    assert READER.recognises(path)
    with pytest.raises(UnreadableError, match="is not UTF-8 text"):
        read(path)


def test_only_files_of_its_kind_are_recognised(tmp_path: Path) -> None:
    assert not READER.recognises(written(tmp_path / "a.txt", "[]"))
    assert not READER.recognises(written(tmp_path / "a.json", "SQLite format 3"))
    assert not READER.recognises(written(tmp_path / "a.jsonl", "[1]"))
    (tmp_path / "link.json").symlink_to(written(tmp_path / "b.json", "[]"))
    assert not READER.recognises(tmp_path / "link.json")


def test_what_stands_beside_the_memories_is_read_or_told(tmp_path: Path) -> None:
    """As mem0 writes it: relations are memories about the one that they start from; nothing is dropped without a word."""
    file = tmp_path / "mem0.json"
    relation = {"source": "ann", "relationship": "works_at", "target": "acme"}
    other = {"source": "ben", "relation": "knows", "destination": "ann"}
    file.write_text(
        json.dumps(
            {
                "count": 1,
                "results": [{"id": "1", "memory": "Ann likes tea."}],
                "relations": [relation, other, {"source": "cut"}],
                "entities": [{"name": "ann"}],
                "empty": [],
            }
        )
    )
    losses = Losses()
    records = list(READER.read(file, losses))
    assert [(one.content, one.entity, one.type) for one in records] == [
        ("Ann likes tea.", None, None),
        ("ann works_at acme", "ann", "relation"),
        ("ben knows ann", "ben", "relation"),
    ]
    assert [(one.origin, one.reason) for one in losses.skips] == [
        ("'relations'", "is not read: 1 entry beside 'results'"),
        ("'entities'", "is not read: 1 entry beside 'results'"),
    ]
