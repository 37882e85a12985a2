"""What a command and an agent's session have in common when they talk to the daemon: how they attach, and how long a call may take.

Apart from both, since a command that needs no more loads no more: people wait for it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from confide_proxy import VERSION
from confide_proxy.config import ProxyConfig

if TYPE_CHECKING:
    from confide_memory.wire.session import AttachRequest

CALL_DEADLINE_S: Final = 10.0
LONG_JOB_DEADLINE_S: Final = 3600.0
RELINK_DEADLINE_S: Final = 2.0
"""How long a call waits for a link that was there before, and the list of resources for an answer: some of them are known here."""


def attach_body(project: str, config: ProxyConfig) -> AttachRequest:
    """The `attach` request of this machine, for a connection that is told nothing of what others change."""

    return {
        "project": project,
        "machine": socket.gethostname() or "unnamed",
        "proxyVersion": VERSION,
        "toolsets": list(config.toolsets),
        "watches": False,
    }
