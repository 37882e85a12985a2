"""The client's JSON-RPC messages on their way to the daemon and back.

A tunnel, not a second MCP server. It acts in these cases only: what `catalogue` answers while the link is down (and `initialize` and
`server/discover` always, since the client asks before there can be a link); calls that meet a link that is down, which `standin` answers;
calls that change something, which get the id by which they are made once however often they are sent; the client's own
`initialize` and subscriptions, replayed unseen to each new daemon session; and credentials in what the agent says, which are sealed on
the way up (`sealing.calls`). Everything else passes as it came, and what comes back is passed on as it is: nothing is opened in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_proxy import catalogue as catalogues
from confide_proxy import jsonrpc
from confide_proxy.calls import Call, Line, Outgoing, Preparing
from confide_proxy.catalogue import Catalogue
from confide_proxy.errors import KeyLockedError
from confide_proxy.jsonrpc import METHOD_NOT_FOUND, UNAVAILABLE, encoded, key, with_operation

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link import Link
    from confide_proxy.sealing.calls import SealedCalls
    from confide_proxy.standin import StandIn

MAX_IN_FLIGHT = 256
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Of calls without an answer, which are kept to be sent again."""
MAX_REPEATS = 2
CALL_DEADLINE_S = 10.0
LONG_JOB_DEADLINE_S = 3600.0
FIRST_LINK_DEADLINE_S = 9.0
"""How long a call waits for the first link, which may include the start of a daemon on this machine."""
RELINK_DEADLINE_S = 2.0
PROBE_AFTER_S = 1.0
"""A call that has no answer for so long asks whether anybody is there at all; a pulled cable tells nobody."""
PROBE_S = 1.0
HELD_DEADLINE_S = 5.0
"""How long a store waits for what was queued before it; then it is queued too."""
READ_HELD_S = 1.0
"""How long a search waits for that, so that it finds what its own agent has said; then it goes without."""

MAX_SUBSCRIBED = 256

_LISTEN = "subscriptions/listen"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_SUBSCRIBE = "resources/subscribe"
_UNSUBSCRIBE = "resources/unsubscribe"
_INITIALIZED = "notifications/initialized"
_CANCELLED = "notifications/cancelled"
_REPLAY_ID = "confide-replay"
_REPLAYED = f"{_REPLAY_ID}:"
"""What a subscription is replayed under, before its URI."""


class Tunnel:
    """Both directions of one client's session. Runs in the event loop alone; `write` takes whole lines for the client."""

    def __init__(self, write: Callable[[bytes], None], catalogue: Catalogue) -> None:
        self._write = write
        self._catalogue = catalogue
        self._calls: dict[str, Call] = {}
        self._opening: dict[str, Any] | None = None
        self._is_initialized = False
        self._was_up = False
        self._shown: list[Any] | None = None
        self._link: Link | None = None
        self._standin: StandIn | None = None
        self._sealed: SealedCalls | None = None
        self._subscribed: dict[str, bytes] = {}
        self._outgoing = Outgoing()
        self._is_live = False
        self._on_empty: asyncio.Event | None = None

    @property
    def catalogue(self) -> Catalogue:
        """What is answered locally."""
        return self._catalogue

    def attach(self, link: Link, standin: StandIn, sealed: SealedCalls) -> None:
        """The link exists now, what answers while it is down, and what seals; before this only `answer_locally` works."""
        self._link, self._standin, self._sealed = link, standin, sealed

    # -- from the client ------------------------------------------------------------------------------------------

    def answer_locally(self, line: bytes) -> bool:
        """Answer what needs no daemon; False if the message has to wait for the link."""
        message = self._parsed(line)
        if message is None:
            return True
        method, identifier = message.get("method"), message.get("id")
        if method == _INITIALIZED and not self._was_up:
            self._is_initialized = True  # the replay will say it, once there is a daemon session
            return True
        if identifier is None or method not in catalogues.LOCAL_METHODS:
            return False
        params = message.get("params")
        result = self._catalogue.answer(method, params if isinstance(params, dict) else None)
        if result is None:
            self._fail(identifier, METHOD_NOT_FOUND, "Method not found")
            return True
        if method == catalogues.INITIALIZE:
            self._opening = {**message, "id": _REPLAY_ID}
        if method == catalogues.LIST_TOOLS:
            self._shown = result["tools"]
        self._send({"jsonrpc": "2.0", "id": identifier, "result": result})
        return True

    def receive(self, line: bytes) -> None:
        """One line of the client's."""
        message = self._parsed(line)
        if message is None:
            return
        method = message.get("method")
        if method in (catalogues.INITIALIZE, catalogues.DISCOVER) or (
            method in catalogues.LOCAL_METHODS and not self._is_live
        ):
            self.answer_locally(line)
            if method == catalogues.INITIALIZE and self._is_live:
                self._replay()
            return
        if method == _INITIALIZED:
            self._is_initialized = True
        if method is None or message.get("id") is None:
            about = self._cancel(message) if method == _CANCELLED else None
            if self._is_live:  # else it is for a daemon session that no longer is, and nobody could use it
                self._outgoing.put(Line(line, session_id=about.session_id if about else ""))
            return
        self._call(message, line)

    async def send(self) -> None:
        """Pass the lines up, sealed and in order, for as long as the task lives."""
        assert self._link is not None
        assert self._sealed is not None
        sealed = self._sealed

        async def prepared(link: Link, line: bytes) -> bytes:
            return await sealed.prepared(link, line, self._catalogue)

        await self._outgoing.run(self._link, Preparing(sealed.is_plain, prepared, self._on_unsent))

    # -- from the link --------------------------------------------------------------------------------------------

    def on_up(self) -> None:
        """A new daemon session: replay what opened the client's, then everything that waited or may be repeated."""
        assert self._standin is not None
        self._was_up = self._is_live = True
        self._replay()
        self._standin.on_up()
        if self._standin.has_queue:
            self._standin.send_queue(self._on_queue_sent)
        self._dispatch_waiting()

    def on_renewed(self) -> None:
        """The link has moved to a fresh connection: open the client's session there before anything else goes over it, and its streams."""
        streams = [call for call in self._calls.values() if call.is_stream and call.is_sent]
        for call in streams:
            call.session_id = ""  # no more of the old connection, whose end is not theirs
        self._outgoing.put_first([*self._opening_lines(), *(Line(call.line, call) for call in streams)])

    def is_waiting(self, session_id: str) -> bool:
        """Whether calls that were sent on that connection wait for their answers."""
        return any(call.session_id == session_id and not call.is_stream for call in self._calls.values())

    def on_retired(self, session_id: str, reason: ConfideError | None) -> None:
        """A connection that was replaced is gone; what it has not answered is decided as when the link breaks."""
        for identifier, call in list(self._calls.items()):
            if call.session_id != session_id or call.is_taken:
                continue
            if not call.repeatable:
                self._give_up_sent(identifier, reason or ConnectionLost(truncated=False))
            elif self._is_live:
                call.repeats += 1
                self._dispatch(identifier, call)

    def on_down(self, reason: ConfideError) -> None:
        """The link is down: what may have taken effect fails now, what can be repeated gets a short while."""
        assert self._link is not None
        assert self._standin is not None
        self._is_live = False
        self._standin.on_down()
        self._outgoing.clear()  # on_up sends again what still waits then
        is_known = time.time() - self._link.since > RELINK_DEADLINE_S
        for identifier, call in list(self._calls.items()):
            if call.is_taken:
                continue
            if call.is_sent and not call.repeatable:
                self._give_up_sent(identifier, reason)
            elif not self._may_recover(reason):
                self._do_without(identifier, call, _sentence(reason))
            elif call.is_sent and call.repeats >= MAX_REPEATS:
                self._do_without(identifier, call, "the link to the daemon broke each time during this call")
            elif call.is_sent:
                call.is_sent = False
                call.repeats += 1
                self._arm(identifier, call, RELINK_DEADLINE_S)
            elif is_known and self._was_up:
                self._do_without(identifier, call, _sentence(reason))  # and it has just failed once more
            # Else it waits already, and its deadline is not put off by another failed attempt.
        if self._calls and self._link is not None:
            self._link.poke()

    async def on_message(self, data: bytes) -> None:
        """One message of the daemon's."""
        message = json.loads(data)
        identifier = message.get("id")
        if isinstance(identifier, str) and identifier.startswith(_REPLAY_ID):
            uri = identifier.removeprefix(_REPLAYED)
            if uri in self._subscribed and "error" not in message:
                self._tell({"uri": uri})
            return
        if message.get("method") == _ACKNOWLEDGED and self._is_known(message):
            self._tell_stream(message["params"]["_meta"][_SUBSCRIPTION])
            return
        if identifier is not None and "method" not in message:
            call = self._settle(key(identifier))
            if call is None:
                return  # answered already: its deadline passed
            if "error" in message:
                self._forget_subscription(call)
            if call.method == catalogues.LIST_TOOLS and "result" in message:
                self._shown = message["result"].get("tools")
        self._write(data + b"\n")

    def _is_known(self, message: dict[str, Any]) -> bool:
        """Whether the stream that is acknowledged was so before, on another connection."""
        try:
            call = self._calls.get(key(message["params"]["_meta"][_SUBSCRIPTION]))
        except (KeyError, TypeError):
            return False
        if call is None:
            return False
        was_known, call.is_acknowledged = call.is_acknowledged, True
        return was_known

    def _tell_stream(self, subscription: Any) -> None:
        """The stream's resources, one by one."""
        params = json.loads(self._calls[key(subscription)].line).get("params")
        wanted = params.get("notifications") if isinstance(params, dict) else None
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        for uri in uris if isinstance(uris, list) else ():
            self._tell({"uri": uri, "_meta": {_SUBSCRIPTION: subscription}})

    def _tell(self, about: dict[str, Any]) -> None:
        """That a resource may have changed: it is subscribed to on a fresh connection now, and nobody told of what came in between."""
        self._send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": about})

    async def drained(self) -> None:
        """Returns once no call waits for its answer; the caller sets the deadline."""
        import asyncio

        while any(not call.is_stream for call in self._calls.values()):
            self._on_empty = asyncio.Event()
            await self._on_empty.wait()

    def replace_catalogue(self, catalogue: Catalogue) -> None:
        """The daemon's own catalogue came; tell a client that was shown other tools."""
        self._catalogue = catalogue
        # Only the handshake era has this notification unasked; the later one has a request to listen for it.
        if self._opening and self._shown is not None and self._shown != catalogue.data["tools"]:
            self._send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, message: dict[str, Any], line: bytes) -> None:
        assert self._link is not None
        identifier, method = message["id"], str(message["method"])
        if (
            len(self._calls) >= MAX_IN_FLIGHT
            or sum(len(c.line) for c in self._calls.values()) + len(line) > MAX_HELD_BYTES
        ):
            self._fail(
                identifier, UNAVAILABLE, f"{len(self._calls)} calls are waiting for the daemon already; try again later"
            )
            return
        params = message.get("params")
        tool = str(params.get("name")) if method == "tools/call" and isinstance(params, dict) else None
        offline = self._catalogue.offline(tool) if tool is not None else "fail"
        if offline == "queue":
            line = with_operation(message)
        is_repeatable = tool is None or offline == "queue" or self._catalogue.is_read_only(tool)
        if method in (_SUBSCRIBE, _UNSUBSCRIBE):
            self._note_subscription(method, params, message)
        # A stream that broke is not taken up again: its client listens anew, and reads what it may have missed (MCP 2026-07-28).
        is_stream = method == _LISTEN
        call = Call(line, method, tool, is_repeatable and not is_stream, offline, is_stream=is_stream)
        self._calls[key(identifier)] = call
        if self._is_live:
            self._dispatch(key(identifier), call)
            return
        self._link.poke()
        reason = self._link.reason
        # A key that is locked may have been unlocked a moment ago: the next attempt, made at once, finds out.
        if reason is not None and not self._may_recover(reason) and not isinstance(reason, KeyLockedError):
            self._do_without(key(identifier), call, _sentence(reason))
            return
        is_soon = self._was_up or (call.offline != "fail" and self._standin is not None and self._standin.is_joined)
        self._arm(key(identifier), call, RELINK_DEADLINE_S if is_soon else FIRST_LINK_DEADLINE_S)

    def _dispatch(self, identifier: str, call: Call, *, may_hold: bool = True) -> None:
        assert self._standin is not None
        if may_hold and call.offline != "fail" and self._standin.has_queue:
            # What was queued before goes first, or an agent's later word would stand above its earlier one.
            call.is_sent = False
            if call.offline == "queue":
                self._arm(identifier, call, HELD_DEADLINE_S)
            else:
                self._arm(identifier, call, READ_HELD_S, self._dispatch_held)
            self._standin.send_queue(self._on_queue_sent)
            return
        if call.tool is not None and self._standin.answers_here(call.tool):
            self._answer_here(identifier, call)
            return
        is_long = call.tool is not None and self._catalogue.is_long_job(call.tool)
        call.is_sent, call.session_id = True, ""
        self._outgoing.put(Line(call.line, call))
        if call.is_stream:
            if call.timer:
                call.timer.cancel()
        elif call.offline == "fail":
            self._arm(identifier, call, LONG_JOB_DEADLINE_S if is_long else CALL_DEADLINE_S)
        else:
            self._arm(identifier, call, PROBE_AFTER_S, self._probe)

    def _answer_here(self, identifier: str, call: Call) -> None:
        """Let this machine answer a call that is about its files or keys, with the daemon's help."""
        assert self._standin is not None
        assert call.tool is not None
        call.is_taken = True
        if call.timer:
            call.timer.cancel()

        def answered(result: dict[str, Any]) -> None:
            if self._calls.get(identifier) is call:
                self._settle(identifier)
                self._send({"jsonrpc": "2.0", "id": json.loads(identifier), "result": result})

        self._standin.answer_here(call.tool, call.line, self._send, lambda: not call.is_settled, answered)

    def _dispatch_held(self, identifier: str) -> None:
        call = self._calls.get(identifier)
        if call is not None and self._is_live:
            self._dispatch(identifier, call, may_hold=False)
        else:
            self._expire(identifier)

    def _dispatch_waiting(self) -> None:
        for identifier, call in list(self._calls.items()):
            if not call.is_sent and not call.is_taken:
                self._dispatch(identifier, call)

    def _on_queue_sent(self) -> None:
        if self._is_live:
            self._dispatch_waiting()

    def _probe(self, identifier: str) -> None:
        call = self._calls.get(identifier)
        if call is not None and self._standin is not None:
            self._arm(identifier, call, CALL_DEADLINE_S - PROBE_AFTER_S)
            self._standin.probe(PROBE_S, lambda: self._on_silence(identifier, call))

    def _on_silence(self, identifier: str, call: Call) -> None:
        """Nobody is there, although nobody has said so: this call is answered here, and the link is made anew."""
        assert self._link is not None
        if call.is_sent and not call.is_settled and not call.is_taken:
            self._do_without(
                identifier, call, "the daemon does not answer", since=time.time() - PROBE_AFTER_S - PROBE_S
            )
            self._link.abandon()

    def _on_unsent(self, line: Line, error: Exception) -> None:
        """A line could not be sealed, or what it names could not be left with the daemon: it does not go up."""
        from confide_proxy.absence import LATER

        call = line.call
        identifier = next((name for name, one in self._calls.items() if one is call), None)
        if call is None or identifier is None or not line.is_wanted:
            return
        is_for_now = isinstance(error, TimeoutError) or (isinstance(error, RequestError) and error.code in LATER)
        if is_for_now and call.offline == "queue":
            reason = error if isinstance(error, ConfideError) else None
            self._do_without(identifier, call, _told(error), since=time.time(), reason=reason)
        else:
            self._give_up(identifier, _told(error))

    def _cancel(self, message: dict[str, Any]) -> Call | None:
        # MCP, "Cancellation": no answer follows. A call that has not been sent yet must not be carried out any more.
        params = message.get("params")
        if isinstance(params, dict) and isinstance(params.get("requestId"), str | int):
            return self._settle(key(params["requestId"]))
        return None

    def _opening_lines(self) -> list[Line]:
        """What opened the client's session, for a new one of the daemon's."""
        if self._opening is None:
            return []
        initialized = [Line(encoded({"jsonrpc": "2.0", "method": _INITIALIZED}))] if self._is_initialized else []
        return [Line(encoded(self._opening)), *initialized, *map(Line, self._subscribed.values())]

    def _note_subscription(self, method: str, params: Any, message: dict[str, Any]) -> None:
        """What a new daemon session is to be told: it knows nothing of what was subscribed to in the one before."""
        uri = params.get("uri") if isinstance(params, dict) else None
        if not isinstance(uri, str):
            return
        if method == _UNSUBSCRIBE:
            self._subscribed.pop(uri, None)
        elif len(self._subscribed) < MAX_SUBSCRIBED:
            self._subscribed[uri] = encoded({**message, "id": f"{_REPLAYED}{uri}"})

    def _forget_subscription(self, call: Call) -> None:
        """It was refused, and its client told so."""
        if call.method != _SUBSCRIBE:
            return
        params = json.loads(call.line).get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if isinstance(uri, str):
            self._subscribed.pop(uri, None)

    def _replay(self) -> None:
        for line in self._opening_lines():
            self._outgoing.put(line)

    def _arm(self, identifier: str, call: Call, seconds: float, then: Callable[[str], None] | None = None) -> None:
        # Imported late: before the loop runs there are no calls, and the first answers go out without asyncio.
        import asyncio

        if call.timer:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(seconds, then or self._expire, identifier)

    def _expire(self, identifier: str) -> None:
        call = self._calls.get(identifier)
        if call is None or self._link is None:
            return
        reason = self._link.reason
        if call.is_sent and call.offline == "queue":
            self._do_without(identifier, call, "the daemon did not answer in time", since=time.time() - CALL_DEADLINE_S)
        elif call.is_sent:
            self._give_up(identifier, "the daemon did not answer in time; confide status shows how it is")
        else:
            why = _sentence(reason) if reason else "the daemon is still being reached; try again"
            self._do_without(identifier, call, why)

    def _do_without(
        self,
        identifier: str,
        call: Call,
        why: str,
        *,
        since: float | None = None,
        reason: ConfideError | None = None,
    ) -> None:
        """Answer a call without the daemon; with an error that says why, where this machine knows no tool of that name.

        `since` says when the daemon was last heard of, where the link itself knows nothing yet, and `reason` what it said.
        """
        assert self._link is not None
        assert self._standin is not None
        if call.tool is None or not self._catalogue.has(call.tool):
            self._give_up(identifier, why)
            return
        call.is_taken = True
        if call.timer:
            call.timer.cancel()
        facts = (reason, since, False) if since else (self._link.reason, self._link.since, self._is_live)

        def answered(result: dict[str, Any]) -> None:
            if self._calls.get(identifier) is call:
                self._settle(identifier)
                self._send({"jsonrpc": "2.0", "id": json.loads(identifier), "result": result})
            if call.offline == "queue" and self._is_live and self._standin is not None:
                self._standin.send_queue(self._on_queue_sent)

        self._standin.answer(call.line, self._catalogue, facts, lambda: not call.is_settled, answered)

    def _may_recover(self, reason: ConfideError) -> bool:
        # A daemon on this machine, or a link that has been up, comes back within moments; a remote one that refused does not.
        return isinstance(reason, ConnectionLost) or (self._was_up and not isinstance(reason, KeyLockedError))

    def _give_up_sent(self, identifier: str, reason: ConfideError) -> None:
        self._give_up(
            identifier, f"the link to the daemon broke during this call, so it may have taken effect: {reason}"
        )

    def _give_up(self, identifier: str, why: str) -> None:
        call = self._settle(identifier)
        if call is None:
            return
        if call.tool is not None:
            # A tool error rather than a protocol error, so that the model reads it and can tell its user.
            result = {"content": [{"type": "text", "text": why}], "isError": True}
            if b"io.modelcontextprotocol/protocolVersion" in call.line:
                result["resultType"] = "complete"
            self._send({"jsonrpc": "2.0", "id": json.loads(identifier), "result": result})
        else:
            self._forget_subscription(call)
            self._fail(json.loads(identifier), UNAVAILABLE, why)

    def _settle(self, identifier: str) -> Call | None:
        call = self._calls.pop(identifier, None)
        if call is not None:
            call.is_settled = True
            if call.timer:
                call.timer.cancel()
        if self._on_empty and all(call.is_stream for call in self._calls.values()):
            self._on_empty.set()
        return call

    # -- to the client --------------------------------------------------------------------------------------------

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        try:
            return jsonrpc.parsed(line)
        except jsonrpc.MalformedError as error:
            self._fail(None, error.code, str(error))
            return None

    def _fail(self, identifier: Any, code: int, why: str) -> None:
        self._send({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": why}})

    def _send(self, message: dict[str, Any]) -> None:
        self._write(encoded(message) + b"\n")


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the daemon did not answer in time; confide status shows how it is"
    if isinstance(error, ConfideError):
        return f"{error}\nhint: {error.hint}" if error.hint else str(error)
    return "the message could not be sealed on this machine, so it was not sent"


def _sentence(reason: ConfideError) -> str:
    return f"{reason}; hint: {reason.hint}" if reason.hint else str(reason)
