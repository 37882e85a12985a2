"""Shows the devices of the space, those that wait for approval, invites, the apps that connect
through the server, and the tokens of programs on this device.

Recovery codes, key rotation and the custody of the database key are left to commands. A device is
approved by its six words, which the user types, as with the command.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response

from confide_crypto.errors import ConfideError, LinkError, RequestError, printable
from confide_crypto.keys.identity import fingerprint_words, typed_words
from confide_http.door.refusals import RefusalError
from confide_http.errors import TokenError
from confide_http.local import server_clients as by_http
from confide_http.local.local_tokens import DAYS, MOST_DAYS, TokenFile
from confide_memory.wire.sealing import GatewayClient
from confide_panel.drawing.qr import qr_code
from confide_panel.page_context import Found, PageContext
from confide_proxy.devices.members import (
    add,
    card_of,
    check_device_name,
    find,
    invite,
    require_keys,
    roster_json,
    waiting,
)
from confide_proxy.devices.members import remove as remove_device
from confide_proxy.errors import DeviceError
from confide_proxy.link import daemon

TTLS: Final = {"15 minutes": 900, "an hour": 3600, "a day": 86_400}
RIGHTS: Final = ("write", "read", "admin")
SCOPES: Final = ("read", "write", "secrets")
_HERE: Final = ("//127.0.0.1", "//[::1]", "//localhost")


async def show(desk: PageContext) -> Response:
    """Show the whole page."""
    return await _page(desk)


async def take_in(desk: PageContext) -> Response:
    """Create an invite, and show it once."""
    name, ttl, scope = (
        check_device_name(desk.form_text("name", 64)),
        desk.form_text("ttl", 20),
        desk.form_text("scope", 10),
    )
    if not name or ttl not in TTLS or scope not in RIGHTS:
        raise RefusalError(400, "invalid", "an invite has a name, a time and a right")
    joined = daemon.known_daemon(desk.gateway.paths)
    if joined is None:
        raise DeviceError("this device does not know the server's address", hint="confide status")
    keyring, link = _keyring(desk), desk.gateway.exchange.link
    require_keys(keyring)
    url = desk.form_text("url", 256) or joined.url
    made, until = await invite(
        desk.gateway.paths, keyring, link, name, static=joined.daemon_static, url=url, ttl_s=TTLS[ttl], scope=scope
    )
    text, is_local = made.to_string(), any(each in url for each in _HERE)
    invited = {"text": text, "name": name, "until": until, "is_local": is_local, "qr": qr_code(text)}
    return await _page(desk, invited=invited)


async def approve(desk: PageContext) -> Response:
    """Approve a waiting device by the six words on its screen."""
    keyring = _keyring(desk)
    await keyring.refresh(desk.gateway.exchange.link)
    joiner = waiting(keyring, desk.form_text("name", 256))
    if typed_words(desk.form_text("words", 256)) != fingerprint_words(joiner.key):
        hint = "type them as they stand there; if they really differ, another device answers: do not go on"
        raise DeviceError("the words are not the same, and nothing was changed", hint=hint)
    roster = await add(keyring, desk.gateway.exchange.link, joiner.name, card_of(joiner))
    told = f"{printable(joiner.name)} is a device now. On it, run confide device confirm, and type: change {roster.pin.number}"
    return desk.go("devices", f"{told} {roster.head_words}")


async def remove(desk: PageContext) -> Response:
    """Remove a device after its name was typed again. Its access ends, and it can no longer open
    sealed secrets.
    """
    words, typed = desk.form_text("words", 256), desk.form_text("typed", 256)
    keyring, link = _keyring(desk), desk.gateway.exchange.link
    await keyring.refresh(link)
    if keyring.roster is None:
        raise keyring.problem or DeviceError("the space has no list of devices yet")
    device = find(keyring.roster, words)
    identity = await keyring.identity()
    if device.key == identity.public_key:
        raise DeviceError("this device cannot remove itself", hint="remove it on another device")
    if typed != printable(device.name):
        raise DeviceError("that is not its name, and nothing was changed", hint="type it as it stands in the list")
    brought = [printable(each.name) for each in keyring.roster.brought_in_by(device.key)]
    ended = await remove_device(keyring, link, device.key)
    told = f"{printable(device.name)} is removed. Change the secrets that it could open at their source: see Secrets."
    if ended is None and not device.is_paper:
        # Never by its name, which may be another device's on the server.
        told += (
            " It can still read and write your memory. On the server, run: confided device rm NAME, with the name "
            f"that confided device ls shows beside {fingerprint_words(device.key)}."
        )
    if brought:
        told += f" It approved {', '.join(brought)}: remove them too, if they are not yours."
    return desk.go("devices", told)


async def make_token(desk: PageContext) -> Response:
    """Create a token for a program, and show it once."""
    chosen = tuple(scope for scope in SCOPES if desk.form.get(scope)) or ("read",)
    days = desk.form_text("days", 4)
    if not days.isdecimal() or not 1 <= int(days) <= MOST_DAYS:
        raise TokenError(f"a token is good for 1 to {MOST_DAYS:,} days")
    tokens = TokenFile(desk.gateway.paths.gateway)
    text, token = await asyncio.to_thread(tokens.add, desk.form_text("name", 64), chosen, days=int(days))
    return await _page(desk, made={"text": text, "name": token.name})


async def remove_token(desk: PageContext) -> Response:
    """Revoke a program's token, which takes effect within a second."""
    token = await asyncio.to_thread(TokenFile(desk.gateway.paths.gateway).remove, desk.form_text("name", 64))
    return desk.go("devices", f"The token {token.name} is revoked.")


async def _page(desk: PageContext, *, invited: Found | None = None, made: dict[str, str] | None = None) -> Response:
    keyring = _keyring(desk)
    problem: ConfideError | None = None
    if desk.gateway.exchange.link.is_up:
        try:
            await keyring.refresh(desk.gateway.exchange.link)
        except (LinkError, RequestError, TimeoutError):
            pass  # what was known is shown
        except ConfideError as error:
            problem = error
    mine = b""
    with suppress(ConfideError):
        mine = (await keyring.identity()).public_key
    programs: list[GatewayClient] | None = None
    with suppress(ConfideError, TimeoutError):
        programs = await by_http.clients_of(desk.gateway.calls.link)
    file = TokenFile(desk.gateway.paths.gateway)
    tokens, used = await asyncio.gather(asyncio.to_thread(file.all), asyncio.to_thread(file.last_uses))
    now = time.time()
    return desk.page(
        "devices.html",
        here="devices",
        found=roster_json(keyring, mine),
        problem=problem or keyring.problem,
        tokens=[(token, used.get(token.digest), token.is_good(now)) for token in tokens],
        programs=programs,
        invited=invited,
        made=made,
        ttls=TTLS,
        rights=RIGHTS,
        scopes=SCOPES,
        days=DAYS,
        is_up=desk.gateway.exchange.link.is_up,
    )


def _keyring(desk: PageContext) -> Any:
    return desk.gateway.exchange.session.sealing.keyring
