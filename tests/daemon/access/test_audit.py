"""The audit log: what is in it, what is not, and that nobody can wash it out."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.daemon.loopback import Machine, serving
from tests.support.daemon.registries import ALICE, BOB, KEY
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import DeniedError
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_daemon.access import audit
from confide_daemon.access.audit import AuditEntry, AuditLog
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites
from confide_daemon.errors import TakenError


def brief(entry: AuditEntry) -> tuple[str, str | None]:
    return entry.event, entry.caller


def test_every_change_is_written_with_who_and_what(registry: Registry, clock: Clock) -> None:
    invites = Invites(registry)
    wanted = Grants("laptop", "read", frozenset({"app"}))
    invites.add(b"i" * 16, b"p" * 32, wanted, space="laptop", ttl_s=900, needs_approval=True)
    invites.join(b"i" * 16, ALICE)
    registry.approve(ALICE)
    clock.now += 60
    registry.rename("laptop", "work")
    registry.grant("work", lambda was: (Grants(was.alias, "write"), None))
    registry.name_successor(ALICE, BOB, session="5e55")
    registry.succeed(BOB)
    registry.revoke("work")
    invites.add(b"j" * 16, b"p" * 32, Grants("desk"), space="desk", ttl_s=900)
    invites.remove("desk")
    found = registry.audit_entries()
    assert [brief(entry) for entry in found] == [
        ("invited", "laptop"),
        ("joined", "laptop"),
        ("approved", "laptop"),
        ("renamed", "work"),
        ("granted", "work"),
        ("rotating", "work"),
        ("rotated", "work"),
        ("revoked", "work"),
        ("invited", "desk"),
        ("uninvited", "desk"),
    ]
    by_event = {entry.event: entry for entry in found[:8]}
    assert by_event["invited"].detail == "scope read; projects app; to be approved"
    assert by_event["joined"].fingerprint == fingerprint_words(ALICE)
    assert by_event["renamed"].detail == "was laptop"
    assert by_event["granted"].detail == "scope write"
    assert by_event["rotating"].session == "5e55"
    assert by_event["rotated"].fingerprint == fingerprint_words(BOB)
    assert registry.audit_entries(since=clock.now)[0].event == "renamed"


def test_a_change_that_fails_is_not_in_it(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    with pytest.raises(TakenError):
        registry.add_caller(BOB, Grants("laptop"), space="home", added_by="line")
    assert [brief(entry) for entry in registry.audit_entries()] == [("added", "laptop")]


def test_one_caller_s_rows_include_those_under_its_earlier_name(registry: Registry) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    registry.add_caller(BOB, Grants("desk"), space="home", added_by="line")
    registry.rename("laptop", "work")
    assert [brief(entry) for entry in registry.audit_entries(alias="work")] == [
        ("added", "laptop"),
        ("renamed", "work"),
    ]


async def test_refusals_of_a_key_are_counted_in_one_row_a_minute(registry: Registry, clock: Clock) -> None:
    log = AuditLog(registry.transaction, clock=clock)
    for _ in range(300):
        log.log_refusal(ALICE, "unknown")
        clock.now += 0.1
    await log.flush()
    for _ in range(300):
        log.log_refusal(ALICE, "unknown")
        clock.now += 0.15
    await log.flush()
    first, second = registry.audit_entries()
    assert first.count + second.count == 600
    assert first.fingerprint == second.fingerprint == fingerprint_words(ALICE)
    assert first.last_at - first.at <= 60 <= second.at - first.at


async def test_a_flood_of_strange_keys_washes_nothing_out(registry: Registry, clock: Clock) -> None:
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    log = AuditLog(registry.transaction, clock=clock)
    log.log_connection("laptop", ALICE, "5e55")
    for number in range(3000):
        log.log_refusal(number.to_bytes(32, "big"), "unknown")
    await log.flush()
    found = registry.audit_entries()
    assert len(found) <= 2 + audit.KEYS_PER_SPAN + 1
    assert {"added", "connected"} <= {entry.event for entry in found}
    assert sum(entry.count for entry in found if entry.event == "refused") == 3000


async def test_the_log_is_bounded_each_kind_by_itself(
    registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "KEPT", {"change": 3, "session": 4, "refusal": 2})
    log = AuditLog(registry.transaction, clock=clock)
    for number in range(10):
        registry.add_caller(bytes([number]) * 32, Grants(f"m{number}"), space="home", added_by="line")
        log.log_connection(f"m{number}", bytes([number]) * 32, f"session{number}")
        log.log_refusal(bytes([100 + number]) * 32, "unknown")
    await log.flush()
    by_kind = [entry.event for entry in registry.audit_entries()]
    assert (by_kind.count("added"), by_kind.count("connected"), by_kind.count("refused")) == (3, 4, 2)
    assert [entry.caller for entry in registry.audit_entries() if entry.event == "connected"] == [
        "m6",
        "m7",
        "m8",
        "m9",
    ]


async def test_a_caller_that_invites_without_end_washes_out_its_own_rows_alone(
    registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by machines that came by its invites, under new keys of its own, and by sessions: it is one hand in all of them."""
    monkeypatch.setattr(audit, "KEPT", {"change": 60, "session": 60, "refusal": 60})
    invites, log = Invites(registry), AuditLog(registry.transaction, clock=clock)
    greedy, keys = (bytes([200]) * 32, iter(number.to_bytes(32, "big") for number in range(10**6)))

    def invite(inviter: bytes, name: str) -> bytes:
        invite_id = next(keys)[-16:]
        invites.add_for(inviter, invite_id, b"p" * 32, alias=name, scope="write", ttl_s=900)
        return invite_id

    for number in range(20):
        registry.add_caller(bytes([100 + number]) * 32, Grants(f"m{number}"), space="home", added_by="line")
        log.log_connection(f"m{number}", bytes([100 + number]) * 32, f"session{number}")
    registry.add_caller(greedy, Grants("greedy"), space="theirs", added_by="line")
    invite(bytes([100]) * 32, "modest")
    await log.flush()
    before = registry.audit_entries()
    for number in range(100):
        child, renewed = next(keys), next(keys)
        invites.join(invite(greedy, f"child{number}"), child)
        invite(child, f"grandchild{number}")
        registry.name_successor(greedy, renewed, session="5e55")
        registry.succeed(renewed)
        greedy = renewed
        log.log_connection("greedy", greedy, f"storm{number}")
        log.log_connection(f"child{number}", child, f"storm{number}")
    await log.flush()
    found = registry.audit_entries()
    assert [entry for entry in found if entry in before] == before
    assert len(found) == 120
    assert {"invited", "joined", "rotated"} <= {entry.event for entry in found if entry not in before}
    assert counts(registry) == counted(registry)


async def test_one_caller_alone_has_the_whole_log(registry: Registry, clock: Clock) -> None:
    """The bound is of what it can take from others."""
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    log = AuditLog(registry.transaction, clock=clock)
    for number in range(audit.KEPT["session"] + 10):
        log.log_connection("laptop", ALICE, f"session{number}")
    await log.flush()
    sessions = [entry.session for entry in registry.audit_entries() if entry.event == "connected"]
    assert (len(sessions), sessions[-1]) == (audit.KEPT["session"], f"session{audit.KEPT['session'] + 9}")


def steps_of_a_row(registry: Registry, event: audit.Event, by: bytes | None) -> int:
    """What SQLite does to write one row more, counted by its own machine."""
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    with registry.transaction() as database:
        database.set_progress_handler(step, 1)
        try:
            audit.record(database, 1e6, event, alias="laptop", by=by)
        finally:
            database.set_progress_handler(None)
    return steps


@pytest.mark.parametrize("event", ["connected", "invited"])
@pytest.mark.parametrize("by", [ALICE, b"m" * 32, None], ids=["greedy", "modest", "operator"])
def test_a_row_costs_a_full_log_what_it_costs_a_small_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, event: audit.Event, by: bytes | None
) -> None:
    """Whoever brings it about: nothing is counted anew, however many rows and callers there are."""
    costs = []
    for kept in (40, 2000):
        monkeypatch.setattr(audit, "KEPT", dict.fromkeys(audit.KEPT, kept))
        with registry.transaction() as database:
            for number in range(kept):
                hand = ALICE if number % 2 else number.to_bytes(32, "big")
                audit.record(database, 1e6, event, alias="laptop", by=hand)
        costs.append(max(steps_of_a_row(registry, event, by) for _ in range(3)))
    small, full = costs
    assert full <= 1.5 * small
    assert counts(registry) == counted(registry)


def counts(registry: Registry) -> set[tuple[str, bytes, int]]:
    """The rows of each kind and caller as they are kept."""
    with registry.transaction() as database:
        return set(database.execute("SELECT kind, actor, rows FROM audit_counts"))


def counted(registry: Registry) -> set[tuple[str, bytes, int]]:
    """The same from the rows themselves."""
    with registry.transaction() as database:
        by_actor = "SELECT kind, actor, count(*) FROM audit WHERE actor IS NOT NULL GROUP BY kind, actor"
        return set(database.execute(f"{by_actor} UNION SELECT kind, x'', count(*) FROM audit GROUP BY kind"))


def test_a_log_from_before_is_counted_once(tmp_path: Path, clock: Clock) -> None:
    """A registry of the version before has no counts: they are made when it is opened, and kept from there on."""
    path = tmp_path / "before.db"
    registry = Registry.open(path, KEY, clock=clock)
    for hand in (ALICE, ALICE, BOB, None):
        with registry.transaction() as database:
            audit.record(database, 1e6, "invited", alias="laptop", by=hand)
            audit.record(database, 1e6, "connected", alias="laptop", by=hand)
    with registry.transaction() as database:
        database.execute("DROP TABLE audit_counts")
        # What came after it.
        database.execute("DROP TABLE migration")
        for table in ("applications", "registration", "sign_ins", "codes", "tokens", "daemon_keys", "removed_spaces"):
            database.execute(f"DROP TABLE {table}")
        database.execute("DROP TRIGGER caller_added; DROP TRIGGER caller_removed; DROP TRIGGER caller_changed")
        database.execute("DROP TABLE caller_changes")
        database.execute("ALTER TABLE callers DROP COLUMN proxy_version")
        database.execute("ALTER TABLE callers DROP COLUMN gateway")
        database.pragma("user_version", 8)
    registry.close()
    registry = Registry.open(path, KEY, clock=clock)
    assert counts(registry) == counted(registry)
    assert ("change", ALICE, 2) in counts(registry)
    with registry.transaction() as database:
        audit.hand_over(database, ALICE, BOB)
    assert counts(registry) == counted(registry) >= {("change", BOB, 3), ("session", b"", 4)}
    registry.close()


async def test_a_writer_that_cannot_write_loses_rows_and_nothing_else(registry: Registry, clock: Clock) -> None:
    log = AuditLog(registry.transaction, clock=clock)
    with registry.transaction() as database:
        database.execute("ALTER TABLE audit RENAME TO elsewhere")
    log.log_refusal(ALICE, "unknown")
    await log.flush()
    with registry.transaction() as database:
        database.execute("ALTER TABLE elsewhere RENAME TO audit")
    log.log_refusal(ALICE, "unknown")
    await log.flush()
    (row,) = registry.audit_entries()
    assert row.count == 1


async def test_a_batch_whose_thread_has_not_begun_when_the_daemon_ends_is_written(
    registry: Registry, clock: Clock
) -> None:
    """On a busy machine it waits for a thread just when nobody writes any more."""
    one_thread = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(one_thread)
    is_free = threading.Event()
    one_thread.submit(is_free.wait)
    log = AuditLog(registry.transaction, clock=clock)
    writing = asyncio.create_task(log.run())
    log.log_refusal(ALICE, "unknown")
    async with asyncio.timeout(DEADLINE_S):
        while log._waiting:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    is_free.set()
    await log.flush()
    assert [entry.event for entry in registry.audit_entries()] == ["refused"]


async def test_what_a_daemon_sees_is_in_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as daemon:
        registry = daemon.state.registry
        stranger = Identity.generate()
        with pytest.raises(DeniedError):
            await daemon.connect(stranger)
        identity = daemon.enroll("laptop")
        async with Machine(await daemon.connect(identity)) as laptop:
            await laptop.attach("proj")
            session_id = laptop.connection.session_id
        registry.revoke("laptop")
        with pytest.raises(DeniedError):
            await daemon.connect(identity)

        async def has_all() -> list[AuditEntry]:
            while True:
                found = registry.audit_entries()
                if [entry.event for entry in found].count("refused") == 2:
                    return found
                await asyncio.sleep(0.05)

        found = await asyncio.wait_for(has_all(), DEADLINE_S)
    unknown, revoked = (entry for entry in found if entry.event == "refused")
    assert (unknown.detail, unknown.caller) == ("unknown", None)
    assert unknown.fingerprint == fingerprint_words(stranger.public_key)
    assert (revoked.detail, revoked.caller) == ("revoked", "laptop")
    sessions = [entry for entry in found if entry.session == session_id]
    assert [(entry.event, entry.caller) for entry in sessions] == [("connected", "laptop"), ("ended", "laptop")]
