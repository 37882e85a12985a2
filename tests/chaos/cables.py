"""What a network does to a connection between a machine and the daemon: it breaks, holds, is slow, or breaks after so many bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress

_PIECE = 64 * 1024
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: what is on its way when the connection breaks is lost."""


class Cable:
    """Forwards connections to a loopback port."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        self.delay_s = 0.0
        """The most that a piece takes, each way."""
        self._left: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int) -> None:
        """New connections go there."""
        self._target_port = port

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._is_cut = True
        self._break()

    def drop_after(self, count: int) -> None:
        """Break every connection once so many bytes more have passed; new ones may come at once."""
        self._left = count

    def hold(self) -> None:
        """Let nothing pass, and tell nobody."""
        self._flows.clear()

    def mend(self) -> None:
        """Let everything pass, at once."""
        self._is_cut, self._left, self.delay_s = False, None, 0.0
        self._flows.set()

    def close(self) -> None:
        """End."""
        self.mend()
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _break(self) -> None:
        with self._lock:
            broken, self._sockets = self._sockets, set()
        for each in broken:
            _hang_up(each)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                near.close()  # nobody there: as it would be without us
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_PIECE):
                self._flows.wait()
                if self.delay_s:
                    time.sleep(random.uniform(0.2, 1.0) * self.delay_s)
                if (left := self._left) is not None:
                    self._left = left - len(data)
                    if len(data) >= left:
                        self._left = None
                        sink.sendall(data[:left])
                        self._break()
                        return
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                _hang_up(each)
            source.close()  # each direction closes the end that it read from
            with self._lock:
                self._sockets.discard(source)


def _hang_up(each: socket.socket) -> None:
    with suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
