"""`secret_get`, answered on this machine: it alone has the keys. The value goes to the agent that asked, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_proxy.absence import Answer
from confide_proxy.sealing.opening import open_secret, secret_id_of
from confide_proxy.tool_arguments import checked

if TYPE_CHECKING:
    from confide_proxy.sealing.keyring import Keyring
    from confide_proxy.sealing.requests import Asks

TOOL: Final[dict[str, Any]] = {
    "name": "secret_get",
    "inputSchema": {
        "type": "object",
        "properties": {"id": {"type": "string", "minLength": 32, "maxLength": 80}},
        "required": ["id"],
    },
}
"""As the daemon lists it; a test keeps the two equal."""
DEADLINE_S: Final = 9.0
"""Within the ten seconds that a call has."""


async def answer(given: Any, keyring: Keyring, link: Asks) -> Answer:
    """The secret that a call asks for; what goes wrong is an answer too.

    Args:
        given: the call's arguments, as they came.
    """
    try:
        named = checked(TOOL, given)["id"]
        secret_id = secret_id_of(named)
        async with asyncio.timeout(DEADLINE_S):
            opened = await open_secret(link, keyring, named)
    except TimeoutError:
        return Answer("the daemon, which keeps the sealed records, did not answer in time: try again")
    except ConnectionLost:
        return Answer(
            "the link to the daemon broke; it keeps the sealed records, this machine only the keys: try again"
        )
    except ConfideError as error:
        return Answer(f"{error}\nhint: {error.hint}" if error.hint else str(error))
    value = opened.value.decode("utf-8", "replace")
    return Answer(value, {"id": secret_id.hex(), "kind": opened.kind, "value": value})
