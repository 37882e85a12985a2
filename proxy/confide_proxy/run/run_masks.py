"""The masks of a run's output: for its own values, and for those that this device knows.

Loaded at the first output, since a command that prints nothing needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.masking import Mask, SecretForms


class RunMasks:
    """Makes a mask for each stream of output."""

    def __init__(self, values: Mapping[Placeholder, bytes], known: Path, space: bytes, first_key: bytes) -> None:
        """Args:
        values: what the run has.
        known: the folder with the fingerprints of the values that this device knows.
        space: the id of the space, 16 bytes.
        first_key: the key of its first epoch, which the fingerprints and the ids are made with.
        """
        self.forms = SecretForms({value: str(one).encode() for one, value in values.items()})
        self._keys = SpaceKeys(space, (first_key,))
        self._known = KnownValues(known, lambda: self._keys)

    def make(self) -> Mask:
        return Mask(self.forms, self._more)

    def _more(self, text: str) -> dict[bytes, bytes]:
        found = {}
        for each in self._known.find(text):
            value = text[each.start : each.end]
            data = value.encode("utf-8", "replace")
            if Mask(self.forms).whole(data) != data:
                continue  # a form of this run's own values
            kind = self._known.kind_of(value)
            shown = f"(sealed:{each.kind})"
            if kind is not None:
                shown = str(Placeholder(kind, self._keys.secret_id(kind, value.encode())))
            found[data] = shown.encode()
        return found
