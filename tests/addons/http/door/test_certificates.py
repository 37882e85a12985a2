"""A certificate that is renewed while people come."""

from __future__ import annotations

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.certificates import certificate

from confide_http.door import certificates
from confide_http.door.certificates import Renewal


class Watched(ssl.SSLContext):
    """A context that says which thread has changed what it serves."""

    changed_by: list[int]

    def load_cert_chain(self, *args: Any, **kwargs: Any) -> None:
        self.changed_by.append(threading.get_ident())
        super().load_cert_chain(*args, **kwargs)


async def test_no_handshake_meets_a_new_certificate_with_the_old_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL takes one after the other, so they change in the thread that begins handshakes, and between two of them."""
    monkeypatch.setattr(certificates, "POLL_S", 0.0)
    cert, key = certificate(tmp_path)
    (tmp_path / "new").mkdir()
    context = Watched(ssl.PROTOCOL_TLS_SERVER)
    context.changed_by = []
    renewal = Renewal(context, cert, key, require=lambda _: None)
    running = asyncio.create_task(renewal.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            for path, renewed in zip((cert, key), certificate(tmp_path / "new"), strict=True):
                renewed.replace(path)
            while not context.changed_by:  # noqa: ASYNC110 - files are looked at again and again
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
    assert set(context.changed_by) == {threading.get_ident()}
