"""What REQ and RES carry: JSON objects of two forms, and a peer's sentences that are safe to show (PROTOCOL.md 7.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from confide_crypto.channel.request_codec import (
    decode_answer,
    decode_request,
    encode_error,
    encode_request,
    encode_result,
)
from confide_crypto.errors import DeniedError, ProtocolViolation, RequestError
from confide_crypto.limits import MAX_MESSAGE
from confide_crypto.transport.open_channel import _read_welcome

HOSTILE = "stop\x1b[2J\x1b]0;title\x07\n\u202e\ud800"


def said(error: dict[str, Any]) -> bytes:
    return json.dumps({"error": error}).encode()


def test_a_request_and_its_result_come_back_as_they_were() -> None:
    body = {"path": "memory/ä.md", "base": 3, "text": None}
    assert decode_request(encode_request("put", body)) == ("put", body)
    assert decode_answer(encode_result({"revision": 4})) == {"revision": 4}


def test_an_error_comes_back_with_its_fields() -> None:
    answer = decode_answer(encode_error(RequestError("conflict", "two at once", "try again")))
    assert isinstance(answer, RequestError)
    assert (answer.code, answer.message, answer.hint) == ("conflict", "two at once", "try again")


def test_what_is_over_the_limit_of_a_message_is_not_sent() -> None:
    """A request fails here; in place of an answer the asker is told why there is none."""
    text = "x" * MAX_MESSAGE
    with pytest.raises(RequestError, match="over the limit") as caught:
        encode_request("put", {"text": text})
    assert caught.value.code == "too_large"
    answer = decode_answer(encode_result({"text": text}))
    assert isinstance(answer, RequestError)
    assert answer.code == "too_large"


@pytest.mark.parametrize("hint", ["the log says\x1b[31m", None, 7])
def test_a_peers_sentence_cannot_steer_the_terminal_or_break_the_print(hint: Any) -> None:
    """Escapes, bidirectional controls and lone surrogates, which no stream can write, become question marks."""
    answer = decode_answer(said({"code": "inv\x1balid", "message": HOSTILE[:-1], "hint": hint}))
    assert isinstance(answer, RequestError)
    assert str(answer) == "stop?[2J?]0;title???"
    assert answer.code == "inv?alid"
    assert answer.hint == ("the log says?[31m" if isinstance(hint, str) else None)
    with pytest.raises(DeniedError) as caught:
        _read_welcome(said({"code": "denied", "reason": HOSTILE, "hint": HOSTILE}), bytes(32), "six-words")
    for text in (str(caught.value), caught.value.hint or "", caught.value.reason):
        assert text.isprintable()
        assert "stop?[2J" in text


def test_a_sentence_without_end_is_cut() -> None:
    answer = decode_answer(said({"code": "invalid", "message": "x" * 1_000_000, "hint": "y" * 1_000_000}))
    assert isinstance(answer, RequestError)
    assert len(answer.message) == len(answer.hint or "") == 1000


@pytest.mark.parametrize("text", ['"\\ud800"', '{"op":"put","text":"\\udc00\\ud800"}', '{"ok":{"\\udfff":1}}'])
def test_text_that_is_no_text_is_fatal(text: str) -> None:
    """A lone surrogate passes json's parser, but could be neither written to a file nor hashed by whoever reads it."""
    for read in (decode_request, decode_answer):
        with pytest.raises(ProtocolViolation):
            read(text.encode())


def test_a_pair_of_surrogates_is_a_character() -> None:
    """Other implementations escape what is beyond the first plane so."""
    assert decode_request(b'{"op":"put","text":"\\ud83d\\ude00"}') == ("put", {"text": "😀"})


@pytest.mark.parametrize("body", [{"path": "a\ud800.md"}, {"b\udcff": 1}, {"c": [{"d": "\udc00"}]}])
def test_half_a_character_is_not_sent(body: dict[str, Any]) -> None:
    """As in the name of a file that is not in UTF-8, or a text of another system: a sentence, and no end of the program."""
    with pytest.raises(RequestError, match="half of a character") as caught:
        encode_request("put", body)
    assert caught.value.code == "invalid"
    answer = decode_answer(encode_result(body))
    assert isinstance(answer, RequestError)
    assert answer.code == "invalid"
