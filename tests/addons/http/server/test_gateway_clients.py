"""Who may come by HTTP: tokens that are callers, made and taken away by the operator, and what of them is kept."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from tests.support.clock import Clock
from tests.support.programs.confided import Confided

from confide_crypto.errors import ConfideError, DeniedError
from confide_crypto.keys.bearer_tokens import digest_of
from confide_crypto.keys.identity import Identity
from confide_daemon.access.authorization import CallerAuthorization, Gate
from confide_daemon.access.enrolled_callers import EndedKey, Grants
from confide_daemon.access.registry import Registry
from confide_http.server.access import server_tokens as gateway_clients


@pytest.fixture
def home(registry: Registry) -> Registry:
    """With a space, and a machine in it."""
    registry.add_caller(Identity.generate().public_key, Grants("laptop"), space="home", added_by="line")
    return registry


def allowed(registry: Registry, name: str = "chat", **said: object) -> str:
    options = {"space": "home", "scope": "read", "projects": (), "days": 90, "gateway": "untrusted", **said}
    return gateway_clients.allow(registry, name, **options)[0]  # type: ignore[arg-type]


def test_a_token_is_kept_as_its_hash_alone(home: Registry, tmp_path: Path) -> None:
    text = allowed(home, scope="write", projects=("shop", "web"))
    assert text.startswith("cfd_")
    assert len(text) == 47
    digest = digest_of(text)
    assert digest == hashlib.sha256(text.encode()).digest()
    found = home.gateway_client(digest)
    assert found is not None
    assert (found.space, found.scope, found.grants.projects) == ("home", "write", {"shop", "web"})
    assert (found.gateway, found.expires_at) == ("untrusted", 1_000_000.0 + 90 * 86_400)
    assert not any(text.encode() in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"scope": "secrets"}, "nothing opens a sealed secret on a server"),
        ({"scope": "admin"}, "read and write"),
        ({"space": "hime"}, "did you mean home"),
        ({"projects": ("all",)}, "leave --project out"),
        ({"projects": ("*",)}, "commas between them"),
        ({"days": 0}, "leave --days out"),
        ({"days": 5000}, "leave --days out"),
        ({"name": "laptop"}, "choose another name"),
        ({"name": "two words"}, "letters"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told(home: Registry, said: dict[str, object], told: str) -> None:
    with pytest.raises(ConfideError) as refused:
        allowed(home, **said)
    assert told in refused.value.with_hint
    assert home.gateway_clients() == []


def test_one_that_is_gone_or_over_is_none(home: Registry, clock: Clock) -> None:
    text = allowed(home, days=1)
    digest = digest_of(text)
    assert digest is not None
    clock.now += 86_400
    found = home.gateway_client(digest)
    assert found is not None
    assert found.refusal_reason(clock.now) == "expired"
    gateway_clients.remove(home, "chat")
    found = home.gateway_client(digest)
    assert found is not None
    assert found.refusal_reason(clock.now) == "revoked"
    with pytest.raises(ConfideError, match="no gateway client"):
        gateway_clients.remove(home, "chat")


def test_one_that_was_taken_away_stays_out_after_a_restore(home: Registry, clock: Clock) -> None:
    """The registry of an older copy has it still; what is kept beside the data folder names its token's hash."""
    digest = digest_of(allowed(home))
    assert digest is not None
    clock.now += 60
    assert home.take_ended([EndedKey(digest, clock.now)]) == ["chat"]
    found = home.gateway_client(digest)
    assert found is not None
    assert found.refusal_reason(clock.now) == "revoked"
    assert home.gateway_clients() == []


def test_a_machine_is_not_taken_away_as_one(home: Registry) -> None:
    with pytest.raises(ConfideError, match="no gateway client"):
        gateway_clients.remove(home, "laptop")
    assert [one.alias for one in home.callers()] == ["laptop"]


async def test_neither_passes_for_the_other(home: Registry, tmp_path: Path) -> None:
    """The hash of a token is no key of a machine's, and a machine's key no hash of a token: nor does a token count among who decides."""
    digest = digest_of(allowed(home, scope="write"))
    machine = home.callers()[0].public_key
    assert digest is not None
    assert [one.alias for one in home.callers()] == ["laptop"]
    assert home.gateway_client(machine) is None
    callers = CallerAuthorization(home, tmp_path, Gate(), max_sessions=8)
    assert callers.current(digest) is None
    with pytest.raises(DeniedError) as refused:
        await callers.admit(digest, {}, None)
    assert refused.value.reason == "unknown"


def test_the_commands_let_in_list_and_shut_out(ready: Confided) -> None:
    ready.enroll("home")
    done = ready.run("http", "allow", "chat", "--space", "home", "--scope", "write", "--project", "shop", "--trusted")
    token = done.stdout.strip()
    assert digest_of(token) is not None
    assert "shown only once" in done.stderr
    assert "the daemon has no HTTP gateway yet" in done.stderr
    (listed,) = ready.json("http", "ls")
    assert (
        listed.items()
        >= {
            "name": "chat",
            "space": "home",
            "scope": "write",
            "projects": ["shop"],
            "trusted": True,
            "lastSeenAt": None,
        }.items()
    )
    shown = ready.run("http", "ls").stdout
    assert "chat  home  write  trusted  projects shop  until" in shown
    assert token not in shown
    assert "never used" in shown
    assert [one["name"] for one in ready.json("device")] == ["home"]
    assert "by HTTP" in ready.run("audit").stdout
    assert ready.json("device", "ls", "chat")["key"] is None
    told = {one["check"]: one["detail"] for one in ready.json("doctor")}
    assert told["gateway client chat"].startswith("reads and writes home by HTTP, trusted;")
    assert ready.json("http", "rm", "chat") == {"removed": "chat"}
    assert "gateway client chat" not in ready.run("doctor").stdout
    assert ready.json("http", "ls") == []
    assert "no gateway client" in ready.run("http", "rm", "chat", code=7).stderr
    for path in ready.data.rglob("*"):
        if stat.S_ISREG(path.stat().st_mode):
            assert token.encode() not in path.read_bytes()
