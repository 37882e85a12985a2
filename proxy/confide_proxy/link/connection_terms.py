"""Attach requests and deadlines that commands and agent sessions share.

This is a separate module so that a command imports no more than it needs: users wait for its start.
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
"""Seconds that a call waits for a broken link to come back, and that the list of resources waits
for the daemon's response: some of them are known here.
"""


def attach_body(project: str, config: ProxyConfig) -> AttachRequest:
    """Return the body of an `attach` request that asks for no notifications about changes by other
    devices.
    """

    return {
        "project": project,
        "machine": socket.gethostname() or "unnamed",
        "proxyVersion": VERSION,
        "toolsets": list(config.toolsets),
        "watches": False,
    }
