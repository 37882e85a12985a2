"""What takes this machine's own work: imports of what a client brings, secrets opened, and sealing what was stored in clear."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from confide_crypto.sealing.placeholder import STANDIN
from confide_http.door.refusals import RefusalError
from confide_http.local.app import identity_of
from confide_http.local.calls import Calls
from confide_http.local.door.identity import SECRETS, WRITE
from confide_http.local.door.limits import body_of
from confide_http.local.exchange import Exchange
from confide_http.local.rest import shapes
from confide_http.local.rest.asked import JSON, MARKDOWN, answer, flag_of, json_of, media_type
from confide_proxy import addons
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import UnreadableError
from confide_proxy.paths import Paths

MOST_SECRETS: Final = 32
"""Of one note that are opened with one request."""
MOST_BROUGHT: Final = 1000
"""Of memories in one list."""
_LOOKS_LIKE_ID: Final = 32


class Bringing:
    def __init__(self, paths: Paths, config: ProxyConfig, calls: Calls, exchange: Exchange) -> None:
        self._paths = paths
        self._config = config
        self._calls = calls
        self._exchange = exchange
        self._one_by_one = asyncio.Lock()

    async def secret(self, request: Request) -> Response:
        """A sealed secret, by its own id; or a note with its secrets in their places."""
        identity, named = identity_of(request), request.path_params["id"]
        identity.require(SECRETS)
        if not named.startswith("mem_"):
            found = await self._calls.tool(identity, "secret_get", {"id": named})
            return answer({**found, "content": found["value"], "source": "sealed"})
        note = await self._calls.tool(identity, "memory_get", {"id": named})
        text = note["content"]
        placeholders = [each for each in dict.fromkeys(STANDIN.findall(text)) if each.startswith("(sealed:")]
        if len(placeholders) > MOST_SECRETS:
            raise RefusalError(
                413, "too_large", f"it has more than {MOST_SECRETS} secrets", hint="open them one by one"
            )
        for each in placeholders:
            opened = await self._calls.tool(identity, "secret_get", {"id": each})
            text = text.replace(each, opened["value"])
        return answer({"id": named, "content": text, "source": "sealed" if placeholders else "plaintext"})

    async def migrate(self, request: Request) -> Response:
        """Seal what was stored in clear before a rule existed; with `dryRun` only look."""
        identity = identity_of(request)
        identity.require(SECRETS)
        is_dry = flag_of(request, "dryRun")
        if not is_dry:
            identity.require(WRITE)
        if identity.is_limited:
            raise RefusalError(403, "denied", "a token of some projects seals nothing: it is done for the whole space")
        async with self._alone():
            outcome = await self._rescanned(is_dry=is_dry)
        return answer({"migrated": 0 if is_dry else outcome.sealed, "found": outcome.found.total(), "dryRun": is_dry})

    async def bring(self, request: Request) -> Response:
        """Memories in the body, as JSON or markdown: with `confirm` they are stored, else this tells what would be.

        A list in the form of claude-memory-mcp's own API, without a word of `confirm`, is stored as there.
        """
        identity = identity_of(request)
        identity.require(WRITE)
        kind = media_type(request)
        if kind not in (JSON, MARKDOWN):
            raise RefusalError(415, "invalid", "the body is application/json or text/markdown")
        if kind == JSON and "confirm" not in request.query_params:
            brought = await json_of(request)
            if isinstance(brought, list) and all(_is_theirs(each) for each in brought):
                return await self._brought(request, brought)
        is_confirmed = flag_of(request, "confirm")
        if identity.is_limited:
            hint = "store them one by one, or use a token of all projects"
            raise RefusalError(403, "denied", "an import may name any project, and this token reaches some", hint=hint)
        body = await body_of(request)
        async with self._alone():
            found = await self._imported(body, ".json" if kind == JSON else ".md", is_confirmed=is_confirmed)
        return answer(found)

    async def _brought(self, request: Request, brought: list[dict[str, Any]]) -> Response:
        if len(brought) > MOST_BROUGHT:
            raise RefusalError(413, "too_large", f"a list has {MOST_BROUGHT:,} memories at most")
        # Whoever is trusted to speak for an agent is not so for what it carries over.
        identity = replace(identity_of(request), class_="untrusted")
        stored = []
        for each in brought:
            asked = shapes.store_arguments(each)
            found = shapes.stored(await self._calls.tool(identity, "memory_store", asked), asked)
            stored.append({name: found[name] for name in ("id", "category", "importance")})
        return answer(stored)

    async def _imported(self, body: bytes, suffix: str, *, is_confirmed: bool) -> dict[str, Any]:
        bring = next(iter(await asyncio.to_thread(addons.each, "bring")), None)
        if bring is None:
            raise RefusalError(501, "unavailable", "nothing can be imported: this machine has no add-on for that")
        with tempfile.TemporaryDirectory(prefix="importing-", dir=self._paths.gateway) as folder:
            file = Path(folder) / f"brought{suffix}"
            await asyncio.to_thread(file.write_bytes, body)
            where = (self._exchange.project, self._config, self._calls.link, self._exchange.session.sealing)
            try:
                found = await bring(file, *where, is_dry=not is_confirmed)
            except UnreadableError as error:
                # Its own sentence names the file that the body was put into.
                raise RefusalError(400, "invalid", f"the body cannot be imported: it {error.problem}") from None
        return {"project": self._calls.project, "confirmed": is_confirmed, **found}

    async def _rescanned(self, *, is_dry: bool) -> Any:
        from confide_proxy.sealing.rescan import Rescan, policy_of
        from confide_proxy.sealing.sealer import Sealer, load_fingerprints

        sealing = self._exchange.session.sealing
        keys = sealing.keyring.keys
        if keys is None and not is_dry:
            assert sealing.keyring.problem is not None
            raise sealing.keyring.problem
        prints = await asyncio.to_thread(load_fingerprints, self._paths.fingerprint_key)
        sealer = Sealer(policy_of(self._config.secrets), lambda: keys, lambda: prints, sealing.known)
        work = Rescan(self._calls.link, sealer, sealing.deposit, lambda _done, _total: None)
        return await (work.look() if is_dry else work.run())

    @contextlib.asynccontextmanager
    async def _alone(self) -> Any:
        """One of these at a time. Raises RefusalError, 429: another runs."""
        if self._one_by_one.locked():
            raise RefusalError(429, "busy", "another import or sealing runs")
        async with self._one_by_one:
            yield


def _is_theirs(each: Any) -> bool:
    return (
        isinstance(each, dict) and isinstance(each.get("content"), str) and not each.keys() & {"id", "project", "path"}
    )
