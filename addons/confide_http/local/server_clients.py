"""Who reaches this machine's space over HTTP, by the gateway of its server: told to a person, let in by the person's words, and shut out.

Whoever uses that gateway lets the end of its TLS, and the client's vendor, read what is asked and found. So a person hears of each.
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
    """Those that the daemon tells of, by name; none where it is an older one, which has no gateway.

    `by`: the key of the machine that has let it in; None: the operator has, or the daemon is an older one.
    """
    try:
        answer = await GATEWAY.ask(connection, {}, timeout_s=_DEADLINE_S)
    except RequestError:
        return []
    return answer["clients"]


async def asked(connection: RequestChannel, words: str) -> SignIn:
    """What the program asks for whose page shows these words, in whatever form they were typed. Raises RequestError: none does."""
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
    """Let it in, for what it asks or less; the scope and the days that it got.

    Raises RequestError: it asks no more, or this machine may not decide.
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
    """Shut one out, within a second. Raises RequestError: there is none of this name."""
    await GATEWAY_END.ask(connection, {"name": name}, timeout_s=_DEADLINE_S)


async def end_those_of(connection: RequestChannel, keys: Collection[bytes]) -> list[str]:
    """Shut out whom machines with these keys have let in; their names. Raises RequestError: this machine may not decide."""
    mine = [one["name"] for one in await clients_of(connection) if one["by"] in keys]
    for name in mine:
        try:
            await end(connection, name)
        except RequestError as error:
            if error.code != "not_found":  # it has ended meanwhile
                raise
    return mine


def does(scope: object) -> str:
    """What a program may that has a scope."""
    return "read and write" if scope == "write" else "read"


def line(client: GatewayClient) -> str:
    """What one of them may."""
    what = "reads and writes" if client["scope"] == "write" else "reads"
    word = ", as an agent's word" if client["trusted"] else ", untrusted" if client["scope"] == "write" else ""
    until = f" until {local_time(client['expires'])}" if client["expires"] else ""
    used = f"used {local_time(client['used'])}" if client["used"] else "never used"
    return f"{client['name']} {what} this space by HTTP{word}{until}, {used}; its vendor can read what it asks for and finds"


async def status(connection: RequestChannel) -> AddonMessage:
    """What `confide status` tells of them; nothing where there are none."""
    found = await clients_of(connection)
    shown = [{**one, "by": one["by"].hex() if one["by"] else None} for one in found]
    return AddonMessage({"gatewayClients": shown} if found else {}, [line(each) for each in found], heading="by HTTP")


async def findings(connection: RequestChannel) -> list[DoctorFinding]:
    """What `confide doctor` tells of them."""
    return [
        DoctorFinding("gateway", "hint", line(each), f"on the server: confided http rm {each['name']}")
        for each in await clients_of(connection)
    ]


async def end_with(connection: RequestChannel, keys: Collection[bytes]) -> AddonMessage:
    """Shut out whom machines have let in that were removed, and tell of it."""
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
