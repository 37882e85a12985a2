"""The command `confide device confirm`: confirm that the daemon shows the right space (PROTOCOL.md
10.7), or choose between two forked rosters (10.6, docs/decisions/0023).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from confide_crypto.errors import ForkedRosterError, printable
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import Device, RosterChange, RosterEntry
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ask_confirmation,
    command,
    remark,
    require_consent,
    row,
    say,
)
from confide_proxy.cli.devices import Words, compare, connect_to_space
from confide_proxy.devices.fork import Fork
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import AnotherSpaceError, DeviceError, NotADeviceError


@command
async def device_confirm(
    here: CommandContext,
    words: Words = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="Confirm that the server's operator moved this device to another space.")
    ] = False,
    add_again: Annotated[
        bool,
        typer.Option(
            "--add-again", help="If two lists of devices differ, add again the devices that only this one has."
        ),
    ] = False,
) -> Output:
    """Confirm by words, on an approved or moved device, that the daemon shows the right space."""
    async with connect_to_space(here, needs_keys=False, may_have_parted=True) as space:
        keyring = space.keyring
        mended = (
            await _resolve_fork(space, words, add_again) if isinstance(keyring.problem, ForkedRosterError) else None
        )
        if isinstance(keyring.problem, AnotherSpaceError):
            question = "the daemon names another space for this device than before: did its operator move it?"
            await require_consent(question, is_sure=moved)
            await keyring.move(space.connection)
        if keyring.unconfirmed is not None:
            await keyring.confirm(space.connection, await _ask_for_pin(keyring.unconfirmed, words))
        if keyring.roster is None:
            raise keyring.problem or DeviceError("the daemon shows no space", hint="confide device ls")
        space_words, problem = keyring.roster.words, keyring.problem

    def print_text() -> None:
        say(f"confirmed: {space_words}")
        for one in mended["removed"] if mended else ():
            row(f"removed: {one['name']}  {one['words']}")
        for one in mended["added"] if mended else ():
            row(f"added again: {one['name']}  {one['words']}  (on it, run confide device confirm as well)")
        if problem is not None:
            remark(f"note: {problem.with_hint}")

    fields = {"canSeal": problem is None, "problem": str(problem) if problem else None}
    return Output({"spaceWords": space_words, **fields, "mended": mended}, print_text)


async def _resolve_fork(space: SpaceConnection, words: str | None, add_again: bool) -> dict[str, Any]:
    """Adopt the daemon's roster, if the user types its words as another device shows them.

    Returns the devices that were removed and added again. Raises the keyring's problem if the
    rosters have no common beginning, and DeviceError if nothing was changed.
    """
    keyring, link = space.keyring, space.connection
    problem = keyring.problem
    assert problem is not None
    fork = await keyring.find_fork(link)
    if fork is None:
        raise problem
    mine = (await keyring.identity()).public_key
    if mine in fork.known.removed:
        raise NotADeviceError(fingerprint_words(mine), was_removed=True)
    _print_fork(fork)
    if mine not in fork.shown.devices and fork.returning:
        await keyring.show_card(link)
        names = " and ".join(f"confide device rm {fingerprint_words(each.key)}" for each in fork.returning)
        hint = f"on a device that is on it, run {names}, then confide device approve; then this again"
        raise DeviceError("this device is not on the daemon's list, so it cannot remove them there", hint=hint)
    what = "the six words that confide device ls shows beside the change, on another device of yours"
    await compare(what, [fork.shown.head_words], given=words)
    again = frozenset([each.key for each in fork.missing if add_again or await _is_wanted(each)])
    parted, roster = await keyring.resolve_fork(link, fork.shown.pin, again)
    removed = [each for each in parted.returning if each.key not in roster.devices]
    return {"removed": _brief(removed), "added": _brief(each for each in parted.missing if each.key in again)}


async def _is_wanted(device: Device) -> bool:
    return sys.stdin.isatty() and await ask_confirmation(f"add {_device_line(device)} again?")


def _print_fork(fork: Fork) -> None:
    """Print the differences of both rosters and the consequences, to stderr with the question."""
    remark(
        f"this device and the daemon have the same list of devices up to change {fork.shared - 1}. From there on they differ."
    )
    for title, roster, entries in (
        ("only this device has", fork.known, fork.own_entries),
        ("only the daemon has", fork.shown, fork.others),
    ):
        remark(f"{title}:")
        for entry in entries:
            remark(f"  {_change(roster, entry)}")
    remark("if this device uses the daemon's list:")
    for device in fork.returning:
        why = "removed again" if device.key in fork.known.removed else "removed: a removed device had added it"
        remark(f"  {_device_line(device)}  is {why}. It could decrypt what was sealed since then")
    for device in fork.missing:
        remark(f"  {_device_line(device)}  is removed, unless you add it again")
    for device in fork.removed_devices:
        remark(f"  {_device_line(device)}  is removed. A removed key stays removed: the device needs a new one")


def _change(roster: Roster, entry: RosterEntry) -> str:
    known = {each.device.key: each.device for each in roster.entries if each.device is not None}
    by = printable(known[entry.signer].name)
    device = entry.device or known.get(entry.removed)
    done = {RosterChange.ADD: "added", RosterChange.REMOVE: "removed", RosterChange.ROTATE: "new key of the space"}.get(
        entry.change, "began"
    )
    return f"{done}{f' {_device_line(device)}' if device else ''}, by {by}"


def _device_line(device: Device) -> str:
    return f"{printable(device.name)}  {fingerprint_words(device.key)}"


def _brief(devices: Iterable[Device]) -> list[dict[str, object]]:
    return [
        {"name": printable(each.name), "words": fingerprint_words(each.key), "isPaper": each.is_paper}
        for each in devices
    ]


async def _ask_for_pin(roster: Roster, given: str | None) -> Pin:
    """Ask for the words of a roster's state, as a device of the space shows them, and return that
    state.

    Raises DeviceError.
    """
    states = {fingerprint_words(head): number for number, head in enumerate(roster.hashes)}
    typed = await compare(
        "the six words that confide device ls shows beside the change, on a device", states, given=given
    )
    number = states[typed]
    if number == 0 and len(states) > 1:
        # These are the words of the space itself: devices of older versions show only them, and an
        # old roster has them too.
        names = ", ".join(printable(each.name) for each in roster.devices.values())
        remark(
            f"these are the words of the space, which do not show how old the list is. It has these devices: {names}"
        )
        hint = "give the words that confide device ls shows beside the change"
        if not sys.stdin.isatty():
            raise DeviceError("the words of the space alone do not show how old the list of its devices is", hint=hint)
        await require_consent("are all of them still your devices?", is_sure=False)
    return Pin(roster.space, number, roster.hashes[number])
