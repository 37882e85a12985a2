"""What came of a request to a vault, in a sentence with a way out. Nothing that the vault said is repeated: it may name a token."""

from __future__ import annotations

from typing import Any, Final

import hvac.exceptions
import requests.exceptions

from confide_daemon.errors import VaultError
from confide_daemon.sealing.vault_settings import VaultConfig

_PASSING: Final = (
    hvac.exceptions.RateLimitExceeded,
    hvac.exceptions.InternalServerError,
    hvac.exceptions.BadGateway,
    hvac.exceptions.VaultDown,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
)


class NonsenseError(Exception):
    """An answer that is not of the API's form."""


def is_passing(error: Exception) -> bool:
    """Whether saying the same again may help."""
    return isinstance(error, _PASSING) and not isinstance(error, requests.exceptions.SSLError)


def object_of(said: Any, name: str) -> dict[str, Any]:
    """A part of an answer. Raises NonsenseError."""
    found = said.get(name) if isinstance(said, dict) else None
    if not isinstance(found, dict):
        raise NonsenseError
    return found


def late() -> VaultError:
    """The time is over."""
    return VaultError(
        "the vault does not answer in time", hint="does it run? timeout_s of [vault] in daemon.toml gives it longer"
    )


def explained(error: Exception, settings: VaultConfig) -> VaultError:
    """The sentence for whatever came; what is a mistake of ours goes on as it is."""
    if isinstance(error, VaultError):
        return error
    if isinstance(error, requests.exceptions.SSLError):
        return VaultError(
            "the vault's certificate is not trusted", hint="ca_file of [vault] in daemon.toml names its CA's"
        )
    if isinstance(error, requests.exceptions.Timeout):
        return late()
    if isinstance(error, OSError) and not isinstance(error, requests.exceptions.RequestException):
        return VaultError("ca_file of [vault] cannot be used", hint="it names a file of PEM certificates")
    if isinstance(error, requests.exceptions.RequestException):
        return VaultError(
            "the vault cannot be reached", hint="does it run, and is url of [vault] in daemon.toml right?"
        )
    if isinstance(error, hvac.exceptions.VaultDown):
        return VaultError(
            "the vault is sealed, or has no active node", hint="its operator unseals it: bao operator unseal"
        )
    if isinstance(error, hvac.exceptions.VaultNotInitialized):
        return VaultError("the vault is not initialized", hint="its operator does that: bao operator init")
    if isinstance(error, hvac.exceptions.RateLimitExceeded):
        return VaultError("the vault takes no more requests now", hint="try again in a moment, or raise its rate limit")
    if isinstance(error, hvac.exceptions.InvalidPath):
        return VaultError(
            f"the vault has no KV v2 engine at '{settings.mount}'",
            hint=f"bao secrets enable -version=2 -path={settings.mount} kv, or set mount of [vault] in daemon.toml",
        )
    if isinstance(error, (hvac.exceptions.InternalServerError, hvac.exceptions.BadGateway)):
        return VaultError("the vault failed over a request", hint="its log says why; it is tried again")
    if isinstance(error, hvac.exceptions.VaultError):
        return VaultError(
            "the vault refuses a request", hint=f"is there a KV v2 engine at '{settings.mount}'? docs/vault.md"
        )
    # The last two come from hvac, where the JSON of an error is of another form than Vault's.
    if isinstance(error, (NonsenseError, ValueError, TypeError, AttributeError)):
        return VaultError(
            "what answers is no vault with a KV v2 engine", hint="are url and mount of [vault] in daemon.toml right?"
        )
    raise error
