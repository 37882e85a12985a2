"""The models of forgetting in crypto/formal/ have the hash and the signatures of the code."""

from __future__ import annotations

from hashlib import blake2b

from tests.support.crypto.model_terms import model, term
from tests.support.sealing.rosters import LAPTOP, NOW, SPACE

from confide_crypto.keys.identity import verify
from confide_memory.documents import text_hash
from confide_memory.forgetting import RECEIPT_LABEL, ForgetRecord, key_id, whole_hash

KEY = bytes(range(32))
CONTENT = text_hash("the old plan of the house\n")


def record() -> ForgetRecord:
    return ForgetRecord(bytes(16), SPACE.hex(), NOW, LAPTOP.public_key, key_id(KEY), texts=(whole_hash(KEY, CONTENT),))


def test_a_record_is_signed_as_the_model_says() -> None:
    """PROTOCOL.md 9.11. All of it is signed; space, id, key and hashes stand in it."""
    signed = record().sign(LAPTOP)
    made = term(model("forgetting.pvl", "MakeForgetRecord").replace("(record, sign", "made sign"), "made ")
    assert made.bytes({"record": signed.data}, LAPTOP) == signed.signature
    for field in (SPACE.hex(), bytes(16).hex(), LAPTOP.public_key.hex()):
        assert field.encode() in signed.data


def test_a_receipt_is_signed_as_the_model_says() -> None:
    """By the device; the daemon's signature is of the same bytes."""
    signature = term(
        model("receipt.pvl", "Owner").replace("out(c, sign(ed(x), (label_receipt", "made sign(ed(x), (label_receipt"),
        "made ",
    )
    assert verify(LAPTOP.public_key, RECEIPT_LABEL, b"a receipt", signature.bytes({"receipt": b"a receipt"}, LAPTOP))


def test_a_text_is_known_by_a_keyed_hash() -> None:
    """BLAKE2b with the space's key, and a person that says what is hashed: 60 proves that nobody tests a guess without it."""
    expected = blake2b(CONTENT.encode(), digest_size=16, key=KEY, person=b"text").digest()
    assert whole_hash(KEY, CONTENT) == expected
    assert whole_hash(bytes(32), CONTENT) != expected
