"""The short form of `make soak`: a daemon that machines work with all the time is killed again and again, and loses nothing."""

from __future__ import annotations

from pathlib import Path

from bench.soak.__main__ import CONFIG, Plan, Soak
from tests.support.programs.processes import running_daemon


async def test_what_was_acknowledged_is_there_once_after_kills(tmp_path: Path) -> None:
    (tmp_path / "server-home").mkdir()
    (tmp_path / "server-home" / "daemon.toml").write_text(CONFIG)
    plan = Plan(seconds=9, spaces=2, machines=6, pause_s=0.2, kill_every_s=1, snapshot_every_s=60, least_lines=6)
    with running_daemon(tmp_path, has_model=True) as daemon:
        soak = Soak(daemon, plan, tmp_path / "backups")
        await soak.run()
        assert await soak.missing_and_double() == (0, 0)
        assert soak.kills
        assert soak.lines > 5
