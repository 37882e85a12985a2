"""A real daemon under attack: whatever peers do, callers are served, memory and descriptors stay, and the log stays small."""

from __future__ import annotations

import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import psutil
import pytest
from tests.support.network.strangers import (
    CONT,
    PING,
    TEXT,
    HostileHandshake,
    Stranger,
    frame,
    http_request,
    invalid_kem_keys,
    small_order_points,
)
from tests.support.programs.processes import Daemon, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.limits import FIRST_MESSAGE_TIMEOUT_S
from confide_daemon.server.listening.strangers import HANDSHAKES_AT_ONCE, HANDSHAKES_PER_S, MAX_STRANGERS

ROUNDS = 3
RSS_GROWTH = 6 * 2**20
LOG_GROWTH = 4096
CLOSE_REFUSED, CLOSE_VIOLATION, CLOSE_DENIED, CLOSE_BUSY, CLOSE_TOO_BIG = 4400, 4401, 4403, 1013, 1009


class Target:
    """The daemon, a caller that goes on working, and what the daemon costs."""

    def __init__(self, daemon: Daemon, wire: Wire, process: psutil.Process) -> None:
        self.daemon = daemon
        self.port = daemon.port
        self.process = process
        self.caller = Identity.generate()
        self._wire = wire
        self.static_key = parse_daemon_key(daemon.run("key").strip())
        daemon.run("device", "add", format_public_key(self.caller.public_key, "greedy"))

    def serves(self) -> None:
        """A tool call of the caller that was there all along."""
        result = self._wire.tool("memory_search", {"query": "parcel"}, timeout_s=10)
        assert "8010" in str(result)

    def handshake(self, **forged: bytes) -> HostileHandshake:
        """Of the enrolled caller, with parts replaced."""
        return HostileHandshake(self.caller, self.static_key, **forged)

    def refusal_of(self, make: Callable[[], HostileHandshake]) -> int | None:
        """The close code that ends this handshake, tried again while the daemon has too many under way (ours, of a moment ago)."""
        with self._shake_hands(make)[1] as stranger:
            return stranger.closed_with or stranger.close_code()

    def refusal_of_message(self, first: bytes) -> int | None:
        """The close code after these bytes in place of message 1."""
        with Stranger(self.port, is_open=True) as stranger:
            stranger.send(first)
            return stranger.close_code()

    def enter(self) -> Stranger:
        """A connection on which the enrolled caller has proven its key."""
        welcome, stranger = self._shake_hands(self.handshake)
        assert len(welcome) >= 1024, "the caller was not welcomed"
        return stranger

    def _shake_hands(self, make: Callable[[], HostileHandshake]) -> tuple[bytes, Stranger]:
        """What the daemon said last, and the connection."""
        deadline = time.monotonic() + 20
        while True:
            handshake, stranger = make(), Stranger(self.port, is_open=True)
            stranger.send(frame(handshake.message1()))
            answer = stranger.receive_message()
            if answer:
                stranger.send(frame(handshake.message3(answer)))
                answer = stranger.receive_message()
            if stranger.closed_with != CLOSE_BUSY or time.monotonic() > deadline:
                return answer, stranger
            stranger.close()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    root = tmp_path_factory.mktemp("hostile")
    (root / "server-home").mkdir()
    (root / "server-home" / "daemon.toml").write_text('[embedding]\nprovider = "none"\n')
    with running_daemon(root) as daemon:
        machine = Machine(root, "laptop")
        machine.write("MEMORY.md", "The parcel API listens on port 8010.\n")
        machine.run("join", daemon.invite("laptop"))
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            found = Target(daemon, wire, process_of(daemon))
            found.serves()
            yield found


def process_of(daemon: Daemon) -> psutil.Process:
    """The serving process."""
    assert daemon._process is not None
    return psutil.Process(daemon._process.pid)


def sockets(target: Target) -> int:
    """How many it holds; files do not count, since it may open further connections to its databases at any time."""
    return len(target.process.net_connections())


@contextmanager
def unharmed(target: Target, *, log_growth: int = LOG_GROWTH) -> Iterator[None]:
    """What is done in here leaves the daemon serving, and as large as it was."""
    held, rss = sockets(target), target.process.memory_info().rss
    logged = target.daemon.log.stat().st_size
    yield
    target.serves()
    wait_until("the sockets to come back", lambda: sockets(target) <= held)
    grown = target.process.memory_info().rss - rss
    assert grown <= RSS_GROWTH, f"grew by {grown / 2**20:.1f} MiB"
    assert target.daemon.log.stat().st_size - logged <= log_growth
    assert "Traceback" not in target.daemon.log.read_text()


# Each of these is one round of an attack by a stranger.


def say_nothing(target: Target) -> None:
    flood(target, b"")


def ask_half_a_question(target: Target) -> None:
    flood(target, b"GET / HTTP/1.1\r\nHost: x\r\n")


def flood(target: Target, beginning: bytes) -> None:
    """More connections than may be without a session: what is over is cut at once, the callers' tool calls go on."""
    with ExitStack() as all_of_them:
        strangers = [all_of_them.enter_context(Stranger(target.port)) for _ in range(MAX_STRANGERS + 40)]
        for stranger in strangers:
            stranger.send(beginning)
        target.serves()
        wait_until("forty to be cut", lambda: sum(stranger.is_cut() for stranger in strangers) >= 40, 4)


def send_a_header_without_end(target: Target) -> None:
    with Stranger(target.port) as stranger:
        stranger.send(b"GET / HTTP/1.1\r\nCookie: ")
        while stranger.send(b"x" * 65536):
            pass


def send_headers_without_end(target: Target) -> None:
    with Stranger(target.port) as stranger:
        stranger.send(b"GET / HTTP/1.1\r\n")
        for number in itertools.count():
            if not stranger.send(b"".join(b"X-%d-%d: y\r\n" % (number, n) for n in range(100))):
                break


def ask_for_less(target: Target) -> None:
    """Requests a websocket library may trip over; each is answered or cut, at once."""
    for request in (
        b"\0" * 4100,
        b"\r\n" * 100 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        http_request(b"Content-Length: 99999999"),
        http_request(b"Transfer-Encoding: chunked"),
        http_request().replace(b"Version: 13", b"Version: 99"),
        http_request().replace(b"confide.v1", b"other.v1"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300) + b"\r\n\r\n",
    ):
        with Stranger(target.port) as stranger:
            stranger.send(request)
            assert stranger.seconds_until_cut() < FIRST_MESSAGE_TIMEOUT_S, request[:60]


def announce_two_gibibytes(target: Target) -> None:
    assert target.refusal_of_message(frame(declared=2 << 30)) == CLOSE_TOO_BIG


def send_a_mebibyte(target: Target) -> None:
    with Stranger(target.port, is_open=True) as stranger:
        stranger.send(frame(bytes(1 << 20)))
        assert stranger.seconds_until_cut() < FIRST_MESSAGE_TIMEOUT_S


def send_it_with_the_request(target: Target) -> None:
    """Before anybody has looked at the request: the limits hold from the first byte."""
    for tail in (frame(bytes(60_000)), frame(b"x") * 20_000, frame(opcode=PING) * 50_000):
        with Stranger(target.port) as stranger:
            stranger.send(http_request() + tail)
            assert stranger.seconds_until_cut() < FIRST_MESSAGE_TIMEOUT_S


def send_text(target: Target) -> None:
    assert target.refusal_of_message(frame(b"x" * 1256, TEXT)) == CLOSE_REFUSED


def send_frames_of_no_kind(target: Target) -> None:
    for broken in (b"\x82\x05hello", frame(opcode=3), frame(b"x", CONT), b"\xf2\x80\0\0\0\0", frame(b"x" * 200, PING)):
        with Stranger(target.port, is_open=True) as stranger:
            stranger.send(broken)
            assert stranger.seconds_until_cut() < FIRST_MESSAGE_TIMEOUT_S


def send_fragments_without_end(target: Target) -> None:
    for piece in (b"", b"x"):
        with Stranger(target.port, is_open=True) as stranger:
            stranger.send(frame(piece, fin=False))
            while stranger.send(frame(piece, CONT, fin=False) * 1000):
                pass


def ping_without_end(target: Target) -> None:
    with Stranger(target.port, is_open=True) as stranger:
        while stranger.send(frame(b"x" * 100, PING) * 1000):
            pass


def send_points_of_small_order(target: Target) -> None:
    """As ephemeral key they would take the daemon's secret out of `es`, as static key the caller's out of `se` (Noise 14)."""
    points = small_order_points()
    assert len(points) >= 8
    for point in points:
        assert target.refusal_of(partial(target.handshake, ephemeral=point)) == CLOSE_REFUSED
        assert target.refusal_of(partial(target.handshake, static=point)) == CLOSE_REFUSED


def send_kem_keys_over_the_modulus(target: Target) -> None:
    keys = invalid_kem_keys()
    assert len(keys) >= 10
    for key in keys:
        assert target.refusal_of(partial(target.handshake, ek=key)) == CLOSE_REFUSED


def send_unknown_modes(target: Target) -> None:
    for head in (b"\2" + bytes(23), b"\xff" + bytes(23), bytes(7) + b"\1" + bytes(16), bytes(8) + b"\1" + bytes(15)):
        assert target.refusal_of(partial(target.handshake, head=head)) == CLOSE_REFUSED


def guess_invites(target: Target) -> None:
    """Mode 1 with an invite that never was: it goes on to message 3, and fails there."""
    for _ in range(5):
        assert target.refusal_of(partial(target.handshake, head=b"\1" + bytes(7) + os.urandom(16))) == CLOSE_REFUSED


def prove_keys_that_nobody_enrolled(target: Target) -> None:
    """Whoever knows the daemon's public key can do this: a sealed denial, and no line in the log for each."""
    for _ in range(20):
        assert target.refusal_of(lambda: HostileHandshake(Identity.generate(), target.static_key)) == CLOSE_DENIED


ATTACKS = (
    say_nothing, ask_half_a_question, send_a_header_without_end, send_headers_without_end, ask_for_less,
    announce_two_gibibytes, send_a_mebibyte, send_it_with_the_request, send_text, send_frames_of_no_kind,
    send_fragments_without_end, ping_without_end, send_points_of_small_order, send_kem_keys_over_the_modulus,
    send_unknown_modes, guess_invites, prove_keys_that_nobody_enrolled,
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_stranger_changes_nothing(target: Target, attack: Callable[[Target], None]) -> None:
    attack(target)  # what is allocated once (buffers, threads) is not growth
    with unharmed(target):
        for _ in range(ROUNDS):
            attack(target)


def test_a_first_message_replayed_hundreds_of_times_costs_no_more_than_the_limit(target: Target) -> None:
    """So many a second get half a handshake, the others are told to come later; none leaves anything behind (PROTOCOL.md 4.9)."""
    recorded = frame(target.handshake().message1())
    answered = busy = 0
    with unharmed(target):
        started = time.monotonic()
        for number in range(500):
            with Stranger(target.port, is_open=True) as stranger:
                stranger.send(recorded)
                answer = stranger.receive_message()
                answered += len(answer) == 1136
                busy += stranger.closed_with == CLOSE_BUSY
            if number % 100 == 0:
                target.serves()
        took = time.monotonic() - started
    assert answered + busy == 500
    assert answered <= HANDSHAKES_AT_ONCE + HANDSHAKES_PER_S * took + 5


def test_slow_senders_are_given_seconds(target: Target) -> None:
    """One byte a second, at every stage: HTTP, the frame's head, message 1, and silence before message 3."""
    time.sleep(0.5)  # 100 handshakes: those of other tests may have used them up
    first = frame(target.handshake().message1())
    half = target.handshake()
    # Bytes sent at once, bytes sent one a second, seconds until the daemon must have given up (5 s to message 1, 10 s in all).
    stages: list[tuple[bytes, bytes, float]] = [
        (b"", b"", 5),
        (b"", http_request(), 5),
        (http_request(), b"", 5),
        (http_request(), first, 5),
        (http_request() + first[:8], first[8:], 5),
        (http_request() + frame(half.message1()), frame(bytes(512))[:60], 10),
    ]
    lived = [0.0] * len(stages)

    def crawl(number: int, at_once: bytes, slowly: bytes) -> None:
        with Stranger(target.port, timeout_s=1) as stranger:
            started = time.monotonic()
            stranger.send(at_once)
            for byte in slowly or bytes(30):
                end = time.monotonic() + 1
                while (left := end - time.monotonic()) > 0 and not stranger.is_cut(left):
                    pass
                if left > 0:
                    break
                if slowly and not stranger.send(bytes([byte])):
                    break
            lived[number] = time.monotonic() - started

    with unharmed(target):
        threads = [threading.Thread(target=crawl, args=(n, *stage[:2])) for n, stage in enumerate(stages)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    for seconds, (_, _, limit) in zip(lived, stages, strict=True):
        assert limit - 1.5 <= seconds <= limit + 15  # a machine may be busy; who is never cut crawls for 30 s


# Somebody who is let in, and then misbehaves.


def text_inside(stranger: Stranger) -> None:
    stranger.send(frame(b"hello", TEXT))
    assert stranger.close_code() == CLOSE_VIOLATION


def garbage_inside(stranger: Stranger) -> None:
    stranger.send(frame(os.urandom(272)))
    assert stranger.close_code() == CLOSE_VIOLATION


def too_much_inside(stranger: Stranger) -> None:
    stranger.send(frame(bytes(65536)))
    assert stranger.close_code() == CLOSE_TOO_BIG


def pings_inside(stranger: Stranger) -> None:
    """Every ping asks for an answer; this peer reads none."""
    while stranger.send(frame(b"x" * 100, PING) * 1000):
        pass


def fragments_inside(stranger: Stranger) -> None:
    stranger.send(frame(fin=False))
    while stranger.send(frame(opcode=CONT, fin=False) * 1000):
        pass


@pytest.mark.parametrize(
    "misbehave",
    [text_inside, garbage_inside, too_much_inside, pings_inside, fragments_inside],
    ids=lambda m: m.__name__,
)
def test_a_caller_that_breaks_the_rules_loses_its_connection_and_nobody_else_does(
    target: Target, misbehave: Callable[[Stranger], None]
) -> None:
    with target.enter() as first:
        misbehave(first)
    with unharmed(target):
        for _ in range(ROUNDS):
            with target.enter() as stranger:
                misbehave(stranger)


def test_running_out_of_descriptors_is_survived(target: Target) -> None:
    """The daemon neither ends nor spins while it cannot accept, callers are served, and it takes new ones again afterwards."""
    limit = target.process.rlimit(psutil.RLIMIT_NOFILE)
    assert limit[0] >= 4096 or limit[0] == resource.RLIM_INFINITY, "it raised its limit at the start"
    with unharmed(target), ExitStack() as all_of_them:
        target.process.rlimit(psutil.RLIMIT_NOFILE, (target.process.num_fds() + 20, limit[1]))
        try:
            for _ in range(60):
                all_of_them.enter_context(Stranger(target.port))
            before = sum(target.process.cpu_times()[:2])
            time.sleep(1.5)
            target.serves()
            assert sum(target.process.cpu_times()[:2]) - before < 1.0
        finally:
            target.process.rlimit(psutil.RLIMIT_NOFILE, limit)
    with target.enter():
        target.serves()
