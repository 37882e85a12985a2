"""What a person is told where no websocket could be opened: each cause its own sentence and a way out."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import InvalidMessage, InvalidStatus, InvalidURI, ProxyError
from websockets.http11 import Response

from confide_crypto.limits import Timers
from confide_crypto.transport.dial import diagnose

PLAIN, TLS = "ws://memory.example.org/notes", "wss://memory.example.org/notes"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def told(url: str, error: Exception) -> tuple[str, str | None]:
    failure = diagnose(url, "memory.example.org", error)
    assert str(failure).startswith("cannot reach the daemon at memory.example.org: ")
    return failure.problem, failure.hint


def refused_certificate(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "something else"
    return error


def tls_failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "tls failed")
    error.reason = reason
    return error


def answered(status: int, body: bytes = b"", location: str = "") -> InvalidStatus:
    return InvalidStatus(Response(status, "x", Headers({"Location": location} if location else {}), body))


@pytest.mark.parametrize(
    ("code", "problem", "hint"),
    [
        (18, "not from an authority", "SSL_CERT_FILE to its certificate"),
        (10, "has expired", "renew it"),
        (9, "not valid yet", "clock"),
        (62, "not for the name memory.example.org", "use the name"),
        (64, "not for the name memory.example.org", "use the name"),
        (23, "refused: something else", "check the certificate"),
    ],
)
def test_a_certificate_that_is_refused(code: int, problem: str, hint: str) -> None:
    said, way_out = told(TLS, refused_certificate(code))
    assert problem in said
    assert hint in str(way_out)


def test_a_certificate_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    assert told(TLS, refused_certificate(20))[1] == "SSL_CERT_FILE names a file that is not there"


@pytest.mark.parametrize(
    ("url", "error", "problem", "hint"),
    [
        (TLS, tls_failure("WRONG_VERSION_NUMBER"), "does not speak tls", "confide://"),
        (
            TLS,
            tls_failure("TLSV1_UNRECOGNIZED_NAME"),
            "no certificate for the name memory.example.org",
            "what it serves",
        ),
        (TLS, tls_failure("NO_CIPHERS"), "tls failed: no ciphers", "reverse proxy"),
        (TLS, ConnectionResetError(), "tls failed: the connection was cut", "confide://"),
        (PLAIN, ConnectionResetError(), "the connection was cut", "port"),
        (PLAIN, ConnectionRefusedError(), "connection refused", "confided running"),
        (PLAIN, OSError("Multiple exceptions: [Errno 111] x, [Errno 111] y"), "connection refused", "confided running"),
        (PLAIN, socket.gaierror(), "no such name", "network"),
        (PLAIN, OSError(113, "No route to host"), "no route to host", "None"),
        (PLAIN, InvalidURI("x", "y"), "malformed", "None"),
        (PLAIN, ProxyError("no"), "the proxy that this machine has to use does not", "HTTPS_PROXY"),
        (PLAIN, EOFError(), "not a websocket", "confides://"),
        (TLS, EOFError(), "not a websocket", "check the address and the port"),
        (PLAIN, answered(400, b"sent to HTTPS port"), "speaks tls", "confides://"),
        (PLAIN, answered(404, b'{"error": "not found"}\n'), "does not pass websockets on", "Upgrade"),
        (PLAIN, answered(404), "nothing under this path", "path"),
        (PLAIN, answered(502), "the daemon behind it does not", "confided running"),
        (PLAIN, answered(522), "the daemon behind it does not", "confided running"),
        (PLAIN, answered(403), "a login of its own", "without one"),
        (PLAIN, answered(200), "it answers http 200", "path"),
        (PLAIN, answered(301, location="https://memory.example.org/notes"), "redirects", "confides://"),
        (TLS, answered(301, location="https://memory.example.org/notes/"), "redirects", "slash"),
        (TLS, answered(302, location="https://elsewhere.example.org/"), "redirects", "its operator"),
    ],
)
def test_each_cause_has_a_sentence_and_a_way_out(url: str, error: Exception, problem: str, hint: str) -> None:
    said, way_out = told(url, error)
    assert problem in said
    assert hint in str(way_out)
    assert "elsewhere" not in f"{said} {way_out}"


def test_a_tls_port_of_a_server_in_go() -> None:
    """Caddy, and many tunnels, answer plain HTTP on their TLS port with an HTTP/1.0 line that is no websocket's."""
    error = InvalidMessage("did not receive a valid HTTP response")
    error.__cause__ = ValueError("unsupported protocol; expected HTTP/1.1: HTTP/1.0 400 Bad Request")
    assert told(PLAIN, error)[0] == "that port speaks tls, and the address does not"
    assert "not a websocket" in told(TLS, error)[0]


@pytest.mark.parametrize("error", [ConnectionRefusedError(), socket.gaierror()])
def test_a_proxy_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    assert told(TLS, error)[0] == "the proxy that this machine has to use cannot be reached"
    assert "proxy" not in told("wss://localhost/", error)[0]


def test_the_idle_limit_follows_the_keepalive() -> None:
    assert Timers.every(25) == Timers()
    assert Timers.every(10).idle_s == 36


def test_a_refusal_sends_nobody_to_the_command_that_tells_it() -> None:
    """`confide status` itself ends with this hint."""
    assert told(PLAIN, ConnectionRefusedError(111, "refused")) == (
        "connection refused",
        "is confided running? on its machine: confided status",
    )
