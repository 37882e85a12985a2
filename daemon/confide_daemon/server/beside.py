"""What a daemon may serve beside its machines: the gateway, which stands on a floor above and is given to it (`confide_http.server`)."""

from __future__ import annotations

from typing import Final, Protocol

from confide_crypto.transport.open import Connection
from confide_daemon.documents.changes import Change

MOST_FILES: Final = 640
"""Of this process, that whoever comes there holds at once."""


class Beside(Protocol):
    async def open(self) -> None:
        """Take requests from now on. Raises ListenError, KeyFileError: it cannot."""

    async def close(self) -> None:
        """Take none any more, and let what was begun end."""

    def changed(self, space_id: str, change: Change) -> None:
        """A document of the space has a new revision."""

    def elsewhere(self, space_id: str) -> None:
        """Another node holds the space from now on: whoever waits for its news has to ask anew."""

    async def serve(self, connection: Connection) -> None:
        """Answer what another node passes on for the caller of this channel, until it ends (PROTOCOL.md 12.5)."""

    async def settle(self, space_id: str) -> None:
        """Wait until nothing runs in the space that was begun before; the space takes no more meanwhile."""
