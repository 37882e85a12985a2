"""Tokens: what is kept of them, and who is let in by one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.bearer_tokens import MARK, digest_of
from confide_http.door.bearer_auth import MOST_GUESSES, WINDOW_S, Bearer
from confide_http.door.refusals import RefusalError
from confide_http.errors import TokenError
from confide_http.local.local_tokens import MOST, LocalToken, LocalTokens, TokenFile
from confide_http.local.request_identity import READ, SCOPES, SECRETS, WRITE, scopes_of


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "gateway")


def request(*authorization: str) -> Request:
    headers = [(b"authorization", each.encode("latin-1")) for each in authorization]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""})


def bearer(tokens: LocalTokens, **options: Any) -> Bearer[LocalToken]:
    return Bearer(tokens.find, lambda: "http://127.0.0.1:7734", SCOPES, hint="make one", **options)


def found(tokens: LocalTokens, text: str) -> LocalToken | None:
    digest = digest_of(text)
    return None if digest is None else tokens.find(digest)


def test_the_text_is_nowhere(file: TokenFile, tmp_path: Path) -> None:
    """It is shown once; what is kept is its SHA-256, for this user alone."""
    text, token = file.add("editor", ("write",))
    assert len(text) == len(MARK) + 43
    kept = tmp_path / "gateway" / "tokens.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for path in kept.parent.iterdir():
        assert text[len(MARK) :].encode() not in path.read_bytes()
    assert found(LocalTokens(file), text) == token


def test_one_that_was_taken_away_is_refused_at_once(file: TokenFile) -> None:
    text, _ = file.add("editor", ("read",))
    tokens = LocalTokens(file)
    assert found(tokens, text) is not None
    file.remove("editor")
    assert found(tokens, text) is None


def test_one_that_has_expired_is_refused(file: TokenFile) -> None:
    """And another may have its name."""
    text, _ = file.add("editor", ("read",), days=0)
    assert found(LocalTokens(file), text) is None
    file.add("editor", ("read",))
    assert [each.name for each in file.all()] == ["editor"]


def test_names_are_given_once(file: TokenFile) -> None:
    file.add("editor", ("read",))
    with pytest.raises(TokenError, match="already"):
        file.add("editor", ("write",))
    with pytest.raises(TokenError, match="no token of that name"):
        file.remove("phone")
    for name in ("", ".x", "a b", "x" * 65, "a\nb"):
        with pytest.raises(TokenError, match="a token's name"):
            file.add(name, ("read",))


def test_there_is_an_end_to_them(file: TokenFile) -> None:
    for number in range(MOST):
        file.add(f"t{number}", ("read",))
    with pytest.raises(TokenError, match="64 tokens already"):
        file.add("one-more", ("read",))


def test_a_file_that_others_could_write_lets_nobody_in(file: TokenFile, tmp_path: Path) -> None:
    text, _ = file.add("editor", ("read",))
    (tmp_path / "gateway" / "tokens.json").chmod(0o644)
    with pytest.raises(KeyFileError):
        file.all()
    tokens = LocalTokens(file)
    assert found(tokens, text) is None
    assert tokens.problem is not None


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"tokens": [{}]}', b'{"tokens": 1}', b"[" * 9000, b"\xff"])
def test_a_damaged_file_lets_nobody_in(file: TokenFile, tmp_path: Path, data: bytes) -> None:
    text, _ = file.add("editor", ("read",))
    kept = tmp_path / "gateway" / "tokens.json"
    kept.write_bytes(data)
    os.utime(kept, ns=(1, 1))
    assert found(LocalTokens(file), text) is None


def test_when_it_was_used_is_known(file: TokenFile) -> None:
    text, token = file.add("editor", ("read",))
    gone, _ = file.add("gone", ("read",))
    tokens = LocalTokens(file)
    found(tokens, text)
    found(tokens, gone)
    file.remove("gone")
    tokens.save_uses()
    assert file.last_uses().keys() == {token.digest}


def test_scopes_of_words() -> None:
    """Each brings reading with it."""
    assert scopes_of(["read"]) == {READ}
    assert scopes_of(["secrets"]) == {READ, SECRETS}
    assert scopes_of(["write", "secrets"]) == {READ, WRITE, SECRETS}
    with pytest.raises(ValueError, match="admin"):
        scopes_of(["admin"])


@pytest.mark.parametrize(
    "said",
    [
        *((), ("",), ("Bearer",), ("Bearer ",), ("Basic dXNlcjpwYXNz",), ("Bearer x",), (f"Bearer {MARK}{'A' * 43}",)),
        ("Bearer \xff",),
    ],
    ids=str,
)
async def test_no_token_and_a_wrong_one_are_401(file: TokenFile, said: tuple[str, ...]) -> None:
    """With where the resource describes itself (RFC 9728), and nothing of what was said."""
    file.add("editor", ("read",))
    with pytest.raises(RefusalError) as refused:
        await bearer(LocalTokens(file))(request(*said))
    assert refused.value.status == 401
    challenge = refused.value.headers["WWW-Authenticate"]
    assert 'resource_metadata="http://127.0.0.1:7734/.well-known/oauth-protected-resource"' in challenge
    assert 'scope="memory:read memory:write memory:secrets"' in challenge
    assert ('error="invalid_token"' in challenge) is bool(said and said[0].startswith("Bearer ") and len(said[0]) > 7)
    assert "AAAA" not in str(refused.value.body)


async def test_two_of_them_are_refused(file: TokenFile) -> None:
    """Whoever stands between might read the other one."""
    text, _ = file.add("editor", ("read",))
    with pytest.raises(RefusalError) as refused:
        await bearer(LocalTokens(file))(request(f"Bearer {text}", "Bearer x"))
    assert refused.value.status == 400


async def test_guesses_come_to_an_end_and_shut_nobody_out(file: TokenFile) -> None:
    text, _ = file.add("editor", ("read",))
    now = [0.0]
    admit = bearer(LocalTokens(file), clock=lambda: now[0])
    statuses = []
    for number in range(10_000):
        with pytest.raises(RefusalError) as refused:
            await admit(request(f"Bearer {MARK}{number:043}"))
        statuses.append(refused.value.status)
    assert statuses.count(401) == MOST_GUESSES
    assert statuses.count(429) == 10_000 - MOST_GUESSES
    assert int(refused.value.headers["Retry-After"]) <= WINDOW_S
    assert (await admit(request(f"Bearer {text}"))).name == "editor"
    now[0] = WINDOW_S + 1
    with pytest.raises(RefusalError) as refused:
        await admit(request("Bearer x"))
    assert refused.value.status == 401
