"""Memories of min-memory are read as its own client left them, and a store that somebody tampered with runs nothing."""

import base64
import json
import os
import pickle
import shutil
import sqlite3
import uuid
from collections import OrderedDict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.errors import UnreadableError
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers.min_memory import MAX_PARTS, MAX_POINT_BYTES, READER, read_point

FIXTURES = Path(__file__).parents[4] / "fixtures" / "importing" / "min-memory"
STORAGE = Path("collection", "memories", "storage.sqlite")
PROPOSED, DECIDED = "ad0046a0-3cb8-59b6-8129-ef29df18e639", "38e09a30-e4fe-598d-b559-0e5334f35d99"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A copy of the folder that qdrant-client wrote."""
    return shutil.copytree(FIXTURES / "qdrant", tmp_path / "qdrant")


def read(path: Path) -> tuple[dict[str, MemoryRecord], Losses]:
    losses = Losses()
    return {record.origin: record for record in READER.read(path, losses)}, losses


def put(store: Path, value: bytes, key: str = "planted") -> None:
    with sqlite3.connect(store / STORAGE) as connection:
        connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (key, value))
    connection.close()


@pytest.mark.parametrize("name", ["qdrant", "qdrant-pydantic-1"])
def test_everything_that_was_stored_comes_out(name: str, tmp_path: Path) -> None:
    store = shutil.copytree(FIXTURES / name, tmp_path / name)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert READER.recognises(store)
    records, losses = read(store)
    assert records[DECIDED] == MemoryRecord(
        "min-memory",
        DECIDED,
        "Decided vector-only storage: größer, einfacher",
        project="clarity",
        scope="project",
        type="project_context",
        entity="clarity",
        tags=("architecture", "storage"),
        status="active",
        created="2025-10-09T09:00:00Z",
        updated="2025-10-09T10:00:00Z",
        relations=(("supersedes", PROPOSED), ("see_also", "mem_elsewhere")),
        metadata={"user": "tim", "priority": 3, "relation_types": {"mem_elsewhere": "satisfies"}},
    )
    by_text = {record.content: record for record in records.values()}
    assert by_text["Proposed dual storage"].origin == PROPOSED
    preference = by_text["User prefers concise communication"]
    assert (preference.scope, preference.project, preference.type) == ("global", None, "core_identity")
    assert preference.metadata == {"user": "tim", "attribute": "style"}
    task = by_text["Rename the queue first"]
    assert (task.scope, task.task_id, task.status, task.project) == ("task", "rename-001", "blocked", "clarity")
    assert [(lost.reason) for lost in losses.skips] == ["was deleted there"]
    assert len(records) == 4
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before, "something was written"
    assert {record.note_id for record in read(store)[0].values()} == {record.note_id for record in records.values()}


def test_the_folder_of_the_collection_and_its_database_can_be_named_too(store: Path) -> None:
    for path in (store / "collection", store / STORAGE.parent, store / STORAGE):
        assert READER.recognises(path)
        assert len(read(path)[0]) == 4


def test_another_collection_is_not_taken_for_memories(store: Path) -> None:
    (store / "collection" / "memories").rename(store / "collection" / "documents")
    assert not READER.recognises(store)
    assert not READER.recognises(store / "collection" / "documents")
    with pytest.raises(UnreadableError, match="no Qdrant collection named memories"):
        read(store)


def test_a_collection_behind_a_symlink_is_left_alone(store: Path, tmp_path: Path) -> None:
    (store / "collection").rename(tmp_path / "elsewhere")
    (store / "collection").symlink_to(tmp_path / "elsewhere")
    assert not READER.recognises(store)
    with pytest.raises(UnreadableError):
        read(store)


class Runs:
    """Unpickling this makes a folder, if anything is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.folder),))


def test_a_pickle_that_is_a_program_is_refused_and_the_rest_is_read(store: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    put(store, pickle.dumps(Runs(trap)))
    put(store, pickle.dumps({"payload": [Runs(trap)]}), "deeper")
    put(store, b"cos\nsystem\n(S'mkdir %b'\ntR." % str(trap).encode(), "older protocol")
    records, losses = read(store)
    assert not trap.exists()
    assert len(records) == 4
    reasons = [lost.reason for lost in losses.skips]
    assert "holds 'posix.mkdir', which is not read" in reasons
    assert "holds 'os.system', which is not read" in reasons


@pytest.mark.parametrize(
    "names",
    ["builtins eval", "builtins getattr", "builtins __import__", "os system", "subprocess Popen", "pickle loads"],
)
@pytest.mark.parametrize("form", ["c{0}\n{1}\n.", "(i{0}\n{1}\n."])
def test_no_name_but_those_of_a_point_is_looked_up(names: str, form: str) -> None:
    with pytest.raises(ValueError, match="which is not read"):
        read_point(form.format(*names.split()).encode())


def test_a_name_with_a_dot_reaches_nothing_behind_a_harmless_one() -> None:
    dotted = b"\x80\x04\x8c\x08datetime\x8c\x15datetime.__init__.__x\x93."
    with pytest.raises(ValueError, match="not read"):
        read_point(dotted)


def test_a_store_of_which_every_point_is_refused_says_so(store: Path, tmp_path: Path) -> None:
    with sqlite3.connect(store / STORAGE) as connection:
        connection.execute("DELETE FROM points")
    connection.close()
    put(store, pickle.dumps(Runs(tmp_path / "trap")))
    with pytest.raises(UnreadableError, match="which is not read") as caught:
        read(store)
    assert "JSON" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x80\x05",
        b"no pickle at all",
        b"\x80\x04N.",
        b"\x80\x04" + b"r\xff\xff\xff\xff" + b".",  # a memo of 4 billion places
        b"\x80\x05\x96" + b"\xff" * 7 + b"\x0f.",  # a byte array of an exabyte
        b"\x80\x04\x82\x01.",  # the extension registry
        b"Pan id\n.",  # an object from outside
        pickle.dumps("a text"),
        b"x" * (MAX_POINT_BYTES + 1),
        None,
        17,
    ],
)
def test_what_is_no_point_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"is |holds |refers "):
        read_point(value)


def pickled(payload: Any) -> bytes:
    """A point as the client pickles it: its class by name, and the fields that pydantic sets on it."""
    state = pickle.dumps({"__dict__": {"id": 1, "vector": [0.5], "payload": payload}}, protocol=4)[2:-1]
    return b"\x80\x04cqdrant_client.http.models.models\nPointStruct\n)\x81" + state + b"b."


def test_values_that_json_has_not_come_out_as_text() -> None:
    payload = {
        "when": datetime(2025, 10, 8, 15, 30, tzinfo=UTC),
        "day": date(2025, 10, 8),
        "id": uuid.UUID(int=7),
        "set": {"b", "a"},
        "map": OrderedDict(x=(1, 2.5, None, True)),
    }
    assert read_point(pickled(payload)) == (
        "1",
        {
            "when": "2025-10-08T15:30:00+00:00",
            "day": "2025-10-08",
            "id": "00000000-0000-0000-0000-000000000007",
            "set": ["a", "b"],
            "map": {"x": [1, 2.5, None, True]},
        },
    )


def test_a_small_pickle_of_many_values_is_refused() -> None:
    many: list[Any] = ["x"]
    for _ in range(10):
        many = [many] * 100
    data = pickled({"text": many})
    assert len(data) < MAX_PARTS
    with pytest.raises(ValueError, match="too many parts"):
        read_point(data)


def test_a_point_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="too many parts"):
        read_point(pickled({"text": endless}))


def test_of_several_rows_of_one_point_the_latest_counts(store: Path) -> None:
    key = base64.b64encode(pickle.dumps(DECIDED, protocol=4)).decode()
    with sqlite3.connect(store / STORAGE) as connection:
        (value,) = connection.execute("SELECT point FROM points WHERE id = ?", (key,)).fetchone()
    connection.close()
    put(store, value.replace(b"Decided vector-only", b"Decided vektor-only"), "another spelling of the id")
    assert read(store)[0][DECIDED].content.startswith("Decided vektor-only")


def test_a_damaged_database_is_an_error_with_a_way_out(store: Path) -> None:
    (store / STORAGE).write_bytes(b"SQLite format 3\0" + os.urandom(8000))
    assert not READER.recognises(store)
    with pytest.raises(UnreadableError):
        read(store)


def test_the_answer_of_a_server_to_a_scroll_is_read(tmp_path: Path) -> None:
    payload = {"text": "From a server", "memory_type": "episodic", "scope": "global", "entity": "tim", "deleted": False}
    points = [
        {"id": DECIDED, "payload": payload, "vector": None},
        {"id": 7, "payload": payload | {"text": "Numbered", "priority": "high", "related_to": [DECIDED]}},
        {"id": "no payload"},
    ]
    file = tmp_path / "scroll.json"
    file.write_text(json.dumps({"result": {"points": points, "next_page_offset": 8}, "status": "ok", "time": 0.1}))
    assert READER.recognises(file)
    records, losses = read(file)
    assert records[DECIDED].content == "From a server"
    assert (records["7"].importance, records["7"].relations) == ("high", (("see_also", DECIDED),))
    assert [lost.origin for lost in losses.skips] == ["point 2", "next_page_offset"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"result": {"points": 3, "payload": 1}}', "[" * 100_000])
def test_a_file_that_is_no_scroll_is_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UnreadableError):
        read(file)
