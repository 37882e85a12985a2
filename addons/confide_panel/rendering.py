"""Render templates to responses. Each value is escaped, its invisible characters are replaced, and
all responses have the same headers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from confide_panel.browser_sessions import BrowserSession
from confide_panel.markdown_html import plain
from confide_proxy import VERSION
from confide_proxy.addons import Pages, installed

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER: Final = Path(__file__).parent


def policy(frame_ancestors: Sequence[str] = ()) -> str:
    """Return the content security policy. It allows nothing inline and nothing from other hosts,
    and frames only in pages of the given origins.
    """
    kinds = (f"{kind}-src 'self'" for kind in ("style", "script", "img", "connect"))
    around = " ".join(frame_ancestors) or "'none'"
    return "; ".join(
        ["default-src 'none'", *kinds, "form-action 'self'", f"frame-ancestors {around}", "base-uri 'none'"]
    )


HEADERS: Final = {
    "Content-Security-Policy": policy(),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # With no-referrer browsers do not send the origin of a form, and the gateway refuses such a
    # form.
    "Referrer-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
}
STATIC: Final = {"panel.css": "text/css", "panel.js": "text/javascript", "icon.svg": "image/svg+xml"}
NAV: Final = (
    ("", "Search"),
    ("remember", "Remember"),
    ("projects", "Projects"),
    ("timeline", "Timeline"),
    ("devices", "Devices"),
    ("health", "Health"),
)


@functools.cache
def more() -> tuple[Pages, ...]:
    """Return the pages of other add-ons. The first call blocks."""
    return tuple(addon.pages for addon in installed() if addon.pages is not None)


@functools.cache
def nav() -> tuple[tuple[str, str], ...]:
    """Return the path and the title of each page of the menu."""
    found = list(NAV)
    for each in more():
        paths = [path for path, _ in found]
        at = next((paths.index(path) + 1 for path in each.after if path in paths), len(paths))
        found.insert(at, (each.path, each.title))
    return tuple(found)


class AsItIs(str):
    """A text for a form in which the user edits it. It is escaped, but its invisible characters
    stay.
    """

    __slots__ = ()


def answer(template: str, visit: BrowserSession | None, status: int = 200, **values: Any) -> Response:
    """Render a page. `visit` is the browser's session, for addresses and forms; None for pages that
    need no session.
    """
    shared: dict[str, object] = {
        "nav": nav(),
        "version": VERSION,
        "here": None,
        "base": visit.base if visit else "/panel",
    }
    if visit is not None:
        shared |= {"form_token": visit.form_token, "notice": visit.notice}
        visit.notice = ""
    text = _environment().get_template(template).render(shared | values)
    return HTMLResponse(text, status, headers=HEADERS)


@functools.cache
def static(name: str) -> bytes:
    """Return a file of the folder `static`."""
    return (FOLDER / "static" / name).read_bytes()


def address(base: str, path: str = "", query: Mapping[str, object] | None = None) -> str:
    """Return the address of a page below `base`; parameters that are None or "" are left out."""
    said = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{base}/{quote(path)}" + (f"?{urlencode(said)}" if said else "")


def moment(told: str | float | None) -> Markup:
    """Return a time in the time zone of this device, as HTML; empty for None. `told` is a time in
    the daemon's form or seconds since 1970.
    """
    found = _time(told)
    if found is None:
        return Markup("")
    shown = found.strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(found.isoformat(timespec="seconds"), shown)


def ago(told: str | float | None) -> Markup:
    """Return the time since a moment in its largest unit, as HTML whose title has the exact time;
    empty for None.
    """
    found = _time(told)
    if found is None:
        return Markup("")
    said = since(time.time() - found.timestamp())
    iso, exact = found.isoformat(timespec="seconds"), found.strftime("%Y-%m-%d %H:%M %Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, exact, said)


def since(seconds: float) -> str:
    """Return a duration in seconds as words, such as "2 hours ago"."""
    if seconds < 60:
        return "just now"
    for size, unit in ((31_536_000, "year"), (2_592_000, "month"), (86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count_noun(int(seconds // size), unit)} ago"
    raise AssertionError


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 note`, `2 notes`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size(count: float | None) -> str:
    """Return a number of bytes with a unit."""
    if count is None:
        return "not reported"
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _time(told: str | float | None) -> datetime | None:
    try:
        if isinstance(told, int | float):
            return datetime.fromtimestamp(told).astimezone()
        return datetime.fromisoformat(told).astimezone() if told else None
    except (ValueError, OverflowError, OSError):
        return None


def _make_visible(value: Any) -> Any:
    """Return a value of a template with its invisible characters replaced; applied to each
    expression.
    """
    if isinstance(value, Markup | AsItIs) or not isinstance(value, str):
        return "" if value is None else value
    return plain(value)


@functools.cache
def _environment() -> Environment:
    # Imported here, since it would cost 50 ms of a gateway that shows no page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader([FOLDER / "templates", *(each.templates for each in more())]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {"ago": ago, "moment": moment, "counted": count_noun, "size": size, "as_it_is": AsItIs}
    found.globals |= {"address": address}
    return found
