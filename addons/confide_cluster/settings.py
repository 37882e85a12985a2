"""The sections `[store]` and `[node]` of daemon.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import urlsplit

from confide_daemon.config import DaemonConfig, parse_listen

PASSWORD_HINT = (
    "write the password into a file of mode 0600 and name that file as password_file; if others have seen it, change it"  # noqa: S105 - none
)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The settings of a PostgreSQL that stores the logs of the spaces. This daemon's files are
    copies of them (docs/cluster.md).
    """

    url: str = ""  # as libpq reads it, without a password; "" keeps the spaces in their files alone
    # of mode 0600, with only the password; if "", `store-password` in `$CREDENTIALS_DIRECTORY`
    password_file: str = ""
    connections: int = 6  # for all spaces together
    lease_s: int = 6  # a node that has not been heard of for so long is taken for dead

    SECRETS: ClassVar = {"password": PASSWORD_HINT}
    """Secrets that users may put here by mistake, and where they belong."""

    def problem(self, _config: DaemonConfig | None = None) -> tuple[str, str] | None:
        """Return the name of the first option with an invalid value and a description of the
        accepted values, or None if all are valid.
        """
        if self.url:
            if not self.url.startswith(("postgresql://", "postgres://")) or not self.url.isascii():
                return "url", "it is an address such as postgresql://confide@db.example.org/confide?sslmode=verify-full"
            parts = urlsplit(self.url)
            asked = {name.partition("=")[0] for name in parts.query.split("&")}
            if ":" in parts.netloc.rpartition("@")[0] or asked & {"password", "passfile"}:
                return "url", PASSWORD_HINT
        elif self != StoreConfig():
            return "url", "the other options of [store] need it"
        if not 2 <= self.connections <= 1000:
            return "connections", "it is at least 2 and at most 1,000"
        if not 3 <= self.lease_s <= 600:
            return "lease_s", "it is at least 3 and at most 600"
        return None


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The settings of a daemon that is one of several with the same PostgreSQL (docs/cluster.md)."""

    listen: str = ""  # host and port of a socket for other nodes alone; "" for no socket
    address: str = ""  # host and port by which other nodes reach it

    def problem(self, config: DaemonConfig) -> tuple[str, str] | None:
        """Return the name of the first option with an invalid value and a description of the
        accepted values, or None if all are valid.
        """
        if not self.listen and not self.address:
            return None
        if not config.table(StoreConfig).url:
            return "listen", "nodes have their spaces in a store: it needs url of [store]"
        for option in ("listen", "address"):
            text = getattr(self, option)
            try:
                if not text or not parse_listen(text)[1] or text.count(":") == 0:
                    raise ValueError("it takes a host and a port of its own, as in 10.0.0.5:7734")
            except ValueError as error:
                return option, str(error)
        return None


TABLES: Final = {"store": StoreConfig, "node": NodeConfig}
