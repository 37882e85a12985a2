"""A lost device: how long until its session has ended, from the moment that its removal is sent to a real daemon on loopback.

    python -m bench removal

Then the whole command `confide device lost`, with a secret to name. The goal: a second.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

from tests.support.programs.pair import joined
from tests.support.programs.processes import Daemon, Machine, running_daemon

from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.transport.open_channel import Connection, connect

ROUNDS = 20
GOAL_S = 1.0


async def extend(connection: Connection, roster: Roster) -> None:
    await connection.request("extend", {"entry": b64encode(roster.entries[-1].encode()).decode()}, timeout_s=30)


async def ends(daemon: Daemon) -> list[float]:
    """Seconds from sending a removal to the end of the session, once for each of many devices."""
    url, static = f"ws://127.0.0.1:{daemon.port}/", parse_daemon_key(daemon.run("key").split()[0])
    mine, took = Identity.generate(), []
    daemon.run("device", "add", format_public_key(mine.public_key, "mine"))
    roster, keys = Roster.create(mine, "mine", now=1)
    connection = await connect(url, mine, static)
    serving = asyncio.create_task(connection.serve(on_request=_nothing))
    await extend(connection, roster)
    for number in range(ROUNDS):
        lost = Identity.generate()
        daemon.run("device", "add", format_public_key(lost.public_key, f"lost{number}"), "--space", "mine")
        roster = roster.add(mine, Device(Card.of(lost), "lost"), keys, now=2)
        await extend(connection, roster)
        session = await connect(url, lost, static)
        ended = asyncio.create_task(session.serve(on_request=_nothing))
        roster, keys = roster.remove(mine, lost.public_key, keys, now=3)
        began = time.perf_counter()
        await extend(connection, roster)
        await asyncio.wait([ended])
        took.append(time.perf_counter() - began)
        assert session.close_code == "revoked"
    await connection.close()
    with suppress(Exception):
        await serving
    return took


async def _nothing(_op: str, _body: dict[str, object]) -> dict[str, object]:
    return {}


def command(daemon: Daemon, root: Path) -> float:
    """Seconds of the command, from a shell."""
    (ann,) = joined(root, daemon, "ann", kind=Machine)
    bob = Machine(root, "bob")
    bob.run("join", ann.json("device", "invite", "bob", "--no-wait")["invite"])
    ann.run("status")
    ann.write("memory/deploy.md", "The token is ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5" + ".\n")
    ann.run("sync")
    began = time.perf_counter()
    ann.run("device", "lost", "bob", "--yes")
    return time.perf_counter() - began


def main() -> int:
    """Print the figures; 1 if the goal is missed."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as root, running_daemon(Path(root)) as daemon:
        took = asyncio.run(ends(daemon))
        print(
            f"removal sent → session ended: {statistics.median(took):.2f} s median, {max(took):.2f} at most of {ROUNDS} (goal {GOAL_S:.0f})"
        )
        print(f"confide device lost, with one secret: {command(daemon, Path(root)):.1f} s")
    return int(max(took) > GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
