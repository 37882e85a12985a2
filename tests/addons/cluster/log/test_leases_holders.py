"""Who holds a space, as other nodes see it, and when it is taken from whom."""

from __future__ import annotations

from typing import Any

import pytest
from tests.daemon.spaces.test_custodian import until
from tests.support.daemon.logged import Store

from confide_cluster.daemon.spaces.leases import Holder


async def test_a_node_sees_who_holds_a_space_and_takes_it_from_that_one_alone(store: Store) -> None:
    """One that has taken it anew meanwhile, or another one that has, keeps it; and nobody is robbed twice in a minute."""
    async with store.node() as one, store.node("two") as other:
        await one.put("memory/a.md", "text\n")
        assert one.leases is not None
        assert other.leases is not None
        assert await one.leases.holder(one.space_id) is None
        holder = await other.leases.holder(one.space_id)
        assert holder is not None
        assert holder.node == await one.leases.node()
        assert await other.leases.free(one.space_id, Holder(holder.node, "", holder.lease - 1))
        assert await other.leases.holder(one.space_id) == holder
        assert not await other.leases.free(one.space_id, holder)
        other.leases._taken_over.clear()
        assert await other.leases.free(one.space_id, Holder(holder.node + 1, "", holder.lease))
        assert await other.leases.holder(one.space_id) == holder
        other.leases._taken_over.clear()
        assert await other.leases.free(one.space_id, holder)
        assert await other.leases.holder(one.space_id) is None
        await other.put("memory/b.md", "text\n")
        found = await one.leases.holder("none such")
        assert found is None


async def test_whoever_uses_a_space_that_another_node_holds_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its heartbeat too, where it does nothing itself."""
    elsewhere: list[str] = []
    async with store.node() as one, store.node("two") as other:
        await one.put("memory/a.md", "text\n")
        monkeypatch.setattr(one.spaces.host, "send_elsewhere", elsewhere.append)
        assert one.leases is not None
        assert other.leases is not None
        holder = await other.leases.holder(one.space_id)
        assert holder is not None
        await other.leases.free(one.space_id, holder)
        await other.put("memory/b.md", "text\n")
        await until("it to be told", lambda: one.space_id in elsewhere)


async def test_sessions_that_are_passed_on_hear_of_it_when_the_holder_is_another_one(store: Store) -> None:
    moved: list[str] = []
    async with store.node() as one, store.node("two") as other, store.node("three") as door:
        await one.put("memory/a.md", "text\n")
        assert one.leases is not None
        assert door.leases is not None
        node = await one.leases.node()
        door.leases.spaces_in_use = lambda: {one.space_id: node}
        door.leases.on_moved = moved.append
        await door.leases._ask()
        assert moved == []
        holder = await door.leases.holder(one.space_id)
        assert holder is not None
        await door.leases.free(one.space_id, holder)
        await other.put("memory/b.md", "text\n")
        await until("it to be told", lambda: one.space_id in moved)


async def test_a_space_stays_with_its_sessions_while_it_is_closed_for_being_idle(store: Store) -> None:
    """And goes with the last of them."""
    async with store.node(close_after_s=0.05) as node:
        entry: Any = None
        with node.spaces.mark_used(node.space_id):
            await node.put("memory/a.md", "text\n")
            entry = node.spaces._entries[node.space_id]
            await until("it to be closed", lambda: entry.opening is None and entry.closing is None)
            assert store.sql("SELECT holder IS NULL FROM log WHERE id <> 'registry'") == [(False,)]
            await node.put("memory/b.md", "text\n")
            await until("it to be closed", lambda: entry.opening is None and entry.closing is None)
        await until("it to be free", lambda: store.sql("SELECT holder IS NULL FROM log") == [(True,)])
