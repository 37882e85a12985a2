"""A file whose step had no answer in time, or could not be noted, is compared again soon, and not with the next comparison of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, machine, serving

from confide_daemon.access.enrollment import Rights, grant
from confide_proxy.config import ProxyConfig
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.ledger import SyncReport
from confide_proxy.sync.project import Project
from confide_proxy.sync.replication.file_transfer import DENIED
from confide_proxy.sync.watching.folder_streamer import run_logged
from confide_proxy.sync.workspace import Files


class Slow:
    """A link over which the answer to one `put` does not come in time."""

    def __init__(self, kept: Machine, error: Exception) -> None:
        self._link = kept.connection
        self.error: Exception | None = error

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        error = self.error
        if op == "put" and error is not None:
            self.error = None
            raise error
        return await self._link.request(op, body, timeout_s=timeout_s, bulk=bulk)

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        return await self._link.upload(op, body, data, timeout_s=timeout_s)


@pytest.mark.parametrize("error", [TimeoutError(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("paths", [{"memory/a.md", "memory/b.md"}, None])
async def test_what_was_not_settled_is_looked_at_again(
    tmp_path: Path, error: Exception, paths: set[str] | None
) -> None:
    """The others of the same change go on; whoever watches is told that it is not through."""
    root = tmp_path / "shop"
    (root / "memory").mkdir(parents=True)
    for name in "ab":
        (root / f"memory/{name}.md").write_text(f"- {name}\n")
    kept = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("shop")
        files = Files(kept, ProxyConfig(), Project("shop", root, is_git=False))
        await files.open(Slow(laptop, error), "s")
        assert not await run_logged(files.send_changes("shop", paths), "sending a change")
        answer = await laptop.request("documents", {"project": "shop"})
        assert len(answer["documents"]) == 1
        assert await run_logged(files.send_changes("shop", None), "sending a change")
        answer = await laptop.request("documents", {"project": "shop"})
        assert len(answer["documents"]) == 2


async def test_what_is_skipped_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Safely: a name may hold what steers a terminal, or a line of its own. Once it is right and wrong again, it is said again."""
    root = tmp_path / "shop"
    (root / "memory").mkdir(parents=True)
    latin, tab = root / "memory/latin.md", root / "memory/a\tb\nc.md"
    latin.write_bytes(b"\xe9t\xe9\n")
    tab.write_text("- a tab\n")
    (root / "memory/good.md").write_text("- good\n")
    kept = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("shop")
        files = Files(kept, ProxyConfig(), Project("shop", root, is_git=False))
        await files.open(laptop.connection, "s")
        for paths in (None, {"memory/latin.md"}, None):
            await files.send_changes("shop", paths)
        said = [each for each in caplog.messages if "was skipped" in each]
        assert [each.split(": ")[1] for each in said] == ["memory/a?b?c.md", "memory/latin.md"]
        assert "is not UTF-8 text" in said[1]
        latin.write_text("- summer\n")
        await files.send_changes("shop", None)
        latin.write_bytes(b"\xe9t\xe9\n")
        await files.send_changes("shop", None)
        assert sum("memory/latin.md" in each for each in caplog.messages) == 2


async def test_what_a_device_that_may_only_read_has_changed_is_named_and_waits(tmp_path: Path) -> None:
    """It passes neither for sent nor for the text of the daemon, so it is sent once the device may write."""
    root = tmp_path / "shop"
    (root / "memory").mkdir(parents=True)
    known, new = root / "memory/known.md", root / "memory/new.md"
    known.write_text("- one\n")
    kept = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    reports: list[SyncReport] = []
    async with serving(tmp_path / "data") as daemon:
        identity = daemon.enroll("laptop")

        async def changes(scope: str) -> list[dict[str, str]]:
            grant(daemon.state.registry, "laptop", Rights(scope=scope))
            async with Machine(await daemon.connect_in_time(identity)) as laptop:
                await laptop.attach("shop")
                files = Files(
                    kept,
                    ProxyConfig(),
                    Project("shop", root, is_git=False),
                    on_report=lambda _project, report, _is_all: reports.append(report),
                )
                await files.open(laptop.connection, "s")
                await files.send_changes("shop", None)
                skipped = reports[-1].skipped
                assert (await files.on_request("backlog", {}))["pendingUploads"] == len(skipped)
                return sorted(skipped, key=lambda one: one["path"])

        assert await changes("write") == []
        known.write_text("- one\n- two\n")
        new.write_text("- new\n")
        told = [{"path": path, "reason": DENIED} for path in ("memory/known.md", "memory/new.md")]
        assert await changes("read") == told
        assert await changes("read") == told
        assert await changes("write") == []
        assert reports[-1].sent == 2
