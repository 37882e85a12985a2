"""A TCP relay on loopback that keeps every byte that passes, and can be cut and mended."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE = 64 * 1024


class RecordingRelay:
    """Forwards connections to a loopback port; `captured` holds both directions, as somebody on the path would see them."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._recorded = bytearray()
        self._is_cut = False
        self._muted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def captured(self) -> bytes:
        """All bytes so far."""
        with self._lock:
            return bytes(self._recorded)

    def cut(self) -> None:
        """Break every connection and refuse new ones, as a pulled cable does."""
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                self._hang_up(each)
            self._sockets.clear()

    def mute(self) -> None:
        """Lose what the daemon says from now on over the connections of now; what is said to it arrives."""
        with self._lock:
            self._muted = [*self._sockets]

    def mend(self) -> None:
        """Let new connections through again."""
        self._is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._hang_up(self._listener)
        self._listener.close()

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
                self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink, sink is near), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while data := source.recv(_PIECE):
                with self._lock:
                    self._recorded += data
                if not (is_answer and sink in self._muted):
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                self._hang_up(each)
            source.close()  # each direction closes the end that it read from

    @staticmethod
    def _hang_up(each: socket.socket) -> None:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
