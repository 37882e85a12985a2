"""The routes of the authorization server, with checks before the SDK's handlers."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.provider import construct_redirect_uri
from mcp.server.auth.settings import ClientRegistrationOptions
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from confide_http.door.bearer_auth import Guesses
from confide_http.door.crowd import holder_of
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import Places, body_of, replay_body
from confide_http.server.access.applications import Applications
from confide_http.server.access.sign_ins import SignIns, words_of
from confide_http.server.oauth.client_metadata import ClientMetadata
from confide_http.server.oauth.consent import STYLE_PATH, ended_page, style, waiting_page
from confide_http.server.oauth.provider import CONSENT, Authenticator, GatewayProvider
from confide_http.server.token_callers import SCOPES

AUTHORIZE: Final = "/authorize"
TOKEN: Final = "/token"  # noqa: S105 - an address
REGISTER: Final = "/register"
METADATA: Final = "/.well-known/oauth-authorization-server"
OPEN_TO_LINKS: Final = (AUTHORIZE, CONSENT)
"""Paths to which pages of other sites may send a user."""
MAX_FORM_BYTES: Final = 16 * 1024
BODY_S: Final = 10.0
MAX_QUERY_BYTES: Final = 8 * 1024
MAX_STATE_CHARS: Final = 2048
MOST_AT_ONCE: Final = 32
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # base64url of a SHA-256 (RFC 7636, 4.2)
_FORM: Final = "application/x-www-form-urlencoded"


class SignInRoutes:
    """The sign-in routes of a gateway. `origin` is the origin of its public URLs and the issuer
    (`iss`).
    """

    def __init__(
        self,
        applications: Applications,
        sign_ins: SignIns,
        documents: ClientMetadata,
        *,
        origin: str,
        resource: str,
    ) -> None:
        self._applications = applications
        self._documents = documents
        self._sign_ins = sign_ins
        self._origin = origin
        self._resource = resource
        provider = GatewayProvider(applications, sign_ins, resource=resource)
        self._tokens = TokenHandler(provider, Authenticator(provider, applications))
        self._registration = ClientRegistrationOptions(
            enabled=True, valid_scopes=list(SCOPES), default_scopes=list(SCOPES)
        )
        self._guesses = Guesses("wrong codes and secrets")
        # These need no authentication: requests in progress are limited for all clients together.
        self._places = Places("sign-ins", most=MOST_AT_ONCE, each=MOST_AT_ONCE)

    def routes(self) -> list[Route]:
        return [
            Route(METADATA, self._describe, methods=["GET"]),
            Route(AUTHORIZE, self._authorize, methods=["GET"]),
            Route(CONSENT + "{identifier}", self._consent, methods=["GET"]),
            Route(STYLE_PATH, self._style, methods=["GET"]),
            Route(TOKEN, self._token, methods=["POST"]),
            Route(REGISTER, self._register, methods=["POST"]),
        ]

    async def _describe(self, _request: Request) -> Response:
        """Return the server's metadata (RFC 8414)."""
        is_open = await asyncio.to_thread(self._applications.open_space) is not None
        return JSONResponse(
            {
                "issuer": self._origin,
                "authorization_endpoint": self._origin + AUTHORIZE,
                "token_endpoint": self._origin + TOKEN,
                **({"registration_endpoint": self._origin + REGISTER} if is_open else {}),
                "scopes_supported": list(SCOPES),
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": self._documents.are_fetched,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        """Raises RefusalError for problems that must not be sent to the redirect address, which may
        be an attacker's.
        """
        if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
            raise RefusalError(414, "too_large", "the address is too long")
        said = _once(request.query_params.multi_items())
        identifier = said.get("client_id", "")
        application = await self._documents.application(identifier)
        if application is None and not identifier.startswith("https://"):
            application = await asyncio.to_thread(self._applications.find, identifier)
        if application is None:
            raise RefusalError(400, "invalid", "no such application is known here", hint=_KNOWN)
        redirect = said.get("redirect_uri")
        if redirect is None and len(application.redirects) == 1:
            redirect = application.redirects[0]
        if redirect is None or not application.may_send_to(redirect):  # the SDK would compare what the addresses mean
            raise RefusalError(400, "invalid", "the application was not added with this address", hint=_KNOWN)
        problem = None
        if said.get("resource", self._resource) != self._resource:
            problem = "invalid_target"
        elif not _CHALLENGE.fullmatch(said.get("code_challenge", "")) or len(said.get("state", "")) > MAX_STATE_CHARS:
            problem = "invalid_request"
        if problem is not None:
            return self._back(redirect, error=problem, state=said.get("state"))
        # The SDK's handler does not pass on the client.
        source = holder_of(request.client.host if request.client else "")
        provider = GatewayProvider(
            self._applications, self._sign_ins, resource=self._resource, source=source, redirects=[redirect]
        )
        answer = await AuthorizationHandler(provider).handle(request)
        location = answer.headers.get("location")
        if location is None:
            raise RefusalError(400, "invalid", "the request to sign in is not one")
        if location.startswith(CONSENT):
            return answer
        # The SDK's own errors lack the issuer (RFC 9207, 2).
        return RedirectResponse(construct_redirect_uri(location, iss=self._origin), status_code=302)

    async def _consent(self, request: Request) -> Response:
        identifier = request.path_params["identifier"]
        waiting = await asyncio.to_thread(self._sign_ins.waiting, identifier)
        if waiting is not None and waiting.grant is None:
            return waiting_page(waiting, words_of(identifier))
        code = await asyncio.to_thread(self._sign_ins.hand_out, identifier)
        if code is None:
            return ended_page()
        return self._back(code.request.redirect, code=code.text, state=code.request.state)

    async def _style(self, _request: Request) -> Response:
        return style()

    async def _token(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise RefusalError(415, "invalid", f"this takes {_FORM}")
        # Before a place is taken: slow bodies must not lock out other clients.
        body = await body_of(request, within_s=BODY_S, most=MAX_FORM_BYTES)
        said = _once(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
        if said.get("resource", self._resource) != self._resource:
            return JSONResponse({"error": "invalid_target"}, status_code=400)
        with self._places.place(TOKEN):
            answer: Response = await self._tokens.handle(Request(request.scope, replay_body(body, request.receive)))
        # Before it is counted: a flood of wrong codes must not hide that a used one came again.
        if answer.status_code == 400 and said.get("grant_type") == "authorization_code":
            await self._revoke_code(said)
        if answer.status_code >= 400:
            self._guesses.count()
        return answer

    async def _revoke_code(self, said: Mapping[str, str]) -> None:
        """Revoke a used code that failed: its holder lacks the application's other credentials."""
        code = await asyncio.to_thread(self._sign_ins.code, said.get("code", ""))
        if code is not None and code.application == said.get("client_id"):
            await asyncio.to_thread(self._sign_ins.spend, code)

    async def _register(self, request: Request) -> Response:
        if await asyncio.to_thread(self._applications.open_space) is None:
            hint = "the daemon's operator opens it for ten minutes: confided http allow --open --space SPACE"
            raise RefusalError(403, "denied", "programs cannot register themselves here now", hint=hint)
        body = await body_of(request, within_s=BODY_S, most=MAX_FORM_BYTES)
        # As sent: the SDK normalizes addresses, and they are compared exactly.
        provider = GatewayProvider(
            self._applications, self._sign_ins, resource=self._resource, redirects=_redirects_of(body)
        )
        with self._places.place(REGISTER):
            handler = RegistrationHandler(provider, self._registration)
            return await handler.handle(Request(request.scope, replay_body(body, request.receive)))

    def _back(self, redirect: str, **said: str | None) -> Response:
        """Redirect to the application, with the issuer."""
        address = construct_redirect_uri(redirect, **said, iss=self._origin)
        return RedirectResponse(address, status_code=302)


_KNOWN: Final = "the daemon's operator adds it with: confided http allow"


def _redirects_of(body: bytes) -> list[str]:
    """Return the redirect addresses of a registration; empty if it is malformed, which the SDK's
    handler reports.
    """
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        return []
    match said:
        case {"redirect_uris": [*redirects]}:
            return [each for each in redirects if isinstance(each, str)]
    return []


def _once(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return parameters, each of which may occur once (RFC 6749, 3.1). Raises RefusalError for a
    repeated one, which two parsers could read differently.
    """
    if any(times > 1 for times in Counter(name for name, _ in pairs).values()):
        raise RefusalError(400, "invalid", "a parameter stands twice")
    return dict(pairs)
