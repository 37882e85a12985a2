"""Environment variables about HTTPS proxies: those that lead a command to the proxy of its run, and
`NO_PROXY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

USER: Final = "confide"
"""The user name with which a command authenticates to the proxy of its run."""


class ProxyEnvironment(NamedTuple):
    """The environment variables that make a command use the proxy.

    Attributes:
        variables: the proxy's address, with the credential for it.
        files: the certificates to trust. They are written to files, whose paths go into these
            variables.
    """

    variables: Mapping[str, bytes]
    files: Mapping[str, bytes]


def is_listed(host: str, entry: str) -> bool:
    """Return True if an entry of the variable `NO_PROXY` covers a host: the host itself, a domain
    that contains it, or `*`.
    """
    name = entry.strip().lower().removeprefix("*").removeprefix(".").partition(":")[0]
    return entry.strip() == "*" or (bool(name) and f".{host}".endswith(f".{name}"))
