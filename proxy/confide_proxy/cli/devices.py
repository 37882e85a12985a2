"""The commands `confide device …`: the devices that can open the space's sealed data
(docs/devices.md).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, ForkedRosterError, LinkError, RequestError, printable
from confide_crypto.keys.identity import fingerprint_words, typed_words
from confide_crypto.sealing.roster_entry import Device
from confide_proxy.cli.console import (
    AsJson,
    CommandContext,
    Output,
    clock,
    command,
    print_json,
    read_line,
    remark,
    row,
    say,
    seconds,
)
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import (
    add,
    card_of,
    check_device_name,
    facts,
    invite,
    iso,
    require_keys,
    roster_json,
    waiting,
)
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import DeviceError
from confide_proxy.link import daemon

_LOOK_AGAIN_S = 5.0
"""Seconds between checks for a device that joins, in case the daemon's notification is lost."""
Words = Annotated[
    str | None,
    typer.Option("--words", help="The six words that the other device shows; without it, Confide asks."),
]
_TRIES: Final = 3
"""Attempts to type six words."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The device's name, or its six words.")]


@command
async def device_ls(here: CommandContext) -> Output:
    """List the devices of the space, those waiting for approval, and the words of the space."""
    async with SpaceConnection.open(here.paths, here.config) as space:
        keyring = space.keyring
        try:
            await keyring.refresh(space.connection)
        except (LinkError, RequestError):
            raise
        except ConfideError as error:
            keyring.problem = error
        mine = (await keyring.identity()).public_key
    found, problem = roster_json(keyring, mine), keyring.problem
    fields = {"problem": str(problem), "hint": problem.hint} if problem else {"problem": None, "hint": None}
    return Output({**found, **fields}, lambda: _print_devices(found, problem))


def _print_devices(found: dict[str, Any], problem: ConfideError | None) -> None:
    space = found["space"]
    if space["words"]:
        doubt = "" if space["isConfirmed"] else "  (as the daemon says; not confirmed here)"
        locked = ", locked" if space["isLocked"] else ""
        kept = {"caller": "its devices", "server": "the daemon", "": "?"}[space["custody"]]
        row(f"space {space['words']}{doubt}")
        row(f"change {space['number']}  {space['headWords']}")
        row(f"the key of its database is kept by {kept}{locked}")
    width = max((len(one["name"]) for one in [*found["devices"], *found["waiting"]]), default=0)
    for one in found["devices"]:
        about = (
            [f"added by {one['addedBy']}" + (", since removed" if one["isAdderRemoved"] else "")]
            if one["addedBy"]
            else []
        )
        about += [text for key, text in (("isThis", "this device"), ("isPaper", "on paper")) if one[key]]
        row(f"{one['name']:<{width}}  {one['words']}  since {one['since'][:10]}  {', '.join(about)}")
    for one in found["waiting"]:
        state = "waits for the device that invited it, or for approval" if one["wasInvited"] else "waits for approval"
        row(f"{one['name']:<{width}}  {one['words']}  {state}")
    if problem is not None:
        remark(f"note: {problem.with_hint}")


def device_invite(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new device will be called.")],
    ttl: Annotated[str, typer.Option("--ttl", help="How long the invite is good for.")] = "15m",
    scope: Annotated[str, typer.Option("--scope", help="What the device may do: read, write or admin.")] = "write",
    url: Annotated[str | None, typer.Option("--url", help="The daemon's address, as the device reaches it.")] = None,
    wait: Annotated[
        bool | None,
        typer.Option("--wait/--no-wait", help="Wait and show who joined.", show_default="wait in a terminal"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print an invite, with which one device joins the space and gets its keys; then wait for it."""
    name = check_device_name(name)
    ttl_s = seconds(ttl, "smhd", most_days=30, option="--ttl", examples="90s, 15m, 1h or 2d")
    is_waited_for = sys.stdout.isatty() if wait is None else wait
    asyncio.run(_invite(context.obj, name, ttl_s, scope, url, is_waited_for, as_json))


async def _invite(
    here: CommandContext, name: str, ttl_s: int, scope: str, url: str | None, is_waited_for: bool, as_json: bool
) -> None:
    async with connect_to_space(here) as space:
        assert space.keyring.roster is not None
        before = frozenset(space.keyring.roster.devices)
        address, static = _daemon(here)
        made, until = await invite(
            here.paths,
            space.keyring,
            space.connection,
            name,
            static=static,
            url=url or address,
            ttl_s=ttl_s,
            scope=scope,
        )
        if as_json:
            print_json({"invite": made.to_string(), "name": name, "scope": scope, "expiresAt": iso(until)})
        else:
            say(made.to_string())
            remark(f"On {name}: run confide join, and paste it   (good once, until {clock(until)})")
            if any(local in (url or address) for local in ("//127.0.0.1", "//[::1]", "//localhost")):
                remark("note: its address can be reached from this device only; others need --url")
        sys.stdout.flush()
        if is_waited_for:
            joiner = await _wait_for_joining(space.keyring, space, before, name, until)
            if as_json:
                print_json({"joined": joiner.name, "words": fingerprint_words(joiner.key)})
            else:
                row(f"joined: {printable(joiner.name)}  {fingerprint_words(joiner.key)}")


async def _wait_for_joining(keyring: Keyring, space: Any, before: frozenset[bytes], name: str, until: float) -> Device:
    """Wait until the invited device is on the roster; this device adds it, or another session here
    does.

    Raises DeviceError at `until` (Unix time), when the invite expires.
    """
    while time.time() < until:
        await space.news(min(_LOOK_AGAIN_S, max(0.1, until - time.time())))
        await keyring.refresh(space.connection)
        require_keys(keyring)
        assert keyring.roster is not None
        for device in keyring.roster.devices.values():
            if device.key not in before and device.name == name:
                return device
    raise DeviceError(
        f"no device joined: the invite for {name} has expired", hint=f"make another: confide device invite {name}"
    )


@command
async def device_approve(here: CommandContext, name: Name, words: Words = None) -> Output:
    """Add a waiting device after the user has typed its six words, or named the device by them."""
    async with connect_to_space(here) as space:
        keyring = space.keyring
        joiner = waiting(keyring, name)
        card = card_of(joiner)
        mine = fingerprint_words(joiner.key)
        given = name if typed_words(name) == mine else words
        await compare(f"the six words that confide device key show prints on {joiner.name}", [mine], given=given)
        roster = await add(keyring, space.connection, joiner.name, card)
    device = facts(roster, roster.devices[card.key])
    further = (
        f"on it, run confide device confirm, and type the words that confide device ls shows here:\n"
        f"  change {roster.pin.number}  {roster.head_words}"
    )
    message = f"added: {device['name']}  {device['words']}\n\n{further}"
    return Output({**device, "spaceWords": roster.words, "headWords": roster.head_words}, message)


@asynccontextmanager
async def connect_to_space(
    here: CommandContext, *, needs_keys: bool = True, may_have_parted: bool = False
) -> AsyncIterator[SpaceConnection]:
    """Connect to the daemon, and fetch the space's roster and keys.

    Args:
        needs_keys: True if the command needs the keys of the space.
        may_have_parted: True if the daemon's roster may fork from this device's. The fork is then
            no error, but stays in the keyring's `problem`.

    Raises the error in the keyring's `problem` if there are no keys and the command needs them.
    """
    async with SpaceConnection.open(here.paths, here.config) as space:
        try:
            await space.keyring.refresh(space.connection)
        except ForkedRosterError:
            if not may_have_parted:
                raise
        if needs_keys:
            require_keys(space.keyring)
        yield space


async def compare(what: str, right: Collection[str], *, given: str | None) -> str:
    """Ask the user to type the words that another device shows, and return them if they are in
    `right`.

    The right words are never shown for comparison. Users compare the first and the last word, and
    an attacker can compute a key with the same two in minutes (docs/decisions/).

    Args:
        what: what the user has to type, for the prompt.
        given: words from the command line, which are used instead of asking.

    Raises DeviceError if the words differ, or if there is no terminal to type them in.
    """
    if given is None and not sys.stdin.isatty():
        raise DeviceError(
            "the words have to be typed, and there is no terminal to ask in",
            hint="run it in a terminal, or give them with --words",
        )
    for left in reversed(range(1 if given is not None else _TRIES)):
        words = typed_words(given if given is not None else await read_line(f"type {what}"))
        if words in right:
            return words
        if not words:
            break
        if left:
            remark("the words differ; is one mistyped?")
    hint = "are they typed exactly as shown there? If they differ, another device or server answers: do not go on"
    raise DeviceError("the words differ, and nothing was changed", hint=hint)


def _daemon(here: CommandContext) -> tuple[str, bytes]:
    """Return the address and static key of the joined daemon."""
    joined = daemon.known_daemon(here.paths)
    if joined is None:
        raise DeviceError("the daemon's address is not known here", hint="confide status")
    return joined.url, joined.daemon_static
