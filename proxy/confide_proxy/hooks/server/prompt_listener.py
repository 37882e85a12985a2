"""The socket at which a process answers hooks: one JSON line each way, for this user only, limited
in size and time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto import portable
from confide_proxy.hooks import hook_paths, loopback
from confide_proxy.hooks.hook_process import MOST_ANSWER, is_same_user

log = logging.getLogger(__name__)

MOST_LINE: Final = 512 * 1024
"""Room for a prompt of `events.PROMPT_CHARS` characters with the longest JSON escapes."""
MOST_AT_ONCE: Final = 64
READ_S: Final = 1.0
BACKLOG: Final = 128
_PULSE_S: Final = 5.0


async def listen_as_process(
    folder: Path, answer: Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]
) -> None:
    """Answer requests of this user's other processes until cancelled. The socket is in `folder`, in
    a subfolder named by this process's ID.

    Subfolders of processes that have ended are removed. Returns if the socket file is removed.
    Raises OSError if the socket cannot be created.
    """
    own = folder / str(os.getpid())
    await asyncio.to_thread(_prepare, own)
    listener = PromptListener(os.fspath(own), answer, is_patient=True)
    await listener.open()
    try:
        while listener.is_in_place():  # noqa: ASYNC110 - no event reports a deleted file
            await asyncio.sleep(_PULSE_S)
    finally:
        listener.close()
        shutil.rmtree(own, ignore_errors=True)


def _prepare(own: Path) -> None:
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in own.parent.iterdir():
        if each.name.isdecimal() and not portable.is_alive(int(each.name)):
            shutil.rmtree(each, ignore_errors=True)


class PromptListener:
    """A socket server for hooks, or for other processes of this user."""

    def __init__(
        self,
        state: str,
        answer: Callable[[Mapping[str, object]], Awaitable[dict[str, object]]],
        *,
        is_patient: bool = False,
    ) -> None:
        """`state`: the folder of the socket. `is_patient`: askers wait for their answers, so that
        `answer` is cancelled once the asker has ended; a hook may end before its answer is made.
        """
        self._state = state
        self._answer = answer
        self._is_patient = is_patient
        self._at_once = 0
        self._address = ""
        self._inode = -1
        self._server: asyncio.Server | None = None
        self._secret: bytes | None = None

    async def open(self) -> None:
        """Start to listen, in place of any earlier listener at the same path. Raises OSError if no
        path is short enough for a socket, or if the socket cannot be created.
        """
        if not loopback.HAS_UNIX_SOCKETS:
            await self._open_port()
            return
        found = hook_paths.addresses(self._state)
        if not found:
            raise OSError(None, "no folder has a path short enough for a socket")
        self._address = found[0]
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self._address).st_mode):
                raise OSError(None, "something else is in the socket's place")
            os.unlink(self._address)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self._address)  # in a folder that is this user's alone
            os.chmod(self._address, 0o600)
            self._inode = os.lstat(self._address).st_ino
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=MOST_LINE, backlog=BACKLOG
            )
        except BaseException:
            listening.close()
            raise

    async def _open_port(self) -> None:
        """Listen on a port of this machine, and name it in a file with a secret. Raises OSError."""
        listening = loopback.listening()
        try:
            self._secret = loopback.write(self._state, listening.getsockname()[1])
            self._address = loopback.file_of(self._state)
            self._inode = os.lstat(self._address).st_ino
            self._server = await asyncio.start_server(self._serve, sock=listening, limit=MOST_LINE, backlog=BACKLOG)
        except BaseException:
            listening.close()
            raise

    async def _is_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether this user's process is at the other end; on a port both ends prove it
        first.
        """
        if self._secret is None:
            # asyncio shows its sockets in a wrapper that has all that is asked of them here.
            return is_same_user(writer.get_extra_info("socket"))
        async with asyncio.timeout(READ_S):
            asked = await reader.readexactly(loopback.LINE_BYTES)
            nonce = loopback.nonce()
            writer.write(loopback.proof(self._secret, "listener", asked) + nonce)
            answer = await reader.readexactly(loopback.LINE_BYTES)
        return loopback.is_same(answer, loopback.proof(self._secret, "hook", nonce))

    def is_in_place(self) -> bool:
        """Return True if the socket file is still the one that this listener created, and no other
        process has replaced it.
        """
        try:
            return os.lstat(self._address).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            if self.is_in_place():
                with suppress(OSError):
                    os.unlink(self._address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        try:
            if self._at_once <= MOST_AT_ONCE and await self._is_ours(reader, writer):
                async with asyncio.timeout(READ_S):
                    line = await reader.readuntil(b"\n")
                asked = json.loads(line)
                if isinstance(asked, dict):
                    answer = self._until_gone(reader, asked) if self._is_patient else self._answer(asked)
                    told = json.dumps(await answer).encode() + b"\n"
                    writer.write(told if len(told) <= MOST_ANSWER else b"{}\n")
                    async with asyncio.timeout(READ_S):
                        await writer.drain()
        except (
            OSError,
            TimeoutError,
            ValueError,
            RecursionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # a killed hook, or an invalid request
        except Exception as error:
            # A bug must be logged; the error's text may quote anything, so only its type is.
            log.error("a hook was not answered: %s", type(error).__name__)
        finally:
            self._at_once -= 1
            writer.close()

    async def _until_gone(self, reader: asyncio.StreamReader, asked: Mapping[str, object]) -> dict[str, object]:
        """Return the answer. Raises TimeoutError if the asker has gone before there is one."""
        async with asyncio.timeout(None) as end:
            gone = asyncio.ensure_future(reader.read(1))
            gone.add_done_callback(lambda _: end.reschedule(0) if not gone.cancelled() else None)
            try:
                return await self._answer(asked)
            finally:
                gone.cancel()
