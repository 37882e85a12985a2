"""Implements the authorization server provider of the SDK with the data of the registry."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Hashable, Sequence
from typing import Any, Final
from urllib.parse import unquote

from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl
from starlette.requests import Request

from confide_daemon.errors import BadNameError, TakenError
from confide_http.server.access.applications import METHODS, Application, Applications
from confide_http.server.access.sign_ins import AuthorizationRequest, Code, Issued, Refresh, SignIns, SignInScope
from confide_http.server.token_callers import SCOPES

CONSENT: Final = "/consent/"
READ, WRITE = SCOPES


class OurCode(AuthorizationCode):
    """An authorization code in the SDK's form, with the record of the registry."""

    record: Any


class OurRefresh(RefreshToken):
    """A refresh token in the SDK's form, with the record of the registry."""

    record: Any


class GatewayProvider(OAuthAuthorizationServerProvider[OurCode, OurRefresh, AccessToken]):
    """The authorization server provider of one gateway. With `source` or `redirects` it serves a
    single request.
    """

    def __init__(
        self,
        applications: Applications,
        sign_ins: SignIns,
        *,
        resource: str,
        source: Hashable = None,
        redirects: Sequence[str] = (),
    ) -> None:
        """Args:
        resource: the resource of its tokens (RFC 8707).
        source: the client that wants to sign in (`SignIns.ask`).
        redirects: as in the request: the one to which the user returns, which the route has
            compared with those of the application; or all those that a program registers.
        """
        self._applications = applications
        self._sign_ins = sign_ins
        self._resource = resource
        self._source = source
        self._redirects = redirects

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        found = await asyncio.to_thread(self._applications.find, client_id)
        return None if found is None else _information(found, self._redirects)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register an application. The route has already checked that registration is open. Raises
        RegistrationError if its data is invalid.
        """
        space = await asyncio.to_thread(self._applications.open_space)
        if space is None:
            raise RegistrationError("invalid_client_metadata", "registration is closed")
        method = client_info.token_endpoint_auth_method
        if method not in METHODS:
            raise RegistrationError("invalid_client_metadata", "this way of showing who one is is not known here")
        try:
            await asyncio.to_thread(
                self._applications.add,
                client_info.client_name or "a program without a name",
                space=space,
                redirects=self._redirects,
                method=method,
                identifier=client_info.client_id,
                secret=client_info.client_secret,
                is_registered=True,
            )
        except BadNameError as error:
            is_name = "name" in str(error)
            code: Any = "invalid_client_metadata" if is_name else "invalid_redirect_uri"
            raise RegistrationError(code, str(error)) from error
        except TakenError as error:
            raise RegistrationError("invalid_client_metadata", str(error)) from error

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Return the URL of the page where the user decides. Raises AuthorizeError if too many
        requests are waiting.
        """
        application = await asyncio.to_thread(self._applications.find, client.client_id)
        if application is None:
            raise AuthorizeError("unauthorized_client", "it was taken away")
        (redirect,) = self._redirects
        asked = AuthorizationRequest(
            redirect=redirect,
            is_given=params.redirect_uri_provided_explicitly,
            state=params.state,
            scope="write" if WRITE in (params.scopes or ()) else "read",
            challenge=params.code_challenge,
            resource=self._resource,
        )
        try:
            return CONSENT + await asyncio.to_thread(self._sign_ins.ask, application, asked, self._source)
        except TakenError as error:
            raise AuthorizeError("temporarily_unavailable", str(error)) from error

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> OurCode | None:
        """Return the authorization code, or None if it is unknown or belongs to another
        application. A used code is returned as long as it may be repeated.
        """
        code: Code | None = await asyncio.to_thread(self._sign_ins.code, authorization_code)
        if code is None or code.application != client.client_id:
            return None
        return OurCode(
            code=authorization_code,
            scopes=_scopes(code.grant.scope),
            expires_at=code.good_until,
            client_id=code.application,
            code_challenge=code.request.challenge,
            redirect_uri=AnyUrl(code.request.redirect),
            redirect_uri_provided_explicitly=code.request.is_given,
            resource=code.request.resource,
            record=code,
        )

    async def exchange_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's form
        authorization_code: OurCode,
    ) -> OAuthToken:
        """Issue the first tokens for an authorization code. Raises TokenError if the code is not
        accepted.
        """
        try:
            return _token_response(await asyncio.to_thread(self._sign_ins.exchange, authorization_code.record))
        except TakenError as error:
            raise TokenError("invalid_request", str(error)) from error

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> OurRefresh | None:
        """Return the refresh token, or None if it is unknown or belongs to another application. If
        it is repeated too late, all access from its sign-in is revoked.
        """
        found: Refresh | None = await asyncio.to_thread(self._sign_ins.refresh_of, refresh_token, client.client_id)
        if found is None:
            return None
        return OurRefresh(
            token=refresh_token,
            client_id=client.client_id,
            scopes=_scopes(found.scope),
            expires_at=int(found.expires_at),
            resource=self._resource,
            record=found,
        )

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 - the SDK's form
        refresh_token: OurRefresh,
        scopes: list[str],
    ) -> OAuthToken:
        """Issue the next two tokens for a refresh token. Raises TokenError if the refresh token is
        not accepted.
        """
        if set(scopes) != set(refresh_token.scopes):
            raise TokenError("invalid_scope", "a token is turned over as it is; sign in again for less")
        return _token_response(await asyncio.to_thread(self._sign_ins.turn_over, refresh_token.record))

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Never called by the gateway, which checks tokens itself (`server/token_callers.py`)."""
        raise NotImplementedError

    async def revoke_token(self, token: AccessToken | OurRefresh) -> None:
        """Never called, since the gateway has no endpoint for it; `confide http rm` ends an access."""
        raise NotImplementedError


class Authenticator(ClientAuthenticator):
    """Authenticates an application by the SHA-256 of its secret. The SDK's own class would need the
    secret itself.
    """

    def __init__(self, provider: GatewayProvider, applications: Applications) -> None:
        super().__init__(provider)
        self._applications = applications

    async def authenticate_request(self, request: Request) -> OAuthClientInformationFull:
        """Return the authenticated application. Raises AuthenticationError, with the same text for
        every cause, if it cannot be authenticated.
        """
        form = await request.form()
        identifier = form.get("client_id")
        found = await asyncio.to_thread(self._applications.find, identifier) if isinstance(identifier, str) else None
        if found is None or not _shows(found, form.get("client_secret"), request.headers.get("authorization", "")):
            raise AuthenticationError("the application is not known, or has not shown that it is the one")
        return _information(found)


def _shows(application: Application, posted: object, authorization: str) -> bool:
    if application.method == "none":
        return application.secret is None
    secret = posted if application.method == "client_secret_post" and isinstance(posted, str) else ""
    if application.method == "client_secret_basic":
        try:
            scheme, _, text = authorization.partition(" ")
            name, _, secret = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if scheme.lower() != "basic" or unquote(name) != application.id:
            return False
        secret = unquote(secret)
    given = hashlib.sha256(secret.encode()).digest()
    return application.secret is not None and hmac.compare_digest(given, application.secret)


def _information(application: Application, redirects: Sequence[str] = ()) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=application.id,
        client_name=application.name,
        redirect_uris=[AnyUrl(each) for each in redirects],
        token_endpoint_auth_method=application.method,
        scope=" ".join(SCOPES),
    )


def _scopes(scope: SignInScope) -> list[str]:
    return [READ, WRITE] if scope == "write" else [READ]


def _token_response(issued: Issued | None) -> OAuthToken:
    if issued is None:
        raise TokenError("invalid_grant", "it is not good any more")
    return OAuthToken(
        access_token=issued.access,
        expires_in=issued.expires_in_s,
        scope=" ".join(_scopes(issued.scope)),
        refresh_token=issued.refresh,
    )
