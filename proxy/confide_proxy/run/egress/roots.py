"""Load the root certificates of this system, which verify the hosts. Environment variables cannot
replace them.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from confide_proxy.errors import RunRefusedError

_BUNDLES: Final = (
    ssl.get_default_verify_paths().openssl_cafile,
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
_HINT: Final = "ca_file below [run] in proxy.toml names a file with them"


def trusted(own: str) -> bytes:
    """Return the root certificates as PEM: the system's, and those in the user's file `own` ("" for
    none).

    Raises RunRefusedError if there are none, or if the user's file cannot be read or contains no
    certificates. The system's are not parsed here, which takes 30 ms.
    """
    found = [Path(each).read_bytes() for each in _BUNDLES if Path(each).is_file()][:1]
    if own:
        try:
            found.append(Path(own).expanduser().read_bytes())
        except OSError as error:
            raise RunRefusedError(f"ca_file cannot be read: {error.strerror}", hint=_HINT) from None
        verifying(found[-1])
    if not found:
        raise RunRefusedError("this system's root certificates are in none of the usual places", hint=_HINT)
    return b"\n".join(found)


def verifying(roots: bytes) -> ssl.SSLContext:
    """Return a TLS context that verifies hosts by these root certificates and by their names.
    Raises RunRefusedError if the certificates are invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(cadata=roots.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise RunRefusedError(
            "the root certificates of this system, or in ca_file, are no certificates", hint=_HINT
        ) from None
    return context
