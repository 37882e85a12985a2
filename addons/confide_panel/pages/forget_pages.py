"""Forget a note or a file for good: shows what would be deleted, deletes it after a confirmation,
and shows the receipt.

The form carries a hash of what the user saw, so that nothing else is deleted. A receipt is shown
and downloaded only if both of its signatures are valid.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from starlette.responses import Response

from confide_http.door.refusals import RefusalError
from confide_memory.errors import ReceiptError
from confide_memory.forgetting import SignedRecord, receipt_of
from confide_memory.globs import normal
from confide_memory.wire.forgotten import ForgetPlanned
from confide_panel import rendering
from confide_panel.document_links import address_of
from confide_panel.page_context import PageContext
from confide_proxy.hooks.server.forgetting.forget_everywhere import (
    LEVELS,
    ForgetPlace,
    ForgetTargets,
    digest_of,
    plan_forgetting,
    receipt_for,
    run_forgetting,
)
from confide_proxy.hooks.server.forgetting.forgotten_texts import ForgetRecords

_SHOWN: Final = 50
_MOST_RECEIPT: Final = 8 << 20
_ID: Final = re.compile(r"[0-9a-f]{32}")


async def ask(desk: PageContext) -> Response:
    """Show what would be deleted, and ask for confirmation."""
    targets = _requested_document(desk, desk.query("path"))
    return _ask(desk, targets, await plan_forgetting(_place(desk), targets))


async def remove(desk: PageContext) -> Response:
    """Delete what was shown, with its files if the user has ticked that. Show the page again if
    something else would be deleted now.
    """
    place, targets = _place(desk), _requested_document(desk, desk.form_text("path", 512))
    plan = await plan_forgetting(place, targets)
    if desk.form.get("digest", "") != digest_of(plan):
        return _ask(desk, targets, plan, status=409)
    done = await run_forgetting(place, targets, plan, with_files=desk.form.get("files") == "yes")
    notice = "Forgotten." if not done.warnings else " ".join(f"{each}." for each in done.warnings[:1])
    return desk.go("forgotten", notice, id=done.id.hex())


async def show_receipt(desk: PageContext) -> Response:
    """Show a receipt in its present state, or the copy on this device if the server cannot be
    reached.
    """
    place, identity = _place(desk), _identity(desk)
    kept = None
    if signed := await asyncio.to_thread(_record_of, place, identity):
        kept = await desk.at_least(receipt_for(place, signed))
    file = kept.file if kept else place.receipt_file(identity)
    body = receipt_of(await _read(file))
    return desk.page(
        "forgotten.html",
        here="projects",
        identity=identity.hex(),
        receipt=body,
        places=[{**each, "shown": LEVELS.get(each["level"], each["level"])} for each in body["places"]],
        is_present=kept is not None,
        file=str(file),
    )


async def download(desk: PageContext) -> Response:
    """Send a receipt that this device has as a file."""
    identity = _identity(desk)
    data = await _read(_place(desk).receipt_file(identity))
    name = f"confide-receipt-{identity.hex()[:8]}.json"
    headers = {**rendering.HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/json", headers=headers)


def _ask(desk: PageContext, targets: ForgetTargets, plan: ForgetPlanned, *, status: int = 200) -> Response:
    return desk.page(
        "forget.html",
        status=status,
        here="search",
        project=targets.project,
        path=targets.paths[0],
        plan=plan,
        documents=plan["documents"][:_SHOWN],
        shared=plan["shared"][:_SHOWN],
        digest=digest_of(plan),
        has_changed=status != 200,
        back=address_of(desk, targets.project, targets.paths[0], desk.query("id", 160) or desk.form_text("id", 160)),
        identity=desk.query("id", 160) or desk.form_text("id", 160),
    )


def _place(desk: PageContext) -> ForgetPlace:
    session = desk.gateway.exchange.session
    return ForgetPlace(desk.gateway.paths, desk.link, session.sealing, session.files)


def _requested_document(desk: PageContext, path: str) -> ForgetTargets:
    """Return the document of the request. Raises RefusalError: it names none, which would mean all
    of the project.
    """
    if not (name := normal(path)):
        raise RefusalError(400, "invalid", "that names no file")
    return ForgetTargets(desk.project, [name], [])


def _identity(desk: PageContext) -> bytes:
    said = desk.query("id", 64)
    if not _ID.fullmatch(said):
        raise RefusalError(404, "not_found", "there is no such receipt on this device")
    return bytes.fromhex(said)


def _record_of(place: ForgetPlace, identity: bytes) -> SignedRecord | None:
    roster = place.sealing.keyring.roster
    known = ForgetRecords(place.paths).of(roster.space.hex()) if roster else {}
    return known[identity].signed if identity in known else None


async def _read(file: Path) -> bytes:
    """Return a receipt whose signatures are good. Raises RefusalError."""

    def read() -> bytes:
        with file.open("rb") as opened:
            data = opened.read(_MOST_RECEIPT)
        receipt_of(data)
        return data

    try:
        return await asyncio.to_thread(read)
    except ReceiptError as error:
        raise RefusalError(409, "invalid", str(error), hint="open this page again when the server answers") from None
    except OSError:
        hint = "it comes once the server has removed everything: open this page again then"
        raise RefusalError(404, "not_found", "this device has no receipt of that yet", hint=hint) from None
