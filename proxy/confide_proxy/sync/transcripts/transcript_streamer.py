"""Send new messages of transcripts while they are written. Of all processes of this device, only
one follows each source, and sends with low priority.

Messages that do not fill a batch wait until their file has been quiet for a while, which also
covers the end of a session. Files are polled, not watched, since most of them never change again.
Files written lately are checked each time, and so are folders, since a new file changes its folder;
all others are checked every `WALK_S` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_crypto.transport.task_group import TaskGroup, raise_if_cancelled
from confide_memory.documents import RequestChannel
from confide_proxy.config import ProxyConfig
from confide_proxy.link.daemon_link import Link
from confide_proxy.link.services import ServiceRunner, reason
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.transcripts.parsers import Parser
from confide_proxy.sync.transcripts.source import PARSERS, TranscriptSource
from confide_proxy.sync.transcripts.transcript_files import TranscriptFile, looked_at

log = logging.getLogger(__name__)

POLL_S: Final = 3.0
LINK_LOOK_S: Final = 1.0
TROUBLE_S: Final = 30.0
"""Seconds until the next attempt after the daemon refused something (a full disk)."""
WALK_S: Final = 120.0
"""Interval in seconds of the check of all files, which notices a resumed old session; 2,000 files
cost 30 ms.
"""
LATELY_S: Final = 3600.0


def sources(
    paths: ProxyPaths, config: ProxyConfig, space: str, sealing: SessionSealing | None = None
) -> list[TranscriptSource]:
    """Return the sources of transcripts in the user's configuration, with their progress in this
    space. Blocks briefly.
    """
    return [source_of(agent, paths, config, space, sealing) for agent in dict.fromkeys(config.transcripts)]


def source_of(
    agent: str, paths: ProxyPaths, config: ProxyConfig, space: str, sealing: SessionSealing | None = None
) -> TranscriptSource:
    """Return the source of one client's transcripts. Without `sealing`, it can be inspected but not
    sent.
    """
    parser = PARSERS[agent]
    root = folder_of(parser, config)
    return TranscriptSource(paths, space, parser, root, sealing)


def folder_of(parser: Parser, config: ProxyConfig) -> Path:
    """Return the folder of a client's transcripts: from the configuration, or else the client's
    default.
    """
    said: str = getattr(config, f"{parser.agent.replace('-', '_')}_folder")
    return (Path(said).expanduser() if said else parser.home()).absolute()


async def send_all(
    paths: ProxyPaths,
    config: ProxyConfig,
    link: RequestChannel,
    space: str,
    sealing: SessionSealing,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, int]:
    """Send all new messages once, and return the numbers of `SentTotals`.

    With `force`, ask the daemon about every session, even those that this device has recorded as
    sent. `progress` is called with (processed bytes, bytes in total).

    Raises RequestError, ConnectionLost or TimeoutError if the messages cannot be sent.
    """
    every = await asyncio.to_thread(sources, paths, config, space, sealing)
    for source in every:
        await source.look_back(link)
    listed = [(source, (await asyncio.to_thread(source.find_files))[0]) for source in every]
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
    return {
        name: sum(getattr(source.sent_totals, name) for source in every) for name in ("sessions", "messages", "skipped")
    }


def pending_bytes(paths: ProxyPaths, config: ProxyConfig, space: str) -> int:
    """Return the number of bytes in all transcripts that are not processed yet. Blocks briefly."""
    return sum(source.pending_bytes(source.find_files()[0]) for source in sources(paths, config, space))


class TranscriptStreamer:
    """Sends new messages of transcripts over one link."""

    def __init__(
        self, paths: ProxyPaths, config: ProxyConfig, link: Link, sealing: SessionSealing, services: ServiceRunner
    ) -> None:
        self._services = services
        self._sealing = sealing
        self._paths = paths
        self._config = config
        self._link = link

    async def run(self) -> None:
        """Look for new messages and send them whenever the link is up, until cancelled."""
        async with TaskGroup() as group:
            for agent in dict.fromkeys(self._config.transcripts):
                name = f"sending transcripts of {agent}"
                group.create_task(self._services.keep(name, partial(self._keep, agent, name)))

    async def _keep(self, agent: str, name: str) -> None:
        """Follow one source while this process, and no other one of this device, holds its seat."""
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
                        await self._follow(source, space, name)
                    else:
                        await asyncio.sleep(SEAT_AGAIN_S)
            except ConnectionLost:
                raise_if_cancelled()
                log.debug("the link went down under a transcript")
            except (ConfideError, TimeoutError, OSError) as error:
                raise_if_cancelled()
                self._services.note(name, f"{name} stopped ({reason(error)}) and is tried again")
                await asyncio.sleep(TROUBLE_S)
            finally:
                seat.leave()

    async def _follow(self, source: TranscriptSource, space: str, name: str) -> None:
        """Send what is due, while the link is up and leads to this space."""
        source.on_up()
        await source.look_back(self._link)
        lookout = Lookout(source)
        while self._leads_to(space):
            for file, quiet_s in await asyncio.to_thread(lookout.changed_files):
                await source.advance(self._link, file, to_the_end=quiet_s >= self._config.transcript_quiet_s)
            self._services.well(name)
            await asyncio.sleep(POLL_S)

    def _space(self) -> str:
        return self._link.space

    def _leads_to(self, space: str) -> bool:
        return bool(self._link.is_up) and self._space() == space


class Lookout:
    """Looks for transcripts of one source that have new messages. Methods block briefly."""

    def __init__(self, source: TranscriptSource) -> None:
        self._source = source
        self._files: dict[str, TranscriptFile] = {}
        self._folders: dict[Path, int] = {}
        self._walked_at = float("-inf")
        self._changed_files: dict[str, tuple[TranscriptFile, float]] = {}

    def changed_files(self) -> list[tuple[TranscriptFile, float]]:
        """Return the transcripts that may have new messages, each with the number of seconds since
        its last change.
        """
        if time.monotonic() - self._walked_at >= WALK_S or self._folders != self._stamps(self._folders):
            self._walk()
        else:
            looks = {session: looked_at(file) for session, file in self._files.items()}
            self._files = {session: file for session, file in looks.items() if file is not None}
        self._changed_files = {session: seen for session, seen in self._changed_files.items() if session in self._files}
        waiting = [file for file in self._files.values() if not self._source.is_settled(file)]
        return [(file, self._quiet_s(file)) for file in waiting]

    def _walk(self) -> None:
        files, folders = self._source.find_files()
        self._walked_at = time.monotonic()
        self._folders = self._stamps(folders)
        since_ns = (time.time() - LATELY_S) * 1e9
        self._files = {
            file.session: file for file in files if file.mtime_ns >= since_ns or not self._source.is_settled(file)
        }

    def _quiet_s(self, file: TranscriptFile) -> float:
        """Return the seconds since the last change, from the second look on by the monotonic clock,
        since the wall clock may jump.
        """
        seen = self._changed_files.get(file.session)
        if seen is None:
            since = time.monotonic() - max(0.0, time.time() - file.mtime_ns / 1e9)
            seen = self._changed_files[file.session] = (file, since)
        elif seen[0] != file:
            seen = self._changed_files[file.session] = (file, time.monotonic())
        return time.monotonic() - seen[1]

    def _stamps(self, folders: dict[Path, int] | list[Path]) -> dict[Path, int]:
        stamps = dict.fromkeys(folders, 0)
        for folder in folders:
            with suppress(OSError):
                stamps[folder] = folder.stat().st_mtime_ns
        return stamps
