"""The model of a removal in crypto/formal/ ends the access of those whose access the code ends."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from bench.proof import FORMAL
from tests.support.crypto.model_terms import holds
from tests.support.daemon.registries import ALICE, BOB, KEY

from confide_daemon.access.enrolled_callers import Grants, end_access_through
from confide_daemon.access.registry import Registry
from confide_daemon.access.registry_invites import Invites, JoinedInvite

CAROL = b"c" * 32


@pytest.mark.parametrize("devices", [*itertools.product((False, True), repeat=2)], ids=str)
def test_whose_access_a_removal_ends_is_the_models(tmp_path: Path, devices: tuple[bool, bool]) -> None:
    """Alice is removed; she has let Bob in, and he Carol. Each of the two may be a device."""
    registry = Registry.open(tmp_path / "registry.db", KEY)
    registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    for number, (by, name, key) in enumerate(((ALICE, "y", BOB), (BOB, "z", CAROL))):
        Invites(registry).add_for(by, bytes([number]) * 16, bytes(32), alias=name, scope="write", ttl_s=900)
        assert isinstance(Invites(registry).join(bytes([number]) * 16, key), JoinedInvite)
    kept = [key for key, is_device in zip((BOB, CAROL), devices, strict=True) if is_device]
    with registry.transaction() as database:
        ended = end_access_through(database, ALICE, space_id=registry.spaces()["home"], kept=kept, now=registry.clock())
    registry.close()
    (condition,) = re.findall(r"IsEnded\(.*?= (.*)\.", (FORMAL / "ends_through.pvl").read_text("ascii"))
    is_y = holds(condition, through=True, device=devices[0])
    is_z = holds(condition, through=is_y, device=devices[1])
    assert {each.public_key for each in ended} == {ALICE, *([BOB] if is_y else []), *([CAROL] if is_z else [])}
