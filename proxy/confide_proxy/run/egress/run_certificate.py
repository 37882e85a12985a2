"""Make the certificate by which a run's proxy can answer the command in place of the hosts that get
a secret.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEFORE: Final = timedelta(hours=1)
_LASTS: Final = timedelta(days=30)


class RunCertificate(NamedTuple):
    """The certificates of one run.

    Attributes:
        authority: the certificate of the run's certificate authority, PEM. It is valid for these
            hosts alone, and its key is discarded after signing.
        context: the TLS context with which the proxy answers as these hosts.
    """

    authority: bytes
    context: ssl.SSLContext


def make(hosts: Sequence[str]) -> RunCertificate:
    """Make a certificate authority for one run, and a certificate for these hosts signed by it.
    Raises OSError if a temporary file cannot be written.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(host) for host in dict.fromkeys(hosts)]
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"confide run {secrets.token_hex(4)}")])
    known_by = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _certificate(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.NameConstraints(names, None), critical=True)
        .add_extension(known_by, critical=False)
        .issuer_name(authority_name)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "confide run")]), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known_by), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .issuer_name(authority_name)
        .sign(authority_key, hashes.SHA256())
    )
    pem = authority.public_bytes(serialization.Encoding.PEM)
    return RunCertificate(pem, _server_context(leaf, key))


def _certificate(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).public_key(key).serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BEFORE).not_valid_after(now + _LASTS)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _server_context(leaf: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    """Return TLS with a certificate. `ssl` reads keys from files only, so this one is there for a
    moment, encrypted.
    """
    password = secrets.token_bytes(32).hex()
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.NamedTemporaryFile() as file:
        file.write(sealed + leaf.public_bytes(serialization.Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name, password=password)
    return context
