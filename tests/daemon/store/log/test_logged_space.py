"""A space whose log is in PostgreSQL: what is acknowledged is there, and a copy of it can be thrown away at any moment."""

from __future__ import annotations

from tests.support.daemon.logged import Store, held

from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.store.log import snapshot


async def test_a_space_is_fetched_anew_where_its_file_is_lost(store: Store) -> None:
    """From the log alone, then from a snapshot and what came behind it; the index as the truths."""
    async with store.node() as node:
        await node.put("memory/a.md", "# Parrots\n\nthe grey parrot talks\n")
        await node.put("memory/b.md", "the cat is silent\n")
    before = held(node.path, node.key)
    snapshot.remove(node.path)
    async with store.node() as node:
        assert await node.texts() == {
            "memory/a.md": "# Parrots\n\nthe grey parrot talks\n",
            "memory/b.md": "the cat is silent\n",
        }
        space = await node.space()
        found = await space.searcher.search(SearchQuery("parrot"))
        assert "grey parrot" in str(found)
        space._outbox.take_snapshot()
        await node.put("memory/c.md", "and a dog\n")
    for table, rows in before.items():
        if table not in ("life", "given"):
            assert set(rows) <= set(held(node.path, node.key)[table]), table
    assert store.sql("SELECT count(*) FROM part WHERE part > 0")[0][0] >= 1
    snapshot.remove(node.path)
    async with store.node() as node:
        assert sorted(await node.texts()) == ["memory/a.md", "memory/b.md", "memory/c.md"]
