"""The keys of all frozen vectors: counting bytes, so that anybody can write them down."""

from __future__ import annotations

from typing import Any, Final

from confide_crypto.keys.identity import Identity

Case = dict[str, Any]
"""`name`, `section` of PROTOCOL.md, inputs, outputs, and `error`: null, or the class of the exception."""

CLIENT: Final = Identity(bytes(range(32)))
DAEMON: Final = Identity(bytes(range(64, 96)))
OTHER: Final = Identity(bytes(range(33, 65)))
TOKEN: Final = bytes(range(200, 216))
UP_KEY: Final = bytes(range(160, 192))
"""Of the records from the client to the daemon."""
DOWN_KEY: Final = bytes(range(192, 224))
"""Of the records from the daemon to the client."""
