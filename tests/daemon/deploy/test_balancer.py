"""`daemon/deploy/haproxy.cfg` in front of two real nodes: machines come to any, and a session goes on whichever of them goes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.support.daemon.deploying import HELM
from tests.support.daemon.postgres import Postgres, server
from tests.support.deadline import DEADLINE_S
from tests.support.network.balancer import balanced
from tests.support.programs.confided import Confided
from tests.support.programs.nodes import Node, Nodes
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import Wire

from confide_daemon.datadir.credentials import MASTER

JOB = (HELM / "templates" / "init.yaml").read_text()
STORED = ("Herons", "Wombats", "Lynxes")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with server() as found:
        yield found


def test_a_session_goes_on_whichever_node_goes(tmp_path: Path, postgres: Postgres) -> None:
    """One that is told to stop, and one that is killed; nothing that was stored is lost or there twice."""
    with (
        as_the_chart_does(tmp_path, postgres) as nodes,
        balanced(tmp_path / "balancer", [one.port for one in nodes.nodes]) as port,
    ):
        wait_until("both nodes to be ready", lambda: all(is_ready(one) for one in nodes.nodes))
        url = f"confide://127.0.0.1:{port}"
        made = nodes.nodes[0].json("invite", "laptop", "--no-wait", "--url", url)
        machine = Machine(tmp_path, "laptop")
        machine.run("join", made["invite"])
        with Wire(machine) as wire:
            wire.open()
            store(wire, "Herons nest in the yard.")
            first = holder(nodes)
            assert first.process is not None
            first.process.terminate()
            assert first.process.wait(DEADLINE_S) == 0
            wait_until("the other node to answer", lambda: "Herons" in ask(wire, "where do herons nest"))
            store(wire, "Wombats sleep in the boiler room.")
            second = holder(nodes)
            assert second is not first
            first.begin()
            wait_until("the first node to be ready again", lambda: is_ready(first))
            second.kill()
            store(wire, "Lynxes hide behind the shed.")
            wait_until("the first node to answer", lambda: "Lynxes" in ask(wire, "where do lynxes hide"))
        text = "".join(path.read_text() for path in machine.project.rglob("*.md"))
        assert [text.count(each) for each in STORED] == [1, 1, 1]
        assert machine.json("status")["link"]["address"].endswith(f":{port}")


@contextmanager
def as_the_chart_does(root: Path, postgres: Postgres) -> Iterator[Nodes]:
    """A job brings the registry to the store, with a key that it is handed; then nodes begin that have an empty folder and the same key."""
    secrets = root / "secrets"
    secrets.mkdir()
    (secrets / MASTER).write_bytes(os.urandom(32))
    nodes = Nodes(root, postgres)
    try:
        job = Confided(root / "job")
        job.env["CREDENTIALS_DIRECTORY"] = str(secrets)
        (command,) = yaml.safe_load(re.search(r"^ +args: (.+)$", JOB, re.MULTILINE)[1])  # type: ignore[index]
        for each in command.replace('"$STORE_URL"', nodes.url).split(" && "):
            job.run(*each.split()[1:])
        shutil.rmtree(job.home)
        for number in range(2):
            node = Node(root / f"node{number}", nodes.url)
            node.env["CREDENTIALS_DIRECTORY"] = str(secrets)
            nodes.nodes.append(node)
            node.begin()
        yield nodes
    finally:
        nodes.end()


def is_ready(node: Node) -> bool:
    return node.ask("/ready")[0] == 200


def holder(nodes: Nodes) -> Node:
    """Of the one space that there is."""
    ((address,),) = nodes.sql("SELECT address FROM log JOIN node ON node.id = log.holder WHERE log.id <> 'registry'")
    return next(node for node in nodes.nodes if address == f"127.0.0.1:{node.node_port}")


def store(wire: Wire, text: str) -> None:
    stored = wire.tool("memory_store", {"content": text})
    assert not stored.get("isError"), stored


def ask(wire: Wire, question: str) -> str:
    """What the daemon finds; empty while it cannot be reached, and this machine's files are searched in its place."""
    found = wire.tool("memory_search", {"query": question})
    is_by_files = "files on this device" in json.dumps(found)
    return "" if found.get("isError") or is_by_files else json.dumps(found["structuredContent"])
