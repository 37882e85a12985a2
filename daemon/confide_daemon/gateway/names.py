"""How a server's gateway is called: by what it listens on, and as configured."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from confide_daemon.config import GatewayConfig, parse_listen
from confide_door.guard import LOOPBACK

_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - what is listened on, to be told by what can be reached
_PORTS: Final = {"https": 443, "http": 80}


def hosts_of(config: GatewayConfig, port: int) -> frozenset[str]:
    """As it stands in `Host`; `port`: that it listens on."""
    found = {host.lower() for host in config.hosts}
    if config.public_url:
        url = urlsplit(config.public_url.lower())
        found.add(url.netloc)
        if url.port is None:
            found.add(f"{url.netloc}:{_PORTS[url.scheme]}")
        elif url.port == _PORTS[url.scheme]:
            found.add(url.netloc.rpartition(":")[0])
    host, _ = parse_listen(config.listen)
    shown = f"[{host}]" if ":" in host else host.lower()
    own = LOOPBACK if host in _EVERYWHERE or shown in LOOPBACK else (shown,)
    return frozenset(found | {f"{name}:{port}" for name in own})


def origin_of(config: GatewayConfig, port: int) -> str:
    """Of the addresses that clients are told, such as `https://memory.example.org`."""
    if config.public_url:
        return config.public_url.rstrip("/")
    host, _ = parse_listen(config.listen)
    name = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"{'https' if config.cert else 'http'}://{name}:{port}"
