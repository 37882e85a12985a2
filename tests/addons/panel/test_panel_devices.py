"""The page of the devices, as far as it says something of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.sealing.rosters import DESKTOP, LAPTOP, shared

from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_panel.page_context import PageContext
from confide_panel.pages import devices


async def test_whom_to_remove_on_the_server_is_said_by_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's name for the device may have been changed, and this one be another's there."""
    words, said = fingerprint_words(DESKTOP.public_key), []

    async def refresh(_link: object) -> None:
        """It is up to date."""

    async def identity() -> Identity:
        return LAPTOP

    async def remove(_keyring: object, _link: object, key: bytes) -> None:
        assert key == DESKTOP.public_key

    monkeypatch.setattr(devices, "remove_device", remove)
    keyring = SimpleNamespace(roster=shared()[0], refresh=refresh, identity=identity)
    exchange = SimpleNamespace(session=SimpleNamespace(sealing=SimpleNamespace(keyring=keyring)), link=None)
    form = {"words": words, "typed": "desktop"}
    desk: Any = SimpleNamespace(
        gateway=SimpleNamespace(exchange=exchange),
        form_text=lambda name, _most: form[name],
        go=lambda _page, told: said.append(told),
    )
    await devices.remove(cast("PageContext", desk))
    assert f"confided device rm NAME, with the name that confided device ls shows beside {words}" in said[0]
    assert "device rm desktop" not in said[0]
