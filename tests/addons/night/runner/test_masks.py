"""Secrets are taken out of what a run prints, however it comes."""

from __future__ import annotations

import base64
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from confide_night.runner.masks import SHOWN, Mask
from confide_night.runner.runlog import MOST_EACH, LogStream, RunLog

SECRET = b"hunter2-is-not-a-password"


@given(
    st.lists(st.sampled_from([SECRET, b"hunter2", b"x", b"\n", b"-is-", SECRET[:9], SECRET[9:]]), max_size=12),
    st.integers(1, 40),
)
@settings(max_examples=150, deadline=None)
def test_a_value_is_masked_however_it_is_cut(parts: list[bytes], width: int) -> None:
    """In one piece, or a few bytes at a time: the same comes out, without the value."""
    text = b"".join(parts)
    mask = Mask([SECRET])
    shown = b"".join(mask.feed(text[at : at + width]) for at in range(0, len(text), width)) + mask.end()
    assert shown == text.replace(SECRET, SHOWN)


def test_base64_of_a_value_and_each_of_its_lines_are_masked() -> None:
    key = b"first line of a key\nsecond line of a key\n"
    mask = Mask([key, b"short"])
    text = b"a second line of a key b " + base64.b64encode(key) + b" short"
    shown = mask.feed(text) + mask.end()
    assert b"line of a key" not in shown
    assert base64.b64encode(key)[:20] not in shown
    assert shown.endswith(b" short")  # five bytes are nobody's secret, and would be found everywhere


def test_of_a_long_log_the_beginning_and_the_end_are_kept() -> None:
    kept = LogStream([])
    for number in range(300):
        kept.feed(b"%06d " % number + b"." * 65_000)
    kept.end()
    text = kept.text
    assert text.startswith("000000 ")
    assert text.endswith("." * 1000)
    assert "bytes are left out here" in text
    assert len(text) < 2 * MOST_EACH + 100


def test_a_log_has_no_credential() -> None:
    log = RunLog([])
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    log.section("agent").feed(f"the token is {token}, see?\n".encode())
    shown = log.redacted()
    assert token not in shown
    assert "(redacted:" in shown


def test_a_log_has_no_secret_of_its_run() -> None:
    """No credential by any rule, and cut in two."""
    log = RunLog([SECRET])
    section = log.section("agent")
    section.feed(b"it is " + SECRET[:7])
    section.feed(SECRET[7:] + b", see?")
    section.end()
    assert log.redacted() == "== agent\nit is (masked), see?\n"


def test_a_log_without_end_takes_no_more_memory_than_is_kept() -> None:
    kept = LogStream([])
    piece = b"." * 65_536
    tracemalloc.start()
    try:
        for _ in range(6 * MOST_EACH // len(piece)):
            kept.feed(bytes(bytearray(piece)))  # another one each time
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 2 * MOST_EACH + 10 * len(piece)
