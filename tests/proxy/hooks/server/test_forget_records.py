"""Which records of forgetting a device takes from a daemon, and what becomes of those whose device was removed (PROTOCOL.md 9.11)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, SPACE, device, shared

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_memory.forgetting import ForgetRecord, Hashes, SignedRecord, ids_digest, key_id
from confide_memory.forms import to_json
from confide_memory.wire.forgotten import FORGET_SYNC, FORGET_TAKE
from confide_proxy.hooks.server.forgetting.forgotten_texts import ForgetRecords, exchange
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.paths import ProxyPaths

KEY = bytes(range(32))
LINE = "The zanzibar plan of quillfeather begins at dawn."


def record(by: Identity) -> SignedRecord:
    """Of the line."""
    parts = tuple(Hashes(KEY).of_text(LINE))
    return ForgetRecord(b"r" * 16, SPACE.hex(), NOW, by.public_key, key_id(KEY), parts=parts).sign(by)


def rosters() -> tuple[Roster, Roster]:
    """With laptop, desktop and phone; and after the desktop has removed the phone."""
    roster, keys = shared()
    roster = roster.add(DESKTOP, device(PHONE, "phone"), keys, now=NOW + 3)
    return roster, roster.remove(DESKTOP, PHONE.public_key, keys, now=NOW + 4)[0]


@dataclass
class Shown:
    """A daemon that shows these records, and takes others."""

    records: list[SignedRecord] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def request(self, name: str, said: Any, **_more: Any) -> dict[str, Any]:
        self.asked.append(name)
        if name == "forget-take":
            self.records.append(SignedRecord(base64.b64decode(said["record"]), bytes.fromhex(said["signature"])))
            return to_json({"documents": 0, "done": True}, FORGET_TAKE.answer_fields)
        items = [
            {"record": one.data, "signature": one.signature, "key": KEY, "lifted": b""}
            for one in self.records
            if one.record.id.hex() not in said["have"]
        ]
        return to_json({"records": items, "complete": True, "wanted": []}, FORGET_SYNC.answer_fields)


class Machine:
    """A device with a queued store of the line."""

    def __init__(self, root: Path, identity: Identity) -> None:
        self.paths = ProxyPaths(root / "proxy.toml", root / "proxy", root / "g", root / "d")
        self.identity = identity
        self.paths.state.mkdir(parents=True)
        call = QueuedCall("0" * 32, 0.0, "", "p", "memory_store", "memory/a.md", "p", {"content": LINE})
        Journal(self.paths.journal).append(call)

    async def connect(self, shown: Shown, roster: Roster) -> None:
        async def identity() -> Identity:
            return self.identity

        keyring = SimpleNamespace(roster=roster, identity=identity)
        attached = {"forgotten": ids_digest(one.record.id for one in shown.records)}
        await exchange(*cast("Any", (self.paths, shown, keyring, attached)))

    @property
    def waits(self) -> bool:
        return bool(Journal(self.paths.journal).heads())


async def test_a_removed_device_and_a_hostile_daemon_drop_nothing_that_waits(tmp_path: Path) -> None:
    """Its record has no effect, is not asked for again, and is not brought to another daemon."""
    before, after = rosters()
    machine = Machine(tmp_path, DESKTOP)
    shown = Shown([record(PHONE)])
    await machine.connect(shown, after)
    assert machine.waits
    assert not ForgetRecords(machine.paths).is_forgotten(LINE)
    await machine.connect(shown, after)
    assert shown.asked == ["forget-sync"]
    other = Machine(tmp_path / "other", LAPTOP)
    await other.connect(Shown([record(PHONE)]), before)
    assert not other.waits


async def test_what_a_device_forgot_before_its_removal_is_forgotten_on_those_that_come_later(tmp_path: Path) -> None:
    """A device that had taken the record then signs it again, once, whichever it is."""
    before, after = rosters()
    first, second, late = (Machine(tmp_path / str(at), one) for at, one in enumerate((DESKTOP, LAPTOP, DESKTOP)))
    shown = Shown([record(PHONE)])
    for machine in (first, second):
        await machine.connect(shown, before)
        assert not machine.waits
    await first.connect(shown, after)
    await second.connect(shown, after)
    assert [one.record.by for one in shown.records] == [PHONE.public_key, DESKTOP.public_key]
    await late.connect(shown, after)
    assert not late.waits
    assert all(one.is_signed for one in shown.records)


async def test_a_briefing_that_a_session_is_writing_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renamed over the one that was read before; so it must be read under its new name."""
    machine = Machine(tmp_path, DESKTOP)
    machine.paths.briefings.mkdir()
    written = machine.paths.briefings / ".new"
    written.write_text(json.dumps({"lines": [LINE]}))
    read = Path.read_bytes

    def read_bytes(file: Path) -> bytes:
        if file == written:
            file.rename(machine.paths.briefings / "shop.json")
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    await machine.connect(Shown([record(LAPTOP)]), rosters()[0])
    assert not list(machine.paths.briefings.iterdir())
