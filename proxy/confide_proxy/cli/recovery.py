"""The commands of `confide device recovery`: a recovery code on paper, for a user who has lost all
devices (docs/devices.md).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Annotated, Any

import typer

from confide_crypto.errors import ConfideError, KeyFileError, LinkError, printable
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card, Device
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_proxy.cli.console import (
    AsJson,
    CommandContext,
    Output,
    Yes,
    ask_confirmation,
    command,
    print_json,
    remark,
    require_consent,
    say,
    unseen,
)
from confide_proxy.cli.devices import connect_to_space
from confide_proxy.devices.members import facts, find, remover, require_keys
from confide_proxy.errors import DeviceError, UnshownError
from confide_proxy.link.daemon import load_pin

_PAPER: str = "recovery code"
_UNSEEN = "if confide device ls shows a new recovery code, it was never shown: confide device recovery new --replace"


def recovery_new(
    context: typer.Context,
    replace: Annotated[bool, typer.Option("--replace", help="Remove the code that there is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a recovery code, and print it once, with the words of the space."""
    code, words, problem = asyncio.run(_new(context.obj, replaces=replace))
    try:
        # Not through the console, which ends the command silently if the reader of a pipe has gone.
        if as_json:
            print_json({"code": code, "spaceWords": words})
        else:
            sys.stdout.write(f"{code}\n")
        sys.stdout.flush()
    except OSError as error:
        # Keep the interpreter from flushing again at its end, with its own message and exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        why = error.strerror or type(error).__name__
        raise UnshownError(f"the new recovery code could not be shown: {why}", hint=_UNSEEN) from error
    if not as_json:
        remark(
            f"\nWrite it down, with the words of the space:  {words}\n"
            "Anyone who has this code can decrypt every secret; it is not shown again."
        )
    if problem is not None:
        raise problem


@command
def recovery_use(
    here: CommandContext,
    yes: Yes = False,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="A device that is lost; may be given several times.")
    ] = None,
) -> Output:
    """Make this device a member of its space with the recovery code, typed or read from stdin."""
    code = RecoveryCode.parse(unseen("recovery code"))
    answer = asyncio.run(_use(here, code, is_sure=yes, lost=remove or []))

    def print_text() -> None:
        say(f"this device is a device of the space {answer['spaceWords']}")
        for name in answer["removed"]:
            say(f"removed: {name}")
        remark("The code was used: make another with confide device recovery new --replace")

    return Output(answer, print_text)


async def _new(here: CommandContext, *, replaces: bool) -> tuple[str, str, ConfideError | None]:
    """Create a recovery code, and return it with the words of the space.

    The third value is the error if the old code could not be removed: the new one is shown
    regardless.
    """
    async with connect_to_space(here) as space:
        keyring = space.keyring
        assert keyring.roster is not None
        old = [device.key for device in keyring.roster.devices.values() if device.is_paper]
        if old and not replaces:
            hint = "confide device recovery new --replace makes another, and the old one can decrypt nothing new"
            raise DeviceError("this space has a recovery code", hint=hint)
        code = RecoveryCode.generate()
        identity = await keyring.identity()

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster:
            card = Card.of(code.identity)
            keys = keys or require_keys(keyring)
            return roster.add(identity, Device(card, _PAPER, is_paper=True), keys, now=int(time.time()))

        try:
            roster = await keyring.extend(space.connection, make)
        except (KeyFileError, LinkError) as error:
            error.hint = _UNSEEN
            raise
        problem: ConfideError | None = None
        try:
            for key in old:  # the new code is added before the old one is removed
                await keyring.extend(space.connection, remover(identity, key))
        except (ConfideError, TimeoutError) as error:
            hint = "this code is good all the same; remove the old one: confide device ls, and confide device rm WORDS"
            problem = DeviceError(f"the old code is not removed: {error}", hint=hint)
        return code.to_string(), roster.words, problem


async def _use(here: CommandContext, code: RecoveryCode, *, is_sure: bool, lost: list[str]) -> dict[str, Any]:
    paper = code.identity
    async with connect_to_space(here, needs_keys=False) as space:
        keyring, link = space.keyring, space.connection
        roster = keyring.roster or keyring.unconfirmed
        if roster is None or paper.public_key not in roster.devices:
            hint = "was it replaced, or is it of another space? a removed code can decrypt nothing new"
            if load_pin(here.paths.link) is None:
                hint = "this device has a daemon of its own; join the one of that space first: confide join"
            raise DeviceError("this recovery code is not of the space that the daemon shows", hint=hint)
        identity = await keyring.identity()
        named = [find(roster, name) for name in lost]
        if any(device.key == identity.public_key for device in named):
            raise DeviceError("this device cannot remove itself", hint="name those that are lost")
        if keyring.roster is None:
            shown = f"beside the code must stand these words of the space:\n  {roster.words}"
            await require_consent("do they?", is_sure=is_sure, compared=shown)
            await keyring.confirm(link, roster.pin)

        def make(roster: Roster, _keys: SpaceKeys | None) -> Roster | None:
            if identity.public_key in roster.devices:
                return None
            device = Device(Card.of(identity), keyring.own_name)
            return roster.add(paper, device, roster.open(WrapKey(paper)), now=int(time.time()))

        roster = await keyring.extend(link, make)
        # The daemon may have been waiting for a key that only the recovery code could open.
        await keyring.refresh(link)
        require_keys(keyring)
        removed = []
        for device in named or await _ask_lost_devices(roster, identity.public_key, is_sure=is_sure):
            roster = await keyring.extend(link, remover(identity, device.key))
            removed.append(device.name)
        mine = facts(roster, roster.devices[identity.public_key])
        return {"spaceWords": roster.words, "device": mine, "removed": removed, "epoch": roster.epoch}


async def _ask_lost_devices(roster: Roster, mine: bytes, *, is_sure: bool) -> list[Device]:
    """Ask at a terminal about each device whether it is lost, and return those to remove."""
    others = [device for device in roster.devices.values() if device.key != mine and not device.is_paper]
    if is_sure or not sys.stdin.isatty():
        if others:
            names = ", ".join(printable(device.name) for device in others)
            remark(f"is any of these lost? remove it with confide device rm: {names}")
        return []
    return [
        device
        for device in others
        if await ask_confirmation(f"is {printable(device.name)} ({fingerprint_words(device.key)}) lost, to be removed?")
    ]
