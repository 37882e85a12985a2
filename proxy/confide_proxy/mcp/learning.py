"""The learner of a process that serves an agent or watches folders. Imported only where learning is on."""

from __future__ import annotations

import logging

from confide_proxy.config import ProxyConfig
from confide_proxy.learn.learner import Learner
from confide_proxy.mcp.client import Client
from confide_proxy.paths import Paths

log = logging.getLogger(__name__)


def learner(paths: Paths, config: ProxyConfig) -> Learner:
    """One with a connection of its own, for as long as it has something to keep: the project is seldom the session's."""
    return Learner(paths, config, lambda project: Client(paths, config, project))


async def learn(paths: Paths, config: ProxyConfig) -> None:
    """Learn until cancelled, in turns with the other processes of this machine."""
    try:
        await learner(paths, config).run()
    except Exception as error:
        # A transcript of next year's client must not end the memory of a session.
        log.warning("nothing more is learned in this session: %s", type(error).__name__)
