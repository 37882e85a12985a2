"""How far a sign-in is, as the registry keeps it: every step once, every step in time, and nothing kept by which anybody could come in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.clock import Clock

from confide_crypto.keys.bearer_tokens import digest_of
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites, JoinedInvite
from confide_daemon.errors import BadNameError, TakenError
from confide_http.server.access import sign_ins
from confide_http.server.access.applications import MOST, Application, Applications
from confide_http.server.access.sign_ins import (
    ACCESS_S,
    CODE_S,
    MOST_ASKED,
    MOST_ASKED_EACH,
    MOST_DAYS,
    REFRESH_S,
    REPEAT_S,
    WORDS_S,
    ApprovedGrant,
    AuthorizationRequest,
    Issued,
    Refresh,
    SignIns,
    words_of,
)

REDIRECT = "https://claude.ai/api/mcp/auth_callback"
RESOURCE = "https://memory.example.org/mcp"
ASKED = AuthorizationRequest(REDIRECT, True, "a state", "write", "C" * 43, RESOURCE)
DEVICE = b"d" * 32
GRANTED = ApprovedGrant("claude", "write", None, "untrusted", 90, DEVICE.hex())
FILE_KEY = b"k" * 32


@dataclass
class Desk:
    """A registry with a device and an application."""

    path: Path
    clock: Clock

    def __post_init__(self) -> None:
        self.open()
        self.registry.add_caller(DEVICE, Grants("laptop", "write"), space="home", added_by="invite")
        self.application = self.applications.add("Claude", space="home", redirects=[REDIRECT])

    def open(self) -> None:
        self.registry = Registry.open(self.path, FILE_KEY, clock=self.clock)
        self.applications, self.sign_ins = Applications(self.registry), SignIns(self.registry)

    def again(self) -> None:
        """As after a restart."""
        self.registry.close()
        self.open()

    def asked(self) -> str:
        return self.sign_ins.ask(self.application, ASKED)

    def granted(self, granted: ApprovedGrant = GRANTED) -> str:
        """An id whose words were approved."""
        identifier = self.asked()
        found = self.sign_ins.find_by_words(words_of(identifier), "home")
        assert found is not None
        assert self.sign_ins.approve(found, granted) is not None
        return identifier

    def code(self) -> str:
        identifier = self.granted()
        return self.handed_out(identifier)

    def handed_out(self, identifier: str) -> str:
        code = self.sign_ins.hand_out(identifier)
        assert code is not None
        return code.text

    def exchange(self, text: str) -> Issued | None:
        code = self.sign_ins.code(text)
        return None if code is None else self.sign_ins.exchange(code)

    def issued(self) -> Issued:
        found = self.exchange(self.code())
        assert found is not None
        return found

    def refresh(self, text: str) -> Issued | None:
        found = self.sign_ins.refresh_of(text, self.application.id)
        return None if found is None else self.sign_ins.turn_over(found)

    def is_let_in(self, text: str, resource: str = RESOURCE) -> bool:
        digest = digest_of(text)
        assert digest is not None
        found = self.sign_ins.access(digest, resource)
        return found is not None and found.caller.refusal_reason(self.clock.now) is None

    @property
    def families(self) -> list[str]:
        """Who is let in by a sign-in now."""
        return [one.alias for one in self.registry.gateway_clients()]


@pytest.fixture
def desk(tmp_path: Path, clock: Clock) -> Iterator[Desk]:
    made = Desk(tmp_path / "registry.db", clock)
    yield made
    made.registry.close()


def test_each_step_outlives_a_restart_and_is_made_once(desk: Desk) -> None:
    identifier = desk.asked()
    desk.again()
    found = desk.sign_ins.find_by_words(words_of(identifier).upper().replace("-", " "), "home")
    assert found is not None
    assert desk.sign_ins.approve(found, GRANTED) == GRANTED
    assert desk.sign_ins.approve(found, GRANTED) == GRANTED  # a device whose answer was lost asks again
    assert desk.sign_ins.approve(found, replace(GRANTED, name="twice")) is None
    desk.again()
    text = desk.handed_out(identifier)
    desk.again()
    assert desk.handed_out(identifier) == text  # a browser whose answer was lost asks again
    assert desk.families == []
    issued = desk.exchange(text)
    assert issued is not None
    desk.again()
    assert desk.is_let_in(issued.access)
    assert desk.families == ["claude"]
    second = desk.refresh(issued.refresh)
    assert second is not None
    desk.again()
    assert desk.is_let_in(second.access)
    assert not desk.is_let_in(issued.access)
    assert desk.families == ["claude"]


@pytest.mark.parametrize("step", ["code", "refresh"])
def test_a_kill_in_the_middle_of_a_step_undoes_it_and_one_behind_it_leaves_one_family(
    desk: Desk, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it the answer is lost: whoever asks again gets the same."""
    text = desk.code()
    first = desk.exchange(text) if step == "refresh" else None
    wanted = first.refresh if first else text
    take = desk.refresh if first else desk.exchange

    def killed(*_: object) -> tuple[str, bytes]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sign_ins, "following_token", killed)
        with pytest.raises(KeyboardInterrupt):
            take(wanted)
    desk.again()
    assert desk.families == (["claude"] if first else [])
    take = desk.refresh if first else desk.exchange
    issued = take(wanted)
    assert issued is not None
    desk.again()
    take = desk.refresh if first else desk.exchange
    assert take(wanted) == issued
    assert desk.families == ["claude"]


def test_a_page_gives_its_code_until_the_code_is_used_or_over(desk: Desk, clock: Clock) -> None:
    """And none before its words are approved."""
    identifier = desk.asked()
    assert desk.sign_ins.hand_out(identifier) is None
    identifier = desk.granted()
    text = desk.handed_out(identifier)
    assert desk.exchange(text) is not None
    assert desk.sign_ins.hand_out(identifier) is None
    assert desk.exchange(text) is not None  # what is asked for it gives is as before
    identifier = desk.granted()
    desk.handed_out(identifier)
    clock.now += CODE_S
    assert desk.sign_ins.hand_out(identifier) is None
    assert len(desk.families) == 1


def test_who_asks_again_at_once_gets_the_same(desk: Desk, clock: Clock) -> None:
    """The answer was lost, or two processes of a program ask at once: both have found it good, and what they get works for both."""
    code = desk.sign_ins.code(desk.code())
    assert code is not None
    issued = desk.sign_ins.exchange(code)
    assert issued is not None
    assert desk.sign_ins.exchange(code) == issued
    for _ in range(3):
        found = desk.sign_ins.refresh_of(issued.refresh, desk.application.id)
        assert found is not None
        second = desk.sign_ins.turn_over(found)
        assert second is not None
        clock.now += REPEAT_S - 1
        expected = replace(second, expires_in_s=int(ACCESS_S - REPEAT_S + 1))
        assert desk.sign_ins.turn_over(found) == expected == desk.refresh(issued.refresh)
        assert desk.is_let_in(second.access)
        issued = second
    assert desk.families == ["claude"]


@pytest.mark.parametrize("what", ["code", "refresh"])
@pytest.mark.parametrize("how", ["late", "late at once", "its successor was used", "its end", "an earlier clock"])
def test_what_comes_again_otherwise_ends_what_it_gave(desk: Desk, clock: Clock, what: str, how: str) -> None:
    text = desk.code()
    issued = desk.exchange(text)
    assert issued is not None
    take = desk.exchange
    if what == "refresh":
        text, take = issued.refresh, desk.refresh
        issued = take(text)
        assert issued is not None
    found = desk.sign_ins.refresh_of(text, desk.application.id) if what == "refresh" else desk.sign_ins.code(text)
    assert found is not None
    if how == "its successor was used":
        assert take(text) == issued
        issued = desk.refresh(issued.refresh)
        assert issued is not None
    elif how == "its end":
        desk.registry.revoke("claude")
    else:
        clock.now += -REPEAT_S if how == "an earlier clock" else REPEAT_S
    if how == "late at once":  # it was found good before
        again = desk.sign_ins.turn_over(found) if isinstance(found, Refresh) else desk.sign_ins.exchange(found)
        assert again is None
    else:
        assert take(text) is None
    assert desk.families == []
    assert not desk.is_let_in(issued.access)
    assert desk.refresh(issued.refresh) is None


def test_no_more_than_the_last_answer_can_be_made_from_what_is_kept(desk: Desk) -> None:
    """By a token that was used, and a copy of the registry: nothing that came later."""
    first = desk.issued()
    second = desk.refresh(first.refresh)
    assert second is not None
    assert desk.refresh(second.refresh) is not None
    with desk.registry.reading() as database:
        kept = database.execute("SELECT digest FROM tokens WHERE salt IS NOT NULL").fetchall()
        codes = database.execute("SELECT count(*) FROM codes WHERE salt IS NOT NULL").get
    assert kept == [(digest_of(second.refresh),)]
    assert codes == 0


def test_everything_has_an_end(desk: Desk, clock: Clock) -> None:
    identifier, late = desk.asked(), desk.granted()
    clock.now += WORDS_S
    assert desk.sign_ins.waiting(identifier) is None
    assert desk.sign_ins.find_by_words(words_of(identifier), "home") is None
    assert desk.sign_ins.waiting(late) is None
    text = desk.code()
    clock.now += CODE_S
    assert desk.exchange(text) is None
    issued = desk.issued()
    clock.now += ACCESS_S
    assert not desk.is_let_in(issued.access)
    second = desk.refresh(issued.refresh)
    assert second is not None
    assert desk.is_let_in(second.access)
    clock.now += REFRESH_S
    assert desk.refresh(second.refresh) is None


def test_what_was_granted_for_days_ends_with_them(desk: Desk, clock: Clock) -> None:
    identifier = desk.granted(replace(GRANTED, days=1))
    issued = desk.exchange(desk.handed_out(identifier))
    assert issued is not None
    clock.now += 86_400 - 60
    issued = desk.refresh(issued.refresh)
    assert issued is not None
    assert issued.expires_in_s == 60
    clock.now += 60
    assert not desk.is_let_in(issued.access)
    assert desk.refresh(issued.refresh) is None


def test_it_is_good_for_what_it_was_asked_for(desk: Desk) -> None:
    """Another space's device finds no words; another audience, program or kind of token is none."""
    identifier = desk.asked()
    assert desk.sign_ins.find_by_words(words_of(identifier), "work") is None
    assert desk.sign_ins.find_by_words(words_of(identifier)[:-1], "home") is None
    issued = desk.issued()
    assert not desk.is_let_in(issued.access, "https://elsewhere.example/mcp")
    assert not desk.is_let_in(issued.refresh)
    other = desk.applications.add("Other", space="home", redirects=[REDIRECT])
    assert desk.sign_ins.refresh_of(issued.refresh, other.id) is None
    assert desk.sign_ins.refresh_of(issued.access, desk.application.id) is None
    assert desk.is_let_in(issued.access)


def test_never_more_than_was_asked(desk: Desk) -> None:
    identifier = desk.sign_ins.ask(desk.application, replace(ASKED, scope="read"))
    found = desk.sign_ins.find_by_words(words_of(identifier), "home")
    assert found is not None
    granted = desk.sign_ins.approve(found, GRANTED)
    assert granted is not None
    assert granted.scope == "read"


def test_a_device_that_was_shut_out_meanwhile_has_let_nobody_in(desk: Desk) -> None:
    text = desk.code()
    desk.registry.revoke("laptop")
    assert desk.exchange(text) is None
    assert desk.families == []


def test_a_program_is_found_by_who_has_let_it_in(desk: Desk, clock: Clock) -> None:
    """Also by who has brought that machine in, and after a change of its key; and not for longer than a device may let one in."""
    invites, thief = Invites(desk.registry), b"t" * 32
    invites.add_for(DEVICE, b"i" * 16, b"p" * 32, alias="desk-2", scope="write", ttl_s=60)
    assert isinstance(invites.join(b"i" * 16, thief), JoinedInvite)
    for by, name in ((DEVICE, "one"), (thief, "two")):
        identifier = desk.granted(replace(GRANTED, name=name, by=by.hex(), days=3650, gateway="trusted"))
        assert desk.exchange(desk.handed_out(identifier)) is not None
    assert {one.expires_at for one in desk.registry.gateway_clients()} == {clock.now + MOST_DAYS * 86_400}
    assert [one.inviter for one in desk.registry.gateway_clients()] == ["laptop", "desk-2"]
    desk.registry.name_successor(DEVICE, b"e" * 32, session="s")
    desk.registry.succeed(b"e" * 32)
    assert desk.registry.revoke("laptop") is not None
    assert [one.alias for one in desk.registry.brought_in_by([b"e" * 32], {})] == ["desk-2", "one", "two"]
    assert [one.alias for one in desk.registry.brought_in_by([thief], {})] == ["two"]


def test_who_ends_it_ends_all_of_it(desk: Desk) -> None:
    """The operator, by the caller's name, or with the application."""
    issued = desk.issued()
    desk.registry.revoke("claude")
    assert not desk.is_let_in(issued.access)
    assert desk.refresh(issued.refresh) is None
    issued, text = desk.issued(), desk.code()
    desk.applications.remove("Claude")
    assert not desk.is_let_in(issued.access)
    assert desk.exchange(text) is None
    assert desk.families == []


def test_few_wait_at_a_time(desk: Desk, clock: Clock) -> None:
    for _ in range(MOST_ASKED_EACH):
        desk.asked()
    with pytest.raises(TakenError, match="too many sign-ins"):
        desk.asked()
    clock.now += WORDS_S
    assert desk.asked()


def test_one_address_keeps_nobody_from_signing_in(desk: Desk) -> None:
    """A program's id is no secret: whoever knows it could take all the places of those who sign in with it.

    The oldest of whoever holds most goes, for one who holds fewer; what was approved stays, and so does the one who came.
    """
    ask = partial(desk.sign_ins.ask, desk.application, ASKED)
    approved = ask("flood")
    found = desk.sign_ins.find_by_words(words_of(approved), "home")
    assert found is not None
    assert desk.sign_ins.approve(found, GRANTED) is not None
    flood = [ask("flood") for _ in range(MOST_ASKED_EACH)]
    person = ask("person")
    for _ in range(3):
        with pytest.raises(TakenError, match="too many sign-ins"):
            ask("flood")
    stays = [desk.sign_ins.waiting(one) is not None for one in (approved, *flood, person)]
    assert stays == [True, False, *[True] * (len(stays) - 2)]


def test_room_for_all_programs_together_is_made_alike(desk: Desk) -> None:
    others = [
        desk.applications.add(f"n{number}", space="home", redirects=[REDIRECT])
        for number in range(MOST_ASKED // MOST_ASKED_EACH)
    ]
    for other in others:
        for _ in range(MOST_ASKED_EACH):
            desk.sign_ins.ask(other, ASKED, "flood")
    assert desk.sign_ins.waiting(desk.sign_ins.ask(desk.application, ASKED, "person"))
    with pytest.raises(TakenError, match="too many sign-ins"):
        desk.sign_ins.ask(desk.application, ASKED, "flood")


def test_no_secret_is_kept(desk: Desk, tmp_path: Path) -> None:
    """Neither an id, nor words, nor a code, nor a token, nor an application's secret: only what they hash to."""
    made = desk.applications.add(
        "Secretive", space="home", redirects=[REDIRECT], method="client_secret_post", secret="a secret of it"
    )
    identifier = desk.granted()
    code = desk.handed_out(identifier)
    issued = desk.exchange(code)
    assert issued is not None
    desk.asked()
    with desk.registry.reading() as database:
        tables = ("applications", "sign_ins", "codes", "tokens", "callers", "audit")
        kept = str([database.execute(f"SELECT * FROM {table}").fetchall() for table in tables])
    for secret in (identifier, words_of(identifier), code, issued.access, issued.refresh, "a secret of it"):
        assert str(secret) not in kept
    assert made.secret is not None


@pytest.mark.parametrize(
    "address",
    [
        "http://claude.ai/callback",
        "https://",
        "https:///x",
        "https://a@b/",
        "https://a/#x",
        "https://a\\b/",
        "https://a/ b",
        "https://a/\u202e",
        "javascript:alert(1)",
        "javascript:/alert(1)",
        "javascript://x/%0aalert(1)",
        "java.script:alert(1)",
        "data:/text/html,x",
        "file:///etc/passwd",
        "blob:/x",
        "view-source:/x",
        "vbscript:/x",
        "intent://x",
        "mailto:/x",
        "ftp://x/",
        "ws://x/",
        "httpx://x/",
        "https.example:/x",
        "http.example:/x",
        "http:/127.0.0.1/x",
        "https:x",
        "Cursor://x/",
        "cursor:x",
        "cursor://a@b/",
        "cursor://a/#x",
        "cursor://a\\b",
        ".example:/x",
        "http://127.0.0.1:99999/",
        "http://127.1/callback",
        "http://localhost.evil.example/",
        "http://127.0.0.1.evil.example/",
        "http://127.0.0.1@evil.example/",
        "https://[::1/",
        "https://a:x/",
        "x" * 2000,
        "",
    ],
)
def test_nobody_is_sent_back_to_anywhere(desk: Desk, address: str) -> None:
    with pytest.raises(BadNameError, match="to send a person back to"):
        desk.applications.add("X", space="home", redirects=[address])


@pytest.mark.parametrize(
    ("added", "those", "others"),
    [
        (
            "http://127.0.0.1/callback",
            ("http://127.0.0.1/callback", "http://127.0.0.1:1/callback", "http://127.0.0.1:65535/callback"),
            (
                *("http://127.0.0.1:0/callback", "http://127.0.0.1:65536/callback", "http://127.0.0.1:080/callback"),
                *("http://127.0.0.1:/callback", "http://127.0.0.1:+80/callback", "http://127.0.0.1:8\u0660/callback"),
                *("http://127.0.0.1:80/", "http://127.0.0.1:80/callback/", "http://127.0.0.1:80/callback?a=b"),
                *(
                    "http://127.0.0.1:80/callback#x",
                    "http://127.0.0.1:80/x/../callback",
                    "http://127.0.0.1:80/Callback",
                ),
                *("http://127.0.0.1:80\\@evil.example/callback", "http://127.0.0.1:80@evil.example/callback"),
                *("http://127.0.0.1.evil.example:80/callback", "http://127.0.0.1:80.evil.example/callback"),
                *("http://me@127.0.0.1:80/callback", "http://127.0.0.2:80/callback", "http://127.1:80/callback"),
                *("https://127.0.0.1:80/callback", "HTTP://127.0.0.1:80/callback", "//127.0.0.1:80/callback"),
                *("http://localhost:80/callback", "http://[::1]:80/callback", "http://127.0.0.1:80/callback\n"),
            ),
        ),
        (
            "http://localhost:33418/?a=b",
            ("http://localhost:54321/?a=b", "http://localhost:33418/?a=b", "http://localhost/?a=b"),
            ("http://localhost:54321/", "http://Localhost:54321/?a=b", "http://localhost.:54321/?a=b"),
        ),
        (
            "http://[::1]/cb",
            ("http://[::1]:9/cb",),
            ("http://[::2]:9/cb", "http://[0:0:0:0:0:0:0:1]:9/cb", "http://::1/cb"),
        ),
        ("http://127.0.0.1", ("http://127.0.0.1:3118",), ("http://127.0.0.1:3118/", "http://127.0.0.1:3118.example")),
        ("https://claude.ai/cb", ("https://claude.ai/cb",), ("https://claude.ai:443/cb", "https://claude.ai:8443/cb")),
        (
            "cursor://anysphere.cursor-mcp/oauth/callback",
            ("cursor://anysphere.cursor-mcp/oauth/callback",),
            (
                *("cursor://anysphere.cursor-mcp:80/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback?x"),
                *("Cursor://anysphere.cursor-mcp/oauth/callback", "cursor:/anysphere.cursor-mcp/oauth/callback"),
            ),
        ),
        ("org.example.app:/back", ("org.example.app:/back",), ("org.example.app://back", "org.example.app:/back/")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_address_is_one_to_the_letter_but_for_the_port_of_loopback(
    desk: Desk, added: str, those: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """RFC 8252, 7.1 and 7.3: a native program listens on another port each time, or has a scheme of its own."""
    application = desk.applications.add("Native", space="home", redirects=[REDIRECT, added])
    assert [each for each in those if not application.may_send_to(each)] == []
    assert [each for each in others if application.may_send_to(each)] == []


def test_a_program_registers_a_scheme_of_its_own_only_where_it_is_known_for_it(desk: Desk) -> None:
    """It could name the scheme of another program; and so could a document."""
    known = "cursor://anysphere.cursor-mcp/oauth/callback"
    for address in ("cursor://anysphere.cursor-mcp/oauth/callback2", "org.example.app:/back", "vscode://x/y"):
        assert desk.applications.add("By the operator", space="home", redirects=[address]).redirects == (address,)
        with pytest.raises(BadNameError, match="to send a person back to"):
            desk.applications.add("Registered", space="home", redirects=[known, address], is_registered=True)
        with pytest.raises(BadNameError, match="to send a person back to"):
            desk.applications.note_document("https://x.example/y", "Described", space="home", redirects=[address])
    redirects = (known, "https://www.cursor.com/agents/mcp/oauth/callback", "http://localhost:8787/callback")
    assert desk.applications.add("Cursor", space="home", redirects=redirects, is_registered=True).redirects == redirects


def test_applications_are_few_and_those_that_came_by_themselves_make_room(desk: Desk) -> None:
    def add(name: str, *, is_registered: bool) -> Application:
        return desk.applications.add(name, space="home", redirects=[REDIRECT], is_registered=is_registered)

    oldest = add("oldest", is_registered=True)
    for number in range(MOST - 2):
        add(f"n{number}", is_registered=False)
    add("one more", is_registered=False)
    assert desk.applications.find(oldest.id) is None
    with pytest.raises(TakenError, match="applications already"):
        add("too many", is_registered=True)
    with pytest.raises(TakenError, match="no space"):
        desk.applications.add("X", space="hame", redirects=[REDIRECT])


def test_registration_is_open_while_somebody_says_so(desk: Desk, clock: Clock) -> None:
    desk.registry.add_caller(b"w" * 32, Grants("desk", "write"), space="work", added_by="invite")
    assert desk.applications.open_space() is None
    desk.applications.keep_open("home", for_s=5)
    assert desk.applications.open_space() == "home"
    with pytest.raises(TakenError, match="open for the space home"):
        desk.applications.keep_open("work", for_s=5)
    clock.now += 5
    assert desk.applications.open_space() is None
    desk.applications.keep_open("work", for_s=5)
    desk.applications.close("work")
    assert desk.applications.open_space() is None


def test_the_audit_log_says_that_it_was_and_no_word_of_a_stranger(desk: Desk) -> None:
    issued = desk.issued()
    second = desk.refresh(issued.refresh)
    assert second is not None
    desk.refresh(second.refresh)
    desk.refresh(issued.refresh)
    told = [(one.event, one.caller, one.detail) for one in desk.registry.audit_entries()]
    assert ("approved", "laptop", "a sign-in by HTTP") in told
    assert ("revoked", "claude", "its refresh token came twice") in told
    assert "Claude" not in json.dumps([detail for _, _, detail in told])
