"""A node says for whom it speaks: only one that the daemon's identity has certified just now, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from confide_cluster.shared.speaking import FRESH_S, Speaker
from confide_crypto.handshake.handshake import MAX_HELLO, _encode_hello
from confide_crypto.keys.identity import Identity

NOW = 1_800_000_000
DAEMON, OTHER, NODE = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
SPEAKER = Speaker(2**40, bytes(range(32)), "ab" * 16, "cd" * 16)
HELLO = SPEAKER.hello(DAEMON, NODE.public_key, now=NOW)


def read(
    hello: dict[str, Any], *, node: bytes = NODE.public_key, daemon: bytes = DAEMON.public_key, now: float = NOW
) -> Speaker:
    return Speaker.read(hello, node, [OTHER.public_key, daemon], now=now)


def test_what_a_node_says_is_read_and_fits_into_a_hello() -> None:
    """Also with the longest numbers."""
    assert read(HELLO) == SPEAKER
    assert read(HELLO, now=NOW + FRESH_S) == SPEAKER
    assert (
        len(_encode_hello(Speaker(2**63 - 1, bytes(32), "0" * 32, "0" * 32).hello(DAEMON, bytes(32), now=NOW)))
        <= MAX_HELLO
    )


@pytest.mark.parametrize(
    "speaker",
    [
        Speaker(7, bytes(32), "ab" * 16),
        Speaker(7, bytes(32), "ab" * 16, is_by_http=True),
        Speaker(2**63 - 1, bytes(32), "0" * 32, is_by_http=True),
    ],
    ids=["in the place of none", "by HTTP", "the longest"],
)
def test_how_its_caller_has_come_is_said(speaker: Speaker) -> None:
    """And fits into a hello too."""
    hello = speaker.hello(DAEMON, NODE.public_key, now=NOW)
    assert read(hello) == speaker
    assert len(_encode_hello(hello)) <= MAX_HELLO


@pytest.mark.parametrize(
    "more",
    [
        {"node": 7},
        {"at": NOW + 1},
        {"proof": OTHER.sign(b"confide-node/1", b"").hex()},
        {"proof": "00"},
        {"node": -1},
        {"node": True},
        {"key": "00"},
        {"session": "ab" * 15},
        {"session": None},
        {"key": 1},
    ],
    ids=str,
)
def test_what_was_changed_in_it_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing by intent
        read({**HELLO, **more})


def test_a_certificate_is_good_for_its_node_its_daemon_and_its_time() -> None:
    for wrong in (
        {"node": OTHER.public_key},
        {"daemon": NODE.public_key},
        {"now": NOW + FRESH_S + 1},
        {"now": NOW - FRESH_S - 1},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            read(HELLO, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):  # noqa: PT011
        Speaker.read(HELLO, NODE.public_key, [], now=NOW)
