"""What `confide device ls` shows of a roster that others have made."""

from __future__ import annotations

import pytest
from tests.support.sealing.rosters import STRANGER, shared

from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_proxy.cli import console, device_confirm, devices
from confide_proxy.devices.members import check_device_name, facts
from confide_proxy.errors import DeviceError


@pytest.mark.parametrize("now", [0, 1_800_000_000, 2**33, 2**63, 2**64 - 1])
def test_any_time_is_shown(now: int) -> None:
    """It is the clock of who signs, or whatever a hostile one writes there."""
    roster, _ = Roster.create(STRANGER, "evil", now=now)
    since = facts(roster, roster.devices[STRANGER.public_key])["since"]
    assert since == "" or since[4] == "-"
    assert since or now > 2**40


def test_a_name_commands_no_terminal() -> None:
    roster, keys = Roster.create(STRANGER, "evil", now=1)
    other = Identity.generate()
    roster = roster.add(STRANGER, Device(Card.of(other), "lap\u202etop"), keys, now=2)
    assert facts(roster, roster.devices[other.public_key])["name"] == "lap?top"


def test_words_that_begin_and_end_like_a_recovery_code_are_words() -> None:
    """Six words of forty letters of which the first is "crane"; a code has digits."""
    words = "crane abandon umbrella festival mountain play"
    assert len(words.replace(" ", "")) == 40
    assert check_device_name(words) == words
    with pytest.raises(DeviceError, match="recovery code"):
        check_device_name(RecoveryCode.generate().to_string().lower())


def said(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    """A person at a terminal who types these; what is left of them."""
    left = list(lines)

    async def typed(question: str) -> str:
        assert "-" not in question, "no words to copy are shown"
        return left.pop(0)

    monkeypatch.setattr(devices, "read_line", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    return left


async def test_six_words_are_typed_and_all_of_them_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a yes, nor the first and the last, which are what people look at, and cost two minutes to forge."""
    right = fingerprint_words(STRANGER.public_key)
    first, *_, last = right.split("-")
    alike = "-".join([first, *["zoo"] * 4, last])
    left = said(monkeypatch, "y", alike, right.replace("-", " ").upper())
    assert await devices.compare("them", [right], given=None) == right
    assert left == []
    for lines in (["yes", alike, alike], [""]):
        left = said(monkeypatch, *lines, "more")
        with pytest.raises(DeviceError, match="the words differ"):
            await devices.compare("them", [right], given=None)
        assert left == ["more"]


async def test_the_words_of_the_newest_change_tell_the_age_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an older one say what it must contain; those of the space alone say less, and a script may not give them."""
    roster, _ = shared()
    assert await device_confirm._ask_for_pin(roster, roster.head_words) == roster.pin
    assert (await device_confirm._ask_for_pin(roster, fingerprint_words(roster.hashes[1]))).number == 1
    with pytest.raises(DeviceError, match="how old"):
        await device_confirm._ask_for_pin(roster, roster.words)
    with pytest.raises(DeviceError, match="the words differ"):
        await device_confirm._ask_for_pin(Roster.read([roster.entries[0].encode()]), roster.head_words)

    async def confirmed(_question: str) -> bool:
        return True

    said(monkeypatch, roster.words)
    monkeypatch.setattr(console, "ask_confirmation", confirmed)
    assert (await device_confirm._ask_for_pin(roster, None)).number == 0
