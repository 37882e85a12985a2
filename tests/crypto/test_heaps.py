"""What a process gives back to the system is no loss to it, whatever its C library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from confide_crypto import heaps


@pytest.mark.parametrize("call", [heaps.give_back, lambda: heaps.share(8)])
def test_another_c_library_is_no_error(call: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    call()
