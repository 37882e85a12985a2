"""`confide http serve` of a machine as a process, and whoever speaks HTTP to it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.mcp_session import Era
from tests.support.programs.processes import CONFIDE, Machine
from tests.support.structured import StructuredClient


@dataclass(frozen=True)
class Answer:
    """What a request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the error that it is."""
        return str(self.json["error"]["code"])


@dataclass
class Door:
    """Whatever answers HTTP on a port of this machine."""

    port: int
    come_from: str = field(default="127.0.0.1", kw_only=True)
    """The address of whoever speaks."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=DEADLINE_S, source_address=(self.come_from, 0)
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own; `body` goes as JSON unless it is bytes."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = self.connection()
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    @asynccontextmanager
    async def session(self, token: str, era: Era = "legacy", **options: Any) -> AsyncIterator[Client]:
        """The official MCP client over HTTP."""
        mode: Any = era if era == "legacy" else "auto"
        async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http_client:
            transport: Any = streamable_http_client(f"{self.url}/mcp", http_client=http_client)
            async with StructuredClient(transport, mode=mode, read_timeout_seconds=60, **options) as client:
                yield client


@dataclass
class Gateway(Door):
    """One that runs."""

    machine: Machine
    process: Program
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, *options: str) -> str:
        """A new token's text; one that was made before under that name is used again."""
        if name not in self.tokens:
            self.tokens[name] = self.machine.json("token", "new", name, *options)["token"]
        return self.tokens[name]

    def stop(self) -> str:
        """End it as a person does; what it has written."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, (self.process.returncode, err)
        assert "Traceback" not in err, err
        return str(out) + str(err)


@contextmanager
def serving(machine: Machine, *options: str) -> Iterator[Gateway]:
    """A gateway on a port of its own, that listens."""
    pipe = subprocess.PIPE
    command = [CONFIDE, "serve", "--port", "0", *options]
    process = Program(command, cwd=machine.project, env=machine.env, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, (line, process.stderr.read() if process.stderr else "")
        gateway = Gateway(int(found[1]), machine, process)
        yield gateway
        if process.poll() is None:
            gateway.stop()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
