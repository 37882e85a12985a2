"""What `confide device ls` shows of a roster that others have made."""

from __future__ import annotations

import pytest
from tests.support.sealing.rosters import STRANGER

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_proxy.cli.devices import checked, facts
from confide_proxy.errors import DeviceError


@pytest.mark.parametrize("now", [0, 1_800_000_000, 2**33, 2**63, 2**64 - 1])
def test_any_time_is_shown(now: int) -> None:
    """It is the clock of who signs, or whatever a hostile one writes there."""
    roster, _ = Roster.found(STRANGER, "evil", now=now)
    since = facts(roster, roster.devices[STRANGER.public_key])["since"]
    assert since == "" or since[4] == "-"
    assert since or now > 2**40


def test_a_name_commands_no_terminal() -> None:
    roster, keys = Roster.found(STRANGER, "evil", now=1)
    other = Identity.generate()
    roster = roster.add(STRANGER, Device(Card.of(other), "lap\u202etop"), keys, now=2)
    assert facts(roster, roster.devices[other.public_key])["name"] == "lap?top"


def test_words_that_begin_and_end_like_a_recovery_code_are_words() -> None:
    """Six words of forty letters of which the first is "crane"; a code has digits."""
    words = "crane abandon umbrella festival mountain play"
    assert len(words.replace(" ", "")) == 40
    assert checked(words) == words
    with pytest.raises(DeviceError, match="recovery code"):
        checked(RecoveryCode.generate().to_string().lower())
