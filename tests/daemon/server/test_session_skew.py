"""A daemon and machines of other versions: what the one does not know, and who says that they are too far apart."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.daemon.loopback import Machine, Serving
from tests.support.deadline import DEADLINE_S
from tests.support.documents.notes import Agent

from confide_crypto.errors import RequestError
from confide_daemon import __version__
from confide_daemon.cli import health
from confide_daemon.datadir.paths import DaemonPaths
from confide_daemon.tools import status


@pytest.mark.parametrize("body", [{}, {"project": "proj"}, {"project": "other"}, {"x": [1]}])
async def test_a_request_of_a_later_version_is_unavailable(laptop: Machine, body: dict[str, object]) -> None:
    """Whatever it carries; with the version of who does not know it."""
    with pytest.raises(RequestError) as caught:
        await laptop.request("of-a-later-version", body)
    assert caught.value.code == "unavailable"
    assert caught.value.message == f"confided {__version__} does not know that request"


async def attach(laptop: Machine, version: str) -> None:
    body = {"project": "proj", "machine": "box", "proxyVersion": version, "toolsets": ["core"], "later": 1}
    await laptop.request("attach", body)


async def test_the_daemon_writes_down_what_its_machines_have(
    daemon: Serving, laptop: Machine, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And tells of those that are too far from it: the operator, and whoever asks on that machine, whose program may know of no window."""
    await attach(laptop, "0.1.7")
    (caller,) = daemon.state.registry.callers()
    assert caller.proxy_version == "0.1.7"
    await attach(laptop, "no version; DROP TABLE callers")
    (caller,) = daemon.state.registry.callers()
    assert caller.proxy_version == "0.1.7"
    await attach(laptop, "0.1.7")
    places = DaemonPaths(daemon.state.folder.root / "daemon.toml", daemon.state.folder)
    assert health._check_versions(places).is_ok
    told = await agent.call("memory_status")
    assert not any("minor versions" in warning for warning in told["warnings"])
    for module in (health, status):
        monkeypatch.setattr(module, "__version__", "0.4.0")
    told = await agent.call("memory_status")
    (warning,) = [one for one in told["warnings"] if "minor versions" in one]
    assert warning.startswith("confide 0.1.7 on this machine")
    check = await asyncio.wait_for(asyncio.to_thread(health._check_versions, places), DEADLINE_S)
    assert "has 0.1.7" in str(check.problem)
