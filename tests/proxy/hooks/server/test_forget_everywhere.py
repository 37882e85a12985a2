"""A device signs the receipt of the very record that it has signed, whatever a daemon puts into it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, SPACE

from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import RECEIPT_LABEL, ForgetRecord, SignedRecord, canonical, receipt_of
from confide_memory.forms import to_json
from confide_memory.wire.forgotten import FORGET_RECEIPT
from confide_proxy.hooks.server.forgetting.forget_everywhere import ForgetPlace, receipt_for

RECORD = ForgetRecord(bytes(16), SPACE.hex(), NOW, LAPTOP.public_key, bytes(8), texts=(b"t" * 16,))
PLACE = {"place": "database", "name": "all", "level": "gone", "at": NOW}


def receipt(record: SignedRecord) -> dict[str, Any]:
    """As a daemon, the desktop here, makes it."""
    return {
        "version": 1,
        "record": record.body,
        "recordSignature": record.signature.hex(),
        "daemon": DESKTOP.public_key.hex(),
        "at": NOW,
        "places": [PLACE],
        "outOfScope": ["what a model was sent"],
    }


async def answered(tmp_path: Path, data: bytes) -> bytes:
    """What the device keeps where a daemon answers with this receipt."""

    async def request(_name: str, _said: Any, **_more: Any) -> dict[str, Any]:
        return to_json({"receipt": data, "signature": DESKTOP.sign(RECEIPT_LABEL, data)}, FORGET_RECEIPT.answer_fields)

    async def identity() -> Any:
        return LAPTOP

    keyring = SimpleNamespace(identity=identity)
    paths = SimpleNamespace(forget_receipts=tmp_path / "receipts")
    place = ForgetPlace(*cast("Any", (paths, SimpleNamespace(request=request), SimpleNamespace(keyring=keyring), None)))
    return (await receipt_for(place, RECORD.sign(LAPTOP))).file.read_bytes()


async def test_the_receipt_of_its_record_is_signed_and_kept(tmp_path: Path) -> None:
    kept = await answered(tmp_path, canonical(receipt(RECORD.sign(LAPTOP))))
    assert receipt_of(kept)["record"] == RECORD.sign(LAPTOP).body


OTHER = replace(RECORD, texts=(b"o" * 16,))
OWN, OF_DAEMON = RECORD.sign(LAPTOP), replace(OTHER, by=DESKTOP.public_key).sign(DESKTOP)


@pytest.mark.parametrize(
    "other",
    [OTHER.sign(LAPTOP), OF_DAEMON, SignedRecord(OTHER.encode(), OWN.signature), SignedRecord(OWN.data, bytes(64))],
    ids=["this device's", "the daemon's", "with the right signature", "without a signature"],
)
async def test_another_record_of_the_same_id_is_not_signed(tmp_path: Path, other: SignedRecord) -> None:
    """The device would say that a text was forgotten of which it knows nothing."""
    with pytest.raises(UnfitAnswerError):
        await answered(tmp_path, canonical(receipt(other)))
    assert not (tmp_path / "receipts").exists()


@pytest.mark.parametrize("data", [b"", b"[]\n", b"{}\n", b"\xff", canonical({"record": 1})])
async def test_what_is_no_receipt_is_not_signed(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnfitAnswerError):
        await answered(tmp_path, data)


async def test_a_place_that_was_changed_is_not_signed(tmp_path: Path) -> None:
    said = receipt(RECORD.sign(LAPTOP))
    changed = json.dumps({**said, "places": []}).encode()
    with pytest.raises(UnfitAnswerError):
        await answered(tmp_path, changed)
