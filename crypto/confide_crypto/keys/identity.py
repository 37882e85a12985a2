"""Identities: a 32-byte seed, from which the Ed25519 identity key and the X25519 Noise static key
are derived (PROTOCOL.md 2).

PyNaCl does Ed25519 and X25519, since libsodium itself refuses small-order public keys and all-zero
results. It is imported at the first use of a key, since both programs load this module at start. A
passphrase may encrypt the seed in its file (2.5).
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_scalarmult_base,
    crypto_sign,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from confide_crypto.errors import KeyFileError, KeyTextError, PassphraseError
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity_file import SEALED_PREFIX, SEED_PREFIX, identity_line, is_pem, no_identity
from confide_crypto.keys.private_files import read_private_file, write_private_file

KEY_LENGTH: Final = 32
SIGNATURE_LENGTH: Final = 64
PUBLIC_KEY_WORD: Final = "confide-ed25519"
_PUBLIC_PREFIX: Final = "confide"
_DAEMON_PREFIX: Final = "confided"
_STATIC_PERSON: Final = b"confide-static-1"
_WORDS_PERSON: Final = b"confide-words-1"
_WORD_BITS: Final = 11
_WORD_COUNT: Final = 6
MAX_NAME: Final = 64
_SEALED_VERSION: Final = 1
_SEALED_LABEL: Final = b"confide/sealed-key/1\0"
_SEALED_HEADER: Final = struct.Struct(">BII16s24s32s")
_SEALED_LENGTH: Final = KEY_LENGTH + 16
OPSLIMIT: Final = 3
MEMLIMIT_KIB: Final = 256 * 1024
"""libsodium's MODERATE: half a second and 256 MiB for each guess."""
MOST_OPSLIMIT: Final = 10
MOST_MEMLIMIT_KIB: Final = 1024 * 1024
"""Upper bound, so that an attacker who replaces the key file cannot make Confide allocate 100 GB;
libsodium's SENSITIVE fits.
"""
SHORTEST_PASSPHRASE: Final = 8
LONGEST_PASSPHRASE: Final = 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """The secret seed of a device or a daemon, from which all its keys are derived. `repr` shows no
    part of the seed.
    """

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_LENGTH:
            raise ValueError("a seed has 32 bytes")

    @classmethod
    def generate(cls) -> Identity:
        """Create an identity from the operating system's random numbers."""
        return cls(secrets.token_bytes(KEY_LENGTH))

    @classmethod
    def load(cls, path: Path) -> Identity:
        """Read an identity file: either Confide's one-line form, or an Ed25519 key as unencrypted
        PKCS#8 PEM.

        Raises KeyFileError if other users can read the file, another user owns it, or it is
        damaged.
        """
        return cls.parse(path, read_private_file(path))

    @classmethod
    def parse(cls, path: Path, data: bytes) -> Identity:
        """Parse `data`, the content of the identity file at `path`.

        Raises KeyFileError if it is damaged, or encrypted with a passphrase.
        """
        if is_pem(data):
            return cls(_seed_from_pem(path, data))
        prefix, seed = identity_line(path, data)
        if prefix == SEALED_PREFIX:
            raise KeyFileError(path, "is sealed with a passphrase, and cannot be used here like that")
        if prefix != SEED_PREFIX or len(seed) != KEY_LENGTH:
            raise no_identity(path)
        return cls(seed)

    def save(self, path: Path) -> None:
        """Write a new identity file (mode 0600) in a private folder (mode 0700).

        Raises FileExistsError if the file exists, since an identity is never overwritten;
        KeyFileError if it cannot be written.
        """
        write_private_file(path, self.to_file())

    def to_file(self) -> bytes:
        """Return the content of an identity file: a comment line, and the secret seed as text."""
        return f"# Confide identity. Anyone who has this file can act as this device.\n{self.to_line()}\n".encode()

    def to_line(self) -> str:
        """Return the secret seed as one line of text (PROTOCOL.md 2.3)."""
        return bech32m.encode(SEED_PREFIX, self.seed).upper()

    @property
    def public_key(self) -> bytes:
        """The Ed25519 public key, 32 bytes, which identifies the device or daemon."""
        return bytes(crypto_sign_seed_keypair(self.seed)[0])

    @property
    def static_secret(self) -> bytes:
        """The X25519 secret of the Noise static key, 32 bytes. It is not converted from the Ed25519
        key, because Noise 14 requires a static key that is used for nothing else.
        """
        return hashlib.blake2b(key=self.seed, person=_STATIC_PERSON, digest_size=KEY_LENGTH).digest()

    @property
    def static_key(self) -> bytes:
        """The X25519 public Noise static key, 32 bytes. Clients remember a daemon's and accept no
        other (pinning).
        """
        return bytes(crypto_scalarmult_base(self.static_secret))

    def sign(self, label: bytes, data: bytes) -> bytes:
        """Return the Ed25519 signature (64 bytes) over `label`, a zero byte and `data`.

        The label prevents a signature for one purpose from being used for another.
        """
        secret = crypto_sign_seed_keypair(self.seed)[1]
        return bytes(crypto_sign(_with_label(label, data), secret)[:SIGNATURE_LENGTH])


@dataclass(frozen=True, slots=True)
class SealedKey:
    """An identity's seed encrypted under a passphrase: XChaCha20-Poly1305 with a key from Argon2id
    (PROTOCOL.md 2.5).

    The public key is stored beside it unencrypted, so that a device can show its identity without
    the passphrase.
    """

    public_key: bytes  # the Ed25519 key, 32 bytes, of the identity inside
    opslimit: int  # Argon2id's passes
    memlimit_kib: int  # Argon2id's memory in KiB
    salt: bytes  # 16 bytes
    nonce: bytes  # 24 bytes
    ciphertext: bytes  # the sealed seed with its tag, 48 bytes

    @classmethod
    def seal(
        cls, identity: Identity, passphrase: str, *, opslimit: int = OPSLIMIT, memlimit_kib: int = MEMLIMIT_KIB
    ) -> Self:
        """Encrypt the seed of `identity` under `passphrase`.

        Raises PassphraseError if the passphrase is too short or too long, or the key derivation
        does not get enough memory.
        """
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise PassphraseError(
                f"a passphrase has at least {SHORTEST_PASSPHRASE} characters", hint="four or five random words are good"
            )
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(24)
        bare = cls(identity.public_key, opslimit, memlimit_kib, salt, nonce, b"")
        key = bare._key(passphrase)
        ciphertext = crypto_aead_xchacha20poly1305_ietf_encrypt(
            identity.seed, _SEALED_LABEL + bare._header(), nonce, key
        )
        return cls(bare.public_key, opslimit, memlimit_kib, salt, nonce, ciphertext)

    @classmethod
    def parse(cls, path: Path, payload: bytes) -> Self:
        """Parse the encrypted seed from `payload`, the decoded line of the file `path`.

        Raises KeyFileError if the length or the version is not supported, or the cost parameters
        are out of bounds.
        """
        damaged = KeyFileError(path, "is damaged", hint="restore it from a copy, or move it away and join again")
        if payload[:1] and payload[0] != _SEALED_VERSION:
            raise KeyFileError(
                path, "is sealed in a way that this version does not know", hint="is confide up to date?"
            )
        if len(payload) != _SEALED_HEADER.size + _SEALED_LENGTH:
            raise damaged
        _, opslimit, memlimit_kib, salt, nonce, public_key = _SEALED_HEADER.unpack_from(payload)
        if not (1 <= opslimit <= MOST_OPSLIMIT and 8 <= memlimit_kib <= MOST_MEMLIMIT_KIB):
            raise KeyFileError(path, "asks for more memory or time than a passphrase may cost", hint=damaged.hint)
        return cls(public_key, opslimit, memlimit_kib, salt, nonce, payload[_SEALED_HEADER.size :])

    def open(self, passphrase: str) -> Identity:
        """Decrypt the identity. With the usual costs this takes half a second and 256 MiB.

        Raises PassphraseError if the passphrase is wrong, the file was changed, or there is not
        enough memory.
        """
        key = self._key(passphrase)
        try:
            seed = crypto_aead_xchacha20poly1305_ietf_decrypt(
                self.ciphertext, _SEALED_LABEL + self._header(), self.nonce, key
            )
        except CryptoError:
            raise PassphraseError("this passphrase does not open the key", hint="try again; mind capitals") from None
        identity = Identity(seed)
        # The cipher does not commit to its key: an attacker could write a file that opens to two
        # different seeds under two passphrases.
        if identity.public_key != self.public_key:
            raise PassphraseError("the key inside is not the one that the file names", hint="restore the file")
        return identity

    def to_line(self) -> str:
        """Return the encrypted seed as the line of an identity file."""
        return bech32m.encode(SEALED_PREFIX, self._header() + self.ciphertext).upper()

    def _header(self) -> bytes:
        return _SEALED_HEADER.pack(
            _SEALED_VERSION, self.opslimit, self.memlimit_kib, self.salt, self.nonce, self.public_key
        )

    def _key(self, passphrase: str) -> bytes:
        import unicodedata  # a megabyte of tables, not needed for a key without a passphrase

        from nacl.pwhash import argon2id

        # The same word typed on two devices may have different code points.
        data = unicodedata.normalize("NFC", passphrase).encode("utf-8", "backslashreplace")
        if len(data) > LONGEST_PASSPHRASE:
            raise PassphraseError(f"a passphrase has at most {LONGEST_PASSPHRASE} bytes")
        try:
            return bytes(argon2id.kdf(32, data, self.salt, opslimit=self.opslimit, memlimit=self.memlimit_kib * 1024))
        except (CryptoError, MemoryError):
            raise PassphraseError(
                f"there is not enough memory to try a passphrase: it takes {self.memlimit_kib // 1024} MiB",
                hint="close something, and try again",
            ) from None


def verify(public_key: bytes, label: bytes, data: bytes, signature: bytes) -> bool:
    """Return True if `signature` was made with `public_key` over `label` and `data`.

    Small-order and non-canonical keys never verify.
    """
    if len(public_key) != KEY_LENGTH or len(signature) != SIGNATURE_LENGTH:
        return False
    try:
        crypto_sign_open(signature + _with_label(label, data), public_key)
    except CryptoError:
        return False
    return True


def from_hex(text: object, length: int) -> bytes:
    """Decode a key or a signature of `length` bytes from hex.

    Raises ValueError if `text` is not exactly that many bytes in lower-case hex. Capitals are
    refused so that all implementations accept the same texts.
    """
    if not isinstance(text, str):
        raise ValueError("not a text")
    data = bytes.fromhex(text)
    if len(data) != length or data.hex() != text:
        raise ValueError("not the lower-case hex of so many bytes")
    return data


def _with_label(label: bytes, data: bytes) -> bytes:
    if b"\0" in label:
        raise ValueError("a label has no zero byte")
    return label + b"\0" + data


def fingerprint_words(public_key: bytes) -> str:
    """Return six words by which people compare a public key: 66 bits of its hash (PROTOCOL.md 2.4)."""
    digest = hashlib.blake2b(public_key, person=_WORDS_PERSON, digest_size=KEY_LENGTH).digest()
    number = int.from_bytes(digest, "big") >> (8 * KEY_LENGTH - _WORD_BITS * _WORD_COUNT)
    words = word_list()
    places = (number >> _WORD_BITS * place & 2**_WORD_BITS - 1 for place in reversed(range(_WORD_COUNT)))
    return "-".join(words[place] for place in places)


def typed_words(text: str) -> str:
    """Return words that a user typed in the form of `fingerprint_words`, whatever blanks, hyphens
    and capitals the user typed.
    """
    return "-".join(text.lower().replace("-", " ").split())


@cache
def word_list() -> tuple[str, ...]:
    """Return the 2,048 words of BIP-39 (English), in order."""
    return tuple(Path(__file__).with_name("words.txt").read_text("ascii").split())


def format_public_key(public_key: bytes, name: str) -> str:
    """Return a device's public key as the line that a daemon's operator pastes: `confide-ed25519
    confide1… name`.
    """
    return f"{PUBLIC_KEY_WORD} {bech32m.encode(_PUBLIC_PREFIX, public_key)} {name}".rstrip()


def parse_public_key(line: str) -> tuple[bytes, str]:
    """Parse a public key line into the Ed25519 key and the name; the name is "" if the line has
    none.

    Raises KeyTextError if the line is malformed.
    """
    parts = line.strip().split(maxsplit=2)
    if len(parts) < 2 or parts[0] != PUBLIC_KEY_WORD:
        raise KeyTextError(
            f"this is not a public key line: it must begin with {PUBLIC_KEY_WORD}",
            hint="confide device key show prints it",
        )
    name = parts[2].strip() if len(parts) == 3 else ""
    if len(name) > MAX_NAME or not name.isprintable():
        raise KeyTextError(f"the name behind the public key is longer than {MAX_NAME} characters or not printable")
    return _parse(parts[1], _PUBLIC_PREFIX, "public key"), name


def format_daemon_key(static_key: bytes) -> str:
    """Return a daemon's X25519 static key as text: `confided1…`."""
    return bech32m.encode(_DAEMON_PREFIX, static_key)


def parse_daemon_key(text: str) -> bytes:
    """Return the 32 bytes of a daemon's static key from its text. Raises KeyTextError if it is
    malformed.
    """
    return _parse(text.strip(), _DAEMON_PREFIX, "daemon key")


def _parse(text: str, prefix: str, what: str) -> bytes:
    try:
        found, key = bech32m.decode(text)
    except ValueError as error:
        raise KeyTextError(f"this {what} cannot be read: {error}", hint="copy it again, whole") from None
    if found != prefix or len(key) != KEY_LENGTH:
        raise KeyTextError(f"this is not a {what}: it would begin with {prefix}1 and hold 32 bytes")
    return key


def _seed_from_pem(path: Path, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if b"OPENSSH PRIVATE KEY" in data:
        raise KeyFileError(
            path,
            "is a private key in OpenSSH's own form",
            hint="make an Ed25519 key as PKCS#8: openssl genpkey -algorithm ed25519",
        )
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        decrypt = f"decrypt it first: (umask 077; openssl pkey -in {path} -out plain.pem), and delete plain.pem when it is imported"
        raise KeyFileError(path, "is a private key that is encrypted", hint=decrypt) from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(
            path, "is a damaged private key", hint="an unencrypted Ed25519 key as PKCS#8 PEM is taken"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(
            path, "is a private key of another kind than Ed25519", hint="openssl genpkey -algorithm ed25519 makes one"
        )
    return key.private_bytes_raw()
