"""The control socket of the running daemon, for the operator's commands. A request and its answer
are one line of JSON each (`datadir.control_client`).

The code that creates the daemon adds verbs (kinds of requests) before it runs.
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
"""Deadline for the request line, and again for reading the answer."""
ANSWER_S: Final = 10.0
MOST_AT_ONCE: Final = 16

Answer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request, given as received and unchecked, including `do`; returns JSON values. Raises
ConfideError to refuse.
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A kind of request that the control socket answers."""

    answer: Answer
    deadline_s: float = ANSWER_S


class Control:
    """Serves the control socket, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verbs: dict[str, Verb] = {}
        self._server: asyncio.Server | None = None
        self._inode = -1
        self._asking: set[asyncio.Task[Any]] = set()

    def add(self, name: str, answer: Answer, *, deadline_s: float = ANSWER_S) -> None:
        """Add a verb (a kind of request) and the function that answers it. Work that takes longer
        than `deadline_s` is cancelled, and the command gets an error.
        """
        assert name not in self._verbs, name
        self._verbs[name] = Verb(answer, deadline_s)

    async def open(self) -> None:
        """Listen on the socket. If that fails, the reason is logged and the daemon runs without the
        socket: serving devices is more important.

        Only the process that holds the folder's lock gets here, so an existing socket belongs to a
        killed process. If another process does listen on it, it is left alone.
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
        """Stop listening and cancel requests that are under way."""
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
            told = await self._answer(reader) if len(self._asking) <= MOST_AT_ONCE else _error_message(_busy())
            line = json.dumps(told).encode() + b"\n"
            if len(line) > MOST_ANSWERED:
                line = json.dumps(_error_message(RequestError("too_large", "the answer is too large"))).encode() + b"\n"
            writer.write(line)
            async with asyncio.timeout(READ_S):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client disconnected, or the daemon ends
        finally:
            self._asking.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """Answer one request. It fails only by cancellation or a broken connection."""
        try:
            async with asyncio.timeout(READ_S):
                asked = json.loads(await reader.readuntil(b"\n"))
            if not isinstance(asked, dict):
                raise ValueError
        except (ValueError, RecursionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _error_message(
                RequestError("invalid", "what is asked is one line of JSON, an object", 'as in {"do": "top"}')
            )
        verb = self._verbs.get(str(asked.get("do")))
        if verb is None:
            return _error_message(
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
            return _error_message(error)
        except TimeoutError:
            return _error_message(RequestError("unavailable", "it was not done in time", "try again"))
        except Exception as error:
            # The error's text may quote anything, so only its class is logged.
            log.error("a command was not answered: %s", type(error).__name__)
            return _error_message(
                RequestError("internal", "it failed inside the daemon", "confided status --log says more")
            )


def _busy() -> RequestError:
    return RequestError("busy", "too many commands ask at once", "try again in a moment")


def _error_message(error: ConfideError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": str(error), "hint": error.hint}}
