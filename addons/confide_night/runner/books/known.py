"""Since when this runner knows each device of the space, by its own clock: what an entry of the roster says of its own time is its
signer's word, and whoever holds one device can add another."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import read_private_file, write_private_file

NEW_S: Final = 86_400.0
"""For so long a device is new: time for its owner to miss what was stolen, and to remove it."""


class Known:
    """Devices by their Ed25519 keys. Methods block, and raise KeyFileError where the disk refuses or the file is damaged."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "devices.json"

    def see(self, devices: Iterable[bytes], now: float) -> None:
        """Take down those that are on the roster now. Who is there at the first look was there when this
        runner was set up, and is not new."""
        since = self._read()
        first = now if since else 0.0
        fresh = {key.hex(): first for key in devices if key.hex() not in since}
        if fresh:
            write_private_file(self._file, json.dumps({**since, **fresh}).encode(), replace=True)

    def is_new(self, keys: Iterable[bytes], now: float) -> bool:
        """Whether a device is, which has or had these keys."""
        since = self._read()
        return not any(since.get(key.hex(), now) + NEW_S <= now for key in keys)

    def _read(self) -> dict[str, float]:
        if not self._file.exists():
            return {}
        try:
            return {str(key): float(at) for key, at in json.loads(read_private_file(self._file)).items()}
        except (ValueError, TypeError, AttributeError):
            hint = "move it away, and the devices that there are now count as known"
            raise KeyFileError(self._file, "is damaged", hint=hint) from None
