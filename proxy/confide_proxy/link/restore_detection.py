"""Detection of a daemon that was restored from an older copy of its data folder, and the record of
what this changed in this device's files (PROTOCOL.md 9.2).

The daemon gives each device receipts, and a device shows its newest one when it connects. A daemon
that is shown a receipt which its copy of the data cannot have given has been restored, and
increases its count of restores. A device that sees a higher count records a restore. The next
process that serves a folder then compares it once, reading every file, and records the result for
`confide status`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from confide_crypto import atomic, portable
from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys.private_files import make_private_dir, read_private_file
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.documents import RequestChannel
from confide_memory.wire.session import RECEIPT, Attached
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

FRESH_S: Final = 2.0
"""Seconds after a message until a receipt that covers it is requested: a loss in this window is not
detected.
"""
TOLD_S: Final = 30 * 86_400.0
_DEADLINE_S: Final = 10.0
_LONGEST: Final = 128
_MOST_BYTES: Final = 1 << 20
_MOST_PATHS: Final = 1000


class LinkStats(RequestChannel, Protocol):
    """A link that counts its messages."""

    is_up: bool | None
    message_count: int
    attached: Attached | None


class DaemonReceipts:
    """The daemon's receipts for this device's space, in files that all processes of the device
    share. Methods access the disk briefly.
    """

    def __init__(self, paths: ProxyPaths) -> None:
        self._newest = paths.receipt
        self._restores = paths.restores

    def newest(self) -> str:
        """Return the newest receipt that the daemon has given this device; "" without one."""
        return str(self._read().get("receipt", ""))

    def space(self) -> str:
        """Return the id of the space that the newest receipt is about; "" without a receipt."""
        return str(self._read().get("space", ""))

    def take(self, attached: Attached) -> None:
        """Save the receipt from the response to an `attach` request. Record a restore of the daemon
        if the response counts more restores than the last one.
        """
        space, receipt, restores = attached["space"], attached["receipt"], attached["restores"]
        if not _is_receipt(receipt):
            return  # this daemon gives no receipts
        known = self._read()
        before = known.get("restores") if known.get("space") == space else None
        if isinstance(before, int) and restores > before:
            log.warning("the daemon was restored from an older copy; every file is compared again")
            self._note(space, restores, noticed=time.time(), backTo=attached["backTo"])
        self._write({"space": space, "receipt": receipt, "restores": restores})

    def keep(self, space: str, receipt: str) -> None:
        """Save a newer receipt, if it is about the same space as the saved one."""
        known = self._read()
        if known.get("space") == space and _is_receipt(receipt):
            self._write({**known, "receipt": receipt})

    async def keep_fresh(self, link: LinkStats) -> None:
        """Request a new receipt at intervals, if messages have passed over the link since the last
        one. Runs until cancelled.
        """
        passed = 0
        while True:
            await asyncio.sleep(FRESH_S)
            attached = link.attached
            if attached is None or not link.is_up or link.message_count == passed or not attached["receipt"]:
                continue
            passed = link.message_count + 1  # count this request
            try:
                answer = await RECEIPT.ask(link, {}, timeout_s=_DEADLINE_S)
                await asyncio.to_thread(self.keep, attached["space"], answer["receipt"])
            except (ConfideError, TimeoutError):
                raise_if_cancelled()

    def uncompared_folders(self, space: str, folders: Iterable[Path]) -> set[Path]:
        """Return those of the folders that were not yet compared with the daemon since its last
        restore.
        """
        newest = max((line["restores"] for line in self._lines(space) if "noticed" in line), default=None)
        if newest is None:
            return set()
        done = {line.get("folder") for line in self._lines(space) if line["restores"] == newest}
        return {folder for folder in folders if os.fspath(folder) not in done}

    def record_comparison(self, space: str, folder: Path, *, again: list[str], back: list[str]) -> None:
        """Record that a folder was compared with the daemon after a restore.

        Args:
            again: paths of unchanged files that were sent again, since the daemon had lost them.
            back: paths of deleted files that came back.
        """
        newest = max((line["restores"] for line in self._lines(space) if "noticed" in line), default=None)
        if newest is not None:
            named = {"again": again[:_MOST_PATHS], "back": back[:_MOST_PATHS]}
            self._note(space, newest, folder=os.fspath(folder), **named)

    def report(self) -> dict[str, Any] | None:
        """Return a report on the daemon's last restore, for users; None if there was none within a
        month.

        Its keys are `backTo`, the time of the restored copy (None if unknown), and `noticed`, both
        in ISO 8601; `sentAgain`, a number of files; and `cameBack`, the paths of deleted files that
        came back.
        """
        space = str(self._read().get("space", ""))
        lines = list(self._lines(space))
        noticed = [line for line in lines if isinstance(line.get("noticed"), float)]
        if not noticed or time.time() - noticed[-1]["noticed"] > TOLD_S:
            return None
        last = noticed[-1]
        these = [line for line in lines if line["restores"] == last["restores"] and "folder" in line]
        return {
            "backTo": last.get("backTo"),
            "noticed": datetime.fromtimestamp(last["noticed"]).astimezone().isoformat(timespec="seconds"),
            "sentAgain": sum(len(_paths(line, "again")) for line in these),
            "cameBack": sorted({path for line in these for path in _paths(line, "back")}),
        }

    def _note(self, space: str, restores: int, **said: Any) -> None:
        line = json.dumps({"space": space, "restores": restores, **said}).encode() + b"\n"
        with suppress(OSError, KeyFileError):  # a full disk: files are still compared, at each connection
            make_private_dir(self._restores.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK
            fd = os.open(self._restores, flags, 0o600)
            try:
                if os.fstat(fd).st_size > _MOST_BYTES:
                    os.ftruncate(fd, 0)
                os.write(fd, line)
            finally:
                os.close(fd)

    def _lines(self, space: str) -> Iterator[dict[str, Any]]:
        try:
            data = self._restores.read_bytes()
        except OSError:
            return
        for line in data.splitlines():
            with suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict) and said.get("space") == space and isinstance(said.get("restores"), int):
                    yield said

    def _read(self) -> dict[str, Any]:
        with suppress(KeyFileError, ValueError, RecursionError):
            if self._newest.exists():
                said = json.loads(read_private_file(self._newest))
                return said if isinstance(said, dict) else {}
        return {}

    def _write(self, known: dict[str, object]) -> None:
        with suppress(OSError, KeyFileError):  # a full disk: the older receipt covers all but the changes since
            make_private_dir(self._newest.parent)
            # Without fsync, which a connection would have to wait for: a power cut leaves an older
            # receipt, or no file.
            atomic.write(self._newest, json.dumps(known).encode(), is_kept=False)


def _is_receipt(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable()


def _paths(line: dict[str, Any], name: str) -> list[str]:
    found = line.get(name)
    return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []
