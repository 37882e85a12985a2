"""The command `confide status`: the state of the link, of this device and of the daemon, and the
problem if the link is down.

The output contains no secrets: addresses are printed without their fragment, and keys are public.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, RequestError, UnreachableError
from confide_crypto.keys.identity import fingerprint_words, format_daemon_key
from confide_crypto.transport.dial import shown_url
from confide_memory.documents import RequestChannel, local_time
from confide_memory.wire.sealing import UNSEALED
from confide_proxy import addons
from confide_proxy.cli import status_lines
from confide_proxy.cli.console import (
    QUESTION_S,
    AsJson,
    CommandContext,
    ProjectDir,
    print_json,
    project_of,
    row,
)
from confide_proxy.devices.keyring import Keyring
from confide_proxy.errors import NotSetUpError, SpaceLockedError, ToolError
from confide_proxy.link import daemon
from confide_proxy.link import device_identity as identities
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.restore_detection import DaemonReceipts
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.client import CommandClient
from confide_proxy.paths import ProxyPaths, memory_notices

_SHORT: Final = 20
"""Characters shown of the daemon's key, to distinguish two daemons. The daemon is authenticated by
its pinned key, never by these.
"""
_UNSEALED_S: Final = 10.0
TAKEN: Final = (
    "the daemon now keeps the key of the database, which its devices kept before: "
    "anyone who steals its disk and its master.key can read it"
)


def status(
    context: typer.Context,
    project: ProjectDir = Path(),
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Everything that is known, and where it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of the link, the daemon, this project's files, the index, the queue, and
    problems.
    """
    here: CommandContext = context.obj
    try:
        result, more = asyncio.run(_status(here, project))
    except (ConfideError, TimeoutError) as error:
        from confide_proxy.offline.journal import Journal, JournalCounts

        link = down(here.paths, error)
        removals = asyncio.run(_local_removals(here.paths)) if link["state"] == "down" else []
        try:
            waiting = Journal(here.paths.journal).counts()
        except ConfideError:
            waiting = JournalCounts()  # its journal cannot be read
        if as_json:
            places = places_of(here.paths)
            counts = {"queuedOffline": waiting.queued, "deadLetters": waiting.dead}
            print_json({"link": link, **counts, "removals": removals, "paths": places})
        elif not isinstance(error, NotSetUpError):
            line = status_lines.waiting_line(waiting.queued, waiting.dead)
            _say_all(status_lines.down_summary(link, line, removals))
        if verbose and not as_json:
            _say_all(["", *status_lines.details({"paths": places_of(here.paths)})])
        raise  # ends with the reason, the hint and the exit code
    if as_json:
        print_json(result)
        return
    if "wentBack" in result:
        result["wentBack"] = _went_back_line(result["wentBack"])
    if "unsealedFindings" in result:
        result["unsealedFindings"] = _unsealed_line(result["unsealedFindings"])
    for told in more:
        result |= dict.fromkeys(told.data, told.rows)
    _say_all(status_lines.summary(result, more))
    if verbose:
        _say_all(["", *status_lines.details(result)])


def _say_all(lines: list[str]) -> None:
    for line in lines:
        row(line)


def places_of(paths: ProxyPaths) -> dict[str, str]:
    """Return the paths of this device's files, by the names that `--json` gives them."""
    return {
        "configuration": str(paths.config),
        "data": str(paths.state),
        "globalMemory": str(paths.global_folder),
        "daemonData": str(paths.daemon_data),
    }


async def _status(here: CommandContext, folder: Path) -> tuple[dict[str, Any], list[addons.AddonMessage]]:
    """Return the fields of the status, and the messages of add-ons."""
    project = await project_of(here, folder)
    asked = await asyncio.to_thread(addons.each, "status")
    async with here.client(project, patience_s=QUESTION_S) as client:
        # Before the call: a daemon that is shutting down completes the present request, and no
        # more.
        unsealed = await _unsealed_counts(client)
        more = [await ask(client.connection) for ask in asked]
        result = await client.call("memory_status", {})
        result["warnings"] = [*result["warnings"], *await asyncio.to_thread(memory_notices)]
        if here.config.transcripts:
            from confide_proxy.sync.transcripts.transcript_streamer import pending_bytes

            pending = await asyncio.to_thread(pending_bytes, here.paths, here.config, client.space)
            result["pendingTranscriptBytes"] = pending
        result |= {} if unsealed is None else {"unsealedFindings": unsealed}
        for told_of in more:
            result |= told_of.data
        told = await asyncio.to_thread(DaemonReceipts(here.paths).report)
        result |= {"wentBack": told} if told else {}
        # Sessions print this once on stderr too, where few users look.
        unknown = catalogues.load(here.paths.catalogue, here.config.toolsets).unknown
        result |= {"unknownTools": ", ".join(unknown)} if unknown else {}
        files = client.files
        # An older daemon does not send these.
        told_here = await asyncio.to_thread(lambda: [*files.notices(), *files.obstacles()])
        missed = [each for each in told_here if each not in result["warnings"]]
        result["warnings"] = [*missed, *result["warnings"]]
        local: dict[str, object] = {
            "filesHere": await asyncio.to_thread(files.count_confirmed),
            "isLocal": daemon.load_pin(here.paths.link) is None,
        }
        local |= {"claim": project.claim} if project.claim else {}
        result["lastSync"] = result["lastSync"] or await asyncio.to_thread(files.compared_at)
        keyring = client.sealing.keyring
        local["removals"] = await _removals(here.paths, keyring, client.connection)
        of_keyring = {**result.get("sealing", {}), **sealing(keyring)}
        link = {**result["link"], **up(here.paths, client), "device": await _device(keyring)}
        facts = {**result, **local, "sealing": of_keyring, "link": link, "paths": places_of(here.paths)}
        return facts, more


async def _local_removals(paths: ProxyPaths) -> list[str]:
    """Return the removals that wait, as far as this device knows without the daemon."""
    keyring = Keyring(paths, MachineKeys(paths))
    with suppress(ConfideError, OSError):
        await keyring.recall()
        return await _removals(paths, keyring, None)
    return []


async def _removals(paths: ProxyPaths, keyring: Keyring, connection: RequestChannel | None) -> list[str]:
    """Return the removals that wait, after what the daemon says of them over `connection`."""
    # Late: what it needs of devices and hooks takes 0.1 s to load.
    from confide_proxy.hooks.server.forgetting.waiting_removals import waiting_removals

    return await waiting_removals(paths, keyring, connection)


async def _unsealed_counts(client: CommandClient) -> dict[str, object] | None:
    """Return the number of credentials in clear that were found in the space, and the time of the
    search.

    Both are None if the space is older than sealing and was never searched. Returns None if there
    is nothing to report, or this device may not know.
    """
    try:
        answer = await UNSEALED.ask(client.connection, {}, timeout_s=_UNSEALED_S)
    except RequestError:
        return None  # a device with limited access may not know, and an older daemon has no such request
    if answer["findings"] is not None and answer["seenAt"] is not None:
        return {"findings": answer["findings"], "seenAt": answer["seenAt"]}
    return {"findings": None, "seenAt": None} if answer["findings"] is None and answer["isDue"] else None


def _unsealed_line(told: dict[str, Any]) -> str:
    count = told["findings"]
    if count is None:
        return "some notes are older than sealing; check them for passwords: confide secrets scan --stored"
    return f"{count:,}, seen {local_time(told['seenAt'])}{': confide secrets scan --stored' if count else ''}"


def _went_back_line(told: dict[str, Any]) -> str:
    """Describe the restore of the daemon's data, and its effects on this device's files."""
    to = f"to {local_time(told['backTo'])}" if told["backTo"] else "to an earlier state"
    again = told["sentAgain"]
    said = f"{to}, seen {local_time(told['noticed'])}; {again} file{'' if again == 1 else 's'} sent again"
    return f"{said}; came back though deleted: {', '.join(told['cameBack'])}" if told["cameBack"] else said


def up(paths: ProxyPaths, client: CommandClient) -> dict[str, object]:
    """Return the JSON fields that describe the link of a connected client."""
    return {
        "state": "up",
        **local_link_fields(paths),
        "since": datetime.fromtimestamp(client.since).astimezone().isoformat(timespec="seconds"),
        "roundTripMs": round(client.round_trip_s * 1000, 1),
        "sessionId": client.connection.session_id,
    }


def sealing(keyring: Keyring) -> dict[str, Any]:
    """Return the JSON fields that say whether this device can seal and open secrets."""
    roster, problem = keyring.roster or keyring.unconfirmed, keyring.problem
    return {
        "canSeal": keyring.keys is not None,
        "spaceWords": roster.words if roster else None,
        "devices": len(roster.devices) if roster else 0,
        "recoveryCodes": sum(device.is_paper for device in roster.devices.values()) if roster else 0,
        "epoch": roster.epoch if roster else 0,
        "custody": keyring.custody or None,
        **({"warning": TAKEN} if keyring.was_taken else {}),
        **({"problem": str(problem), "hint": problem.hint} if problem else {}),
    }


async def _device(keyring: Keyring) -> str | None:
    """Return this device's name on the roster, or None if it is not on it."""
    roster = keyring.roster or keyring.unconfirmed
    device = roster.devices.get((await keyring.identity()).public_key) if roster else None
    return device.name if device else None


def down(paths: ProxyPaths, error: ConfideError | TimeoutError) -> dict[str, object]:
    """Return the JSON fields that describe the link after an error. The state is "up" if the daemon
    was reached and refused the request.
    """
    told = error if isinstance(error, ConfideError) else UnreachableError("its address", "it does not answer in time")
    state = "up" if isinstance(error, RequestError | ToolError | SpaceLockedError) else "down"
    if isinstance(error, NotSetUpError):
        state = "not set up"
    return {"state": state, **local_link_fields(paths), "reason": str(told), "hint": told.hint}


def local_link_fields(paths: ProxyPaths) -> dict[str, object]:
    """Return those JSON fields of the link that are known without a connection.

    `tls` is True if the address requires TLS, which the channel does not need. `daemonKey` is the
    beginning of the daemon's key, and `words` are this device's own six words. A field with an
    unknown value is null.
    """
    joined = words = place = is_tls = None
    with suppress(ConfideError, OSError):  # a broken file has ended the attempt already
        joined = daemon.known_daemon(paths)
    with suppress(ConfideError, OSError):
        words = fingerprint_words(identities.read(paths.identity).public_key)
    if joined is not None:
        place = shown_url(joined.url)
        is_tls = place.startswith("confides://")
    return {
        "address": place,
        "tls": is_tls,
        "daemonKey": f"{format_daemon_key(joined.daemon_static)[:_SHORT]}…" if joined else None,
        "words": words,
    }
