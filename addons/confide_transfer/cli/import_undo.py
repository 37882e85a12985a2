"""`confide import --undo`: the notes that came from a store are deleted again, as any note is (docs/importing.md)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import RequestError
from confide_memory.tools import call as call_keys
from confide_proxy.cli.console import Here, Output, agreed, counted, remark, row, terminal
from confide_proxy.cli.progress import SyncProgress
from confide_proxy.errors import DeclinedError, ToolError
from confide_proxy.offline.operations import new_id
from confide_transfer.local.delivery import deliver

if TYPE_CHECKING:
    from confide_proxy.mcp.client import Client
    from confide_proxy.sync.project import Project
    from confide_transfer.local.plan import Plan

_SHOWN: Final = 5


async def undone(here: Here, this: Project, plan: Plan, *, is_dry: bool, is_sure: bool) -> Output:
    """Delete the notes of a plan that was surveyed, those that are there: each is known by where it came from, whoever imported it, and
    however it was edited since."""
    deleted: list[str] = []
    failed: list[tuple[str, str]] = []
    async with here.client(this) as client:
        outcome = await deliver(plan, client.connection, client.sealing, is_dry=True)
        known = outcome.states["known"]
        if known and not is_dry:
            await agreed(
                f"delete {counted(known, 'note')} that came from there? They can be restored for a while",
                is_sure=is_sure,
            )
            with SyncProgress(terminal(stderr=True)) as bar:
                for number, identity in enumerate(plan.ids, 1):
                    await _delete(client, identity, deleted, failed)
                    bar.follow(number, len(plan.ids), "notes")
            await client.files.compare()

    def tell() -> None:
        if is_dry or not known:
            row(f"{counted(known, 'note')} of {this.name} and others came from there")
            return
        row(f"deleted {counted(len(deleted), 'note')}; they come back with: confide restore --since 1h")
        for identity, why in failed[:_SHOWN]:
            remark(f"not deleted: {identity}: {why}")
        if len(failed) > _SHOWN:
            remark(f"and {len(failed) - _SHOWN:,} more were not deleted")

    told = [{"id": identity, "why": why} for identity, why in failed]
    data = {"project": this.name, "dryRun": is_dry, "known": known, "deleted": deleted, "failed": told}
    return Output(data, tell, exit_code=7 if failed else 0)


async def _delete(client: Client, identity: str, deleted: list[str], failed: list[tuple[str, str]]) -> None:
    said = datetime.now().astimezone().isoformat(timespec="seconds")
    meta = {call_keys.OPERATION: new_id(), call_keys.SAID: said}
    try:
        answer = await client.call("memory_delete", {"id": identity}, more_meta=meta)
    except DeclinedError:
        raise
    except (RequestError, ToolError) as error:
        if "no note" not in str(error) and getattr(error, "code", "") != "not_found":
            failed.append((identity, str(error)))
        return
    if answer["deleted"]:
        deleted.append(identity)
    else:
        failed.append((identity, "; ".join(answer["warnings"]) or "it stays"))
