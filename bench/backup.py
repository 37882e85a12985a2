"""A snapshot of a gigabyte is taken, and then proven, while the space is searched and written to: what both feel of it, in the same run.

    python -m bench.backup [--megabytes 1000] [--rounds 3] [--json]

One daemon in this process, on this machine's disk, with a space of real text and its vectors; the rest of its size are older revisions,
which is what grows. One machine searches without a pause, another writes a note every 20 ms. By turns in peace, and while a whole
snapshot is taken, each into a target of its own so that nothing is a hard link, or while it is proven. The budget: a search's 95th
percentile within 1.3 times of that of the quiet seconds right before, in the median of the rounds, and no write that waits over 50 ms
longer than the longest quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine, serving

from bench.spaces import texts
from bench.texts import documentation, questions
from confide_backup.daemon import sealed_keys
from confide_backup.daemon.backup_service import BackupRequest, Backups
from confide_backup.daemon.target import BackupTarget, signers_of
from confide_backup.settings import BackupConfig
from confide_daemon.store.space_store import Store

PIECES = 10_000
LOOK_EVERY = 50
PAUSE_S = 0.02
QUIET_S = 6.0
REVISION_BYTES = 256 * 1024
MAX_RATIO = 1.3
MAX_WAIT_MS = 50.0


@dataclass
class Felt:
    """Milliseconds of calls, and the seconds of what went on meanwhile."""

    searches: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """Of each round, the 95th percentile of its searches to that of the quiet seconds right before it."""


async def felt_during(searcher: Any, writer: Machine, asked: Any, numbers: Any, work: Any, felt: Felt) -> float:
    """Searches and writes until `work` is done; the 95th percentile of the searches."""
    before = len(felt.searches)
    done = asyncio.create_task(work)

    async def search() -> None:
        while not done.done():
            started = time.perf_counter()
            await searcher.call_tool("memory_search", {"query": next(asked)})
            felt.searches.append((time.perf_counter() - started) * 1e3)

    async def write() -> None:
        while not done.done():
            started = time.perf_counter()
            await writer.put(f"memory/written/{next(numbers)}.md", "# Written\n\nA line while a copy is made.\n")
            felt.writes.append((time.perf_counter() - started) * 1e3)
            await asyncio.sleep(PAUSE_S)

    started = time.perf_counter()
    await asyncio.gather(search(), write(), done)
    felt.took.append(time.perf_counter() - started)
    return statistics.quantiles(felt.searches[before:], n=20)[-1]


def grow(path: Path, key: bytes, megabytes: int) -> int:
    """Adds older revisions to a closed space until its file is so large; its bytes."""
    with closing(Store.open(path, key, writer=True, now=time.time())) as store:
        document = store.one("SELECT min(id) FROM document")
        number = -1
        while path.stat().st_size + path.with_name(path.name + "-wal").stat().st_size < megabytes * 1_000_000:
            with store.writing():
                for _ in range(32):
                    data = zlib.compress(os.urandom(REVISION_BYTES), 0)
                    sql = "INSERT INTO revision (document, number, hash, text, author, created_at) VALUES (?, ?, '', ?, 'bench', 0)"
                    store.rows(sql, (document, number, data))
                    number -= 1
            store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


async def measure(megabytes: int, rounds: int) -> dict[str, Any]:
    asked = itertools.cycle(questions([text for _, text in documentation(packages=True)], 2000))
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="confide-backup-") as name:
        data = Path(name) / "data"
        async with serving(data) as daemon:
            identity = daemon.enroll("laptop")
            async with Machine(await daemon.connect(identity)) as laptop:
                await laptop.attach("proj")
                space = await daemon.daemon.spaces.get(daemon.state.registry.spaces()["laptop"])
                for number, (path, text) in enumerate(texts(), 1):
                    await space.documents.put("proj", path, text, base=0, author="bench")
                    if number % LOOK_EVERY == 0 and (await space.status(None)).chunks >= PIECES:
                        break
                await space.wait_indexed(timeout_s=600.0)
            space_id = daemon.state.registry.spaces()["laptop"]
            key = daemon.state.master.space_key(space_id)
            database = daemon.state.folder.space(space_id)
        size = await asyncio.to_thread(grow, database, key, megabytes)
        quiet, taking, proving = Felt(), Felt(), Felt()
        async with serving(data) as daemon:
            sealed_keys.make(daemon.state.folder)
            async with (
                Machine(await daemon.connect(identity)) as reading,
                Machine(await daemon.connect(identity)) as writing,
            ):
                await reading.attach("proj")
                await writing.attach("proj")
                async with reading.mcp() as searcher:
                    await felt_during(searcher, writing, asked, numbers, asyncio.sleep(3), Felt())  # warm
                    for number in range(rounds):
                        target = BackupTarget(Path(name) / f"target-{number}")
                        target.prepare(signers_of(daemon.state), data=data)
                        config = BackupConfig(to=str(target.folder))
                        backups = Backups(daemon.state, daemon.daemon.spaces, config, None)
                        for what, felt in (("take", taking), ("verify", proving)):
                            before = asyncio.sleep(QUIET_S)
                            still = await felt_during(searcher, writing, asked, numbers, before, quiet)
                            work = backups.do(BackupRequest(what), lambda *_: None)  # type: ignore[arg-type]
                            meanwhile = await felt_during(searcher, writing, asked, numbers, work, felt)
                            felt.ratios.append(meanwhile / still)
                        target.remove(target.ids()[0])
    return {
        "bytes": size,
        **{name: shown(felt) for name, felt in (("quiet", quiet), ("take", taking), ("verify", proving))},
    }


def shown(felt: Felt) -> dict[str, Any]:
    return {
        "seconds": round(statistics.median(felt.took), 2),
        "searches": len(felt.searches),
        "p50": round(statistics.median(felt.searches), 1),
        "p95": round(statistics.quantiles(felt.searches, n=20)[-1], 1),
        "writes": len(felt.writes),
        "writeP95": round(statistics.quantiles(felt.writes, n=20)[-1], 1),
        "longestWrite": round(max(felt.writes), 1),
        "ratio": round(statistics.median(felt.ratios), 2) if felt.ratios else None,
    }


def main(arguments: Sequence[str] = ()) -> int:
    """Print what searches and writes feel; 1 if the budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.backup", description="What a snapshot costs those who work.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(options.megabytes, options.rounds))
    if options.json:
        print(json.dumps(found))
    else:
        print(f"a snapshot of {found['bytes'] / 1e6:,.0f} MB while it is searched and written to")
        for what in ("quiet", "take", "verify"):
            row = found[what]
            print(
                f"  {what:<7}{row['seconds']:>7} s  searches p50 {row['p50']} ms, p95 {row['p95']} ms ({row['searches']})  "
                f"writes p95 {row['writeP95']} ms, longest {row['longestWrite']} ms ({row['writes']})"
            )
    quiet, take = found["quiet"], found["take"]
    ratio = take["ratio"]
    waits = f"longest write {take['longestWrite']} ms, quiet {quiet['longestWrite']} ms"
    print(f"  p95 of searches {ratio:.2f}x (must be <= {MAX_RATIO}), {waits}")
    return 0 if ratio <= MAX_RATIO and take["longestWrite"] <= quiet["longestWrite"] + MAX_WAIT_MS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
