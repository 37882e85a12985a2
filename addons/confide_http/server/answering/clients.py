"""The active HTTP clients of a gateway. The first request of a token creates its client, which ends
with the token, with the gateway, or after a long time without requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from confide_crypto.errors import ConfideError
from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.addons import DaemonHost
from confide_daemon.documents.changes import DocumentChange
from confide_http.door.request_limits import MAX_STREAMS_EACH, Places
from confide_http.server.answering.gateway_client import SESSION_IDLE_S, TokenClient
from confide_http.server.token_callers import TokenCallers

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 256
MAX_REQUESTS: Final = 128
MAX_REQUESTS_EACH: Final = 32
"""Parallel requests of a client, as for a connection of a device: no token can take all search
threads.
"""
PULSE_S: Final = 0.4
"""Interval of the check for ended tokens: streams of such a token end within a second."""
KEEP_USED_S: Final = 60.0


class Clients:
    """The active HTTP clients of one gateway, one for each token. `streams` and `requests` limit
    how many of these run at once.
    """

    def __init__(self, daemon: DaemonHost, callers: TokenCallers) -> None:
        self._daemon = daemon
        self._callers = callers
        self._clients: dict[bytes, tuple[TokenClient, asyncio.Task[None]]] = {}
        self._running: set[asyncio.Task[None]] = (
            set()
        )  # also those that finish what they were asked, and have a successor
        self._last_uses: dict[bytes, float] = {}
        self.streams = Places("streams", most=MAX_STREAMS, each=MAX_STREAMS_EACH)
        self.requests = Places("requests", most=MAX_REQUESTS, each=MAX_REQUESTS_EACH)

    def of(self, caller: Caller) -> TokenClient:
        """Return the client object of a caller that was just authenticated, a new one if it has
        none.
        """
        found = self._clients.get(caller.public_key)
        if found is None or found[0].ended.is_set():
            client = TokenClient(caller, self._daemon)
            task = asyncio.create_task(self._run(client))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            self._clients[caller.public_key] = found = client, task
        client = found[0]
        client.caller, client.used_at = caller, time.monotonic()
        self._last_uses[caller.public_key] = self._daemon.registry.clock()
        return client

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        for client, _ in self._clients.values():
            if client.caller.space_id == space_id:
                client.on_change(change)

    def on_space_lost(self, space_id: str) -> None:
        """End the streams of a space that another node has taken over, so that their clients
        connect again.
        """
        for client, _ in self._clients.values():
            if client.caller.space_id == space_id:
                client.end(is_revoked=False)

    async def settle(self, space_id: str) -> None:
        mine = [client for client, _ in self._clients.values() if client.caller.space_id == space_id]
        await asyncio.gather(*(client.settle() for client in mine))

    async def watch(self) -> None:
        """End the clients whose tokens were revoked or have expired, and those that were unused for
        long. Runs until cancelled.
        """
        kept_at = time.monotonic()
        while True:
            await asyncio.sleep(PULSE_S)
            for digest, (client, _) in list(self._clients.items()):
                try:
                    caller = self._callers.good(digest)
                except ConfideError as error:
                    log.error("the registry cannot be asked: %s", error)
                    continue
                if caller is None or caller.space_id != client.caller.space_id:
                    log.info("gateway: %s is shut out", client.caller.alias, extra={"event": "gateway client shut out"})
                    client.end(is_revoked=True)
                    continue
                client.caller = caller
                client.tidy()
                if time.monotonic() - client.used_at > 2 * SESSION_IDLE_S:
                    client.end(is_revoked=False)
            if time.monotonic() - kept_at > KEEP_USED_S:
                kept_at = time.monotonic()
                await self._save_uses()

    def end_streams(self) -> None:
        """End all streams, so that their clients connect again. Requests in progress are answered."""
        for client, _ in self._clients.values():
            client.end(is_revoked=False)

    async def close(self) -> None:
        """End all clients, and wait until their tasks have ended."""
        found = list(self._clients.values())
        self.end_streams()
        await asyncio.gather(*(client.settle() for client, _ in found))
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._save_uses()

    async def _run(self, client: TokenClient) -> None:
        try:
            await client.run()
        except Exception as error:
            # The error's text may quote anything from the request or the store.
            log.error("gateway: the server of %s broke: %s", client.caller.alias, type(error).__name__)
        finally:
            client.ended.set()
            if self._clients.get(client.caller.public_key, (None,))[0] is client:
                del self._clients[client.caller.public_key]

    async def _save_uses(self) -> None:
        used, self._last_uses = self._last_uses, {}
        if used:
            try:
                await asyncio.to_thread(self._daemon.registry.note_used, used)
            except asyncio.CancelledError:
                self._last_uses = (
                    used | self._last_uses
                )  # its thread may not have begun; `close` notes it, and twice is once
                raise
            except ConfideError as error:
                log.error("when tokens were last used could not be noted: %s", error)
