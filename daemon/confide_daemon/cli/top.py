"""The command `confided status --watch`: a live view of the running daemon, made from its own
metrics. It shows no names and no stored text.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from confide_crypto.errors import printable
from confide_daemon.cli.console import CommandContext, Output
from confide_daemon.datadir import control_client
from confide_daemon.errors import NotServedError

_PREFIX: Final = "confided_"
_INFINITE: Final = "+Inf"
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Times:
    """A histogram of durations. For each bound in seconds, it has the number of operations that
    took at most that long.
    """

    count: float = 0.0
    bounds: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: Times) -> Times:
        """Return the operations that were added after `before`, an earlier histogram of the same
        daemon.
        """
        bounds = {bound: count - before.bounds.get(bound, 0.0) for bound, count in self.bounds.items()}
        return Times(self.count - before.count, bounds)

    def quantile(self, share: float) -> float | None:
        """Return the duration in seconds within which a share (0 to 1) of the operations ended, or
        None if there were no operations.

        Interpolates linearly between bounds, like Prometheus' `histogram_quantile`. Above the last
        bound it returns that bound.
        """
        if self.count <= 0:
            return None
        wanted, low, below = share * self.count, 0.0, 0.0
        for bound, count in sorted((float(bound), count) for bound, count in self.bounds.items() if bound != _INFINITE):
            if count >= wanted:
                return low + (bound - low) * (wanted - below) / (count - below)
            low, below = bound, count
        return low


class TopFigures:
    """The metrics that a running daemon reports, for lookup by name and label."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Raise KeyError, TypeError or ValueError if the response is malformed."""
        self.version, self.pid, self.up_s = str(answer["version"]), int(answer["pid"]), float(answer["upS"])
        self.health = [str(word) for word in answer["health"]]
        self._samples: dict[str, dict[_Labels, float]] = defaultdict(dict)
        for name, labels, value in answer["samples"]:
            self._samples[str(name).removeprefix(_PREFIX)][tuple(sorted(labels.items()))] = float(value)

    def figure(self, name: str) -> float:
        """Return the value of a metric without labels, or 0 if the daemon does not report it."""
        return self._samples[name].get((), 0.0)

    def by(self, label: str, name: str) -> dict[str, float]:
        """Return the values of a metric by one of its labels, summed over its other labels."""
        found: dict[str, float] = defaultdict(float)
        for labels, value in self._samples[name].items():
            if (key := dict(labels).get(label)) is not None:
                found[key] += value
        return dict(found)

    def times(self, label: str, name: str) -> dict[str, Times]:
        """Return the histograms of a metric by one of its labels, such as the tool. Samples without
        that label have the key "".
        """
        bounds: dict[str, dict[str, float]] = defaultdict(dict)
        for labels, value in self._samples[f"{name}_bucket"].items():
            said = dict(labels)
            bounds[said.get(label, "")][said["le"]] = value
        return {key: Times(each.get(_INFINITE, 0.0), each) for key, each in bounds.items()}


def top(here: CommandContext, *, once: bool, interval: float) -> Output | None:
    """Show calls, searches, writes, spaces and disk of the running daemon every `interval` seconds,
    until Ctrl-C.

    If `once` is True, for programs and without a terminal, return a single view that covers the
    time since the daemon's start.
    """
    console = Console(highlight=False)
    now = _fetch_figures(here)
    if once or here.is_quiet or not console.is_terminal:
        return Output(facts(now), lambda: console.print(frame(now, None, 0.0)))
    _live(here, console, now, interval)
    return None


def _live(here: CommandContext, console: Any, now: TopFigures, interval: float) -> None:
    before, asked_at = now, time.monotonic()
    with Live(frame(now, None, 0.0), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            now, took = _fetch_figures(here), time.monotonic() - asked_at
            # Another daemon may serve by now, with counts that begin at 0.
            live.update(frame(now, before if before.pid == now.pid else None, took), refresh=True)
            before, asked_at = now, asked_at + took


def _fetch_figures(here: CommandContext) -> TopFigures:
    try:
        return TopFigures(control_client.ask(here.paths.data.control, "top"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotServedError(
            here.paths.data.root, "this command cannot read its figures", hint="restart it if it is of another version"
        ) from None


def facts(now: TopFigures) -> dict[str, object]:
    """Return the view as `--json` shows it: counts since the daemon's start, and durations in
    seconds.
    """

    def durations(label: str, name: str) -> dict[str, object]:
        return {
            key: {"count": int(one.count), "p50S": _short(one.quantile(0.5)), "p95S": _short(one.quantile(0.95))}
            for key, one in now.times(label, name).items()
        }

    def counts(label: str, name: str) -> dict[str, int]:
        return {key: int(value) for key, value in now.by(label, name).items()}

    return {
        "version": now.version,
        "pid": now.pid,
        "upS": now.up_s,
        "health": now.health,
        "waitingForRoom": sorted(now.by("what", "waiting_for_room")),
        "sessions": int(now.figure("sessions")),
        "spaces": counts("state", "spaces"),
        "tools": durations("tool", "tool_duration_seconds"),
        "errors": counts("tool", "tool_errors_total"),
        "errorCodes": counts("code", "tool_errors_total"),
        "stages": durations("stage", "search_stage_seconds"),
        "writes": durations("", "write_wait_seconds").get("", {"count": 0, "p50S": None, "p95S": None}),
        "piecesWaiting": int(now.figure("index_pieces_waiting")),
        "embeddingUp": {name: bool(up) for name, up in now.by("provider", "embedding_up").items()},
        "embeddingTokens": counts("provider", "embedding_tokens_total"),
        "handshakes": counts("result", "handshakes_total"),
        "refused": counts("reason", "refused_total"),
        "breaches": counts("what", "breaches_total"),
        "jobs": counts("state", "jobs"),
        "dataBytes": int(now.figure("data_bytes")),
        "walBytes": int(now.figure("wal_bytes")),
        "diskFreeBytes": int(now.figure("disk_free_bytes")),
        "diskBytes": int(now.figure("disk_bytes")),
        "loopLagS": _short(now.figure("loop_lag_seconds")),
        "memoryBytes": int(now.figure("process_resident_memory_bytes")),
        "cpuS": round(now.figure("process_cpu_seconds_total"), 2),
        "openFiles": int(now.figure("process_open_fds")),
    }


def frame(now: TopFigures, before: TopFigures | None, took_s: float) -> RenderableType:
    """Return the whole view for the terminal. It covers the time since the metrics `before`, read
    `took_s` seconds ago, or the time since the daemon's start if `before` is missing (None).
    """
    well = "well" if not now.health else f"not well: {', '.join(now.health)}"
    earlier = None if before is None else before.figure("process_cpu_seconds_total")
    cpu = _rate(now.figure("process_cpu_seconds_total"), earlier, took_s)
    postponed = sorted(now.by("what", "waiting_for_room"))
    lines = [
        f"confided {now.version}  process {now.pid}  up {_span(now.up_s)}  {well}",
        f"sessions {now.figure('sessions'):.0f}  spaces {_join_figures(now.by('state', 'spaces'))}"
        f"  chunks waiting {now.figure('index_pieces_waiting'):.0f}",
        f"memory {_size(now.figure('process_resident_memory_bytes'))}"
        + (f"  cpu {100 * cpu:.0f} %" if cpu is not None else f"  cpu {now.figure('process_cpu_seconds_total'):.1f} s")
        + f"  files {now.figure('process_open_fds'):.0f}  loop late {1e3 * now.figure('loop_lag_seconds'):.0f} ms",
        f"data {_size(now.figure('data_bytes'))}  log {_size(now.figure('wal_bytes'))}"
        f"  disk free {_size(now.figure('disk_free_bytes'))} of {_size(now.figure('disk_bytes'))}"
        + (f"  waiting for room: {', '.join(postponed)}" if postponed else ""),
    ]
    for title, figures in (
        ("models", {name: "up" if up else "DOWN" for name, up in now.by("provider", "embedding_up").items()}),
        ("handshakes", now.by("result", "handshakes_total")),
        ("refused", now.by("reason", "refused_total")),
        ("jobs", now.by("state", "jobs")),
        ("found wrong", now.by("what", "breaches_total")),
    ):
        if figures:
            lines.append(f"{title} {_join_figures(figures)}")
    tables = [
        _table("tool", now, before, took_s, "tool", "tool_duration_seconds", now.by("tool", "tool_errors_total")),
        _table("search", now, before, took_s, "stage", "search_stage_seconds", None),
        _table("write", now, before, took_s, "", "write_wait_seconds", None),
    ]
    return Group(*(Text(printable(line)) for line in lines), *(table for table in tables if table.row_count))


def _table(
    title: str,
    now: TopFigures,
    before: TopFigures | None,
    took_s: float,
    label: str,
    name: str,
    errors: Mapping[str, float] | None,
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(title, min_width=22)
    for column in ("count", "per s", "p50", "p95", *(("errors",) if errors is not None else ())):
        table.add_column(column, justify="right", min_width=7)
    earlier = before.times(label, name) if before is not None else {}
    for key, whole in sorted(now.times(label, name).items(), key=lambda item: (-item[1].count, item[0])):
        one = whole if before is None else whole.since(earlier.get(key, Times()))
        rate = _rate(whole.count, None if before is None else earlier.get(key, Times()).count, took_s)
        table.add_row(
            Text(printable(key or "wait for the writer")),
            f"{whole.count:,.0f}",
            "" if rate is None else f"{rate:.1f}",
            _ms(one.quantile(0.5)),
            _ms(one.quantile(0.95)),
            *((f"{errors.get(key, 0):,.0f}",) if errors is not None else ()),
        )
    return table


def _rate(now: float, before: float | None, took_s: float) -> float | None:
    return None if before is None or took_s <= 0 else (now - before) / took_s


def _join_figures(figures: Mapping[str, object]) -> str:
    """Join the nonzero figures as text."""
    said = [
        f"{name} {value}" if isinstance(value, str) else f"{value:,.0f} {name}"
        for name, value in figures.items()
        if value
    ]
    return ", ".join(said) or "none"


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.1f} ms"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"


def _span(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
