"""The open channel in memory: what goes in comes out, whole and in order, or nothing more comes out at all."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.crypto.channels import channel_pair

from confide_crypto.channel.protocol import (
    BUCKETS,
    MAX_PAYLOAD,
    AnswerReceived,
    Channel,
    Closed,
    Event,
    FrameType,
    GoAway,
    KeepAlive,
    MessageReceived,
    RequestReceived,
)
from confide_crypto.errors import ConnectionLost, ProtocolViolation
from confide_crypto.handshake.handshake import TransportKeys
from confide_crypto.handshake.noise import CipherState
from confide_crypto.limits import MAX_MESSAGE, MAX_REASSEMBLY, MAX_RECORDS, MAX_REQUESTS, REKEY_RECORDS

MSG, REQ, RES = FrameType.MSG, FrameType.REQ, FrameType.RES


def welcomed() -> tuple[Channel, Channel]:
    """A client's and a daemon's channel after the welcome."""
    client, daemon = channel_pair()
    assert client.receive(daemon.seal(RES, 0, b"{}", bucket=1024)) == AnswerReceived(0, b"{}")
    return client, daemon


def pieces(channel: Channel, kind: FrameType, stream: int, payload: bytes) -> list[bytes]:
    """All records of one message."""
    parts = [payload[start : start + MAX_PAYLOAD] for start in range(0, len(payload), MAX_PAYLOAD)] or [b""]
    return [channel.seal(kind, stream, part, more=part is not parts[-1]) for part in parts]


def test_every_kind_of_frame_arrives() -> None:
    client, daemon = welcomed()
    stream = client.open_request()
    assert daemon.receive(client.seal(MSG, 0, b"{}")) == MessageReceived(b"{}")
    assert daemon.receive(client.seal(REQ, stream, b"ask")) == RequestReceived(stream, b"ask")
    assert client.is_in_use(stream)
    assert client.receive(daemon.seal(RES, stream, b"told")) == AnswerReceived(stream, b"told")
    assert not client.is_in_use(stream)
    assert client.receive(daemon.seal(FrameType.KEEPALIVE, 0, b"")) == KeepAlive()
    assert client.receive(daemon.seal(FrameType.GOAWAY, 0, b"restart")) == GoAway("restart")
    assert client.receive(daemon.seal_close("done")) == Closed("done")
    assert client.is_complete
    assert not daemon.is_complete


def test_the_two_ends_number_their_requests_apart() -> None:
    client, daemon = welcomed()
    assert [client.open_request() for _ in range(3)] == [1, 3, 5]
    assert [daemon.open_request() for _ in range(3)] == [2, 4, 6]


@pytest.mark.parametrize("length", [0, 1, 247, 248, 249, 1016, 1017, 4088, 4089, MAX_PAYLOAD])
def test_a_record_shows_only_its_bucket(length: int) -> None:
    client, daemon = welcomed()
    record = client.seal(MSG, 0, b"x" * length)
    assert len(record) - 16 == next(bucket for bucket in BUCKETS if bucket >= length + 8)
    assert daemon.receive(record) == MessageReceived(b"x" * length)


def test_a_payload_over_the_frame_is_our_own_mistake() -> None:
    client, _ = welcomed()
    with pytest.raises(ValueError, match="16376"):
        client.seal(MSG, 0, bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize("length", [MAX_PAYLOAD + 1, 2 * MAX_PAYLOAD, 2 * MAX_PAYLOAD + 1, 1_000_000])
def test_a_long_message_is_continued(length: int) -> None:
    client, daemon = welcomed()
    data = bytes(number % 251 for number in range(length))
    events = [daemon.receive(record) for record in pieces(client, MSG, 0, data)]
    assert events[:-1] == [None] * (len(events) - 1)
    assert events[-1] == MessageReceived(data)


def test_continued_messages_of_different_streams_may_alternate() -> None:
    """So that an interactive message never waits for the end of a bulk one."""
    client, daemon = welcomed()
    one, two = client.open_request(), client.open_request()
    data = bytes(2 * MAX_PAYLOAD)
    first = [(REQ, one, True), (REQ, two, True), (MSG, 0, True), (REQ, two, False), (MSG, 0, False), (REQ, one, False)]
    events = [daemon.receive(client.seal(kind, stream, data[:MAX_PAYLOAD], more=more)) for kind, stream, more in first]
    assert [event for event in events if event] == [
        RequestReceived(two, data),
        MessageReceived(data),
        RequestReceived(one, data),
    ]


def test_the_greatest_message_passes_and_one_byte_more_is_fatal() -> None:
    client, daemon = welcomed()
    records = pieces(client, MSG, 0, bytes(MAX_MESSAGE))
    assert [daemon.receive(record) for record in records][-1] == MessageReceived(bytes(MAX_MESSAGE))
    with pytest.raises(ProtocolViolation, match="over the limit"):  # noqa: PT012 - some record of the row
        for record in pieces(client, MSG, 0, bytes(MAX_MESSAGE + 1)):
            daemon.receive(record)


def test_unfinished_messages_have_a_limit_together() -> None:
    """Many streams that never end cannot fill the memory."""
    client, daemon = welcomed()
    streams = [client.open_request() for _ in range(4)]
    sent = 0
    with pytest.raises(ProtocolViolation, match="over the limit"):  # noqa: PT012 - some record of the row
        for number in range(10**6):
            record = client.seal(REQ, streams[number % 4], bytes(MAX_PAYLOAD), more=True)
            sent += MAX_PAYLOAD
            daemon.receive(record)
    assert sent <= MAX_REASSEMBLY + MAX_PAYLOAD
    assert daemon._partial == {}, "what was held is let go"


def test_requests_have_a_limit() -> None:
    client, daemon = welcomed()
    streams = [client.open_request() for _ in range(MAX_REQUESTS)]
    for stream in streams:
        daemon.receive(client.seal(REQ, stream, b"{}"))
    with pytest.raises(ValueError, match="too many"):
        client.open_request()
    client.receive(daemon.seal(RES, streams[0], b"{}"))
    stream = client.open_request()
    assert daemon.receive(client.seal(REQ, stream, b"{}")) == RequestReceived(stream, b"{}")
    with pytest.raises(ProtocolViolation):
        daemon.receive(client.seal(REQ, 9999, b"{}"))


def test_a_stream_in_use_cannot_be_opened_again() -> None:
    client, daemon = welcomed()
    stream = client.open_request()
    daemon.receive(client.seal(REQ, stream, b"{}"))
    with pytest.raises(ProtocolViolation):
        daemon.receive(client.seal(REQ, stream, b"{}"))


def test_the_welcome_comes_once() -> None:
    client, daemon = welcomed()
    with pytest.raises(ProtocolViolation):
        client.receive(daemon.seal(RES, 0, b"{}"))


@pytest.mark.long
def test_every_other_length_is_fatal() -> None:
    for length in [*range(300), 1039, 1041, 16399, 16401, 65535, 65536]:
        if length == 272:
            continue
        client, daemon = welcomed()
        record = client.seal(MSG, 0, b"{}")
        with pytest.raises(ProtocolViolation):
            daemon.receive(record[:length].ljust(length, b"\0"))


def test_replay_loss_reordering_and_reflection_are_fatal() -> None:
    client, daemon = welcomed()
    one, two = client.seal(MSG, 0, b"1"), client.seal(MSG, 0, b"2")
    with pytest.raises(ProtocolViolation):
        daemon.receive(two)  # the first is lost
    client, daemon = welcomed()
    one = client.seal(MSG, 0, b"1")
    daemon.receive(one)
    with pytest.raises(ProtocolViolation):
        daemon.receive(one)
    client, daemon = welcomed()
    with pytest.raises(ProtocolViolation):
        client.receive(client.seal(MSG, 0, b"1"))
    other_client, _ = welcomed()
    _, daemon = welcomed()
    with pytest.raises(ProtocolViolation):
        daemon.receive(other_client.seal(MSG, 0, b"1"))


def test_nothing_follows_a_goodbye() -> None:
    client, daemon = welcomed()
    close = client.seal_close("done")
    daemon.receive(close)
    with pytest.raises(ConnectionLost):
        client.seal(MSG, 0, b"{}")
    with pytest.raises(ConnectionLost):
        client.seal_close("again")
    with pytest.raises(ProtocolViolation, match="after the end"):
        daemon.receive(close)


def test_a_goodbye_in_the_middle_of_a_message_cannot_be_sent_and_is_not_taken() -> None:
    """It would pass a cut message off as a complete connection."""
    client, daemon = welcomed()
    daemon.receive(client.seal(MSG, 0, bytes(MAX_PAYLOAD), more=True))
    with pytest.raises(ConnectionLost) as caught:
        client.seal_close("done")
    assert caught.value.truncated
    with pytest.raises(ProtocolViolation, match="goodbye"):
        daemon.receive(client.seal(FrameType.CLOSE, 0, b"done"))
    assert not daemon.is_complete


@pytest.mark.long
def test_both_ends_change_keys_together_again_and_again() -> None:
    """Three key changes, found at the same record without any signal; the other direction has its own."""
    client, daemon = welcomed()
    keys = set()
    for number in range(3 * REKEY_RECORDS + 200):
        assert daemon.receive(client.seal(MSG, 0, b"up")) == MessageReceived(b"up")
        if number % 100 == 0:
            keys.add(client._sending._key)
            assert client._sending._key == daemon._receiving._key
    assert len(keys) == 4
    assert daemon._receiving._key != client._receiving._key


def test_a_cipher_ends_long_before_its_nonces_do() -> None:
    client, _ = welcomed()
    client._sending.nonce = MAX_RECORDS - 1
    client.seal(MSG, 0, b"{}")
    with pytest.raises(ConnectionLost):
        client.seal(MSG, 0, b"{}")


@pytest.mark.long
@given(st.binary(max_size=400))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_arbitrary_bytes_are_never_anything_but_fatal(data: bytes) -> None:
    client, _ = welcomed()
    with pytest.raises(ProtocolViolation):
        client.receive(data)


@given(st.binary(max_size=256))
def test_arbitrary_frames_from_a_key_holder_never_do_anything_else_than_the_rules_say(plaintext: bytes) -> None:
    """A hostile peer inside the channel: an event, or a dead channel; no other exception."""
    key = bytes(32)
    daemon = Channel(TransportKeys(CipherState(key), CipherState(key), ""), initiator=False)
    try:
        event = daemon.receive(CipherState(key).encrypt(plaintext.ljust(256, b"\0")))
    except ProtocolViolation:
        with pytest.raises(ConnectionLost):
            daemon.seal(MSG, 0, b"")
    else:
        assert isinstance(event, Event)


@pytest.mark.parametrize("first", [False, True])
def test_bulk_stands_in_every_frame_of_a_request_or_in_none(first: bool) -> None:
    """PROTOCOL.md 6.3: two readers must not differ in how they will answer."""
    client, daemon = welcomed()
    stream = client.open_request()
    daemon.receive(client.seal(REQ, stream, bytes(MAX_PAYLOAD), more=True, bulk=first))
    with pytest.raises(ProtocolViolation):
        daemon.receive(client.seal(REQ, stream, b"end", bulk=not first))
