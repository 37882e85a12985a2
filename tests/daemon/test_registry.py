"""The registry: callers, invites and spaces, from several threads and processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide_daemon.errors import StorageError, TakenError
from confide_daemon.grants import Grants
from confide_daemon.invites import Invites, Joined, Refused
from confide_daemon.registry import Registry

KEY = bytes(range(32))
INVITE = b"i" * 16
PSK = b"the-psk-of-this-invite-is-secret"
ALICE, BOB = b"a" * 32, b"b" * 32


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(tmp_path: Path, clock: Clock) -> Iterator[Registry]:
    opened = Registry.open(tmp_path / "registry.db", KEY, clock=clock)
    yield opened
    opened.close()


def invite(registry: Registry, invite_id: bytes = INVITE, alias: str = "laptop", space: str = "laptop") -> None:
    Invites(registry).add(invite_id, PSK, Grants(alias), space=space, ttl_s=900)


def test_a_join_enrolls_the_key_in_a_new_space_and_spends_the_invite(registry: Registry) -> None:
    invite(registry)
    outcome = Invites(registry).join(INVITE, ALICE)
    assert isinstance(outcome, Joined)
    assert (outcome.caller.alias, outcome.caller.space, outcome.caller.scope) == ("laptop", "laptop", "write")
    assert registry.spaces() == {"laptop": outcome.caller.space_id}
    assert registry.caller(ALICE) == outcome.caller


def test_a_second_use_is_refused_and_says_by_whom_and_when(registry: Registry, clock: Clock) -> None:
    invite(registry)
    Invites(registry).join(INVITE, ALICE)
    used_at, clock.now = clock.now, clock.now + 60
    outcome = Invites(registry).join(INVITE, BOB)
    assert isinstance(outcome, Refused)
    assert outcome.reason == "used"
    assert outcome.used is not None
    assert (outcome.used.public_key, outcome.used.used_at) == (ALICE, used_at)
    assert registry.caller(BOB) is None


def test_the_key_that_has_joined_may_come_again_with_its_invite(registry: Registry) -> None:
    invite(registry)
    first = Invites(registry).join(INVITE, ALICE)
    assert Invites(registry).join(INVITE, ALICE) == first


def test_an_invite_expires(registry: Registry, clock: Clock) -> None:
    invite(registry)
    clock.now += 900
    assert Invites(registry).join(INVITE, ALICE) == Refused("expired")
    assert registry.callers() == []


def test_the_secret_of_a_spent_invite_is_kept_so_that_its_holder_can_be_told(registry: Registry) -> None:
    invite(registry)
    Invites(registry).join(INVITE, ALICE)
    assert Invites(registry).psk(INVITE) == PSK
    assert Invites(registry).psk(b"x" * 16) is None


def test_of_two_joins_that_race_exactly_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    first = Registry.open(path, KEY)
    for round_ in range(20):
        invite_id = bytes([round_]) * 16
        invite(first, invite_id, f"m{round_}", f"m{round_}")
        start = threading.Barrier(4)
        outcomes: list[object] = []

        def race(number: int, invite_id: bytes, start: threading.Barrier, outcomes: list[object]) -> None:
            mine = Registry.open(path, KEY)
            start.wait(10)
            outcomes.append(Invites(mine).join(invite_id, bytes([number, invite_id[0]]) * 16))
            mine.close()

        threads = [threading.Thread(target=race, args=(n, invite_id, start, outcomes)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sum(isinstance(outcome, Joined) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Refused) and outcome.reason == "used" for outcome in outcomes) == 3
    assert len(first.callers()) == 20
    first.close()


def test_a_name_is_given_once(registry: Registry) -> None:
    invite(registry)
    Invites(registry).join(INVITE, ALICE)
    with pytest.raises(TakenError, match="laptop already") as caught:
        invite(registry, b"j" * 16)
    assert "confided revoke laptop" in (caught.value.hint or "")


def test_a_new_invite_for_a_name_replaces_the_unused_one(registry: Registry) -> None:
    invite(registry)
    invite(registry, b"j" * 16)
    assert Invites(registry).join(INVITE, ALICE) == Refused("expired")
    assert isinstance(Invites(registry).join(b"j" * 16, ALICE), Joined)


def test_a_revoked_name_is_free_again_and_the_key_stays_out(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="laptop", added_by="line")
    assert registry.revoke("laptop") is not None
    assert registry.revoke("laptop") is None
    known = registry.caller(ALICE)
    assert known is not None
    assert known.revoked_at is not None
    registry.add_caller(BOB, Grants("laptop"), space="laptop", added_by="line")
    assert [caller.public_key for caller in registry.callers()] == [BOB]


def test_machines_of_one_space_share_its_id(registry: Registry) -> None:
    one = registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    two = registry.add_caller(BOB, Grants("desktop", "read"), space="home", added_by="line")
    assert one.space_id == two.space_id


def test_an_enrolled_key_is_not_added_twice(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="laptop", added_by="line")
    with pytest.raises(TakenError, match="enrolled already, as laptop"):
        registry.add_caller(ALICE, Grants("other"), space="other", added_by="line")
    assert registry.spaces().keys() == {"laptop"}


def test_another_process_sees_and_makes_changes(tmp_path: Path, registry: Registry) -> None:
    before = registry.version()
    code = (
        "import sys; from pathlib import Path; from confide_daemon.grants import Grants; from confide_daemon.registry import Registry\n"
        "r = Registry.open(Path(sys.argv[1]), bytes(range(32)))\n"
        "r.add_caller(b'a' * 32, Grants('laptop'), space='laptop', added_by='line'); r.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "registry.db")], check=True, timeout=60)
    assert registry.version() != before
    assert registry.caller(ALICE) is not None


def test_the_file_is_private_and_tells_nothing(tmp_path: Path, registry: Registry) -> None:
    invite(registry, alias="a-telling-name", space="a-telling-space")
    Invites(registry).join(INVITE, ALICE)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
        assert b"telling" not in data
        assert PSK not in data
        assert not data.startswith(b"SQLite format 3")


def test_another_key_does_not_open_it(tmp_path: Path, registry: Registry) -> None:
    registry.close()
    with pytest.raises(StorageError, match="key") as caught:
        Registry.open(tmp_path / "registry.db", bytes(32))
    assert caught.value.exit_code == 8


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="create"):
        Registry.open(tmp_path / "registry.db", KEY)


def test_a_newer_version_s_registry_is_left_alone(tmp_path: Path, registry: Registry) -> None:
    registry._database.pragma("user_version", 99)
    registry.close()
    with pytest.raises(StorageError, match="newer version"):
        Registry.open(tmp_path / "registry.db", KEY)


def test_a_refused_join_leaves_the_machine_as_it_was(registry: Registry) -> None:
    """An enrolled machine that is refused, since another took the invite's name meanwhile, is still enrolled."""
    mine = registry.add_caller(ALICE, Grants("laptop"), space="laptop", added_by="line")
    Invites(registry).add(INVITE, PSK, Grants("desk"), space="laptop", ttl_s=900)
    registry.add_caller(BOB, Grants("desk"), space="laptop", added_by="line")
    assert isinstance(Invites(registry).join(INVITE, ALICE), Refused)
    assert registry.caller(ALICE) == mine
