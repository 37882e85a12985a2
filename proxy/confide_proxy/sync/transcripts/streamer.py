"""Streaming transcripts: one process of this machine follows each source, and sends what is new behind everything else.

What is too little for a batch waits until its file has been quiet for a while, which is also how a session's end looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_memory.wire.document_body import Asks
from confide_proxy.config import ProxyConfig
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.paths import Paths
from confide_proxy.sync.transcripts.offsets import Progress
from confide_proxy.sync.transcripts.parsers import Parser
from confide_proxy.sync.transcripts.poller import Lookout
from confide_proxy.sync.transcripts.source import PARSERS, Source

if TYPE_CHECKING:
    from confide_proxy.link.link import Link
    from confide_proxy.sealing.context import Sealing

log = logging.getLogger(__name__)

POLL_S: Final = 3.0
LINK_LOOK_S: Final = 1.0
TROUBLE_S: Final = 30.0
"""After the daemon could not take something (a full disk): everything is tried again, so much later."""


def sources(paths: Paths, config: ProxyConfig, space: str, sealing: Sealing | None = None) -> list[Source]:
    """What the user's configuration names, as far as it has been sent to this space. Blocks briefly."""
    return [source_of(agent, paths, config, space, sealing) for agent in dict.fromkeys(config.transcripts)]


def source_of(agent: str, paths: Paths, config: ProxyConfig, space: str, sealing: Sealing | None = None) -> Source:
    """One of them; without `sealing` it can be looked at, and nothing of it is sent."""
    parser = PARSERS[agent]
    root = folder_of(parser, config)
    return Source(parser, root, Progress(paths.transcripts, space, root), sealing)


def folder_of(parser: Parser, config: ProxyConfig) -> Path:
    """Where a client's transcripts are, as configured or as the client has them."""
    said: str = getattr(config, f"{parser.agent.replace('-', '_')}_folder")
    return (Path(said).expanduser() if said else parser.home()).absolute()


async def send_all(
    paths: Paths,
    config: ProxyConfig,
    link: Asks,
    space: str,
    sealing: Sealing,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Send everything that has not been sent, once.

    Args:
        force: ask the daemon about every session, whatever this machine remembers.
        progress: told (bytes gone through, bytes in all).

    Returns:
        `sessions` of which something was sent, `messages`, `skipped` lines.

    Raises:
        RequestError, ConnectionLost, TimeoutError: from the link.
    """
    every = await asyncio.to_thread(sources, paths, config, space, sealing)
    listed = [(source, (await asyncio.to_thread(source.found))[0]) for source in every]
    if force:
        for source in every:
            source.progress.clear()
    total = sum(source.pending_bytes(files) for source, files in listed)
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(min(done, total), total)

    for source, files in listed:
        for file in files:
            if not source.is_settled(file):
                await source.advance(link, file, to_the_end=True, progress=count)
    sent = [source.sent for source in every]
    return {
        "sessions": sum(each.sessions for each in sent),
        "messages": sum(each.messages for each in sent),
        "skipped": sum(each.skipped for each in sent),
    }


def pending_bytes(paths: Paths, config: ProxyConfig, space: str) -> int:
    """How much has not been gone through. Blocks briefly."""
    return sum(source.pending_bytes(source.found()[0]) for source in sources(paths, config, space))


class Transcripts:
    """Streams over one link, for as long as the task lives."""

    def __init__(self, paths: Paths, config: ProxyConfig, link: Link, sealing: Sealing) -> None:
        self._sealing = sealing
        self._paths = paths
        self._config = config
        self._link = link

    async def run(self) -> None:
        """Follow the sources whenever the link is up, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for agent in dict.fromkeys(self._config.transcripts):
                group.create_task(self._keep(agent))

    async def _keep(self, agent: str) -> None:
        """Follow one source, in turns with the other processes of this machine."""
        while True:
            if not self._link.is_up:
                await asyncio.sleep(LINK_LOOK_S)
                continue
            space = self._space()
            source = await asyncio.to_thread(source_of, agent, self._paths, self._config, space, self._sealing)
            seat = Seat(self._paths.seats, f"transcripts\0{space}\0{source.root}")
            try:
                while self._leads_to(space):
                    if seat.try_take():
                        await self._follow(source, space)
                    else:
                        await asyncio.sleep(SEAT_AGAIN_S)
            except ConnectionLost:
                log.debug("the link went down under a transcript")
            except (ConfideError, TimeoutError, OSError) as error:
                log.warning(
                    "sending transcripts stopped: %s",
                    error if isinstance(error, ConfideError) else type(error).__name__,
                )
                await asyncio.sleep(TROUBLE_S)
            finally:
                seat.leave()

    async def _follow(self, source: Source, space: str) -> None:
        """Send what is due, for as long as the link is up and leads to this space."""
        source.on_up()
        lookout = Lookout(source)
        while self._leads_to(space):
            for file, quiet_s in await asyncio.to_thread(lookout.unsettled):
                await source.advance(self._link, file, to_the_end=quiet_s >= self._config.transcript_quiet_s)
            await asyncio.sleep(POLL_S)

    def _space(self) -> str:
        return str(self._link.attached.get("space"))

    def _leads_to(self, space: str) -> bool:
        return self._link.is_up and self._space() == space
