"""How this machine's link stands, for `confide status`: where the daemon is, who both ends are, and what is wrong where it is down.

Nothing in here is a secret: addresses come without their fragment, of keys there are the public ones only.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from confide_crypto.errors import ConfideError, RequestError, UnreachableError
from confide_crypto.keys import fingerprint_words, format_daemon_key
from confide_proxy import identity as identities
from confide_proxy import joined, ondemand
from confide_proxy.errors import SpaceLockedError, ToolError
from confide_proxy.paths import Paths

if TYPE_CHECKING:
    from confide_proxy.client import Client
    from confide_proxy.sealing.keyring import Keyring

_SHORT: Final = 20
"""Characters of the daemon's key: enough to tell two daemons apart at a glance. What proves a daemon is the pin, never this."""
TAKEN: Final = "the daemon keeps the key of the database now, as its machines did before: a thief of its disk and its master.key reads it"


def up(paths: Paths, client: Client) -> dict[str, Any]:
    """The link of a client that is connected, as JSON."""
    return {
        "state": "up",
        **known(paths),
        "since": datetime.fromtimestamp(client.since).astimezone().isoformat(timespec="seconds"),
        "roundTripMs": round(client.round_trip_s * 1000, 1),
        "sessionId": client.connection.session_id,
    }


def sealing(keyring: Keyring) -> dict[str, Any]:
    """Whether this machine can seal and open, as JSON: who the devices are, `confide device ls` says."""
    roster, problem = keyring.roster or keyring.unconfirmed, keyring.problem
    return {
        "canSeal": keyring.keys is not None,
        "spaceWords": roster.words if roster else None,
        "devices": len(roster.devices) if roster else 0,
        "epoch": roster.epoch if roster else 0,
        "custody": keyring.custody or None,
        **({"warning": TAKEN} if keyring.was_taken else {}),
        **({"problem": str(problem), "hint": problem.hint} if problem else {}),
    }


def down(paths: Paths, error: ConfideError | TimeoutError) -> dict[str, Any]:
    """The link that an attempt ended with, as JSON. It is up where the daemon itself refused what was asked."""
    told = error if isinstance(error, ConfideError) else UnreachableError("its address", "it does not answer in time")
    state = "up" if isinstance(error, RequestError | ToolError | SpaceLockedError) else "down"
    return {"state": state, **known(paths), "reason": str(told), "hint": told.hint}


def known(paths: Paths) -> dict[str, Any]:
    """What can be said without a connection; None where this machine does not know it.

    Returns:
        `address`, `tls` (whether the address asks for it; the channel does not need it), `daemonKey` (its beginning) and `words`, this
        machine's own six.
    """
    url, static = _daemon(paths)
    parts = urlsplit(url or "")
    is_tls = parts.scheme in ("wss", "confides")
    place = f"{'confides' if is_tls else 'confide'}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return {
        "address": place if url else None,
        "tls": is_tls if url else None,
        "daemonKey": f"{format_daemon_key(static)[:_SHORT]}…" if static else None,
        "words": _words(paths),
    }


def _daemon(paths: Paths) -> tuple[str | None, bytes | None]:
    try:
        pinned = joined.load(paths.link) or ondemand.read_address(paths.daemon_data)
    except (ConfideError, OSError):
        pinned = None  # whatever is wrong with that file is what the attempt ended with
    return (pinned.url, pinned.daemon_static) if pinned else (None, None)


def _words(paths: Paths) -> str | None:
    try:
        return fingerprint_words(identities.read(paths.identity).public_key)
    except (ConfideError, OSError):
        return None
