"""Loads the TLS certificate of a gateway again when its files change, so that a renewal needs no
restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

POLL_S: Final = 2.0
"""Seconds between two checks of the files."""
SOON_S: Final = 7 * 86_400.0
"""A certificate that expires within this time should have been renewed: certificates of 90 days are
after 60, of 45 after 30, of 6 after 4.
"""
_TOLD_S: Final = 86_400.0
_MOST_BYTES: Final = 1 << 20


class CertificateError(Exception):
    """A certificate or key that cannot be used; the message names the file and the reason."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True)
class Validity:
    """The period and the names for which a certificate is valid. Times are in seconds since 1970.

    Attributes:
        ends: the earliest end among the certificate and those in the same file that signed it.
        names: host names and addresses in lower case, as the certificate has them.
    """

    begins: float
    ends: float
    names: tuple[str, ...]

    def is_for(self, host: str) -> bool:
        """Return True if the certificate is valid for this host name or address."""
        host = host.lower().rstrip(".")
        return host in self.names or f"*.{host.partition('.')[2]}" in self.names


def validity_of(cert: Path, key: Path) -> Validity:
    """Return the validity of a certificate. Raises CertificateError if a file is unreadable or the
    key does not match.
    """
    from cryptography import x509  # 45 ms, for who has a certificate

    read = {path: _read(path) for path in (cert, key)}
    try:
        own, *others = x509.load_pem_x509_certificates(read[cert])
        names: tuple[str, ...] = ()
        with contextlib.suppress(x509.ExtensionNotFound):
            said = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = tuple(str(one.value).lower() for one in said if isinstance(one, x509.DNSName | x509.IPAddress))
    except ValueError:
        raise CertificateError(cert, "it is no certificate in PEM") from None
    try:
        # Test in a separate context: a failure would leave the one in use with a new and an old
        # half.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        why = "it is no key of that certificate" if error.reason == "KEY_VALUES_MISMATCH" else "it is no key in PEM"
        raise CertificateError(key, why) from None
    except (OSError, ValueError) as error:
        raise CertificateError(key, str(error) or type(error).__name__) from None
    # Not of others in the file: clients may know another way to an authority.
    needed = [own, *(one for one in others if one.subject == own.issuer)]
    return Validity(
        max(one.not_valid_before_utc.timestamp() for one in needed),
        min(one.not_valid_after_utc.timestamp() for one in needed),
        names,
    )


class Renewal:
    """Loads the certificate of an SSL context again when its files change."""

    def __init__(self, context: ssl.SSLContext, cert: Path, key: Path, *, require: Callable[[Path], object]) -> None:
        """`require`: raises ConfideError if others may read the key."""
        self._context = context
        self._cert = cert
        self._key = key
        self._require = require
        self._marks = _marks(cert, key)
        self._told_at = float("-inf")
        self.validity = validity_of(cert, key)
        """Of the certificate in use."""

    async def run(self) -> None:
        """Check the files for changes again and again until cancelled."""
        while True:
            self._tell()
            await asyncio.sleep(POLL_S)
            if (validity := await asyncio.to_thread(self._renew)) is not None:
                self._take(validity)

    def _renew(self) -> Validity | None:
        """Check the files if they have changed; return when their certificate is valid.

        None: the files are unchanged, or unusable, which is logged once.
        """
        marks = _marks(self._cert, self._key)
        if marks == self._marks:
            return None
        self._marks = marks
        try:
            self._require(self._key)
            return validity_of(self._cert, self._key)
        except Exception as error:
            _log_unusable(error)
            return None

    def _take(self, validity: Validity) -> None:
        # Run on the thread that starts handshakes, and so between two of them: the context briefly
        # has the new certificate with the old key.
        try:
            self._context.load_cert_chain(self._cert, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            _log_unusable(error)
        else:
            self.validity = validity
            self._told_at = float("-inf")
            log.info("the certificate of the gateway was read again; it is valid until %s", _day(validity.ends))

    def _tell(self) -> None:
        """Warn once a day that the certificate is not valid yet, has expired or expires soon."""
        now, begins, ends = time.time(), self.validity.begins, self.validity.ends
        if (ends - now >= SOON_S and begins <= now) or time.monotonic() - self._told_at < _TOLD_S:
            return
        self._told_at = time.monotonic()
        if begins > now:
            log.warning("the certificate of the gateway begins on %s: is the clock of this device right?", _day(begins))
        else:
            how = "is over since" if ends < now else "ends on"
            log.warning("the certificate of the gateway %s %s: is it renewed?", how, _day(ends))


def _log_unusable(error: Exception) -> None:
    log.error("the new certificate of the gateway cannot be used, so the one of before is served: %s", error)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise CertificateError(path, (error.strerror or type(error).__name__).lower()) from None


def _marks(*paths: Path) -> list[tuple[int, int, int] | None]:
    """Return values that differ once a file is changed or replaced, or its mode changes."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
            found.append((status.st_ino, status.st_ctime_ns, status.st_size))
        except OSError:
            found.append(None)
    return found


def _no_password() -> str:
    """Refuse a key with a passphrase; without this callback OpenSSL prompts at the terminal."""
    raise ValueError("it has a password, and no user is there to type it")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d at %H:%M UTC", time.gmtime(at))
