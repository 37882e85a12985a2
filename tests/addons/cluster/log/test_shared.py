"""The registry as one log: what one node changes, all have; of two that do the same at once, one wins; nothing is believed unread."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.logged import Store
from tests.support.deadline import DEADLINE_S

from confide_cluster.daemon.log import log_snapshot
from confide_cluster.daemon.log.replicated_tables import REGISTRY_DERIVED, rows_of, truths
from confide_cluster.daemon.spaces import node_bootstrap
from confide_cluster.daemon.store import Postgres
from confide_cluster.errors import LogError
from confide_cluster.settings import StoreConfig
from confide_crypto.errors import DeniedError, HandshakeError
from confide_crypto.keys.bearer_tokens import digest_of
from confide_crypto.keys.identity import Identity
from confide_daemon.access import space_removal
from confide_daemon.access.authorization import CallerAuthorization, Gate
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.history import upgrades
from confide_daemon.access.registry import Registry, RegistryState, create, open_state
from confide_daemon.access.registry_invites import Invites, JoinedInvite, Refused
from confide_daemon.datadir.credentials import MasterKey
from confide_daemon.datadir.daemon_keys import load
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import EngineError, OvertakenError, RotationError, StorageError, TakenError
from confide_daemon.store import migrations
from confide_daemon.store.database import connect
from confide_http.server.access.applications import Applications
from confide_http.server.access.sign_ins import ApprovedGrant, AuthorizationRequest, Issued, SignIns, words_of

KEYS = [bytes([number]) * 32 for number in range(40)]


class Nodes:
    """Data folders that have the master key of the first in common, and nothing else."""

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self.store = store
        self.config = Postgres(StoreConfig(url=store.url))
        self._stack = stack
        self.first = DataFolder(store.root / "first")
        create(self.first)

    def folder(self, name: str) -> DataFolder:
        folder = DataFolder(self.store.root / name)
        if not folder.root.exists():
            folder.root.mkdir(mode=0o700)
            shutil.copy(self.first.master, folder.master)
        return folder

    def join(self, name: str = "first") -> RegistryState:
        """The opened state of a node, as a daemon has it when it begins."""
        folder = self.folder(name)
        node_bootstrap.join(folder, self.config)
        return self._stack.enter_context(closing(open_state(folder, store=self.config)))


@pytest.fixture
def nodes(store: Store) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(store, stack)


def rows(state: RegistryState) -> dict[str, list[str]]:
    """All truths of a registry."""
    with closing(connect(state.folder.registry, state.master.registry_key(), writer=False)) as connection:
        return {table: list(map(repr, rows_of(connection, table))) for table in truths(connection, REGISTRY_DERIVED)}


def test_a_node_needs_the_master_key_alone(nodes: Nodes) -> None:
    """The registry and the daemon's own key come from the store; what each node changes, the other one has."""
    first = nodes.join()
    first.registry.add_caller(KEYS[0], Grants("laptop"), space="home", added_by="line")
    second = nodes.join("second")
    assert second.identity.public_key == first.identity.public_key
    assert second.registry.caller_named("laptop") is not None
    assert second.registry.revoke("laptop") is not None
    assert first.registry.follow()
    known = first.registry.caller(KEYS[0])
    assert known is not None
    assert known.revoked_at is not None
    assert not first.registry.follow()
    assert rows(first) == rows(second)


def test_a_folder_without_keys_is_no_node_of_an_empty_store(nodes: Nodes) -> None:
    with pytest.raises(StorageError.__base__, match="not set up"):  # type: ignore[type-var]
        node_bootstrap.join(nodes.folder("second"), nodes.config)
    assert not nodes.folder("second").registry.exists()
    assert nodes.store.sql("SELECT count(*) FROM log") == [(0,)]


def test_another_master_key_opens_nothing(nodes: Nodes) -> None:
    nodes.join()
    stranger = nodes.folder("stranger")
    stranger.master.unlink()
    MasterKey.create(stranger.master)
    with pytest.raises(LogError):
        node_bootstrap.join(stranger, nodes.config)


def use(start: threading.Barrier, state: RegistryState, token: bytes, key: bytes, outcomes: list[Any]) -> None:
    start.wait()
    outcomes.append(Invites(state.registry).join(token, key))


def test_one_invite_lets_one_machine_in_whichever_node_it_comes_to(nodes: Nodes) -> None:
    """Used at two nodes at the same moment, many times over: it is spent once, and the other one is told by whom."""
    states = [nodes.join(name) for name in ("first", "second")]
    for number in range(8):
        token = bytes([number]) * 16
        Invites(states[0].registry).add(token, bytes(32), Grants(f"m{number}"), space="home", ttl_s=60.0)
        outcomes: list[Any] = []
        start = threading.Barrier(2)
        threads = [
            threading.Thread(target=use, args=(start, state, token, KEYS[2 * number + at], outcomes))
            for at, state in enumerate(states)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        joined = [one for one in outcomes if isinstance(one, JoinedInvite)]
        refused = [one for one in outcomes if isinstance(one, Refused)]
        assert (len(joined), len(refused)) == (1, 1)
        assert refused[0].reason == "used"
        assert refused[0].used_invite is not None
        assert refused[0].used_invite.public_key == joined[0].caller.public_key
    for state in states:
        state.registry.follow()
    assert rows(states[0]) == rows(states[1])
    assert len(states[0].registry.callers()) == 8


def test_what_nodes_do_in_turn_leaves_equal_copies(nodes: Nodes) -> None:
    """New keys in the place of old ones, renamed, revoked and enrolled again; also at a node that was away and fetches a snapshot."""
    one, other = (nodes.join(name) for name in ("first", "second"))
    for number in range(6):
        one.registry.add_caller(KEYS[number], Grants(f"m{number}"), space=f"s{number % 3}", added_by="line")
    other.registry.rename("m0", "n0")
    one.registry.rename("m1", "m0")
    other.registry.name_successor(KEYS[2], KEYS[20], session="s")
    one.registry.succeed(KEYS[20])
    other.registry.revoke("m3")
    one.registry.add_caller(KEYS[3], Grants("m3"), space="s1", added_by="line")
    other.registry.grant("m4", lambda was: (Grants("m4", "read", frozenset({"p"})), None))
    with pytest.raises(TakenError):
        other.registry.add_caller(KEYS[30], Grants("m4"), space="s1", added_by="line")
    third = nodes.join("third")
    assert one.registry.shared is not None
    one.registry.follow()
    one.registry.shared.take_snapshot()
    assert nodes.store.sql("SELECT head - base FROM log WHERE id = 'registry'") == [(0,)]
    other.registry.revoke("m5")
    for number in range(6, 10):
        other.registry.add_caller(KEYS[number], Grants(f"m{number}"), space="s9", added_by="line")
    other.registry.shared.take_snapshot()  # type: ignore[union-attr]
    third.registry.revoke("m6") if third.registry.follow() else pytest.fail("it was up to date")
    for state in (one, other):
        state.registry.follow()
    assert rows(one) == rows(other) == rows(third)
    # A daemon asks for whom something has changed: it is told of all that came from elsewhere too.
    last, changed = third.registry.changes_since(0)
    assert changed is None or set(KEYS[:10]) <= changed
    assert last


CHANGED = {
    "a byte": "UPDATE entry SET body = set_byte(body, 40, get_byte(body, 40) # 1) WHERE number = 2",
    "left out": "DELETE FROM entry WHERE number = 2",
    "of another schema": "UPDATE entry SET schema = schema - 1 WHERE number = 2",
    "a byte of the snapshot": "UPDATE part SET body = set_byte(body, 5000, get_byte(body, 5000) # 1) WHERE part = 1",
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_changed_in_the_engine_is_refused(nodes: Nodes, what: str) -> None:
    """A node that begins, and one that follows: neither believes it, and the one that serves says so."""
    first = nodes.join()
    reader = nodes.join("second")
    for number in range(3):
        first.registry.add_caller(KEYS[number], Grants(f"m{number}"), space="home", added_by="line")
    nodes.store.sql(CHANGED[what])
    with pytest.raises(StorageError):
        nodes.join("third")
    if "snapshot" not in what:
        with pytest.raises(StorageError):
            reader.registry.follow()
        assert reader.registry.shared is not None
        assert reader.registry.shared.failure is not None
        assert reader.registry.caller_named("m2") is None


def test_what_a_command_writes_while_the_daemon_looks_is_no_store_that_was_put_back(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have one copy: behind the daemon's look at the log the command has moved it on."""
    daemon, command = nodes.join(), nodes.join()
    shared = daemon.registry.shared
    assert shared is not None
    look, written = shared._look, iter([KEYS[0], KEYS[1]])

    def slow(*args: Any) -> Any:
        found = look(*args)
        for key in written:
            command.registry.add_caller(key, Grants(f"m{key[0]}"), space="home", added_by="line")
        return found

    monkeypatch.setattr(shared, "_look", slow)
    daemon.registry.follow()
    assert not daemon.registry.is_put_back
    daemon.registry.add_caller(KEYS[2], Grants("m2"), space="home", added_by="line")
    assert [one.alias for one in daemon.registry.callers()] == ["m0", "m1", "m2"]


def test_what_the_engine_has_lost_is_kept_beside(nodes: Nodes) -> None:
    """It came back from an older copy: all nodes go on from there, and what one had more is in a file of its own. Who came by another node
    meanwhile is to be approved."""
    first = nodes.join()
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    ((head,),) = nodes.store.sql("SELECT head FROM log")
    first.registry.add_caller(KEYS[1], Grants("m1"), space="home", added_by="line")
    nodes.store.sql("DELETE FROM entry WHERE number > %s", head)
    nodes.store.sql("UPDATE log SET head = %s", head)
    second = nodes.join("second")
    second.registry.add_caller(KEYS[2], Grants("m2"), space="home", added_by="line")
    with pytest.raises(EngineError):
        first.registry.revoke("m0")  # it does not go on beside the others
    assert first.registry.follow()
    assert [(one.alias, one.approved_at is None) for one in first.registry.callers()] == [("m0", False), ("m2", True)]
    assert first.registry.shared is not None
    (kept,) = first.registry.shared.kept_files
    assert kept.stat().st_mode & 0o077 == 0
    with closing(connect(kept, first.master.registry_key(), writer=False)) as connection:
        assert connection.execute("SELECT count(*) FROM callers WHERE alias = 'm1'").get == 1


class Taken:
    """Access that is taken away, each in another way, behind a place to which the store is put back then."""

    def __init__(self, state: RegistryState, put_back: Callable[[], Callable[[], None]]) -> None:
        registry = self.registry = state.registry
        for number, name in enumerate(("laptop", "desk", "narrowed", "moved", "rotated")):
            registry.add_caller(KEYS[number], Grants(name), space="home", added_by="line")
        registry.add_caller(KEYS[9], Grants("other"), space="away", added_by="line")
        invites = Invites(registry)
        for number, name in enumerate(("spent", "gone"), 20):
            invites.add(KEYS[number], KEYS[number], Grants(name), space="home", ttl_s=3600)
        self.applications, self.sign_ins = Applications(registry), SignIns(registry)
        asked = AuthorizationRequest("https://a.example/", True, None, "write", "C" * 43, "https://b.example/mcp")
        self.programs = [
            self.applications.add(name, space="home", redirects=["https://a.example/"]) for name in ("Ended", "Used")
        ]
        self.issued = []
        for program in self.programs:
            identifier = self.sign_ins.ask(program, asked)
            found = self.sign_ins.find_by_words(words_of(identifier), "home")
            assert found is not None
            assert self.sign_ins.approve(
                found, ApprovedGrant(program.name, "write", None, "untrusted", 9, KEYS[1].hex())
            )
            code = self.sign_ins.hand_out(identifier)
            assert code is not None
            self.issued.append(self.sign_ins.exchange(code))
        self.old = put_back()
        registry.revoke("laptop")
        registry.grant("narrowed", lambda _: (Grants("narrowed", "read", frozenset({"app"})), 9e9))
        invites.add(KEYS[22], KEYS[22], Grants("moved-2"), space="away", ttl_s=3600)
        assert isinstance(invites.join(KEYS[22], KEYS[3]), JoinedInvite)
        registry.name_successor(KEYS[4], KEYS[5], session="s")
        registry.succeed(KEYS[5])
        assert isinstance(invites.join(KEYS[20], KEYS[6]), JoinedInvite)
        registry.revoke("spent")
        invites.remove("gone")
        registry.revoke("Ended")
        self.applications.remove("Ended")
        self.next = self.refreshed(1)
        assert self.next is not None

    def refreshed(self, number: int) -> Issued | None:
        issued = self.issued[number]
        assert issued is not None
        found = self.sign_ins.refresh_of(issued.refresh, self.programs[number].id)
        return None if found is None else self.sign_ins.turn_over(found)

    def given_back(self, registry: Registry) -> list[str]:
        """What one may do again."""
        now, found = registry.clock(), []
        found += [one.alias for one in registry.callers() if one.public_key in (KEYS[0], KEYS[4], KEYS[6])]
        callers = {one.public_key: one for one in registry.callers()}
        narrowed = callers[KEYS[2]]
        if (narrowed.scope, narrowed.grants.projects) != ("read", frozenset({"app"})):
            found.append("narrowed")
        if KEYS[3] in callers and callers[KEYS[3]].space == "home" and callers[KEYS[3]].refusal_reason(now) is None:
            found.append("moved")
        found += [one.alias for one in Invites(registry).open_ones()]
        found += [one.alias for one in registry.gateway_clients() if one.alias == "Ended"]
        found += [one.name for one in Applications(registry).all() if one.name == "Ended"]
        old = self.issued[1]
        assert old is not None
        with registry.reading() as database:
            sql = "SELECT 1 FROM tokens WHERE digest = ? AND used_at IS NULL"
            found += ["a used token"] * len(database.execute(sql, (digest_of(old.refresh),)).fetchall())
        return found


def put_back(nodes: Nodes) -> Callable[[], None]:
    """Puts the store back to how it is now, as whoever runs the PostgreSQL can: nothing is forged."""
    tables = {table: nodes.store.sql(f"SELECT * FROM {table}") for table in ("log", "entry", "part")}

    def back() -> None:
        for table in tables:
            nodes.store.sql(f"DELETE FROM {table}")
        for table, found in tables.items():
            for row in found:
                nodes.store.sql(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", *row)

    return back


@pytest.mark.parametrize(
    "how", ["while it runs", "at its start", "another node has gone on", "and brought a snapshot", "again and again"]
)
def test_access_that_was_taken_away_stays_so_whatever_the_store_shows(nodes: Nodes, how: str) -> None:
    """Whoever runs the PostgreSQL puts its log back; and nobody new is let in before a person accepts that."""
    first = nodes.join()
    taken = Taken(first, lambda: put_back(nodes))
    shared = first.registry.shared
    assert shared is not None
    assert taken.given_back(first.registry) == []
    for _ in range(3 if how == "again and again" else 1):
        taken.old()
        if how in ("another node has gone on", "and brought a snapshot"):
            second = nodes.join("second")  # of no file, so that it knows no better
            assert taken.given_back(second.registry) != []
            second.registry.revoke("other")
            second.registry.add_caller(KEYS[30], Grants("stranger"), space="home", added_by="line")
            if how == "and brought a snapshot":
                second.registry.version()
                for number in range(40):
                    second.registry.note_proxy_version(KEYS[1], f"1.{number}")
                assert second.registry.shared is not None
                second.registry.shared.take_snapshot()
        if how == "at its start":
            first = nodes.join()
            shared = first.registry.shared
            assert shared is not None
        else:
            assert first.registry.follow()
        assert taken.given_back(first.registry) == []
    assert not first.registry.follow()
    # It is in the log, for all nodes, and a new one has it from there.
    third = nodes.join("third")
    assert taken.given_back(third.registry) == []
    assert rows(third) == rows(first)
    stranger = first.registry.caller(KEYS[30])
    assert stranger is None or stranger.refusal_reason(first.registry.clock()) == "disabled"
    assert taken.refreshed(0) is None
    # Who was there comes in as before; nobody new does, by whatever door.
    desk = first.registry.caller_named("desk")
    assert desk is not None
    assert desk.refusal_reason(first.registry.clock()) is None
    invites = Invites(first.registry)
    invites.add(KEYS[35], KEYS[35], Grants("new"), space="home", ttl_s=3600)
    with pytest.raises(TakenError, match="put back"):
        first.registry.add_caller(KEYS[36], Grants("newer"), space="home", added_by="line")
    callers = CallerAuthorization(first.registry, first.folder.authorized, Gate(), max_sessions=9)
    with pytest.raises(DeniedError) as refused:
        asyncio.run(callers.admit(KEYS[35], {}, KEYS[35]))
    assert refused.value.reason == "busy"
    assert "store --accept" in str(refused.value.hint)
    assert shared.accept()
    assert asyncio.run(callers.admit(KEYS[35], {}, KEYS[35]))["caller"] == "new"


def test_a_store_that_does_not_take_what_is_carried_over_is_not_believed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nodes.join()
    taken = Taken(first, lambda: put_back(nodes))
    taken.old()
    shared = first.registry.shared
    assert shared is not None
    with monkeypatch.context() as away:

        def refused(*_: object) -> None:
            raise EngineError("it takes nothing")

        away.setattr(shared, "_append", refused)
        for _ in range(2):
            with pytest.raises(EngineError):
                first.registry.follow()
            assert taken.given_back(first.registry) == []
    assert shared.kept_files == []
    assert first.registry.follow()
    assert taken.given_back(first.registry) == []


def test_a_node_that_is_merely_behind_is_told_nothing_of_that(nodes: Nodes) -> None:
    """The log has gone on and dropped what this node has not applied: all is as the others have it."""
    first, second = nodes.join(), nodes.join("second")
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    second.registry.follow()
    first.registry.revoke("m0")
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    first.registry.add_caller(KEYS[1], Grants("m1"), space="home", added_by="line")
    assert first.registry.shared is not None
    first.registry.shared.take_snapshot()
    assert second.registry.follow()
    assert rows(second) == rows(first)
    assert not second.registry.is_put_back


def test_nobody_writes_to_a_copy_alone(nodes: Nodes) -> None:
    """As a command would that finds no store in daemon.toml: it may read, and what it wants to write is refused."""
    nodes.join().registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    with closing(open_state(nodes.first)) as alone:
        assert alone.registry.caller_named("m0") is not None
        with pytest.raises(StorageError, match="names none"):
            alone.registry.revoke("m0")


def test_a_store_that_has_nothing_of_it_is_not_begun_anew(nodes: Nodes) -> None:
    nodes.join().registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    nodes.store.sql("TRUNCATE log, entry, part")
    with pytest.raises(StorageError, match="has nothing of it"):
        nodes.join()


def test_a_registry_from_before_is_kept_beside(nodes: Nodes) -> None:
    """As one that was put back from a backup: the store's is right."""
    state = nodes.join()
    state.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    second = nodes.join("second")
    second.registry.stand_alone()
    first = nodes.join("second")
    assert first.registry.caller_named("m0") is not None
    assert (first.folder.root / "registry.db.before").exists()


def _lost(state: RegistryState, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool) -> None:
    """The next commit is not answered: it was carried out, or never will be."""
    import psycopg

    real = psycopg.Connection.execute

    def execute(self: Any, query: Any, *values: Any, **more: Any) -> Any:
        if query == "COMMIT":
            monkeypatch.setattr(psycopg.Connection, "execute", real)
            if is_committed:
                real(self, query)
            raise psycopg.OperationalError("the connection was closed")
        return real(self, query, *values, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", execute)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_that_is_not_answered_is_not_reasoned_about(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """The caller is told that nobody knows, nothing is here, and what became of it comes from the log."""
    state = nodes.join()
    _lost(state, monkeypatch, is_committed=is_committed)
    with pytest.raises(EngineError):
        state.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    assert state.registry.caller_named("m0") is None
    assert state.registry.follow() is is_committed
    assert (state.registry.caller_named("m0") is not None) is is_committed
    state.registry.add_caller(KEYS[1], Grants("m1"), space="home", added_by="line")
    other = nodes.join("second")
    assert rows(state) == rows(other)


def test_one_that_stands_still_in_a_change_keeps_nobody_waiting_for_long(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that is stopped while it has the row: others go on after some seconds, and what it had begun is in no log."""
    from confide_cluster.daemon.log import shared

    monkeypatch.setattr(shared, "STALL_S", 1)
    one, other = nodes.join(), nodes.join("second")
    has_row, may_go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def stand_still() -> None:
        try:
            with one.registry.transaction() as database:
                database.execute("INSERT INTO spaces VALUES ('half', 'half', 0.0)")
                has_row.set()
                may_go_on.wait(DEADLINE_S)
        except EngineError as error:
            failures.append(error)

    thread = threading.Thread(target=stand_still)
    thread.start()
    has_row.wait(DEADLINE_S)
    other.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    may_go_on.set()
    thread.join()
    assert len(failures) == 1
    assert "half" not in one.registry.spaces()
    one.registry.follow()
    assert rows(one) == rows(other)


def test_what_others_have_written_is_applied_before_the_row_is_taken(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was away keeps nobody waiting while it makes up for that, and has all of it before it writes."""
    from confide_cluster.daemon.log import shared

    one, other = nodes.join(), nodes.join("second")
    for number in range(shared._FEW + 2):
        one.registry.add_caller(KEYS[number], Grants(f"m{number}"), space="home", added_by="line")
    applied = _applied(nodes, monkeypatch)
    with pytest.raises(TakenError):
        other.registry.add_caller(KEYS[30], Grants("m3"), space="home", added_by="line")
    assert applied == [(shared._FEW + 2, True)]
    one.registry.revoke("m3")
    other.registry.add_caller(KEYS[30], Grants("m3"), space="home", added_by="line")
    assert applied[1:] == [(1, False)]
    assert other.registry.follow()  # whoever takes up what is new is told of it
    assert not other.registry.follow()
    one.registry.follow()
    assert rows(one) == rows(other)


def test_what_others_write_is_applied_while_the_row_is_waited_for(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change is before it, and somebody holds the row behind that one."""
    import psycopg

    from confide_cluster.daemon.log import shared

    monkeypatch.setattr(shared, "_FEW", 0)
    one, other = nodes.join(), nodes.join("second")
    applied = _applied(nodes, monkeypatch)
    row = "SELECT 1 FROM log WHERE id = 'registry' FOR UPDATE"
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    def change(state: RegistryState, number: int) -> threading.Thread:
        grants = Grants(f"m{number}")
        return threading.Thread(
            target=lambda: state.registry.add_caller(KEYS[number], grants, space="home", added_by="line")
        )

    with psycopg.connect(nodes.store.url) as first, psycopg.connect(nodes.store.url) as second:
        threads = [change(one, 0), threading.Thread(target=lambda: second.execute(row)), change(other, 1)]
        first.execute(row)
        for number, thread in enumerate(threads, 1):
            thread.start()
            _until(lambda: nodes.store.sql(waiting) == [(number,)])  # noqa: B023 - called at once
        first.rollback()
        _until(lambda: applied == [(1, False)])  # by the one that waits: `second` has the row
        second.rollback()
        for thread in threads:
            thread.join()
    assert applied == [(1, False)]
    one.registry.follow()
    assert rows(one) == rows(other)


def test_a_snapshot_of_the_registry_is_due_by_size_or_by_number(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones behind a megabyte of entries; large ones behind a quarter of what is written then, but never behind too many."""
    from confide_cluster.daemon.log import shared

    state = nodes.join()
    log = state.registry.shared
    assert log is not None
    for number in range(5):
        state.registry.add_caller(KEYS[number], Grants(f"m{number}"), space="home", added_by="line")
    assert not log.is_snapshot_due()
    monkeypatch.setattr(shared, "LEAST_BYTES", 1000)
    assert not log.is_snapshot_due()  # a quarter of the file is more
    monkeypatch.setattr(shared, "SNAPSHOT_SHARE", 10_000)
    assert log.is_snapshot_due()
    monkeypatch.undo()
    monkeypatch.setattr(shared, "MOST_ENTRIES", 5)
    assert log.is_snapshot_due()
    log.take_snapshot()
    assert not log.is_snapshot_due()


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _applied(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many entries are applied at once from now on, and whether the row was free then."""
    from confide_cluster.daemon.log.shared import SharedLog

    found: list[tuple[int, bool]] = []
    whole = SharedLog._apply

    def apply(self: SharedLog, connection: Any, entries: Any) -> None:
        free = nodes.store.sql("SELECT 1 FROM log WHERE id = 'registry' FOR UPDATE SKIP LOCKED")
        whole(self, connection, entries)
        found.append((len(entries), bool(free)))

    monkeypatch.setattr(SharedLog, "_apply", apply)
    return found


def test_a_new_key_of_the_daemon_is_one_on_all_nodes(nodes: Nodes) -> None:
    """Rotated on one, ended on another; of two nodes that begin a rotation at once, one does."""
    first = nodes.join()
    second = nodes.join("second")
    node_bootstrap.rotate(first.folder, nodes.config, keep_s=3600.0)
    second.registry.follow()
    assert node_bootstrap.follow_keys(second.registry, second.folder)
    here, there = load(first.folder), load(second.folder)
    assert here.current.public_key == there.current.public_key != first.identity.public_key
    assert there.rotation is not None
    assert there.rotation.old.public_key == first.identity.public_key
    with pytest.raises(RotationError):
        node_bootstrap.rotate(second.folder, nodes.config, keep_s=3600.0)
    node_bootstrap.retire(second.folder, nodes.config)
    first.registry.follow()
    node_bootstrap.follow_keys(first.registry, first.folder)
    assert load(first.folder).rotation is None
    assert not first.folder.previous.exists()
    assert load(first.folder).current.public_key == here.current.public_key


def test_a_key_that_was_changed_meanwhile_is_not_overwritten(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = nodes.join(), nodes.join("second")
    real: Callable[..., Any] = node_bootstrap.daemon_keys.rotate
    again = [lambda: node_bootstrap.rotate(second.folder, nodes.config, keep_s=3600.0)]

    def rotate(folder: DataFolder, *, keep_s: float) -> Any:
        done = real(folder, keep_s=keep_s)
        if again:
            again.pop()()
        return done

    monkeypatch.setattr(node_bootstrap.daemon_keys, "rotate", rotate)
    with pytest.raises(RotationError, match="another node"):
        node_bootstrap.rotate(first.folder, nodes.config, keep_s=3600.0)
    first.registry.follow()
    node_bootstrap.follow_keys(first.registry, first.folder)
    assert load(first.folder).current.public_key == load(second.folder).current.public_key


def test_the_engine_reads_nothing_of_it(nodes: Nodes) -> None:
    """Neither names nor keys are in what it has on its disk."""
    state = nodes.join()
    state.registry.add_caller(KEYS[7], Grants("canary-name"), space="canary-space", added_by="line")
    state.registry.shared.take_snapshot()  # type: ignore[union-attr]
    dump = nodes.store.postgres.dump(nodes.store.url)
    for secret in (b"canary-name", b"canary-space", KEYS[7], state.identity.public_key, bytes(state.identity.seed)):
        assert secret not in dump
        assert secret.hex().encode() not in dump


def test_a_lost_registry_is_fetched(nodes: Nodes, tmp_path: Path) -> None:
    state = nodes.join()
    state.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    state.close()
    for name in ("registry.db", "registry.db-wal", "registry.db-shm", "identity.key"):
        (nodes.first.root / name).unlink(missing_ok=True)
    again = nodes.join()
    assert again.registry.caller_named("m0") is not None
    assert isinstance(again.identity, Identity)
    assert isinstance(again.registry, Registry)


def test_what_a_node_has_of_a_space_that_was_removed_elsewhere_goes(nodes: Nodes) -> None:
    """And not what it has of one of which the registry merely knows nothing: the store may have lost that."""
    first, second = nodes.join(), nodes.join("second")
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    space_id = first.registry.spaces()["home"]
    second.registry.follow()
    for name in (f"{space_id}.db", f"{space_id}.custody", "0123456789abcdef.db"):
        (second.folder.spaces / name).touch(mode=0o600)
    first.registry.revoke("m0")
    space_removal.remove(first, "home")
    second.registry.follow()
    space_removal.finish_elsewhere(second)
    assert [path.name for path in second.folder.spaces.iterdir()] == ["0123456789abcdef.db"]


def test_a_step_of_the_registry_is_taken_behind_all_that_older_nodes_have_written(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writes while the newer node is about to bring its snapshot: the step is done to that too, and then the older one is out."""
    first = nodes.join()
    nodes.join("second").registry.close()
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    every = migrations.migrations("confide_daemon.access")
    step = (len(every) + 1, "ALTER TABLE callers ADD COLUMN colour TEXT; UPDATE callers SET colour = 'of ' || alias")
    real = migrations.migrations
    monkeypatch.setattr(upgrades, "migrations", lambda *of: (*every, step) if of else real())
    copied, late = log_snapshot.copy_beside, iter([KEYS[1]])

    def copied_and_overtaken(path: Path, key: bytes) -> Path:
        copy = copied(path, key)
        for caller in late:
            first.registry.add_caller(caller, Grants("m1"), space="home", added_by="line")
        return copy

    monkeypatch.setattr(log_snapshot, "copy_beside", copied_and_overtaken)
    second = nodes.join("second")
    with second.registry.reading() as database:
        assert database.execute("SELECT colour FROM callers ORDER BY alias").fetchall() == [("of m0",), ("of m1",)]
    assert nodes.store.sql("SELECT head - base, schema FROM log WHERE id = 'registry'") == [(0, len(every) + 1)]
    with pytest.raises(OvertakenError):
        first.registry.add_caller(KEYS[2], Grants("m2"), space="home", added_by="line")
    with pytest.raises(OvertakenError):
        first.registry.follow()


def test_a_step_of_the_registry_is_the_same_on_every_node() -> None:
    """A node takes it on its own copy: what it makes of the rows may hang on nothing else."""
    chance = re.compile(r"random|\bnow\b|current_|julianday|unixepoch|strftime|\bdate(time)?\(", re.IGNORECASE)
    for _, step in migrations.migrations("confide_daemon.access"):
        assert not chance.search(re.sub(r"--.*", "", step))


@pytest.mark.parametrize("at", ["before the entry", "before its commit", "before the commit here"])
def test_a_node_that_is_killed_in_a_change_has_made_it_everywhere_or_nowhere(nodes: Nodes, at: str) -> None:
    """Whoever comes next has not to wait for it, and what was committed there comes from there."""
    state = nodes.join()
    other = nodes.join("second")
    if (pid := os.fork()) == 0:
        try:
            _killed_in_a_change(nodes, at)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == KILLED
    other.registry.add_caller(KEYS[1], Grants("m1"), space="home", added_by="line")
    state.registry.follow()
    is_made = at == "before the commit here"
    assert (state.registry.caller_named("m0") is not None) is is_made
    assert rows(state) == rows(other)


KILLED = 9


def _killed_in_a_change(nodes: Nodes, at: str) -> None:
    import psycopg

    real: Any = psycopg.Connection.execute

    def execute(self: Any, query: Any, *values: Any, **more: Any) -> Any:
        is_entry, is_commit = "INSERT INTO entry" in str(query), query == "COMMIT"
        if (at == "before the entry" and is_entry) or (at == "before its commit" and is_commit):
            os._exit(KILLED)
        done = real(self, query, *values, **more)
        if at == "before the commit here" and is_commit:
            os._exit(KILLED)
        return done

    psycopg.Connection.execute = execute  # type: ignore[method-assign]
    with closing(open_state(nodes.first, store=nodes.config)) as mine:
        mine.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")


async def test_an_invite_that_another_node_has_made_is_known_at_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While PostgreSQL is away, the handshake of an unknown invite ends like a lost connection, and not with "wrong invite"."""
    first, second = nodes.join(), nodes.join("second")
    callers = CallerAuthorization(second.registry, second.folder.authorized, Gate(), max_sessions=8)
    Invites(first.registry).add(b"i" * 16, b"p" * 32, Grants("m0"), space="home", ttl_s=60.0)
    assert await callers.invite_psk(b"i" * 16) == b"p" * 32
    assert await callers.invite_psk(b"j" * 16) is None
    monkeypatch.setattr(second.registry, "follow", lambda **_asked: (_ for _ in ()).throw(EngineError("it is away")))
    assert await callers.invite_psk(b"i" * 16) == b"p" * 32
    with pytest.raises(HandshakeError):
        await callers.invite_psk(b"j" * 16)


async def test_a_machine_that_another_node_took_in_is_known_at_once_or_told_to_come_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for it, and also where somebody else has looked meanwhile; never that it is unknown, while nobody can tell."""
    first, second = nodes.join(), nodes.join("second")
    callers = CallerAuthorization(second.registry, second.folder.authorized, Gate(), max_sessions=8)
    first.registry.add_caller(KEYS[0], Grants("m0"), space="home", added_by="line")
    assert (await callers.admit(KEYS[0], {}, None))["caller"] == "m0"
    first.registry.add_caller(KEYS[1], Grants("m1"), space="home", added_by="line")
    real = second.registry.follow

    def by_another(*, asked_at: float | None = None) -> bool:
        real()
        return real(asked_at=asked_at)

    monkeypatch.setattr(second.registry, "follow", by_another)
    assert (await callers.admit(KEYS[1], {}, None))["caller"] == "m1"
    monkeypatch.setattr(second.registry, "follow", lambda **_asked: (_ for _ in ()).throw(EngineError("it is away")))
    with pytest.raises(DeniedError) as refused:
        await callers.admit(KEYS[2], {}, None)
    assert refused.value.reason == "busy"
