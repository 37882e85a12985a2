"""A bare JSON-RPC client over `confide mcp`'s pipes, for what the official client would not send or show."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.processes import CONFIDE, Machine

from confide_memory.tools.call import STRUCTURED

OPENING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}


class Wire:
    """One `confide mcp` process and its lines."""

    def __init__(self, machine: Machine, *arguments: str, start: type[subprocess.Popen[Any]] = Program) -> None:
        """`start` is `subprocess.Popen` where the very start is what is tried."""
        self.started = time.monotonic()
        self.process = start(
            [CONFIDE, "mcp", *arguments],
            cwd=machine.project,
            env=machine.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._answers: dict[object, dict[str, Any]] = {}
        self._asked: deque[dict[str, Any]] = deque()
        self._last = 0
        self.heard: list[bytes] = []
        """Every line that came, as it came."""
        self.stderr = ""
        """What it had said to the person when it ended."""
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
            assert self.process.stderr is not None
            os.set_blocking(self.process.stderr.fileno(), False)  # a daemon that it has started may hold the other end
            self.stderr = (self.process.stderr.read() or b"").decode()
        finally:
            self.process.kill()
            self.process.wait(DEADLINE_S)
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()

    def open(self) -> dict[str, Any]:
        """The handshake; returns the result of `initialize`."""
        answer = self.call("initialize", OPENING)
        self.send({"method": "notifications/initialized"})
        result: dict[str, Any] = answer["result"]
        return result

    def send(self, message: dict[str, Any]) -> None:
        """One message, `jsonrpc` added."""
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        """One raw line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; returns its id."""
        self._last += 1
        self.send({"id": self._last, "method": method, **({"params": params} if params is not None else {})})
        return self._last

    def ask_tool(self, name: str, arguments: dict[str, Any]) -> int:
        """Call a tool, asking for the structured form; returns the call's id."""
        return self.ask("tools/call", {"name": name, "arguments": arguments, "_meta": {STRUCTURED: True}})

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return self.answer(self.ask(method, params), timeout_s=timeout_s)

    def tool(self, name: str, arguments: dict[str, Any], *, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """The result of a tool call, which asks for the structured form."""
        answer = self.answer(self.ask_tool(name, arguments), timeout_s=timeout_s)
        result: dict[str, Any] = answer["result"]
        return result

    def answer(self, identifier: int | None, *, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """The answer to one request. Other answers, and questions, are kept for who asks for them; notifications are passed over."""
        end = time.monotonic() + timeout_s
        asked = []
        while identifier not in self._answers:
            message = self.next(max(0.01, end - time.monotonic()))
            if "method" not in message:
                self._answers[message.get("id")] = message
            elif "id" in message:
                asked.append(message)
        self._asked.extend(asked)
        return self._answers.pop(identifier)

    def next(self, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """The next message, whatever it is; first the questions that came while an answer was awaited."""
        if self._asked:
            return self._asked.popleft()
        message = self._lines.get(timeout=timeout_s)
        assert message is not None, "confide mcp closed its output"
        return message

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(line)
            self._lines.put(json.loads(line))
        self._lines.put(None)
