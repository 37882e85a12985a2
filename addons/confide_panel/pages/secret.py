"""What is sealed, shown on this machine for half a minute. It is asked for twice, and needs no script, so no script has it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from confide_crypto.sealing.placeholder import Placeholder
from confide_http.door.refusals import RefusalError
from confide_panel.page_context import PageContext

SHOWN_S: Final = 30


async def ask(desk: PageContext) -> Response:
    """Whether it is to be shown."""
    return desk.page("secret.html", here="search", placeholder=_named(desk), back=_back(desk), value=None)


async def show(desk: PageContext) -> Response:
    """The value, on a page that leads back by itself."""
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
    """Where the person came from: a page of this visit, or the first one."""
    said = desk.form.get("back", "") or desk.query("back", 2048)
    is_ours = said.startswith(f"{desk.visit.base}/") and said.isascii() and said.isprintable() and ";" not in said
    return said if is_ours else desk.url()
