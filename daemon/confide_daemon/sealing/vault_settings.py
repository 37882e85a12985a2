"""The options of `[vault]`, and what is wrong with their values. Imports nothing heavy: it is read with the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from confide_daemon.embed.settings import KEY_LIKE, url_problem

TOKEN: Final = "token"  # noqa: S105 - a way to log in
KUBERNETES: Final = "kubernetes"
# Where Kubernetes puts a pod's own token, and renews it.
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_PATH: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_ROLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# What tokens of Vault and OpenBao begin with: service, batch and recovery tokens, new and old.
_TOKEN_LIKE: Final = re.compile(r"(hv[sbr]|[sbr])\.[A-Za-z0-9_-]{20,}")


@dataclass(frozen=True, slots=True)
class VaultConfig:
    """A HashiCorp Vault or OpenBao whose KV v2 engine keeps the sealed records.

    Attributes:
        url: its address; "" keeps the records in the spaces' databases.
        mount: where its KV v2 engine is.
        prefix: of all paths in there; a record lies at `<prefix>/<space id>/<secret id>/<place>`.
        auth: `token` or `kubernetes`.
        token_file: of mode 0600, with the token alone; where it is "", `vault-token` in `$CREDENTIALS_DIRECTORY`.
        role: of the Kubernetes auth method.
        jwt_file: the service account's token, read at each login.
        kubernetes_mount: where that auth method is.
        namespace: of Vault Enterprise or OpenBao; "" is the root.
        ca_file: PEM certificates that the server's is signed by; "" takes the system's.
        timeout_s: for one record to be kept or fetched, a login and further tries included.
    """

    url: str = ""
    mount: str = "secret"
    prefix: str = "confide"
    auth: str = TOKEN
    token_file: str = ""
    role: str = ""
    jwt_file: str = SERVICE_ACCOUNT
    kubernetes_mount: str = KUBERNETES
    namespace: str = ""
    ca_file: str = ""
    timeout_s: float = 5.0

    def problem(self) -> tuple[str, str] | None:
        """The first option with a value that cannot be, and what it takes; never the value, which may be a pasted token."""
        if self.url and (problem := _url_problem(self.url)):
            return "url", problem
        for name in ("mount", "prefix", "kubernetes_mount"):
            if not _PATH.fullmatch(getattr(self, name)):
                return name, "it is a path of letters, digits, hyphens, underscores and dots, as in team/confide"
        if self.namespace and not _PATH.fullmatch(self.namespace.strip("/")):
            return "namespace", "it is a path such as team/confide"
        if self.auth not in (TOKEN, KUBERNETES):
            return "auth", f"it is one of {TOKEN}, {KUBERNETES}"
        if KEY_LIKE.fullmatch(self.token_file) or _TOKEN_LIKE.fullmatch(self.token_file):
            return "token_file", "it is the path of a file that holds the token, not the token itself"
        if self.role and not _ROLE.fullmatch(self.role):
            return "role", "it is the name of a role"
        if self.url and self.auth == KUBERNETES and not self.role:
            return "role", 'auth = "kubernetes" needs the name of the vault\'s role'
        if not 0.5 <= self.timeout_s <= 60:
            return "timeout_s", "it is at least 0.5 and at most 60"
        return None


def _url_problem(url: str) -> str | None:
    if url_problem(url, allow_plain_http=True):
        return "it is an address such as https://vault.example.org:8200"
    if url_problem(url, allow_plain_http=False):
        return "it begins with https://, since the token goes along; http:// is for this machine and private addresses only"
    return None
