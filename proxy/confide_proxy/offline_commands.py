"""A tool call of the command line, which goes on without the daemon as an agent's does (docs/offline.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import ConfideError, RequestError
from confide_proxy import catalogue as catalogues
from confide_proxy.catalogue import META_OPERATION, META_SAID
from confide_proxy.errors import BlockedError, FolderError, StateError, ToolError, UnsealableError
from confide_proxy.journal import Counts, Journal, is_empty, new_id
from confide_proxy.projects import Project
from confide_proxy.tunnel import RELINK_DEADLINE_S

if TYPE_CHECKING:
    from confide_proxy.cli import Here
    from confide_proxy.client import Client

SEND_DEADLINE_S = 60.0
"""How long a command sends what waits before it does what it was asked; the rest goes with the next one."""
Note = Callable[[list[str]], None]


async def call(
    here: Here, project: Project, tool: str, arguments: dict[str, Any], *, sync: bool, note: Note
) -> dict[str, Any]:
    """The structured result of a tool, from the daemon, or from this machine while it cannot be reached.

    Args:
        sync: compare the files first: what was edited a moment ago counts too.
        note: tells a person what there is to know besides.

    Raises:
        RequestError, ToolError: the call cannot be done.
        ConfideError, TimeoutError: the daemon cannot be reached, and this machine does not answer in its place.
    """
    from confide_proxy.offline import Said

    catalogue = catalogues.load(here.paths.catalogue)
    is_queued = catalogue.offline(tool) == "queue"
    said = datetime.now().astimezone().isoformat(timespec="seconds")
    asked = Said(catalogue.tool(tool), arguments, new_id() if is_queued else None, said if is_queued else None)
    meta = {META_OPERATION: asked.operation, META_SAID: said} if asked.operation else None
    began = time.time()
    try:
        async with AsyncExitStack() as stack:
            client = await _entered(stack, here, project, is_hasty=catalogue.offline(tool) != "fail")
            is_behind = not await send_queue(client, here, note)
            if is_behind and is_queued:
                return await _without(here, project, asked, None, began, is_behind=True)
            if sync:
                # Unchanged files cost one small comparison.
                try:
                    await client.sync()
                except TimeoutError:
                    raise
                except (RequestError, FolderError, StateError) as error:
                    note([f"the files here could not be compared: {error}"])
                except OSError as error:  # this machine's state, and the daemon answers all the same
                    note([f"the files here could not be compared: {error.strerror or type(error).__name__}"])
            return await client.call(tool, arguments, more_meta=meta)
    except (RequestError, ToolError, BlockedError, UnsealableError):
        raise
    except (ConfideError, TimeoutError) as error:
        if catalogue.offline(tool) == "fail":
            raise
        return await _without(here, project, asked, error, began)


async def send_queue(client: Client, here: Here, note: Note) -> bool:
    """Send what waits on this machine, as far as it can be sent now; whether nothing waits any more.

    Raises:
        ConnectionLost: the link went down.
        StateError, JournalError, KeyFileError: the journal cannot be used.
    """
    if is_empty(here.paths.journal):
        return True
    from confide_proxy.replay import Replay

    try:
        async with asyncio.timeout(SEND_DEADLINE_S):
            outcome = await Replay(Journal(here.paths.journal), here.paths.seats, client.sealed).run(client.connection)
    except TimeoutError:
        note(["not everything that waits on this machine could be sent in time"])
        return False
    if outcome.sent:
        note([f"sent what waited on this machine: {outcome.sent} {'store' if outcome.sent == 1 else 'stores'}"])
    if outcome.refused:
        note([f"the daemon refused {outcome.refused} of what waited on this machine; they are kept: confide queue"])
    if outcome.why:
        note([f"what waits on this machine could not all be sent: {outcome.why}"])
    return outcome.why is None


def counts(here: Here) -> Counts:
    """What waits on this machine; nothing where its journal cannot be read."""
    try:
        return Journal(here.paths.journal).counts()
    except ConfideError:
        return Counts()


async def _entered(stack: AsyncExitStack, here: Here, project: Project, *, is_hasty: bool) -> Client:
    from confide_proxy.client import Client

    # A daemon that is started on this machine takes its time, and there is no other way to it.
    is_hasty = is_hasty and here.paths.link.exists()
    async with asyncio.timeout(RELINK_DEADLINE_S if is_hasty else None):
        return await stack.enter_async_context(Client(here.paths, here.config, project))


async def _without(
    here: Here, project: Project, asked: Any, error: BaseException | None, began: float, *, is_behind: bool = False
) -> dict[str, Any]:
    from confide_proxy.absence import Trouble
    from confide_proxy.key_rotation import MachineKeys
    from confide_proxy.offline import Offline
    from confide_proxy.sealing.calls import SealedCalls
    from confide_proxy.sealing.space_sealing import Sealing

    trouble = Trouble(error if isinstance(error, ConfideError) else None, began, is_behind)
    if error is not None and (trouble.is_told or (trouble.is_final and asked.operation)):
        raise error
    sealed = SealedCalls(Sealing(here.paths, here.config, MachineKeys(here.paths)), project.name)
    answer = await Offline(here.paths, here.config, project, sealed).ask(asked, trouble)
    if answer.structured is None:
        raise error or ToolError(answer.text)
    return answer.structured
