"""A second reader of receipts says what ours does of each one, and both refuse it with any byte changed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from tests.interop import receipts
from tests.support.daemon.forgetful import Forgetful
from tests.support.daemon.loopback import Machine, serving
from tests.support.sealing.founder import Device

from confide_memory.errors import ReceiptError
from confide_memory.forgetting import receipt_of

FLIPS = 400


def is_refused_by_both(data: bytes) -> bool:
    refused = 0
    try:
        receipts.read(data)
    except receipts.RefusedError:
        refused += 1
    try:
        receipt_of(data)
    except ReceiptError:
        refused += 1
    return refused == 2


async def test_both_read_a_daemons_receipt_and_refuse_any_other_byte(tmp_path: Path) -> None:
    """As the program, too, which imports nothing of Confide."""
    async with serving(tmp_path / "data") as daemon:
        identity = daemon.enroll("laptop", space="home")
        async with Machine(await daemon.connect(identity)) as laptop:
            await laptop.attach()
            device = Device(identity)
            await device.found(laptop)
            own = Forgetful(laptop, device)
            await laptop.put("memory/a.md", "# A\n\nThe zanzibar plan of quillfeather begins at dawn.\n")
            signed = await own.forget(["memory/a.md"])
            data = await own.receipt(signed)
    assert receipts.read(data) == receipt_of(data)
    assert b"zanzibar" not in data
    assert b"memory/a.md" not in data
    drawn = random.Random(7)
    places = [*drawn.sample(range(len(data)), min(FLIPS, len(data))), 0, len(data) - 1]
    for at in places:
        assert is_refused_by_both(data[:at] + bytes([data[at] ^ (1 << drawn.randrange(8))]) + data[at + 1 :])
    for other in (data[:-1], data + b"\n", b" " + data, data.replace(b'"outOfScope":[', b'"outOfScope":[],"x":['), b""):
        assert is_refused_by_both(other)
    file = tmp_path / "receipt.json"
    file.write_bytes(data)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.interop.receipts", str(file)]
    done = await asyncio.to_thread(subprocess.run, command, cwd=root, capture_output=True, text=True, check=True)
    assert "database tables, full text, vectors, free pages, write-ahead log: gone" in done.stdout
