"""The tunnel that carries the client's JSON-RPC messages to the daemon and back.

It forwards messages and is not a second MCP server. It acts in these cases only:

- it answers the methods of `catalogue` while the link is down (`initialize` and `server/discover`
  always, since the client sends them before there can be a link);
- it opens notification streams (`subscriptions`);
- it lets `fallback` answer calls while the link is down;
- it gives calls that change something an operation id, so that the daemon carries them out once,
  however often they are sent;
- it replays subscriptions, and an `initialize` without the client's capabilities, to each new
  session of the daemon;
- it gives a client that knows MCP's tasks a handle for a call that takes long (`task_handles`);
- it seals credentials in the messages to the daemon (`sealing.sealed_calls`);
- it offers add-ons' pages to a client that shows pages beside results (`installed_views`);
- it puts this device's own questions to the client (`questions`);
- it marks hits that are no longer true of this checkout (`freshness`).

All other messages are forwarded unchanged. From the daemon, only responses to these calls and a few
notifications pass, encoded again (`incoming`); sealed values in them stay sealed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.tools import call as call_keys
from confide_memory.tools.call import DATED, NOTED, NOTES, OPERATION, WITHIN, ToolAnswer
from confide_proxy import VERSION
from confide_proxy.errors import LATER, KeyLockedError, NotNowError
from confide_proxy.link.connection_terms import CALL_DEADLINE_S, LONG_JOB_DEADLINE_S, RELINK_DEADLINE_S
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp import incoming, jsonrpc
from confide_proxy.mcp.catalogue import ToolCatalogue
from confide_proxy.mcp.features.subscriptions import (
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
from confide_proxy.mcp.incoming import CANCELLED, PROGRESS, NotificationMessage, RequestMessage, ResponseMessage
from confide_proxy.mcp.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REPLAY_ID,
    UNAVAILABLE,
    OutgoingLine,
    OutgoingQueue,
    PendingCall,
    encode_message,
    key,
    with_claims,
    with_operation,
    with_zone,
    without_claims,
)
from confide_proxy.mcp.responses import Responses, result_of

if TYPE_CHECKING:
    import asyncio

    from confide_proxy.link.daemon_link import Link
    from confide_proxy.mcp.fallback import Fallback
    from confide_proxy.sealing.sealed_calls import SealedCalls

MAX_IN_FLIGHT = 256
MAX_AT_ONCE = 24
"""Most calls at the daemon at once; others wait here. The daemon refuses more than 32 of a
connection, and hooks and syncs of this device need some of them.
"""
MAX_HELD_BYTES = 64 * 1024 * 1024
"""Most bytes of calls without a response, which are kept to be sent again."""
MAX_REPEATS = 2
FIRST_LINK_DEADLINE_S = 9.0
"""Seconds that a call waits for the first link, which may include the start of a daemon on this
device.
"""
PROBE_AFTER_S = 1.0
"""Seconds without a response after which the daemon is pinged: a pulled cable causes no error."""
PROBE_S = 1.0
HELD_DEADLINE_S = 5.0
"""Seconds that a store waits for calls that were queued before it; then it is queued too."""
READ_HELD_S = 1.0
"""Seconds that a search waits for queued stores, so that it finds what its own agent has stored;
then it is sent without them.
"""
BUSY = "busy"
BUSY_AGAIN_S = 0.3
"""Seconds after which a search that the daemon refused as busy is sent again. Calls that change
something are queued instead, in order.
"""
_CROWDED_S = 0.01

_LATE = "the daemon did not answer in time; confide status shows how it is"
_UNFIT = "the daemon's answer is not of the form that MCP gives it; do the versions fit?"
_INITIALIZED = "notifications/initialized"
_OURSELVES = {"name": "confide", "version": VERSION}
_CALL = "tools/call"
_TASKS = "tasks/"
_NOTHING: Mapping[str, object] = {}


class Tunnel:
    """Forwards the messages of one client's session in both directions. Used in the event loop
    only.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        catalogue: ToolCatalogue,
        *,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`write` takes whole lines for the client; `is_crowded` returns True while the client is
        too far behind to be sent more.
        """
        self.responses = Responses(write)
        self._is_crowded = is_crowded
        self.catalogue = catalogue
        self._calls: dict[str, PendingCall] = {}
        self._opening: dict[str, Any] | None = None
        self._is_initialized = False
        self._was_up = False
        self._shown_lists: dict[str, list[Any]] = {}
        """The lists that the client got from here, by method; later differences are notified."""
        self._link: Link
        self._fallback: Fallback
        self._sealed_calls: SealedCalls
        self._subscriptions = Subscriptions()
        self._outgoing = OutgoingQueue()
        self.notices: Callable[[], list[str]] = list
        """Returns the notices about this device's files for the agent."""
        self.has_read_foreign: Callable[[], bool] = lambda: False
        """Returns True if the agent has read text of third parties in this session."""
        self._turns: deque[PendingCall] = deque()
        self._is_live = False
        self._root = ""
        self._on_empty: asyncio.Event | None = None

    def attach(self, link: Link, fallback: Fallback, sealed: SealedCalls, root: str = "") -> None:
        """Set the parts that the tunnel needs: the link, the fallback without it, and the sealing.
        Before this, only `answer_locally` works.

        Args:
            root: the project's folder, to which absolute paths in calls are made relative.
        """
        self._root = root
        self._link, self._fallback, self._sealed_calls = link, fallback, sealed

    # -- from the client ------------------------------------------------------------------------------------------

    def answer_locally(self, line: bytes) -> bool:
        """Answer a message that needs no daemon. Return False if the message has to wait for the
        link.
        """
        read = self._parse(line)
        return read is None or self._answer_locally(read[0])

    def _answer_locally(self, message: dict[str, object]) -> bool:
        method, identifier = message.get("method"), message.get("id")
        if method == _INITIALIZED and not self._was_up:
            self._is_initialized = True  # replayed to the daemon once the link is up
            return True
        if method == LISTEN and identifier is not None:
            self._open_stream(message)
            return True
        if isinstance(method, str) and method.startswith(_TASKS) and identifier is not None:
            return self._answer_task(PendingCall(message, b"", None, is_repeatable=False))
        params = message.get("params")
        if method == catalogues.READ_RESOURCE and identifier is not None:
            return self._answer_page(PendingCall(message, b"", None, is_repeatable=True))
        if identifier is None or method not in catalogues.LOCAL_METHODS:
            return False
        if method == catalogues.LIST_RESOURCES and isinstance(params, dict) and params.get("cursor") is not None:
            return False  # the cursor comes from the daemon
        result = self.catalogue.answer(method, params if isinstance(params, dict) else None)
        if result is None:
            self.responses.fail(identifier, METHOD_NOT_FOUND, "Method not found")
            return True
        if method == catalogues.INITIALIZE:
            # Without the client's capabilities: the daemon sends no requests, so it does not need
            # them.
            opening = {"protocolVersion": result["protocolVersion"], "capabilities": {}, "clientInfo": _OURSELVES}
            self._opening = {"jsonrpc": "2.0", "id": REPLAY_ID, "method": method, "params": opening}
        if method in (catalogues.INITIALIZE, catalogues.DISCOVER) and isinstance(params, dict):
            self.responses.declare(params, is_modern=method == catalogues.DISCOVER)
        if method == catalogues.DISCOVER:
            result["capabilities"] = catalogues.with_tasks(result["capabilities"])
        if method in catalogues.LISTS:
            self._shown_lists[method] = result[catalogues.LISTS[method]]
        views = self.responses.views(params)
        self.responses.answer(identifier, result if views is None else views.extend(method, result))
        return True

    def _answer_page(self, asked: PendingCall) -> bool:
        """Answer `resources/read` for the page of an add-on; return False for any other resource."""
        views = self.responses.views(asked.params)
        page = views.resource(asked.params.get("uri")) if views is not None else None
        if page is not None:
            self.responses.answer(asked.identifier, self.catalogue.add_cache_fields(page) if asked.is_modern else page)
        return page is not None

    def receive(self, line: bytes, claims: Mapping[str, object] = _NOTHING) -> None:
        """Handle one line from the client.

        Args:
            claims: fields that only this device may set in a tool call's `_meta`; they replace the
                client's.
        """
        read = self._parse(line)
        if read is None:
            return
        message, line = read
        method = message.get("method")
        if method is None:
            if self.responses.questions is not None:
                self.responses.questions.receive(message)
            return
        is_own = method in (*catalogues.OWN_METHODS, LISTEN, catalogues.READ_RESOURCE) or method.startswith(_TASKS)
        if (is_own or not self._is_live) and self._answer_locally(message):
            if method == catalogues.INITIALIZE and self._is_live:
                self._replay()
            return
        if method == _INITIALIZED:
            self._is_initialized = True
        if message.get("id") is None:
            about = self._cancel(message) if method == CANCELLED else None
            if self._is_live:  # otherwise the daemon session that it is for has ended
                self._outgoing.put(OutgoingLine(message, line, session_id=about.session_id if about else ""))
            return
        self._call(message, line, claims)

    async def send(self) -> None:
        """Send queued messages to the daemon, sealed and in order, until cancelled."""
        async for call, error in self._outgoing.run(self._link, self._sealed_calls):
            self._on_unsent(call, error)

    # -- from the link --------------------------------------------------------------------------------------------

    def on_up(self) -> None:
        """Start a new session of the daemon when the link is up: send the client's opening messages
        again, then all calls that waited or may be repeated.
        """
        self._was_up = self._is_live = True
        self._replay()
        self._fallback.on_up()
        if self._fallback.has_queue:
            self._fallback.send_queue(self._dispatch_waiting)
        self._dispatch_waiting()
        if (
            self._shown_lists.pop(catalogues.LIST_RESOURCES, None) and self._opening
        ):  # streams report it once they are acknowledged
            self.responses.send({"jsonrpc": "2.0", "method": CHANGED[RESOURCES]})

    def on_renewed(self) -> None:
        """Open the client's session and its streams on a fresh connection, before other messages
        use that.
        """
        streams = [call for call in self._streams() if call.is_sent]
        for call in streams:
            call.session_id, call.is_acknowledged = "", False  # the end of the old connection does not end them
        self._outgoing.put_first(
            [*self._opening_lines(), *(OutgoingLine(call.message, call.line, call) for call in streams)]
        )

    def is_waiting(self, session_id: str) -> bool:
        """Return True if calls that were sent on the connection with this session id still wait for
        responses.
        """
        return any(call.session_id == session_id and not call.is_stream for call in self._calls.values())

    def on_retired(self, session_id: str, reason: ConfideError | None) -> None:
        """Handle the end of a connection that a fresh one has replaced. Its unanswered calls fail
        or are sent again, as after a break of the link.
        """
        for call in list(self._calls.values()):
            if call.session_id != session_id or call.is_taken:
                continue
            if not call.is_repeatable:
                self._give_up_sent(call, reason or ConnectionLost(truncated=False))
            elif self._is_live:
                call.repeats += 1
                self._dispatch(call)

    def on_down(self, reason: ConfideError) -> None:
        """Handle a break of the link: calls that may have taken effect fail now, and calls that can
        be repeated wait a short time for a new connection.
        """
        self._is_live = False
        self._fallback.on_down()
        self._outgoing.clear()  # on_up sends pending calls again
        self._turns.clear()
        is_known = time.time() - self._link.since > RELINK_DEADLINE_S
        for call in list(self._calls.values()):
            if call.is_taken:
                continue
            if call.is_stream:
                call.is_sent = False  # stays open, and is sent to the daemon's next session
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
                self._do_without(call, _sentence(reason))  # the link has just failed again
            # Otherwise it waits already, and another failed attempt does not extend its deadline.
        if any(not call.is_stream for call in self._calls.values()):
            self._link.poke()

    async def on_message(self, data: bytes) -> None:
        # Back-pressure: a slow client slows the daemon down, but a flood of messages does not end
        # the session.
        while self._is_crowded():
            import asyncio

            await asyncio.sleep(_CROWDED_S)  # the writer thread catches up
        message = incoming.read(data)
        if isinstance(message, RequestMessage):
            if message.refusal is not None:
                # Awaited, so that a daemon that sends endless requests has to wait for each
                # response, and none of them pile up here.
                with suppress(ConnectionLost):
                    await self._link.send_message(message.refusal)
        elif isinstance(message, NotificationMessage):
            self._on_news(message)
        elif message is not None:
            self._on_answer(message)

    def _on_news(self, news: NotificationMessage) -> None:
        if news.method == PROGRESS and (call := self._call_of_handle(news.params.get("progressToken"))) is not None:
            self.responses.report(call, news.params.get("progress"), news.params.get("total"))
            return
        if not incoming.is_wanted(news, self._calls, self._subscriptions):
            return
        if news.method == ACKNOWLEDGED:
            stream = self._calls[key(stream_of(news.params))]
            if not stream.is_acknowledged:  # the client has its acknowledgement; changes in between were not reported
                stream.is_acknowledged = True
                for message in news_after_break(stream):
                    self.responses.send(message)
            return
        self.responses.send(news.message)

    def _on_answer(self, answer: ResponseMessage) -> None:
        identifier, outcome = answer.identifier, answer.outcome
        if isinstance(identifier, str) and identifier.startswith(REPLAY_ID):
            self._notify(self._subscriptions.news_after(identifier, outcome or {"error": {}}))
            return
        call = self._calls.get(key(identifier))
        # Each call gets one response, and only for calls that were sent to the daemon: not, say,
        # for `secret_get`, which this device answers, nor for a call whose deadline has passed.
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
            self._fallback.spawn(self._complete(call, answer, result))
            return
        if result is not None and self.responses.needs_marks(call, result):
            call.is_taken = call.is_answered = True
            call.disarm()
            self._fallback.spawn(self._deliver(call, answer, result))
            return
        self._pass_on(call, answer)

    async def _deliver(self, call: PendingCall, answer: ResponseMessage, result: dict[str, Any]) -> None:
        """Respond with the daemon's result, or with one that this device made of it, and marks."""
        made = await self.responses.with_marks(call, result)
        if self._calls.get(call.key) is not call:
            return  # its client cancelled it
        if answer.outcome is not None and made is answer.outcome.get("result"):
            self._pass_on(call, answer)
            return
        self._settle(call.key)
        self.responses.give(call, made)

    async def _complete(self, call: PendingCall, answer: ResponseMessage, result: dict[str, object]) -> None:
        """Respond with the daemon's result, completed with what this device's files contain beyond
        it.
        """
        try:
            tool = self.catalogue.tools[str(call.tool)]
            made = await self._fallback.completion.complete(call, tool, result)
        except Exception as error:
            # After a disk error or a bug, the daemon's result is still a response.
            import logging

            logging.getLogger(__name__).warning("the files could not be looked at: %s", type(error).__name__)
            made = result
        if self._calls.get(call.key) is not call:
            return  # its client cancelled it
        if made is None and self._is_live:
            call.is_taken, call.is_answered, call.is_asked_again = False, False, True
            self._dispatch(call, may_hold=False)
        else:
            await self._deliver(call, answer, result if made is None else made)

    def _pass_on(self, call: PendingCall, answer: ResponseMessage) -> None:
        """Pass the daemon's response to the client."""
        outcome = answer.outcome or {}
        result = outcome.get("result")
        self._settle(call.key)
        if "error" in outcome:
            self._subscriptions.forget(call)
        if call.tool is not None and result is not None:
            self.responses.give(call, result, answer.line)
        else:
            self.responses.respond(call, outcome, answer.line)

    def _wait_for(self, call: PendingCall, refusal: NotNowError) -> bool:
        """Handle a call that the daemon cannot do now: repeat it, answer it here or queue it.
        Return False if none of these is possible.
        """
        if refusal.code == BUSY and call.is_read_only and call.repeats < MAX_REPEATS:
            call.is_sent = False
            call.repeats += 1
            self._arm(call, BUSY_AGAIN_S, self._dispatch_held)
        elif call.offline != "fail" and not call.is_bound:
            self._do_without(call, str(refusal), since=time.time(), reason=refusal)
        else:
            return False
        return True

    def _notify(self, news: list[dict[str, object]]) -> None:
        """Notify the client that resources may have changed before they were subscribed again on a
        fresh connection.
        """
        for about in news:
            self.responses.send({"jsonrpc": "2.0", "method": UPDATED, "params": about})

    def _notify_changed(self, name: str) -> None:
        """Notify the client that a list has changed: without a request in the handshake era, on
        streams for it in the later one.
        """
        if self._opening:
            self.responses.send({"jsonrpc": "2.0", "method": CHANGED[name]})
        for stream in self._streams():
            for message in news_of_change(stream, name):
                self.responses.send(message)

    async def wait_for_calls(self) -> None:
        """Wait until all calls have their responses. There is no deadline here; the caller sets
        one.
        """
        import asyncio

        while any(not call.is_stream for call in self._calls.values()):
            self._on_empty = asyncio.Event()
            await self._on_empty.wait()

    def replace_catalogue(self, catalogue: ToolCatalogue) -> None:
        """Use the tools that the daemon has from now on. Notify the client if it was shown other
        tools or prompts.
        """
        self.catalogue = catalogue
        for method, name in ((catalogues.LIST_TOOLS, TOOLS), (catalogues.LIST_PROMPTS, PROMPTS)):
            if self._shown_lists.get(method, listed := catalogue.data[catalogues.LISTS[method]]) != listed:
                self._notify_changed(name)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, message: dict[str, object], line: bytes, claims: Mapping[str, object]) -> None:
        if self.responses.has_given(message) or not self._has_room(message, line):
            return
        call = self._calls[key(message["id"])] = self._pending_call(message, line, claims)
        if self.responses.questions is not None and call.is_modern:
            self.responses.declare(call.params, is_modern=True)
        if call.tool is None:
            self._subscriptions.note(call)
        elif not isinstance(call.params.get("arguments"), dict | None):
            self._give_up(call, f"{call_keys.NO_OBJECT}\nhint: {call_keys.OBJECT_HINT}")
            return
        if call.tool in self.catalogue.long_jobs:
            self._offer_handle(call)
        if self._is_live:
            self._dispatch(call)
            return
        self._link.poke()
        reason = self._link.reason
        # A locked key may just have been unlocked, which the next attempt finds out at once.
        if reason is not None and not self._may_recover(reason) and not isinstance(reason, KeyLockedError):
            self._do_without(call, _sentence(reason))
            return
        is_soon = self._was_up or (call.offline != "fail" and self._fallback.is_joined)
        self._arm(call, RELINK_DEADLINE_S if is_soon else FIRST_LINK_DEADLINE_S)

    def _has_room(self, message: dict[str, object], line: bytes) -> bool:
        """Return True if one more call may wait; otherwise respond to the client with an error."""
        held = sum(len(call.line) for call in self._calls.values())
        if len(self._calls) < MAX_IN_FLIGHT and held + len(line) <= MAX_HELD_BYTES:
            return True
        why = f"{len(self._calls)} calls are waiting for the daemon already; try again later"
        self.responses.fail(message["id"], UNAVAILABLE, why)
        return False

    def _open_stream(self, message: dict[str, object]) -> None:
        """Acknowledge a notification stream, and send it to the daemon if the link is up."""
        stream = PendingCall(message, encode_message(message), None, is_repeatable=False, is_stream=True)
        if not stream.is_modern:
            self.responses.fail(stream.identifier, METHOD_NOT_FOUND, "Method not found")
        elif (refusal := refusal_of(stream)) is not None:
            self.responses.fail(stream.identifier, INVALID_PARAMS, refusal)
        elif len(self._streams()) >= MAX_STREAMS:
            self.responses.fail(stream.identifier, UNAVAILABLE, f"{MAX_STREAMS} streams of news are open already")
        elif self._has_room(message, stream.line):
            self._calls[stream.key] = stream
            self.responses.send(acknowledgement_of(stream))
            if self._is_live:
                self._dispatch(stream)

    def _streams(self) -> list[PendingCall]:
        return [call for call in self._calls.values() if call.is_stream]

    def _pending_call(self, message: dict[str, Any], line: bytes, claims: Mapping[str, Any]) -> PendingCall:
        """Return a request as a pending call; one that may be sent twice, or queued here, gets its
        operation id.
        """
        method, params = message["method"], message.get("params")
        if method != _CALL or not isinstance(params, dict):
            return PendingCall(message, line, None, is_repeatable=True)
        tool = str(params.get("name"))
        given = params.get("arguments")
        if (unasked := jsonrpc.without_answer(message)) is not message:
            message, params, line = unasked, unasked["params"], encode_message(unasked)
        if (spelled := call_keys.spelled_out(given)) is not given:
            # Sealing expects the arguments as an object.
            params = {**params, "arguments": spelled}
            message = {**message, "params": params}
            line = encode_message(message)
        if (placed := jsonrpc.below(self._root, params)) is not params:
            message = {**message, "params": placed}
            line = encode_message(message)
        if (unclaimed := without_claims(message)) is not message:
            message, line = unclaimed, encode_message(unclaimed)
        if claims:
            message = with_claims(message, claims)
            line = encode_message(message)
        elif tool in NOTED and (notes := self.notices()):
            message = with_claims(message, {NOTES: notes})
            line = encode_message(message)
        if tool in DATED:
            message = with_zone(message)
            line = encode_message(message)
        if (views := self.responses.views(params)) is not None and views.concerns(tool):
            message = with_claims(message, {call_keys.STRUCTURED: True})
            line = encode_message(message)
        offline, is_read_only = self.catalogue.offline.get(tool, "fail"), tool in self.catalogue.read_only
        if offline == "queue":
            message = with_operation(message, claims.get(OPERATION))
            if self.has_read_foreign():
                message = with_claims(message, {call_keys.CLASS: UNTRUSTED})
            line = encode_message(message)
        is_bound = WITHIN in claims
        is_repeatable = offline == "queue" or is_read_only
        return PendingCall(
            message, line, tool, is_repeatable, is_read_only, "fail" if is_bound else offline, is_bound=is_bound
        )

    def _dispatch(self, call: PendingCall, *, may_hold: bool = True) -> None:
        may_wait = may_hold and call.offline != "fail"
        if may_wait and os.path.exists(self._fallback.queue_file) and self._fallback.has_queue:  # noqa: PTH110 - at each call
            # Queued calls are sent first; otherwise an agent's later text would come before its
            # earlier one.
            call.is_sent = False
            if call.offline == "queue":
                self._arm(call, HELD_DEADLINE_S)
            else:
                self._arm(call, READ_HELD_S, self._dispatch_held)
            self._fallback.send_queue(self._dispatch_waiting)
            return
        if call.tool in self._fallback.tools_here:
            self._take(
                call, self._fallback.answer_here(call, lambda done, total: self.responses.report(call, done, total))
            )
            return
        if (views := self.responses.views(call.params)) is not None and views.has(call.tool):
            self._take(call, self._fallback.answer_view(call, views))
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
        """Send waiting calls while fewer than `MAX_AT_ONCE` are at the daemon."""
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
        self._fallback.spawn(self._check_silence(call))

    async def _check_silence(self, call: PendingCall) -> None:
        if await self._fallback.is_silent(PROBE_S) and call.is_sent and not call.is_settled and not call.is_taken:
            # The daemon does not answer, although the connection has not failed: answer this call
            # here, and reconnect.
            self._do_without(call, "the daemon does not answer", since=time.time() - PROBE_AFTER_S - PROBE_S)
            self._link.abandon()

    def _on_unsent(self, call: PendingCall, error: Exception) -> None:
        """Handle a call that cannot be sent, since it cannot be sealed or the daemon could not
        store its secrets.
        """
        if self._calls.get(call.key) is not call:
            return
        is_for_now = isinstance(error, TimeoutError) or (isinstance(error, RequestError) and error.code in LATER)
        if is_for_now and call.offline == "queue":
            reason = error if isinstance(error, ConfideError) else None
            self._do_without(call, _error_text(error), since=time.time(), reason=reason)
        else:
            self._give_up(call, _error_text(error))

    def _cancel(self, message: dict[str, object]) -> PendingCall | None:
        # MCP, "Cancellation": no response follows. A call that has not been sent yet must not be
        # sent any more.
        params = message.get("params")
        if isinstance(params, dict) and isinstance(params.get("requestId"), str | int):
            call = self._calls.get(key(params["requestId"]))
            return None if call is None or call.task_id else self._settle(call.key)
        return None

    # -- handles of long calls ------------------------------------------------------------------------------------

    def _offer_handle(self, call: PendingCall) -> None:
        """Give the client a handle for a call if it understands handles and the call takes long."""
        import asyncio

        from confide_proxy.mcp.features import task_handles

        if task_handles.is_understood(call):
            asyncio.get_running_loop().call_later(task_handles.HANDLE_AFTER_S, self._hand_over, call)

    def _hand_over(self, call: PendingCall) -> None:
        if self._calls.get(call.key) is call:
            self.responses.give_handle(call)

    def _call_of_handle(self, token: object) -> PendingCall | None:
        """Return the call with that progress token, if its client has a handle for it."""
        calls = (call for call in self._calls.values() if call.task_id and call.is_sent)
        return next((call for call in calls if token is not None and call.token == token), None)

    def _answer_task(self, asked: PendingCall) -> bool:
        """Answer a request about a handle; return False if the client's era has no such method."""
        from confide_proxy.mcp.features import task_handles

        if not asked.is_modern or asked.method not in task_handles.METHODS:
            return False
        cancelled = self.responses.answer_task(asked)
        if cancelled is not None and self._settle(cancelled.key) and self._is_live and cancelled.is_sent:
            about = {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": cancelled.identifier}}
            self._outgoing.put(OutgoingLine(about, session_id=cancelled.session_id))
        return True

    def _opening_lines(self) -> list[OutgoingLine]:
        """Return the messages that open the client's session with a new session of the daemon."""
        if self._opening is None:
            return []
        initialized = [{"jsonrpc": "2.0", "method": _INITIALIZED}] if self._is_initialized else []
        return [OutgoingLine(message) for message in (self._opening, *initialized, *self._subscriptions.messages)]

    def _replay(self) -> None:
        for line in self._opening_lines():
            self._outgoing.put(line)

    def _arm(self, call: PendingCall, seconds: float, then: Callable[[PendingCall], None] | None = None) -> None:
        # Imported late: there are no calls before the loop runs, and the first answers do not need
        # asyncio.
        import asyncio

        call.disarm()
        call.timer = asyncio.get_running_loop().call_later(seconds, self._ring, call, then or self._expire)

    def _ring(self, call: PendingCall, then: Callable[[PendingCall], None]) -> None:
        if self._calls.get(call.key) is call:  # otherwise its id was used twice, and the other call is pending
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
        """Answer a call without the daemon; with the error `why` if the catalogue does not have its
        tool.

        `since` says when the daemon last responded, if the link does not know, and `reason` is the
        daemon's error.
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
        """Answer a call on this device, in the background: about its own files or keys, or while
        the daemon is unreachable.
        """
        call.is_taken = True
        call.disarm()
        self._give_turns()
        self._fallback.spawn(self._respond(call, answer))

    async def _respond(self, call: PendingCall, answer: Awaitable[ToolAnswer | None]) -> None:
        try:
            result = await answer
        except Exception as error:  # no descriptor to load a module with, or a fault of ours: the client waits for an answer all the same
            import logging

            logging.getLogger(__name__).error("a call could not be answered here: %s", type(error).__name__)
            result = ToolAnswer(f"this device could not answer the call ({type(error).__name__}); try again")
        if result is None:
            return  # its client cancelled it
        made = await self.responses.with_marks(call, result_of(call, result))
        if self._calls.get(call.key) is call:
            self._settle(call.key)
            if call.is_asking:
                self.responses.give(call, made)
            else:
                self.responses.on_result(call, made)
                self.responses.respond(call, {"result": made})
        if call.offline == "queue" and self._is_live:
            self._fallback.send_queue(self._dispatch_waiting)

    def _may_recover(self, reason: ConfideError) -> bool:
        # A daemon on this device, or a link that has been up, comes back within moments; a remote
        # daemon that refused does not.
        return isinstance(reason, ConnectionLost) or (self._was_up and not isinstance(reason, KeyLockedError))

    def _give_up_sent(self, call: PendingCall, reason: ConfideError) -> None:
        self._give_up(call, f"the link to the daemon broke during this call, so it may have taken effect: {reason}")

    def _give_up(self, call: PendingCall, why: str) -> None:
        self._settle(call.key)
        if call.tool is not None:
            # A tool error instead of a protocol error, so that the model reads it and can inform
            # its user.
            self.responses.respond(call, {"result": result_of(call, ToolAnswer(why))})
        else:
            self._subscriptions.forget(call)
            self.responses.fail(call.identifier, UNAVAILABLE, why)

    def _settle(self, identifier: str) -> PendingCall | None:
        call = self._calls.pop(identifier, None)
        if call is not None:
            call.is_settled = True
            call.disarm()
            self._give_turns()
        if self._on_empty and all(call.is_stream for call in self._calls.values()):
            self._on_empty.set()
        return call

    def _parse(self, line: bytes) -> tuple[dict[str, Any], bytes] | None:
        try:
            return jsonrpc.parse_line(line)
        except jsonrpc.MalformedError as error:
            self.responses.fail(error.identifier, error.code, str(error))
            return None


def _error_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return _LATE
    if isinstance(error, ConfideError):
        return error.with_hint
    return "the message could not be sealed on this device, so it was not sent"


def _sentence(reason: ConfideError) -> str:
    return f"{reason}; hint: {reason.hint}" if reason.hint else str(reason)
