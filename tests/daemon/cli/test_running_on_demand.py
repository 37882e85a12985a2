"""A daemon that a proxy starts when it needs one, and that ends by itself."""

from __future__ import annotations

import fcntl
import time

from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.processes import wait_until

from confide_crypto.keys.identity import Identity, format_public_key


def test_two_started_on_demand_at_once_are_one(confided: Confided) -> None:
    arguments = ("serve", "--on-demand", "--idle-exit", "60", "--data", str(confided.data))
    started = [confided.start(*arguments) for _ in range(5)]
    wait_until("the daemon to listen", lambda: confided.address)
    wait_until("the others to end", lambda: sum(process.poll() is None for process in started) == 1)
    (left,) = [process for process in started if process.poll() is None]
    assert [process.returncode for process in started if process is not left] == [0] * 4
    assert confided.address is not None
    assert confided.address["pid"] == left.pid
    assert confided.address["url"].startswith("confide://127.0.0.1:")
    assert confided.log.count("listens on") == 1


async def test_on_demand_trusts_a_key_line_in_its_folder(confided: Confided) -> None:
    identity = Identity.generate()
    folder = confided.data / "authorized"
    folder.mkdir(parents=True, mode=0o700)
    confided.data.chmod(0o700)
    (folder / "me.pub").write_text(format_public_key(identity.public_key, "me"))
    (folder / "me.pub").chmod(0o600)
    confided.serve("--on-demand")
    async with await confided.connect(identity) as me:
        assert me.connection.welcome["space"] == "local"


def test_on_demand_it_ends_when_nobody_comes_and_can_be_started_again(confided: Confided) -> None:
    for _ in range(2):
        process = confided.serve("--on-demand", "--idle-exit", "1")
        assert process.wait(DEADLINE_S) == 0
        assert confided.address is None


def test_one_that_ends_is_followed_by_the_one_that_waits(confided: Confided) -> None:
    """A newcomer that finds the lock held but no address is not turned away: the holder may be on its way out."""
    confided.data.mkdir(mode=0o700)
    with (confided.data / "daemon.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        newcomer = confided.start("serve", "--on-demand")
        time.sleep(1.0)  # long enough for it to find the lock held
        assert newcomer.poll() is None
    wait_until("the newcomer to take over", lambda: confided.address)
