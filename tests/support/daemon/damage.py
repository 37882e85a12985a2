"""A space with known contents, and ways to damage its database as a bug, a disk or a person would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.database import connect, transaction

KEY = bytes(range(32))
DOCUMENTS = 24
PAGE = 4096


def text_of(number: int) -> str:
    """The text of a document: a word of its own in each paragraph, and a few that all share."""
    parts = [f"## Part {part}\n\nword{number}x{part} is about the pool and its heater" for part in range(6)]
    return f"# Note {number}\n\n" + "\n\n".join(parts) + "\n"


async def open_space(path: Path, *, model: str = "words", is_known: bool = False, **options: Any) -> Space:
    """The space, with a model that needs no files; `options`: of `SpaceShared`."""
    handle = LoadedModel.ready(HashedEmbedder(64, model=model))
    return await Space.open(path, KEY, SpaceShared(IndexSettings(), handle, **options), space_id="s", is_known=is_known)


async def make(path: Path) -> None:
    """A space of `DOCUMENTS` documents, indexed and closed."""
    space = await open_space(path)
    for number in range(DOCUMENTS):
        await space.documents.put("p", f"{number}.md", text_of(number), base=0, author="alice")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)
    await space.close()


def copy(made: Path, folder: Path) -> Path:
    """The same space once more, to be damaged."""
    return Path(shutil.copy(made, folder / "s.db"))


def run(path: Path, *statements: str) -> None:
    """SQL on the closed database, with nothing that would keep it whole."""
    connection = connect(path, KEY, writer=True)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def hide_from_index(path: Path) -> None:
    """Adds nothing to an index that its table has got: the index's own row in the schema is away meanwhile."""
    connection = connect(path, KEY, writer=True)
    connection.execute("PRAGMA writable_schema = ON")
    where = "FROM sqlite_schema WHERE name = 'chunk_hash'"
    row = connection.execute(f"SELECT type, name, tbl_name, rootpage, sql {where}").fetchall()[0]
    connection.execute(f"DELETE {where}")
    connection.close()
    run(path, "UPDATE chunk SET hash = randomblob(16) WHERE id = 7")
    connection = connect(path, KEY, writer=True)
    connection.execute("PRAGMA writable_schema = ON")
    with transaction(connection):
        connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    connection.close()


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table or index, its root last."""
    connection = connect(path, KEY, writer=False)
    found = [
        row[0] for row in connection.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY path DESC", (name,))
    ]
    connection.close()
    return found


def flip(path: Path, page: int) -> None:
    """One wrong bit in a page."""
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE + 100] ^= 1
    path.write_bytes(data)


def sound(path: Path) -> None:
    """What SQLite says of the closed database, and that everything derived is there."""
    connection = connect(path, KEY, writer=True)
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    pieces = connection.execute("SELECT id FROM chunk ORDER BY id").fetchall()
    assert connection.execute("SELECT id FROM keyword_docsize WHERE id > 0 ORDER BY id").fetchall() == pieces
    (generation,) = [row[0] for row in connection.execute("SELECT id FROM generation WHERE state = 'live'")]
    assert connection.execute(f"SELECT chunk FROM vector_{generation} ORDER BY chunk").fetchall() == pieces
    connection.close()


async def found(space: Space, number: int) -> bool:
    """Whether the document is the first that its own word finds."""
    result = await space.index.searcher.search(SearchQuery(f"word{number}x3", min_score=0.0))
    return bool(result.hits) and result.hits[0].path == f"{number}.md"
