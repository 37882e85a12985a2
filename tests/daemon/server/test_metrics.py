"""Metrics: what they count, that they stay few and name nobody, and who gets them over TCP."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections import Counter, namedtuple
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parsed
from tests.support.clock import Clock
from tests.support.daemon import disks
from tests.support.daemon.loopback import Serving, machine, serving
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

from confide_crypto.errors import _CODE_EXITS, DeniedError
from confide_crypto.keys.identity import Identity
from confide_daemon import figures
from confide_daemon.config import DaemonConfig, MetricsConfig
from confide_daemon.datadir.disk import POSTPONED
from confide_daemon.embedding import providers
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.retrieval.search.searcher import note_stages
from confide_daemon.server.mcp.tool_calls import tools
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.operator.live_status import LAG_S, STATES, Lag, LiveStatus, Looking, Sizes
from confide_daemon.server.operator.metrics import MOST_SERIES, Metrics
from confide_daemon.store.upkeep import integrity
from confide_http.server.gateway_service import CERTIFICATE_ENDS

ROOT = Path(__file__).parents[3]
TOKEN = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    """They are the process's: each test begins with none, and leaves none."""

    def clear() -> None:
        for one in figures.RECORDED:
            one.clear()
        figures._pairs.clear()

    clear()
    yield
    clear()


def series(text: str) -> dict[str, float]:
    """By name and labels, as the library's own parser reads them."""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in parsed(text)
        for sample in family.samples
    }


async def test_what_is_done_is_counted(tmp_path: Path) -> None:
    """A call, its stages, its wait for the writer, and a call that fails, with its code; a handshake that was none."""
    async with serving(tmp_path / "data") as daemon:
        async with machine(daemon) as laptop:
            await laptop.attach()
            async with laptop.mcp() as agent:
                await agent.call_tool("memory_store", {"content": "herons fish at dawn"})
                await agent.call_tool("memory_search", {"query": "heron"})
                await agent.call_tool("memory_read", {"path": "memory/none.md"})
                found = series(await daemon.daemon.operator.metrics.text())
        with pytest.raises(DeniedError):
            await daemon.connect(Identity.generate())
        later: dict[str, float] = {}
        async with asyncio.timeout(DEADLINE_S):
            while "confided_handshakes_total{result=denied}" not in later:  # the peer hears of it first
                later = series(await daemon.daemon.operator.metrics.text())
    for tool in ("memory_store", "memory_search", "memory_read"):
        assert found[f"confided_tool_duration_seconds_count{{tool={tool}}}"] == 1
    assert found["confided_tool_errors_total{code=not_found}{tool=memory_read}"] == 1
    assert found["confided_search_stage_seconds_count{stage=total}"] == 1
    assert found["confided_search_stage_seconds_count{stage=keyword}"] == 1
    assert found["confided_write_wait_seconds_count"] > 0
    assert found["confided_sessions"] == 1
    assert [found[f"confided_spaces{{state={state}}}"] for state in STATES] == [1, 0, 0, 0]
    assert found["confided_embedding_up{provider=hashed}"] == 1
    assert found["confided_handshakes_total{result=ok}"] == 1
    assert later["confided_handshakes_total{result=denied}"] == 1
    assert found["confided_data_bytes"] > 0
    assert found["confided_wal_bytes"] > 0
    assert found["process_resident_memory_bytes"] > 2**20


async def test_a_space_has_series_only_where_it_is_asked_for_and_under_its_id(tmp_path: Path) -> None:
    for per_space in (False, True):
        config = DaemonConfig(metrics=MetricsConfig(per_space=per_space))
        async with serving(tmp_path / str(per_space), config=config) as daemon, machine(daemon, space="heronry") as one:
            await one.attach()
            text = await daemon.daemon.operator.metrics.text()
            (space_id,) = daemon.state.registry.spaces().values()
            assert (f'confided_space_bytes{{space="{space_id}"}}' in text) is per_space
            assert "heronry" not in text
            assert "laptop" not in text


async def test_there_are_450_series_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every tool failing in every way, every stage, provider and breach, and more spaces than have series."""
    names = [tool.definition.name for tool in tools(("all",))]
    codes = [*_CODE_EXITS, "internal", "unavailable", "cancelled"]
    for name in names:
        figures.TOOL_DURATION.labels(name).observe(1)
        for code in codes:
            figures.count_failure(name, code)
    note_stages(dict.fromkeys(["embed", "keyword", "vector", "cosine", "rerank", "notes", "total"], 1.0))
    for what in {value for name, value in vars(integrity).items() if name.isupper() and isinstance(value, str)}:
        figures.BREACHES.labels(what).inc()
    for provider in providers.names():
        figures.EMBEDDING_TOKENS.labels(provider).inc()
    for result in ("ok", "busy", "failed", "denied", "internal"):
        figures.HANDSHAKES.labels(result).inc()
    for reason in ("flood", "page", "pushed_out"):
        figures.REFUSED.labels(reason).inc()
    spaces = {f"{number:032x}": number for number in range(500)}
    now = LiveStatus(
        sessions=1,
        spaces=dict.fromkeys(STATES, 1),
        waiting=1,
        waiting_of=spaces,
        providers=dict.fromkeys(providers.names(), True),
        jobs=dict.fromkeys(("asked", "running", "done", "failed", "cancelled"), 1),
        sizes=Sizes(1, 1, 1, 1, spaces),
        lag_s=0.0,
        health_problems=("disk", "embedding", "index", "storage", "backup"),
        postponed=POSTPONED,
    )

    async def look() -> LiveStatus:
        return now

    metrics = Metrics(cast("Looking", SimpleNamespace(look=look)), per_space=True)
    for number in range(4):  # what others add, as a backup's age
        metrics.add(f"more_{number}", "More.", lambda: 1.0)
    found = series(await metrics.text())
    assert len(names) * 8 < len(found) <= MOST_SERIES
    # The largest, and of a pair that is one too many the count all the same.
    assert f"confided_space_bytes{{space={499:032x}}}" in found
    errors = {name: value for name, value in found.items() if name.startswith("confided_tool_errors_total")}
    assert sum(errors.values()) == len(names) * len(codes)


def test_every_figure_is_in_the_document_and_in_the_rules_are_no_others(tmp_path: Path) -> None:
    """So that neither an operator nor an alert waits for a series that never comes."""
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    rules = (ROOT / "configs/alerts.yml").read_text("utf-8")
    documented = set(re.findall(r"`(confided_\w+)(?:\{[\w,]*\})?`", page))

    async def shown() -> set[str]:
        config = DaemonConfig(metrics=MetricsConfig(per_space=True))
        async with serving(tmp_path / "data", config=config) as daemon:
            text = await daemon.daemon.operator.metrics.text()
            added = {f"confided_{name}" for name in daemon.daemon.operator.metrics._values}
        return added | set(re.findall(r"^# TYPE (confided_\w+)", text, re.MULTILINE))

    # The last is there where a gateway has a certificate (`tests/addons/http/server/test_server_locked_and_tls.py`).
    names = asyncio.run(shown()) | {f"confided_{CERTIFICATE_ENDS}"}
    assert documented == names
    asked = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bconfided_\w+", rules)}
    assert asked <= names
    assert all(
        rule["annotations"].keys() == {"summary", "action"} for rule in yaml.safe_load(rules)["groups"][0]["rules"]
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_wrong_with_the_rules_and_the_metrics(tmp_path: Path) -> None:
    async def shown() -> str:
        async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
            await laptop.attach()
            return await daemon.daemon.operator.metrics.text()

    text = asyncio.run(shown())
    for arguments, given in ((["check", "rules", str(ROOT / "configs/alerts.yml")], ""), (["check", "metrics"], text)):
        done = subprocess.run(
            ["promtool", *arguments], input=given, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


async def test_over_tcp_they_are_for_who_has_the_token(tmp_path: Path) -> None:
    """On a port of their own, nothing else is answered there, and no websocket is opened; at the machines' port there are none."""
    exposition = Exposition("127.0.0.1:0", TOKEN)
    async with serving(tmp_path / "data", exposition=exposition) as daemon:
        for header, path, status in (
            ("", "/metrics", 401),
            ("Authorization: Bearer wrong\r\n", "/metrics", 401),
            (f"Authorization: Bearer {TOKEN}x\r\n", "/metrics", 401),
            (f"Authorization: Bearer {TOKEN}\r\n" * 2, "/metrics", 401),
            (f"Authorization: Bearer {TOKEN}\r\n", "/health", 404),
            (f"Authorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n", "/", 404),
            (f"Authorization: Bearer {TOKEN}\r\n", "/metrics", 200),
        ):
            answered = await got(exposition.port, path, header)
            assert int(answered.split()[1]) == status, (header, path, answered[:200])
            assert ("confided_sessions" in answered) is (status == 200)
            assert TOKEN not in answered
        assert "404" in (await got(daemon.port, "/metrics", f"Authorization: Bearer {TOKEN}\r\n"))[:20]


async def got(port: int, path: str, header: str) -> str:
    """The whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            return (await reader.read()).decode()


def test_a_token_that_others_can_read_or_a_port_in_use_ends_it_with_a_way_out(ready: Confided) -> None:
    """And a token in the configuration itself; one on demand serves its machine all the same, without the port."""
    token = ready.home / "metrics.token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    usual = (ready.home / "daemon.toml").read_text()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

        def configure(section: str) -> None:
            (ready.home / "daemon.toml").write_text(f"{usual}[metrics]\n{section}\n")

        def refused(code: int, *said: str) -> None:
            done = ready.run("serve", "--listen", "127.0.0.1:0", code=code)
            assert all(each in done.stderr for each in (*said, "hint: ")), done.stderr
            assert TOKEN not in done.stderr

        named = f'listen = "127.0.0.1:{port}"\ntoken_file = "{token}"'
        configure(named)
        refused(4, "metrics.token")
        token.chmod(0o600)
        refused(5, f"cannot listen on 127.0.0.1:{port} for metrics: the port is in use", "daemon.toml")
        configure(f'listen = "127.0.0.1:{port}"')
        refused(4, "is not handed over", "chmod 600")
        configure(f'listen = "127.0.0.1:{port}"\ntoken_file = "{TOKEN}"')
        refused(3, "metrics.token_file", "not the token itself")
        configure(f'token = "{TOKEN}"')
        refused(3, "holds a token")
        configure('listen = "127.0.0.1"')
        refused(3, "metrics.listen", "a port of its own")
        token.write_text("short")
        configure(named)
        refused(4, "holds no token")
        token.write_text(TOKEN)
        ready.serve("--on-demand", "--idle-exit", "60")
        assert "for metrics: the port is in use" in ready.log
        assert ready.json("status", "--watch")["sessions"] == 0


def test_the_worst_lag_is_told_for_a_minute_or_two() -> None:
    clock = Clock(0.0)
    lag = Lag(clock)
    lag.note(0.5)
    lag.note(0.1)
    assert lag.worst_s == 0.5
    clock.now += LAG_S
    lag.note(0.2)
    assert lag.worst_s == 0.5
    clock.now += LAG_S
    assert lag.worst_s == 0.2
    clock.now += 10 * LAG_S
    assert lag.worst_s == 0.0


async def test_health_says_disk_while_there_is_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 5 %, or than 1 GiB; it goes by itself when there is room again, and stores go on meanwhile."""
    usage: Any = namedtuple("usage", "total used free")
    monkeypatch.setattr("confide_daemon.datadir.disk.LOOK_S", 0.02)
    free = [3 << 30]
    monkeypatch.setattr("confide_daemon.datadir.disk.shutil.disk_usage", lambda _path: usage(50 << 30, 0, free[0]))

    async def said(daemon: Serving, wanted: str) -> None:
        answer = ""
        async with asyncio.timeout(DEADLINE_S):
            while wanted not in answer:
                answer = await got(daemon.port, "/health", "")
        assert json.loads(answer.split("\r\n\r\n")[1])["status"] == ("ok" if wanted == "200" else "degraded")

    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await said(daemon, "200")
        for little in ((1 << 30) - 1, 2 << 30):  # 4 % of 50 GiB
            free[0] = little
            await said(daemon, '"reason": "disk"')
            await laptop.attach()
            await laptop.put(f"memory/{little}.md", "goes on\n")
            assert "disk" in Counter((await daemon.daemon.operator.metrics.top())["health"])
            free[0] = 3 << 30
            await said(daemon, "200")


async def test_on_a_small_disk_what_can_wait_does_until_it_has_grown(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: stores are found by their words, and their vectors come by themselves when there is room."""
    monkeypatch.setattr("confide_daemon.datadir.disk.LOOK_S", 0.02)
    async with serving(small_disk / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach()
        spaces = daemon.daemon.spaces
        for number in range(5):
            await laptop.put(f"memory/{number}.md", f"herons {number}\n")
        space = await spaces.get(daemon.state.registry.spaces()["laptop"])
        async with asyncio.timeout(DEADLINE_S):
            while not spaces.disk.waiting:  # noqa: ASYNC110 - it is told of nowhere
                await asyncio.sleep(0.02)
        told = await daemon.daemon.operator.metrics.top()
        assert "disk" in told["health"]
        assert ["confided_waiting_for_room", {"what": spaces.disk.waiting[0]}, 1.0] in told["samples"]
        assert (await space.index.searcher.search(SearchQuery("herons 3"))).mode == "keyword"
        disks.remount(small_disk, "size=2g")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        assert (await space.index.searcher.search(SearchQuery("herons 3"))).mode == "hybrid"
        assert not daemon.daemon.health_problems()
