"""Client ID metadata documents: an application's description at a URL, which is its id.

Such a fetch is a request from the server's own network, caused by an unauthenticated client. So it
goes only to hosts that the operator has listed, by TLS, to a public address, which is resolved once
and connected to as resolved. No redirect is followed, and a document that takes over `FETCH_S` or
exceeds `MAX_BYTES` is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from confide_crypto.errors import ConfideError
from confide_daemon.errors import BadNameError
from confide_http.door.bearer_auth import Guesses
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import Places
from confide_http.server.access.applications import Application, Applications

log = logging.getLogger(__name__)

FETCH_S: Final = 5.0
MAX_BYTES: Final = 64 * 1024
KEPT_S: Final = 600.0
"""Seconds for which a document is cached."""
MOST_KEPT: Final = 64
MAX_ADDRESS_CHARS: Final = 1024
HTTPS_PORT: Final = 443

_TRANSLATED: Final = ip_network("64:ff9b::/96")  # NAT64 (RFC 6052)

Address = IPv4Address | IPv6Address
Resolve = Callable[[str], Awaitable[list[str]]]


async def resolve(host: str) -> list[str]:
    """Return the IP addresses of a host name. Raises OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, HTTPS_PORT, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


def is_public(address: Address) -> bool:
    """Return True if the address is on the public internet, so that a request to it cannot end in
    one of the server's own networks.
    """
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        # Addresses that contain an IPv4 one, to which a translator would connect.
        if address.sixtofour is not None or address.teredo is not None or address in _TRANSLATED:
            return False
    return address.is_global and not address.is_multicast


class ClientMetadata:
    """Fetches and checks the documents by which applications describe themselves to a gateway."""

    def __init__(
        self,
        applications: Applications,
        hosts: Collection[str],
        space: str,
        *,
        resolve: Resolve = resolve,
        may_reach: Callable[[Address], bool] = is_public,
        port: int = HTTPS_PORT,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Args:
        hosts: from which documents are fetched; empty: none are.
        space: that such an application may request.
        resolve, may_reach, port, trusted: of the network, for tests.
        """
        self._applications = applications
        self._hosts = frozenset(host.lower() for host in hosts)
        self._space = space
        self._resolve = resolve
        self._may_reach = may_reach
        self._port = port
        self._trusted_hosts = trusted
        self._known_until: dict[str, float] = {}
        self._fetches = Guesses("documents of programs")
        self._places = Places("documents of programs", most=4, each=4)

    @property
    def are_fetched(self) -> bool:
        return bool(self._hosts)

    async def application(self, identifier: str) -> Application | None:
        """Return the application that the document at this URL describes, as it is recorded now.
        Return None if the URL is not on a host from which documents are fetched.

        Raises RefusalError if there is no valid document, or there are too many requests.
        """
        host = self._host_of(identifier)
        if host is None:
            return None
        found = await asyncio.to_thread(self._applications.find, identifier)
        if found is not None and time.monotonic() - self._known_until.get(identifier, -KEPT_S) < KEPT_S:
            return found
        self._fetches.count()
        with self._places.place(None):
            try:
                async with asyncio.timeout(FETCH_S):
                    document = await self._fetch(identifier, host)
            except (TimeoutError, OSError, httpx2.HTTPError, ssl.SSLError):
                document = None
        application = self._read(identifier, document)
        if application is None:
            raise RefusalError(400, "invalid", "the document of that program cannot be fetched, or does not count here")
        try:
            noted = await asyncio.to_thread(
                self._applications.note_document,
                identifier,
                application[0],
                space=self._space,
                redirects=application[1],
            )
        except BadNameError as error:
            raise RefusalError(400, "invalid", str(error), hint=error.hint) from error
        except ConfideError as error:
            # An error here concerns the operator, and its text names spaces: the client gets
            # neither.
            log.error("a program that describes itself cannot sign in: %s", error)
            raise RefusalError(503, "unavailable", "programs cannot sign in by a document here now") from error
        while len(self._known_until) >= MOST_KEPT:
            del self._known_until[next(iter(self._known_until))]
        self._known_until[identifier] = time.monotonic()
        return noted

    def _host_of(self, identifier: str) -> str | None:
        """Return the host of an id that is a URL to fetch from, else None."""
        if len(identifier) > MAX_ADDRESS_CHARS or not identifier.isascii() or not identifier.startswith("https://"):
            return None
        try:
            parts = urlsplit(identifier)
            port = parts.port
        except ValueError:
            return None
        host = parts.hostname or ""
        is_plain = parts.netloc.lower() == host and port is None and not parts.fragment and not parts.query
        has_path = len(parts.path) > 1 and not {".", ".."} & set(parts.path.split("/"))
        return host if is_plain and has_path and host in self._hosts else None

    async def _fetch(self, identifier: str, host: str) -> bytes | None:
        for library in ("httpx2", "httpcore2"):  # they would write addresses
            logging.getLogger(library).setLevel(logging.CRITICAL)
        addresses = [ip_address(each) for each in await self._resolve(host)]
        # If one of them is not public, a retry could connect to it.
        if not addresses or not all(self._may_reach(each) for each in addresses):
            return None
        where = f"[{addresses[0]}]" if addresses[0].version == 6 else str(addresses[0])
        # Connect to the address that was checked, not to the name again, which may resolve
        # differently now.
        url = f"https://{where}:{self._port}{urlsplit(identifier).path}"
        trusted = self._trusted_hosts or ssl.create_default_context()
        async with (
            httpx2.AsyncClient(verify=trusted, follow_redirects=False, trust_env=False, timeout=FETCH_S) as client,
            client.stream(
                "GET",
                url,
                headers={"Host": host, "Accept": "application/json", "Accept-Encoding": "identity"},
                extensions={"sni_hostname": host},
            ) as answer,
        ):
            if answer.status_code != 200:
                return None
            found = bytearray()
            async for part in answer.aiter_raw():
                found += part
                if len(found) > MAX_BYTES:
                    return None
        return bytes(found)

    def _read(self, identifier: str, document: bytes | None) -> tuple[str, list[str]] | None:
        """Return name and redirect addresses of a document that states this id, else None."""
        try:
            said: Any = json.loads(document or b"")
        except (ValueError, RecursionError):
            return None
        match said:
            case {"client_id": str(name_of_itself), "client_name": str(name), "redirect_uris": [*redirects]}:
                is_it = name_of_itself == identifier and all(isinstance(each, str) for each in redirects)
                is_open = said.get("token_endpoint_auth_method", "none") == "none"
                return (name, redirects) if is_it and is_open and "client_secret" not in said else None
        return None
