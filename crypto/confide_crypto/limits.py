"""Every size, count and timer of the protocol (PROTOCOL.md 8). Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

SUBPROTOCOL: Final = "confide.v1"
DEFAULT_PORT: Final = 7733

MAX_RECORD: Final = 65535
"""Noise's limit for one message (Noise 3), and the websocket's `max_size`. Our own records stay below 16.5 KiB."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
FIRST_MESSAGE_TIMEOUT_S: Final = 5.0
"""A peer that has opened the websocket has no reason to think before message 1."""

CLOSE_REFUSED: Final = 4400
"""Websocket close code of every failure before the caller is known. One code, no reason."""
CLOSE_VIOLATION: Final = 4401
"""Websocket close code after a broken rule in an open channel."""
CLOSE_BUSY: Final = 1013
"""Too many handshakes: said openly ("try again later"), or the client would take it for a wrong daemon."""
CLOSE_DENIED: Final = 4403
"""Websocket close code after a sealed denial. The observer learns no more than from an early end of the connection."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""One message, request or answer: documents of 4 MiB and room for JSON's escapes."""
MAX_REQUEST: Final = 1024 * 1024
"""A request, but for the few that carry many things at once (PROTOCOL.md 7.2): texts come as bodies."""
MAX_CONTAINERS: Final = 300_000
"""Lists and objects in one message or request: a `compare` of 100,000 files and 100,000 losses has 200,003. Each takes 64 bytes and, with
the collector's passes, half a microsecond, where 3 bytes ask for it."""
MAX_VALUES: Final = 2_000_000
"""Values of any kind: that `compare` has 500,000. Both are counted by brackets and commas, those in strings too."""
PARSED_ASIDE: Final = 64 * 1024
"""Requests and messages above this length are parsed in a thread: their decoding and their parsing are two shorter stops, not one."""
MAX_REASSEMBLY: Final = 32 * 1024 * 1024
"""All unfinished messages of one connection together; over it, the channel dies."""
MAX_HELD: Final = 32 * 1024 * 1024
"""Messages and requests that came whole and whose handlers have not ended; over it, nothing is read until some have."""
MAX_WAITING_MESSAGES: Final = 256
MAX_REQUESTS: Final = 64
"""Unanswered requests and unfinished streams in one direction."""

STREAM_CREDIT: Final = 1024 * 1024
"""What may be sent of one body before its receiver grants more (PROTOCOL.md 7.5)."""
CONNECTION_CREDIT: Final = 8 * 1024 * 1024
"""The same of all bodies of one direction together: the most that a receiver has to hold."""
MAX_CREDIT: Final = (1 << 31) - 1
MAX_BODY: Final = 1 << 40
BODY_STALL_S: Final = 60.0
"""A body of which nothing has come for so long is given up."""

REKEY_RECORDS: Final = 1 << 14
"""At most 1 GiB under one key."""
MAX_RECORDS: Final = 1 << 32
"""The end of a cipher state, far below its 2^64 nonces."""

CLOSE_TIMEOUT_S: Final = 2.0
"""For what still waits to be sent or handled when one side ends the session, and for the websocket's goodbye."""

IDLE_KEEPALIVES: Final = 3.6
LEAST_KEEPALIVE_S: Final = 5
MOST_KEEPALIVE_S: Final = 300
"""Bounds of what a person may choose: more often only costs battery, and no NAT keeps a silent connection for longer than minutes."""


@dataclass(frozen=True, slots=True)
class Timers:
    """How an open channel notices that nobody is there."""

    # silence after which we say that we are there; below the 30 s after which reverse proxies and NATs forget a connection
    keepalive_s: float = 25.0
    idle_s: float = 90.0  # silence after which the peer counts as gone: three lost keepalives

    @classmethod
    def every(cls, keepalive_s: float) -> Timers:
        """Those of a chosen keepalive, and the idle limit that fits it."""
        return cls(keepalive_s, keepalive_s * IDLE_KEEPALIVES)


DEFAULT_TIMERS: Final = Timers()

WRITE_LIMIT: Final = 16 * 1024
"""Bytes that wait in our own buffer, and as many in the kernel's, before a sender does: one bulk record each, so that a message in
between waits for two. At 10 Mbit/s a body that is under way adds 70 ms to a call, 550 ms with the kernel's usual megabytes."""


def websocket_options() -> dict[str, Any]:
    """Keyword arguments for `websockets` that both ends must use (PROTOCOL.md 3).

    No compression: it would reveal lengths and costs 50 KiB per connection. No websocket pings: a middlebox can answer them.
    """
    return {
        "subprotocols": [SUBPROTOCOL],
        "compression": None,
        "max_size": MAX_RECORD,
        "ping_interval": None,
        "write_limit": WRITE_LIMIT,
        "close_timeout": CLOSE_TIMEOUT_S,
    }
