"""Checks for requests about a whole space: the caller must be a device of it with write access to
all of it.
"""

from __future__ import annotations

import asyncio

from confide_crypto.errors import RequestError
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import SessionHost
from confide_memory.documents import SOURCES


def require_all(session: SessionHost, what: str) -> Caller:
    """Return the caller if it may write in every project and source. `what` names the request in
    the error.

    Raises GrantError if it may not.
    """
    caller = session.caller_now()
    caller.grants.require_scope()
    caller.grants.require_every_project(what)
    for source in SOURCES:
        caller.grants.require_source(source)
    return caller


async def require_device(session: SessionHost, what: str) -> Caller:
    """Return the caller if it is also on the space's roster.

    Raises GrantError if it may not reach all of the space, RequestError if it is not on the roster.
    """
    caller = require_all(session, what)
    roster = await asyncio.to_thread(session.desk.rosters.current, caller.space_id)
    if roster is None or caller.public_key not in roster.devices:
        hint = "a device of the space approves this device"
        raise RequestError("denied", "this device is not among the devices of its space", hint)
    return require_all(session, what)
