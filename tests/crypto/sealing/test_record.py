"""Sealed records and their names: what opens them, what does not, and what a daemon learns."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt
from tests.support.sealing.rosters import KEYS, SPACE, flipped

from confide_crypto.errors import EXIT_KEYS, RecordError, UnknownEpochError, WrongKeyError
from confide_crypto.sealing.placeholder import Placeholder, find, is_kind
from confide_crypto.sealing.placeholder import replace as put_back
from confide_crypto.sealing.record import MAX_RECORD, MAX_VALUE, SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys

TOKEN = b"ghp_0123456789abcdefghijklmnopqrstuvwxyz"
LATER = KEYS.next_epoch()


def F(label: bytes, *parts: bytes) -> bytes:  # noqa: N802 - PROTOCOL.md's name
    return label + b"\0" + b"".join(struct.pack(">I", len(part)) + part for part in parts)


def blake(data: bytes, key: bytes, person: bytes, size: int = 32) -> bytes:
    return hashlib.blake2b(data, key=key, person=person, digest_size=size).digest()


def crafted(
    plaintext: bytes,
    *,
    space: bytes = SPACE,
    epoch: int = 1,
    kind: bytes = b"github-token",
    secret_id: bytes | None = None,
    key: bytes | None = None,
) -> bytes:
    """PROTOCOL.md 10.2 and 10.3, written down a second time: a record as any holder of the key can make it, also a hostile one."""
    first = key or KEYS.epochs[0]
    value = plaintext[4 : 4 + int.from_bytes(plaintext[:4], "big")]
    id_key = blake(b"", first, b"confide-id-key-1")
    named = struct.pack(">I", len(kind)) + kind + struct.pack(">I", len(value)) + value
    secret_id = secret_id or blake(named, id_key, b"confide-secret-1", 16)
    about = F(b"confide-secret/1", space, struct.pack(">I", epoch), secret_id, kind)
    nonce = bytes(range(24))
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(
        plaintext, about, nonce, blake(secret_id, first, b"confide-record-1")
    )
    commitment = blake(nonce + about, first, b"confide-commit-1")
    return struct.pack(">BIB", 1, epoch, len(kind)) + kind + secret_id + commitment + nonce + box


def padded(value: bytes) -> bytes:
    data = struct.pack(">I", len(value)) + value
    return data + bytes(-len(data) % 64)


def test_a_secret_comes_back_and_its_record_shows_its_kind_alone() -> None:
    record = SealedRecord.seal(KEYS, "github-token", TOKEN)
    data = record.encode()
    assert SealedRecord.parse(data) == record
    assert record.open(KEYS) == TOKEN
    assert (record.kind, record.epoch) == ("github-token", 1)
    assert TOKEN[:8] not in data
    assert KEYS.epochs[0].hex() not in repr(KEYS)


def test_the_bytes_are_those_of_the_protocol() -> None:
    expected = crafted(padded(TOKEN))
    assert SealedRecord.seal(KEYS, "github-token", TOKEN, nonce=bytes(range(24))).encode() == expected
    assert SealedRecord.parse(expected).open(KEYS) == TOKEN
    about = struct.pack(">I", 16) + SPACE + struct.pack(">II", 4, 1)
    assert KEYS.database_key(1) == blake(about, KEYS.epochs[0], b"confide-dbkey-1")
    assert KEYS.commitment(1) == blake(about, KEYS.epochs[0], b"confide-epoch-1")


def test_the_same_secret_has_the_same_name_for_ever_and_nothing_else_in_common() -> None:
    one, two = SealedRecord.seal(KEYS, "password", b"hunter2"), SealedRecord.seal(LATER, "password", b"hunter2")
    assert one.secret_id == two.secret_id
    assert (one.nonce, one.commitment) != (two.nonce, two.commitment)
    assert (one.epoch, two.epoch) == (1, 2)
    names = {
        KEYS.secret_id(kind, value)
        for kind, value in (
            ("password", b"hunter2"),
            ("password", b"hunter3"),
            ("passwor", b"dhunter2"),
            ("token", b"hunter2"),
        )
    }
    assert len(names) == 4
    assert SpaceKeys.generate().secret_id("password", b"hunter2") not in names


def test_lengths_within_a_block_look_alike() -> None:
    sizes = {len(SealedRecord.seal(KEYS, "k", bytes([1]) * length).encode()) for length in range(1, 61)}
    assert len(sizes) == 1
    assert len(SealedRecord.seal(KEYS, "k", bytes(61)).encode()) == sizes.pop() + 64


def test_a_key_of_another_space_or_epoch_fails_at_the_commitment() -> None:
    """Not at the tag, which a clever sender can make fit two keys: the ciphertext is never looked at."""
    record = SealedRecord.seal(KEYS, "password", b"hunter2")
    other = SpaceKeys(SPACE, (bytes(32),))
    elsewhere = SpaceKeys(bytes(16), KEYS.epochs)
    empty = replace(record, ciphertext=b"")
    for keys in (other, elsewhere):
        with pytest.raises(WrongKeyError) as caught:
            empty.open(keys)
        assert caught.value.exit_code == EXIT_KEYS
    with pytest.raises(WrongKeyError):
        replace(record, epoch=2).open(LATER)


def test_a_record_of_an_epoch_to_come_says_so() -> None:
    record = SealedRecord.seal(LATER, "password", b"hunter2")
    with pytest.raises(UnknownEpochError, match="epoch 2") as caught:
        record.open(KEYS)
    assert caught.value.epoch == 2
    with pytest.raises(UnknownEpochError):
        KEYS.key(0)


def test_every_changed_bit_is_refused() -> None:
    data = SealedRecord.seal(KEYS, "password", b"hunter2").encode()
    tried = 0
    for bad in flipped(data):
        tried += 1
        with pytest.raises((RecordError, UnknownEpochError)):
            SealedRecord.parse(bad).open(KEYS)
    assert tried == 8 * len(data) >= 1300


def test_every_cut_and_every_tail_is_refused() -> None:
    data = SealedRecord.seal(KEYS, "password", b"hunter2").encode()
    for bad in [data[:length] for length in range(len(data))] + [data + b"\0", data + bytes(64)]:
        with pytest.raises(RecordError):
            SealedRecord.parse(bad).open(KEYS)


@pytest.mark.parametrize(
    "plaintext",
    [
        bytes(64),
        struct.pack(">I", 61).ljust(64, b"a"),
        struct.pack(">I", 2**32 - 1).ljust(64, b"a"),
        (struct.pack(">I", 1) + b"a").ljust(128, b"\0"),
        (struct.pack(">I", 1) + b"a").ljust(63, b"\0") + b"\1",
    ],
    ids=["empty", "longer than it is", "far longer", "a block too many", "padding that is not zero"],
)
def test_a_holder_of_the_key_cannot_seal_out_of_form(plaintext: bytes) -> None:
    with pytest.raises(RecordError, match="damaged"):
        SealedRecord.parse(crafted(plaintext)).open(KEYS)


def test_a_holder_of_the_key_cannot_give_a_secret_anothers_name() -> None:
    with pytest.raises(RecordError, match="damaged"):
        SealedRecord.parse(crafted(padded(b"mine"), secret_id=bytes(16))).open(KEYS)


def test_versions_kinds_and_sizes_have_bounds() -> None:
    data = SealedRecord.seal(KEYS, "password", b"hunter2").encode()
    with pytest.raises(RecordError, match="does not know"):
        SealedRecord.parse(b"\2" + data[1:])
    with pytest.raises(RecordError, match="larger"):
        SealedRecord.parse(bytes(MAX_RECORD + 1))
    with pytest.raises(RecordError):
        SealedRecord.parse(crafted(padded(TOKEN), kind=b"Upper"))
    with pytest.raises(RecordError):
        SealedRecord.parse(crafted(padded(TOKEN), epoch=0))
    largest = SealedRecord.seal(KEYS, "a" * 32, bytes([7]) * MAX_VALUE)
    assert SealedRecord.parse(largest.encode()).open(KEYS) == bytes([7]) * MAX_VALUE
    assert len(largest.encode()) <= MAX_RECORD
    with pytest.raises(RecordError, match="damaged"):
        SealedRecord.parse(crafted(padded(bytes(MAX_VALUE + 1)))).open(KEYS)
    for kind, value in (
        ("k", b""),
        ("k", bytes(MAX_VALUE + 1)),
        ("", b"x"),
        ("a" * 33, b"x"),
        ("1a", b"x"),
        ("a\n", b"x"),
    ):
        with pytest.raises(ValueError, match=r"kind|secret"):
            SealedRecord.seal(KEYS, kind, value)
    assert not is_kind("é")


def test_old_records_come_under_the_new_key_when_they_are_touched() -> None:
    old = SealedRecord.seal(KEYS, "password", b"hunter2")
    new = old.reseal(LATER)
    assert (new.epoch, new.secret_id, new.open(LATER)) == (2, old.secret_id, b"hunter2")
    assert new.reseal(LATER) is new


def test_space_keys_have_a_form() -> None:
    for space, epochs in ((SPACE[1:], KEYS.epochs), (SPACE, ()), (SPACE, (bytes(31),))):
        with pytest.raises(ValueError, match="space"):
            SpaceKeys(space, epochs)
    assert LATER.epochs[0] == KEYS.epochs[0]
    assert LATER.database_key(2) != LATER.database_key(1) == KEYS.database_key(1)


@pytest.mark.long
@given(st.binary(min_size=1, max_size=300), st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True))
def test_any_value_and_kind_come_back(value: bytes, kind: str) -> None:
    record = SealedRecord.parse(SealedRecord.seal(LATER, kind, value).encode())
    assert record.open(LATER) == value
    assert record.secret_id == LATER.secret_id(kind, value)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    try:
        record = SealedRecord.parse(data)
    except RecordError:
        return
    assert record.encode() == data


ID = bytes(range(16))
MARK = f"(sealed:github-token:{ID.hex()})"


def test_a_placeholder_names_kind_and_id_in_one_word() -> None:
    placeholder = Placeholder("github-token", ID)
    assert str(placeholder) == MARK
    assert not any(character.isspace() for character in MARK)
    assert Placeholder.parse(MARK) == placeholder
    with pytest.raises(ValueError, match="placeholder"):
        Placeholder("Not A Kind", ID)
    with pytest.raises(ValueError, match="placeholder"):
        Placeholder("k", ID[1:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        MARK[1:],
        MARK[:-1],
        MARK.upper(),
        MARK.replace("github", "git hub"),
        MARK.replace("0f", "0F"),
        MARK[:-2] + ")",
        MARK[:-1] + "0)",
        MARK + "\n",
        "(sealed::" + ID.hex() + ")",
        "(sealed:k:" + "٣" * 32 + ")",
        "[sealed:k:" + ID.hex() + "]",
    ],
)
def test_what_looks_nearly_like_one_is_just_text(text: str) -> None:
    assert Placeholder.parse(text) is None
    assert put_back(text.replace("\n", ""), lambda _: None) == text.replace("\n", "")


def test_placeholders_are_found_wherever_they_stand() -> None:
    other = Placeholder("password", ID[::-1])
    text = f"pg://me:{other}@host x{MARK}{MARK} - token: {MARK}."
    assert [found for _, _, found in find(text)] == [other, *[Placeholder("github-token", ID)] * 3]
    assert all(text[start:end] == str(found) for start, end, found in find(text))


def test_values_are_put_back_and_the_unknown_stays_text() -> None:
    """A value is not looked into: a secret that reads like a placeholder brings no other secret out."""
    unknown = f"(sealed:password:{'00' * 16})"
    text = f"a {MARK} b {unknown} c {MARK}"
    assert (
        put_back(text, lambda found: unknown + "!" if found.secret_id == ID else None)
        == f"a {unknown}! b {unknown} c {unknown}!"
    )
    assert put_back("nothing here", lambda _: "x") == "nothing here"


def test_the_key_for_hashes_of_files_stays_the_same_in_all_epochs() -> None:
    """Another space has another one, and it is none of the keys that encrypt."""
    assert KEYS.tie_key() == LATER.tie_key() == blake(b"", KEYS.epochs[0], b"confide-ties-1")
    assert SpaceKeys.generate().tie_key() != KEYS.tie_key()
    assert KEYS.tie_key() not in LATER.epochs
