"""Whether the daemon of this machine has said that its memory was moved away: from then on this runner begins nothing there.

A daemon that was left may be put back from a copy made before the move. It knows of none then, and gives out once more what the new daemon
gives out too. So what it has said holds until a person has this machine join a daemon, this one or another.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from confide_crypto.errors import ConfideError, KeyFileError, RequestError
from confide_crypto.keys.files import read_private_file, write_private_file
from confide_memory.wire import HAS_LEFT
from confide_proxy.link import daemon
from confide_proxy.paths import Paths


@dataclass(frozen=True, slots=True)
class Left:
    """What this machine has noted. Methods block, and raise KeyFileError where the disk refuses."""

    paths: Paths

    def hear(self, reason: ConfideError, daemon_static: bytes, *, now: float) -> None:
        """Note it if this is what the daemon with this X25519 key says; the machine may have gone over to another one meanwhile."""
        has_left = isinstance(reason, RequestError) and reason.code == "unavailable"
        if has_left and reason.message.startswith(HAS_LEFT) and not self.at():
            said = {"daemon": daemon_static.hex(), "at": now}
            write_private_file(self.paths.left, json.dumps(said).encode(), replace=True)

    def at(self) -> float:
        """When this machine heard it of the daemon that it has now, in seconds since 1970; 0.0: it never did.

        Raises KeyFileError too where the file is no longer what was written there.
        """
        if not self.paths.left.exists():
            return 0.0
        try:
            said = json.loads(read_private_file(self.paths.left))
            key, at = str(said["daemon"]), float(said["at"])
        except (ValueError, KeyError, TypeError):
            hint = "have this machine join its daemon again: confide join"
            raise KeyFileError(self.paths.left, "is damaged", hint=hint) from None
        return at if key == self._daemon() else 0.0

    def why(self) -> str | None:
        """Why nothing is claimed of the daemon that answers now; None: nothing stands against it. Raises as `at`."""
        if not (at := self.at()):
            return None
        day = time.strftime("%Y-%m-%d", time.localtime(at))
        return (
            f"this memory was moved away from its daemon, as that said on {day}, and now it has it again from an older copy: "
            "join the one that has it now, or this one anew (confide join)"
        )

    def _daemon(self) -> str:
        known = daemon.known(self.paths)
        return known.daemon_static.hex() if known is not None else ""
