"""Open a sealed text on this device for half a minute, after a confirmation. The page has no
script, so no script can read the text.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from confide_crypto.sealing.placeholder import Placeholder
from confide_http.door.refusals import RefusalError
from confide_panel.page_context import PageContext

SHOWN_S: Final = 30


async def ask(desk: PageContext) -> Response:
    """Ask for confirmation."""
    return desk.page("secret.html", here="search", placeholder=_named(desk), back=_back(desk), value=None)


async def show(desk: PageContext) -> Response:
    """Show the text on a page that leads back by itself."""
    placeholder, back = _named(desk), _back(desk)
    opened = await desk.call("secret_get", id=str(placeholder))
    answer = desk.page(
        "secret.html", here="search", placeholder=placeholder, back=back, value=opened["value"], shown_s=SHOWN_S
    )
    answer.headers["Refresh"] = f"{SHOWN_S}; url={back}"
    return answer


def _named(desk: PageContext) -> Placeholder:
    found = Placeholder.parse(desk.form.get("id", "") or desk.query("id"))
    if found is None:
        raise RefusalError(400, "invalid", "that names no sealed secret")
    return found


def _back(desk: PageContext) -> str:
    """Return the page that the person came from, if it is of this session; else the first page."""
    said = desk.form.get("back", "") or desk.query("back", 2048)
    is_ours = said.startswith(f"{desk.visit.base}/") and said.isascii() and said.isprintable() and ";" not in said
    return said if is_ours else desk.url()
