"""Sealed records in a vault: the real OpenBao server, and servers that answer as no vault should."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hvac
import pytest
import trustme
from tests.support.daemon.openbao import MOUNT, Kubernetes, OpenBao, openbao, service_account_token
from tests.support.deadline import DEADLINE_S

from confide_daemon.config import VaultConfig
from confide_daemon.errors import VaultError
from confide_daemon.sealing.vault import PIECE, Vault, place_for

SPACE = "space-1"
ID = bytes(range(16))
RECORD = b"record"
PLACE = place_for(RECORD)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[OpenBao]:
    folder = tmp_path_factory.mktemp("bao")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    with openbao(folder, tls=(folder / "cert.pem", folder / "key.pem")) as server:
        yield server


@pytest.fixture
def settings(bao: OpenBao, tmp_path: Path) -> VaultConfig:
    """Of a daemon with a token that may do what the document tells to allow, and no more."""
    return VaultConfig(url=bao.url, token_file=str(put_token(tmp_path, bao.token("confide"))), timeout_s=30.0)


@pytest.fixture(autouse=True)
def no_token_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens, no log line of the daemon names the token."""
    caplog.set_level(logging.DEBUG, "confide_daemon")
    yield
    for path in tmp_path.rglob("*.token"):
        assert path.read_text().strip() not in caplog.text


def put_token(folder: Path, value: str) -> Path:
    path = folder / "vault.token"
    path.write_text(value + "\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def opened(settings: VaultConfig) -> AsyncIterator[Vault]:
    vault = Vault.open(settings)
    try:
        yield vault
    finally:
        await vault.close()


async def refusal(vault: Vault) -> VaultError:
    """How the vault's state is told to whoever wants to store a record."""
    with pytest.raises(VaultError) as caught:
        await vault.keep(SPACE, ID, PLACE, RECORD)
    assert caught.value.hint
    return caught.value


# A vault as it should be


@pytest.mark.parametrize("size", [1, 200, PIECE, 3 * PIECE + 1])
async def test_a_record_comes_back_as_it_was_and_leaves_without_a_trace(
    bao: OpenBao, settings: VaultConfig, size: int
) -> None:
    record = os.urandom(size)
    place = place_for(record)
    async with opened(settings) as vault:
        await vault.keep(SPACE, ID, place, record)
        await vault.keep(SPACE, ID, place, record)
        assert await vault.fetch(SPACE, ID, place) == record
        paths = bao.paths()
        assert paths
        assert all(path.startswith(f"confide/{SPACE}/{ID.hex()}/") for path in paths)
        await vault.destroy(SPACE, ID, place)
        await vault.destroy(SPACE, ID, place)
        with pytest.raises(VaultError, match="not in the vault any more"):
            await vault.fetch(SPACE, ID, place)
    assert bao.paths() == []


async def test_what_was_half_kept_is_destroyed_too(bao: OpenBao, settings: VaultConfig) -> None:
    """A daemon that was killed between two pieces: the last ones are there, and the first is not."""
    record = os.urandom(3 * PIECE)
    place = place_for(record)
    async with opened(settings) as vault:
        await vault.keep(SPACE, ID, place, record)
        first, *_ = sorted(bao.paths(), key=len)
        bao.root.secrets.kv.v2.delete_metadata_and_all_versions(first, mount_point=MOUNT)
        await vault.destroy(SPACE, ID, place)
    assert bao.paths() == []


async def test_what_was_changed_in_the_vault_is_not_taken_for_the_record(bao: OpenBao, settings: VaultConfig) -> None:
    async with opened(settings) as vault:
        await vault.keep(SPACE, ID, PLACE, RECORD)
        [path] = bao.paths()
        for secret in ({"record": "b3RoZXI=", "pieces": 1}, {"record": "!", "pieces": 1}, {"pieces": 10**9}, {"a": 1}):
            bao.root.secrets.kv.v2.create_or_update_secret(path, secret, mount_point=MOUNT)
            with pytest.raises(VaultError, match="was changed in the vault"):
                await vault.fetch(SPACE, ID, PLACE)
        await vault.destroy(SPACE, ID, PLACE)


async def test_tls_goes_by_the_certificates_that_are_named(
    bao: OpenBao, settings: VaultConfig, authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    async with opened(replace(settings, url=bao.tls_url, ca_file=str(ca_file))) as vault:
        await vault.check()
    async with opened(replace(settings, url=bao.tls_url)) as vault:
        assert "certificate is not trusted" in str(await refusal(vault))
    async with opened(replace(settings, url=bao.tls_url, ca_file=str(tmp_path / "absent.pem"))) as vault:
        assert "ca_file" in str(await refusal(vault))


async def test_sealed_it_says_so_and_unsealed_it_goes_on(bao: OpenBao, settings: VaultConfig) -> None:
    async with opened(settings) as vault:
        await vault.keep(SPACE, ID, PLACE, RECORD)
        bao.root.sys.seal()
        try:
            assert "sealed" in str(await refusal(vault))
        finally:
            bao.unseal()
        assert await vault.fetch(SPACE, ID, PLACE) == RECORD
        await vault.destroy(SPACE, ID, PLACE)


async def test_one_that_hangs_is_waited_for_no_longer_than_configured(bao: OpenBao, settings: VaultConfig) -> None:
    async with opened(replace(settings, timeout_s=0.5)) as vault:
        bao.signal(signal.SIGSTOP)
        try:
            # More at once than there are threads: those that wait for one wait no longer either.
            found = await asyncio.gather(
                *(vault.keep(SPACE, ID, PLACE, RECORD) for _ in range(12)), return_exceptions=True
            )
        finally:
            bao.signal(signal.SIGCONT)
        assert all(isinstance(error, VaultError) and "in time" in str(error) for error in found)
    async with opened(settings) as vault:
        await vault.check()
        await vault.destroy(SPACE, ID, PLACE)


# Tokens


async def test_a_token_that_may_not_read_is_told_of(bao: OpenBao, settings: VaultConfig, tmp_path: Path) -> None:
    bao.root.sys.create_or_update_policy("write-only", 'path "secret/data/*" { capabilities = ["create", "update"] }')
    put_token(tmp_path, bao.token("write-only"))
    async with opened(settings) as vault:
        await vault.keep(SPACE, ID, PLACE, RECORD)
        with pytest.raises(VaultError, match="refuses the daemon's token") as caught:
            await vault.fetch(SPACE, ID, PLACE)
        assert "docs/hashicorp-vault.md" in (caught.value.hint or "")
    put_token(tmp_path, bao.token("confide"))
    async with opened(settings) as vault:
        await vault.destroy(SPACE, ID, PLACE)


async def test_a_token_that_ended_is_replaced_by_writing_a_new_one(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    first = bao.token("confide")
    put_token(tmp_path, first)
    async with opened(settings) as vault:
        await vault.check()
        bao.root.auth.token.revoke(first)
        error = await refusal(vault)
        assert "refuses the daemon's token" in str(error)
        assert first not in f"{error} {error.hint}"
        put_token(tmp_path, bao.token("confide"))
        await vault.check()


async def test_a_token_is_prolonged_while_nothing_else_happens(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path
) -> None:
    token = bao.token("confide", period="6s")
    put_token(tmp_path, token)

    def ends() -> datetime:
        return datetime.fromisoformat(bao.root.auth.token.lookup(token)["data"]["expire_time"][:19])

    first = ends()
    async with opened(settings) as vault, asyncio.timeout(DEADLINE_S):
        while await asyncio.to_thread(ends) <= first:  # noqa: ASYNC110 - a vault tells nobody
            await asyncio.sleep(0.1)
        await vault.check()


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (None, 0o600, "cannot use the token"),
        ("hvs.sometoken", 0o644, "cannot use the token"),
        ("", 0o600, "does not hold a token"),
        ("two words", 0o600, "does not hold a token"),
    ],
)
async def test_a_token_file_that_is_none(
    settings: VaultConfig, tmp_path: Path, text: str | None, mode: int, problem: str
) -> None:
    path = tmp_path / "other"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    async with opened(replace(settings, token_file=str(path))) as vault:
        error = await refusal(vault)
    assert problem in str(error)
    assert text is None or not text or text not in f"{error} {error.hint}"


async def test_a_systemd_credential_and_nothing_of_the_environment(
    bao: OpenBao, settings: VaultConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = bao.token("confide")
    monkeypatch.setenv("VAULT_TOKEN", token)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    nowhere = replace(settings, token_file="")
    async with opened(nowhere) as vault:
        assert "no token for the vault" in str(await refusal(vault))
    credential = put_token(tmp_path, token).rename(tmp_path / "vault-token")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credential.parent))
    async with opened(nowhere) as vault:
        await vault.check()


# Kubernetes


@pytest.fixture(scope="module")
def kubernetes(bao: OpenBao, authority: trustme.CA) -> Iterator[Kubernetes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    api = Kubernetes(context)
    bao.root.sys.enable_auth_method("kubernetes")
    certificate = authority.cert_pem.bytes().decode()
    bao.root.auth.kubernetes.configure(api.url, kubernetes_ca_cert=certificate, disable_local_ca_jwt=True)
    bao.root.auth.kubernetes.create_role(
        "confide", ["confided"], ["memory"], ttl="2s", max_ttl="2s", policies=["confide"]
    )
    yield api
    api.close()


@pytest.fixture
def pod(settings: VaultConfig, kubernetes: Kubernetes, tmp_path: Path) -> VaultConfig:
    """The configuration in a pod."""
    in_pod(kubernetes, tmp_path)
    return replace(settings, auth="kubernetes", role="confide", token_file="", jwt_file=str(tmp_path / "sa-token"))


def in_pod(kubernetes: Kubernetes, folder: Path, account: str = "confided") -> str:
    """Puts a fresh token of the service account where Kubernetes puts it."""
    token = service_account_token("memory", account)
    kubernetes.accounts[token] = ("memory", account)
    (folder / "new-token").write_text(token)
    (folder / "new-token").replace(folder / "sa-token")
    return token


async def test_a_service_account_logs_in_again_and_again(
    bao: OpenBao, pod: VaultConfig, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    """Its token in the vault lives for two seconds, and Kubernetes gives the pod another one meanwhile."""
    async with opened(pod) as vault, asyncio.timeout(DEADLINE_S):
        await vault.keep(SPACE, ID, PLACE, RECORD)
        for _ in range(2):
            token = in_pod(kubernetes, tmp_path)
            while token not in kubernetes.reviewed:
                await asyncio.sleep(0.05)
                assert await vault.fetch(SPACE, ID, PLACE) == RECORD
            kubernetes.accounts = {token: kubernetes.accounts[token]}
        await vault.destroy(SPACE, ID, PLACE)


async def test_a_session_that_was_ended_in_the_vault_is_taken_up_anew(bao: OpenBao, pod: VaultConfig) -> None:
    async with opened(pod) as vault:
        await vault.check()
        bao.root.sys.revoke_prefix("auth/kubernetes/login")
        await vault.check()


async def test_a_service_account_that_is_not_let_in(pod: VaultConfig, kubernetes: Kubernetes, tmp_path: Path) -> None:
    token = in_pod(kubernetes, tmp_path, "somebody")
    async with opened(pod) as vault:
        error = await refusal(vault)
    assert "does not let this service account in as role 'confide'" in str(error)
    assert token not in f"{error} {error.hint}"
    async with opened(replace(pod, jwt_file=str(tmp_path / "absent"))) as vault:
        assert "cannot read the token" in str(await refusal(vault))


# Servers that are no vault, or one in trouble


class Impostor:
    """A server that answers what it is told to."""

    def __init__(self, status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        impostor = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                impostor.asked.append((self.path, dict(self.headers)))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names that http.server wants

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"<html>It works!</html>", "no vault with a KV v2 engine"),
        (200, b"[1, 2]", "no vault with a KV v2 engine"),
        (204, b"", "no vault with a KV v2 engine"),
        (200, b"{" * 100_000, "no vault with a KV v2 engine"),
        (200, b" " * 3_000_000, "no vault with a KV v2 engine"),
        (400, b'{"errors": [1, {}]}', ""),
        (404, b'{"errors": ["no handler for route"]}', "no KV v2 engine at 'secret'"),
        (413, b'{"errors": ["hvs.abcdefgh is too large"]}', "refuses a request"),
        (429, b'{"errors": ["request rejected"]}', "no more requests"),
        (500, b'{"errors": ["internal error"]}', "failed over a request"),
        (501, b'{"errors": ["not initialized"]}', "not initialized"),
        (502, b"<html>Bad Gateway</html>", "failed over a request"),
        (503, b'{"errors": ["Vault is sealed"]}', "sealed"),
    ],
)
async def test_whatever_answers_there_is_an_error_with_a_way_out(
    settings: VaultConfig, status: int, body: bytes, problem: str
) -> None:
    with Impostor(status, body) as impostor:
        async with opened(replace(settings, url=impostor.url)) as vault:
            error = await refusal(vault)
    assert problem in str(error)
    assert "hvs." not in f"{error} {error.hint}"


async def test_a_redirect_does_not_get_the_token(settings: VaultConfig) -> None:
    with Impostor() as elsewhere, Impostor(307, headers={"Location": elsewhere.url + "/v1/there"}) as impostor:
        async with opened(replace(settings, url=impostor.url)) as vault:
            await refusal(vault)
        assert impostor.asked
        assert not elsewhere.asked


async def test_nobody_listens(settings: VaultConfig) -> None:
    with Impostor() as impostor:
        url = impostor.url
    async with opened(replace(settings, url=url)) as vault:
        assert "cannot be reached" in str(await refusal(vault))


async def test_an_engine_that_wants_to_know_what_is_written_over(bao: OpenBao, settings: VaultConfig) -> None:
    bao.root.secrets.kv.v2.configure(cas_required=True, mount_point=MOUNT)
    try:
        async with opened(settings) as vault:
            await vault.keep(SPACE, ID, PLACE, RECORD)
            await vault.keep(SPACE, ID, PLACE, RECORD)
            assert await vault.fetch(SPACE, ID, PLACE) == RECORD
            await vault.destroy(SPACE, ID, PLACE)
    finally:
        bao.root.secrets.kv.v2.configure(cas_required=False, mount_point=MOUNT)


async def test_a_namespace_of_its_own(bao: OpenBao, settings: VaultConfig, tmp_path: Path) -> None:
    bao.root.adapter.post("/v1/sys/namespaces/team")
    team = hvac.Client(bao.url, token=bao.root.token, namespace="team")
    team.sys.enable_secrets_engine("kv", path="records", options={"version": "2"})
    team.sys.create_or_update_policy(
        "all", 'path "records/*" { capabilities = ["create", "read", "update", "delete"] }'
    )
    put_token(tmp_path, team.auth.token.create(policies=["all"])["auth"]["client_token"])
    async with opened(replace(settings, namespace="team", mount="records")) as vault:
        await until_ready(vault)
    async with opened(settings) as vault:
        assert "refuses the daemon's token" in str(await refusal(vault))
    team.adapter.close()


async def until_ready(vault: Vault) -> None:
    """A new engine says for a moment that it is not ready, and is tried again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await vault.check()
            except VaultError:
                await asyncio.sleep(0.1)


async def test_an_engine_of_the_first_version_is_not_taken_for_the_second(bao: OpenBao, settings: VaultConfig) -> None:
    bao.root.sys.enable_secrets_engine("kv", path="old", options={"version": "1"})
    bao.root.sys.create_or_update_policy("old", 'path "old/*" { capabilities = ["create", "read", "update"] }')
    Path(settings.token_file).write_text(bao.token("old"))
    async with opened(replace(settings, mount="old")) as vault:
        assert "no vault with a KV v2 engine" in str(await refusal(vault))


async def test_without_the_extra_it_says_which(settings: VaultConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hvac", None)
    monkeypatch.delitem(sys.modules, "confide_daemon.sealing.vault_client", raising=False)
    monkeypatch.delitem(sys.modules, "confide_daemon.sealing.vault_client", raising=False)
    with pytest.raises(VaultError) as caught:
        Vault.open(settings)
    assert "'.[daemon,vault]'" in (caught.value.hint or "")
