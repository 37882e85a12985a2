"""A device leaves its space: a new epoch without it, and the list of what it could open (PROTOCOL.md 10.7)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from confide_crypto.errors import ConfideError, RequestError, printable
from confide_memory.wire.fields import records
from confide_proxy.cli import devices
from confide_proxy.cli.console import DEADLINE_S, Here, Output, command, remark, say
from confide_proxy.cli.devices import Name, Yes
from confide_proxy.errors import DeviceError, UnfitAnswerError

if TYPE_CHECKING:
    from confide_memory.wire.document_body import Asks
    from confide_proxy.devices.connection import SpaceConnection

_PAGE: Final = 1000
_MOST_LISTED: Final = 100_000
_MOST_LOOKED_FOR: Final = 200
"""Secrets whose documents are looked for: a search each."""
_MOST_DOCUMENTS: Final = 10
_RESEAL_AT_ONCE: Final = 1000
"""Records that are sealed anew right away; sessions go through the rest."""
_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Exposed:
    """A secret that the removed device could open. Its value is not known here.

    Attributes:
        kind: what it is, as in `github-token`.
        at: when it was stored, ISO 8601.
        documents: `project: path` of some that name it.
    """

    kind: str
    at: str
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """What a removal came to.

    Attributes:
        device: who was removed, as `devices.facts` shows it.
        epoch: the one that it begins.
        exposed: by secret id in hex; None where this machine may not list them.
        resealed: how many were sealed anew already.
    """

    device: dict[str, Any]
    epoch: int
    exposed: dict[str, Exposed] | None
    resealed: int

    def to_json(self) -> dict[str, Any]:
        """As --json shows it."""
        exposed = None
        if self.exposed is not None:
            exposed = [
                {"id": name, "kind": one.kind, "at": one.at, "documents": list(one.documents)}
                for name, one in self.exposed.items()
            ]
        return {"removed": self.device, "epoch": self.epoch, "exposed": exposed, "resealed": self.resealed}

    def tell(self) -> None:
        """Print it for a person."""
        device = self.device
        say(f"removed: {device['name']}  {device['words']}  (epoch {self.epoch} begins)")
        if not device["isPaper"]:
            # Never by its name: `confided callers rename` changes that of the daemon alone, so it may be another machine's there.
            remark(
                "unless it was revoked already, it still has access to the memory; to end that, on the daemon's machine: "
                "confided revoke, with the name that confided callers shows beside these words"
            )
        if self.exposed is None:
            remark("note: this machine may not list the space's secrets; one with all projects can")
            return
        if not self.exposed:
            say("nothing was sealed yet, so there was nothing that it could open")
            return
        kinds = Counter(one.kind for one in self.exposed.values())
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        say(f"it could open {counts}. They must be changed at their source:")
        for name, one in list(self.exposed.items())[:_SHOWN]:
            where = ", ".join(one.documents) or "no document that was found"
            say(f"  {one.kind}  {name}  {where}")
        if len(self.exposed) > _SHOWN:
            say(f"  and {len(self.exposed) - _SHOWN} more; --json lists all")


def add_to(device_app: typer.Typer) -> None:
    """Make `confide device rm` known."""
    device_app.command("rm")(device_rm)


@command
async def device_rm(here: Here, name: Name, yes: Yes = False) -> Output:
    """Remove a device: it opens nothing that is sealed from now on. Then list what it could open."""
    async with devices.connected(here) as space:
        keyring = space.keyring
        assert keyring.roster is not None
        identity = await keyring.identity()
        device = devices.find(keyring.roster, name)
        told = devices.facts(keyring.roster, device)
        if device.key == identity.public_key:
            hint = "remove it on another one: it would make the key that it must not have"
            raise DeviceError("this machine cannot remove itself", hint=hint)
        await devices.ask(f"remove {told['name']}  {told['words']}?", is_sure=yes)
        # Before and after: as soon as there is a new epoch, other machines begin to seal old records anew.
        exposed = await listed(space.connection, None)
        roster = await keyring.extend(space.connection, devices.remover(identity, device.key))
        if exposed is not None:
            exposed |= await listed(space.connection, roster.epoch) or {}
        resealed = await _reseal(here.paths.rosters, space) if exposed else 0
    if exposed:
        exposed = await _with_documents(here, exposed)
    removal = Removal(told, roster.epoch, exposed, resealed)
    return Output(removal.to_json(), removal.tell)


async def listed(link: Asks, below: int | None) -> dict[str, Exposed] | None:
    """The secrets of the space, or those whose records are of older epochs; None where this machine may not see them all."""
    found: dict[str, Exposed] = {}
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
        found |= {
            one["id"]: Exposed(one["kind"], one["at"]) for one in records(answer, "records", id=str, kind=str, at=str)
        }
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
    with suppress(
        RequestError
    ):  # another machine has begun a newer epoch, or this one may not write: sessions go on with it
        return await Resealing(folder, keys).run(space.connection, pause_s=0, most=_RESEAL_AT_ONCE)
    return 0


async def _with_documents(here: Here, exposed: dict[str, Exposed]) -> dict[str, Exposed]:
    """The same with documents that name the first of them, as far as they can be found now."""
    from confide_proxy.sync import project

    found = dict(exposed)
    with suppress(ConfideError, TimeoutError):
        async with here.client(project.identify(Path.cwd())) as client:
            for name in list(exposed)[:_MOST_LOOKED_FOR]:
                arguments = {"query": name, "project": "*", "maxResults": _MOST_DOCUMENTS}
                answer = await client.call("memory_search", arguments)
                places = {
                    printable(f"{hit['project']}: {hit['path']}"): None
                    for hit in answer["results"]
                    if name in hit["snippet"]
                }
                found[name] = replace(exposed[name], documents=tuple(places))
    return found
