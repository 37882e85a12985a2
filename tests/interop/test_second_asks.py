"""What the second daemon asks of the real `confide` (PROTOCOL.md 9.4), and what it does to it against the rules or with new keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop.bodies import window
from tests.interop.frames import Frame, Type
from tests.interop.notes import NOTE, Notes, hash_of
from tests.interop.peer import Daemon, Served
from tests.interop.requests import RefusedError
from tests.interop.rotations import announcement
from tests.interop.texts import Identity, decode
from tests.support.programs.processes import Machine

# More than the credit of a stream.
LARGE = "- a line of a long log, with ünicode\n" * 60_000


async def run(machine: Machine, *arguments: str, code: int = 0) -> str:
    """A command on the machine, while this daemon serves."""
    return await asyncio.to_thread(machine.run, *arguments, code=code)


@pytest.fixture
async def pinned(ann: Machine, second: Daemon) -> Machine:
    """The machine, after both keys have been exchanged by hand (5.4)."""
    shown = await run(ann, "key", "show")
    second.callers.add(decode("confide", shown.partition("confide-ed25519 ")[2].split()[0]))
    await run(ann, "pin", second.url, second.identity.pin)
    return ann


async def test_it_is_asked_for_everything(pinned: Machine, notes: Notes) -> None:
    """`apply` as REQ and as a body beyond the credit, on a file edited meanwhile and on a path outside; `flush`, `backlog` and `scan`."""
    outcome: dict[str, Any] = {}
    new: dict[str, Any] = {"revision": 3, "baseHash": None}
    made = {**new, "path": "memory/made.md", "hash": hash_of("made"), "text": "made"}

    async def bring(served: Served) -> None:
        project = notes.ops("attach")[0]["project"]
        outcome["small"] = await served.session.request("apply", project=project, **made)
        large = {**new, "project": project, "path": "memory/large.md", "hash": hash_of(LARGE)}
        outcome["large"] = await served.session.upload("apply", LARGE.encode(), **large)

    async def break_rules(served: Served) -> None:
        request, project = served.session.request, notes.ops("attach")[0]["project"]
        for refused, code in (
            (request("apply", project=project, **{**made, "path": "src/made.md"}), "invalid"),
            (request("put", project=project), "unavailable"),
        ):
            with pytest.raises(RefusedError) as error:
                await refused
            assert error.value.code == code

    async def meet_an_edit(served: Served) -> None:
        request, project = served.session.request, notes.ops("attach")[0]["project"]
        pinned.write("memory/made.md", "by hand")
        other = {**made, "hash": hash_of("other"), "text": "other", "revision": 4}
        outcome["edited"] = await request("apply", project=project, **other)

    async def ask(served: Served) -> None:
        request, project = served.session.request, notes.ops("attach")[0]["project"]
        outcome["backlog"] = await request("backlog")
        outcome["flush"] = await request("flush", project=project, path="memory/made.md")
        outcome["flushed"] = notes.text(project, "memory/made.md")

    async def have_it_scan(served: Served) -> None:
        pinned.write("memory/later.md", "later")
        outcome["scan"] = await served.session.request("scan", force=False)
        outcome["scanned"] = notes.text(notes.ops("attach")[0]["project"], "memory/later.md")

    # Each within one call of a tool, which waits ten seconds: so on a busy machine they do not add up.
    for step in (bring, break_rules, meet_an_edit, ask, have_it_scan):
        notes.before_tool = step
        await run(pinned, "status")
    assert outcome["small"] == outcome["large"] == {"applied": True}
    assert (pinned.project / "memory/large.md").read_text() == LARGE
    assert not (pinned.project / "src").exists()
    ours = {"base": 3, "baseHash": hash_of("made")}
    assert outcome["edited"] == {"applied": False, "hash": hash_of("by hand"), "text": "by hand", **ours}
    assert (pinned.project / "memory/made.md").read_text() == outcome["flushed"] == "by hand"
    assert set(outcome["backlog"]) - {"troubles"} == {"pendingUploads", "queuedOffline", "deadLetters"}
    assert set(outcome["scan"]) == {"filesScanned", "sent", "removed", "pulled", "skipped"}
    assert outcome["scanned"] == "later"


async def test_an_answer_after_goaway(pinned: Machine, second: Daemon, notes: Notes) -> None:
    """7.6: what was asked before GOAWAY is still answered, and the machine ends with CLOSE."""
    notes.before_tool = lambda served: served.session.go_away("restart")
    assert "link up" in await run(pinned, "status")
    assert [(await served.session.end()).word for served in second.sessions] == ["done"]


async def test_close_before_the_answer(pinned: Machine, notes: Notes) -> None:
    """7.6: the command fails, and says that the session was closed."""
    notes.before_tool = lambda served: served.session.close("restart")
    assert "it was closed" in await run(pinned, "status", code=5)


async def test_a_broken_rule(pinned: Machine, second: Daemon, notes: Notes) -> None:
    """6.7: a WINDOW of 0 ends the connection at once, with 4401 and no CLOSE."""
    notes.before_tool = lambda served: served.session.send(Type.WINDOW, window(0))
    assert "broke the protocol" in await run(pinned, "status", code=1)
    ended = await second.sessions[-1].session.end()
    assert (ended.word, ended.code) == (None, 4401)


def without_result(call: dict[str, Any]) -> bytes:
    """A tool's answer with no structuredContent."""
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"content": [], "isError": False}}).encode()


@pytest.mark.parametrize(
    ("reply", "told"),
    [(without_result, "not of the agreed form"), (lambda _call: b"no JSON", "broke the protocol")],
    ids=["no structuredContent", "no JSON"],
)
async def test_an_answer_that_makes_no_sense(
    pinned: Machine, notes: Notes, reply: Callable[[dict[str, Any]], bytes], told: str
) -> None:
    """It is said in one sentence and never a traceback (`run` looks); `status` fails, and `search` finds what is on this machine."""
    notes.reply = reply
    assert told in await run(pinned, "status", code=1)
    found = await run(pinned, "search", "postgres")
    assert told in found
    assert "row locks" in found


# 4.7: what must come before anything else


async def test_a_signature_of_another_key(pinned: Machine, second: Daemon, notes: Notes) -> None:
    """The client verifies it, and asks nothing of a daemon whose signature is wrong."""
    second.signer = Identity.generate()
    assert "did not finish the handshake" in await run(pinned, "status", code=6)
    assert (await second.sessions[-1].session.end()).word is None
    assert notes.asked == []


async def test_another_frame_before_the_first(pinned: Machine, second: Daemon, notes: Notes) -> None:
    """Nothing is accepted before the first record, and nothing is said but the end."""
    second.before_first = Frame(Type.KEEPALIVE, 0)
    assert "did not finish the handshake" in await run(pinned, "status", code=6)
    assert [(await served.session.end()).word for served in second.sessions] == [None] * len(second.sessions)
    assert notes.asked == []


# 7.10 and 7.11: keys that change


async def test_a_new_key_of_the_machine(pinned: Machine, second: Daemon) -> None:
    """`rotate` carries both keys' signatures over its session; the machine then uses the new key alone."""
    (old,) = second.callers
    await run(pinned, "key", "rotate")
    assert len(second.callers) == 2
    second.callers.remove(old)
    assert "link up" in await run(pinned, "status")


async def test_a_new_key_of_the_daemon(pinned: Machine, second: Daemon) -> None:
    """The machine follows a change that both keys have signed, and connects to the new key alone."""
    old, new = second.identity, Identity.generate()
    await run(pinned, "status")  # the first session shows the Ed25519 key that alone may name a successor
    second.welcome["rotation"] = announcement(old, new, signer=old)
    await run(pinned, "status")
    second.welcome.clear()
    second.identity = new
    assert "link up" in await run(pinned, "status")


async def test_a_new_key_that_the_old_one_has_not_signed(pinned: Machine, second: Daemon) -> None:
    """It is ignored, and the pin stays."""
    old, new = second.identity, Identity.generate()
    await run(pinned, "status")
    second.welcome["rotation"] = announcement(old, new, signer=new)
    assert "link up" in await run(pinned, "status")
    second.welcome.clear()
    second.identity = new
    await run(pinned, "status", code=6)
    second.failures.clear()
    second.identity = old
    assert "row locks" in await run(pinned, "search", NOTE.split()[3])
