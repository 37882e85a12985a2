"""A second reader of receipts (PROTOCOL.md 9.11), from the protocol alone: JSON and Ed25519 of libraries, no code of Confide.

python -m tests.interop.receipts RECEIPT
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any, Final

import nacl.exceptions
import nacl.signing

LEVELS: Final = frozenset({"gone", "pending", "gone when it connects", "kept", "not known"})
_SIZES: Final = {"names": (16, 1024), "texts": (16, 4096), "parts": (16, 16_384), "sealed": (16, 4096)}


class RefusedError(Exception):
    """It is no receipt, or it was changed."""


def form(value: Any) -> bytes:
    """The only form of an object."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"


def _signed(key: str, label: bytes, data: bytes, signature: str) -> None:
    if len(key) != 64 or len(signature) != 128 or (key + signature).lower() != key + signature:
        raise RefusedError
    nacl.signing.VerifyKey(bytes.fromhex(key)).verify(label + b"\x00" + data, bytes.fromhex(signature))


def read(data: bytes) -> dict[str, Any]:
    """The receipt in a file. Raises RefusedError."""
    try:
        whole = json.loads(data)
        if form(whole) != data or set(whole) != {"receipt", "device", "daemonSignature", "deviceSignature"}:
            raise RefusedError
        receipt: dict[str, Any] = whole["receipt"]
        if set(receipt) != {"version", "record", "recordSignature", "daemon", "at", "places", "outOfScope"}:
            raise RefusedError
        record = receipt["record"]
        for name, (size, most) in _SIZES.items():
            held = base64.b64decode(record[name], validate=True)
            if len(held) % size or len(held) > size * most:
                raise RefusedError
        if receipt["version"] != 1 or record["version"] != 1 or not receipt["outOfScope"] or not receipt["places"]:
            raise RefusedError
        if not {place["level"] for place in receipt["places"]} <= LEVELS:
            raise RefusedError
        _signed(receipt["daemon"], b"confide forget receipt 1", form(receipt), whole["daemonSignature"])
        _signed(whole["device"], b"confide forget receipt 1", form(receipt), whole["deviceSignature"])
        _signed(record["by"], b"confide forget record 1", form(record), receipt["recordSignature"])
    except (ValueError, KeyError, TypeError, AttributeError, nacl.exceptions.CryptoError):
        raise RefusedError from None
    return receipt


if __name__ == "__main__":
    try:
        found = read(Path(sys.argv[1]).read_bytes())
    except RefusedError:
        sys.exit("refused")
    for place in found["places"]:
        sys.stdout.write(f"{place['place']} {place['name']}: {place['level']}\n")
