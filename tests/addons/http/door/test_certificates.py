"""A certificate that is renewed while people come."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.deadline import DEADLINE_S
from tests.support.network.certificates import certificate

from confide_http.door import certificates
from confide_http.door.certificates import Renewal, Validity, validity_of
from confide_http.server import addon


class Watched(ssl.SSLContext):
    """A context that says which thread has changed what it serves."""

    changed_by: list[int]

    def load_cert_chain(self, *args: Any, **kwargs: Any) -> None:
        self.changed_by.append(threading.get_ident())
        super().load_cert_chain(*args, **kwargs)


async def test_no_handshake_meets_a_new_certificate_with_the_old_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL takes one after the other, so they change in the thread that begins handshakes, and between two of them."""
    monkeypatch.setattr(certificates, "POLL_S", 0.0)
    cert, key = certificate(tmp_path)
    (tmp_path / "new").mkdir()
    context = Watched(ssl.PROTOCOL_TLS_SERVER)
    context.changed_by = []
    renewal = Renewal(context, cert, key, require=lambda _: None)
    running = asyncio.create_task(renewal.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            for path, renewed in zip((cert, key), certificate(tmp_path / "new"), strict=True):
                renewed.replace(path)
            while not context.changed_by:  # noqa: ASYNC110 - files are looked at again and again
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
    assert set(context.changed_by) == {threading.get_ident()}


def signed(folder: Path, days: tuple[int, int], *others: tuple[str, tuple[int, int]]) -> Validity:
    """What is known of a certificate of these days by "authority", in a file with others of those names and days."""
    key = ec.generate_private_key(ec.SECP256R1())
    today = datetime.datetime.now(datetime.UTC)

    def pem(subject: str, issuer: str, days: tuple[int, int]) -> bytes:
        named = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in (subject, issuer)]
        begins, ends = (today + datetime.timedelta(days=each) for each in days)
        builder = x509.CertificateBuilder(named[1], named[0], key.public_key(), 1, begins, ends)
        names = x509.SubjectAlternativeName([x509.DNSName("*.Example.org"), x509.DNSName("a.b.example.org")])
        return builder.add_extension(names, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM)

    cert, key_file = folder / "chain.pem", folder / "chain-key.pem"
    cert.write_bytes(pem("own", "authority", days) + b"".join(pem(name, "root", each) for name, each in others))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return validity_of(cert, key_file)


@pytest.mark.parametrize(
    ("days", "others", "told"),
    [
        ((-1, 90), [], ""),
        ((-1, 90), [("authority", (-9, 90)), ("of-another-way", (-9, -1))], ""),
        ((-1, 3), [], "ends on"),
        ((-9, -1), [], "is over since"),
        ((-1, 90), [("authority", (-9, -1))], "is over since"),
        ((1, 90), [], "begins on"),
        ((-1, 90), [("authority", (1, 90))], "begins on"),
    ],
)
def test_what_clients_refuse_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: Any, others: Any, told: str
) -> None:
    """By its own days, and by those of the authority's certificate beside it."""
    validity = signed(tmp_path, days, *others)
    renewal = Renewal(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *certificate(tmp_path), require=lambda _: None)
    renewal.validity = validity
    renewal._tell()
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)
    assert addon._valid(validity, "certificate", "").is_ok is not bool(told)


def test_a_certificate_is_for_its_names(tmp_path: Path) -> None:
    validity = signed(tmp_path, (-1, 90))
    assert [validity.is_for(host) for host in ("memory.example.org", "A.b.example.org", "Memory.Example.org.")] == [
        True
    ] * 3
    assert not any(
        validity.is_for(host) for host in ("example.org", "b.b.example.org", "memory.example.com", "org", "")
    )
