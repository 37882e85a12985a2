"""The file beside a database by which an older one forgets again, also one that never had the key of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.daemon import residue
from tests.support.sealing.rosters import LAPTOP

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store import forgotten_file
from confide_daemon.store.space_store import Store
from confide_memory.forgetting import ForgetRecord, key_id

KEY, OTHER = bytes(range(32)), bytes(32)
TEXT = "The zanzibar plan of quillfeather begins at dawn.\n"


async def opened(path: Path, key: bytes = KEY) -> Space:
    return await Space.open(path, key, SpaceShared(IndexSettings(), LoadedModel.ready(HashedEmbedder())), space_id="s")


async def forget(space: Space) -> None:
    key = await space.forgetting.key()
    _, plan = await space.forgetting.plan("p", ["memory/a.md"], [], lambda _project, _path: True)
    content = (plan.names, plan.texts, plan.parts, plan.of_parts, plan.sealed)
    record = ForgetRecord(bytes(16), "00" * 16, 0, LAPTOP.public_key, key_id(key), *content)
    await space.forgetting.take(record.sign(LAPTOP), key, author="a")


async def test_a_database_of_before_the_records_forgets_by_the_file_alone(tmp_path: Path) -> None:
    """A restored snapshot of an older version, which no device has visited yet: under the present key of the database, and a former one."""
    path = tmp_path / "s.db"
    space = await opened(path)
    await space.documents.put("p", "memory/a.md", TEXT, base=0, author="a")
    await space.close()
    with_text = path.read_bytes()
    space = await opened(path)
    await forget(space)
    key = await space.forgetting.key()
    await space.rekey(OTHER)
    await space.close()
    await (await opened(path, OTHER)).close()  # it writes the file
    path.with_name("s.db-wal").unlink(missing_ok=True)
    path.write_bytes(with_text)
    store = Store.open(path, KEY, writer=True, now=0.0)
    with store.writing():
        store.connection.execute("DELETE FROM forget_key")  # as an older version had none
    store.close()
    space = await opened(path)
    assert await space.documents.newest_text("p", "memory/a.md") is None
    for row in await space.forgetting.rows():
        await space.forgetting.take(row.signed, key, author="a")
    await space.close()
    assert b"zanzibar" not in residue.image(path, KEY)


async def test_without_the_database_s_key_a_line_gives_no_key(tmp_path: Path) -> None:
    """Nor does one that was changed; and the file stays the same as long as its content does."""
    space = await opened(tmp_path / "s.db")
    await space.documents.put("p", "memory/a.md", TEXT, base=0, author="a")
    await forget(space)
    file = tmp_path / "s.forgotten"
    (line,) = forgotten_file.read(file)
    assert line.key(KEY) == await space.forgetting.key()
    assert line.key(OTHER) is None
    before = file.stat()
    await space.forgetting.save()
    assert file.stat() == before
    (box,) = line.keys
    changed = forgotten_file.FiledRecord(line.row, (box[:-1] + bytes([box[-1] ^ 1]), b"short"))
    assert changed.key(KEY) is None
    await space.close()


@pytest.mark.parametrize("damage", ['{"record": 1}', "[]", "no json", '{"keys": "zz"}'])
def test_a_damaged_line_is_left_out(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "s.forgotten"
    file.write_text(damage + "\n")
    assert forgotten_file.read(file) == []
