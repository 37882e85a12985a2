"""An export of ChatGPT, in the forms that were seen: a folder, a zip, one file or several, and what is wrong with some."""

from __future__ import annotations

import json
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.imports import FIXTURES, ids, read

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses
from confide_transfer.local.readers.chatgpt import READER
from confide_transfer.local.readers.claude_ai import READER as CLAUDE

EXPORT = FIXTURES / "chatgpt"
FIRST, SECOND = (f"conversation:6955a000-0000-8000-a000-{number:012}" for number in (1, 2))


def conversations() -> list[dict[str, Any]]:
    found = json.loads((EXPORT / "conversations.json").read_text())
    assert isinstance(found, list)
    return found


def zipped(path: Path, folder: str = "", **files: bytes) -> Path:
    """A zip of the export, with these files in place of its own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(EXPORT.glob("*.json")):
            archive.writestr(f"{folder}{file.name}", files.pop(file.stem, file.read_bytes()))
        archive.writestr(f"{folder}chat.html", "<html>")
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def message(role: str, text: Any, parent: str | None = None) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content}}


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8", errors="surrogatepass")
    return path


def test_conversations() -> None:
    """What was shown: the last branch, without tools, thoughts and hidden messages; one without text is no note."""
    assert READER.recognises(EXPORT)
    assert not CLAUDE.recognises(EXPORT)
    records, losses = read(READER, EXPORT)
    assert [origin for origin in records if origin.startswith("conversation")] == [FIRST, SECOND]
    first = records[FIRST]
    assert (first.title, first.type, first.scope) == ("Row locks in PostgreSQL", "episodic", None)
    assert (first.created, first.updated) == ("2026-01-01T01:00:00Z", "2026-01-01T01:30:00Z")
    assert first.content == (
        "**User:**\n\nHow do two workers not take the same job?\n\n"
        "**Assistant:**\n\nWith `FOR UPDATE SKIP LOCKED`. \n\n```sql\nSELECT 1\n```\n\n"
        "**User:**\n\n[image]\n\nMerke dir: ich pflege den Scheduler 🗓\n\n[file: plan.pdf]\n\n"
        "**Assistant:**\n\nGemerkt."
    )
    feedback = [{"id": "a1", "rating": "thumbs_up", "create_time": "2026-01-01T01:05:00Z", "content": "{}"}]
    assert first.metadata == {"default_model_slug": "gpt-5", "is_starred": True, "message_feedback": feedback}
    second = records[SECOND]
    assert (second.title, second.metadata["gizmo_id"]) == ("Which lock is it?", "g-p-1")
    assert second.content == "**User:**\n\nWhich lock is it?\n\n**Assistant:**\n\nThe row lock."
    assert not losses.count


def test_what_was_remembered() -> None:
    """Each memory once, wherever it was seen; it and the custom instructions hold everywhere."""
    records, _ = read(READER, EXPORT)
    kept = [record for origin, record in records.items() if origin.startswith("memory:")]
    assert [(record.content, record.created) for record in kept] == [
        ("Maintains a job scheduler in Python.\nSince 2019.", "2026-01-01T01:05:00Z"),
        ("Prefers PostgreSQL to MySQL.", "2025-06-01T00:00:00Z"),
    ]
    assert {(record.scope, record.category) for record in kept} == {("global", "facts")}
    assert kept[0].metadata == {"conversation_id": FIRST.removeprefix("conversation:"), "source": "bio"}
    own = records["custom-instructions"]
    assert (
        own.content
        == "## About the person\n\nI maintain a job scheduler.\n\n## How to answer\n\nAnswer briefly. Metric units."
    )
    assert (own.scope, own.type, own.category) == ("global", "core_identity", "preferences")


def test_every_form(tmp_path: Path) -> None:
    """The zip as it was sent or packed again, its file alone, several files in place of one: the same notes, in any order."""
    expected = sorted(ids(READER, EXPORT))
    assert sorted(ids(READER, EXPORT)) == expected
    alone = shutil.copy(EXPORT / "conversations.json", tmp_path / "renamed.json")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, conversation in enumerate(reversed(conversations())):
        written(parts / f"conversations-{number:03}.json", [conversation])
    zips = [
        zipped(tmp_path / "export.zip"),
        zipped(tmp_path / "again.zip", "export/", **{"__MACOSX/export/._user.json": b"junk"}),
    ]
    for path in (alone, parts, *zips):
        assert READER.recognises(path)
        assert sorted(ids(READER, path)) == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.zip", "export.zip", "parts", "renamed.json"]


def test_a_long_conversation_is_in_parts(tmp_path: Path) -> None:
    """Each fits into a document, says whose part it is, and nothing of the text is lost."""
    said = [f"Sentence {number} of it: ünïcödé." for number in range(40_000)]
    nodes = {"q": message("user", "\n\n".join(said))}
    path = written(
        tmp_path / "conversations.json", [{"id": "long", "title": "Long", "mapping": nodes, "current_node": "q"}]
    )
    records, losses = read(READER, path)
    assert list(records) == ["conversation:long", "conversation:long#2", "conversation:long#3"]
    assert [record.title for record in records.values()] == ["Long", "Long (2)", "Long (3)"]
    assert all(len(record.content.encode()) <= 500_000 for record in records.values())
    assert [record.relations for record in records.values()] == [(), *[(("part_of", "conversation:long"),)] * 2]
    found = "\n\n".join(record.content for record in records.values())
    assert found.removeprefix("**User:**\n\n").split("\n\n") == said
    assert not losses.count
    nodes = {"q": message("user", "字" * 400_000)}
    path = written(
        tmp_path / "conversations.json", [{"id": "long", "title": "Long", "mapping": nodes, "current_node": "q"}]
    )
    assert "".join(record.content for record in read(READER, path)[0].values()).count("字") == 400_000


def test_odd_conversations(tmp_path: Path) -> None:
    """Fields of other types, a tree that is a ring, half a surrogate pair: what can be read is."""
    ring = {"a": message("user", "round", "b"), "b": message("assistant", "and round", "a")}
    odd: dict[str, Any] = {
        "x": "no node",
        "y": {"message": [], "children": 7, "parent": {}},
        "z": {
            "message": {"author": None, "content": {"content_type": "text", "parts": {}}, "metadata": []},
            "parent": "y",
        },
        "half": message("user", "half \ud83d a pair", "z"),
        "w": message("user", "whole", "half"),
    }
    odd["w"]["message"]["content"]["parts"][:0] = [{}, 7, None]
    odd["w"]["message"]["metadata"] = {"attachments": [1, {}]}
    path = written(
        tmp_path / "conversations.json",
        [
            {"id": "ring", "title": 7, "mapping": ring, "current_node": "a", "create_time": "x"},
            {
                "id": "odd",
                "title": "T\ud83d",
                "mapping": odd,
                "current_node": "w",
                "create_time": 1e300,
                "x": float("nan"),
            },
            {"id": "marks", "mapping": {"q": message("user", "\ue200" * 500_000 + "the end")}, "current_node": "q"},
            {"id": "none", "mapping": {}},
            {"id": 7, "mapping": {}},
            {"title": "nothing"},
            "text",
        ],
    )
    records, losses = read(READER, path)
    assert records["conversation:ring"].content == "**Assistant:**\n\nand round\n\n**User:**\n\nround"
    assert records["conversation:odd"].content == "**User:**\n\nhalf ? a pair\n\nwhole"
    assert (records["conversation:odd"].title, records["conversation:odd"].created) == ("T?", None)
    assert records["conversation:marks"].content == "**User:**\n\nthe end"
    assert list(records) == ["conversation:ring", "conversation:odd", "conversation:marks"]
    assert [loss.reason for loss in losses.skips] == [
        "has no id or no messages",
        "has no id or no messages",
        "is no object",
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"[", "ends in the middle"),
        (b"\xff\xfe[\0]\0", "is not UTF-8 text"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'[{"mapping": ' + b'{"a":' * 100_000, "is nested too deeply"),
        (b'[{"id": ' + b"9" * 5_000 + b"}]", "holds a number that is too long"),
        (b'{"mapping" 7}', "is not JSON"),
        (b"[{} {}]", "has no id or no messages|is not JSON"),
    ],
)
def test_no_json(data: bytes, problem: str, tmp_path: Path) -> None:
    """As a file and in a zip: said in a sentence."""
    path = tmp_path / "conversations.json"
    path.write_bytes(data)
    if problem.startswith("has no"):
        _, losses = read(READER, path)
        assert [loss.reason for loss in losses.skips] == [
            "has no id or no messages",
            "is not JSON, after 1 of its elements",
        ]
        return
    for source in (path, zipped(tmp_path / "export.zip", conversations=data)):
        with pytest.raises(UnreadableError, match=problem):
            read(READER, source)


def test_what_was_cut_off(tmp_path: Path) -> None:
    """A download that ended too soon: what came before is read, and what is missing said."""
    data = json.dumps(conversations(), ensure_ascii=False).encode()
    path = tmp_path / "conversations.json"
    path.write_bytes(data[: data.index(b"New chat")])
    records, losses = read(READER, path)
    assert list(records)[:2] == [FIRST, SECOND]
    assert [loss.reason for loss in losses.skips] == ["is not JSON, or ends in the middle, after 2 of its elements"]


def test_a_hostile_zip(tmp_path: Path) -> None:
    """A bomb, a size that lies, a checksum that is wrong, names that lead out of the folder, and what is encrypted."""
    bomb = zipped(tmp_path / "bomb.zip", conversations=b"[" + b" " * 2**23 + b"]")
    assert bomb.stat().st_size < 20_000
    with pytest.raises(UnreadableError, match="zip bomb"):
        read(READER, bomb)
    honest = zipped(tmp_path / "honest.zip").read_bytes()
    name = honest.index(b"conversations.json") + len("conversations.json")
    (tmp_path / "damaged.zip").write_bytes(honest[: name + 40] + bytes(20) + honest[name + 60 :])
    with pytest.raises(UnreadableError, match="is damaged in the zip"):
        read(READER, tmp_path / "damaged.zip")
    central = honest.rindex(b"conversations.json") - 46
    flagged = bytearray(honest)
    flagged[central + 8] |= 1
    (tmp_path / "encrypted.zip").write_bytes(flagged)
    with pytest.raises(UnreadableError, match="is encrypted"):
        read(READER, tmp_path / "encrypted.zip")
    (tmp_path / "cut.zip").write_bytes(honest[:-30])
    with pytest.raises(UnreadableError, match="is a damaged zip"):
        read(READER, tmp_path / "cut.zip")
    directory = 2**26 + 1
    with (tmp_path / "list.zip").open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(directory)
        file.seek(directory)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, directory, 0, 0))
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="is a damaged zip"):
        read(READER, tmp_path / "list.zip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < directory / 8, "a list that says it is large was read"
    outside = tmp_path / "outside.zip"
    with zipfile.ZipFile(outside, "w") as archive:
        for bad in ("../conversations.json", "/conversations.json", "a/b/c/conversations.json"):
            archive.writestr(bad, "[]")
    with pytest.raises(UnreadableError, match=r"holds no conversations\.json"):
        read(READER, outside)
    for path in (bomb, tmp_path / "damaged.zip", tmp_path / "encrypted.zip", tmp_path / "cut.zip", outside):
        assert not READER.recognises(path)


def test_a_large_export_is_not_held_whole(tmp_path: Path) -> None:
    """A file of many conversations is read in pieces; over 512 MiB it is refused by its size."""
    path = tmp_path / "conversations.json"
    with path.open("w") as file:
        for number in range(300):
            nodes = {"q": message("user", f"{number} " + "word " * 20_000)}
            file.write("[" if not number else ",\n")
            json.dump({"id": str(number), "title": f"Talk {number}", "mapping": nodes, "current_node": "q"}, file)
        file.write("]")
    tracemalloc.start()
    assert sum(1 for _ in READER.read(path, Losses())) == 300
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 3
    with path.open("wb") as sparse:
        sparse.truncate(2**29 + 1)
    with pytest.raises(UnreadableError, match="larger than 512 MiB"):
        read(READER, path)


def test_no_export(tmp_path: Path) -> None:
    """An empty folder, another program's JSON, a symlink."""
    with pytest.raises(UnreadableError, match=r"holds no conversations\.json"):
        read(READER, tmp_path)
    link = tmp_path / "conversations.json"
    link.symlink_to(EXPORT / "conversations.json")
    with pytest.raises(UnreadableError, match="is a symlink"):
        read(READER, tmp_path)
    assert not any(
        READER.recognises(path) for path in (tmp_path, link, tmp_path / "missing", written(tmp_path / "a.json", "[]"))
    )
