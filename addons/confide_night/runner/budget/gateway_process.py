"""Starts, reads and ends the process of the budget gateway. Imports none of the gateway's modules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, Self

from confide_night.errors import RunnerError

_MODULE: Final = "confide_night.runner.budget"
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "SYSTEMROOT")
_PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_ENDED_S: Final = 3.0
ASK_S: Final = 660.0


class GatewayProcess:
    """A running process of a budget gateway. Use with `async with`.

    Attributes:
        usd, tokens_in, tokens_out, requests: totals so far.
        is_over: True once the budget has stopped a request.
        refusal_status: status of the last refusal by the model's API, 503 if it was unreachable; 0
            before any refusal and after a later answer.
        is_listening: set when the gateway has the sandbox's listener.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.usd = 0.0
        self.tokens_in = self.tokens_out = self.requests = 0
        self.is_over = False
        self.refusal_status = 0
        self.is_listening = asyncio.Event()
        self._answer: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def start(cls, terms: Mapping[str, object], *, listener_from: int | None) -> Self:
        """Start the process. `listener_from` is the runner's end of the socket over which the
        sandbox passes its listener, or None if the process only answers one question. Raises
        RunnerError if it does not start.
        """
        environment = {name: value for name, value in os.environ.items() if name in _KEPT or name.lower() in _PROXIES}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                _MODULE,
                str(-1 if listener_from is None else listener_from),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=[] if listener_from is None else [listener_from],
                env=environment,
                cwd="/",
                limit=2**24,
            )
        except OSError as error:
            raise RunnerError(f"the gateway cannot be started: {error.strerror}") from error
        gateway = cls(process)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(terms).encode() + b"\n")
            await process.stdin.drain()
        except BaseException as error:
            await asyncio.shield(gateway.close())
            if isinstance(error, OSError):
                raise RunnerError(f"the gateway cannot be started: {error.strerror}") from error
            raise
        return gateway

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the process. The spending that it reported until then counts."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_ENDED_S):
                await self._process.wait()
                await self._following
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        finally:
            self._following.cancel()
            if not self._answer.done():
                self._answer.cancel()

    async def answer(self) -> dict[str, Any]:
        """Return the answer to the single question that the process was started for: `status` and
        `text`. Raises RunnerError if none arrives.
        """
        done, _ = await asyncio.wait({self._answer}, timeout=ASK_S)
        if not done or self._answer.cancelled():
            raise RunnerError("the model did not answer")
        return self._answer.result()

    async def _follow(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            async for line in self._process.stdout:
                self._hear(json.loads(line))
        if not self._answer.done():
            self._answer.cancel()

    def _hear(self, said: dict[str, Any]) -> None:
        if "listening" in said:
            self.is_listening.set()
        if spent := said.get("spent"):
            self.usd, self.requests, self.is_over = float(spent["usd"]), int(spent["requests"]), bool(spent["over"])
            if int(spent["out"]) > self.tokens_out:
                self.refusal_status = 0
            self.tokens_in, self.tokens_out = int(spent["in"]), int(spent["out"])
        if said.get("refused") in ("upstream", "unreachable"):
            self.refusal_status = int(said.get("status", 503))
        if "answer" in said and not self._answer.done():
            self._answer.set_result(said["answer"])
