"""The requests by which a device decides which programs may use its space over HTTP: sign-in,
sign-in-approve, gateway-end (PROTOCOL.md 9.7).

An approved program can read the whole space, so the deciding device must have access to all of it.
Six words name a request. The number of wrong guesses is limited, and a request for another space is
answered as if it did not exist.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from confide_crypto.errors import RequestError
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.enrollment import check_name, free_name
from confide_daemon.addons import SessionHost, SessionPart
from confide_daemon.errors import GrantError, NotFoundError
from confide_http.door.wire import (
    GATEWAY_END,
    SIGN_IN,
    SIGN_IN_APPROVE,
    ApproveRequest,
    EndRequest,
    SignIn,
    SignInApproval,
    SignInRequest,
)
from confide_http.server.access.sign_ins import ApprovedGrant, PendingSignIn, SignIns
from confide_memory.documents import iso
from confide_memory.wire.operation import Nothing

MOST_GUESSES: Final = 10
"""Wrong words of one connection within `GUESSES_S`. The words have 66 bits: the limit is against
load.
"""
GUESSES_S: Final = 600.0


class SignInRequests(SessionPart):
    """Handles the requests of one device's connection about sign-ins."""

    def __init__(self, session: SessionHost) -> None:
        self._session = session
        self._sign_ins = SignIns(session.registry)
        self._wrong: deque[float] = deque(maxlen=MOST_GUESSES)
        self.early = dict([SIGN_IN.by(self._look), SIGN_IN_APPROVE.by(self._approve), GATEWAY_END.by(self._end)])

    async def _look(self, asked: SignInRequest) -> SignIn:
        found = await self._find(asked["words"])
        if found.grant is not None:
            raise self._answered(found)
        return {
            "application": found.application.name,
            "registered": found.application.is_registered,
            "redirect": found.request.redirect,
            "scope": found.request.scope,
            "expires": iso(found.expires_at),
        }

    async def _approve(self, asked: ApproveRequest) -> SignInApproval:
        name, projects = asked["name"], asked["projects"]
        if name:
            check_name(name, "gateway client")
        if projects is not None and not all(one and one.isprintable() for one in projects):
            raise RequestError("invalid", "a project's name cannot be shown")
        found = await self._find(asked["words"])
        caller = self._session.caller_now()
        granted = ApprovedGrant(
            name or free_name(found.application.name, ()),
            "write" if asked["scope"] == "write" else "read",
            None if projects is None else tuple(projects),
            "trusted" if asked["trusted"] else "untrusted",
            asked["days"],
            caller.public_key.hex(),
        )
        done = await asyncio.to_thread(self._sign_ins.approve, found, granted)
        if done is None:
            raise self._answered(await self._find(asked["words"]))
        return {"scope": done.scope, "days": done.days}

    async def _end(self, asked: EndRequest) -> Nothing:
        caller = await self._deciding()
        if not await asyncio.to_thread(self._session.desk.end_gateway_client, caller.space_id, asked["name"]):
            raise NotFoundError("no program of this name reaches the space by HTTP", hint="confide http ls lists them")
        return {}

    async def _find(self, words: str) -> PendingSignIn:
        caller = await self._deciding()
        now = time.monotonic()
        while self._wrong and now - self._wrong[0] > GUESSES_S:
            self._wrong.popleft()
        if len(self._wrong) == MOST_GUESSES:
            raise RequestError("busy", "there were too many wrong words", "come again in ten minutes")
        found = await asyncio.to_thread(self._sign_ins.find_by_words, words, caller.space)
        if found is None:
            self._wrong.append(now)
            raise _unknown_error()
        return found

    def _answered(self, found: PendingSignIn) -> RequestError | NotFoundError:
        """Return the error for a request that has its approval, with what was approved."""
        granted = found.grant
        if granted is None:  # it has expired just now
            return _unknown_error()
        mine = granted.by == self._session.caller_now().public_key.hex()
        may = "read and write" if granted.scope == "write" else "read"
        where = "on this device" if mine else "on another device"
        what = f"{found.application.name} may {may}, for {granted.days} day{'s' if granted.days > 1 else ''}"
        hint = "the page in your browser goes on by itself; confide http ls shows who has signed in"
        return RequestError("conflict", f"these words were approved {where} already: {what}", hint)

    async def _deciding(self) -> Caller:
        """Return the caller if it may decide for the whole space. Raises GrantError: it may not."""
        caller = self._session.caller_now()
        caller.grants.require_scope()
        if not caller.grants.reaches_all:
            raise GrantError("who reaches a space by HTTP is decided on a device that reaches all of it")
        if not await self._session.epoch_for(caller.public_key) is not None:
            raise GrantError("this device is not among the devices of its space")
        return self._session.caller_now()


def _unknown_error() -> NotFoundError:
    hint = "they are on the page that the program has opened, for ten minutes; begin there again. confide http ls shows who has signed in"
    return NotFoundError("no sign-in with these words waits", hint=hint)
