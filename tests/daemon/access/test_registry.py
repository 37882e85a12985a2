"""The registry: callers, invites and spaces, from several threads and processes at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.daemon.registries import ALICE, BOB, KEY
from tests.support.deadline import DEADLINE_S

from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry, create, open_state
from confide_daemon.access.registry_invites import INVITE_MEMORY_S, Invites, JoinedInvite, Refused
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError, StorageError, TakenError
from confide_daemon.store.database import connect

INVITE = b"i" * 16
PSK = b"the-psk-of-this-invite-is-secret"


def invite(registry: Registry, invite_id: bytes = INVITE, alias: str = "laptop", space: str = "laptop") -> None:
    Invites(registry).add(invite_id, PSK, Grants(alias), space=space, ttl_s=900)


def test_a_join_enrolls_the_key_in_a_new_space_and_spends_the_invite(registry: Registry) -> None:
    invite(registry)
    outcome = Invites(registry).join(INVITE, ALICE)
    assert isinstance(outcome, JoinedInvite)
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
    assert outcome.used_invite is not None
    assert (outcome.used_invite.public_key, outcome.used_invite.used_at) == (ALICE, used_at)
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
            start.wait(DEADLINE_S)
            outcomes.append(Invites(mine).join(invite_id, bytes([number, invite_id[0]]) * 16))
            mine.close()

        threads = [threading.Thread(target=race, args=(n, invite_id, start, outcomes)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sum(isinstance(outcome, JoinedInvite) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Refused) and outcome.reason == "used" for outcome in outcomes) == 3
    assert len(first.callers()) == 20
    first.close()


def test_a_name_is_given_once(registry: Registry) -> None:
    invite(registry)
    Invites(registry).join(INVITE, ALICE)
    with pytest.raises(TakenError, match="laptop already") as caught:
        invite(registry, b"j" * 16)
    assert "confided device rm laptop" in (caught.value.hint or "")


def test_a_new_invite_for_a_name_replaces_the_unused_one(registry: Registry) -> None:
    invite(registry)
    invite(registry, b"j" * 16)
    assert Invites(registry).join(INVITE, ALICE) == Refused("expired")
    assert isinstance(Invites(registry).join(b"j" * 16, ALICE), JoinedInvite)


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
        "import sys; from pathlib import Path; from confide_daemon.access.enrolled_callers import Grants\n"
        "from confide_daemon.access.registry import Registry\n"
        "r = Registry.open(Path(sys.argv[1]), bytes(range(32)))\n"
        "r.add_caller(b'a' * 32, Grants('laptop'), space='laptop', added_by='line'); r.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "registry.db")], check=True, timeout=DEADLINE_S)
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


def test_a_name_that_is_taken_by_a_device_or_by_an_open_invite_is_refused_as_that(registry: Registry) -> None:
    """The error names the device of this space, or the open invite if no device has joined by it yet."""
    registry.add_caller(ALICE, Grants("alice"), space="home", added_by="line")
    registry.add_caller(BOB, Grants("bob"), space="home", added_by="line")
    invites = Invites(registry)
    invites.add(b"i" * 16, b"p" * 32, Grants("tablet"), space="home", ttl_s=900)
    for name, problem in (
        ("bob", "a device of this space is named bob"),
        ("tablet", "an invite into this space for tablet is open"),
    ):
        with pytest.raises(TakenError, match=problem):
            invites.add_for(ALICE, b"j" * 16, b"q" * 32, alias=name, scope="write", ttl_s=900)


def test_an_invite_of_last_week_is_unknown_although_no_other_was_made_since(registry: Registry, clock: Clock) -> None:
    """Nobody has to clear it away first: neither a used one nor one that nobody used."""
    invites, unused = Invites(registry), b"u" * 16
    invite(registry)
    invite(registry, unused, "desktop", "desktop")
    invites.join(INVITE, ALICE)
    clock.now += INVITE_MEMORY_S + 900 - 1
    assert invites.psk(unused) == PSK
    clock.now += 2
    assert invites.psk(INVITE) is None
    assert invites.psk(unused) is None
    assert invites.find_used(INVITE) is None
    assert invites.join(INVITE, ALICE) == Refused("expired")


def test_whoever_watches_a_registry_that_cannot_be_read_is_told_as_whoever_reads_it(registry: Registry) -> None:
    registry.close()
    for look in (registry.version, registry.callers):
        with pytest.raises(StorageError, match="cannot read the registry"):
            look()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_goes_while_it_is_open_takes_no_more_writes(
    tmp_path: Path, registry: Registry, is_replaced: bool
) -> None:
    """A join that it took would last as long as the process. Who follows the file hears of it, and /health says so."""
    invite(registry)
    (file,) = tmp_path.glob("*.db")
    if is_replaced:
        shutil.copy(file, tmp_path / "other")
        (tmp_path / "other").rename(file)
    else:
        file.unlink()
    with pytest.raises(StorageError, match="its file was deleted or replaced while it was open"):
        Invites(registry).join(INVITE, ALICE)
    with pytest.raises(StorageError, match="its file was deleted or replaced while it was open"):
        registry.version()
    assert registry.caller(ALICE) is None


def test_a_folder_that_lost_its_registry_gets_no_empty_one(tmp_path: Path) -> None:
    """It would know no device of the databases beside it, and all would seem to be well."""
    folder = DataFolder(tmp_path / "data")
    create(folder)
    folder.space("s").write_bytes(b"a database")
    folder.registry.unlink()
    for made in (create, open_state):
        with pytest.raises(DataFolderError, match=r"holds databases but no registry\.db"):
            made(folder)
    assert not folder.registry.exists()
    folder.node.write_text("node-1")  # a copy of what a store has, which brings the registry too
    create(folder)


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


# What a version 1 left behind

VERSION_1 = """
CREATE TABLE spaces (name TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_at REAL NOT NULL) STRICT;
CREATE TABLE callers (
  public_key BLOB PRIMARY KEY CHECK (length(public_key) = 32),
  alias TEXT NOT NULL,
  space TEXT NOT NULL REFERENCES spaces (name),
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
  added_by TEXT NOT NULL CHECK (added_by IN ('invite', 'line', 'file')),
  added_at REAL NOT NULL,
  revoked_at REAL
) STRICT;
CREATE UNIQUE INDEX callers_alias ON callers (alias) WHERE revoked_at IS NULL;
CREATE TABLE invites (
  invite_id BLOB PRIMARY KEY, psk BLOB NOT NULL, alias TEXT NOT NULL, space TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')), created_at REAL NOT NULL, expires_at REAL NOT NULL
) STRICT;
CREATE TABLE used_invites (
  invite_id BLOB PRIMARY KEY, psk BLOB NOT NULL, alias TEXT NOT NULL, public_key BLOB NOT NULL, used_at REAL NOT NULL
) STRICT;
INSERT INTO spaces VALUES ('home', '0011223344556677', 1000.0);
INSERT INTO callers VALUES (CAST('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' AS BLOB), 'laptop', 'home', 'admin', 'invite', 1000.0, NULL);
INSERT INTO callers VALUES (CAST('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' AS BLOB), 'old', 'home', 'read', 'line', 1000.0, 2000.0);
INSERT INTO invites VALUES (CAST('iiiiiiiiiiiiiiii' AS BLOB), CAST('the-psk-of-this-invite-is-secret' AS BLOB), 'desk', 'home', 'write',
                            999000.0, 1001000.0);
PRAGMA user_version = 1;
"""


def test_a_file_of_version_1_keeps_its_callers_invites_and_rights(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "registry.db"
    old = connect(path, KEY, writer=True)
    old.execute(VERSION_1)
    old.close()
    for _ in range(2):  # the second time there is nothing left to do
        registry = Registry.open(path, KEY, clock=clock)
        laptop = registry.caller(ALICE)
        assert laptop is not None
        assert laptop.grants == Grants("laptop", "admin", None, None)
        assert (laptop.space_id, laptop.added_at, laptop.expires_at) == ("0011223344556677", 1000.0, None)
        assert laptop.refusal_reason(clock.now) is None
        revoked = registry.caller(BOB)
        assert revoked is not None
        assert revoked.refusal_reason(clock.now) == "revoked"
        registry.close()
    registry = Registry.open(path, KEY, clock=clock)
    outcome = Invites(registry).join(INVITE, b"c" * 32)
    assert isinstance(outcome, JoinedInvite)
    assert outcome.caller.grants == Grants("desk")
    assert outcome.caller.refusal_reason(clock.now) is None
    registry.close()


def test_an_upgrade_that_breaks_in_the_middle_leaves_the_file_as_it_was(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "registry.db"
    old = connect(path, KEY, writer=True)
    old.execute(VERSION_1 + "CREATE TABLE audit (something TEXT);")  # in the way of the last step
    old.close()
    with pytest.raises(StorageError, match="upgrade the registry"):
        Registry.open(path, KEY, clock=clock)
    again = connect(path, KEY, writer=True)
    assert again.pragma("user_version") == 1
    again.execute("DROP TABLE audit")
    again.close()
    registry = Registry.open(path, KEY, clock=clock)
    assert registry.caller_named("laptop") is not None
    registry.close()


# What a caller may do, and for how long


def test_grants_come_with_the_invite_and_can_be_changed(registry: Registry, clock: Clock) -> None:
    wanted = Grants("laptop", "read", frozenset({"app", "ümlaut"}), frozenset({"memory"}))
    Invites(registry).add(INVITE, PSK, wanted, space="laptop", ttl_s=900, caller_expires_at=clock.now + 500)
    outcome = Invites(registry).join(INVITE, ALICE)
    assert isinstance(outcome, JoinedInvite)
    assert outcome.caller.grants == wanted
    changed = registry.grant("laptop", lambda was: (Grants(was.alias, "write", frozenset(), None), None))
    assert changed is not None
    assert changed == registry.caller(ALICE)
    assert (changed.grants, changed.expires_at) == (Grants("laptop", "write", frozenset(), None), None)
    assert registry.grant("nobody", lambda was: (was.grants, None)) is None


def test_an_access_ends_with_its_time(registry: Registry, clock: Clock) -> None:
    caller = registry.add_caller(ALICE, Grants("laptop"), space="l", added_by="line", expires_at=clock.now + 60)
    assert caller.refusal_reason(clock.now + 59) is None
    assert caller.refusal_reason(clock.now + 60) == "expired"


def test_who_joins_with_an_invite_to_be_approved_waits(registry: Registry, clock: Clock) -> None:
    Invites(registry).add(INVITE, PSK, Grants("laptop"), space="laptop", ttl_s=900, needs_approval=True)
    for _ in range(2):  # also when it comes again with the same invite
        outcome = Invites(registry).join(INVITE, ALICE)
        assert isinstance(outcome, JoinedInvite)
        assert outcome.caller.refusal_reason(clock.now) == "disabled"
    approved = registry.approve(ALICE)
    assert approved is not None
    assert approved.refusal_reason(clock.now) is None
    clock.now += 60
    assert registry.approve(ALICE) == approved  # again changes nothing
    assert registry.approve(BOB) is None


def test_a_caller_gets_another_name(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop", "read"), space="home", added_by="line")
    registry.add_caller(BOB, Grants("desk"), space="home", added_by="line")
    renamed = registry.rename("laptop", "work")
    assert renamed is not None
    assert (renamed.alias, renamed.grants.alias, renamed.public_key) == ("work", "work", ALICE)
    assert registry.caller_named("laptop") is None
    with pytest.raises(TakenError, match="desk already"):
        registry.rename("work", "desk")
    assert registry.rename("laptop", "other") is None


def test_an_open_invite_is_listed_without_its_secret_and_can_be_taken_back(registry: Registry, clock: Clock) -> None:
    invite(registry)
    (listed,) = Invites(registry).open_ones()
    assert listed.alias == "laptop"
    assert PSK not in repr(listed).encode()
    assert Invites(registry).remove("laptop") == listed
    assert Invites(registry).remove("laptop") is None
    assert Invites(registry).join(INVITE, ALICE) == Refused("expired")
    invite(registry)
    clock.now += 900
    assert Invites(registry).open_ones() == []
    assert Invites(registry).remove("laptop") is None


# A caller's new key


def test_a_successor_takes_the_place_of_the_old_key_with_everything_it_had(registry: Registry, clock: Clock) -> None:
    grants = Grants("laptop", "read", frozenset({"app"}), frozenset({"memory"}))
    old = registry.add_caller(ALICE, grants, space="home", added_by="line", expires_at=clock.now + 500)
    registry.name_successor(ALICE, BOB, session="s")
    registry.name_successor(ALICE, BOB, session="s")  # a client that got no answer asks again
    assert registry.caller(BOB) is None
    heir = registry.predecessor(BOB)
    assert heir is not None
    assert heir.public_key == ALICE
    new = registry.succeed(BOB)
    assert new is not None
    assert (new.public_key, new.grants, new.space_id, new.expires_at) == (BOB, grants, old.space_id, old.expires_at)
    gone = registry.caller(ALICE)
    assert gone is not None
    assert gone.refusal_reason(clock.now) == "rotated"
    assert [caller.public_key for caller in registry.callers()] == [BOB]
    assert registry.succeed(BOB) == new  # a second connection of the new key, at the same moment
    assert registry.succeed(b"c" * 32) is None


def test_another_s_key_cannot_be_named_as_a_successor(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    registry.add_caller(BOB, Grants("desk"), space="home", added_by="line")
    third, fourth = b"c" * 32, b"d" * 32
    with pytest.raises(TakenError, match="known already"):
        registry.name_successor(ALICE, BOB, session="s")
    registry.name_successor(BOB, third, session="s")
    with pytest.raises(TakenError, match="known already"):
        registry.name_successor(ALICE, third, session="s")
    registry.name_successor(BOB, fourth, session="s")  # another in its place, which sets the third free
    assert registry.predecessor(third) is None
    registry.revoke("desk")
    with pytest.raises(TakenError, match="known already"):  # a revoked key does not come back this way
        registry.name_successor(ALICE, BOB, session="s")
    with pytest.raises(TakenError, match="not enrolled"):
        registry.name_successor(BOB, third, session="s")


def test_with_a_caller_its_successor_is_shut_out(registry: Registry, clock: Clock) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    registry.name_successor(ALICE, BOB, session="s")
    registry.revoke("laptop")
    assert registry.predecessor(BOB) is None
    assert registry.succeed(BOB) is None
    gone = registry.caller(ALICE)
    assert gone is not None
    assert gone.refusal_reason(clock.now) == "revoked"


def test_a_successor_that_is_enrolled_by_hand_is_nobody_s_successor(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    registry.name_successor(ALICE, BOB, session="s")
    registry.add_caller(BOB, Grants("desk"), space="home", added_by="line")
    assert registry.predecessor(BOB) is None
    known = registry.caller(BOB)
    assert known is not None
    assert known.alias == "desk"


def test_whose_rights_have_changed_is_known_without_reading_all(registry: Registry, clock: Clock) -> None:
    """Whoever changed them and however, but not that somebody connected."""
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    registry.add_caller(BOB, Grants("desktop"), space="home", added_by="line")
    start = registry.last_change()
    assert registry.changes_since(start) == (start, frozenset())
    registry.grant("laptop", lambda caller: (replace(caller.grants, scope="read"), None))
    after, changed = registry.changes_since(start)
    assert changed == {ALICE}
    with registry.transaction() as database:
        database.execute("UPDATE callers SET last_seen_at = 1.0")
    assert registry.changes_since(after) == (after, frozenset())
    registry.name_successor(ALICE, b"c" * 32, session="s")
    registry.succeed(b"c" * 32)
    registry.revoke("desktop")
    assert registry.changes_since(after)[1] == {ALICE, BOB, b"c" * 32}
    with registry.transaction() as database:
        database.execute("DELETE FROM callers WHERE alias = 'desktop'")
    assert BOB in (registry.changes_since(after)[1] or ())


def test_of_more_changes_than_are_remembered_nothing_is_said(registry: Registry) -> None:
    """Nor where the folder was put back, and has had fewer."""
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    start = registry.last_change()
    with registry.transaction() as database:
        for number in range(4097):
            database.execute("UPDATE callers SET alias = ?", (f"laptop-{number}",))
    assert registry.changes_since(start) == (start + 4097, None)
    assert registry.changes_since(start + 1) == (start + 4097, frozenset([ALICE]))
    assert registry.changes_since(start + 9999)[1] is None


def test_a_reader_does_not_wait_for_a_writer_and_hears_of_it(registry: Registry) -> None:
    """A handshake looks a caller up while another thread is in the middle of a transaction."""
    before = registry.version()
    with registry.transaction() as database:
        database.execute("INSERT INTO spaces VALUES ('x', 'y', 0.0)")
        found: list[object] = []
        looking = threading.Thread(target=lambda: found.append(registry.caller(ALICE)))
        looking.start()
        looking.join(10)
        assert found == [None]
    assert registry.version() != before
