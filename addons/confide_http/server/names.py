"""The host names and the origin of a server's gateway, from its address and its configuration."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from confide_daemon.config import parse_listen
from confide_http.door.guard import LOOPBACK
from confide_http.settings import GatewayConfig, normalize_url

_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - an address to listen on, as opposed to one that clients reach
_PORTS: Final = {"https": 443, "http": 80}


def hosts_of(config: GatewayConfig, port: int) -> frozenset[str]:
    """Return the accepted values of the header `Host`, with and without a default port; `port` is
    the one on which the gateway listens.
    """
    host, _ = parse_listen(config.listen)
    shown = f"[{host}]" if ":" in host else host.lower()
    own = LOOPBACK if host in _EVERYWHERE or shown in LOOPBACK else (shown,)
    found = {host.lower() for host in config.hosts} | {f"{name}:{port}" for name in own}
    origin = urlsplit(origin_of(config, port))
    well_known = f":{_PORTS[origin.scheme]}"
    found |= {name.removesuffix(well_known) for name in found}
    if config.public_url:
        found |= {origin.netloc, *(() if origin.port else (origin.netloc + well_known,))}
    return frozenset(found)


def origin_of(config: GatewayConfig, port: int) -> str:
    """Return the origin of the gateway's public URLs, such as `https://memory.example.org`."""
    if config.public_url:
        return config.public_url
    host, _ = parse_listen(config.listen)
    name = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    return normalize_url(f"{'https' if config.cert else 'http'}://{name}:{port}")
