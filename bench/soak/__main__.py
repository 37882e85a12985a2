"""`make soak`: a daemon with fifty spaces and two hundred machines at work, for six hours; `SOAK_S=180` for three minutes.

For the first third the daemon is killed (-9) again and again and started anew; then one process has to last. Machines store, edit,
search, go away and come back all the time, and spaces that are idle are closed. Every while a snapshot is made and proven.
At the end each line that was acknowledged must stand in exactly one file, once.

It fails if a line is lost or doubled, if descriptors or threads grow, if a write-ahead log passes 16 MiB, or if a snapshot is not proven.
From two hours on it also fails if memory grows by more than 1 MiB an hour, or searches end slower than 1.2 times as they began.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from tests.support.programs.processes import Daemon, running_daemon

from bench.soak.figures import MIB, Sample, p95, slope
from bench.soak.machines import Seen, Worker, read_all
from confide_crypto.keys.identity import parse_daemon_key
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder

CONFIG: Final = '[embedding]\nprovider = "hashed"\n[at_rest]\ncustody = "server"\n[spaces]\ncache_mib = 64\n'
"""What was read fills its cache within the first third, not for a day: what grows behind that is something else."""
LONG_S: Final = 7200.0
"""From so long on growth can be told from noise."""
MOST_SLOPE: Final = 1.0
MOST_RATIO: Final = 1.2
MOST_WAL: Final = 16.0
"""MiB."""
SAMPLES: Final = 600
AFTER_KILL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how many, how often."""

    seconds: float
    spaces: int
    machines: int
    pause_s: float
    kill_every_s: float
    snapshot_every_s: float
    least_lines: int = 0
    """It goes on until so many are acknowledged, at most six times as long: a machine may be busy with other things."""


class Soak:
    """One run."""

    def __init__(self, daemon: Daemon, plan: Plan, target: Path) -> None:
        self.daemon, self.plan, self._target = daemon, plan, target
        self.samples: list[Sample] = []
        self.kills = self.snapshots = 0
        self.seen = [Seen() for _ in range(plan.spaces)]
        url = f"ws://127.0.0.1:{daemon.port}/"
        static = parse_daemon_key(daemon.run("key").strip())
        self._address = url, static
        self.workers = [
            Worker(
                number,
                number % plan.spaces,
                url,
                static,
                self.seen[number % plan.spaces],
                pause_s=plan.pause_s,
            )
            for number in range(plan.machines)
        ]
        self._enroll()
        daemon.run("backup", "init", "--to", str(target))

    def _enroll(self) -> None:
        state = open_state(DataFolder(self.daemon.data))
        try:
            for worker in self.workers:
                state.registry.add_caller(
                    worker.identity.public_key,
                    Grants(f"machine-{worker.number}", "write"),
                    space=f"space-{worker.space}",
                    added_by="line",
                )
        finally:
            state.close()

    async def run(self) -> None:
        """All of it; `missing_and_double` has what came of it."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.run())
            sampling = group.create_task(self._sample())
            await self._kill(began)
            snapping = group.create_task(self._snap())
            await asyncio.sleep(max(0.0, began + self.plan.seconds - time.monotonic()))
            while self.lines < self.plan.least_lines and time.monotonic() < began + 6 * self.plan.seconds:  # noqa: ASYNC110 - two hundred machines count
                await asyncio.sleep(AFTER_KILL_S)
            for worker in self.workers:
                worker.is_to_end = True
            sampling.cancel()
            snapping.cancel()

    async def _kill(self, began: float) -> None:
        while (time.monotonic() - began) + self.plan.kill_every_s <= self.plan.seconds / 3:
            await asyncio.sleep(self.plan.kill_every_s)
            await asyncio.to_thread(self.daemon.kill)
            await asyncio.sleep(AFTER_KILL_S)
            await asyncio.to_thread(self.daemon.start)
            self.kills += 1

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self.plan.seconds / SAMPLES)
            process = self.daemon._process
            with suppress(psutil.Error):
                assert process is not None
                watched = psutil.Process(process.pid)
                self.samples.append(await asyncio.to_thread(Sample.taken, watched, self.daemon.data))

    async def _snap(self) -> None:
        """Not while it is being killed: what a kill does to a snapshot is the chaos tests' to show."""
        while True:
            await asyncio.to_thread(self.daemon.run, "backup", "--to", str(self._target))
            await asyncio.to_thread(self.daemon.run, "backup", "verify", "--to", str(self._target))
            self.snapshots += 1
            await asyncio.sleep(self.plan.snapshot_every_s)

    @property
    def lines(self) -> int:
        """How many were acknowledged."""
        return sum(seen.lines for seen in self.seen)

    async def missing_and_double(self) -> tuple[int, int]:
        """How many acknowledged lines are in no file, and how many stand there more than once, or still although their file was removed."""
        missing = double = 0
        for space, seen in enumerate(self.seen):
            worker = next(worker for worker in self.workers if worker.space == space)
            paths = {*seen.acknowledged.values(), *seen.removed.values()}
            texts = await read_all(*self._address, worker.identity, paths)
            words = Counter(word for text in texts.values() for word in text.split())
            missing += sum(not words[word] for word in seen.acknowledged)
            double += sum(words[word] > 1 for word in seen.acknowledged) + sum(words[word] > 0 for word in seen.removed)
        return missing, double

    def report(self, missing: int, double: int) -> list[str]:
        """Print what was measured; what is not as it must be."""
        plan, lasting = self.plan, self._lasting()
        times = [took * 1e3 for _, took in sorted(each for seen in self.seen for each in seen.searches)]
        sixth = max(1, len(times) // 6)
        early, late = p95(times[sixth : 2 * sixth]), p95(times[-sixth:])
        refused = sum((Counter(seen.refused) for seen in self.seen), Counter[str]())
        grown = {name: _grown(lasting, name) for name in ("descriptors", "threads")}
        rise = slope(lasting[len(lasting) // 2 :])  # before that caches fill, for three quarters of an hour
        log = max(each.largest_wal for each in self.samples) / MIB
        print(f"{plan.seconds:,.0f} s, {plan.spaces} spaces, {plan.machines} machines")
        print(f"{self.kills} kills, {self.snapshots} snapshots proven")
        print(
            f"lines acknowledged: {self.lines:,}; missing {missing}, double {double}; refused: {dict(refused) or 'none'}"
        )
        print(f"searches: {len(times):,}; p95 of the second sixth {early:.1f} ms, of the last {late:.1f} ms")
        for name, ratio in grown.items():
            values = [getattr(each, name) for each in lasting]
            print(f"{name}: {min(values)} to {max(values)}; second half to first {ratio:.2f}x")
        first, last = lasting[0].resident / MIB, lasting[-1].resident / MIB
        print(
            f"memory: {first:.0f} MiB, at last {last:.0f}; {rise:+.2f} MiB an hour; largest write-ahead log {log:.1f} MiB"
        )
        wrong = [name for name, ratio in grown.items() if ratio > MOST_RATIO]
        wrong += ["lines"] * bool(missing or double) + ["write-ahead log"] * (log > MOST_WAL)
        if plan.seconds >= LONG_S:
            wrong += ["memory"] * (rise > MOST_SLOPE) + ["searches"] * (late > early * MOST_RATIO)
        return wrong

    def _lasting(self) -> list[Sample]:
        """Since the last kill."""
        assert self.samples, "nothing was sampled"
        return self.samples[len(self.samples) // 3 + 1 :] or self.samples


def _grown(samples: list[Sample], name: str) -> float:
    """The most of something in the second half, to the most in the first."""
    values: list[int] = [getattr(each, name) for each in samples]
    half = max(1, len(values) // 2)
    return max(values[half:], default=0) / max(values[:half])


def main() -> int:
    """Run it; 1 if something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=21_600.0)
    parser.add_argument("--spaces", type=int, default=50)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between two calls of a machine")
    given = parser.parse_args()
    plan = Plan(
        given.seconds,
        given.spaces,
        given.machines,
        given.pause,
        kill_every_s=min(600.0, given.seconds / 12),
        snapshot_every_s=min(900.0, given.seconds / 6),
    )
    with tempfile.TemporaryDirectory(prefix="confide-soak-") as folder:
        root = Path(folder)
        (root / "server-home").mkdir()
        (root / "server-home" / "daemon.toml").write_text(CONFIG)
        with running_daemon(root, has_model=True) as daemon:
            soak = Soak(daemon, plan, root / "backups")
            asyncio.run(soak.run())
            wrong = soak.report(*asyncio.run(soak.missing_and_double()))
    print("soak: ok" if not wrong else f"soak: not as it must be: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
