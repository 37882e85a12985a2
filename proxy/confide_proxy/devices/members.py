"""The machines of a space as people know them: listed, found by name or words, invited, added, removed."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, Final

from confide_crypto.errors import RequestError, printable
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_proxy.devices import roster_client
from confide_proxy.devices.device_pairing import Invitation, Invitations
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import DeviceError
from confide_proxy.paths import ProxyPaths

_CODE_LETTERS: Final = 40


def listed(keyring: Keyring, mine: bytes) -> dict[str, object]:
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


def facts(roster: Roster, device: Device) -> dict[str, object]:
    """A device as --json shows it."""
    entry = next((each for each in roster.entries if each.device is not None and each.device.key == device.key), None)
    since = iso(entry.time) if entry else ""
    name = printable(device.name)  # it was another machine's to choose
    told = {"name": name, "words": fingerprint_words(device.key), "isPaper": device.is_paper, "since": since}
    adder = roster.adder(device.key)
    by = {"addedBy": adder and printable(adder.name), "addedByWords": adder and fingerprint_words(adder.key)}
    return {**told, **by, "isAdderRemoved": adder is not None and adder.key not in roster.devices}


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


def waiting(keyring: Keyring, name: str) -> roster_client.Joiner:
    """The machine of that name or those words that waits to be a device. Raises DeviceError."""
    checked(name)
    members = keyring.roster.devices if keyring.roster else {}
    joiners = [one for one in (keyring.shown.waiting if keyring.shown else ()) if one.key not in members]
    found = [one for one in joiners if name in (one.name, fingerprint_words(one.key))]
    if len(found) == 1:
        return found[0]
    if any(name in (device.name, fingerprint_words(device.key)) for device in members.values()):
        raise DeviceError(f"{name} is a device of the space already", hint="confide device ls shows its words")
    names = ", ".join(one.name for one in joiners)
    hint = f"waiting: {names}" if names else "it has to join and connect first: run confide device ls on it"
    raise DeviceError(f"no device called {name} waits for approval", hint=hint)


def card_of(joiner: roster_client.Joiner) -> Card:
    """What a machine that waits shows of itself. Raises DeviceError: nothing that is good."""
    card = joiner.card
    if card is None or card.key != joiner.key or not card.verify():
        raise DeviceError(f"the daemon shows no good card of {joiner.name}", hint="let it connect once more")
    return card


async def add(keyring: Keyring, link: RequestChannel, name: str, card: Card) -> Roster:
    """The roster with that machine on it, whose words a person has compared. Raises as `Keyring.extend`."""
    identity = await keyring.identity()

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        if card.key in roster.devices:
            return None
        return roster.add(identity, Device(card, name), keys or require_keys(keyring), now=int(time.time()))

    return await keyring.extend(link, make)


async def invite(
    paths: ProxyPaths,
    keyring: Keyring,
    link: RequestChannel,
    name: str,
    *,
    static: bytes,
    url: str,
    ttl_s: int,
    scope: str,
) -> tuple[DeviceInvite, float]:
    """An invite that lets one machine into the space, with its keys, and until when, in seconds since 1970.

    Args:
        static: the daemon's key, which the invite pins.
        url: the daemon's address, as that machine reaches it.
    """
    made = DeviceInvite.new(static, url)
    kept = Invitation(keyring.space, name, made.pair, time.time() + ttl_s)
    # First on the disk: the machine may join before this one has heard that the invite was taken.
    await asyncio.to_thread(Invitations(paths.rosters).keep, kept)
    try:
        until = await roster_client.invite(link, made.invite, name=name, ttl_s=ttl_s, scope=scope)
    except RequestError:
        await asyncio.to_thread(Invitations(paths.rosters).forget, kept)
        raise
    return made, until


def remover(identity: Any, key: bytes) -> Any:
    """What makes a roster without that device, for `Keyring.extend`."""

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        if keys is None or key not in roster.devices:
            return None
        return roster.remove(identity, key, keys, now=int(time.time()))[0]

    return make


def require_keys(keyring: Keyring) -> SpaceKeys:
    """The keys of the space. Raises the keyring's problem."""
    if keyring.keys is None:
        raise keyring.problem or DeviceError("this device has no keys of its space", hint="confide device ls")
    return keyring.keys


def checked(name: str) -> str:
    """The name. Raises DeviceError: a recovery code or an invite was pasted in its place, which must be neither shown nor sent."""
    typed = "".join(letter for letter in name if letter.isalnum()).upper()
    # A machine's six words may begin so and be as long; of codes, one in a million has no digit.
    if typed.startswith("CR") and len(typed) == _CODE_LETTERS and not typed.isalpha():
        hint = "others on this device can read arguments: once it is used, make another with confide device recovery new --replace"
        raise DeviceError("this is a recovery code, not the name of a device", hint=hint)
    if "://" in name or "invite1" in name:
        hint = "paste it into confide join, on the new device; others on this one can read arguments"
        raise DeviceError("this is an invite, not the name of a device", hint=hint)
    return name


def iso(time_s: float) -> str:
    """A time, ISO 8601; "" for a time that no calendar has: in a roster it is whatever its signer wrote."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
