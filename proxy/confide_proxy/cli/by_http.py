"""Who reaches this machine's space over HTTP, by the gateway of its server: what `confide status` and `confide doctor` tell of it.

Whoever uses that gateway lets the end of its TLS, and the client's vendor, read what is asked and found. So a person hears of each.
"""

from __future__ import annotations

from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.transport.connection import Connection
from confide_memory.answers import ask, local_time

_DEADLINE_S: Final = 15.0


async def clients_of(connection: Connection) -> list[dict[str, Any]]:
    """Those that the daemon tells of, by name; none where it is an older one, which has no gateway."""
    try:
        answer = await ask(connection, "gateway", {}, timeout_s=_DEADLINE_S)
    except RequestError:
        return []
    return [dict(one) for one in answer["clients"]]


def line(client: dict[str, Any]) -> str:
    """What one of them may."""
    what = "reads and writes" if client["scope"] == "write" else "reads"
    word = ", as an agent's word" if client["trusted"] else ", untrusted" if client["scope"] == "write" else ""
    until = f" until {local_time(client['expires'])}" if client["expires"] else ""
    used = f"used {local_time(client['used'])}" if client["used"] else "never used"
    return f"{client['name']} {what} this space by HTTP{word}{until}, {used}; its vendor reads what it asks and finds"
