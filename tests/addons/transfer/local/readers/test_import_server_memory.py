"""The file of the official memory server, as the server itself wrote it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.documents.imports import FIXTURES, ids
from tests.support.documents.imports import read_placed as read

from confide_proxy.errors import UnreadableError
from confide_transfer.local import import_files as opening
from confide_transfer.local.readers.server_memory import READER

FILE = FIXTURES / "server-memory" / "memory.jsonl"


def test_entities_and_relations() -> None:
    """An entity is a note of that entity; what was deleted is not in the file."""
    assert READER.recognises(FILE)
    records, losses = read(READER, FILE)
    assert list(records) == ["Ada Lovelace", "Scheduler", "Job queue", "Café Zürich"]
    ada = records["Ada Lovelace"]
    assert ada.content == '- Maintains the scheduler\n- Prefers tabs\n- Line one\n  line two, with "quotes"'
    assert (ada.title, ada.entity, ada.type, ada.system) == ("Ada Lovelace", "Ada Lovelace", "person", "server-memory")
    assert records["Café Zürich"].content == "- Dort trifft sich das Team 🗓"
    assert records["Job queue"].content == "Job queue"
    assert not losses.count


def test_relations_under_our_names() -> None:
    """What means the same is that; anything else is see_also, and its name is kept."""
    records, _ = read(READER, FILE)
    assert records["Scheduler"].relations == (("depends_on", "Job queue"),)
    assert records["Scheduler"].metadata == {}
    assert records["Job queue"].relations == (("part_of", "Scheduler"),)
    assert records["Ada Lovelace"].relations == (("see_also", "Scheduler"),)
    assert records["Ada Lovelace"].metadata == {"relations": [{"relationType": "maintains", "to": "Scheduler"}]}


def test_the_same_ids_again(tmp_path: Path) -> None:
    """Also after the server appended to the file."""
    other = tmp_path / "other.jsonl"
    other.write_text(FILE.read_text())
    before = ids(READER, other)
    other.write_text(FILE.read_text() + '\n{"type":"entity","name":"New","entityType":"","observations":["x"]}')
    assert ids(READER, other)[:4] == before


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As an editor on Windows saves it: it was no memory server's, and held no memories."""
    marked = tmp_path / "memory.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + FILE.read_bytes().replace(b"\n", b"\r\n"))
    assert READER.recognises(marked)
    assert list(read(READER, marked)[0]) == list(read(READER, FILE)[0])


def test_what_is_broken_is_told(tmp_path: Path) -> None:
    """A broken line costs that line alone."""
    lines = [
        '{"type":"entity","name":"A","entityType":"t","observations":["fine", 7]}',
        "{",
        "[" * 100_000,
        "null",
        '{"type":"entity","name":7,"entityType":"t","observations":[]}',
        '{"type":"relation","from":"A","to":"nobody","relationType":"knows"}',
        '{"type":"entity","name":"\\ud800","entityType":"t","observations":["half a pair"]}',
        '{"type":"entity","name":"Line","entityType":"t","observations":["a\\u2028b", "c\u2028d"]}',
    ]
    file = tmp_path / "memory.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    records, losses = read(READER, file)
    assert [record.content for record in records.values()] == ["- fine", "- half a pair", "- a\u2028b\n- c\u2028d"]
    assert [loss.origin for loss in losses.skips] == ["line 2", "line 3", "line 4", "line 5", "line 6"]
    json.dumps([record.metadata for record in records.values()]).encode()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe{", "is not UTF-8 text"),
        (b"{}\n{}", "holds neither entities nor relations"),
        (b'{"type":"entity"}\0', "NUL"),
    ],
)
def test_a_file_of_something_else(data: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_bytes(data)
    with pytest.raises(UnreadableError, match=problem):
        read(READER, file)


def test_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symlinks, folders and pipes are refused, and none of them is waited for."""
    (tmp_path / "link").symlink_to(FILE)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", ".", "missing"):
        assert not READER.recognises(tmp_path / name)
        with pytest.raises(UnreadableError):
            read(READER, tmp_path / name)
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.truncate(opening.MAX_FILE_BYTES + 1)
    with pytest.raises(UnreadableError, match="larger than 32 MiB"):
        read(READER, large)


def test_where_it_is(tmp_path: Path) -> None:
    """In the cache of npx, where the server keeps its file if nobody says otherwise."""
    cached = tmp_path / ".npm/_npx/0a1b/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"
    assert READER.places(tmp_path) == [tmp_path / "memory.jsonl"]
    cached.parent.mkdir(parents=True)
    cached.write_bytes(FILE.read_bytes())
    assert READER.places(tmp_path) == [tmp_path / "memory.jsonl", cached]


def test_a_user_of_each_file(tmp_path: Path) -> None:
    """Projects have files of their own, and the same names in them; npx changes the name of its folder at each update."""
    line = json.dumps({"type": "entity", "name": "user", "entityType": "person", "observations": ["likes tea"]})
    files = [tmp_path / name / "memory.jsonl" for name in ("a", "b", "_npx/1", "_npx/2")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(line + "\n")
    found = [ids(READER, file)[0] for file in files]
    assert len(set(found)) == 3
    assert found[2] == found[3]
