"""A device that has something forgotten, as a daemon sees it: it asks for a plan, signs a record, and fetches the receipt."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.daemon.loopback import Machine, Serving
from tests.support.sealing.founder import Device

from confide_daemon.store.database import connect
from confide_memory.forgetting import (
    RECEIPT_LABEL,
    ForgetRecord,
    Hashes,
    SignedRecord,
    canonical,
    hashes_of,
    key_id,
    unpacked_parts,
)


class Forgetful:
    """A founder of a space, connected."""

    def __init__(self, machine: Machine, device: Device) -> None:
        self.machine = machine
        self.device = device
        self.given: dict[str, Any] = {}

    async def plan(self, paths: Sequence[str] = (), *, text: str = "", project: str = "proj") -> dict[str, Any]:
        """What a record would hold."""
        if not text:
            return await self.machine.request("forget-plan", {"project": project, "paths": list(paths)})
        key = bytes.fromhex((await self.machine.request("forget-plan", {}))["key"])
        parts = b"".join(part.pack() for part in Hashes(key).of_text(text))
        return await self.machine.request("forget-plan", {"parts": base64.b64encode(parts).decode()})

    def signed(self, plan: dict[str, Any], *, file: bool = False, at: int | None = None) -> SignedRecord:
        """A record of a plan."""
        raw = {name: base64.b64decode(plan[name]) for name in ("names", "texts", "parts", "sealed")}
        record = ForgetRecord(
            os.urandom(16),
            self.device.roster.space.hex(),
            int(time.time()) if at is None else at,
            self.device.identity.public_key,
            key_id(bytes.fromhex(plan["key"])),
            hashes_of(raw["names"]),
            hashes_of(raw["texts"]),
            tuple(unpacked_parts(raw["parts"])),
            plan["ofParts"],
            hashes_of(raw["sealed"]),
            file,
        )
        return record.sign(self.device.identity)

    async def forget(
        self, paths: Sequence[str] = (), *, text: str = "", file: bool = False, project: str = "proj"
    ) -> SignedRecord:
        """All of it; `given` has what was sent, to be sent again."""
        plan = await self.plan(paths, text=text, project=project)
        signed = self.signed(plan, file=file)
        self.given = {
            "record": base64.b64encode(signed.data).decode(),
            "signature": signed.signature.hex(),
            "key": plan["key"],
        }
        await self.machine.request("forget-take", self.given)
        return signed

    async def receipt(self, signed: SignedRecord) -> bytes:
        """The file, signed by both."""
        answer = await self.machine.request("forget-receipt", {"id": signed.record.id.hex()})
        body = base64.b64decode(answer["receipt"])
        identity = self.device.identity
        return canonical(
            {
                "receipt": json.loads(body),
                "device": identity.public_key.hex(),
                "daemonSignature": answer["signature"],
                "deviceSignature": identity.sign(RECEIPT_LABEL, body).hex(),
            }
        )


def place(daemon: Serving, name: str = "home") -> tuple[Path, bytes]:
    """The file of a space, and its key."""
    space_id = daemon.state.registry.spaces()[name]
    return daemon.state.folder.space(space_id), daemon.state.master.space_key(space_id)


def vectors(path: Path, key: bytes, project_path: str) -> list[bytes]:
    """Every vector that is stored of a document, as it is stored."""
    connection = connect(path, key, writer=False)
    try:
        sql = "SELECT c.id FROM chunk c JOIN document d ON d.id = c.document WHERE d.path = ?"
        chunks = [int(one) for (one,) in connection.execute(sql, (project_path,))]
        sql = "SELECT name FROM sqlite_schema WHERE name GLOB 'vector_[0-9]*' AND type = 'table'"
        found: list[bytes] = []
        for (table,) in list(connection.execute(sql)):
            columns = [str(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            if "chunk" not in columns:
                continue
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                if row[columns.index("chunk")] in chunks:
                    found += [value for value in row if isinstance(value, bytes)]
        hashes = connection.execute("SELECT vector FROM vector_cache").fetchall()
        return found + [bytes(value) for (value,) in hashes]
    finally:
        connection.close()
