"""A copy of a space that another node holds, brought up to its log for whoever copies it on: nothing is taken from that node."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.logged import Node, Store, held

from confide_backup.daemon import sealed_keys, snapshot
from confide_backup.daemon.backup_service import BackupRequest, Backups
from confide_backup.daemon.offline_spaces import OfflineSpaces, catch_up, present
from confide_backup.daemon.target import BackupTarget, signers_of
from confide_backup.settings import BackupConfig
from confide_cluster.daemon.log.log_tables import Log
from confide_daemon.datadir.key_state import Custody, KeyName
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.store import space_store as stores


async def copied(node: Node, spaces: snapshot.SpaceAccess | None = None) -> tuple[bytes | None, bool]:
    """The key of the space here once its file is ready to be copied, and whether that has all."""
    spaces = spaces or node.spaces
    async with spaces.freeze(node.space_id) as stilled:
        return await catch_up(spaces.leases, node.space_id, node.state.folder, stilled, spaces.chunks)


def sound_texts(node: Node, key: bytes) -> dict[str, str]:
    """What the file holds that nobody has open, in which all is as it must be."""
    with closing(stores.Store.open(node.path, key, writer=False, now=time.time())) as store:
        assert store.integrity.glance() == []
        assert [one for slice_ in store.integrity.examine() for one in slice_] == []
        found = {}
        for row in store.documents.list_documents(None):
            revision = None if row.deleted else store.documents.revision(row.id, row.revision)
            if revision is not None:
                found[row.path] = revision.text
        return found


async def test_what_another_node_holds_is_copied_as_it_is_there_now(store: Store) -> None:
    """Also where this one had an older copy under another key: what was changed and deleted since then is in no derived row either."""
    async with store.node("two") as two:
        await two.put("memory/a.md", "the heron fishes\n")
        await two.put("memory/b.md", "the kestrel hovers\n")
    async with store.node("two") as two, store.node() as one:
        await one.put("memory/c.md", "the bittern booms\n")
        documents = (await one.space()).documents
        await documents.put("p", "memory/a.md", "the heron sleeps\n", base=1, author="a")
        await documents.remove("p", "memory/b.md", base=1, author="a")
        lease = store.sql("SELECT lease, holder FROM log")
        for renews in (False, True):
            if renews:
                await one.spaces.renew(one.space_id, lambda _done, _total: None)
                await one.put("memory/d.md", "the newest\n")
            assert await copied(two) == (one.key, True)
            assert one.key == two.key
            assert sound_texts(two, two.key) == await one.texts()
            before = two.path.read_bytes()
            assert await copied(two) == (one.key, True)
            assert two.path.read_bytes() == before  # so that the next snapshot links what the last one has
        assert store.sql("SELECT lease, holder FROM log") == lease
        for table, rows in held(two.path, two.key).items():
            assert rows == held(one.path, one.key)[table] or table in ("life", "given"), table
        await one.put("memory/e.md", "it goes on\n")
        # So it is for a command where nobody serves the folder.
        assert await copied(two, OfflineSpaces(two.state, leases=two.leases)) == (one.key, True)
        assert "memory/e.md" in sound_texts(two, two.key)
    async with store.node("two") as two:
        assert "memory/e.md" in await two.texts()
        assert "sleeps" in str(await (await two.space()).index.searcher.search(SearchQuery("heron")))


async def test_what_is_read_of_a_log_is_of_one_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder brings a snapshot meanwhile, and removes the entries that are in it."""
    entries = Log.entries
    async with store.node("two") as two, store.node() as one:
        await one.put("memory/a.md", "the heron fishes\n")
        outbox = (await one.space()).outbox
        assert outbox is not None

        def late(self: Log, after: int) -> Any:
            ((newest,),) = store.sql("SELECT max(number) FROM entry WHERE log = %s", two.space_id)
            outbox.take_snapshot()
            assert store.sql("SELECT number FROM entry WHERE log = %s AND number <= %s", two.space_id, newest) == []
            return entries(self, after)

        monkeypatch.setattr(Log, "entries", late)
        assert (await copied(two))[1]
        assert sound_texts(two, two.key) == {"memory/a.md": "the heron fishes\n"}


async def test_where_its_key_is_not_here_it_stays_as_it_was(store: Store, tmp_path: Path) -> None:
    """Its machines have brought it to its holder alone. A backup has it so, and says so."""
    async with store.node("two") as two:
        await two.put("memory/a.md", "the heron fishes\n")
    async with store.node("two") as two, store.node() as one:
        await one.put("memory/b.md", "the kestrel hovers\n")
        key = two.key
        custody = Custody(KeyName("caller", 1)).to_json()
        store.sql("UPDATE log SET custody = %s::jsonb", json.dumps(custody))
        assert await copied(two) == (key, False)
        assert set(sound_texts(two, key)) == {"memory/a.md"}
        assert await present(two.leases, two.state.folder, [two.space_id, "0" * 16]) == [two.space_id]
        target = BackupTarget(tmp_path / "backups")
        target.prepare(signers_of(two.state), data=two.state.folder.root)
        sealed_keys.make(two.state.folder)
        backups = Backups(two.state, two.spaces, BackupConfig(to=str(target.folder)), None)
        done = await backups.do(BackupRequest("take"), lambda *_: None)
        assert (done["spaces"], done["behind"]) == (1, [two.space_id])
