"""Two nodes serve one space: a session that lands on one is served by the other, and nobody sees a difference."""

from __future__ import annotations

from tests.support.programs.nodes import Nodes


async def test_a_session_is_served_by_the_holder_wherever_it_comes(nodes: Nodes) -> None:
    """Requests, texts as bodies, calls of tools and news, both ways."""
    first, second = nodes.nodes
    identity = first.enroll("laptop")
    async with await first.connect(identity) as here:
        await here.attach("proj")
        await here.put("memory/a.md", "written at the holder\n")
        assert nodes.holder() is first
        async with await second.connect(identity) as there:
            await there.attach("proj")
            found = await there.request("pull", {"project": "proj", "path": "memory/a.md"})
            assert found["text"] == "written at the holder\n"
            await there.put("memory/b.md", "passed on\n")
            async with there.mcp() as client:
                stored = await client.call_tool("memory_store", {"content": "The relay passes this on."})
                assert not stored.is_error
        assert nodes.holder() is first
