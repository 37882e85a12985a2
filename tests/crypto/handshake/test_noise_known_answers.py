"""Wycheproof's edge cases, and X-Wing's known answers, against the libraries as we call them.

They check what the handshake relies on: all-zero results, small-order and malformed keys and forged tags are refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, Suite
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError, CryptoError

from confide_crypto.handshake.noise import CipherState, KeyPair, NoiseError, dh
from confide_crypto.keys.identity import Identity, verify

VECTORS = Path(__file__).parents[2] / "vectors"
X_WING_LABEL = bytes.fromhex("5c2e2f2f5e5c")


def wycheproof(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    groups = json.loads((VECTORS / "wycheproof" / f"{name}.json").read_text())["testGroups"]
    return [(group, case) for group in groups for case in group["tests"]]


def unhex(case: dict[str, Any], key: str) -> bytes:
    return bytes.fromhex(case[key])


def test_x25519_gives_the_known_secret_and_refuses_an_all_zero_one() -> None:
    """518 cases, 31 of them small-order points that must fail (PROTOCOL.md 4.6)."""
    refused = 0
    for _, case in wycheproof("x25519_test"):
        if case["shared"] == "00" * 32:
            with pytest.raises(NoiseError):
                dh(unhex(case, "private"), unhex(case, "public"))
            refused += 1
        else:
            assert dh(unhex(case, "private"), unhex(case, "public")) == unhex(case, "shared"), case["tcId"]
    assert refused == 31


def test_ed25519_agrees_with_every_verdict() -> None:
    for group, case in wycheproof("ed25519_test"):
        signed = unhex(case, "sig") + unhex(case, "msg")
        try:
            crypto_sign_open(signed, unhex(group["publicKey"], "pk"))
            accepted = True
        except (BadSignatureError, CryptoError, ValueError):
            accepted = False
        assert accepted == (case["result"] == "valid"), case["tcId"]


def test_a_small_order_or_mixed_order_key_signs_nothing() -> None:
    """With such a key one signature would hold for many messages, so anybody could pass as its owner."""
    vectors = json.loads((VECTORS / "noise" / "ed25519-to-x25519.json").read_text())
    signature = Identity.generate().sign(b"label", b"data")
    identity_point = bytes([1]) + bytes(31)
    for key in vectors["must_reject_ed25519_public"]:
        public_key = bytes.fromhex(key)
        assert not verify(public_key, b"label", b"data", signature)
        assert not verify(
            public_key, b"label", b"data", identity_point + bytes(32)
        )  # R = A = 0, S = 0: holds algebraically


def test_the_static_key_is_not_the_converted_identity_key() -> None:
    """PROTOCOL.md 2.2: Noise wants a static key that is used nowhere else."""
    case = json.loads((VECTORS / "noise" / "ed25519-to-x25519.json").read_text())["vectors"][0]
    identity = Identity(bytes.fromhex(case["ed25519_seed"]))
    assert identity.public_key.hex() == case["ed25519_public"]
    assert identity.static_key.hex() != case["x25519_public"]
    assert KeyPair.from_secret(bytes.fromhex(case["x25519_secret"])).public.hex() == case["x25519_public"]


def test_chacha20_poly1305_agrees_with_every_verdict() -> None:
    for _, case in wycheproof("chacha20_poly1305_test"):
        key, nonce, ad = unhex(case, "key"), unhex(case, "iv"), unhex(case, "aad")
        sealed = unhex(case, "ct") + unhex(case, "tag")
        try:
            opened = ChaCha20Poly1305(key).decrypt(nonce, sealed, ad)
        except (InvalidTag, ValueError):
            assert case["result"] != "valid", case["tcId"]
        else:
            assert case["result"] == "valid", case["tcId"]
            assert opened == unhex(case, "msg")
            assert ChaCha20Poly1305(key).encrypt(nonce, opened, ad) == sealed


def test_a_cipher_state_is_that_aead_with_a_little_endian_counter() -> None:
    """Noise 12.3: 32 zero bits and a 64-bit little-endian counter."""
    key = bytes(range(32))
    state = CipherState(key)
    for number in range(300):
        nonce = bytes(4) + number.to_bytes(8, "little")
        assert state.encrypt(b"text", b"ad") == ChaCha20Poly1305(key).encrypt(nonce, b"text", b"ad")


def test_ml_kem_768_decapsulates_as_known_and_refuses_malformed_input() -> None:
    checked = 0
    for _, case in wycheproof("mlkem_768_test.subset"):
        try:
            key = MLKEM768PrivateKey.from_seed_bytes(unhex(case, "seed"))
            secret = key.decapsulate(unhex(case, "c"))
        except ValueError:
            assert case["result"] == "invalid", case["tcId"]
            continue
        assert case["result"] == "valid", case["tcId"]
        assert secret.hex() == case["K"]
        assert key.public_key().public_bytes_raw().hex() == case["ek"]
        checked += 1
    assert checked >= 20


def test_ml_kem_768_refuses_public_keys_with_coefficients_over_the_modulus() -> None:
    """FIPS 203 7.2; the daemon's only check on `ek` (PROTOCOL.md 4.3)."""
    refused = 0
    for _, case in wycheproof("mlkem_768_encaps_test.subset"):
        try:
            MLKEM768PublicKey.from_public_bytes(unhex(case, "ek")).encapsulate()
        except ValueError:
            assert case["result"] == "invalid", case["tcId"]
            refused += 1
        else:
            assert case["result"] == "valid", case["tcId"]
    assert refused >= 20


@pytest.mark.parametrize("case", json.loads((VECTORS / "xwing" / "xwing-draft.json").read_text()), ids=["1", "2", "3"])
def test_ml_kem_and_x25519_together_give_x_wings_answers(case: dict[str, Any]) -> None:
    """X-Wing put together from the two primitives as the handshake calls them gives the draft's shared secrets."""
    expanded = hashlib.shake_256(unhex(case, "sk")).digest(96)
    kem, x = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), KeyPair.from_secret(expanded[64:])
    assert (kem.public_key().public_bytes_raw() + x.public).hex() == case["pk"]
    ciphertext = unhex(case, "ct")
    secrets = kem.decapsulate(ciphertext[:1088]), dh(x.secret, ciphertext[1088:])
    assert hashlib.sha3_256(b"".join((*secrets, ciphertext[1088:], x.public, X_WING_LABEL))).hexdigest() == case["ss"]


@pytest.mark.parametrize(
    "case", json.loads((VECTORS / "xwing" / "hpke-pq-0x647a.json").read_text()), ids=["hkdf", "shake"]
)
def test_hpke_with_x_wing_opens_the_known_answers(case: dict[str, Any]) -> None:
    """The suite that wraps space keys opens what others sealed. The vectors have `aad`, which only the library's private call takes."""
    kdf = {1: KDF.HKDF_SHA256, 17: KDF.SHAKE256}[case["kdf_id"]]
    suite = Suite(KEM.MLKEM768_X25519, kdf, AEAD.CHACHA20_POLY1305)
    expanded = hashlib.shake_256(unhex(case, "skRm")).digest(96)
    key = MLKEM768X25519PrivateKey(
        MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])
    )
    first = case["encryptions"][0]
    sealed = unhex(case, "enc") + unhex(first, "ct")
    opened = openssl.hpke._decrypt_with_aad(suite, sealed, key, info=unhex(case, "info"), aad=unhex(first, "aad"))
    assert opened == unhex(first, "pt")
    with pytest.raises(InvalidTag):
        openssl.hpke._decrypt_with_aad(
            suite, sealed[:-1] + bytes([sealed[-1] ^ 1]), key, info=unhex(case, "info"), aad=unhex(first, "aad")
        )
