"""The command `confide device rm`: remove a device and optionally the devices that it added, and
list the secrets that it could open (PROTOCOL.md 10.7).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

import typer

from confide_crypto.errors import ConfideError, RequestError, printable
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing.roster_entry import Device
from confide_memory.documents import RequestChannel
from confide_proxy import addons
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    Yes,
    agreed,
    command,
    confirmed,
    identified,
    remark,
    row,
    say,
)
from confide_proxy.cli.devices import Name, connected
from confide_proxy.devices import roster_client
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import facts, find, remover
from confide_proxy.devices.reseal import Resealing
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import DeviceError

if TYPE_CHECKING:
    from confide_proxy.mcp.client import CommandClient

_PAGE: Final = 1000
_MOST_LISTED: Final = 100_000
_MOST_LOOKED_FOR: Final = 200
"""The most secrets whose documents are searched for: each costs a search."""
_MOST_DOCUMENTS: Final = 10
_RESEAL_AT_ONCE: Final = 1000
"""Records that the command seals again with new keys; sessions do the rest."""
_SHOWN: Final = 50


@command
async def device_rm(
    here: CommandContext,
    name: Name,
    added: Annotated[
        bool, typer.Option("--added", help="Remove the devices that it added too, those that these added, and so on.")
    ] = False,
    yes: Yes = False,
) -> Output:
    """Remove a device, so that it cannot open anything sealed from now on; list the secrets that it
    could open, and the devices that it has added.
    """

    async def is_wanted(device: Device) -> bool:
        if added or yes or not sys.stdin.isatty():
            return added
        shown = f"{printable(device.name)}  {fingerprint_words(device.key)}"
        return await confirmed(f"{removed['name']} has added {shown}: remove it too?")

    async with connected(here) as space:
        keyring = space.keyring
        assert keyring.roster is not None
        identity = await keyring.identity()
        device = find(keyring.roster, name)
        removed = facts(keyring.roster, device)
        if device.key == identity.public_key:
            hint = "remove it on another device: it must not know the new key"
            raise DeviceError("this device cannot remove itself", hint=hint)
        await agreed(f"remove {removed['name']}  {removed['words']}?", is_sure=yes)
        # List them before and after: once a new epoch exists, other devices seal old records again.
        exposed = await sealed_secrets(space.connection, None)
        await keyring.extend(space.connection, remover(identity, device.key))
        gone, staying = await remove_brought_in(keyring, space.connection, identity, device.key, is_wanted)
        removals = [
            await removed_of(space.connection, [each.key for each in (device, *gone)])
            for removed_of in await asyncio.to_thread(addons.each, "devices_removed")
        ]
        roster = keyring.roster
        if exposed is not None:
            exposed |= await sealed_secrets(space.connection, roster.epoch) or {}
        resealed = await _reseal(space) if exposed else 0
    if exposed:
        await _find_documents(here, exposed)
    shown = None if exposed is None else list(exposed.values())
    others = {
        "alsoRemoved": [_brief(each) for each in gone],
        "added": [_brief(each) for each in staying],
    }
    for told in removals:
        others |= told.data
    result = {"removed": removed, **others, "epoch": roster.epoch, "exposed": shown, "resealed": resealed}
    return Output(result, lambda: print_removal(result, removals))


async def remove_brought_in(
    keyring: Keyring,
    link: RequestChannel,
    identity: Identity,
    key: bytes,
    is_wanted: Callable[[Device], Awaitable[bool]],
) -> tuple[list[Device], list[Device]]:
    """Remove the devices that a removed device has added, if `is_wanted`; return the removed and
    the remaining ones.

    Repeats until there are no more, since a device may add another before it is removed. Raises as
    `Keyring.extend`.
    """
    gone: list[Device] = []
    staying: list[Device] = []
    seen = {identity.public_key}
    while True:
        assert keyring.roster is not None
        found = [each for each in keyring.roster.brought_in_by(key) if each.key not in seen]
        if not found:
            return gone, staying
        for each in found:
            seen.add(each.key)
            if await is_wanted(each):
                await keyring.extend(link, remover(identity, each.key))
                gone.append(each)
            else:
                staying.append(each)


def print_removal(result: dict[str, Any], removals: Sequence[addons.AddonMessage] = ()) -> None:
    """Print the removed devices, the messages of add-ons, and the secrets that the devices could
    open (PROTOCOL.md 10.7).
    """
    device, exposed = result["removed"], result["exposed"]
    row(f"removed: {device['name']}  {device['words']}  (epoch {result['epoch']} begins)")
    for one in result["alsoRemoved"]:
        row(f"removed: {one['name']}  {one['words']}  which it had added")
    for one in result["added"]:
        remark(f"it had added {one['name']}, which is still a device: confide device rm {one['words']}")
    for told in removals:
        for line in told.rows:
            row(line)
        for line in told.remarks:
            remark(line)
    if not device["isPaper"]:
        # Never by its name: `confided device edit` changes only the daemon's name for a device, so
        # the name may belong to another device there.
        remark(
            f"{device['name']} can still read and write your memory. On the server, run: confided device rm NAME, "
            "with the name that confided device shows beside these words"
        )
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
        row(f"  {one['kind']}  {one['id']}  {', '.join(one['documents']) or 'no document that was found'}")
    if len(exposed) > _SHOWN:
        say(f"  and {len(exposed) - _SHOWN} more; --json lists all")


def _brief(device: Device) -> dict[str, object]:
    return {"name": printable(device.name), "words": fingerprint_words(device.key), "isPaper": device.is_paper}


class Exposed(TypedDict):
    """A secret that a removed device could open, as in `--json`; `documents`: where it was found."""

    id: str
    kind: str
    at: str
    documents: list[str]


async def sealed_secrets(link: RequestChannel, below: int | None) -> dict[str, Exposed] | None:
    """Return the space's secrets by id, as in `--json`; with `below`, those with records of earlier
    epochs.

    Returns None if this device may not list them all.
    """
    found: dict[str, Exposed] = {}
    try:
        async for page in roster_client.records(link, below=below):
            found |= {one["id"]: Exposed(id=one["id"], kind=one["kind"], at=one["at"], documents=[]) for one in page}
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


async def _find_documents(here: CommandContext, exposed: dict[str, Exposed]) -> None:
    """Add the documents found (`project: path`) to the first secrets."""
    with suppress(ConfideError, TimeoutError):
        async with here.client(await identified(here, Path.cwd())) as client:
            for name, documents in (await documents_of(client, list(exposed))).items():
                exposed[name]["documents"] = documents


async def documents_of(client: CommandClient, secrets: list[str]) -> dict[str, list[str]]:
    """Return the documents found (`project: path`) for the first of the secrets, by secret id."""
    found = {}
    for name in secrets[:_MOST_LOOKED_FOR]:
        answer = await client.call("memory_search", {"query": name, "project": "*", "maxResults": _MOST_DOCUMENTS})
        hits = [hit for hit in answer["results"] if name in hit["snippet"]]
        found[name] = list(dict.fromkeys(printable(f"{hit['project']}: {hit['path']}") for hit in hits))
    return found
