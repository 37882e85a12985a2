"""What a command prints is masked by the values that this device knows by their hashes, and by those that a session hands over."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.programs.processes import wait_until

from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.link.session_values import SessionValues
from confide_proxy.run.run_masks import RunMasks
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.masking import Mask

OWN = "xK7mQ2vR9tLw4zz"
HANDED = "ghp_a1B2c3D4e5F6g7H8i9J0"
KEPT = "bT5nW8-qY3rZ6/uL1"
"""A value that this device knows and no session has any more."""
LATER = "pL4kJ9hG2fD7sA1q"
FILLER = b"2026-11-29T12:00:00Z INFO nothing that a device knows is in this line\n"

WAYS: dict[str, Callable[[str], bytes]] = {
    "itself": str.encode,
    "base64": lambda value: base64.b64encode(value.encode()),
    "base64 within": lambda value: base64.b64encode(f"user:{value}".encode()),
    "hex": lambda value: value.encode().hex().encode(),
    "an address": lambda value: quote(value, safe="").encode(),
    "percent escapes": lambda value: b"".join(b"%%%02x" % byte for byte in value.encode()),
    "some percent escapes": lambda value: b"https://example.com/?t=%%%02X%s" % (ord(value[0]), value[1:].encode()),
    "\\x": lambda value: b"".join(b"\\x%02x" % byte for byte in value.encode()),
    "\\u": lambda value: b"'%s'" % b"".join(b"\\u%04x" % ord(letter) for letter in value),
    "references": lambda value: b"".join(b"&#%d;" % ord(letter) for letter in value),
    "invisible": lambda value: "\u200b".join(value).encode(),
    "full width": lambda value: "".join(chr(ord(letter) + 0xFEE0) for letter in value).encode(),
    "emphasis": lambda value: f"{value[:5]}**{value[5:]}**".encode(),
    "a colour": lambda value: f"{value[:5]}\x1b[1;31m{value[5:9]}\x1b[0m{value[9:]}".encode(),
    "a tag": lambda value: f"{value[:5]}<b>{value[5:]}</b>".encode(),
}


class _Device:
    """The masks of a run on a device that knows values, and what a session has handed over."""

    def __init__(self, folder: Path) -> None:
        self.keys = SpaceKeys.generate()
        self.known = KnownValues(folder, lambda: self.keys)
        self.known.remember(("token", value.encode()) for value in (HANDED, KEPT))
        self.is_handed = False
        own = {self.named(OWN): OWN.encode()}
        self.masks = RunMasks(own, folder, self.keys.space, self.keys.epochs[0], self.pages)

    def named(self, value: str) -> Placeholder:
        return Placeholder("token", self.keys.secret_id("token", value.encode()))

    def pages(self) -> Iterator[SessionValues]:
        one = self.named(HANDED)
        yield SessionValues({"1": one}, [HANDED.encode()], self.keys.space, self.keys.epochs[0], "1")
        yield SessionValues({}, [], self.keys.space, self.keys.epochs[0])

    def after_much(self) -> Mask:
        """A mask that the values in clear have reached."""
        mask = self.masks.make()

        def is_there() -> bool:
            shown = mask.feed(FILLER * 1000) + mask.idle()
            assert shown == FILLER * 1000
            return self.masks._handed.forms(0) is not None

        wait_until("values in clear", is_there)
        return mask


@pytest.fixture
def device(tmp_path: Path) -> _Device:
    return _Device(tmp_path)


def through(mask: Mask, text: bytes, width: int) -> bytes:
    return b"".join(mask.feed(text[at : at + width]) for at in range(0, len(text), width)) + mask.idle()


@pytest.mark.parametrize("is_much", [False, True], ids=["little output", "much output"])
@pytest.mark.parametrize("value", [HANDED, KEPT])
def test_what_this_device_knows_is_masked_in_every_form(device: _Device, value: str, is_much: bool) -> None:
    """Whether it is known by its hash, or comes from a session once the output is large; also one that no session has any more."""
    for name, way in WAYS.items():
        mask = device.after_much() if is_much else device.masks.make()
        for width in (7, 65_536):
            shown = through(mask, b"before " + way(value) + b" after\n", width)
            assert way(value) not in shown, name
            assert str(device.named(value)).encode() in shown or b"(sealed:token)" in shown, name
            for part in (value[at : at + 8] for at in range(len(value) - 8)):
                assert part.encode() not in shown, name
        assert through(mask, OWN.encode(), 65_536) == str(device.named(OWN)).encode()


def test_a_value_that_is_sealed_meanwhile_is_masked(device: _Device) -> None:
    mask = device.after_much()
    assert LATER.encode() in through(mask, f"see {LATER}1 ".encode(), 65_536)
    device.known.remember([("token", LATER.encode())])
    assert through(mask, f"see {LATER} ".encode(), 65_536) == f"see {device.named(LATER)} ".encode()


def test_without_a_session_hashes_do_it_all(tmp_path: Path) -> None:
    device = _Device(tmp_path)
    device.pages = lambda: iter(())  # type: ignore[method-assign]
    masks = RunMasks({}, tmp_path, device.keys.space, device.keys.epochs[0], device.pages)
    mask = masks.make()
    for _ in range(10):
        assert mask.feed(FILLER * 1000) + mask.idle() == FILLER * 1000
    for value in (HANDED, KEPT):
        assert through(mask, b"see %s " % value.encode(), 7) == b"see %s " % str(device.named(value)).encode()
