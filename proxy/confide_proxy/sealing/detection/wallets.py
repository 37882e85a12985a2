"""Find private keys of blockchain wallets, and distinguish them from public addresses. Both are in
Base58, as Bitcoin writes it: without 0, O, I and l.

Keys and addresses look alike, so their decoded content decides. Bitcoin's keys and addresses, and
those of its kin, have a checksum (Base58Check). Solana's have none: a key pair is known by its
public half, which follows from the private one, and an address only by the name that it has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.prefilter import compile_once

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS: Final = {digit: value for value, digit in enumerate(_ALPHABET)}
_WORD: Final = r"(?<![A-Za-z0-9])[1-9A-HJ-NP-Za-km-z]{51,88}(?![A-Za-z0-9])"
_SHORTEST: Final = 51
_CHECK_BYTES: Final = 4
_PRIVATE: Final = 0x80
"""Lowest version of a private key: those of addresses are below it."""
_WIF: Final = (33, 34)
"""Bytes of a private key with its version; the longer one is for a compressed public key."""
_ENCRYPTED: Final = (b"\x01\x42", b"\x01\x43")
"""Starts of a private key with a passphrase (BIP 38), of 39 bytes."""
_ENCRYPTED_BYTES: Final = 39
_ADDRESS_BYTES: Final = 21
_PAIR_BYTES: Final = 64
_SEED_BYTES: Final = 32
_LONGEST_ADDRESS: Final = 44
_OF_ADDRESSES: Final = (
    r"mint|address|addr|pubkey|program|contract|token[_ -]?(?:in|out|[abxy01])$"
    r"|(?:^|[_ -])(?:from|to|in|out|input|output|base|quote)[_ -]?token$"
)


def find_keys(text: str, long: Iterable[str]) -> Iterator[SecretFinding]:
    """Yield each private key of a wallet: Bitcoin's WIF and BIP 38, and Solana's pair of keys. `long`
    are the text's long words.
    """
    if any(len(word) >= _SHORTEST for word in long):
        for match in compile_once(_WORD).finditer(text):
            if _is_key(match[0]):
                yield SecretFinding("wallet-key", *match.span(), 0.95, "token")


def is_address(value: str, name: str) -> bool:
    """Return True if a value is an address, which is public: one with a checksum, or one of Solana
    with a name that an address has (`tokenMint`, `fromToken`).
    """
    return len(value) <= _LONGEST_ADDRESS and (
        len(_checked(value)) == _ADDRESS_BYTES
        or (bool(compile_once(_OF_ADDRESSES, re.IGNORECASE).search(name)) and is_public_key(value))
    )


def is_public_key(value: str) -> bool:
    """Return True if a value has the form of an address of Solana. A random token may have it by
    chance.
    """
    return len(value) <= _LONGEST_ADDRESS and len(_decode(value)) == _SEED_BYTES


def _is_key(word: str) -> bool:
    if len(held := _checked(word)) in _WIF:
        return held[0] >= _PRIVATE
    if len(held) == _ENCRYPTED_BYTES:
        return held.startswith(_ENCRYPTED)
    pair = _decode(word) if len(word) > 2 * _LONGEST_ADDRESS - 2 else b""
    if len(pair) != _PAIR_BYTES:
        return False
    from nacl.bindings import crypto_sign_seed_keypair  # hardly any text has a word like it

    return bool(crypto_sign_seed_keypair(pair[:_SEED_BYTES])[0] == pair[_SEED_BYTES:])


def _checked(word: str) -> bytes:
    """Return what a word in Base58Check holds, without the checksum; empty if that is wrong."""
    data = _decode(word)
    held = data[:-_CHECK_BYTES]
    digest = hashlib.sha256(hashlib.sha256(held).digest()).digest()
    return held if digest[:_CHECK_BYTES] == data[-_CHECK_BYTES:] else b""


def _decode(word: str) -> bytes:
    """Return the bytes of a word in Base58; empty if it is not in it."""
    number = 0
    for digit in word:
        if (value := _DIGITS.get(digit)) is None:
            return b""
        number = number * len(_ALPHABET) + value
    zeros = len(word) - len(word.lstrip(_ALPHABET[0]))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
