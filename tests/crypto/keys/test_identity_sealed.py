"""An identity under a passphrase: what opens it, what does not, and what a hostile file cannot ask for."""

from __future__ import annotations

import resource
import struct
import sys
import unicodedata
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt

from confide_crypto.errors import EXIT_KEYS, KeyFileError, PassphraseError
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import Identity, SealedKey
from confide_crypto.keys.identity_file import SEALED_PREFIX
from confide_crypto.keys.private_files import write_private_file

SEED = bytes(range(32))
WORDS = "correct horse battery staple"
PATH = Path("identity.key")


def sealed(passphrase: str = WORDS) -> SealedKey:
    """Sealed as cheaply as it can be."""
    return SealedKey.seal(Identity(SEED), passphrase, opslimit=1, memlimit_kib=8)


def payload(key: SealedKey) -> bytes:
    prefix, data = bech32m.decode(key.to_line())
    assert prefix == SEALED_PREFIX
    return data


def test_only_the_passphrase_opens_it() -> None:
    key = SealedKey.parse(PATH, payload(sealed()))
    assert key.open(WORDS).seed == SEED
    assert key.public_key == Identity(SEED).public_key
    for wrong in ("", WORDS + " ", WORDS.upper(), WORDS[:-1]):
        with pytest.raises(PassphraseError, match="does not open") as caught:
            key.open(wrong)
        assert caught.value.exit_code == EXIT_KEYS
        assert caught.value.hint


def test_two_seals_share_nothing_but_the_public_key() -> None:
    one, two = sealed(), sealed()
    assert one.salt != two.salt
    assert one.nonce != two.nonce
    assert one.ciphertext != two.ciphertext


@pytest.mark.long
def test_what_a_person_seals_costs_half_a_second_and_256_mib() -> None:
    key = SealedKey.seal(Identity(SEED), WORDS)
    assert struct.unpack(">BII", payload(key)[:9]) == (1, 3, 262144)
    assert key.open(WORDS).seed == SEED


def test_the_bytes_are_those_of_the_protocol() -> None:
    """PROTOCOL.md 2.5, written down a second time with another library's Argon2id."""
    identity = Identity(SEED)
    salt, nonce = bytes(16), bytes(range(24))
    key = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=64).derive(WORDS.encode())
    header = struct.pack(">BII", 1, 2, 64) + salt + nonce + identity.public_key
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(SEED, b"confide/sealed-key/1\0" + header, nonce, key)
    line = bech32m.encode("confide-sealed-key-", header + box).upper()
    assert len(header + box) == 129
    assert SealedKey.parse(PATH, bech32m.decode(line)[1]).open(WORDS) == identity
    assert SealedKey.parse(PATH, bech32m.decode(line)[1]).to_line() == line


def test_every_changed_byte_is_noticed() -> None:
    good = payload(sealed())
    for place in range(len(good)):
        for bits in (1, 0x80):
            bad = bytearray(good)
            bad[place] ^= bits
            with pytest.raises((PassphraseError, KeyFileError)):
                SealedKey.parse(PATH, bytes(bad)).open(WORDS)


def test_a_key_that_is_not_the_one_the_file_names_is_refused() -> None:
    """XChaCha20-Poly1305 lets whoever writes a file make it open under two passphrases, to two seeds."""
    salt, nonce = bytes(16), bytes(range(24))
    key = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=64).derive(WORDS.encode())
    header = struct.pack(">BII", 1, 2, 64) + salt + nonce + Identity(bytes(32)).public_key
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(SEED, b"confide/sealed-key/1\0" + header, nonce, key)
    with pytest.raises(PassphraseError, match="not the one that the file names"):
        SealedKey.parse(PATH, header + box).open(WORDS)


@pytest.mark.parametrize(
    ("opslimit", "memlimit_kib"), [(3, 100 * 2**20), (3, 2**32 - 1), (2**32 - 1, 8), (11, 8), (0, 8), (1, 7), (3, 0)]
)
def test_a_hostile_file_cannot_ask_for_memory_or_time(opslimit: int, memlimit_kib: int) -> None:
    """Refused on reading, before a passphrase is asked for."""
    data = bytearray(payload(sealed()))
    data[1:9] = struct.pack(">II", opslimit, memlimit_kib)
    with pytest.raises(KeyFileError, match="more memory or time"):
        SealedKey.parse(PATH, bytes(data))


def test_other_versions_and_lengths_are_refused() -> None:
    good = payload(sealed())
    with pytest.raises(KeyFileError, match="does not know"):
        SealedKey.parse(PATH, b"\x02" + good[1:])
    for bad in (b"", good[:-1], good + b"\0"):
        with pytest.raises(KeyFileError, match="damaged"):
            SealedKey.parse(PATH, bad)


def test_the_same_passphrase_typed_on_another_machine_opens_it() -> None:
    """Accents come composed from one keyboard and in two code points from another."""
    composed = "pâté à la crème"
    apart = unicodedata.normalize("NFD", composed)
    assert apart != composed
    assert sealed(composed).open(apart).seed == SEED


def test_a_passphrase_has_a_length() -> None:
    with pytest.raises(PassphraseError, match="at least 8"):
        sealed("1234567")
    with pytest.raises(PassphraseError, match="at most 1024"):
        sealed("é" * 513)


def test_a_sealed_file_is_no_plain_one(tmp_path: Path) -> None:
    """Who cannot ask for a passphrase (the daemon) says what it is, and quotes nothing."""
    path = tmp_path / "home" / "identity.key"
    line = sealed().to_line()
    write_private_file(path, line.encode())
    with pytest.raises(KeyFileError, match="sealed with a passphrase") as caught:
        Identity.load(path)
    assert line[30:50] not in str(caught.value)
    assert SEED.hex() not in repr(sealed())


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on address space, and /proc")
def test_too_little_memory_is_said_so() -> None:
    """A process that may have no more than it has: it is not told that its passphrase is wrong."""
    asking = payload(sealed())
    hungry = SealedKey.parse(PATH, asking[:5] + struct.pack(">I", 256 * 1024) + asking[9:])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 32 * 2**20, limits[1]))
    try:
        with pytest.raises(PassphraseError, match="not enough memory to try a passphrase: it takes 256 MiB"):
            hungry.open(WORDS)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
