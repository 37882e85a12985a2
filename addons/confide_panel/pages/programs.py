"""Approve and remove apps that reach the space through the HTTP gateway of its server, by the six
words that each shows.

The commands of `confide http` do the same. The page shows which app asks before it is approved.
The person types the words, since comparing by eye misses differences.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_http.local import server_clients as by_http
from confide_panel.page_context import PageContext

DAYS: Final = 90
MOST_DAYS: Final = 90
_WORDS: Final = 256


async def look(desk: PageContext) -> Response:
    """Show which app asks for access, and for which access."""
    words = desk.form_text("words", _WORDS)
    asked = await by_http.find_sign_in(desk.gateway.calls.link, words)
    return desk.page(
        "program.html", here="devices", asked=asked, words=words, does=by_http.does(asked["scope"]), days=DAYS
    )


async def approve(desk: PageContext) -> Response:
    """Approve an app, with the access that it asks for or less."""
    scope, days = desk.form_text("scope", 10), desk.form_number("days")
    if scope not in ("read", "write") or not 1 <= days <= MOST_DAYS:
        raise RefusalError(400, "invalid", f"an app may read or write, for 1 to {MOST_DAYS:,} days")
    given, _days = await by_http.approve(
        desk.gateway.calls.link,
        desk.form_text("words", _WORDS),
        scope=scope,
        trusted=desk.form_text("trusted", 10) == "yes",
        days=days,
    )
    return desk.go(
        "devices", f"Approved: the app may {by_http.does(given)}. The page with the six words continues by itself."
    )


async def end(desk: PageContext) -> Response:
    """Remove an app's access, which takes effect within a second."""
    name = desk.form_text("name", 256)
    await by_http.end(desk.gateway.calls.link, name)
    return desk.go("devices", f"{name} can no longer reach this space.")
