"""Who may come in: invites, drop-in key lines, revocation, and what a refused machine is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving

from confide_crypto.errors import DeniedError, HandshakeError, WrongDaemonKey
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity, fingerprint_words, format_public_key
from confide_crypto.transport.open_channel import connect
from confide_daemon.access import enrollment
from confide_daemon.access.authorization import drop_ins
from confide_daemon.access.enrollment import Rights
from confide_daemon.config import DaemonConfig, ServerConfig
from confide_daemon.errors import BadNameError, TakenError


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def test_a_join_by_invite(daemon: Serving) -> None:
    identity = Identity.generate()
    invite = daemon.invite("laptop", scope="admin", needs_approval=False)
    async with Machine(await daemon.connect(identity, invite=invite)) as laptop:
        welcome = laptop.connection.welcome
        assert (welcome["caller"], welcome["space"], welcome["scope"]) == ("laptop", "laptop", "admin")
        assert laptop.connection.peer_key == daemon.state.identity.public_key
        await laptop.attach("proj")
    # From now on the key alone is enough.
    async with Machine(await daemon.connect(identity)) as laptop:
        assert laptop.connection.welcome["caller"] == "laptop"


async def test_a_used_invite_says_when_and_by_whom(daemon: Serving) -> None:
    invite, first = daemon.invite("laptop"), Identity.generate()
    async with Machine(await daemon.connect(first, invite=invite)):
        pass
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(Identity.generate(), invite=invite)
    assert refused.value.reason == "invite"
    assert "already used on" in (refused.value.hint or "")
    assert f"by {fingerprint_words(first.public_key)} as laptop" in (refused.value.hint or "")


async def test_the_same_machine_may_try_its_invite_again(daemon: Serving) -> None:
    invite, identity = daemon.invite("laptop"), Identity.generate()
    for _ in range(2):
        async with Machine(await daemon.connect(identity, invite=invite)) as laptop:
            assert laptop.connection.welcome["caller"] == "laptop"


async def test_an_expired_invite_says_so(daemon: Serving) -> None:
    invite = daemon.invite("laptop", ttl_s=0.01)
    await asyncio.sleep(0.02)  # the registry's clock is the system's
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(Identity.generate(), invite=invite)
    assert refused.value.hint == "this invite has expired"


async def test_an_invite_that_never_was_opens_nothing(daemon: Serving) -> None:
    invite = Invite.new(daemon.state.identity.static_key, daemon.url)
    with pytest.raises((DeniedError, HandshakeError)):
        await daemon.connect(Identity.generate(), invite=invite)
    assert daemon.state.registry.callers() == []


async def test_of_two_joins_with_one_invite_exactly_one_wins(daemon: Serving) -> None:
    for round_ in range(5):
        invite = daemon.invite(f"machine-{round_}")
        tries = [daemon.connect(Identity.generate(), invite=invite) for _ in range(4)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        won = [result for result in results if not isinstance(result, BaseException)]
        assert len(won) == 1
        assert all(isinstance(result, DeniedError) for result in results if isinstance(result, BaseException))
        async with Machine(won[0]):
            pass
    assert len(daemon.state.registry.callers()) == 5


async def test_an_unknown_key_is_told_its_words(daemon: Serving) -> None:
    stranger = Identity.generate()
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(stranger)
    assert refused.value.reason == "unknown"
    assert fingerprint_words(stranger.public_key) in str(refused.value)


async def test_a_daemon_with_another_key_is_refused_by_the_machine(daemon: Serving) -> None:
    with pytest.raises(WrongDaemonKey, match="does not hold the pinned key"):
        await connect(daemon.url, daemon.enroll("laptop"), Identity.generate().static_key)


async def test_a_revoked_machine_is_gone_within_a_second_and_stays_out(daemon: Serving) -> None:
    identity = daemon.enroll("laptop")
    async with Machine(await daemon.connect(identity)) as laptop, Machine(await daemon.connect(identity)) as second:
        await laptop.attach("proj")
        # From another process, as `confided device rm` is one.
        other = daemon.state.folder.registry
        registry = type(daemon.state.registry).open(other, daemon.state.master.registry_key())
        registry.revoke("laptop")
        registry.close()
        assert await laptop.ended_within(1.0) is None
        assert await second.ended_within(1.0) is None
        assert laptop.connection.close_code == "revoked"
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(identity)
    assert refused.value.reason == "revoked"


async def test_a_revoked_machine_may_be_invited_again(daemon: Serving) -> None:
    identity = daemon.enroll("laptop")
    daemon.state.registry.revoke("laptop")
    async with Machine(await daemon.connect(identity, invite=daemon.invite("laptop", space="laptop"))) as laptop:
        assert laptop.connection.welcome["caller"] == "laptop"


async def test_a_key_holds_only_so_many_connections(tmp_path: Path) -> None:
    config = DaemonConfig(server=ServerConfig(max_sessions_per_caller=2))
    async with serving(tmp_path / "few", config=config) as daemon:
        identity = daemon.enroll("laptop")
        async with Machine(await daemon.connect(identity)) as one, Machine(await daemon.connect(identity)) as two:
            await one.attach("proj")
            await two.attach("proj")
            with pytest.raises(DeniedError) as refused:
                await daemon.connect(identity)
            assert refused.value.reason == "busy"
            # Others are not affected.
            async with Machine(await daemon.connect(daemon.enroll("desktop"))) as other:
                await other.attach("proj")


async def test_many_connections_at_once_do_not_slip_past_the_limit(tmp_path: Path) -> None:
    config = DaemonConfig(server=ServerConfig(max_sessions_per_caller=2))
    async with serving(tmp_path / "few", config=config) as daemon:
        identity = daemon.enroll("laptop")
        results = await asyncio.gather(*(daemon.connect(identity) for _ in range(8)), return_exceptions=True)
        machines = [Machine(result) for result in results if not isinstance(result, BaseException)]
        attached = await asyncio.gather(*(one.attach("proj") for one in machines), return_exceptions=True)
        assert sum(isinstance(answer, dict) for answer in attached) == 2
        for one in machines:
            async with one:
                pass


# Drop-in key lines


def write_line(folder: Path, identity: Identity, name: str = "box", mode: int = 0o600) -> Path:
    path = folder / f"{name}.pub"
    path.write_text(format_public_key(identity.public_key, name) + "\n", encoding="utf-8")
    path.chmod(mode)
    return path


async def test_a_key_line_in_the_data_folder_lets_its_machine_in(daemon: Serving) -> None:
    identity = Identity.generate()
    write_line(daemon.state.folder.authorized, identity)
    async with Machine(await daemon.connect(identity)) as box:
        assert box.connection.welcome["space"] == "local"
        assert box.connection.welcome["caller"] == "box"
    again = Identity.generate()
    write_line(daemon.state.folder.authorized, again, name="box two!")
    async with Machine(await daemon.connect(again)) as box:
        assert (box.connection.welcome["space"], box.connection.welcome["caller"]) == ("local", "box-two")


async def test_a_revoked_key_does_not_come_back_through_its_line(daemon: Serving) -> None:
    identity = Identity.generate()
    write_line(daemon.state.folder.authorized, identity)
    async with Machine(await daemon.connect(identity)):
        pass
    daemon.state.registry.revoke("box")
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(identity)
    assert refused.value.reason == "revoked"


def test_only_lines_that_nobody_else_can_have_written_count(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    good, loose, linked = Identity.generate(), Identity.generate(), Identity.generate()
    write_line(tmp_path, good, "good")
    write_line(tmp_path, loose, "loose", mode=0o666)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "linked.pub").symlink_to(write_line(elsewhere, linked, "linked"))
    (tmp_path / "broken.pub").write_text("ssh-ed25519 AAAA me")
    (tmp_path / "huge.pub").write_text("x" * 10_000)
    (tmp_path / "binary.pub").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe.pub")
    assert drop_ins(tmp_path) == [(good.public_key, "good")]
    tmp_path.chmod(0o777)
    assert drop_ins(tmp_path) == []


# The operator's side


async def test_an_invite_goes_to_a_new_space_or_to_an_existing_one(daemon: Serving) -> None:
    daemon.enroll("laptop")
    with pytest.raises(TakenError, match="there is a space named laptop already"):
        daemon.invite("laptop")
    with pytest.raises(TakenError, match="no space named 'lapto'") as caught:
        daemon.invite("desktop", space="lapto")
    assert "did you mean laptop?" in (caught.value.hint or "")
    daemon.invite("desktop", space="laptop")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-rf", "x" * 49, "naïve", "a\nb"])
async def test_names_that_no_machine_can_have(daemon: Serving, name: str) -> None:
    with pytest.raises(BadNameError):
        daemon.invite(name)


async def test_scopes(daemon: Serving) -> None:
    assert enrollment.check_scope("rw") == "write"
    with pytest.raises(BadNameError, match="'root' is not a scope"):
        daemon.invite("laptop", scope="root")


async def test_a_pasted_key_line_enrolls_its_machine(daemon: Serving) -> None:
    identity = Identity.generate()
    line = format_public_key(identity.public_key, "laptop")
    caller = enrollment.add_line(daemon.state.registry, line, name=None, space=None, rights=Rights("read"))
    assert (caller.alias, caller.space, caller.scope) == ("laptop", "laptop", "read")
    async with Machine(await daemon.connect(identity)) as laptop:
        assert laptop.connection.welcome["scope"] == "read"


# Approval


async def test_who_joins_with_an_invite_to_be_approved_waits_for_it(daemon: Serving) -> None:
    identity, invite = Identity.generate(), daemon.invite("laptop", needs_approval=True)
    for attempt in (invite, None, invite):
        with pytest.raises(DeniedError, match="waits for approval") as refused:
            await daemon.connect(identity, invite=attempt)
        assert refused.value.reason == "disabled"
        assert fingerprint_words(identity.public_key) in str(refused.value)
        assert "confided device approve laptop" in (refused.value.hint or "")
    with pytest.raises(DeniedError) as late:
        await daemon.connect(Identity.generate(), invite=invite)
    assert late.value.reason == "invite"
    enrollment.approve(daemon.state.registry, enrollment.require_caller(daemon.state.registry, "laptop"))
    async with Machine(await daemon.connect(identity)) as laptop:
        await laptop.attach("proj")


async def test_an_admin_is_to_be_approved_unless_it_is_said_not_to_be(daemon: Serving) -> None:
    with pytest.raises(DeniedError) as refused:
        await daemon.connect(Identity.generate(), invite=daemon.invite("boss", scope="admin"))
    assert refused.value.reason == "disabled"
    async with Machine(await daemon.connect(Identity.generate(), invite=daemon.invite("laptop", scope="write"))):
        pass


# One connection in place of another


async def test_a_connection_that_replaces_a_live_one_is_let_in_over_the_limit(tmp_path: Path) -> None:
    config = DaemonConfig(server=ServerConfig(max_sessions_per_caller=2))
    async with serving(tmp_path / "few", config=config) as daemon:
        identity, other = daemon.enroll("laptop"), daemon.enroll("desktop")

        async def replacing(session_id: str) -> Machine:
            static = daemon.state.identity.static_key
            return Machine(await connect(daemon.url, identity, static, hello={"replaces": session_id}))

        async with (
            Machine(await daemon.connect(identity)) as one,
            Machine(await daemon.connect(identity)) as two,
            Machine(await daemon.connect(other)) as foreign,
        ):
            for machine in (one, two, foreign):
                await machine.attach("proj")
            for wrong in ("00" * 16, foreign.connection.session_id, ""):
                with pytest.raises(DeniedError) as refused:
                    await replacing(wrong)
                assert refused.value.reason == "busy"
            async with await replacing(one.connection.session_id) as third:
                await third.attach("proj")
                with pytest.raises(DeniedError):  # one more, not one more for each that is asked
                    await replacing(one.connection.session_id)
                with pytest.raises(DeniedError):
                    await replacing(two.connection.session_id)


async def test_a_session_that_ended_replaces_nothing(tmp_path: Path) -> None:
    config = DaemonConfig(server=ServerConfig(max_sessions_per_caller=1))
    async with serving(tmp_path / "few", config=config) as daemon:
        identity = daemon.enroll("laptop")
        async with Machine(await daemon.connect(identity)) as gone:
            await gone.attach("proj")
        async with Machine(await daemon.connect_in_time(identity)) as one:
            await one.attach("proj")
            hello = {"replaces": gone.connection.session_id}
            with pytest.raises(DeniedError):
                await connect(daemon.url, identity, daemon.state.identity.static_key, hello=hello)
