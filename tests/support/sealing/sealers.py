"""A sealer with keys of its own, for tests in which no daemon opens what it seals."""

from __future__ import annotations

from pathlib import Path

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.config import Policy
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.sealer import Fingerprints, Sealer

KEYS = SpaceKeys.generate()
PRINTS = Fingerprints(bytes(32))
NOTHING_KNOWN = KnownValues(Path("nowhere"), lambda: None)
"""Of a machine without keys: it remembers nothing."""
SEALER = Sealer(Policy(), lambda: KEYS, lambda: PRINTS)
