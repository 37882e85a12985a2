"""What every gateway refuses: pages of others, names that lead to it, tokens in addresses, streams and bodies without end.

A test module of a gateway has a class of its own that is a `DoorAttacks`; its fixtures `gateway`, `writer` and `reader` say which gateway.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Door
from tests.support.programs.processes import wait_until

from confide_http.door.request_limits import MAX_BODY_BYTES, MAX_STREAMS_EACH

VERSION = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE},
}
ACCEPTS = {"MCP-Protocol-Version": VERSION, "Accept": "application/json, text/event-stream"}
LATER = ACCEPTS | {"Mcp-Method": "subscriptions/listen"}
METADATA = "/.well-known/oauth-protected-resource"
FOREIGN = [
    ({"Host": "evil.example"}, 421),
    ({"Host": "evil.example:7734"}, 421),
    ({"Host": "127.0.0.1"}, 421),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
]


def listen(gateway: Door, token: str) -> Any:
    """A stream of news that was opened, as a connection and its answer."""
    connection = gateway.connection()
    headers = LATER | {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(LISTEN), headers)
    return connection, connection.getresponse()


class DoorAttacks:
    """See the module."""

    paths: Sequence[str] = ("/health", METADATA, "/mcp", "/nothing")

    @pytest.mark.parametrize(("headers", "status"), FOREIGN, ids=str)
    def test_what_a_page_could_cause_is_refused(
        self, gateway: Door, writer: str, headers: dict[str, str], status: int
    ) -> None:
        """Everywhere, with a good token too; and no answer lets a page of another origin read it."""
        for path in self.paths:
            for method, body in (("GET", None), ("OPTIONS", b"{}"), ("POST", b"{}")):
                more = headers if body is None else {**headers, "Content-Type": "text/plain"}
                answer = gateway.request(method, path, body, token=writer, headers=more)
                assert answer.status == status, (method, path)
                assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_a_page_of_ours_is_let_in(self, gateway: Door, writer: str) -> None:
        for host in (f"127.0.0.1:{gateway.port}", f"localhost:{gateway.port}"):
            headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
            answer = gateway.request("GET", "/health", token=writer, headers=headers)
            assert answer.status == 200
            assert answer.headers["cache-control"] == "no-store"
            assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_two_hosts_are_refused(self, gateway: Door) -> None:
        """One would be read here, and the other by whoever stands between."""
        with socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) as wire:
            wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\nHost: evil.example\r\n\r\n" % gateway.port)
            assert wire.recv(64).split()[1] in (b"400", b"421")

    @pytest.mark.parametrize("path", ["/health", "/mcp"])
    def test_a_token_in_an_address_is_refused(self, gateway: Door, writer: str, path: str) -> None:
        for query in (f"token={writer}", f"access_token={writer}", f"q={writer}", writer):
            answer = gateway.request("GET", f"{path}?{query}")
            assert (answer.status, answer.code) == (400, "invalid")
            assert writer not in answer.body.decode()

    def test_streams_have_places(self, gateway: Door, many: str, reader: str) -> None:
        """Of many that one token opens sixteen are, and the others are told when to come again; who leaves makes room."""
        with ExitStack() as stack:
            statuses = []
            for _ in range(MAX_STREAMS_EACH + 20):
                connection, answer = listen(gateway, many)
                stack.callback(connection.close)
                statuses.append(answer.status)
            assert statuses == [200] * MAX_STREAMS_EACH + [429] * 20
            assert (answer.getheader("Retry-After"), answer.getheader("Connection")) == ("2", "close")
            connection, answer = listen(gateway, reader)
            stack.callback(connection.close)
            assert answer.status == 200

        def has_room() -> bool:
            connection, answer = listen(gateway, many)
            connection.close()
            return bool(answer.status == 200)

        wait_until("the places to be free again", has_room)

    def test_a_large_body_is_refused_before_it_has_come(self, gateway: Door, writer: str) -> None:
        connection = gateway.connection()
        connection.putrequest("POST", "/mcp")
        for name, value in (
            ("Authorization", f"Bearer {writer}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(MAX_BODY_BYTES + 1)),
        ):
            connection.putheader(name, value)
        connection.endheaders(b"{")
        assert connection.getresponse().status == 413
        connection.close()
