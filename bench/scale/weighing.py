"""What a PostgreSQL needs for what is done: the clock, its processes' time on a processor, its write-ahead log, its tables."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.daemon.postgres import Postgres


@dataclass
class Cost:
    """What the server needed for a stage.

    Attributes:
        count: of what was done.
        took_s: by the clock.
        server_s: on a processor, of all processes of the server.
        log_bytes: of its write-ahead log.
    """

    name: str
    count: int = 0
    took_s: float = 0.0
    server_s: float = 0.0
    log_bytes: int = 0
    times_ms: list[float] = field(default_factory=list)

    def line(self) -> str:
        each = max(1, self.count)
        text = (
            f"{self.name}: {self.count:,} in {self.took_s:.1f} s, {self.count / max(self.took_s, 1e-9):,.0f} a second"
        )
        text += f"; {self.server_s / each * 1e3:.3f} ms of the server's processor and {self.log_bytes / each:,.0f} bytes of its log each"
        if len(self.times_ms) > 1:
            text += f"; p50 {statistics.median(self.times_ms):.1f} ms, p95 {statistics.quantiles(self.times_ms, n=20)[-1]:.1f} ms"
        return text


class Scales:
    """Weighs what a server does."""

    def __init__(self, postgres: Postgres, url: str) -> None:
        self._postgres = postgres
        self._url = url
        self._postmaster = int((postgres.files / "postmaster.pid").read_text().split()[0])

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self._postgres.sql(statement, url=self._url)

    @contextmanager
    def weighed(self, name: str) -> Iterator[Cost]:
        """The caller counts what it does."""
        cost = Cost(name)
        log_bytes, server_s, began = self._log_bytes(), self.server_s(), time.monotonic()
        yield cost
        cost.took_s = time.monotonic() - began
        cost.server_s = self.server_s() - server_s
        cost.log_bytes = self._log_bytes() - log_bytes

    def server_s(self) -> float:
        """Seconds on a processor of all its processes so far, those that have ended too."""
        ticks = 0
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # no process, or one that has just ended
                pid = int(place.name)
                values = (place / "stat").read_text().rpartition(")")[2].split()
                if pid == self._postmaster:
                    ticks += sum(map(int, values[11:15]))
                elif int(values[1]) == self._postmaster:
                    ticks += sum(map(int, values[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def connection_kib(self) -> list[float]:
        """Memory of each connection's process by shares, the shared buffers among them."""
        found = []
        for (pid,) in self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"):
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                found.append(float(next(line.split()[1] for line in lines if line.startswith("Pss:"))))
        return found

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Bytes of each table and of its indexes."""
        rows = self.sql("SELECT relname, pg_table_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables")
        return {str(name): (int(str(table)), int(str(indexes))) for name, table, indexes in rows}

    def _log_bytes(self) -> int:
        ((position,),) = self.sql("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(str(position))
