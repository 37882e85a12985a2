"""Lists, approves and removes the programs that use this device's space over the gateway of its
server.

With such a gateway, the reverse proxy that ends TLS and the program's vendor can read requests and
results. So the user sees every program.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confide_crypto.errors import RequestError, printable
from confide_crypto.keys.identity import typed_words
from confide_http.door.wire import GATEWAY_END, SIGN_IN, SIGN_IN_APPROVE, ApproveRequest, SignIn
from confide_memory.documents import RequestChannel, local_time
from confide_memory.wire.sealing import GATEWAY, GatewayClient
from confide_proxy.addons import AddonMessage, DoctorFinding

_DEADLINE_S: Final = 15.0


async def clients_of(connection: RequestChannel) -> list[GatewayClient]:
    """Return the programs by name; none from an older daemon, which has no gateway.

    `by` of a program is the key of the device that approved it, or None if the operator added it or
    the daemon is older.
    """
    try:
        answer = await GATEWAY.ask(connection, {}, timeout_s=_DEADLINE_S)
    except RequestError:
        return []
    return answer["clients"]


async def find_sign_in(connection: RequestChannel, words: str) -> SignIn:
    """Return the access request of the program that shows these six words, in any spelling. Raises
    RequestError if there is no such request.
    """
    return await SIGN_IN.ask(connection, {"words": typed_words(words)}, timeout_s=_DEADLINE_S)


async def approve(
    connection: RequestChannel,
    words: str,
    *,
    scope: str,
    trusted: bool,
    days: int,
    name: str = "",
    projects: list[str] | None = None,
) -> tuple[str, int]:
    """Approve an access request, or less than it asks for; return the granted scope and the number
    of days.

    Raises RequestError if the request has ended or this device may not decide.
    """
    wish: ApproveRequest = {
        "words": typed_words(words),
        "name": name,
        "scope": scope,
        "projects": projects,
        "trusted": trusted,
        "days": days,
    }
    given = await SIGN_IN_APPROVE.ask(connection, wish, timeout_s=_DEADLINE_S)
    return given["scope"], days if given["days"] is None else given["days"]  # an older daemon takes any number


async def end(connection: RequestChannel, name: str) -> None:
    """Remove a program, which loses its access within a second. Raises RequestError if no program
    has this name.
    """
    await GATEWAY_END.ask(connection, {"name": name}, timeout_s=_DEADLINE_S)


async def end_those_of(connection: RequestChannel, keys: Collection[bytes]) -> list[str]:
    """Remove the programs that the devices with these keys approved; return their names. Raises
    RequestError if this device may not decide.
    """
    mine = [one["name"] for one in await clients_of(connection) if one["by"] in keys]
    for name in mine:
        try:
            await end(connection, name)
        except RequestError as error:
            if error.code != "not_found":  # it has ended meanwhile
                raise
    return mine


def does(scope: object) -> str:
    """Return words for users about a scope: `read and write` for `write`, else `read`."""
    return "read and write" if scope == "write" else "read"


def line(client: GatewayClient) -> str:
    """Describe a program's rights, expiry and last use in one line."""
    what = "reads and writes" if client["scope"] == "write" else "reads"
    word = ", as an agent's word" if client["trusted"] else ", untrusted" if client["scope"] == "write" else ""
    until = f" until {local_time(client['expires'])}" if client["expires"] else ""
    used = f"used {local_time(client['used'])}" if client["used"] else "never used"
    return f"{client['name']} {what} this space by HTTP{word}{until}, {used}; its vendor can read what it asks for and finds"


async def status(connection: RequestChannel) -> AddonMessage:
    """Return the lines of `confide status` about programs; none if there are no programs."""
    found = await clients_of(connection)
    shown = [{**one, "by": one["by"].hex() if one["by"] else None} for one in found]
    return AddonMessage({"gatewayClients": shown} if found else {}, [line(each) for each in found], heading="by HTTP")


async def findings(connection: RequestChannel) -> list[DoctorFinding]:
    """Return the findings of `confide doctor` about programs."""
    return [
        DoctorFinding("gateway", "hint", line(each), f"on the server: confided http rm {each['name']}")
        for each in await clients_of(connection)
    ]


async def end_with(connection: RequestChannel, keys: Collection[bytes]) -> AddonMessage:
    """Remove the programs that removed devices had approved, and report their names."""
    try:
        ended = await end_those_of(connection, keys)
    except RequestError as error:
        if error.code != "denied":
            raise
        hint = "another device can list and remove them: confide http ls"
        return AddonMessage({"programs": None}, remarks=[f"apps that it approved may still connect: {hint}"])
    return AddonMessage(
        {"programs": ended}, [f"ended: {printable(name)}, an app that it had approved" for name in ended]
    )
