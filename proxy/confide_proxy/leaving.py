"""What a machine leaves behind that joins another space: said before it does, since what is sealed there opens no longer from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError
from confide_proxy import identity as identities
from confide_proxy import joined
from confide_proxy.journal import is_empty
from confide_proxy.ondemand import read_address
from confide_proxy.sealing.cached_roster import RosterCache

if TYPE_CHECKING:
    from confide_proxy.paths import Paths


def left_behind(paths: Paths) -> str | None:
    """What changes for a machine that is a device of a space now, should it join another; None where it is none. Blocks briefly."""
    try:
        if joined.load(paths.link) is None and read_address(paths.daemon_data) is None:
            return None
        seen = RosterCache(paths.rosters).last()
        key = identities.stored(paths.identity).public_key
    except ConfideError:
        return None  # no key yet, or files that joining itself will say are broken
    if seen is None or seen.roster is None or key not in seen.roster.devices:
        return None
    is_alone = len(seen.roster.devices) == 1
    others = "no other device does, so it would open nowhere" if is_alone else "its other devices do"
    said = f"this machine is a device of the space {seen.roster.words}: in another it opens nothing that is sealed there ({others})"
    return said if is_empty(paths.journal) else f"{said}; calls that wait for its daemon go to the new one"
