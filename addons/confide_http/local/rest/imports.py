"""Routes that the device itself serves: imports of the client's data, opened secrets, and sealing
of texts that were stored in clear.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from confide_crypto.sealing.placeholder import STANDIN
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.local.gateway_app import GatewayShared, identity_of
from confide_http.local.request_identity import SECRETS, WRITE
from confide_http.local.rest import shapes
from confide_http.local.rest.request_args import JSON, MARKDOWN, answer, flag_of, json_of, media_type
from confide_proxy import addons
from confide_proxy.errors import UnreadableError
from confide_proxy.sealing.rescan import Rescan, policy_of
from confide_proxy.sealing.sealer import Sealer, load_fingerprints

MOST_SECRETS: Final = 32
"""Most secrets of a note that a request opens."""
MOST_BROUGHT: Final = 1000
"""Most memories in a list."""
_LOOKS_LIKE_ID: Final = 32


async def secret(gateway: GatewayShared, request: Request) -> Response:
    """Return one secret by its id, or a note with its secrets filled in."""
    identity, named = identity_of(request), request.path_params["id"]
    identity.require(SECRETS)
    if not named.startswith("mem_"):
        found = await gateway.calls.tool(identity, "secret_get", {"id": named})
        return answer({**found, "content": found["value"], "source": "sealed"})
    note = await gateway.calls.tool(identity, "memory_get", {"id": named})
    text = note["content"]
    placeholders = [each for each in dict.fromkeys(STANDIN.findall(text)) if each.startswith("(sealed:")]
    if len(placeholders) > MOST_SECRETS:
        raise RefusalError(413, "too_large", f"it has more than {MOST_SECRETS} secrets", hint="open them one by one")
    for each in placeholders:
        opened = await gateway.calls.tool(identity, "secret_get", {"id": each})
        text = text.replace(each, opened["value"])
    return answer({"id": named, "content": text, "source": "sealed" if placeholders else "plaintext"})


async def migrate(gateway: GatewayShared, request: Request) -> Response:
    """Seal texts that were stored in clear before a rule existed; with `dryRun` only report them."""
    identity = identity_of(request)
    identity.require(SECRETS)
    is_dry = flag_of(request, "dryRun")
    if not is_dry:
        identity.require(WRITE)
    if identity.is_limited:
        raise RefusalError(403, "denied", "a token of some projects seals nothing: it is done for the whole space")
    with gateway.imports.place(None):
        outcome = await _rescan(gateway, is_dry=is_dry)
    return answer({"migrated": 0 if is_dry else outcome.sealed, "found": outcome.found.total(), "dryRun": is_dry})


async def bring(gateway: GatewayShared, request: Request) -> Response:
    """Import the memories in the body, JSON or markdown: with `confirm` store them, otherwise
    report what would be stored.

    A list in the form of claude-memory-mcp's own API without `confirm` is stored, as in that API.
    """
    identity = identity_of(request)
    identity.require(WRITE)
    kind = media_type(request)
    if kind not in (JSON, MARKDOWN):
        raise RefusalError(415, "invalid", "the body is application/json or text/markdown")
    if kind == JSON and "confirm" not in request.query_params:
        brought = await json_of(request)
        if isinstance(brought, list) and all(_is_theirs(each) for each in brought):
            return await _bring(gateway, request, brought)
    is_confirmed = flag_of(request, "confirm")
    if identity.is_limited:
        hint = "store them one by one, or use a token of all projects"
        raise RefusalError(403, "denied", "an import may name any project, and this token reaches some", hint=hint)
    body = await body_of(request)
    with gateway.imports.place(None):
        found = await _import_body(gateway, body, ".json" if kind == JSON else ".md", is_confirmed=is_confirmed)
    return answer(found)


async def _bring(gateway: GatewayShared, request: Request, brought: list[dict[str, object]]) -> Response:
    if len(brought) > MOST_BROUGHT:
        raise RefusalError(413, "too_large", f"a list has {MOST_BROUGHT:,} memories at most")
    # A token trusted for an agent's own notes is not trusted for imported ones.
    identity = replace(identity_of(request), class_="untrusted")
    stored = []
    for each in brought:
        asked = shapes.store_arguments(each)
        found = shapes.store_answer(await gateway.calls.tool(identity, "memory_store", asked), asked)
        stored.append({name: found[name] for name in ("id", "category", "importance")})
    return answer(stored)


async def _import_body(gateway: GatewayShared, body: bytes, suffix: str, *, is_confirmed: bool) -> dict[str, object]:
    bring = next(iter(await asyncio.to_thread(addons.each, "bring")), None)
    if bring is None:
        raise RefusalError(501, "unavailable", "nothing can be imported: this device has no add-on for that")
    with tempfile.TemporaryDirectory(prefix="importing-", dir=gateway.paths.gateway) as folder:
        file = Path(folder) / f"brought{suffix}"
        await asyncio.to_thread(file.write_bytes, body)
        where = (gateway.exchange.project, gateway.config, gateway.calls.link, gateway.exchange.session.sealing)
        try:
            found = await bring(file, *where, is_dry=not is_confirmed)
        except UnreadableError as error:
            # Its own message names the temporary file of the body.
            raise RefusalError(400, "invalid", f"the body cannot be imported: it {error.problem}") from None
    return {"project": gateway.calls.project, "confirmed": is_confirmed, **found}


async def _rescan(gateway: GatewayShared, *, is_dry: bool) -> Any:
    # Import late: 30 ms, for one route.

    sealing = gateway.exchange.session.sealing
    keys = sealing.keyring.keys
    if keys is None and not is_dry:
        assert sealing.keyring.problem is not None
        raise sealing.keyring.problem
    prints = await asyncio.to_thread(load_fingerprints, gateway.paths.fingerprint_key)
    sealer = Sealer(policy_of(gateway.config.secrets), lambda: keys, lambda: prints, sealing.known_values)
    work = Rescan(gateway.calls.link, sealer, sealing.deposit, lambda _done, _total: None)
    return await (work.look() if is_dry else work.run())


def _is_theirs(each: Any) -> bool:
    return (
        isinstance(each, dict) and isinstance(each.get("content"), str) and not each.keys() & {"id", "project", "path"}
    )
