"""Opens a sealed text on this device for half a minute, after a confirmation. The page has no
script, so no script can read the text. Also answers the commands that wait before they use a
secret.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from confide_crypto.sealing.placeholder import Placeholder
from confide_http.door.refusals import RefusalError
from confide_panel.page_context import PageContext
from confide_panel.waiting_uses import CHOICES, NO
from confide_proxy.run.approvals import SESSION

SHOWN_S: Final = 30


async def ask(desk: PageContext) -> Response:
    """Ask for confirmation before a sealed text is opened."""
    return desk.page("secret.html", here="search", placeholder=_requested_secret(desk), back=_back(desk), value=None)


async def show(desk: PageContext) -> Response:
    """Show the sealed text, on a page that returns by itself to the one before."""
    placeholder, back = _requested_secret(desk), _back(desk)
    opened = await desk.call("secret_get", id=str(placeholder))
    answer = desk.page(
        "secret.html", here="search", placeholder=placeholder, back=back, value=opened["value"], shown_s=SHOWN_S
    )
    answer.headers["Refresh"] = f"{SHOWN_S}; url={back}"
    return answer


async def waiting(desk: PageContext) -> Response:
    """List the commands that wait before they use a secret."""
    return desk.page("uses.html", here="uses", uses=desk.uses.all() if desk.uses else [])


async def decide(desk: PageContext) -> Response:
    """Answer one of the waiting commands."""
    choice = desk.form_text("choice", 16)
    use = desk.uses.decide(desk.form_text("id", 64), choice) if desk.uses and choice in CHOICES else None
    if use is None:
        return desk.go("uses", "It no longer waits: it was answered, or the command has ended.")
    name = use.line.split()[0] if use.line.split() else use.program
    said = {NO: f"{name} may not use it.", SESSION: f"{name} may use it in that session."}
    return desk.go("uses", said.get(choice, f"{name} may use it, this once."))


def _requested_secret(desk: PageContext) -> Placeholder:
    found = Placeholder.parse(desk.form.get("id", "") or desk.query("id"))
    if found is None:
        raise RefusalError(400, "invalid", "that names no sealed secret")
    return found


def _back(desk: PageContext) -> str:
    """Return the page that the person came from, if it is of this session; else the first page."""
    said = desk.form.get("back", "") or desk.query("back", 2048)
    is_ours = said.startswith(f"{desk.visit.base}/") and said.isascii() and said.isprintable() and ";" not in said
    return said if is_ours else desk.url()
