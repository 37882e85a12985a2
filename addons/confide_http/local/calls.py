"""Calls tools for an authenticated sender: checks the sender's rights, and converts failures to
HTTP responses.
"""

from __future__ import annotations

import hashlib
from typing import Final

from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import Places
from confide_http.local.daemon_failures import STATUS, refusal_of
from confide_http.local.request_identity import READ, SECRETS, WRITE, RequestIdentity, Scope
from confide_http.local.upstream import Message, News, Params, ToolResponse, UpstreamSession
from confide_memory.documents import GLOBAL_PROJECT, RequestChannel
from confide_memory.errors import UnfitAnswerError
from confide_memory.tools import result as results
from confide_memory.tools.call import CODE, OPERATION, STRUCTURED, is_blank, spelled_out
from confide_proxy.mcp.fallback import FORGET, IMPORT, SECRET
from confide_proxy.mcp.incoming import STRUCTURED as CONTENT
from confide_proxy.sealing.sealed_calls import ADD_TASK, LOOKUPS, STORE

CALL: Final = "tools/call"
CANCEL_TASK: Final = "task_cancel"
OF_PEOPLE: Final = frozenset({ADD_TASK, CANCEL_TASK})
"""Tools whose calls this device signs with its own key for runners: no token may use them. The
panel does, for the user.
"""
NOT_SERVED: Final = frozenset({IMPORT, FORGET})
"""Tools that read files of this device by name, or ask a user: HTTP clients send the text itself
(`rest`), and have no user to ask.
"""
_LOOKS_AROUND: Final = frozenset({"memory_search", "memory_list", "entity_list"})
"""Tools that read several projects unless one is named."""
_ALL: Final = "*"
"""All projects; the daemon reduces them to those of a limited token."""
MAX_CALLS_EACH: Final = 32
"""Most waiting calls of an identity: no token can block the tunnel for others."""
MAX_CALLS: Final = 192
"""Most calls in all, of the 256 that the tunnel allows."""


def scope_of(tool: str) -> Scope:
    """Return the scope that a token needs for a tool. It does not depend on the daemon's list of
    tools, so that no daemon can pass a write off as a read.
    """
    if tool == SECRET:
        return SECRETS
    return READ if tool in LOOKUPS else WRITE


class Calls:
    """Calls tools for all tokens over one session with the daemon."""

    def __init__(self, exchange: UpstreamSession) -> None:
        self._exchange = exchange
        self.places = Places("requests", most=MAX_CALLS, each=MAX_CALLS_EACH)

    @property
    def project(self) -> str:
        """The project of the gateway, used by calls that name no project."""
        return self._exchange.project.name

    @property
    def link(self) -> RequestChannel:
        """The channel for requests that are not tool calls (PROTOCOL.md 9). The caller of this
        property must check the sender's scope and projects first.
        """
        return self._exchange

    def tools(self, identity: RequestIdentity) -> list[str]:
        """Return the names of the tools that the sender may call."""
        return [
            name
            for name in self._exchange.catalogue.tools
            if self._is_served(identity, name)
            and identity.has(scope_of(name))
            and not (name == SECRET and identity.is_limited)
        ]

    async def tool(
        self,
        identity: RequestIdentity,
        name: str,
        arguments: Params,
        *,
        idempotency_key: str | None = None,
        on_progress: News | None = None,
    ) -> Message:
        """Call a tool and return its structured content.

        Args:
            idempotency_key: the key that the client chose, or None; calls with the same key are
                executed once.

        Raises RefusalError for every failure.
        """
        meta = {STRUCTURED: True}
        operation = {} if idempotency_key is None else {OPERATION: operation_of(identity, idempotency_key)}
        params = {"name": name, "arguments": dict(arguments), "_meta": meta}
        outcome = await self.outcome(identity, params, operation=operation, on_progress=on_progress)
        if "error" in outcome:
            error = outcome["error"]
            code = "invalid" if error.get("code") in (-32602, -32601) else "unavailable"
            raise RefusalError(STATUS[code], code, str(error.get("message")))
        result = outcome["result"]
        if result.get("isError"):
            raise self._refusal(result)
        try:
            found: Message = results.read(self._exchange.catalogue.outputs.get(name, {}), result[CONTENT])
        except (UnfitAnswerError, KeyError) as error:
            raise refusal_of(UnfitAnswerError()) from error
        return found

    async def outcome(
        self,
        identity: RequestIdentity,
        params: Params,
        *,
        operation: Params | None = None,
        on_progress: News | None = None,
    ) -> ToolResponse:
        """Return the answer of the daemon, or of this device if it answers itself, to `tools/call`:
        `{"result": …}` or `{"error": …}`.

        Raises RefusalError if the sender may not call the tool, or if too many calls are waiting.
        """
        name, given = str(params.get("name")), params.get("arguments")
        given = spelled_out(given)
        arguments = dict(given) if isinstance(given, dict) else given
        scope = scope_of(name)
        if not self._is_served(identity, name) or name not in self._exchange.catalogue.tools:
            raise RefusalError(404, "not_found", "there is no such tool here")
        identity.require(scope)
        if name == SECRET and identity.is_limited:
            raise RefusalError(
                403, "denied", "a token for some projects cannot decrypt secrets, which belong to the whole space"
            )
        if isinstance(arguments, dict):
            arguments = await self._add_project(identity, name, arguments)
        with self.places.place(identity.key):
            claims = {**identity.claims(is_write=scope == WRITE), **(operation or {})}
            return await self._exchange.ask(
                CALL, {**params, "arguments": arguments}, claims=claims, on_progress=on_progress
            )

    @staticmethod
    def _is_served(identity: RequestIdentity, name: str) -> bool:
        return name not in NOT_SERVED and not (identity.is_of_token and name in OF_PEOPLE)

    async def _add_project(self, identity: RequestIdentity, name: str, arguments: Message) -> Message:
        """Return the arguments with their project, if it is not the gateway's own. Raises
        RefusalError.
        """
        project = arguments.get("project")
        if is_blank(project):
            arguments = {name: value for name, value in arguments.items() if name != "project"}
            project = None
        takes_one = "project" in self._exchange.catalogue.tools[name].get("inputSchema", {}).get("properties", {})
        if isinstance(project, str) and project != _ALL:
            identity.require_project(project)
        elif project is None and takes_one and not identity.reaches(self.project):
            # A token's first project is its default.
            project = _ALL if name in _LOOKS_AROUND else min(identity.projects or (self.project,))
            arguments = {**arguments, "project": project}
        if name == STORE and isinstance(project, str) and project not in (self.project, GLOBAL_PROJECT):
            await self._exchange.reach(project)
        return arguments

    def _refusal(self, result: Params) -> RefusalError:
        content = result.get("content") or [{}]
        text = str(content[0].get("text", ""))
        message, _, hint = text.partition("\nhint: ")
        code = (result.get("_meta") or {}).get(CODE)
        if not isinstance(code, str):
            # This device has answered, instead of the daemon or before asking it.
            code = "invalid" if self._exchange.link.is_up else "unavailable"
        return RefusalError(STATUS.get(code, 502), code, message, hint=hint or None)


def operation_of(identity: RequestIdentity, key: str) -> str:
    """Return the operation id (PROTOCOL.md 7.12) for a key that the client chose. The same key of
    two tokens gives two ids.
    """
    return hashlib.blake2b(f"{identity.key}\0{key}".encode(), digest_size=16).hexdigest()
