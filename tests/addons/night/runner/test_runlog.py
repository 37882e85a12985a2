"""The log of a run: its beginning and its end, without secrets."""

from __future__ import annotations

import tracemalloc

from confide_night.runner.runlog import MOST_EACH, LogStream, RunLog
from confide_proxy.sealing.masking import SecretForms

SECRET = b"hunter2-is-not-a-password"


def test_of_a_long_log_the_beginning_and_the_end_are_kept() -> None:
    kept = LogStream(SecretForms({}))
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
    shown = log.redact()
    assert token not in shown
    assert "(redacted:" in shown


def test_a_log_has_no_secret_of_its_run() -> None:
    """No credential by any rule, and cut in two."""
    log = RunLog([SECRET])
    section = log.section("agent")
    section.feed(b"it is " + SECRET[:7])
    section.feed(SECRET[7:] + b", see?")
    section.end()
    assert log.redact() == "== agent\nit is (masked), see?\n"


def test_a_log_without_end_takes_no_more_memory_than_is_kept() -> None:
    kept = LogStream(SecretForms({}))
    piece = b"." * 65_536
    tracemalloc.start()
    try:
        for _ in range(6 * MOST_EACH // len(piece)):
            kept.feed(bytes(bytearray(piece)))  # another one each time
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 2 * MOST_EACH + 10 * len(piece)
