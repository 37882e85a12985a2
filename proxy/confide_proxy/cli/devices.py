"""`confide device …`: the machines that may open what is sealed in the space (docs/devices.md)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, ForkedRosterError, LinkError, RequestError, printable
from confide_crypto.keys.identity import fingerprint_words, typed_words
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Device
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.cli.console import (
    AsJson,
    Here,
    Output,
    clock,
    command,
    confirmed,
    print_json,
    remark,
    row,
    say,
    seconds,
    typed,
)
from confide_proxy.devices import roster_client
from confide_proxy.devices.pairing import Invitation, Invitations
from confide_proxy.errors import DeviceError
from confide_proxy.link import daemon

if TYPE_CHECKING:
    from confide_proxy.devices.connection import SpaceConnection
    from confide_proxy.devices.keyring import Keyring

device_app = typer.Typer(help="The machines that may open what is sealed in the space.", no_args_is_help=True)

_CODE_LETTERS: Final = 40
_LOOK_AGAIN_S = 5.0
"""While waiting for a machine to join, should the daemon's word of it be lost."""
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Words = Annotated[
    str | None,
    typer.Option("--words", help="The six words that the other machine shows; left out, they are asked for."),
]
_TRIES: Final = 3
"""To type six words."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The machine's name, or its six words.")]


@device_app.command("ls")
@command
async def device_ls(here: Here) -> Output:
    """List the devices of the space, who waits to be one, and the words by which people know the space."""
    from confide_proxy.devices.connection import SpaceConnection

    async with SpaceConnection.open(here.paths, here.config) as space:
        keyring = space.keyring
        try:
            await keyring.refresh(space.connection)
        except (LinkError, RequestError):
            raise
        except ConfideError as error:
            keyring.problem = error
        mine = (await keyring.identity()).public_key
    found, problem = listed(keyring, mine), keyring.problem
    told = {"problem": str(problem), "hint": problem.hint} if problem else {"problem": None, "hint": None}
    return Output({**found, **told}, lambda: _tell_devices(found, problem))


def _tell_devices(found: dict[str, Any], problem: ConfideError | None) -> None:
    space = found["space"]
    if space["words"]:
        doubt = "" if space["isConfirmed"] else "  (as the daemon says; not confirmed here)"
        locked = ", locked" if space["isLocked"] else ""
        kept = {"caller": "its devices", "server": "the daemon", "": "?"}[space["custody"]]
        row(f"space {space['words']}{doubt}")
        row(f"change {space['number']}  {space['headWords']}")
        row(f"epoch {space['epoch']}; the key of its database is kept by {kept}{locked}")
    width = max((len(one["name"]) for one in [*found["devices"], *found["waiting"]]), default=0)
    for one in found["devices"]:
        about = (
            [f"added by {one['addedBy']}" + (", since removed" if one["isAdderRemoved"] else "")]
            if one["addedBy"]
            else []
        )
        about += [text for key, text in (("isThis", "this machine"), ("isPaper", "on paper")) if one[key]]
        row(f"{one['name']:<{width}}  {one['words']}  since {one['since'][:10]}  {', '.join(about)}")
    for one in found["waiting"]:
        state = "waits; joined by an invite of a device" if one["wasInvited"] else "waits for approval"
        row(f"{one['name']:<{width}}  {one['words']}  {state}")
    if problem is not None:
        remark(f"note: {problem.with_hint}")


@device_app.command("invite")
def device_invite(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new machine will be called.")],
    ttl: Annotated[str, typer.Option("--ttl", help="How long the invite is good for.")] = "15m",
    scope: Annotated[str, typer.Option("--scope", help="What the machine may do: read, write or admin.")] = "write",
    url: Annotated[str | None, typer.Option("--url", help="The daemon's address, as the machine reaches it.")] = None,
    wait: Annotated[
        bool | None,
        typer.Option("--wait/--no-wait", help="Wait and show who joined.", show_default="wait in a terminal"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the one string with which a machine joins the space and gets its keys, once; then wait for it."""
    name = checked(name)
    ttl_s = seconds(ttl, "smhd", most_days=30, option="--ttl", examples="90s, 15m, 1h or 2d")
    is_waited_for = sys.stdout.isatty() if wait is None else wait
    asyncio.run(_invite(context.obj, name, ttl_s, scope, url, is_waited_for, as_json))


async def _invite(
    here: Here, name: str, ttl_s: int, scope: str, url: str | None, is_waited_for: bool, as_json: bool
) -> None:
    async with connected(here) as space:
        assert space.keyring.roster is not None
        before = frozenset(space.keyring.roster.devices)
        address, static = _daemon(here)
        made = DeviceInvite.new(static, url or address)
        kept = Invitation(space.keyring.space, name, made.pair, time.time() + ttl_s)
        # First on the disk: the machine may join before this one has heard that the invite was taken.
        await asyncio.to_thread(Invitations(here.paths.rosters).keep, kept)
        try:
            until = await roster_client.invite(space.connection, made.invite, name=name, ttl_s=ttl_s, scope=scope)
        except RequestError:
            await asyncio.to_thread(Invitations(here.paths.rosters).forget, kept)
            raise
        if as_json:
            print_json({"invite": made.to_string(), "name": name, "scope": scope, "expiresAt": _iso(until)})
        else:
            say(made.to_string())
            remark(f"On {name}: run confide join, and paste it   (good once, until {clock(until)})")
            if any(local in (url or address) for local in ("//127.0.0.1", "//[::1]", "//localhost")):
                remark("note: its address can be reached from this machine only; others need --url")
        sys.stdout.flush()
        if is_waited_for:
            joiner = await _joined(space.keyring, space, before, name, until)
            if as_json:
                print_json({"joined": joiner.name, "words": fingerprint_words(joiner.key)})
            else:
                row(f"joined: {printable(joiner.name)}  {fingerprint_words(joiner.key)}")


async def _joined(keyring: Keyring, space: Any, before: frozenset[bytes], name: str, until: float) -> Device:
    """The device that the invite has brought; this machine adds it, or another session of it does."""
    while time.time() < until:
        await space.news(min(_LOOK_AGAIN_S, max(0.1, until - time.time())))
        await keyring.refresh(space.connection)
        require_keys(keyring)
        assert keyring.roster is not None
        for device in keyring.roster.devices.values():
            if device.key not in before and device.name == name:
                return device
    raise DeviceError(
        f"nobody joined: the invite for {name} has expired", hint=f"make another: confide device invite {name}"
    )


@device_app.command("approve")
@command
async def device_approve(here: Here, name: Name, words: Words = None) -> Output:
    """Add a machine that waits, by the six words that it shows: they are typed here, or name it."""
    async with connected(here) as space:
        keyring = space.keyring
        joiner = _waiting(keyring, name)
        card = joiner.card
        if card is None or card.key != joiner.key or not card.verify():
            raise DeviceError(f"the daemon shows no good card of {joiner.name}", hint="let it connect once more")
        identity = await keyring.identity()
        mine = fingerprint_words(joiner.key)
        given = name if typed_words(name) == mine else words
        await compare(f"the six words that confide key show prints on {joiner.name}", [mine], given=given)

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            if card.key in roster.devices:
                return None
            return roster.add(identity, Device(card, joiner.name), keys or require_keys(keyring), now=int(time.time()))

        roster = await keyring.extend(space.connection, make)
    device = facts(roster, roster.devices[card.key])
    further = (
        f"on it, run confide device confirm, and type the words that confide device ls shows here:\n"
        f"  change {roster.pin.number}  {roster.head_words}"
    )
    told = f"added: {device['name']}  {device['words']}\n\n{further}"
    return Output({**device, "spaceWords": roster.words, "headWords": roster.head_words}, told)


@asynccontextmanager
async def connected(
    here: Here, *, needs_keys: bool = True, may_have_parted: bool = False
) -> AsyncIterator[SpaceConnection]:
    """A connection about the devices of the space, whose keyring is as the daemon shows it now. Raises the keyring's problem.

    `may_have_parted`: another branch of the roster than this machine's is left as the keyring's problem.
    """
    from confide_proxy.devices.connection import SpaceConnection

    async with SpaceConnection.open(here.paths, here.config) as space:
        try:
            await space.keyring.refresh(space.connection)
        except ForkedRosterError:
            if not may_have_parted:
                raise
        if needs_keys:
            require_keys(space.keyring)
        yield space


def listed(keyring: Keyring, mine: bytes) -> dict[str, Any]:
    """A roster as --json shows it: the space, its devices, who waits, and whether this machine can seal."""
    roster = keyring.roster or keyring.unconfirmed
    shown = keyring.shown
    waiting = shown.waiting if shown else ()
    known = roster.devices if roster else {}
    return {
        "space": {
            "words": roster.words if roster else None,
            "number": roster.pin.number if roster else None,
            "headWords": roster.head_words if roster else None,
            "isConfirmed": keyring.roster is not None,
            "epoch": roster.epoch if roster else 0,
            "custody": keyring.custody,
            "isLocked": shown.is_locked if shown else None,
        },
        "canSeal": keyring.keys is not None,
        "devices": [{**facts(roster, each), "isThis": each.key == mine} for each in known.values()] if roster else [],
        "waiting": [
            {"name": one.name, "words": fingerprint_words(one.key), "wasInvited": one.request is not None}
            for one in waiting
            if one.key not in known and one.key != mine
        ],
    }


def facts(roster: Roster, device: Device) -> dict[str, Any]:
    """A device as --json shows it."""
    entry = next((each for each in roster.entries if each.device is not None and each.device.key == device.key), None)
    since = _iso(entry.time) if entry else ""
    name = printable(device.name)  # it was another machine's to choose
    told = {"name": name, "words": fingerprint_words(device.key), "isPaper": device.is_paper, "since": since}
    adder = roster.adder(device.key)
    by = {"addedBy": adder and printable(adder.name), "addedByWords": adder and fingerprint_words(adder.key)}
    return {**told, **by, "isAdderRemoved": adder is not None and adder.key not in roster.devices}


def _iso(time_s: float) -> str:
    """ "" for a time that no calendar has: in a roster it is whatever its signer wrote."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


async def compare(what: str, right: Collection[str], *, given: str | None) -> str:
    """The words that a person has read on another machine, which must be among the `right` ones; they are typed, unless `given`.

    They are not shown to be looked at: people compare the first and the last, and a key with these two costs minutes (docs/decisions/).

    Raises DeviceError: they are others, or nobody is there to type them.
    """
    if given is None and not sys.stdin.isatty():
        raise DeviceError("nobody is here to type the words", hint="run it in a terminal, or give them with --words")
    for left in reversed(range(1 if given is not None else _TRIES)):
        words = typed_words(given if given is not None else await typed(f"type {what}"))
        if words in right:
            return words
        if not words:
            break
        if left:
            remark("those are other words; was one mistyped?")
    hint = "were they typed as they stand there? words that differ mean that somebody else answers: do not go on"
    raise DeviceError("the words are not the same, and nothing was changed", hint=hint)


async def ask(question: str, *, is_sure: bool, compared: str = "") -> None:
    """Go on only if a person says yes; to words that are the same, where some are to be `compared`. Raises DeviceError."""
    if is_sure:
        return
    if compared:
        remark(compared)
    if not sys.stdin.isatty():
        what, then = ("compare the words", " once you have compared") if compared else ("be asked", "")
        raise DeviceError(f"nobody is here to {what}", hint=f"run it in a terminal, or with --yes{then}")
    if not await confirmed(question):
        hint = "words that differ mean that somebody else answers: do not go on" if compared else None
        raise DeviceError("nothing was changed", hint=hint)


def require_keys(keyring: Keyring) -> SpaceKeys:
    """The keys of the space. Raises the keyring's problem."""
    if keyring.keys is None:
        raise keyring.problem or DeviceError("this machine has no keys of its space", hint="confide device ls")
    return keyring.keys


def checked(name: str) -> str:
    """The name. Raises DeviceError: a recovery code or an invite was pasted in its place, which must be neither shown nor sent."""
    typed = "".join(letter for letter in name if letter.isalnum()).upper()
    # A machine's six words may begin so and be as long; of codes, one in a million has no digit.
    if typed.startswith("CR") and len(typed) == _CODE_LETTERS and not typed.isalpha():
        hint = "others on this machine can read arguments: once it is used, make another with confide recovery new --replace"
        raise DeviceError("this is a recovery code, not the name of a machine", hint=hint)
    if "://" in name or "invite1" in name:
        hint = "paste it into confide join, on the new machine; others on this one can read arguments"
        raise DeviceError("this is an invite, not the name of a machine", hint=hint)
    return name


def remover(identity: Any, key: bytes) -> Any:
    """What makes a roster without that device, for `Keyring.extend`."""

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        if keys is None or key not in roster.devices:
            return None
        return roster.remove(identity, key, keys, now=int(time.time()))[0]

    return make


def find(roster: Roster, name: str) -> Device:
    """The device of that name or those words. Raises DeviceError."""
    checked(name)
    found = [each for each in roster.devices.values() if name in (each.name, fingerprint_words(each.key))]
    if len(found) == 1:
        return found[0]
    if found:
        words = "; ".join(fingerprint_words(each.key) for each in found)
        raise DeviceError(f"{len(found)} devices are called {name}", hint=f"name one by its words: {words}")
    known = ", ".join(printable(each.name) for each in roster.devices.values())
    raise DeviceError(f"no device is called {name}", hint=f"there are {known}")


def _waiting(keyring: Keyring, name: str) -> roster_client.Joiner:
    checked(name)
    members = keyring.roster.devices if keyring.roster else {}
    joiners = [one for one in (keyring.shown.waiting if keyring.shown else ()) if one.key not in members]
    found = [one for one in joiners if name in (one.name, fingerprint_words(one.key))]
    if len(found) == 1:
        return found[0]
    if any(name in (device.name, fingerprint_words(device.key)) for device in members.values()):
        raise DeviceError(f"{name} is a device of the space already", hint="confide device ls shows its words")
    names = ", ".join(one.name for one in joiners)
    hint = f"there waits {names}" if names else "it has to join first, and to connect once: confide device ls, on it"
    raise DeviceError(f"nobody called {name} waits to be a device", hint=hint)


def _daemon(here: Here) -> tuple[str, bytes]:
    """The daemon's address as this machine knows it, and its static key."""
    joined = daemon.known(here.paths)
    if joined is None:
        raise DeviceError("the daemon's address is not known here", hint="confide status")
    return joined.url, joined.daemon_static
