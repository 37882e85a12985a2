"""How much there is of what the clients of a server's gateway share."""

from __future__ import annotations

from typing import Final

from confide_http.door.serving import MOST_HANDSHAKES
from confide_http.server.room import MOST_FILES

BODY_S: Final = 30.0
"""Within which a body has come, however slowly."""
MAX_STREAMS: Final = 256
MAX_REQUESTS: Final = 128
MAX_REQUESTS_EACH: Final = 32
"""Of one client, as of one connection of a machine: no token keeps the others from the threads that search."""
MAX_SESSIONS_EACH: Final = 16
"""Of the older era; each has a task of its own."""
MAX_CONNECTIONS: Final = MOST_FILES - MOST_HANDSHAKES
"""More than streams and requests have places: what is left is for those who have not asked yet."""
