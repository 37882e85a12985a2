"""The control socket of the running daemon: what its operator's commands ask of it, a line of JSON each way (`datadir.control_client`).

The table of verbs is open: whoever puts the daemon together adds what it can be asked, before it runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError
from confide_daemon.datadir.control_client import MOST_ANSWERED, MOST_ASKED, address, is_answered

log = logging.getLogger(__name__)

READ_S: Final = 5.0
"""For the line that is asked, and again until the answer is taken."""
ANSWER_S: Final = 10.0
MOST_AT_ONCE: Final = 16

Answer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Gets what was asked, `do` among it, which nobody has checked; gives what JSON can write. Raises ConfideError: it is refused."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that can be asked."""

    answer: Answer
    deadline_s: float = ANSWER_S


class Control:
    """Listens from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verbs: dict[str, Verb] = {}
        self._server: asyncio.Server | None = None
        self._inode = -1
        self._asking: set[asyncio.Task[Any]] = set()

    def add(self, name: str, answer: Answer, *, deadline_s: float = ANSWER_S) -> None:
        """Can be asked from now on. `deadline_s`: until whoever asked is told that it takes too long, and the work is cancelled."""
        assert name not in self._verbs, name
        self._verbs[name] = Verb(answer, deadline_s)

    async def open(self) -> None:
        """Listen. Where that cannot be, the log says why, and the daemon serves without: machines come first.

        Only the process that has the folder's lock comes here, so a socket that is there already is of one that was killed; if somebody
        listens on it all the same, it is not ours to take away.
        """
        try:
            await self._listen()
        except OSError as error:
            log.warning("no command can ask this daemon: %s: %s", self._path, error.strerror or type(error).__name__)

    async def _listen(self) -> None:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                raise OSError(None, "something else is in the socket's place")
            if await asyncio.to_thread(is_answered, self._path):
                raise OSError(None, "another process listens there")
            self._path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address(self._path) as where:
                listening.bind(where)
            self._path.chmod(0o600)  # before it listens; its folder is the owner's alone anyway
            self._inode = self._path.lstat().st_ino
            self._server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=MOST_ASKED, backlog=MOST_AT_ONCE
            )
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Let nobody ask any more; what is being answered is cancelled."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            told = await self._answer(reader) if len(self._asking) <= MOST_AT_ONCE else _refused(_busy())
            line = json.dumps(told).encode() + b"\n"
            if len(line) > MOST_ANSWERED:
                line = json.dumps(_refused(RequestError("too_large", "the answer is too large"))).encode() + b"\n"
            writer.write(line)
            async with asyncio.timeout(READ_S):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # who asked is gone, or the daemon ends
        finally:
            self._asking.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """Never fails but by being cancelled, or by a connection that breaks."""
        try:
            async with asyncio.timeout(READ_S):
                asked = json.loads(await reader.readuntil(b"\n"))
            if not isinstance(asked, dict):
                raise ValueError
        except (ValueError, RecursionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _refused(
                RequestError("invalid", "what is asked is one line of JSON, an object", 'as in {"do": "top"}')
            )
        verb = self._verbs.get(str(asked.get("do")))
        if verb is None:
            return _refused(
                RequestError(
                    "invalid",
                    "the daemon that runs does not know what it was asked",
                    "is it older than this command? start it again",
                )
            )
        try:
            async with asyncio.timeout(verb.deadline_s):
                return {"ok": await verb.answer(asked)}
        except ConfideError as error:
            return _refused(error)
        except TimeoutError:
            return _refused(RequestError("unavailable", "it was not done in time", "try again"))
        except Exception as error:
            # Its text may quote anything.
            log.error("a command was not answered: %s", type(error).__name__)
            return _refused(RequestError("internal", "it failed inside the daemon", "confided status --log says more"))


def _busy() -> RequestError:
    return RequestError("busy", "too many commands ask at once", "try again in a moment")


def _refused(error: ConfideError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": str(error), "hint": error.hint}}
