"""The client's JSON-RPC messages on their way to the daemon and back.

A tunnel, not a second MCP server. It acts in these cases only: what `catalogue` answers while the link is down (and `initialize` and
`server/discover` always, since the client asks before there can be a link); streams of news, which are opened here (`subscriptions`); calls
that meet a link that is down, which `fallback` answers;
calls that change something, which get the id by which they are made once however often they are sent; subscriptions, and an `initialize`
without what the client can be asked for, replayed unseen to each new daemon session; and credentials in what the agent says, which are
sealed on the way up (`sealing.sealed_calls`). Everything else passes up as it came. Of what comes back only
answers to these calls and a few
notifications pass, written anew (`incoming`); nothing sealed is opened in it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_memory.tools import call as call_keys
from confide_memory.tools.call import NOTED, NOTES, OPERATION, WITHIN, ToolAnswer
from confide_proxy import VERSION
from confide_proxy.errors import LATER, KeyLockedError, NotNowError
from confide_proxy.link.connection_terms import CALL_DEADLINE_S, LONG_JOB_DEADLINE_S, RELINK_DEADLINE_S
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp import incoming, jsonrpc
from confide_proxy.mcp.catalogue import ToolCatalogue
from confide_proxy.mcp.incoming import CANCELLED, NotificationMessage, RequestMessage, ResponseMessage
from confide_proxy.mcp.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REPLAY_ID,
    UNAVAILABLE,
    OutgoingLine,
    OutgoingQueue,
    PendingCall,
    encoded,
    key,
    with_claims,
    with_operation,
    without_claims,
)
from confide_proxy.mcp.subscriptions import (
    ACKNOWLEDGED,
    CHANGED,
    LISTEN,
    MAX_STREAMS,
    PROMPTS,
    RESOURCES,
    TOOLS,
    UPDATED,
    Subscriptions,
    acknowledgement_of,
    news_after_break,
    news_of_change,
    refusal_of,
    stream_of,
)

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link.daemon_link import Link
    from confide_proxy.mcp.fallback import Fallback
    from confide_proxy.sealing.sealed_calls import SealedCalls

MAX_IN_FLIGHT = 256
MAX_AT_ONCE = 24
"""Calls at the daemon at once. It refuses what is beyond 32 of a connection, and its hooks and syncs are to have room; others wait here."""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Of calls without an answer, which are kept to be sent again."""
MAX_REPEATS = 2
FIRST_LINK_DEADLINE_S = 9.0
"""How long a call waits for the first link, which may include the start of a daemon on this machine."""
PROBE_AFTER_S = 1.0
"""A call that has no answer for so long asks whether anybody is there at all; a pulled cable tells nobody."""
PROBE_S = 1.0
HELD_DEADLINE_S = 5.0
"""How long a store waits for what was queued before it; then it is queued too."""
READ_HELD_S = 1.0
"""How long a search waits for that, so that it finds what its own agent has said; then it goes without."""
BUSY = "busy"
BUSY_AGAIN_S = 0.3
"""After this a search is asked again that met too many others at once; what changes something is kept, in its order."""
_CROWDED_S = 0.01

_LATE = "the daemon did not answer in time; confide status shows how it is"
_UNFIT = "the daemon's answer is not of the form that MCP gives it; do the versions fit?"
_INITIALIZED = "notifications/initialized"
_OURSELVES = {"name": "confide", "version": VERSION}
_CALL = "tools/call"
_NOTHING: Mapping[str, object] = {}


class Tunnel:
    """Both directions of one client's session. Runs in the event loop alone."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        catalogue: ToolCatalogue,
        *,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`write` takes whole lines for the client; `is_crowded` says whether that is too far behind to be passed on more."""
        self._write = write
        self._is_crowded = is_crowded
        self.catalogue = catalogue
        self._calls: dict[str, PendingCall] = {}
        self._opening: dict[str, Any] | None = None
        self._is_initialized = False
        self._was_up = False
        self._shown: dict[str, list[Any]] = {}
        """The lists that the client was given here, by their methods; what else there is it is told of later."""
        self._link: Link
        self._fallback: Fallback
        self._sealed: SealedCalls
        self._subscriptions = Subscriptions()
        self._outgoing = OutgoingQueue()
        self.notices: Callable[[], list[str]] = list
        """What an agent is to be told of this machine's files."""
        self._turns: deque[PendingCall] = deque()
        self._is_live = False
        self._root = ""
        self._on_empty: asyncio.Event | None = None

    def attach(self, link: Link, fallback: Fallback, sealed: SealedCalls, root: str = "") -> None:
        """The link exists now, what answers while it is down, and what seals; before this only `answer_locally` works.

        `root`: the project's folder, for paths that are given as the disk has them.
        """
        self._root = root
        self._link, self._fallback, self._sealed = link, fallback, sealed

    # -- from the client ------------------------------------------------------------------------------------------

    def answer_locally(self, line: bytes) -> bool:
        """Answer what needs no daemon; False if the message has to wait for the link."""
        read = self._parsed(line)
        return read is None or self._answer_locally(read[0])

    def _answer_locally(self, message: dict[str, object]) -> bool:
        method, identifier = message.get("method"), message.get("id")
        if method == _INITIALIZED and not self._was_up:
            self._is_initialized = True  # the replay will say it, once there is a daemon session
            return True
        if method == LISTEN and identifier is not None:
            self._open_stream(message)
            return True
        if identifier is None or method not in catalogues.LOCAL_METHODS:
            return False
        params = message.get("params")
        if method == catalogues.LIST_RESOURCES and isinstance(params, dict) and params.get("cursor") is not None:
            return False  # who was given a cursor was given it by the daemon
        result = self.catalogue.answer(method, params if isinstance(params, dict) else None)
        if result is None:
            self._fail(identifier, METHOD_NOT_FOUND, "Method not found")
            return True
        if method == catalogues.INITIALIZE:
            # Not the client's own: what it can be asked for is no business of a daemon, which asks for nothing.
            opening = {"protocolVersion": result["protocolVersion"], "capabilities": {}, "clientInfo": _OURSELVES}
            self._opening = {"jsonrpc": "2.0", "id": REPLAY_ID, "method": method, "params": opening}
        if method in catalogues.LISTS:
            self._shown[method] = result[catalogues.LISTS[method]]
        self._answer(identifier, result)
        return True

    def receive(self, line: bytes, claims: Mapping[str, object] = _NOTHING) -> None:
        """One line of the client's. `claims`: what this machine says of a tool call in `_meta`, whatever its client says there."""
        read = self._parsed(line)
        if read is None:
            return
        message, line = read
        method = message.get("method")
        if method is None:
            return  # an answer, and nobody has asked
        is_own = method in catalogues.OWN_METHODS or method == LISTEN
        if (is_own or not self._is_live) and self._answer_locally(message):
            if method == catalogues.INITIALIZE and self._is_live:
                self._replay()
            return
        if method == _INITIALIZED:
            self._is_initialized = True
        if message.get("id") is None:
            about = self._cancel(message) if method == CANCELLED else None
            if self._is_live:  # else it is for a daemon session that no longer is, and nobody could use it
                self._outgoing.put(OutgoingLine(message, line, session_id=about.session_id if about else ""))
            return
        self._call(message, line, claims)

    async def send(self) -> None:
        """Pass the lines up, sealed and in order, for as long as the task lives."""
        async for call, error in self._outgoing.run(self._link, self._sealed):
            self._on_unsent(call, error)

    # -- from the link --------------------------------------------------------------------------------------------

    def on_up(self) -> None:
        """A new daemon session: replay what opened the client's, then everything that waited or may be repeated."""
        self._was_up = self._is_live = True
        self._replay()
        self._fallback.on_up()
        if self._fallback.has_queue:
            self._fallback.send_queue(self._dispatch_waiting)
        self._dispatch_waiting()
        if (
            self._shown.pop(catalogues.LIST_RESOURCES, None) and self._opening
        ):  # streams bring it once they are acknowledged
            self._send({"jsonrpc": "2.0", "method": CHANGED[RESOURCES]})

    def on_renewed(self) -> None:
        """The link has moved to a fresh connection: open the client's session there before anything else goes over it, and its streams."""
        streams = [call for call in self._streams() if call.is_sent]
        for call in streams:
            call.session_id, call.is_acknowledged = "", False  # no more of the old connection, whose end is not theirs
        self._outgoing.put_first(
            [*self._opening_lines(), *(OutgoingLine(call.message, call.line, call) for call in streams)]
        )

    def is_waiting(self, session_id: str) -> bool:
        """Whether calls that were sent on that connection wait for their answers."""
        return any(call.session_id == session_id and not call.is_stream for call in self._calls.values())

    def on_retired(self, session_id: str, reason: ConfideError | None) -> None:
        """A connection that was replaced is gone; what it has not answered is decided as when the link breaks."""
        for call in list(self._calls.values()):
            if call.session_id != session_id or call.is_taken:
                continue
            if not call.is_repeatable:
                self._give_up_sent(call, reason or ConnectionLost(truncated=False))
            elif self._is_live:
                call.repeats += 1
                self._dispatch(call)

    def on_down(self, reason: ConfideError) -> None:
        """The link is down: what may have taken effect fails now, what can be repeated gets a short while."""
        self._is_live = False
        self._fallback.on_down()
        self._outgoing.clear()  # on_up sends again what still waits then
        self._turns.clear()
        is_known = time.time() - self._link.since > RELINK_DEADLINE_S
        for call in list(self._calls.values()):
            if call.is_taken:
                continue
            if call.is_stream:
                call.is_sent = False  # it stays open, and the next session of the daemon's is told of it
            elif call.is_sent and not call.is_repeatable:
                self._give_up_sent(call, reason)
            elif not self._may_recover(reason):
                self._do_without(call, _sentence(reason))
            elif call.is_sent and call.repeats >= MAX_REPEATS:
                self._do_without(call, "the link to the daemon broke each time during this call")
            elif call.is_sent:
                call.is_sent = False
                call.repeats += 1
                self._arm(call, RELINK_DEADLINE_S)
            elif is_known and self._was_up:
                self._do_without(call, _sentence(reason))  # and it has just failed once more
            # Else it waits already, and its deadline is not put off by another failed attempt.
        if any(not call.is_stream for call in self._calls.values()):
            self._link.poke()

    async def on_message(self, data: bytes) -> None:
        # A client that reads more slowly than the daemon writes holds the daemon back; a flood must not end its session.
        while self._is_crowded():
            import asyncio

            await asyncio.sleep(_CROWDED_S)  # it is a thread that catches up
        message = incoming.read(data)
        if isinstance(message, RequestMessage):
            if message.refusal is not None:
                # Awaited, so that who asks without end waits for its own answers, and none of them wait here.
                with suppress(ConnectionLost):
                    await self._link.send_message(message.refusal)
        elif isinstance(message, NotificationMessage):
            self._on_news(message)
        elif message is not None:
            self._on_answer(message)

    def _on_news(self, news: NotificationMessage) -> None:
        if not incoming.is_wanted(news, self._calls, self._subscriptions):
            return
        if news.method == ACKNOWLEDGED:
            stream = self._calls[key(stream_of(news.params))]
            if not stream.is_acknowledged:  # as it was here, long ago; what came in between, nobody has told of
                stream.is_acknowledged = True
                for message in news_after_break(stream):
                    self._send(message)
            return
        self._send(news.message)

    def _on_answer(self, answer: ResponseMessage) -> None:
        identifier, outcome = answer.identifier, answer.outcome
        if isinstance(identifier, str) and identifier.startswith(REPLAY_ID):
            self._tell(self._subscriptions.news_after(identifier, outcome or {"error": {}}))
            return
        call = self._calls.get(key(identifier))
        # Each call has one answer, and the daemon gives only those that it was asked for: not that of `secret_get`, say, which this
        # machine is opening, and not one whose deadline has passed.
        if call is None or not call.is_sent or call.is_answered:
            return
        result = outcome.get("result") if outcome else None
        if outcome is None or (call.tool is not None and result is not None and not incoming.is_result_of_tool(result)):
            self._give_up(call, _UNFIT)
            return
        refusal = incoming.refusal_of(result) if call.tool is not None and result is not None else None
        if isinstance(refusal, NotNowError) and self._wait_for(call, refusal):
            return
        if call.tool is not None and result is not None and self._fallback.completion.may_lack(call.tool, result):
            call.is_taken = call.is_answered = True
            call.disarm()
            self._fallback.spawn(self._completed(call, answer, result))
            return
        self._pass_on(call, answer)

    async def _completed(self, call: PendingCall, answer: ResponseMessage, result: dict[str, object]) -> None:
        """Answer with what the daemon found, once it is known to be all that this machine's files could bring, or is made so."""
        try:
            tool = self.catalogue.tools[str(call.tool)]
            made = await self._fallback.completion.complete(call, tool, result)
        except Exception as error:
            # The disk or a fault of ours: what the daemon has found is an answer all the same.
            import logging

            logging.getLogger(__name__).warning("the files could not be looked at: %s", type(error).__name__)
            made = result
        if self._calls.get(call.key) is not call:
            return  # its client has taken it back
        if made is None and self._is_live:
            call.is_taken, call.is_answered, call.is_asked_again = False, False, True
            self._dispatch(call, may_hold=False)
        elif made is None or made is result:
            self._pass_on(call, answer)
        else:
            if not call.is_structured:
                incoming.as_text(made)
            self._settle(call.key)
            self._answer(call.identifier, made)

    def _pass_on(self, call: PendingCall, answer: ResponseMessage) -> None:
        """Give the client the daemon's answer."""
        outcome = answer.outcome or {}
        result = outcome.get("result")
        self._settle(call.key)
        if "error" in outcome:
            self._subscriptions.forget(call)
        line = answer.line
        if call.tool is not None and result is not None and not call.is_structured and incoming.as_text(result):
            line = None
        self._write((line or encoded({"jsonrpc": "2.0", "id": call.identifier, **outcome})) + b"\n")

    def _wait_for(self, call: PendingCall, refusal: NotNowError) -> bool:
        """Do as where the link is down, for a call that the daemon cannot do now: asked again, answered here or kept; False: none of it."""
        if refusal.code == BUSY and call.is_read_only and call.repeats < MAX_REPEATS:
            call.is_sent = False
            call.repeats += 1
            self._arm(call, BUSY_AGAIN_S, self._dispatch_held)
        elif call.offline != "fail" and not call.is_bound:
            self._do_without(call, str(refusal), since=time.time(), reason=refusal)
        else:
            return False
        return True

    def _tell(self, news: list[dict[str, object]]) -> None:
        """That resources may have changed: they are listened to on a fresh connection now, and nobody told of what came in between."""
        for about in news:
            self._send({"jsonrpc": "2.0", "method": UPDATED, "params": about})

    def _notify_changed(self, name: str) -> None:
        """That a list has changed: in the handshake era unasked, in the later one on the streams that were opened for it."""
        if self._opening:
            self._send({"jsonrpc": "2.0", "method": CHANGED[name]})
        for stream in self._streams():
            for message in news_of_change(stream, name):
                self._send(message)

    async def drained(self) -> None:
        """Returns once no call waits for its answer; the caller sets the deadline."""
        import asyncio

        while any(not call.is_stream for call in self._calls.values()):
            self._on_empty = asyncio.Event()
            await self._on_empty.wait()

    def replace_catalogue(self, catalogue: ToolCatalogue) -> None:
        """The daemon's own catalogue came; tell a client that was shown other tools, or prompts."""
        self.catalogue = catalogue
        for method, name in ((catalogues.LIST_TOOLS, TOOLS), (catalogues.LIST_PROMPTS, PROMPTS)):
            if self._shown.get(method, listed := catalogue.data[catalogues.LISTS[method]]) != listed:
                self._notify_changed(name)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, message: dict[str, object], line: bytes, claims: Mapping[str, object]) -> None:
        if not self._has_room(message, line):
            return
        call = self._calls[key(message["id"])] = self._called(message, line, claims)
        if call.tool is None:
            self._subscriptions.note(call)
        elif not isinstance(call.params.get("arguments"), dict | None):
            self._give_up(call, f"{call_keys.NO_OBJECT}\nhint: {call_keys.OBJECT_HINT}")
            return
        if self._is_live:
            self._dispatch(call)
            return
        self._link.poke()
        reason = self._link.reason
        # A key that is locked may have been unlocked a moment ago: the next attempt, made at once, finds out.
        if reason is not None and not self._may_recover(reason) and not isinstance(reason, KeyLockedError):
            self._do_without(call, _sentence(reason))
            return
        is_soon = self._was_up or (call.offline != "fail" and self._fallback.is_joined)
        self._arm(call, RELINK_DEADLINE_S if is_soon else FIRST_LINK_DEADLINE_S)

    def _has_room(self, message: dict[str, object], line: bytes) -> bool:
        """Whether one more call may wait; its client is told where it may not."""
        held = sum(len(call.line) for call in self._calls.values())
        if len(self._calls) < MAX_IN_FLIGHT and held + len(line) <= MAX_HELD_BYTES:
            return True
        why = f"{len(self._calls)} calls are waiting for the daemon already; try again later"
        self._fail(message["id"], UNAVAILABLE, why)
        return False

    def _open_stream(self, message: dict[str, object]) -> None:
        """Acknowledge a stream of news; the daemon is told of it when there is one."""
        stream = PendingCall(message, encoded(message), None, is_repeatable=False, is_stream=True)
        if not stream.is_modern:
            self._fail(stream.identifier, METHOD_NOT_FOUND, "Method not found")
        elif (refusal := refusal_of(stream)) is not None:
            self._fail(stream.identifier, INVALID_PARAMS, refusal)
        elif len(self._streams()) >= MAX_STREAMS:
            self._fail(stream.identifier, UNAVAILABLE, f"{MAX_STREAMS} streams of news are open already")
        elif self._has_room(message, stream.line):
            self._calls[stream.key] = stream
            self._send(acknowledgement_of(stream))
            if self._is_live:
                self._dispatch(stream)

    def _streams(self) -> list[PendingCall]:
        return [call for call in self._calls.values() if call.is_stream]

    def _called(self, message: dict[str, Any], line: bytes, claims: Mapping[str, Any]) -> PendingCall:
        """A request as the call that it is; one that may be sent twice, or wait on this machine, by the id that it is made once by."""
        method, params = message["method"], message.get("params")
        if method != _CALL or not isinstance(params, dict):
            return PendingCall(message, line, None, is_repeatable=True)
        tool = str(params.get("name"))
        given = params.get("arguments")
        if (spelled := call_keys.spelled_out(given)) is not given:
            # What seals looks into an object.
            params = {**params, "arguments": spelled}
            message = {**message, "params": params}
            line = encoded(message)
        if (placed := jsonrpc.below(self._root, params)) is not params:
            message = {**message, "params": placed}
            line = encoded(message)
        if (unclaimed := without_claims(message)) is not message:
            message, line = unclaimed, encoded(unclaimed)
        if claims:
            message = with_claims(message, claims)
            line = encoded(message)
        elif tool in NOTED and (notes := self.notices()):
            message = with_claims(message, {NOTES: notes})
            line = encoded(message)
        offline, is_read_only = self.catalogue.offline.get(tool, "fail"), tool in self.catalogue.read_only
        if offline == "queue":
            message = with_operation(message, claims.get(OPERATION))
            line = encoded(message)
        is_bound = WITHIN in claims
        is_repeatable = offline == "queue" or is_read_only
        return PendingCall(
            message, line, tool, is_repeatable, is_read_only, "fail" if is_bound else offline, is_bound=is_bound
        )

    def _dispatch(self, call: PendingCall, *, may_hold: bool = True) -> None:
        may_wait = may_hold and call.offline != "fail"
        if may_wait and os.path.exists(self._fallback.queue_file) and self._fallback.has_queue:  # noqa: PTH110 - at each call
            # What was queued before goes first, or an agent's later word would stand above its earlier one.
            call.is_sent = False
            if call.offline == "queue":
                self._arm(call, HELD_DEADLINE_S)
            else:
                self._arm(call, READ_HELD_S, self._dispatch_held)
            self._fallback.send_queue(self._dispatch_waiting)
            return
        if call.tool in self._fallback.tools_here:
            self._take(call, self._fallback.answer_here(call, self._send))
            return
        if not call.is_stream and self._at_daemon() >= MAX_AT_ONCE:
            call.is_sent = False
            if call not in self._turns:
                self._turns.append(call)
                self._arm(call, CALL_DEADLINE_S)
            return
        call.is_sent, call.session_id = True, ""
        call.is_level = self._fallback.completion.is_level
        self._outgoing.put(OutgoingLine(call.message, call.line, call))
        if call.is_stream:
            call.is_acknowledged = False
        elif call.method == catalogues.LIST_RESOURCES:
            self._arm(call, RELINK_DEADLINE_S, lambda call: self._do_without(call, _LATE))
        elif call.offline == "fail":
            self._arm(call, LONG_JOB_DEADLINE_S if call.tool in self.catalogue.long_jobs else CALL_DEADLINE_S)
        else:
            self._arm(call, PROBE_AFTER_S, self._probe)

    def _at_daemon(self) -> int:
        return sum(call.is_sent and not call.is_stream and not call.is_taken for call in self._calls.values())

    def _give_turns(self) -> None:
        """Send what has waited for others, as far as there is room now."""
        while self._is_live and self._turns and self._at_daemon() < MAX_AT_ONCE:
            call = self._turns.popleft()
            if not call.is_settled and not call.is_sent and not call.is_taken:
                self._dispatch(call)

    def _dispatch_held(self, call: PendingCall) -> None:
        if self._is_live:
            self._dispatch(call, may_hold=False)
        else:
            self._expire(call)

    def _dispatch_waiting(self) -> None:
        for call in list(self._calls.values()) if self._is_live else ():
            if not call.is_sent and not call.is_taken:
                self._dispatch(call)

    def _probe(self, call: PendingCall) -> None:
        self._arm(call, CALL_DEADLINE_S - PROBE_AFTER_S)
        self._fallback.spawn(self._probed(call))

    async def _probed(self, call: PendingCall) -> None:
        if await self._fallback.is_silent(PROBE_S) and call.is_sent and not call.is_settled and not call.is_taken:
            # Nobody is there, although nobody has said so: this call is answered here, and the link is made anew.
            self._do_without(call, "the daemon does not answer", since=time.time() - PROBE_AFTER_S - PROBE_S)
            self._link.abandon()

    def _on_unsent(self, call: PendingCall, error: Exception) -> None:
        """It could not be sealed, or what it names could not be left with the daemon: it does not go up."""
        if self._calls.get(call.key) is not call:
            return
        is_for_now = isinstance(error, TimeoutError) or (isinstance(error, RequestError) and error.code in LATER)
        if is_for_now and call.offline == "queue":
            reason = error if isinstance(error, ConfideError) else None
            self._do_without(call, _told(error), since=time.time(), reason=reason)
        else:
            self._give_up(call, _told(error))

    def _cancel(self, message: dict[str, object]) -> PendingCall | None:
        # MCP, "Cancellation": no answer follows. A call that has not been sent yet must not be carried out any more.
        params = message.get("params")
        if isinstance(params, dict) and isinstance(params.get("requestId"), str | int):
            return self._settle(key(params["requestId"]))
        return None

    def _opening_lines(self) -> list[OutgoingLine]:
        """What opened the client's session, for a new one of the daemon's."""
        if self._opening is None:
            return []
        initialized = [{"jsonrpc": "2.0", "method": _INITIALIZED}] if self._is_initialized else []
        return [OutgoingLine(message) for message in (self._opening, *initialized, *self._subscriptions.messages)]

    def _replay(self) -> None:
        for line in self._opening_lines():
            self._outgoing.put(line)

    def _arm(self, call: PendingCall, seconds: float, then: Callable[[PendingCall], None] | None = None) -> None:
        # Imported late: before the loop runs there are no calls, and the first answers go out without asyncio.
        import asyncio

        call.disarm()
        call.timer = asyncio.get_running_loop().call_later(seconds, self._ring, call, then or self._expire)

    def _ring(self, call: PendingCall, then: Callable[[PendingCall], None]) -> None:
        if self._calls.get(call.key) is call:  # else its id was used twice, and it is the other one that is waited for
            then(call)

    def _expire(self, call: PendingCall) -> None:
        reason = self._link.reason
        if call.is_sent and call.offline == "queue":
            self._do_without(call, "the daemon did not answer in time", since=time.time() - CALL_DEADLINE_S)
        elif call.is_sent:
            self._give_up(call, _LATE)
        else:
            waits = "the daemon is still being reached; try again"
            if self._is_live:
                waits = f"{MAX_AT_ONCE} other calls were at the daemon, and none was answered in time; try again"
            self._do_without(call, _sentence(reason) if reason else waits)

    def _do_without(
        self, call: PendingCall, why: str, *, since: float | None = None, reason: ConfideError | None = None
    ) -> None:
        """Answer a call without the daemon; with an error that says why, where this machine knows no tool of that name.

        `since` says when the daemon was last heard of, where the link itself knows nothing yet, and `reason` what it said.
        """
        if call.method == catalogues.LIST_RESOURCES and self._answer_locally(call.message):
            self._settle(call.key)
            return
        if call.tool is None or call.is_bound or call.tool not in self.catalogue.tools:
            self._give_up(call, why)
            return
        facts = (reason, since, False) if since else (self._link.reason, self._link.since, self._is_live)
        self._take(call, self._fallback.answer(call, self.catalogue.tools[call.tool], facts))

    def _take(self, call: PendingCall, answer: Awaitable[ToolAnswer | None]) -> None:
        """Let this machine answer a call, in the background: about its own files or keys, or while the daemon is away."""
        call.is_taken = True
        call.disarm()
        self._give_turns()
        self._fallback.spawn(self._taken(call, answer))

    async def _taken(self, call: PendingCall, answer: Awaitable[ToolAnswer | None]) -> None:
        try:
            result = await answer
        except Exception as error:  # no descriptor to load a module with, or a fault of ours: the client waits for an answer all the same
            import logging

            logging.getLogger(__name__).error("a call could not be answered here: %s", type(error).__name__)
            result = ToolAnswer(f"this device could not answer the call ({type(error).__name__}); try again")
        if result is None:
            return  # its client has taken it back
        if self._calls.get(call.key) is call:
            self._settle(call.key)
            self._answer(call.identifier, _result(call, result))
        if call.offline == "queue" and self._is_live:
            self._fallback.send_queue(self._dispatch_waiting)

    def _may_recover(self, reason: ConfideError) -> bool:
        # A daemon on this machine, or a link that has been up, comes back within moments; a remote one that refused does not.
        return isinstance(reason, ConnectionLost) or (self._was_up and not isinstance(reason, KeyLockedError))

    def _give_up_sent(self, call: PendingCall, reason: ConfideError) -> None:
        self._give_up(call, f"the link to the daemon broke during this call, so it may have taken effect: {reason}")

    def _give_up(self, call: PendingCall, why: str) -> None:
        self._settle(call.key)
        if call.tool is not None:
            # A tool error rather than a protocol error, so that the model reads it and can tell its user.
            self._answer(call.identifier, _result(call, ToolAnswer(why)))
        else:
            self._subscriptions.forget(call)
            self._fail(call.identifier, UNAVAILABLE, why)

    def _settle(self, identifier: str) -> PendingCall | None:
        call = self._calls.pop(identifier, None)
        if call is not None:
            call.is_settled = True
            call.disarm()
            self._give_turns()
        if self._on_empty and all(call.is_stream for call in self._calls.values()):
            self._on_empty.set()
        return call

    # -- to the client --------------------------------------------------------------------------------------------

    def _parsed(self, line: bytes) -> tuple[dict[str, Any], bytes] | None:
        try:
            return jsonrpc.parsed(line)
        except jsonrpc.MalformedError as error:
            self._fail(error.identifier, error.code, str(error))
            return None

    def _answer(self, identifier: Any, result: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "id": identifier, "result": result})

    def _fail(self, identifier: Any, code: int, why: str) -> None:
        self._send({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": why}})

    def _send(self, message: dict[str, object]) -> None:
        self._write(encoded(message) + b"\n")


def _result(call: PendingCall, answer: ToolAnswer) -> dict[str, Any]:
    return answer.as_result(is_modern=call.is_modern, is_structured=call.is_structured)


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return _LATE
    if isinstance(error, ConfideError):
        return error.with_hint
    return "the message could not be sealed on this device, so it was not sent"


def _sentence(reason: ConfideError) -> str:
    return f"{reason}; hint: {reason.hint}" if reason.hint else str(reason)
