"""Draw plots as SVG: bars by day, a calendar, bars by name, and percentiles. The functions are
pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Final

from markupsafe import Markup

WIDTH: Final = 720
_LINE_WIDTH: Final = 340
_LEFT: Final = 40
_TOP: Final = 8
_CELL: Final = 12
_STEPS: Final = 4
_NAME: Final = 16


def draw_bars(
    days: Sequence[date], series: Mapping[str, Mapping[date, int]], *, label: str, height: int = 180
) -> Markup:
    """Draw stacked bars by day, with one colour (`c1`, `c2`, …) for each series, in the order of
    the series.

    Args:
        label: the description for people who do not see the plot.
    """
    most = _round_up(max((sum(of.get(day, 0) for of in series.values()) for day in days), default=0))
    bottom = height - 20
    step = (WIDTH - _LEFT) / max(1, len(days))
    parts = _scale(WIDTH, bottom, most)
    shapes: defaultdict[str, list[str]] = defaultdict(list)
    for at, day in enumerate(days):
        y = float(bottom)
        x = _LEFT + at * step + step * 0.12
        for number, of in enumerate(series.values(), 1):
            if count := of.get(day, 0):
                tall = count / most * (bottom - _TOP)
                y -= tall
                shapes[f"c{number}"].append(f"M{x:.1f} {y:.1f}h{step * 0.76:.1f}v{tall:.1f}h-{step * 0.76:.1f}z")
        if at % max(1, len(days) // 6) == 0:
            parts.append(_text(x, height - 4, f"{day:%d %b}".lstrip("0")))
    return _drawing(WIDTH, height, label, [*parts, *_paths(shapes)])


def calendar(counts: Mapping[date, int], last: date, *, label: str, weeks: int = 53) -> Markup:
    """Draw a year as a calendar with one column a week; a darker day has a larger count."""
    first = last - timedelta(days=last.weekday() + 7 * (weeks - 1))
    most = max(counts.values(), default=0)
    parts = [_text(0, 30 + row * (_CELL + 2), name) for row, name in ((0, "Mon"), (2, "Wed"), (4, "Fri"))]
    month = -1
    shapes: defaultdict[str, list[str]] = defaultdict(list)
    for at in range((last - first).days + 1):
        day = first + timedelta(days=at)
        week, row = divmod(at, 7)
        x, y = 30 + week * (_CELL + 2), 20 + row * (_CELL + 2)
        if row == 0 and day.month != month and day.day <= 7:
            month = day.month
            parts.append(_text(x, 12, f"{day:%b}"))
        shapes[f"q{_quantile(counts.get(day, 0), most)}"].append(f"M{x} {y}h{_CELL}v{_CELL}h-{_CELL}z")
    return _drawing(30 + weeks * (_CELL + 2), 20 + 7 * (_CELL + 2), label, [*parts, *_paths(shapes)])


def bars(rows: Sequence[tuple[str, float, str]], *, label: str, width: int = 280) -> Markup:
    """Draw horizontal bars from rows of a name, a value, and the value as text."""
    most = max((value for _, value, _ in rows), default=0) or 1
    parts: list[Markup] = []
    for at, (name, value, said) in enumerate(rows):
        y, long = at * 26, max(1.0, value / most * (width - 150))
        shown = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        parts += [
            Markup('<text class="name" x="0" y="{}">{}</text>').format(y + 16, shown),
            Markup('<rect class="c1" x="100" y="{}" width="{:.1f}" height="16" rx="2"/>').format(y + 4, long),
            _text(106 + long, y + 16, said),
        ]
    return _drawing(width, max(26, 26 * len(rows)), label, parts)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least the given share of the values, 0 to 1, does not
    exceed; 0 if there are no values.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def line(points: Sequence[tuple[float, float]], *, label: str, unit: str, height: int = 160) -> Markup:
    """Draw a line through points of a share (0 to 1) and a value. All points have the same
    distance, since the highest percentiles matter most.
    """
    most = _round_up(max((value for _, value in points), default=0))
    bottom = height - 20
    step = (_LINE_WIDTH - _LEFT - 28) / max(1, len(points) - 1)
    places = [(_LEFT + 8 + at * step, bottom - value / most * (bottom - _TOP)) for at, (_, value) in enumerate(points)]
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [*_scale(_LINE_WIDTH, bottom, most), Markup('<polyline class="trace" points="{}"/>').format(through)]
    for (x, y), (share, _) in zip(places, points, strict=True):
        name = "min" if share == 0 else "max" if share == 1 else f"p{100 * share:.0f}"
        parts += [
            Markup('<circle class="c1" cx="{:.1f}" cy="{:.1f}" r="3"/>').format(x, y),
            _text(x, height - 4, name, anchor="middle"),
        ]
    return _drawing(_LINE_WIDTH, height, f"{label}, in {unit}", parts)


def _scale(width: int, bottom: int, most: float) -> list[Markup]:
    """Draw the axis lines at zero, half and the maximum, with their numbers; without the half if
    the maximum is 1.
    """
    parts: list[Markup] = []
    for share in (0, 0.5, 1):
        y = bottom - share * (bottom - _TOP)
        parts.append(Markup('<line class="axis" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, width, y, y))
        if share in (0, 1) or most > 1:
            parts.append(_text(_LEFT - 6, y + 4, _short(most * share), anchor="end"))
    return parts


def _text(x: float, y: float, said: str, *, anchor: str = "start") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, said)


def _paths(shapes: Mapping[str, Sequence[str]]) -> list[Markup]:
    """Return one path for all shapes of a colour, which takes a third of the space of separate
    rectangles.
    """
    return [Markup('<path class="{}" d="{}"/>').format(colour, "".join(of)) for colour, of in shapes.items()]


def _drawing(width: float, height: float, label: str, parts: Sequence[Markup]) -> Markup:
    inner = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        width, height, label, inner
    )


def _round_up(value: float) -> float:
    """Return the next larger number with one or two significant digits."""
    if value <= 4:
        return 4 if value > 2 else 2
    size: int = 10 ** (len(str(int(value))) - 1)
    return next(step * size for step in (1, 2, 4, 6, 8, 10) if step * size >= value)


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _quantile(count: int, most: int) -> int:
    return 0 if not count else max(1, min(_STEPS, -(-_STEPS * count // most)))
