"""`confide http serve`: from its spawn to its first answer, its memory, and what a tool call costs over HTTP against the same over stdio.

    python -m bench.gateway

Calls of both are made in turns, on connections that stay open, so that a noisy machine hurts both alike. Budgets: first answer 0.6 s,
60 MiB resident after the calls, a call's median 3 ms over stdio's.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.processes import CONFIDE, Machine, running_daemon
from tests.support.programs.wire import Wire

from confide_memory.tools.call import STRUCTURED

STARTS = 7
CALLS = 300
FIRST_ANSWER_S = 0.6
RESIDENT_MIB = 60.0
OVER_STDIO_MS = 3.0
CALLED = ("memory_read", {"path": "MEMORY.md"})


def first_answer(machine: Machine) -> tuple[float, subprocess.Popen[bytes], int]:
    """Seconds from the spawn to the answer of `GET /health`; the process, and its port."""
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen(
        [CONFIDE, "serve", "--port", str(port)],
        cwd=machine.project,
        env=machine.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        try:
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            return time.perf_counter() - began, process, port
        except ConnectionRefusedError:
            assert time.perf_counter() - began < DEADLINE_S
            time.sleep(0.002)
        finally:
            connection.close()


class Http:
    """MCP of the older era over one connection."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last = 0
        self.call(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
        )

    def call(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        if (session := answer.getheader("mcp-session-id")) is not None:
            self._headers["Mcp-Session-Id"] = session
        return json.loads(answer.read())

    def tool(self, name: str, arguments: dict[str, Any]) -> Any:
        return self.call("tools/call", {"name": name, "arguments": arguments, "_meta": {STRUCTURED: True}})["result"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_daemon(Path(folder)) as daemon:
        machine = Machine(Path(folder), "ann")
        machine.write("MEMORY.md", "# Facts\n\n" + "The shop is written in Elixir.\n" * 40)
        machine.run("join", daemon.invite("ann"))
        token = machine.json("token", "new", "bench", "--scope", "write")["token"]
        machine.run("sync")
        starts, worked = [], []
        for number in range(STARTS):
            took_s, process, port = first_answer(machine)
            starts.append(took_s)
            spent = psutil.Process(process.pid).cpu_times()
            worked.append(spent.user + spent.system)
            if number + 1 < STARTS:
                process.terminate()
                process.wait(DEADLINE_S)
        try:
            over_http, over_stdio = [], []
            http_client = Http(port, token)
            with Wire(machine, start=subprocess.Popen) as wire:
                wire.open()
                for _ in range(20):
                    wire.tool(*CALLED)
                    http_client.tool(*CALLED)
                for _ in range(CALLS):
                    for times, call in ((over_stdio, wire.tool), (over_http, http_client.tool)):
                        began = time.perf_counter()
                        result = call(*CALLED)
                        times.append((time.perf_counter() - began) * 1e3)
                        assert "structuredContent" in result, result
            resident = psutil.Process(process.pid).memory_info().rss / 2**20
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
    first = statistics.median(starts)
    stdio_ms, http_ms = statistics.median(over_stdio), statistics.median(over_http)
    of_it = f"least {min(starts):.2f}, of a processor {statistics.median(worked):.2f}; budget {FIRST_ANSWER_S}"
    print(f"gateway: first answer {first:.2f} s ({of_it})")
    print(f"gateway: {resident:.0f} MiB resident after {CALLS} calls (budget {RESIDENT_MIB:.0f})")
    print(
        f"gateway: a call {http_ms:.2f} ms, over stdio {stdio_ms:.2f} ms: {http_ms - stdio_ms:+.2f} ms"
        f" (budget {OVER_STDIO_MS:+.0f}), p50 of {CALLS}"
    )
    print(
        f"gateway: p95 {sorted(over_http)[int(CALLS * 0.95)]:.2f} ms, over stdio {sorted(over_stdio)[int(CALLS * 0.95)]:.2f} ms"
    )


if __name__ == "__main__":
    main()
