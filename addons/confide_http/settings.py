"""The section `[gateway]` of daemon.toml."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from confide_daemon.config import DEFAULT_PORT, DaemonConfig, parse_listen

_CLIENT_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z][a-z0-9-]+")
_PUBLIC_URL: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:\d{1,5})?/?")
_WELL_KNOWN: Final = {"https": "443", "http": "80"}
_MAX_PORT: Final = 65_535
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The settings of MCP over HTTP, for clients that support nothing else (docs/http-server.md)."""

    listen: str = ""  # host and port of a socket of its own; "" for no socket
    # PEM files: the certificate with its chain, and its private key, of mode 0600; "" if TLS ends
    # in front of the gateway
    cert: str = ""
    key: str = ""
    public_url: str = ""  # the address that clients get, such as `https://memory.example.org`; "" is where it listens
    hosts: tuple[str, ...] = ()  # further names that it is called by, as they stand in `Host`
    # hosts of metadata documents by which programs request access, and the space for which they may
    client_hosts: tuple[str, ...] = ()
    client_space: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_url", normalize_url(self.public_url))

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """Return the name of the first option with an invalid value and a description of the
        accepted values, or None if all are valid.
        """
        if bool(self.cert) != bool(self.key):
            return ("key" if self.cert else "cert"), "a certificate and its private key go together: cert and key"
        if "PRIVATE KEY" in self.key or "BEGIN" in self.cert:
            return ("key" if "PRIVATE KEY" in self.key else "cert"), "it is the path of a PEM file, not what is in it"
        if self.public_url and _PUBLIC_URL.fullmatch(self.public_url) is None:
            return "public_url", "it is an address without a path, such as https://memory.example.org"
        if (said := re.search(r":(\d*)$", self.public_url)) and not 1 <= int(said[1] or 0) <= _MAX_PORT:
            return "public_url", f"'{said[1]}' is not a port number"
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                return "hosts", 'it takes a list of names as they stand in Host, such as ["memory.example.org"]'
        for host in self.client_hosts:
            if not _CLIENT_HOST.fullmatch(host):
                return "client_hosts", 'it takes a list of names of hosts, such as ["claude.ai"]'
        if bool(self.client_hosts) != bool(self.client_space):
            missing = "client_space" if self.client_hosts else "client_hosts"
            return missing, "hosts of programs and the space that these may ask for go together"
        return self._check_address()

    def _check_address(self) -> tuple[str, str] | None:
        """Check the address, and that others cannot reach it without TLS; returns as `problem`."""
        if not self.listen:
            if self != GatewayConfig():
                return "listen", "the other options of [gateway] need it, as in 127.0.0.1:7735"
            return None
        try:
            host, port = parse_listen(self.listen)
            if self.listen.count(":") == 0:
                raise ValueError("it takes a port of its own, as in 127.0.0.1:7735")
        except ValueError as error:
            return "listen", str(error)
        if port == DEFAULT_PORT:
            return "listen", f"{port} is the port of the channel; take another, as in {host}:7735"
        if not self.cert and not self.public_url.startswith("https://") and not _is_loopback(host):
            hint = "others reach it there, so it needs TLS: by cert and key, or in front of it, and then public_url begins with https://"
            return "listen", hint
        if self.public_url.startswith("http://") and not _is_loopback(urlsplit(self.public_url).hostname or ""):
            return "public_url", "it begins with https://; http:// is for this device alone"
        return None


def normalize_url(url: str) -> str:
    """Return a URL in lower case, without a default port and a final slash (WHATWG's URL standard,
    "serializing"). Other texts stay unchanged.

    Programs compare it exactly with their form of the URL that a user has typed.
    """
    if _PUBLIC_URL.fullmatch(url.lower()) is None:
        return url
    scheme, _, host = url.lower().rstrip("/").partition("://")
    if (port := re.search(r":0*(\d*)$", host)) is not None:
        host = host[: port.start()]
        host += "" if port[1] == _WELL_KNOWN[scheme] else f":{port[1]}"
    if (address := re.match(r"\[(.+)\]", host)) is not None:
        try:
            host = f"[{ipaddress.IPv6Address(address[1]).compressed}]{host[address.end() :]}"
        except ValueError:
            return url
    return f"{scheme}://{host}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


TABLES: Final = {"gateway": GatewayConfig}
