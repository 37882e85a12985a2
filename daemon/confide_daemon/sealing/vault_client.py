"""Client of a HashiCorp Vault or OpenBao: read, write and delete in a KV v2 engine, and log in.

All calls block and run on threads, each with its own connection; they share the token. Errors never
repeat a response, and the token is never shown. Redirects aren't followed, since they would receive
the token. The environment (`VAULT_TOKEN`, proxies, `.netrc`) is ignored.

API: https://openbao.org/api-docs/secret/kv/kv-v2/ and
https://openbao.org/api-docs/auth/kubernetes/; Vault's is the same.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import hvac
import hvac.exceptions
import requests
import requests.exceptions

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_daemon.config import KUBERNETES, VaultConfig
from confide_daemon.datadir.credentials import credential
from confide_daemon.errors import VaultError

T = TypeVar("T")

CREDENTIAL: Final = "vault-token"
MAX_TOKEN: Final = 64 * 1024
"""Longest token in bytes. Vault's batch tokens and Kubernetes' signed ones have a few kilobytes."""
MAX_ANSWER: Final = 2 * 1024 * 1024
TRIES: Final = 3
# Pauses with full jitter, as for the embedding providers.
BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 1.0
# A token is renewed, or fetched again, after half of its lease. A token without an end is checked
# this often.
LONGEST_LEASE_S: Final = 6 * 3600.0
SHORTEST_LEASE_S: Final = 2.0
REFUSED_HINT: Final = (
    "is it expired? Its policy must allow create, read and update of the records, and to delete them: "
    "docs/hashicorp-vault.md"
)


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    until: float  # time.monotonic() when half of its time is over
    is_renewable: bool = False


class VaultClient:
    """A client of one vault, safe to use from any thread."""

    def __init__(self, settings: VaultConfig) -> None:
        self._settings = settings
        self._own = threading.local()
        self._logging_in = threading.Lock()
        self._token: _Token | None = None

    def read(self, path: str, deadline: float) -> dict[str, Any] | None:
        """Return the newest version of the secret at `path`, or None if there is none.

        `deadline` is in monotonic seconds and covers retries. Raises VaultError if the secret
        cannot be read now.
        """

        return self._call(lambda client: self._lying(client, path), deadline)

    def write(self, path: str, secret: dict[str, object], deadline: float) -> None:
        """Write `secret` at `path`, which must be empty or contain the same secret. Raises
        VaultError if it contains another one, or if the vault fails until `deadline`.
        """

        def ask(client: hvac.Client) -> None:
            try:
                # 0: only if the path is empty. Some engines require it.
                said = client.secrets.kv.v2.create_or_update_secret(
                    path, secret, cas=0, mount_point=self._settings.mount
                )
            except hvac.exceptions.InvalidRequest:
                if self._lying(client, path) == secret:
                    return  # an earlier attempt wrote it, and its answer was lost
                raise
            if not isinstance(_object_of(said, "data").get("version"), int):
                raise _NonsenseError  # a KV engine of version 1 accepts it too, but returns it differently

        self._call(ask, deadline)

    def destroy(self, path: str, deadline: float) -> None:
        """Delete all versions of the secret at `path`. Raises VaultError if the vault fails until
        `deadline`.
        """
        self._call(
            lambda client: client.secrets.kv.v2.delete_metadata_and_all_versions(
                path, mount_point=self._settings.mount
            ),
            deadline,
        )

    def keep_token(self, deadline: float) -> float:
        """Renew the access token, or log in for a new one; return the seconds until the next
        renewal. Raises VaultError if the vault refuses or is unavailable.
        """
        try:
            with self._lock_login(deadline):
                token = self._token
                if token is not None and token.until <= time.monotonic():
                    token = self._renew(token, deadline) if token.is_renewable else None
                self._token = token = token or self._log_in(deadline)
        except Exception as error:
            raise _as_vault_error(error, self._settings) from None
        return max(SHORTEST_LEASE_S / 2, token.until - time.monotonic())

    def _lying(self, client: hvac.Client, path: str) -> dict[str, object] | None:
        try:
            said = client.secrets.kv.v2.read_secret_version(
                path, mount_point=self._settings.mount, raise_on_deleted_version=True
            )
        except hvac.exceptions.InvalidPath as error:
            if error.errors:
                raise  # no engine there; an empty path has no error text
            return None
        return _object_of(_object_of(said, "data"), "data")

    def _call(self, ask: Callable[[hvac.Client], T], deadline: float) -> T:
        """Return the result of `ask`. Transient errors are retried, and a refused token leads to
        one new login.
        """
        has_logged_in = False
        tries = 0
        while True:
            try:
                token = self._valid_token(deadline)
                try:
                    return ask(self._client(token.value, deadline))
                except hvac.exceptions.Forbidden:
                    # The vault's answer is the same for an expired token and for missing
                    # permissions.
                    if has_logged_in or not self._forget(token, deadline):
                        raise VaultError("the vault refuses the daemon's token", hint=REFUSED_HINT) from None
                    has_logged_in = True
            except Exception as error:
                tries += 1
                pause = random.uniform(0, min(MAX_BACKOFF_S, BACKOFF_S * 2**tries))  # noqa: S311 - no secret
                if not _is_passing(error) or tries == TRIES or time.monotonic() + pause > deadline:
                    raise _as_vault_error(error, self._settings) from None
                time.sleep(pause)

    def _valid_token(self, deadline: float) -> _Token:
        token = self._token
        if token is not None:
            return token
        with self._lock_login(deadline):
            if self._token is None:
                self._token = self._log_in(deadline)
            return self._token

    def _forget(self, refused: _Token, deadline: float) -> bool:
        """Drop a refused token; return False if a new login would only read the same token again."""
        is_same = self._settings.auth != KUBERNETES and self._file_token() == refused.value
        with self._lock_login(deadline):
            if self._token is refused and not is_same:
                self._token = None
            return self._token is not refused

    def _log_in(self, deadline: float) -> _Token:
        settings = self._settings
        if settings.auth != KUBERNETES:
            return self._look_up(self._file_token(), deadline)
        jwt = _read(Path(settings.jwt_file), "jwt_file")
        try:
            said = self._client("", deadline).auth.kubernetes.login(
                settings.role, jwt, use_token=False, mount_point=settings.kubernetes_mount
            )
        except (hvac.exceptions.Forbidden, hvac.exceptions.InvalidRequest, hvac.exceptions.InvalidPath):
            raise VaultError(
                f"the vault does not let this service account in as role '{settings.role}'",
                hint="the role names this account and its namespace, and the vault must reach Kubernetes: docs/hashicorp-vault.md",
            ) from None
        auth = _object_of(said, "auth")
        value = auth.get("client_token")
        if not isinstance(value, str) or not value:
            raise _NonsenseError
        return _Token(value, time.monotonic() + _half(auth.get("lease_duration")))

    def _look_up(self, value: str, deadline: float) -> _Token:
        """Return the token with its lease. If its policy forbids the lookup, it isn't renewed."""
        try:
            data = _object_of(self._client(value, deadline).auth.token.lookup_self(), "data")
        except hvac.exceptions.Forbidden:
            return _Token(value, time.monotonic() + LONGEST_LEASE_S)
        return _Token(value, time.monotonic() + _half(data.get("ttl")), data.get("renewable") is True)

    def _renew(self, token: _Token, deadline: float) -> _Token | None:
        """Renew a token; return None if it has expired, so that its file is read again."""
        try:
            auth = _object_of(self._client(token.value, deadline).auth.token.renew_self(), "auth")
        except hvac.exceptions.Forbidden:
            return None
        return _Token(token.value, time.monotonic() + _half(auth.get("lease_duration")), True)

    def _file_token(self) -> str:
        if self._settings.token_file:
            return _read(Path(self._settings.token_file).expanduser(), "token_file", is_private=True)
        if (handed := credential(CREDENTIAL)) is not None:
            return _read(handed, "token_file")
        raise VaultError(
            "there is no token for the vault",
            hint="write it into a file of mode 0600 and name that file as token_file of [vault] in daemon.toml",
        )

    def _client(self, token: str, deadline: float) -> hvac.Client:
        """Return this thread's client, with the token and the time left for one request."""
        client: hvac.Client | None = getattr(self._own, "client", None)
        if client is None:
            session = _BoundedSession()
            session.verify = _certificates(self._settings)
            client = self._own.client = hvac.Client(
                url=self._settings.url,
                token="",  # else hvac reads one from the environment
                verify=session.verify,
                allow_redirects=False,
                session=session,
                namespace=self._settings.namespace.strip("/") or None,
            )
        client.token = token
        assert isinstance(client.session, _BoundedSession)
        client.session.left_s = deadline - time.monotonic()
        return client

    @contextmanager
    def _lock_login(self, deadline: float) -> Iterator[None]:
        """Prevent other threads from logging in while the context is active."""
        if not self._logging_in.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise VaultError(_LATE, hint=_LATE_HINT)
        try:
            yield
        finally:
            self._logging_in.release()


class _BoundedSession(requests.Session):
    """A requests session that enforces a deadline and a maximum response size."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.left_s = 0.0

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request. Raises _NonsenseError if the response is too long, besides the errors of
        requests.
        """
        if self.left_s <= 0:
            raise requests.exceptions.Timeout
        until = time.monotonic() + self.left_s
        response = super().send(request, **{**kwargs, "stream": True, "timeout": self.left_s})
        body = bytearray()
        with response:
            for piece in response.iter_content(64 * 1024):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise _NonsenseError
                if time.monotonic() > until:
                    raise requests.exceptions.ReadTimeout
        response._content = bytes(body)
        return response


def _certificates(settings: VaultConfig) -> str | bool:
    system = ssl.get_default_verify_paths()
    return settings.ca_file or system.cafile or system.capath or True


def _read(path: Path, option: str, *, is_private: bool = False) -> str:
    try:
        if is_private:
            data = read_private_file(path)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_TOKEN + 1)
    except KeyFileError as error:
        hint = error.hint or f"{option} of [vault] in daemon.toml names the file that holds it"
        raise VaultError(f"cannot use the token for the vault: {error}", hint=hint) from None
    except OSError as error:
        raise VaultError(
            f"cannot read the token for the vault: {error.strerror or type(error).__name__}",
            hint=f"is {option} of [vault] in daemon.toml right? It names {path}",
        ) from None
    word = data.decode("ascii", errors="replace").strip()
    if not 1 <= len(word) <= MAX_TOKEN or not word.isascii() or not word.isprintable() or " " in word:
        raise VaultError(f"{path} does not hold a token", hint="it is one word, alone in its file")
    return word


def _half(lease_s: Any) -> float:
    """Return half of a lease in seconds. 0 (no end) and unknown leases count as the longest."""
    lease_s = lease_s if isinstance(lease_s, int) and lease_s > 0 else LONGEST_LEASE_S * 2
    return float(max(SHORTEST_LEASE_S, min(lease_s, LONGEST_LEASE_S * 2)) / 2)


class _NonsenseError(Exception):
    """A response that doesn't have the API's form."""


def _object_of(said: Any, name: str) -> dict[str, object]:
    """Return an object inside a response. Raises _NonsenseError."""
    found = said.get(name) if isinstance(said, dict) else None
    if not isinstance(found, dict):
        raise _NonsenseError
    return found


_PASSING: Final = (
    hvac.exceptions.RateLimitExceeded,
    hvac.exceptions.InternalServerError,
    hvac.exceptions.BadGateway,
    hvac.exceptions.VaultDown,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
)


def _is_passing(error: Exception) -> bool:
    return isinstance(error, _PASSING) and not isinstance(error, requests.exceptions.SSLError)


_LATE: Final = "the vault does not answer in time"
_LATE_HINT: Final = "does it run? timeout_s of [vault] in daemon.toml gives it longer"
# Error messages by exception type; the first match counts. They never repeat the vault's response,
# which may contain a token.
_SENTENCES: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...]] = (
    (requests.exceptions.SSLError, "the vault's certificate is not trusted", "ca_file of [vault] in daemon.toml names its CA's"),
    (requests.exceptions.Timeout, _LATE, _LATE_HINT),
    (requests.exceptions.RequestException, "the vault cannot be reached", "does it run, and is url of [vault] in daemon.toml right?"),
    (OSError, "ca_file of [vault] cannot be used", "it names a file of PEM certificates"),
    (hvac.exceptions.VaultDown, "the vault is sealed, or has no active node", "its operator unseals it: bao operator unseal"),
    (hvac.exceptions.VaultNotInitialized, "the vault is not initialized", "its operator does that: bao operator init"),
    (hvac.exceptions.RateLimitExceeded, "the vault takes no more requests now", "try again in a moment, or raise its rate limit"),
    (hvac.exceptions.InvalidPath, "the vault has no KV v2 engine at '{mount}'",
     "bao secrets enable -version=2 -path={mount} kv, or set mount of [vault] in daemon.toml"),
    ((hvac.exceptions.InternalServerError, hvac.exceptions.BadGateway), "the vault failed over a request",
     "its log says why; it is tried again"),
    (hvac.exceptions.VaultError, "the vault refuses a request", "is there a KV v2 engine at '{mount}'? docs/hashicorp-vault.md"),
    # The last two are raised by hvac if an error's JSON hasn't Vault's form.
    ((_NonsenseError, ValueError, TypeError, AttributeError), "what answers is no vault with a KV v2 engine",
     "are url and mount of [vault] in daemon.toml right?"),
)  # fmt: skip


def _as_vault_error(error: Exception, settings: VaultConfig) -> VaultError:
    """Return a VaultError for a known exception; raise any other one unchanged, as it is a bug."""
    if isinstance(error, VaultError):
        return error
    for kinds, sentence, hint in _SENTENCES:
        if isinstance(error, kinds):
            return VaultError(sentence.format(mount=settings.mount), hint=hint.format(mount=settings.mount))
    raise error
