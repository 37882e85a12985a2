"""Invites: one string in, the same address, key and secrets out, and nothing of it in any message."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_crypto.errors import EXIT_DENIED, InviteError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys import bech32m

STATIC = bytes(range(32))


@pytest.mark.parametrize(
    ("url", "text", "websocket"),
    [
        ("ws://notes.example", "confide://notes.example:7733/#", "ws://notes.example:7733/"),
        ("confide://notes.example/", "confide://notes.example:7733/#", "ws://notes.example:7733/"),
        ("ws://10.0.0.1:1234", "confide://10.0.0.1:1234/#", "ws://10.0.0.1:1234/"),
        ("wss://notes.example:443/memory/", "confides://notes.example:443/memory/#", "wss://notes.example:443/memory"),
        ("confides://[::1]:9/a/b", "confides://[::1]:9/a/b/#", "wss://[::1]:9/a/b"),
    ],
)
def test_an_invite_leads_to_the_same_place_after_pasting(url: str, text: str, websocket: str) -> None:
    invite = Invite.new(STATIC, url)
    pasted = invite.to_string()
    assert pasted.startswith(text + "invite1")
    for form in (
        pasted,
        f"  '{pasted}'\n",
        f'"{pasted}"',
        pasted.partition("#")[0] + "#" + pasted.partition("#")[2].upper(),
    ):
        again = Invite.parse(form)
        assert again == invite
        assert again.websocket_url == websocket
        assert (again.invite_id, again.invite_psk) == (invite.invite_id, invite.invite_psk)


def test_two_invites_share_no_secret() -> None:
    one, two = Invite.new(STATIC, "ws://h"), Invite.new(STATIC, "ws://h")
    assert one.invite_id != two.invite_id
    assert one.invite_psk != two.invite_psk
    assert one.invite_id not in one.invite_psk


def test_printing_an_invite_shows_no_secret() -> None:
    invite = Invite.new(STATIC, "ws://notes.example")
    secret = invite.to_string().partition("#")[2]
    for text in (str(invite), repr(invite), f"{invite}", "%s" % invite):  # noqa: UP031
        assert secret not in text
        assert invite.token.hex() not in text
        assert repr(invite.token) not in text
        assert "notes.example" in text


GOOD = Invite.new(STATIC, "ws://h")
SECRET = GOOD.to_string().partition("#")[2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" '' ", "is empty"),
        (SECRET, "lacks its address"),
        (SECRET.upper(), "lacks its address"),
        (f"#{SECRET}", "lacks its address"),
        ("confide://h:7733/", "behind # is missing"),
        (f"confide://h/#{SECRET[:-3]}", "checksum"),
        (f"confide://h/#{SECRET[:20]}", "checksum"),
        (f"confide://h/#{SECRET}x", "checksum"),
        ("confide://h/#", "cut short"),
        ("confide://h/#" + bech32m.encode("confided", STATIC), "something else"),
        ("confide://h/#" + bech32m.encode("invite", b""), "something else"),
        ("confide://h/#" + bech32m.encode("invite", bytes([1]) + bytes(47)), "kind this version does not know"),
        ("confide://h/#" + bech32m.encode("invite", bytes([2]) + bytes(48)), "kind this version does not know"),
        (f"https://h/#{SECRET}", "must begin with"),
        (f"confide:///#{SECRET}", "malformed"),
        (f"confide://user:word@h/#{SECRET}", "malformed"),
        (f"confide://h:port/#{SECRET}", "malformed"),
        (f"confide://h:99999/#{SECRET}", "malformed"),
        (f"confide://h:0/#{SECRET}", "malformed"),
        (f"confide://h/?a=b#{SECRET}", "malformed"),
        (f"confide://h /#{SECRET}", "space"),
        (f"confide://h/\x1b[2J#{SECRET}", "malformed"),
    ],
)
def test_a_bad_paste_says_what_is_wrong_and_quotes_nothing(text: str, why: str) -> None:
    with pytest.raises(InviteError, match=why) as caught:
        Invite.parse(text)
    assert caught.value.hint
    assert caught.value.exit_code == EXIT_DENIED
    assert SECRET[8:20] not in str(caught.value) + repr(caught.value) + (caught.value.hint or "")


@pytest.mark.long
@given(st.text())
def test_any_text_is_an_invite_or_a_clear_error(text: str) -> None:
    for form in (text, f"confide://h/#{text}", f"confide://{text}/#{SECRET}"):
        with contextlib.suppress(InviteError):
            Invite.parse(Invite.parse(form).to_string())
