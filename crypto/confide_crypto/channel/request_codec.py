"""Encoding of requests and answers as JSON objects (PROTOCOL.md 7.2)."""

from __future__ import annotations

import json
from typing import Any, Final

from confide_crypto.errors import ProtocolViolation, RequestError, printable
from confide_crypto.limits import MAX_MESSAGE

_MAX_SENTENCE: Final = 1000
_INTERNAL: Final = RequestError("internal", "the request failed on the other side", "its log says why")


def encode_request(op: str, body: dict[str, object]) -> bytes:
    """Encode a request: the operation and its parameters.

    Raises RequestError with the code `too_large` if it exceeds the limit of a message, or `invalid`
    if a string in it has a lone surrogate.
    """
    try:
        payload = _encode({**body, "op": op})
    except UnicodeEncodeError:
        raise _half_a_character() from None
    if len(payload) > MAX_MESSAGE:
        raise RequestError("too_large", f"a request of {len(payload)} bytes is over the limit of {MAX_MESSAGE}")
    return payload


def decode_request(payload: bytes) -> tuple[str, dict[str, object]]:
    """Decode a request into the operation and its parameters. Raises ProtocolViolation if it is
    malformed.
    """
    body = _decode(payload)
    op = body.pop("op", None)
    if not isinstance(op, str):
        raise ProtocolViolation("the peer broke the protocol: a request without op")
    return op, body


def encode_result(result: dict[str, object]) -> bytes:
    """Encode the answer to a successful request.

    If the answer exceeds the limit of a message, or a string in it has a lone surrogate, encode an
    error instead.
    """
    try:
        payload = _encode({"ok": result})
    except UnicodeEncodeError:
        return encode_error(_half_a_character())
    if len(payload) > MAX_MESSAGE:
        return encode_error(RequestError("too_large", "the answer is over the limit of a message"))
    return payload


def encode_error(error: RequestError | None) -> bytes:
    """Encode the answer to a failed request. None stands for an internal error whose cause the peer
    must not see.
    """
    answer = error or _INTERNAL
    # Made printable first: a message may quote a file name that is not valid text and cannot be
    # encoded.
    hint = None if answer.hint is None else sentence(answer.hint)
    return _encode({"error": {"code": answer.code, "message": sentence(answer.message), "hint": hint}})


def decode_answer(payload: bytes) -> dict[str, object] | RequestError:
    """Decode an answer into its result or its error. Raises ProtocolViolation if it is neither."""
    match _decode(payload):
        case {"ok": dict(result)}:
            return result
        case {"error": {"code": str(code), "message": str(message), **rest}}:
            hint = rest.get("hint")
            return RequestError(sentence(code), sentence(message), sentence(hint) if isinstance(hint, str) else None)
    raise ProtocolViolation("the peer broke the protocol: an answer that is neither ok nor error")


def sentence(text: str) -> str:
    """Return a text from the peer in a form that is safe to show: without unprintable characters,
    and cut to 1000 characters.
    """
    return printable(text[:_MAX_SENTENCE])


def _half_a_character() -> RequestError:
    # The cause is a lone surrogate: from JSON that escapes one (RFC 8259, 8.2), or in a file name
    # that is not UTF-8.
    hint = "is a name in it that of a file which is not in UTF-8?"
    return RequestError("invalid", "what is said holds half of a character, which no text has", hint)


def _encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(payload: bytes) -> dict[str, object]:
    try:
        body = json.loads(payload.decode())
        if b"\\u" in payload:
            _encode(body)  # a lone surrogate can be neither written to a file nor hashed
    except (ValueError, RecursionError):
        raise ProtocolViolation("the peer broke the protocol: not JSON") from None
    if not isinstance(body, dict):
        raise ProtocolViolation("the peer broke the protocol: not a JSON object")
    return body
