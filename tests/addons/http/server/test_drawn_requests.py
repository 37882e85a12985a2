"""Whatever a client sends to the server's gateway is answered as HTTP and OAuth have it, and nobody is sent elsewhere."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.draws import draws
from tests.support.programs.server_gateway import ServerGateway
from tests.support.programs.signing_in import FORM, NAVIGATION, REDIRECT, Program

DRAWN = settings(
    max_examples=draws(180, 12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
WORDS = st.text("abcXYZ 09-_.:/?&=%äß漢\u202e\n\0<>\"'", max_size=24)
NAMES = ("response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method", "state", "scope")
GOOD = {"response_type": "code", "code_challenge": "C" * 43, "code_challenge_method": "S256", "redirect_uri": REDIRECT}
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def program(gateway: ServerGateway) -> Program:
    made = gateway.confided.json("http", "allow", "Drawn", "--space", "home", "--redirect", REDIRECT)
    return Program(gateway, made["id"])


@DRAWN
@given(st.dictionaries(st.sampled_from((*NAMES, "resource", "prompt")), WORDS), st.booleans(), st.booleans())
def test_a_request_to_sign_in_leads_to_the_page_or_back_or_nowhere(
    gateway: ServerGateway, program: Program, drawn: dict[str, str], is_known: bool, is_good: bool
) -> None:
    said = {**(GOOD if is_good else {}), **drawn, **({"client_id": program.identifier} if is_known else {})}
    answer = gateway.request("GET", f"/authorize?{urlencode(said)}", headers=NAVIGATION)
    assert answer.status in (302, 400)
    if answer.status == 302:
        location = answer.headers["location"]
        assert is_known
        assert location.startswith(("/consent/", f"{REDIRECT}?"))
        assert location.startswith("/consent/") or "iss=" in location
    else:
        assert answer.json["error"]["hint"] is None or isinstance(answer.json["error"]["hint"], str)


@DRAWN
@given(
    st.dictionaries(
        st.sampled_from(
            ("grant_type", "code", "refresh_token", "code_verifier", "client_secret", "client_id", "scope")
        ),
        st.one_of(WORDS, st.sampled_from(("authorization_code", "refresh_token", "cfd_" + "A" * 43))),
    ),
    st.booleans(),
)
def test_nobody_draws_a_token(gateway: ServerGateway, program: Program, drawn: dict[str, str], is_known: bool) -> None:
    said = {**drawn, **({"client_id": program.identifier} if is_known else {})}
    answer = gateway.request("POST", "/token", urlencode(said).encode(), headers=FORM)
    assert answer.status in (400, 401, 429)
    assert "error" in answer.json
    assert "access_token" not in answer.json


@DRAWN
@given(st.one_of(ANY.map(json.dumps).map(str.encode), st.binary(max_size=64)))
def test_whatever_is_no_request_of_mcp_is_told_so(gateway: ServerGateway, reader: str, body: bytes) -> None:
    for path, status in (("/mcp", (200, 202, 400, 404, 406, 415, 422, 429)), ("/register", (403,))):
        headers: dict[str, Any] = {"Accept": "application/json, text/event-stream"}
        answer = gateway.request("POST", path, body, token=reader, headers=headers)
        assert answer.status in status, (path, answer.status, answer.body)
        assert b"Traceback" not in answer.body


@DRAWN
@given(WORDS, st.sampled_from(("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")))
def test_there_is_nothing_at_other_addresses(gateway: ServerGateway, drawn: str, method: str) -> None:
    path = "/" + urlencode({"": drawn}).removeprefix("=").replace("+", "%20")
    assert gateway.request(method, path).status in (400, 401, 404, 405)
    assert gateway.request(method, f"/consent{path}").status in (400, 404, 405)
