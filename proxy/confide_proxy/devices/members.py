"""The devices of a space as users see them: list them, find them by name or words, invite, add and
remove them.
"""

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
from confide_memory.wire.sealing import EndedCaller
from confide_proxy.devices import roster_client
from confide_proxy.devices.device_pairing import Invitation, Invitations
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import DeviceError
from confide_proxy.paths import ProxyPaths

_CODE_LETTERS: Final = 40


def roster_json(keyring: Keyring, mine: bytes) -> dict[str, object]:
    """Return a roster for `--json`: the space, its devices, the devices that wait for approval, and
    whether this device can seal.

    Args:
        mine: this device's public key.
    """
    roster = keyring.roster or keyring.unconfirmed
    shown = keyring.daemon_roster
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
    """Return the fields of a device for `--json`."""
    entry = next((each for each in roster.entries if each.device is not None and each.device.key == device.key), None)
    since = iso(entry.time) if entry else ""
    name = printable(device.name)  # another device chose it
    told = {"name": name, "words": fingerprint_words(device.key), "isPaper": device.is_paper, "since": since}
    adder = roster.adder(device.key)
    present = adder and roster.current(adder.key)
    by = {
        "addedBy": adder and printable(adder.name),
        "addedByWords": adder and fingerprint_words((present or adder).key),
    }
    return {**told, **by, "isAdderRemoved": adder is not None and present is None}


def is_called(roster: Roster, device: Device, name: str) -> bool:
    """Return True if this is the device's name, or the words of its key or of one that it had
    before, which the user may have written down then.
    """
    keys = (device.key, *roster.earlier_keys(device.key))
    return name in (device.name, *(fingerprint_words(key) for key in keys))


def find(roster: Roster, name: str) -> Device:
    """Return the device with this name, or with these words of its key's fingerprint. Raises
    DeviceError if there is none, or if several have the name.
    """
    check_device_name(name)
    found = [each for each in roster.devices.values() if is_called(roster, each, name)]
    if len(found) == 1:
        return found[0]
    if found:
        words = "; ".join(fingerprint_words(each.key) for each in found)
        raise DeviceError(f"{len(found)} devices are called {name}", hint=f"name one by its words: {words}")
    known = ", ".join(printable(each.name) for each in roster.devices.values())
    raise DeviceError(f"no device is called {name}", hint=f"there are {known}")


def waiting(keyring: Keyring, name: str) -> roster_client.Joiner:
    """Return the device that waits for approval and has this name, or these words of its key's
    fingerprint.

    Raises DeviceError if no such device or several of them wait, or if the device is in the space
    already.
    """
    check_device_name(name)
    members = keyring.roster.devices if keyring.roster else {}
    joiners = [
        one for one in (keyring.daemon_roster.waiting if keyring.daemon_roster else ()) if one.key not in members
    ]
    found = [one for one in joiners if name in (one.name, fingerprint_words(one.key))]
    if len(found) == 1:
        return found[0]
    if any(name in (device.name, fingerprint_words(device.key)) for device in members.values()):
        hint = "if it cannot open secrets yet, run confide device confirm on it; confide device ls here shows the words of the change"
        raise DeviceError(f"{name} is a device of the space already", hint=hint)
    names = ", ".join(one.name for one in joiners)
    hint = f"waiting: {names}" if names else "it has to join and connect first: run confide device ls on it"
    raise DeviceError(f"no device called {name} waits for approval", hint=hint)


def card_of(joiner: roster_client.Joiner) -> Card:
    """Return the card (the public keys) of a waiting device. Raises DeviceError if it has sent no
    valid one.
    """
    card = joiner.card
    if card is None or card.key != joiner.key or not card.verify():
        raise DeviceError(f"the daemon shows no good card of {joiner.name}", hint="let it connect once more")
    return card


async def add(keyring: Keyring, link: RequestChannel, name: str, card: Card) -> Roster:
    """Add a device whose words the user has compared, and return the new roster.

    Raises RosterError if the roster cannot be changed; KeyFileError or KeyLockedError if this
    device's key cannot be used; RequestError, ConnectionLost or TimeoutError if a request fails.
    """
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
    """Create an invite that lets one device into the space and gives it the space's keys. Return it
    with its expiry in seconds since 1970.

    Args:
        name: the name of the new device.
        static: the daemon's key, which the invite pins.
        url: the daemon's address, as the new device reaches it.
        ttl_s: seconds until the invite expires.
        scope: what the device may do: read, write or admin.
    """
    made = DeviceInvite.new(static, url)
    kept = Invitation(keyring.space, name, made.pair, time.time() + ttl_s)
    # Stored first: the new device may join before this one gets the daemon's answer.
    await asyncio.to_thread(Invitations(paths.rosters).keep, kept)
    try:
        until = await roster_client.invite(link, made.invite, name=name, ttl_s=ttl_s, scope=scope)
    except RequestError:
        await asyncio.to_thread(Invitations(paths.rosters).forget, kept)
        raise
    return made, until


def remover(identity: Any, key: bytes) -> Any:
    """Return a function for `Keyring.extend` that removes the device that has this key, or had it
    before, from a roster.

    Args:
        identity: this device's key pair, which signs the removal.
    """

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        device = roster.current(key)  # a thief may have changed its key a moment ago
        if keys is None or device is None:
            return None
        return roster.remove(identity, device.key, keys, now=int(time.time()))[0]

    return make


async def remove(keyring: Keyring, link: RequestChannel, key: bytes) -> list[EndedCaller] | None:
    """Remove a device from the roster. Return the devices and apps whose access to the daemon has
    ended with that; None if the device may still connect, or if the daemon does not say.

    Raises RosterError if the roster cannot be changed; KeyFileError or KeyLockedError if this
    device's key cannot be used; RequestError, ConnectionLost or TimeoutError if a request fails. If
    this device was removed itself meanwhile, raises the error that says why it has no keys.
    """
    keyring.ended_callers = None
    roster = await keyring.extend(link, remover(await keyring.identity(), key))
    if roster.current(key) is not None:
        require_keys(keyring)
    if keyring.ended_callers is None:
        # It was removed before, maybe by another device just now: ask whether it may connect.
        removals = [each for each in roster.entries if key in (each.removed, *roster.earlier_keys(each.removed))]
        entry = removals[-1]
        keyring.ended_callers = await roster_client.extend(link, entry)
    return keyring.ended_callers


def require_keys(keyring: Keyring) -> SpaceKeys:
    """Return the keys of the space. If there are none, raises the error in the keyring's `problem`."""
    if keyring.keys is None:
        raise keyring.problem or DeviceError("this device has no keys of its space", hint="confide device ls")
    return keyring.keys


def check_device_name(name: str) -> str:
    """Return the name. Raises DeviceError if it is a recovery code or an invite, pasted by mistake,
    which must neither be shown nor sent.
    """
    typed = "".join(letter for letter in name if letter.isalnum()).upper()
    # A device's six words may begin like a code and be as long; one code in a million has no digit.
    if typed.startswith("CR") and len(typed) == _CODE_LETTERS and not typed.isalpha():
        hint = "others on this device can read arguments: once it is used, make another with confide device recovery new --replace"
        raise DeviceError("this is a recovery code, not the name of a device", hint=hint)
    if "://" in name or "invite1" in name:
        hint = "paste it into confide join, on the new device; others on this one can read arguments"
        raise DeviceError("this is an invite, not the name of a device", hint=hint)
    return name


def iso(time_s: float) -> str:
    """Format a time in ISO 8601; return "" if it is out of range. A roster entry can contain any
    number, since its signer chooses it.
    """
    try:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
