"""A program signs in by OAuth: a device approves six words. What it is given turns over, and ends; and who tries otherwise gets nothing."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.addons.http.server.test_server_attacks import call
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.door_attacks import LISTEN, listen
from tests.support.programs.gateway import serving
from tests.support.programs.panel import Visit, text_of, words_of
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.server_gateway import ServerGateway, serve
from tests.support.programs.signing_in import FORM, NAVIGATION, REDIRECT, Program, error_of, returned

from confide_crypto.errors import RequestError
from confide_http.server.access.sign_ins import MOST_ASKED_EACH
from confide_http.server.oauth.routes import MOST_AT_ONCE
from confide_http.server.requests import MOST_GUESSES
from confide_proxy.link import device_identity as identities

MARKUP = '<script>alert(1)</script> & "Co"'


@dataclass
class House:
    """A gateway, a device of its space, a machine of another one, and one that may only read."""

    gateway: ServerGateway
    device: Machine
    stranger: Machine
    reader: Machine

    def program(self, name: str = "Chat", *options: str) -> Program:
        made = self.gateway.confided.json("http", "allow", name, "--space", "ann", "--redirect", REDIRECT, *options)
        return Program(self.gateway, made["id"], secret=made["secret"])

    def approve(self, words: str, *options: str, by: Machine | None = None, code: int = 0) -> str:
        return (by or self.device).run("gateway", "approve", words, "--yes", *options, code=code)

    def signed_in(self, program: Program, *options: str) -> Any:
        """Its tokens."""
        page = program.page()
        self.approve(program.words(page), *options)
        answer = program.exchange(program.code(page))
        assert answer.status == 200, answer.body
        return answer.json

    def is_let_in(self, token: str) -> bool:
        status = call(self.gateway, token, "memory_status").status
        assert status in (200, 401)
        return status == 200


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("signing-in")
    confided = Confided(root / "server")
    with (confided.home / "daemon.toml").open("a") as config:
        config.write('[gateway]\nlisten = "127.0.0.1:0"\n')
    confided.run("init")
    gateway = ServerGateway(serve(confided), confided)
    assert confided.address is not None
    url = confided.address["url"]
    machines = []
    for name, options in (("ann", ()), ("bob", ()), ("rea", ("--space", "ann", "--scope", "read"))):
        machine = Machine(root, name, is_set_up=False)
        machine.allow("project")
        machine.run("join", confided.json("invite", name, "--url", url, *options)["invite"])
        machines.append(machine)
    machines[0].run("sync")
    yield House(gateway, *machines)
    confided.end()


@pytest.fixture(scope="module")
def added(house: House) -> str:
    """The id of an application."""
    return house.program().identifier


@pytest.fixture
def chat(house: House, added: str) -> Program:
    """One that signs in anew, with a verifier of its own."""
    return Program(house.gateway, added)


async def test_a_program_is_let_in_by_words_that_a_device_approves(house: House, chat: Program) -> None:
    """As what it is: its word is untrusted; it turns over its token, is listed, and is out within a second once the device says so."""
    page = chat.page()
    words = chat.words(page)
    assert "Chat asks to read and write" in house.device.run("gateway", "approve", words, code=7, stdin="")
    told = house.device.json("gateway", "approve", *words.split("-"), "--yes", "--name", "chat")
    assert told["redirect"] == REDIRECT
    tokens = chat.exchange(chat.code(page)).json
    assert (tokens["token_type"], tokens["scope"]) == ("Bearer", "memory:read memory:write")
    assert 0 < tokens["expires_in"] <= 900
    async with house.gateway.session(tokens["access_token"]) as client:
        stored = {"content": "Quokkas smile.", "path": "memory/zoo.md", "project": "zoo"}
        assert not (await client.call_tool("memory_store", stored)).is_error
        found = await client.call_tool("memory_search", {"query": "quokkas"})
    assert found.structured_content is not None
    assert found.structured_content["results"][0]["class"] == "untrusted"
    second = chat.refresh(tokens["refresh_token"]).json
    assert house.is_let_in(second["access_token"])
    assert not house.is_let_in(tokens["access_token"])
    assert "chat reads and writes this space by HTTP, untrusted" in house.device.run("gateway", "ls")
    connection, stream = listen(house.gateway, second["access_token"])
    assert stream.status == 200
    house.device.run("gateway", "rm", "chat")
    began = time.monotonic()
    while stream.readline():
        assert time.monotonic() - began < DEADLINE_S  # one that went on would be kept alive with comments
    connection.close()
    assert not house.is_let_in(second["access_token"])
    assert error_of(chat.refresh(second["refresh_token"])) == (400, "invalid_grant")
    assert "no app is connected" in house.device.run("gateway", "ls")
    assert "no program of this name" in house.device.run("gateway", "rm", "chat", code=7)


def listed(visit: Visit) -> set[str]:
    """Who can be shut out there."""
    return set(re.findall(r"Remove<span[^>]*> ([^<]+)</span>", text_of(visit.get("devices"))))


def test_a_program_is_let_in_from_the_panel(house: House, chat: Program) -> None:
    """Words that are wrong let nobody in; who asks is shown first; and one that is shut out there is out within a second."""
    page = chat.page()
    words = chat.words(page)
    with serving(house.device) as panel:
        visit = Visit.begin(panel)
        before = listed(visit)
        assert visit.post("programs/look", words=words.rpartition("-")[0]).status == 404
        shown = words_of(visit.post("programs/look", words=words.upper().replace("-", " ")))
        assert "Approve Chat? The app asks to read and write this space" in shown
        assert REDIRECT in shown
        for wrong in ({"scope": "admin", "days": "3"}, {"scope": "read", "days": "0"}):
            assert visit.post("programs/approve", words=words, **wrong).status == 400
        told = visit.follow(visit.post("programs/approve", words=words, scope="read", days="3"))
        assert "the app may read." in words_of(told)
        tokens = chat.exchange(chat.code(page)).json
        assert tokens["scope"] == "memory:read"
        assert house.is_let_in(tokens["access_token"])
        (name,) = listed(visit) - before
        assert f"{name} can no longer reach this space" in words_of(visit.follow(visit.post("programs/end", name=name)))
        assert listed(visit) == before
        wait_until("it to be shut out", lambda: not house.is_let_in(tokens["access_token"]))


def test_less_than_was_asked_is_what_it_gets(house: House, chat: Program) -> None:
    tokens = house.signed_in(chat, "--scope", "read", "--project", "zoo", "--name", "lessened")
    assert tokens["scope"] == "memory:read"
    refused = call(house.gateway, tokens["access_token"], "memory_store", content="No.", path="memory/no.md")
    assert "unknown tool" in refused.body.decode().lower()
    house.device.run("gateway", "rm", "lessened")


def test_a_code_that_comes_again_gives_the_same_and_otherwise_ends_what_it_gave(house: House, chat: Program) -> None:
    """The answer may have been lost. Whoever has a used code, and not what belongs to it, shows that it was seen."""
    page = chat.page()
    house.approve(chat.words(page))
    code = chat.code(page)
    assert chat.code(page) == code  # a browser whose answer was lost asks again, and gets no other code
    tokens = chat.exchange(code).json
    assert house.gateway.request("GET", page).status == 404
    again = chat.exchange(code).json
    assert (again["access_token"], again["refresh_token"]) == (tokens["access_token"], tokens["refresh_token"])
    assert house.is_let_in(tokens["access_token"])
    other = house.program("Another")
    assert error_of(other.exchange(code)) == (400, "invalid_grant")
    assert house.is_let_in(tokens["access_token"])
    house.gateway.confided.run("http", "rm", "--app", other.identifier)
    assert error_of(chat.exchange(code, code_verifier="x" * 43)) == (400, "invalid_grant")
    assert not house.is_let_in(tokens["access_token"])
    assert error_of(chat.exchange(code)) == (400, "invalid_grant")
    assert error_of(chat.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


def test_a_lost_answer_signs_nobody_out_and_an_old_token_ends_the_family(house: House, chat: Program) -> None:
    """Two refreshes at once, as of two processes of one program: what both get works."""
    first = house.signed_in(chat)
    with ThreadPoolExecutor(2) as pool:
        answers = [each.json for each in pool.map(chat.refresh, [first["refresh_token"]] * 2)]
    answers.append(chat.refresh(first["refresh_token"]).json)
    assert len({(each["access_token"], each["refresh_token"]) for each in answers}) == 1
    second = answers[0]
    assert house.is_let_in(second["access_token"])
    third = chat.refresh(second["refresh_token"]).json
    assert house.is_let_in(third["access_token"])
    assert error_of(chat.refresh(first["refresh_token"])) == (400, "invalid_grant")
    assert not house.is_let_in(third["access_token"])
    assert error_of(chat.refresh(third["refresh_token"])) == (400, "invalid_grant")


@pytest.mark.parametrize("how", ["device rm", "revoke"])
def test_a_program_goes_with_the_machine_that_has_let_it_in(
    house: House, chat: Program, tmp_path: Path, how: str
) -> None:
    """A thief has one approved with a stolen machine, and with another one that this has brought in; the owner shuts the machine out."""
    before = listed_names(house)
    stolen, second = (Machine(tmp_path, f"{name}-{how[:3]}", is_set_up=False) for name in ("stolen", "second"))
    for by, machine in ((house.device, stolen), (stolen, second)):
        machine.allow("project")
        invite = by.run("device", "invite", machine.name, "--no-wait").splitlines()[0]
        machine.run("join", invite, code=0)
        by.run("status")
        machine.run("status")
    tokens = []
    for machine in (stolen, second):
        page = chat.page()
        told = house.approve(chat.words(page), "--trusted", "--days", "90", by=machine)
        assert "may read and write" in told
        tokens.append(chat.exchange(chat.code(page)).json)
    assert all(house.is_let_in(each["access_token"]) for each in tokens)
    if how == "revoke":
        told = house.gateway.confided.run("device", "rm", stolen.name, "--added", "--yes").stdout
        assert told.count("had let in") == 3
    else:
        told = house.device.run("device", "rm", stolen.name, "--added", "--yes")
        assert told.count("an app that it had approved") == 2
    for each in tokens:
        assert not house.is_let_in(each["access_token"])
        assert error_of(chat.refresh(each["refresh_token"])) == (400, "invalid_grant")
    assert listed_names(house) == before


def listed_names(house: House) -> list[str]:
    return [one["name"] for one in house.gateway.confided.json("http", "ls")]


def test_a_code_is_good_for_its_own_program_alone(house: House, chat: Program) -> None:
    """With its own verifier, address and audience; and none of these tries spoils it."""
    page = chat.page()
    house.approve(chat.words(page))
    code = chat.code(page)
    other = house.program("Other")
    other.verifier = chat.verifier
    for answer in (
        other.exchange(code),
        chat.exchange(code, code_verifier="x" * 43),
        chat.exchange(code, redirect_uri=REDIRECT + "/"),
        chat.exchange(code, resource="https://elsewhere.example/mcp"),
        chat.refresh(code),
    ):
        assert answer.status == 400, answer.body
    tokens = chat.exchange(code).json
    assert error_of(other.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
    assert house.is_let_in(chat.refresh(tokens["refresh_token"]).json["access_token"])
    house.gateway.confided.run("http", "rm", "--app", other.identifier)


def test_a_secret_is_asked_for_where_there_is_one(house: House) -> None:
    program = house.program("Secretive", "--secret")
    page = program.page()
    house.approve(program.words(page))
    code = program.code(page)
    for wrong in ("x", None):
        assert error_of(program.exchange(code, client_secret=wrong)) == (401, "invalid_client")
    tokens = program.exchange(code).json
    assert house.is_let_in(tokens["access_token"])
    house.gateway.confided.run("http", "rm", "--app", "Secretive")
    assert not house.is_let_in(tokens["access_token"])
    assert error_of(program.refresh(tokens["refresh_token"])) == (401, "invalid_client")


@pytest.mark.parametrize(
    "said",
    [
        *({"redirect_uri": f"{REDIRECT}{end}"} for end in ("/", "?a=b", "#x", "x")),
        {"redirect_uri": "http://127.0.0.1:99999/callback"},
        {"redirect_uri": "http://127.0.0.1:3118@evil.example/callback"},
        {"redirect_uri": "http://localhost:3118/callback"},
        {"redirect_uri": "HTTP://127.0.0.1:3118/callback"},
        {"redirect_uri": "javascript:alert(1)"},
        {"client_id": "another"},
        {"client_id": None},
    ],
    ids=str,
)
def test_an_address_one_byte_off_is_told_nothing(chat: Program, said: dict[str, str | None]) -> None:
    answer = chat.authorize(**said)
    assert answer.status == 400
    assert "location" not in answer.headers
    assert "alert" not in answer.body.decode()


@pytest.mark.parametrize(
    "added", ["http://127.0.0.1/callback", "http://127.0.0.1:3118/callback", "http://[::1]/cb", "http://localhost"]
)
def test_a_program_of_this_machine_comes_back_on_any_port(house: House, added: str) -> None:
    """RFC 8252, 7.3. What it gets a code for is what it has to say again."""
    confided = house.gateway.confided
    made = confided.json("http", "allow", "Native", "--space", "ann", "--redirect", added)
    scheme, host, path = re.split(r"(?<=//)([^/]*?)(?::3118)?(?=/|$)", added, maxsplit=1)
    program = Program(house.gateway, made["id"], redirect=f"{scheme}{host}:54321{path}")
    page = program.page()
    shown = house.gateway.request("GET", page).body.decode()
    assert f"<strong>{host}:54321</strong>: {program.redirect}</p>" in shown
    house.approve(program.words(page), "--name", "native")
    back = house.gateway.request("GET", page).headers["location"]
    assert back.startswith(f"{program.redirect}?code=")
    code = dict(parse_qsl(urlsplit(back).query))["code"]
    for other in (f"{scheme}{host}:54322{path}", None):
        assert program.exchange(code, redirect_uri=other).status == 400
    assert program.exchange(code).status == 200
    confided.run("http", "rm", "--app", program.identifier)


def test_a_program_with_a_scheme_of_its_own_signs_in(house: House) -> None:
    """RFC 8252, 7.1: Cursor, which the operator has added; and the page says that no host is behind it."""
    redirect = "cursor://anysphere.cursor-mcp/oauth/callback"
    confided = house.gateway.confided
    made = confided.json("http", "allow", "Cursor", "--space", "ann", "--redirect", redirect)
    program = Program(house.gateway, made["id"], redirect=redirect)
    page = program.page()
    assert (
        "the program on this computer that opens cursor: addresses" in house.gateway.request("GET", page).body.decode()
    )
    house.approve(program.words(page))
    assert house.gateway.request("GET", page).headers["location"].startswith(f"{redirect}?code=")
    confided.run("http", "rm", "--app", program.identifier)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "memory:read memory:secrets"}, "invalid_scope"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"state": "x" * 4000}, "invalid_request"),
    ],
    ids=str,
)
def test_what_else_is_wrong_is_told_to_the_program_with_who_answers(
    house: House, chat: Program, said: dict[str, str | None], error: str
) -> None:
    """RFC 9207: an answer that was meant for another server is known by it."""
    back = returned(chat.authorize(**said))
    assert (back["error"], back["iss"]) == (error, house.gateway.url)
    assert "code" not in back


def test_a_parameter_twice_is_refused(house: House, chat: Program) -> None:
    page = chat.page()
    assert page.startswith("/consent/")
    query = f"client_id={chat.identifier}&client_id=other&redirect_uri={REDIRECT}"
    assert house.gateway.request("GET", f"/authorize?{query}").status == 400


def test_the_page_runs_nothing_and_is_framed_by_nobody(house: House) -> None:
    """Whatever a program is called."""
    program = house.program(MARKUP)
    page = program.page()
    shown = house.gateway.request("GET", page, headers=NAVIGATION)
    text = shown.body.decode()
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert shown.headers["x-frame-options"] == "DENY"
    assert shown.headers["referrer-policy"] == "no-referrer"
    assert shown.headers["cache-control"] == "no-store"
    assert '<meta http-equiv="refresh" content="2">' in text
    framed = house.gateway.request("GET", page, headers={**NAVIGATION, "Sec-Fetch-Dest": "iframe"})
    assert framed.status == 403
    assert house.gateway.request("GET", "/consent/" + "x" * 43).status == 404
    assert house.gateway.request("GET", "/consent.css").status == 200
    house.gateway.confided.run("http", "rm", "--app", program.identifier)


def test_words_are_approved_by_a_device_of_the_space_that_decides(house: House, chat: Program) -> None:
    """Not by a machine of another space, nor by one that may only read; and those of another request approve nothing here."""
    page, other = chat.page(), chat.page()
    words = chat.words(page)
    assert words != chat.words(other)
    unknown = house.approve("abandon " * 6, code=7)
    assert "no sign-in with these words waits" in unknown
    assert house.approve(words, by=house.stranger, code=7) == unknown
    assert "may read the memory but not write it" in house.approve(words, by=house.reader, code=6)
    assert "may read the memory but not write it" in house.reader.run("gateway", "rm", "chat", code=6)
    assert chat.words(page) == words
    house.approve(words)
    assert chat.words(other)
    assert chat.exchange(chat.code(page)).status == 200


def test_whoever_approves_again_is_told_that_it_is_approved(house: House, chat: Program) -> None:
    """The answer may have been lost, and the page in the browser has gone on meanwhile, or not yet."""
    page = chat.page()
    words = chat.words(page)
    house.approve(words, "--scope", "read", "--days", "30")
    said = "these words were approved on this device already: Chat may read, for 30 days"
    assert said in house.approve(words, code=7)
    assert chat.exchange(chat.code(page)).status == 200
    assert said in house.approve(words, code=7)
    assert "no sign-in with these words waits" in house.approve(words, by=house.stranger, code=7)


async def test_wrong_words_are_few(house: House, chat: Program) -> None:
    """Of one connection; words that are right count no more there, and do on another."""
    words = chat.words(chat.page())
    machine = await house.gateway.confided.connect(identities.identity(house.device.home / "proxy/identity.key"))
    codes = []
    async with machine:
        for guess in (*(f"{'abandon ' * 5}guess{number}" for number in range(MOST_GUESSES)), words):
            with pytest.raises(RequestError) as refused:
                await machine.connection.request("sign-in", {"words": guess})
            codes.append(refused.value.code)
    assert codes == ["not_found"] * MOST_GUESSES + ["busy"]
    house.approve(words)


def register(house: House, **said: Any) -> Any:
    body = {"client_name": "Self", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none", **said}
    return house.gateway.request("POST", "/register", body)


def test_programs_register_themselves_only_while_it_is_open(house: House) -> None:
    """Then with exact addresses, by TLS or of the same machine; each is approved like any other, and whoever opened is told of each."""
    described = "/.well-known/oauth-authorization-server"
    assert register(house).status == 403
    assert "registration_endpoint" not in house.gateway.request("GET", described).json
    opened = house.gateway.confided.start("http", "allow", "--open", "--space", "ann")
    wait_until("it to be open", lambda: "registration_endpoint" in house.gateway.request("GET", described).json)
    try:
        for said in (
            {"redirect_uris": ["http://evil.example/callback"]},
            {"redirect_uris": ["cursor://callback"]},
            {"redirect_uris": ["https://me@evil.example/"]},
            {"redirect_uris": ["https://good.example/#x"]},
            {"redirect_uris": [f"https://good.example/{number}" for number in range(9)]},
            {"redirect_uris": []},
            {"client_name": "x" * 65},
            {"client_name": "a\u202eb"},
            {"token_endpoint_auth_method": "private_key_jwt"},
            {"scope": "memory:secrets"},
            {"grant_types": ["client_credentials"]},
        ):
            assert register(house, **said).status == 400, said
        for body in (b"{", b"[" * 9000, json.dumps({"x": "y" * 20_000}).encode(), b"\xff"):
            assert house.gateway.request("POST", "/register", body).status in (400, 413)
        cursor = "cursor://anysphere.cursor-mcp/oauth/callback"
        assert register(house, redirect_uris=[cursor, "http://localhost:8787/callback"]).status == 201
        odd = "https://Client.example/a/../callback"  # which the SDK would write otherwise
        mine = Program(house.gateway, register(house, redirect_uris=[odd]).json["client_id"], redirect=odd)
        assert mine.page().startswith("/consent/")
        made = register(house).json
        program = Program(house.gateway, made["client_id"])
        page = program.page()
        assert "It has registered itself" in house.gateway.request("GET", page).body.decode()
        house.approve(program.words(page))
        assert house.is_let_in(program.exchange(program.code(page)).json["access_token"])
        assert REDIRECT in house.gateway.confided.run("http", "ls", "--apps").stdout
        opened.send_signal(signal.SIGINT)
        told, _ = opened.communicate(timeout=DEADLINE_S)
    finally:
        opened.kill()
    assert told == "registered: 3\n"
    assert f"registered: Self, which redirects to {REDIRECT}" in house.gateway.confided.log
    assert register(house).status == 403
    house.gateway.confided.run("http", "rm", "--app", program.identifier)


def test_a_sensitive_note_is_its_title_and_what_is_sealed_stays_so(house: House, chat: Program) -> None:
    """Neither a search, nor reading, nor a list shows more to a program that was signed in."""
    canary = "The walrus sleeps at half past three."
    made = house.device.json("store", canary, "--title", "Walrus hours", "--sensitive", "--type", "note")
    tokens = house.signed_in(chat, "--name", "curious")
    for tool, arguments in (
        ("memory_search", {"query": "walrus sleeps"}),
        ("memory_read", {"path": made["path"], "project": "project"}),
    ):
        found = call(house.gateway, tokens["access_token"], tool, **arguments).body.decode()
        assert "half past three" not in found
        assert "sealed:" in found or "Walrus hours" in found, found
    house.device.run("gateway", "rm", "curious")


def test_it_describes_where_to_sign_in(house: House) -> None:
    resource = house.gateway.request("GET", "/.well-known/oauth-protected-resource").json
    assert resource["authorization_servers"] == [house.gateway.url]
    server = house.gateway.request("GET", "/.well-known/oauth-authorization-server").json
    assert server["issuer"] == house.gateway.url
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] is True


def test_nothing_of_it_is_in_the_log_and_a_token_of_one_kind_is_none_of_the_other(house: House, chat: Program) -> None:
    tokens = house.signed_in(chat)
    assert not house.is_let_in(tokens["refresh_token"])
    assert error_of(chat.refresh(tokens["access_token"])) == (400, "invalid_grant")
    assert house.gateway.request("POST", "/mcp", LISTEN, token=tokens["refresh_token"]).status in (401, 429)
    log = house.gateway.confided.log
    assert "cfd_" not in log
    assert "Traceback" not in log
    assert "of-the-program" not in log


@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own")
def test_requests_from_one_address_keep_nobody_from_signing_in(house: House) -> None:
    """Whoever knows the id of a program can ask in its name, and more than it has places for."""
    program = house.program("Crowded")
    elsewhere = replace(program, gateway=replace(house.gateway, come_from="127.0.0.2"))
    for _ in range(MOST_ASKED_EACH):
        elsewhere.page()
    assert returned(elsewhere.authorize())["error"] == "temporarily_unavailable"
    page = program.page()
    assert returned(elsewhere.authorize())["error"] == "temporarily_unavailable"
    house.approve(program.words(page))
    assert program.exchange(program.code(page)).status == 200


def test_bodies_that_do_not_come_keep_nobody_from_signing_in(house: House, chat: Program) -> None:
    """A place is for what is looked up, and not for what has not come."""
    page = chat.page()
    house.approve(chat.words(page))
    code = chat.code(page)
    with ExitStack() as stack:
        for _ in range(MOST_AT_ONCE + 8):
            slow = stack.enter_context(closing(house.gateway.connection()))
            slow.putrequest("POST", "/token")
            for name, value in (FORM | {"Content-Length": "1000"}).items():
                slow.putheader(name, value)
            slow.endheaders(b"grant_type=")
        assert chat.exchange(code).status == 200


def test_wrong_codes_are_few(house: House, chat: Program) -> None:
    """A flood of wrong codes keeps nobody from signing in, and a used code that comes again still ends its access."""
    page = chat.page()
    house.approve(chat.words(page))
    code = chat.code(page)
    statuses = [chat.exchange(f"{number:043}").status for number in range(40)]
    assert set(statuses) == {400, 429}
    assert statuses[-1] == 429
    answer = chat.exchange(code)
    assert answer.status == 200
    assert chat.exchange(code, code_verifier="x" * 43).status == 429
    assert not house.is_let_in(answer.json["access_token"])
