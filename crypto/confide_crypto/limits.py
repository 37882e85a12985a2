"""Every size, count and timer of the protocol (PROTOCOL.md 8). Imports no heavy module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

SUBPROTOCOL: Final = "confide.v1"
DEFAULT_PORT: Final = 7733

MAX_RECORD: Final = 65535
"""Noise's limit for one message (Noise 3), and the websocket's `max_size`. Confide's records stay
below 16.5 KiB.
"""

HANDSHAKE_TIMEOUT_S: Final = 10.0
FIRST_MESSAGE_TIMEOUT_S: Final = 5.0
"""Seconds for message 1 of the handshake; a client has it ready when it opens the websocket."""

CLOSE_REFUSED: Final = 4400
"""Websocket close code of every failure before the client is authenticated: one code, no reason."""
CLOSE_VIOLATION: Final = 4401
"""Websocket close code after the peer broke a rule in an open channel."""
CLOSE_BUSY: Final = 1013
"""Websocket close code for too many handshakes ("try again later"). It is not `CLOSE_REFUSED`, or
the client would report a wrong daemon.
"""
CLOSE_DENIED: Final = 4403
"""Websocket close code after an encrypted denial. An observer learns no more than from an early
close.
"""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message, request or answer: a document of 4 MiB with room for JSON escapes."""
MAX_REQUEST: Final = 1024 * 1024
"""Bytes of a request, except for the few operations that carry many items at once (PROTOCOL.md
7.2); texts are sent as bodies.
"""
MAX_CONTAINERS: Final = 300_000
"""Most lists and objects in one message or request. A `compare` of 100,000 files and 100,000 losses
has 200,003. Three bytes of JSON are enough for one, and it costs the receiver 64 bytes and, with
garbage collection, half a microsecond.
"""
MAX_VALUES: Final = 2_000_000
"""Most values of any kind in one message or request; the `compare` above has 500,000. Both limits
count brackets and commas, including those inside strings.
"""
PARSED_ASIDE: Final = 64 * 1024
"""Requests and messages above this many bytes are parsed in a thread, so that decoding and parsing
block the event loop twice for a short time instead of once for a long time.
"""
MAX_REASSEMBLY: Final = 32 * 1024 * 1024
"""Bytes of all unfinished messages of one connection together; above it the channel ends."""
MAX_HELD: Final = 32 * 1024 * 1024
"""Bytes of complete messages and requests whose handlers have not ended; above it Confide reads
nothing until some end.
"""
MAX_WAITING_MESSAGES: Final = 256
MAX_REQUESTS: Final = 64
"""Most unanswered requests and unfinished streams in one direction."""

STREAM_CREDIT: Final = 1024 * 1024
"""Bytes of one body that may be sent before its receiver grants more (PROTOCOL.md 7.5)."""
CONNECTION_CREDIT: Final = 8 * 1024 * 1024
"""Bytes of all bodies of one direction together that may be sent before the receiver grants more:
the most that a receiver has to hold.
"""
MAX_CREDIT: Final = (1 << 31) - 1
MAX_BODY: Final = 1 << 40
BODY_STALL_S: Final = 60.0
"""Seconds without a new piece after which a body is given up."""

REKEY_RECORDS: Final = 1 << 14
"""Records after which the key changes: at most 1 GiB under one key."""
MAX_RECORDS: Final = 1 << 32
"""Records after which a cipher state ends, far below its 2^64 nonces."""

CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds for data that still waits to be sent or handled when one side ends the session, and for
the websocket's close handshake.
"""

IDLE_KEEPALIVES: Final = 3.6
LEAST_KEEPALIVE_S: Final = 5
MOST_KEEPALIVE_S: Final = 300
"""Bounds of the keepalive that a user may choose. Shorter ones only cost battery, and no NAT keeps
a silent connection for longer than minutes.
"""


@dataclass(frozen=True, slots=True)
class Timers:
    """The timers of an open channel: when it sends a keepalive, and when it regards a silent peer
    as lost.
    """

    # silence after which a keepalive is sent; below the 30 s after which reverse proxies and NATs
    # forget a connection
    keepalive_s: float = 25.0
    idle_s: float = 90.0  # silence after which the peer counts as lost: three lost keepalives

    @classmethod
    def every(cls, keepalive_s: float) -> Timers:
        """Return timers with this keepalive interval in seconds, and an idle limit in proportion to
        it.
        """
        return cls(keepalive_s, keepalive_s * IDLE_KEEPALIVES)


DEFAULT_TIMERS: Final = Timers()

WRITE_LIMIT: Final = 16 * 1024
"""Bytes that may wait in this process's buffer, and as many in the kernel's, before a sender waits:
one bulk record each, so that an interactive message waits for two at most. At 10 Mbit/s a body in
progress delays a call by 70 ms, and by 550 ms with the kernel's usual buffer of megabytes.
"""


def websocket_options() -> dict[str, Any]:
    """Return the keyword arguments for `websockets` that both ends must use (PROTOCOL.md 3).

    No compression: it would reveal lengths and costs 50 KiB per connection. No websocket pings: a
    middlebox can answer them.
    """
    return {
        "subprotocols": [SUBPROTOCOL],
        "compression": None,
        "max_size": MAX_RECORD,
        "ping_interval": None,
        "write_limit": WRITE_LIMIT,
        "close_timeout": CLOSE_TIMEOUT_S,
    }
