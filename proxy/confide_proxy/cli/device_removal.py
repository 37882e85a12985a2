"""The commands `confide device rm` and `confide device lost`. They remove a device and its access,
and optionally the devices that it added, and list the secrets that it could open (PROTOCOL.md
10.7).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import typer

from confide_crypto.errors import EXIT_UNREACHABLE, ConfideError, LinkError, RequestError, printable
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Device
from confide_memory.documents import RequestChannel
from confide_memory.wire.sealing import EndedCaller
from confide_proxy import addons
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    Yes,
    ask_confirmation,
    command,
    project_of,
    remark,
    require_consent,
    row,
    say,
)
from confide_proxy.cli.devices import Name, connect_to_space
from confide_proxy.devices import roster_client
from confide_proxy.devices.duties import LostDevices
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import facts, find, is_called, remove
from confide_proxy.devices.reseal import Resealing
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import DeviceError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.mcp.client import CommandClient
from confide_proxy.offline.outage import Outage

_MOST_LISTED: Final = 100_000
_MOST_LOOKED_FOR: Final = 200
"""The most secrets whose documents are searched for: each costs a search."""
_MOST_DOCUMENTS: Final = 10
_RESEAL_AT_ONCE: Final = 1000
"""Records that the command seals again with new keys; sessions do the rest."""
_SHOWN: Final = 50
Added = Annotated[
    bool, typer.Option("--added", help="Remove the devices that it added too, those that these added, and so on.")
]


@command
async def device_rm(here: CommandContext, name: Name, added: Added = False, yes: Yes = False) -> Output:
    """Remove a device: its access ends, and it cannot open anything sealed from now on. List the
    secrets that it could open, and the devices that it has added.
    """
    async with connect_to_space(here) as space:
        keyring = space.keyring
        assert keyring.roster is not None
        device = _once_removed(keyring.roster, name) or find(keyring.roster, name)
        return await _remove(here, space, device, takes_added=added, is_sure=yes)


@command
async def device_lost(here: CommandContext, name: Name, added: Added = False, yes: Yes = False) -> Output:
    """Shut out a lost or stolen device, as rm does. If the daemon is away, that is done as soon as
    it can be reached; run it again then, for the secrets to change.
    """
    began = time.time()
    try:
        async with connect_to_space(here) as space:
            keyring = space.keyring
            assert keyring.roster is not None
            device = _once_removed(keyring.roster, name) or find(keyring.roster, name)
            return await _remove(here, space, device, takes_added=added, is_sure=yes)
    except (LinkError, RequestError, TimeoutError) as error:
        if isinstance(error, ConfideError) and Outage(error, began).is_final:
            raise
        return await _queue(here, name, error, is_sure=yes)


async def _remove(
    here: CommandContext, space: SpaceConnection, device: Device, *, takes_added: bool, is_sure: bool
) -> Output:
    async def is_wanted(device: Device) -> bool:
        if takes_added or is_sure or not sys.stdin.isatty():
            return takes_added
        shown = f"{printable(device.name)}  {fingerprint_words(device.key)}"
        return await ask_confirmation(f"{removed['name']} has added {shown}: remove it too?")

    keyring = space.keyring
    assert keyring.roster is not None
    removed = facts(keyring.roster, device)
    if device.key == (await keyring.identity()).public_key:
        hint = "remove it on another device: it must not know the new key; without one, use a recovery code"
        raise DeviceError("this device cannot remove itself", hint=hint)
    is_there = device.key in keyring.roster.devices
    if is_there:
        await require_consent(f"remove {removed['name']}  {removed['words']}?", is_sure=is_sure)
    # First: nothing that fails behind it leaves the device its access.
    ended = await remove(keyring, space.connection, device.key)
    gone, staying, more = await remove_brought_in(keyring, space.connection, device.key, is_wanted)
    removals = [
        await removed_of(space.connection, [each.key for each in (device, *gone)])
        for removed_of in await asyncio.to_thread(addons.each, "devices_removed")
    ]
    roster = keyring.roster
    exposed, problem = None, ""
    try:
        exposed = await sealed_secrets(space.connection)
    except (RequestError, TimeoutError) as error:
        problem = str(error) or "the daemon does not answer"
    resealed = await _reseal(space) if exposed else 0
    if exposed:
        await _find_places(here, exposed)
    out = [*(ended or ()), *more]
    others: dict[str, Any] = {
        "alsoRemoved": [_brief(each) for each in gone],
        "added": [_brief(each) for each in staying],
    }
    for told in removals:
        others |= told.data
    keys = {device.key, *(each.key for each in gone)}
    apps = [printable(one["name"]) for one in out if one["isApp"]]
    if apps:
        others["programs"] = [*apps, *(others.get("programs") or ())]
    result = {
        "removed": removed,
        **others,
        "hasAccess": None if device.is_paper else ended is None,
        "letIn": [printable(one["name"]) for one in out if not one["isApp"] and one["key"] not in keys],
        "apps": apps,
        "databaseKey": _database_key(keyring),
        "epoch": roster.epoch,
        "exposed": None if exposed is None else list(exposed.values()),
        "problem": problem or None,
        "resealed": resealed,
    }
    return Output(result, lambda: print_removal(result, removals, was_there=is_there))


def _once_removed(roster: Roster, name: str) -> Device | None:
    """Return a removed device with this name or these words, if no device of the roster has them:
    its removal may have waited for the daemon, or its answer was lost.
    """
    if any(is_called(roster, each, name) for each in roster.devices.values()):
        return None
    gone = [entry.device for entry in roster.entries if entry.device is not None and entry.device.key in roster.removed]
    return next((each for each in reversed(gone) if name in (each.name, fingerprint_words(each.key))), None)


def _database_key(keyring: Keyring) -> str:
    """Return what has become of the key of the space's database: `changed`, `waiting` until a
    device with the right to change it connects, or `server`, which keeps it and never gave it out.
    """
    if keyring.custody != "caller":
        return "server"
    return "waiting" if keyring.daemon_roster is not None and keyring.daemon_roster.needs else "changed"


async def _queue(here: CommandContext, name: str, error: Exception, *, is_sure: bool) -> Output:
    """Write down that a device is lost, for the next connection of this device. Raises `error` if
    this device knows of no devices.
    """
    keyring = Keyring(here.paths, MachineKeys(here.paths))
    await keyring.recall()
    roster = keyring.roster
    if roster is None or keyring.keys is None:
        raise error
    device = find(roster, name)
    if device.key == (await keyring.identity()).public_key:
        raise DeviceError("this device cannot remove itself", hint="run it on another device")
    told = facts(roster, device)
    await require_consent(f"remove {told['name']}  {told['words']} once the daemon can be reached?", is_sure=is_sure)
    await asyncio.to_thread(LostDevices(here.paths.rosters).add, roster.space, device.key)

    def print_text() -> None:
        remark(f"the daemon cannot be reached: {error}")
        row(f"waiting: {told['name']}  {told['words']}")
        remark(
            f"until then {told['name']} has access. It is removed as soon as this device reaches the daemon; "
            f"run it again then: confide device lost {told['name']}"
        )

    return Output({"removed": None, "waiting": told}, print_text, exit_code=EXIT_UNREACHABLE)


async def remove_brought_in(
    keyring: Keyring,
    link: RequestChannel,
    key: bytes,
    is_wanted: Callable[[Device], Awaitable[bool]],
) -> tuple[list[Device], list[Device], list[EndedCaller]]:
    """Remove the devices that a removed device has added, if `is_wanted` returns True for them.
    Repeat until there are no more, since a device may add another one before it is removed.

    Returns the removed devices, the devices that stay, and the devices and apps whose access to the
    daemon has ended.

    Raises RosterError if the roster cannot be changed; KeyFileError or KeyLockedError if this
    device's key cannot be used; RequestError, ConnectionLost or TimeoutError if a request fails.
    """
    gone: list[Device] = []
    staying: list[Device] = []
    ended: list[EndedCaller] = []
    seen = {(await keyring.identity()).public_key}
    while True:
        assert keyring.roster is not None
        found = [each for each in keyring.roster.brought_in_by(key) if each.key not in seen]
        if not found:
            return gone, staying, ended
        for each in found:
            seen.add(each.key)
            if await is_wanted(each):
                ended += await remove(keyring, link, each.key) or ()
                gone.append(each)
            else:
                staying.append(each)


def print_removal(
    result: dict[str, Any], removals: Sequence[addons.AddonMessage] = (), *, was_there: bool = True
) -> None:
    """Print the removed devices, the messages of add-ons, and the secrets that the devices could
    open (PROTOCOL.md 10.7).

    Args:
        result: the fields of the command's `--json`.
        was_there: False if the device had been removed before.
    """
    device, exposed = result["removed"], result["exposed"]
    when = "" if was_there else "  (before)"
    row(f"removed: {device['name']}  {device['words']}{when}")
    for one in result["alsoRemoved"]:
        row(f"removed: {one['name']}  {one['words']}  which it had added")
    for one in result["added"]:
        remark(f"it had added {one['name']}, which is still a device: confide device rm {one['words']}")
    for name in result["letIn"]:
        row(f"ended: {name}, which it had let in")
    for name in result["apps"]:
        row(f"ended: {name}, an app that it had approved")
    for told in removals:
        for line in told.rows:
            row(line)
        for line in told.remarks:
            remark(line)
    if result["hasAccess"]:
        # Never by its name: `confided device edit` changes only the daemon's name for a device, so
        # the name may belong to another device there.
        remark(
            f"{device['name']} can still read and write your memory. On the server, run: confided device rm NAME, "
            "with the name that confided device shows beside these words"
        )
    elif result["hasAccess"] is False:
        say("its access to the daemon has ended")
    if result["databaseKey"] != "server":
        say(
            "the key of the database was changed"
            if result["databaseKey"] == "changed"
            else "the key of the database changes once a device that reaches the whole space connects"
        )
    if result.get("problem"):
        remark(
            f"the secrets could not be listed: {result['problem']}; run it again: confide device lost {device['name']}"
        )
        return
    if exposed is None:
        remark("note: this device may not list the space's secrets; a device with access to all projects can")
        return
    if not exposed:
        say("no secrets are sealed, so it could decrypt none")
        return
    kinds = Counter(one["kind"] for one in exposed)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    say(f"it could decrypt {counts}. Change them at their source:")
    for one in exposed[:_SHOWN]:
        row(f"  {one['kind']}  {one['id']}  {', '.join(one['places']) or 'no document that was found'}")
    if len(exposed) > _SHOWN:
        say(f"  and {len(exposed) - _SHOWN} more; --json lists all")


def _brief(device: Device) -> dict[str, object]:
    return {"name": printable(device.name), "words": fingerprint_words(device.key), "isPaper": device.is_paper}


class Exposed(TypedDict):
    """A secret that a removed device could open; the fields of `--json`.

    Attributes:
        documents: where the secret was found, as `project: path`.
        places: the same with the line, as `project: path:line`.
    """

    id: str
    kind: str
    at: str
    documents: list[str]
    places: list[str]


async def sealed_secrets(link: RequestChannel) -> dict[str, Exposed] | None:
    """Return all sealed secrets of the space for `--json`, by id; None if this device may not list
    them all.
    """
    found: dict[str, Exposed] = {}
    try:
        async for page in roster_client.records(link):
            found |= {
                one["id"]: Exposed(id=one["id"], kind=one["kind"], at=one["at"], documents=[], places=[])
                for one in page
            }
            if len(found) >= _MOST_LISTED:
                break
    except RequestError as error:
        if error.code != "denied":
            raise
        return None
    return found


async def _reseal(space: SpaceConnection) -> int:
    keys = space.keyring.keys
    if keys is None:
        return 0
    # Another device has begun a newer epoch, or this one may not write: sessions do the rest.
    with suppress(RequestError):
        return await Resealing(keys).run(space.connection, pause_s=0, most=_RESEAL_AT_ONCE)
    return 0


async def _find_places(here: CommandContext, exposed: dict[str, Exposed]) -> None:
    """Add the documents and lines found to the first secrets."""
    with suppress(ConfideError, TimeoutError):
        async with here.client(await project_of(here, Path.cwd())) as client:
            async for name, document, line in _places(client, list(exposed)):
                found = exposed[name]
                found["documents"] += [document] if document not in found["documents"] else []
                found["places"].append(f"{document}:{line}")


async def documents_of(client: CommandClient, secrets: list[str]) -> dict[str, list[str]]:
    """Search for the documents that contain secrets, and return them by secret id as `project:
    path`. Only the first `_MOST_LOOKED_FOR` secrets are searched for.
    """
    found: dict[str, list[str]] = {name: [] for name in secrets[:_MOST_LOOKED_FOR]}
    async for name, document, _ in _places(client, secrets):
        found[name] += [document] if document not in found[name] else []
    return found


async def _places(client: CommandClient, secrets: list[str]) -> AsyncIterator[tuple[str, str, int]]:
    """Yield secret id, document (`project: path`) and line of each place where the first of the
    secrets were found.
    """
    for name in secrets[:_MOST_LOOKED_FOR]:
        answer = await client.call("memory_search", {"query": name, "project": "*", "maxResults": _MOST_DOCUMENTS})
        seen = set()
        for hit in answer["results"]:
            for number, line in enumerate(hit["snippet"].split("\n"), hit["startLine"]):
                place = printable(f"{hit['project']}: {hit['path']}"), number
                if name in line and place not in seen:
                    seen.add(place)
                    yield name, *place
