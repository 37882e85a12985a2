"""`confide device …`: the machines that may open what is sealed in the space (docs/devices.md)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, LinkError, RequestError, printable
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Device
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.requests import records
from confide_proxy.cli.console import (
    DEADLINE_S,
    AsJson,
    Here,
    Output,
    clock,
    command,
    confirmed,
    identified,
    print_json,
    remark,
    row,
    say,
    seconds,
)
from confide_proxy.devices import roster_client
from confide_proxy.devices.pairing import Invitation, Invitations
from confide_proxy.errors import AnotherSpaceError, DeviceError, UnfitAnswerError
from confide_proxy.link import daemon

if TYPE_CHECKING:
    from confide_memory.documents import Asks
    from confide_proxy.devices.connection import SpaceConnection
    from confide_proxy.devices.keyring import Keyring

device_app = typer.Typer(help="The machines that may open what is sealed in the space.", no_args_is_help=True)

_CODE_LETTERS: Final = 40
_PAGE: Final = 1000
_MOST_LISTED: Final = 100_000
_MOST_LOOKED_FOR: Final = 200
"""Secrets whose documents are looked for: a search each."""
_MOST_DOCUMENTS: Final = 10
_RESEAL_AT_ONCE: Final = 1000
"""Records that are sealed anew right away; sessions go through the rest."""
_SHOWN: Final = 50
_LOOK_AGAIN_S = 5.0
"""While waiting for a machine to join, should the daemon's word of it be lost."""
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
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
        about = [text for key, text in (("isThis", "this machine"), ("isPaper", "on paper")) if one[key]]
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
async def device_approve(here: Here, name: Name, yes: Yes = False) -> Output:
    """Add a machine that waits, after comparing its six words with those that it shows."""
    async with connected(here) as space:
        keyring = space.keyring
        joiner = _waiting(keyring, name)
        card = joiner.card
        if card is None or card.key != joiner.key or not card.verify():
            raise DeviceError(f"the daemon shows no good card of {joiner.name}", hint="let it connect once more")
        identity = await keyring.identity()
        words = fingerprint_words(joiner.key)
        shown = f"{joiner.name} must show these words (confide key show):\n  {words}"
        await ask("does it?", is_sure=yes, compared=shown)

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            if card.key in roster.devices:
                return None
            return roster.add(identity, Device(card, joiner.name), keys or require_keys(keyring), now=int(time.time()))

        roster = await keyring.extend(space.connection, make)
    device = facts(roster, roster.devices[card.key])
    further = (
        f"on it, run confide device confirm, and compare with what confide device ls shows here:\n"
        f"  change {roster.pin.number}  {roster.head_words}"
    )
    told = f"added: {device['name']}  {device['words']}\n\n{further}"
    return Output({**device, "spaceWords": roster.words}, told)


@device_app.command("confirm")
@command
async def device_confirm(here: Here, yes: Yes = False) -> Output:
    """Confirm on a machine that was approved, or moved, that the daemon shows it the right space, by comparing words."""
    async with connected(here, needs_keys=False) as space:
        keyring = space.keyring
        if isinstance(keyring.problem, AnotherSpaceError):
            moved = "the daemon names another space for this machine than before: has whoever runs it moved it there?"
            await ask(moved, is_sure=yes)
            await keyring.move(space.connection)
        if keyring.unconfirmed is not None:
            shown = keyring.unconfirmed
            # Of the newest change, not of the first one: a list from before a device was removed begins with the same.
            compared = f"  change {shown.pin.number}  {shown.head_words}"
            question = f"a machine of the space must show the same (confide device ls):\n{compared}"
            await ask("does it?", is_sure=yes, compared=question)
            await keyring.confirm(space.connection, shown.pin)
        if keyring.roster is None:
            raise keyring.problem or DeviceError("the daemon shows no space", hint="confide device ls")
        words, problem = keyring.roster.words, keyring.problem

    def tell() -> None:
        say(f"confirmed: {words}")
        if problem is not None:
            remark(f"note: {problem.with_hint}")

    told = {"canSeal": problem is None, "problem": str(problem) if problem else None}
    return Output({"spaceWords": words, **told}, tell)


@device_app.command("rm")
@command
async def device_rm(here: Here, name: Name, yes: Yes = False) -> Output:
    """Remove a device: it opens nothing that is sealed from now on. Then list what it could open."""
    async with connected(here) as space:
        keyring = space.keyring
        assert keyring.roster is not None
        identity = await keyring.identity()
        device = find(keyring.roster, name)
        removed = facts(keyring.roster, device)
        if device.key == identity.public_key:
            hint = "remove it on another one: it would make the key that it must not have"
            raise DeviceError("this machine cannot remove itself", hint=hint)
        await ask(f"remove {removed['name']}  {removed['words']}?", is_sure=yes)
        # Before and after: as soon as there is a new epoch, other machines begin to seal old records anew.
        exposed = await sealed_secrets(space.connection, None)
        roster = await keyring.extend(space.connection, remover(identity, device.key))
        if exposed is not None:
            exposed |= await sealed_secrets(space.connection, roster.epoch) or {}
        resealed = await _reseal(here.paths.rosters, space) if exposed else 0
    if exposed:
        await _find_documents(here, exposed)
    shown = None if exposed is None else list(exposed.values())
    result = {"removed": removed, "epoch": roster.epoch, "exposed": shown, "resealed": resealed}
    return Output(result, lambda: tell_removal(result))


def tell_removal(result: dict[str, Any]) -> None:
    """For a person: who was removed, and what they could open (PROTOCOL.md 10.7)."""
    device, exposed = result["removed"], result["exposed"]
    row(f"removed: {device['name']}  {device['words']}  (epoch {result['epoch']} begins)")
    if not device["isPaper"]:
        # Never by its name: `confided callers rename` changes that of the daemon alone, so it may be another machine's there.
        remark(
            "unless it was revoked already, it still has access to the memory; to end that, on the daemon's machine: "
            "confided revoke, with the name that confided callers shows beside these words"
        )
    if exposed is None:
        remark("note: this machine may not list the space's secrets; one with all projects can")
        return
    if not exposed:
        say("nothing was sealed yet, so there was nothing that it could open")
        return
    kinds = Counter(one["kind"] for one in exposed)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    say(f"it could open {counts}. They must be changed at their source:")
    for one in exposed[:_SHOWN]:
        row(f"  {one['kind']}  {one['id']}  {', '.join(one['documents']) or 'no document that was found'}")
    if len(exposed) > _SHOWN:
        say(f"  and {len(exposed) - _SHOWN} more; --json lists all")


async def sealed_secrets(link: Asks, below: int | None) -> dict[str, dict[str, Any]] | None:
    """The secrets of the space by their ids, or those whose records are of epochs before `below`, each as --json shows it; None where
    this machine may not see them all."""
    found: dict[str, dict[str, Any]] = {}
    after = ""
    while len(found) < _MOST_LISTED:
        try:
            body = {"after": after, "limit": _PAGE, "below": below}
            answer = await link.request("record-list", body, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code != "denied":
                raise
            return None
        if "next" not in answer:
            raise UnfitAnswerError
        page = records(answer, "records", id=str, kind=str, at=str)
        found |= {one["id"]: {**one, "documents": []} for one in page}
        following = answer["next"]
        if not isinstance(following, str) or following <= after:
            break
        after = following
    return found


async def _reseal(folder: Path, space: SpaceConnection) -> int:
    from confide_proxy.devices.reseal import Resealing

    keys = space.keyring.keys
    if keys is None:
        return 0
    # Another machine has begun a newer epoch, or this one may not write: sessions go on with it.
    with suppress(RequestError):
        return await Resealing(folder, keys).run(space.connection, pause_s=0, most=_RESEAL_AT_ONCE)
    return 0


async def _find_documents(here: Here, exposed: dict[str, dict[str, Any]]) -> None:
    """Name documents (`project: path`) in which the first of them stand, as far as they can be found now."""
    with suppress(ConfideError, TimeoutError):
        async with here.client(await identified(here, Path.cwd())) as client:
            for name in list(exposed)[:_MOST_LOOKED_FOR]:
                arguments = {"query": name, "project": "*", "maxResults": _MOST_DOCUMENTS}
                answer = await client.call("memory_search", arguments)
                hits = [hit for hit in answer["results"] if name in hit["snippet"]]
                exposed[name]["documents"] = list(
                    dict.fromkeys(printable(f"{hit['project']}: {hit['path']}") for hit in hits)
                )


@asynccontextmanager
async def connected(here: Here, *, needs_keys: bool = True) -> AsyncIterator[SpaceConnection]:
    """A connection about the devices of the space, whose keyring is as the daemon shows it now. Raises the keyring's problem."""
    from confide_proxy.devices.connection import SpaceConnection

    async with SpaceConnection.open(here.paths, here.config) as space:
        await space.keyring.refresh(space.connection)
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
    return {"name": name, "words": fingerprint_words(device.key), "isPaper": device.is_paper, "since": since}


def _iso(time_s: float) -> str:
    """ "" for a time that no calendar has: in a roster it is whatever its signer wrote."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


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
