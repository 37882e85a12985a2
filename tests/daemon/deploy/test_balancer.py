"""`daemon/deploy/haproxy.cfg` in front of real daemons: machines come to one that admits them, and stay when it goes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.deadline import DEADLINE_S
from tests.support.network.balancer import ADMITS, balanced
from tests.support.network.reverse_proxies import free_port
from tests.support.programs.processes import Daemon, Machine, wait_until
from tests.support.programs.wire import Wire


def asked(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """What is answered at a port; 0 where nobody does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, {}
    except OSError:
        return 0, {}


def test_machines_are_led_to_the_node_that_admits_them(tmp_path: Path) -> None:
    """A session goes on behind the balancer while one node ends and the other one begins."""
    ports = [free_port(), free_port()]
    daemon = Daemon(tmp_path, opens_itself=True)
    daemon.port = ports[0]
    daemon.start()
    try:
        path = ADMITS if asked(ports[0], ADMITS)[0] == 200 else "/health"
        with balanced(tmp_path / "balancer", ports, asked=path) as port:
            wait_until("the first node to be led to", lambda: asked(port, path)[0] == 200)
            machine = Machine(tmp_path, "laptop")
            machine.run("join", daemon.invite("laptop", port=port))
            with Wire(machine) as wire:
                wire.open()
                stored = wire.tool("memory_store", {"content": "Herons nest in the yard."})
                assert not stored.get("isError"), stored
                daemon.stop()
                assert asked(port, path)[0] == 0
                daemon.port = ports[1]
                daemon.start()
                wait_until("the second node to be led to", lambda: asked(port, path)[0] == 200)
                wait_until("the session to be there again", lambda: "yard" in found(wire, "where do herons nest"))
            assert json.loads(machine.run("status", "--json"))["link"]["address"].endswith(f":{port}")
    finally:
        daemon.stop()


def found(wire: Wire, question: str) -> str:
    answer = wire.tool("memory_search", {"query": question})
    return "" if answer.get("isError") else json.dumps(answer["structuredContent"])
