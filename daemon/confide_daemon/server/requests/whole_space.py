"""Checks for requests that concern a whole space: the caller must be one of its devices, with write
access to all of it.
"""

from __future__ import annotations

import asyncio

from confide_crypto.errors import RequestError
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import SessionHost
from confide_memory.documents import SOURCES


def require_all(session: SessionHost, what: str) -> Caller:
    """Return the caller of a session if it may write to every project and source. `what` names the
    request in the error.

    Raises GrantError if it may not.
    """
    caller = session.caller_now()
    caller.grants.require_scope()
    caller.grants.require_every_project(what)
    for source in SOURCES:
        caller.grants.require_source(source)
    return caller


async def require_device(session: SessionHost, what: str) -> Caller:
    """Return the caller of a session if it may write to every project and source and is on the
    space's roster. `what` names the request in the error.

    Raises GrantError if it may not write to all of the space, RequestError if it is not on the
    roster.
    """
    caller = require_all(session, what)
    roster = await asyncio.to_thread(session.desk.rosters.current, caller.space_id)
    if roster is None or caller.public_key not in roster.devices:
        hint = "a device of the space approves this device"
        raise RequestError("denied", "this device is not among the devices of its space", hint)
    return require_all(session, what)
