"""The process of `confide hook`: reads an event on stdin and writes one JSON object or nothing to
stdout. It never writes to stderr and always exits with code 0.

It forwards the event over a Unix socket to the process that answers all hooks of this device
(`server/seat.py`), and opens no other connection. The user waits for it in every turn, so it
imports only the light modules of this folder, json, os and socket (a test checks the imports), and
each wait has a timeout. If a session that could answer is still starting, a prompt's hook waits for
it, and for the daemon that it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import stat
import struct
import time

from confide_crypto import portable
from confide_proxy.hooks import briefings, counts, events, hook_paths, learning_queue, session_marks, tool_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

CONNECT_S: Final = 0.05
DEADLINE_S: Final = 0.38
"""Time from the start of the process, if the system reports it, to the last statement; the client
waits for all of it.
"""
ACTION_S: Final = 0.25
"""The same at a tool call."""
FIRST_S: Final = 2.0
"""The same at a prompt while a session is starting. Where nothing ran before, it listens after a
third of a second, and the daemon that it starts answers after a second more.
"""
MOST_START_S: Final = 0.15
"""Most of that time counted for the start. The interpreter takes about 15 ms, or 100 on a busy
machine, and a process may have been suspended.
"""
AGAIN_S: Final = 0.01
"""Interval at which a starting session is tried again."""
LEAST_S: Final = 0.05
"""No request is sent with less time left, since no search is answered within it."""
MOST_STDIN: Final = 16 * 1024 * 1024
"""Bytes of an event, which may have a whole page or picture that a tool has read. Parsing takes a
tenth of a second then.
"""
MOST_ANSWER: Final = 64 * 1024
SWITCH: Final = "CONFIDE_HOOKS"
LEARNING: Final = "CONFIDE_LEARNING"
"""Set for clients that the learner starts: their hooks would feed the learner with its own
sessions.
"""
_PART: Final = 65_536


def main() -> NoReturn:
    """Handle the event on stdin, then exit with code 0."""
    with contextlib.suppress(BaseException):  # a client shows a hook's errors to the user
        Hook(process_start()).run()
    os._exit(0)


class Hook:
    """A run of `confide hook`, which reads an event and answers it before its deadline."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._end = began + DEADLINE_S
        self._state = self._config = ""
        self._is_whole = True

    def run(self) -> None:
        switch = os.environ.get(SWITCH, "")
        data = self._stdin()
        if switch == "off" or os.environ.get(LEARNING):
            return
        self._state, self._config = hook_paths.find()
        if not os.path.isdir(self._state):  # Confide isn't set up here
            return
        name = client = "-"
        outcome, why = counts.FAILED, "-"
        try:
            if len(data) > MOST_STDIN:
                why = "too-large"
                self._suspect()
                return
            event = events.read(data)
            if event is None:
                outcome, why = counts.SILENT, "unknown-event"
                return
            name, client = event.name, event.client
            if hook_paths.is_off(self._config, event.cwd):
                outcome = ""
                return
            outcome = self._handle(event)
        except (ValueError, RecursionError):
            why = "no-json"
            if not self._is_whole:
                self._suspect()
        except OSError as error:
            why = f"errno-{error.errno}"
        except Exception as error:
            why = type(error).__name__
        finally:
            if outcome:
                ms = int((time.monotonic() - self._began) * 1000)
                is_logged = switch == "log"
                counts.note(
                    self._state, event=name, client=client, outcome=outcome, ms=ms, why=why, is_logged=is_logged
                )

    def _suspect(self) -> None:
        """Mark the client's session, since an event that was not read may bring foreign text."""
        if not hook_paths.is_off(self._config, ""):
            session_marks.note_foreign(self._state, "")

    def _handle(self, event: events.HookEvent) -> str:
        if event.kind == events.PERMISSION:
            return self._write_answer(events.allowing(event) if event.is_allowed else {})
        if event.kind == events.POINTER:
            return self._point(event)
        if event.kind in (events.BEFORE, events.AFTER):
            return self._act(event)
        is_replayed = event.kind == events.START and event.source in events.REPLAYED
        is_new = event.kind == events.START and not is_replayed and event.source != "compact"
        session_marks.follow(self._state, event.session, is_new=is_new)
        if is_replayed:
            return counts.SILENT
        asked = {"kind": event.kind, "client": event.client, "session": event.session, "source": event.source}
        asked["cwd"] = event.cwd
        is_first = event.kind == events.PROMPT and self._is_awaited(event)
        if event.kind == events.PROMPT:
            asked["prompt"] = event.prompt
        if is_first:
            self._end = self._began + FIRST_S
        outcome, told = self._request(asked)
        if is_first and outcome == counts.ABSENT:
            session_marks.hurry(self._state)
            while outcome == counts.ABSENT and self._remaining_s() > LEAST_S:
                time.sleep(AGAIN_S)
                outcome, told = self._request(asked)
        context, message = told.get("context"), told.get("message")
        if event.kind == events.START and outcome in (counts.ABSENT, counts.LATE):
            context = briefings.read(self._state, event.cwd)
            if not context:
                session_marks.miss(self._state, event.session)
        said = events.answer(
            event, context if isinstance(context, str) else "", message if isinstance(message, str) else ""
        )
        return self._write_answer(said) if said or outcome == counts.ANSWERED else outcome

    def _act(self, event: events.HookEvent) -> str:
        """Answer with a note that concerns a tool call. The agent waits for it at each call, so it
        waits for nothing else.
        """
        asked = call_request(event, self._state, self._config)
        if not asked:
            return "" if asked is None else counts.SILENT
        self._end = min(self._end, self._began + ACTION_S)
        outcome, told = self._request(asked)
        context = told.get("context")
        said = events.answer(event, context, "") if isinstance(context, str) and context else {}
        return self._write_answer(said) if said or outcome == counts.ANSWERED else outcome

    def _is_awaited(self, event: events.HookEvent) -> bool:
        """Return True if a starting session will listen soon and the prompt contains a question for
        it.
        """
        if not session_marks.is_noted(self._state):
            return False
        from confide_proxy.hooks import (
            prompt_filter,
        )  # with the regular expressions it needs, which only this wait has time for

        return bool(prompt_filter.question(event.prompt))

    def _point(self, event: events.HookEvent) -> str:
        if event.is_summariser:
            return counts.SILENT
        try:
            size = os.stat(event.transcript).st_size if event.transcript else 0
        except (OSError, ValueError):
            size = 0
        is_written = learning_queue.append(
            self._state,
            config=self._config,
            session=event.session,
            client=event.client,
            transcript=event.transcript,
            offset=size,
            event=event.name,
            more=event.more,
        )
        if event.name in events.TURN_ENDS:
            self._end_turn(event)
        return counts.POINTED if is_written else counts.SILENT

    def _end_turn(self, event: events.HookEvent) -> None:
        """Say that the notes may have changed, and count those that the agent's answer names."""
        answer = event.final_answer
        asked = {"kind": "turn", "cwd": event.cwd, "session": event.session, "answer": answer}
        outcome, _ = self._request(asked, is_waiting=bool(answer))
        if outcome in (counts.ABSENT, counts.LATE) and answer and os.path.exists(f"{self._state}/hooks/usage.json"):
            # A session of one prompt has ended already. Its client waits for this hook no more, so
            # there is time for the import.
            import importlib

            usage = importlib.import_module("confide_proxy.hooks.server.usage")
            usage.mention(self._state, event.session, answer)

    def _write_answer(self, answer: dict[str, object]) -> str:
        if not answer:
            return counts.SILENT
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]
        return counts.ANSWERED

    def _stdin(self) -> bytes:
        """Read all of stdin, so that the client's pipe doesn't break, but keep little more than
        `MOST_STDIN` bytes.
        """
        data = bytearray()
        if not portable.HAS_MODES:
            return self._stdin_of_windows()
        try:
            while (left := self._remaining_s()) > 0 and select.select([0], [], [], left)[0]:
                part = os.read(0, _PART)
                if not part:
                    return bytes(data)
                if len(data) <= MOST_STDIN:
                    data += part
        except (OSError, ValueError):  # there is no stdin
            return bytes(data)
        self._is_whole = False
        return bytes(data)

    def _stdin_of_windows(self) -> bytes:
        """The same where a pipe cannot be waited for: a thread reads it, and ends with this
        process.
        """
        import threading

        data = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError, ValueError):
                while part := os.read(0, _PART):
                    if len(data) <= MOST_STDIN:
                        data.extend(part)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(max(0.0, self._remaining_s()))
        self._is_whole = not reader.is_alive()
        return bytes(data)

    def _request(self, asked: dict[str, Any], *, is_waiting: bool = True) -> tuple[str, dict[str, Any]]:
        """Send a request to the process that holds the seat; return the outcome and its answer."""
        try:
            connection = connect(self._state, min(CONNECT_S, max(0.001, self._remaining_s())))
        except OSError as error:
            is_late = isinstance(error, TimeoutError | BlockingIOError)
            return (counts.LATE if is_late else counts.ABSENT), {}
        if connection is None:
            return counts.ABSENT, {}
        with connection:
            try:
                left = max(0.001, self._remaining_s())
                connection.settimeout(left)
                # A later answer would be lost, and must not count as shown.
                connection.sendall(json.dumps({**asked, "ms": int(left * 1000)}).encode() + b"\n")
                if not is_waiting:
                    return counts.SILENT, {}
                data = bytearray()
                while not data.endswith(b"\n") and len(data) <= MOST_ANSWER:
                    connection.settimeout(max(0.001, self._remaining_s()))
                    part = connection.recv(_PART)
                    if not part:
                        return counts.ABSENT, {}  # the listener has just ended
                    data += part
            except TimeoutError:
                return counts.LATE, {}
            except OSError:
                return counts.ABSENT, {}
        told = json.loads(data)
        return counts.ANSWERED, told if isinstance(told, dict) else {}

    def _remaining_s(self) -> float:
        return self._end - time.monotonic()


def call_request(event: events.HookEvent, state: str, config: str, *, client_pid: int = 0) -> dict[str, object] | None:
    """Return the request for a note that concerns the event's tool call. Also mark the session if
    the call returned text that third parties may have written.

    Returns {} if no note can concern the call, and None if the user has switched off notes at tool
    calls. `client_pid` is the client's process ID; 0 means the client that runs this hook.
    """
    own = (hook_paths.project_of(event.cwd), *hook_paths.own_folders(state))
    is_foreign = tool_events.is_foreign(event.fields, own)
    if is_foreign:
        session_marks.note_foreign(state, event.session, client_pid=client_pid)
    if hook_paths.is_off(config, event.cwd, "action_hooks"):
        return None
    call = event.call
    tool = call["tool"]
    if tool in tool_events.READS or (is_foreign and not call["command"]):
        return {}
    if tool_events.is_own(event.fields) or not (call["command"] or call["paths"] or call["output"]):
        return {}
    return {"kind": event.kind, "client": event.client, "session": event.session, "cwd": event.cwd, **call}


def process_start() -> float:
    """Return the start time of this process on the `time.monotonic` clock; the current time if the
    system doesn't report it.
    """
    now = time.monotonic()
    try:
        with open("/proc/self/stat", "rb") as file:  # proc(5): the 22nd is counted in ticks since boot
            ticks = int(file.read(4096).rpartition(b")")[2].split()[19])
        per_s = os.sysconf("SC_CLK_TCK")
        ago = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks + 1) / per_s
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - min(max(0.0, ago), MOST_START_S)


def answer_from(connection: socket.socket, *, end: float, most: int = MOST_ANSWER) -> dict[str, Any]:
    """Read the answer of the process that answers hooks: a JSON object on one line of at most
    `most` bytes. Returns {} if that process closes the connection first, or sends something other
    than an object.

    `end` is the deadline on the clock of `time.monotonic`.

    Raises:
        OSError: the connection failed.
        TimeoutError: no complete line came before the deadline.
        ValueError, RecursionError: the line is not JSON.
    """
    data = bytearray()
    while not data.endswith(b"\n") and len(data) <= most:
        connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(_PART)
        if not part:
            return {}
        data += part
    told = json.loads(data)
    return told if isinstance(told, dict) else {}


def connect(state: str, timeout_s: float) -> socket.socket | None:
    """Connect to this user's process that listens at its socket in the folder `state`; return None
    if no process listens there. Raises OSError if the connection fails.
    """
    if not hasattr(socket, "AF_UNIX"):
        from confide_proxy.hooks import loopback

        return loopback.connect(state, timeout_s)
    for address in hook_paths.addresses(state):
        try:
            status = os.lstat(address)
        except OSError:
            continue
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != portable.user():
            continue
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
            if is_same_user(connection):
                return connection
        except OSError:
            connection.close()
            raise
        connection.close()
    return None


def is_same_user(connection: socket.socket) -> bool:
    """Return True if the process at the other end of the socket belongs to this user.

    Also True where the system doesn't report the user: only this user can reach a socket in the
    folder.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(uid == portable.user())
