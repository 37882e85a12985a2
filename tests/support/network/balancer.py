"""HAProxy in front of daemons, with the file that ships with the compose file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.network.reverse_proxies import listens, program
from tests.support.programs.processes import wait_until

ROOT = Path(__file__).parents[3]
FILE = ROOT / "daemon" / "deploy" / "haproxy.cfg"
PAGE = ROOT / "docs" / "cluster.md"


@contextmanager
def balanced(folder: Path, ports: Sequence[int], *, gateways: Sequence[int] = (), programs: int = 0) -> Iterator[int]:
    """The port at which it listens, in front of as many daemons as the file names.

    Args:
        gateways: the ports of theirs, in front of which it listens as docs/cluster.md has that; none: it does not.
        programs: the port at which it listens for these.
    """
    found = program("haproxy")
    if found is None:
        pytest.skip("haproxy is not installed")
    folder.mkdir()
    port = free_port()
    here = {"bind :7733": f"bind 127.0.0.1:{port}", "maxconn 8192": "maxconn 100"}
    here |= {f"node-{number}:7733": f"127.0.0.1:{each}" for number, each in enumerate(ports, start=1)}
    text = FILE.read_text()
    for ours, changed in here.items():
        assert text.count(ours) == 1, f"haproxy.cfg does not say {ours!r} once"
        text = text.replace(ours, changed)
    if gateways:
        (block,) = re.findall(r"```haproxy\n(.*?)```", PAGE.read_text(), re.DOTALL)
        block = block.replace("bind :7735", f"bind 127.0.0.1:{programs}").replace(" port 7733", "")
        for number, (gateway, each) in enumerate(zip(gateways, ports, strict=True), start=1):
            block = block.replace(f"node-{number}:7735", f"127.0.0.1:{gateway} port {each}")
        text += f"\n{block}"
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [found, "-db", "-f", str(folder / "haproxy.cfg")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until("haproxy to listen", lambda: listens(port) or process.poll() is not None)
        said = (folder / "log").read_text()
        assert process.poll() is None, said
        assert "[WARNING]" not in said.split("Server nodes/")[0], said
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
