"""`confide task`: adds, shows, approves and ends tasks for the night, and reports their results
(docs/tasks.md).
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import SealingError
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory import front_matter
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.wire.files import PULL, PullRequest
from confide_memory.wire.revisions import TRUST, TrustRequest
from confide_night.local.orders import DOUBT, is_doubtful, read_order
from confide_night.local.outdated_notes import outdated_lines
from confide_night.order.order import Order, approve_order
from confide_night.order.wire import (
    APPROVE,
    LOGS,
    REPORT,
    SET,
    SHOW,
    ApproveRequest,
    LogsRequest,
    ReportRequest,
    RunShown,
    SetRequest,
    TaskShown,
)
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    Output,
    ProjectDir,
    clock,
    command,
    input_text,
    note,
    one_line,
    project_of,
    require_consent,
    row,
    say,
    seconds,
)
from confide_proxy.cli.search import call
from confide_proxy.errors import DeclinedError, InputError, ToolError
from confide_proxy.mcp.client import CommandClient

TaskId = Annotated[str, typer.Argument(metavar="ID", help="As confide task ls shows it; the beginning is enough.")]
At = Annotated[str | None, typer.Option("--at", metavar="TIME", help="Which run, as shown; the last if left out.")]
_MOST_CHARS: Final = 20_000
_RAN: Final = ("succeeded", "failed", "lost", "cancelled", "running")


@command
async def add(
    here: CommandContext,
    description: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to do; - reads it from stdin. With --again: a task's id.")
    ],
    is_again: Annotated[
        bool, typer.Option("--again", help="Queue a task once more, at once, signed by this device.")
    ] = False,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Such as code-review or refactor.")] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="NAME", help="review, fix, ask, or another of the runner.")
    ] = None,
    repo: Annotated[str | None, typer.Option("--repo", metavar="URL", help="The git repository to do it in.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="When; the next 02:00 if left out.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="CRON", help='Again and again, such as "30 2 * * 1-5".')
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="The time zone; this device's if left out.")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="1 to 10, 10 first; 5 if left out.")] = None,
    more: Annotated[str | None, typer.Option("--context", metavar="JSON", help="An object to send with it.")] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="How long a run may take, such as 30m.")
    ] = None,
    max_usd: Annotated[float | None, typer.Option("--max-usd", metavar="DOLLARS", help="What a run may cost.")] = None,
    missed: Annotated[
        str | None, typer.Option("--missed", help="once, skip or all: what to do about nights without a runner.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option("--overlap", help="skip, queue or replace: what to do while the last run goes on.")
    ] = None,
    retries: Annotated[int | None, typer.Option("--retries", help="0 to 5, of what never ran; 2 if left out.")] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Add a task, which this device signs and a runner executes."""
    if is_again:
        return await _run_again(here, description, project)
    text = input_text() if description == "-" else description
    if not text.strip():
        raise InputError("the text is empty, so nothing was queued", hint='confide task add "what to do"')
    fields = {
        "description": text,
        "type": kind,
        "recipe": recipe,
        "repoUrl": repo,
        "scheduledFor": at,
        "schedule": schedule,
        "timeZone": zone,
        "priority": priority,
        "context": _object(more),
        "timeoutMs": _milliseconds(timeout),
        "maxUsd": max_usd,
        "missed": missed,
        "overlap": overlap,
        "retries": retries,
    }
    return await _add(here, project, {name: value for name, value in fields.items() if value is not None})


@command
async def ls(
    here: CommandContext,
    status: Annotated[
        str, typer.Option("--status", help="pending, running, paused, done, failed or cancelled.")
    ] = "all",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many.")] = 20,
    project: ProjectDir = Path(),
) -> Output:
    """List the tasks of all projects, the newest first."""
    found = await call(here, await project_of(here, project), "task_list", {"status": status, "limit": limit})

    def print_text() -> None:
        for one in found["tasks"]:
            when = f"  next {_local(one['scheduledFor'])}" if one["scheduledFor"] else ""
            why = f" ({one['why']})" if one["why"] else ""
            row(f"{one['id']}  {one['status']}{why}  {one['recipe']} [{one['project']}]{when}  {one['title']}")
        if not found["tasks"]:
            say("no task is queued" if status == "all" else f"no task is {status}")

    return Output(found, print_text)


@command
async def show(
    here: CommandContext,
    identity: TaskId,
    is_log: Annotated[bool, typer.Option("--log", help="Print the log of a run, decrypted on this device.")] = False,
    at: At = None,
    project: ProjectDir = Path(),
) -> Output:
    """Show a task, which device signed it, and its runs."""
    if is_log:
        return await _log(here, identity, at, project)
    if at is not None:
        raise typer.BadParameter("goes with --log", param_hint="--at")
    async with here.client(await project_of(here, project)) as client:
        found, order, problem = await _fetch_task(client, identity)

    def print_text() -> None:
        _print_order(found, order, problem)
        for one in found["slots"]:
            row(_slot_line(one))

    data = {**_plain(found, order), "problem": problem}
    return Output(data, print_text)


async def _log(here: CommandContext, identity: str, at: str | None, project: Path) -> Output:
    """Print the log of a run, which only the space's devices can decrypt. Raises ToolError if there
    is no such run or log.
    """
    async with here.client(await project_of(here, project)) as client:
        found, _, _ = await _fetch_task(client, identity)
        slot = _slot(found, at)
        keys = client.sealing.keyring.keys
        if keys is None:
            raise client.sealing.keyring.problem or ToolError("this device has no keys of its space")
        records: dict[int, bytes] = {}
        part: int | None = 0
        while part is not None:
            body: LogsRequest = {"task": found["task"], "at": slot["at"], "from": part}
            answer = await LOGS.ask(client.connection, body, timeout_s=DEADLINE_S, bulk=True)
            records |= {one["part"]: one["record"] for one in answer["parts"]}
            part = answer["next"] if answer["next"] is None or answer["next"] > part else None
    if not records:
        raise ToolError("there is no log of that run", hint="the runner sends it, and it is kept for 30 days")
    text, unreadable = _decrypt_log(records, keys)
    fields = {"task": found["task"], "at": slot["at"], "log": text, "unreadable": unreadable}
    return Output(fields, text.rstrip("\n"))


def _decrypt_log(records: dict[int, bytes], keys: SpaceKeys) -> tuple[str, list[int]]:
    """Decrypt a log from its parts by number; also return the numbers of the unreadable parts, each
    replaced by an explanation.

    Raises SealingError if no part can be read.
    """

    texts: list[bytes] = []
    unreadable: list[int] = []
    problem: SealingError | None = None
    for number in range(max(records) + 1):
        why = "is not here"
        if number in records:
            try:
                texts.append(SealedRecord.parse(records[number]).open(keys))
                continue
            except SealingError as error:
                problem, why = problem or error, f"cannot be read: {error.message}"
        # Start a new line, wherever the previous part was cut.
        begins = b"" if not texts or texts[-1].endswith(b"\n") else b"\n"
        texts.append(begins + f"(part {number} of this log {why})\n".encode())
        unreadable.append(number)
    if problem is not None and len(unreadable) == len(texts):
        raise problem
    return b"".join(texts).decode("utf-8", "replace"), unreadable


@command
async def approve(
    here: CommandContext,
    identity: TaskId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Approve the order of another device, after showing all of it."""

    async with here.client(await project_of(here, project)) as client:
        found, order, problem = await _fetch_task(client, identity)
        keyring = client.sealing.keyring
        if problem is not None or keyring.roster is None:
            raise ToolError(f"this order is not followed: {problem}", hint="give it again: confide task add")
        own = await keyring.identity()
        if own.public_key.hex() == order.signer:
            raise ToolError("this device queued the task itself", hint="approve it on another device, or on the runner")
        _print_order(found, order, problem)
        await require_consent("Approve all of this", is_sure=yes)
        approval = approve_order(own, keyring.roster.space, found["order"])
        body: ApproveRequest = {"task": found["task"], "signature": approval.signature}
        answer = await APPROVE.ask(client.connection, body, timeout_s=DEADLINE_S)
        message = f"{found['task']} is approved, and {answer['state']}"
        if is_doubtful(keyring.roster, order, own.public_key):
            note(DOUBT)
    return Output({"id": found["task"], "state": answer["state"]}, message)


@command
async def pause(
    here: CommandContext,
    identity: TaskId,
    is_resumed: Annotated[bool, typer.Option("--resume", help="Resume it.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Start no more runs of a task until you resume it; a run that has begun goes on."""
    return await _set(here, identity, "active" if is_resumed else "paused", project)


@command
async def cancel(here: CommandContext, identity: TaskId, project: ProjectDir = Path()) -> Output:
    """End a task for good, and kill its current run."""
    found = await call(here, await project_of(here, project), "task_cancel", {"id": identity}, is_compared=False)
    note(*found.get("warnings", []))
    if found["queued"]:
        message = f"the end of {found['id']} is queued"
    elif not found["cancelled"]:
        message = f"{found['id']} was over already"
    else:
        message = f"{found['id']} is cancelled" + (
            f"; {found['killed']} running, being killed" if found["killed"] else ""
        )
    return Output(found, message)


@command
async def accept(here: CommandContext, identity: TaskId, at: At = None, project: ProjectDir = Path()) -> Output:
    """Store a result as an ordinary note, after showing it. Always asks at a terminal."""
    if not sys.stdin.isatty():
        # Confirm as `confide trust` does: an agent that runs commands must not approve what another
        # agent wrote.
        raise DeclinedError(
            "this needs an answer, and there is no terminal to ask in",
            hint="a person runs it in a terminal; there is no option for it",
        )
    this = await project_of(here, project)
    async with here.client(this) as client:
        found, order, _ = await _fetch_task(client, identity)
        slot = _slot(found, at)
        if slot["path"] is None:
            raise ToolError("that run left no text", hint=f"confide task show {found['task'][:6]} lists its runs")
        if order.project not in (this.name, GLOBAL_PROJECT):
            hint = "run it in the folder of that project"
            raise ToolError(f"the task is of project {one_line(order.project)}", hint=hint)
        of_result: PullRequest = {"project": order.project, "path": slot["path"]}
        text = _body((await PULL.ask(client.connection, of_result, timeout_s=DEADLINE_S))["text"])
    say(text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…")
    await require_consent("Keep this as a note of the project", is_sure=False)
    fields = {"content": text, "title": f"Result: {_first(order.description)}", "source": "task", "tags": ["task"]}
    stored = await call(here, this, "memory_store", {**fields, "project": order.project})
    gone = await call(here, this, "memory_delete", {"path": slot["path"], "project": order.project})
    async with here.client(this) as client:
        # The daemon recognizes the text of the untrusted result; mark the note as trusted.
        of_note: TrustRequest = {"project": order.project, "path": stored["path"]}
        looked = await TRUST.ask(client.connection, of_note, timeout_s=DEADLINE_S)
        await TRUST.ask(client.connection, {**of_note, "hash": looked["hash"]}, timeout_s=DEADLINE_S)
    note(*stored.get("warnings", []), *gone.get("warnings", []))
    return Output({"path": stored["path"], "id": stored.get("id")}, f"kept as {stored['path']} [{order.project}]")


@command
async def report(
    here: CommandContext,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 12h or 7d.")] = "1d",
    project: ProjectDir = Path(),
) -> Output:
    """Show last night's task results, most urgent first."""
    back_s = seconds(since, "hd", most_days=400, option="--since", examples="12h or 7d")
    begin = datetime.now(UTC) - timedelta(seconds=back_s)
    async with here.client(await project_of(here, project)) as client:
        asked: ReportRequest = {"since": begin.isoformat(timespec="seconds")}
        answer = await REPORT.ask(client.connection, asked, timeout_s=DEADLINE_S)
        lines = [*answer["lines"], *await asyncio.to_thread(outdated_lines, client.ties.notes)]

    def tell() -> None:
        for line in lines:
            row(line)

    return Output({"lines": lines, "open": answer["open"]}, tell)


async def _run_again(here: CommandContext, identity: str, project: Path) -> Output:
    """Add a copy of a task that is due at once, signed by this device."""
    async with here.client(await project_of(here, project)) as client:
        _, order, _ = await _fetch_task(client, identity)
    usd = None if order.max_microusd is None else order.max_microusd / 1_000_000
    fields = {
        "description": order.description,
        "type": order.type,
        "recipe": order.recipe,
        "project": order.project,
        "repoUrl": order.repo or None,
        "scheduledFor": datetime.now(UTC).isoformat(timespec="seconds"),
        "timeZone": order.zone,
        "priority": order.priority,
        "context": json.loads(order.context) if order.context else None,
        "timeoutMs": order.timeout_ms,
        "maxUsd": usd,
        "retries": order.retries,
    }
    return await _add(here, project, {name: value for name, value in fields.items() if value is not None})


async def _add(here: CommandContext, folder: Path, arguments: dict[str, object]) -> Output:
    this = await project_of(here, folder, is_written=True)
    found = await call(here, this, "task_add", arguments, is_compared=False)
    note(*found.get("warnings", []))
    when = f", next {_local(found['scheduledFor'])}" if found["scheduledFor"] else ""
    return Output(found, f"task {found['id']} is queued{when}")


async def _set(here: CommandContext, identity: str, state: str, folder: Path) -> Output:
    async with here.client(await project_of(here, folder)) as client:
        found, _, _ = await _fetch_task(client, identity)
        body: SetRequest = {"task": found["task"], "state": state}
        answer = await SET.ask(client.connection, body, timeout_s=DEADLINE_S)
    return Output({"id": found["task"], "state": answer["state"]}, f"{found['task']} is {answer['state']}")


async def _fetch_task(client: CommandClient, identity: str) -> tuple[TaskShown, Order, str | None]:
    """Request a task; return the daemon's answer, the parsed order, and the reason why a runner
    would refuse it, or None.

    Raises OrderError if the bytes are not an order.
    """
    found = await SHOW.ask(client.connection, {"task": identity}, timeout_s=DEADLINE_S)
    return found, *read_order(found, client.sealing.keyring.roster)


def _slot(found: TaskShown, at: str | None) -> RunShown:
    """Find the run of a task that the user names. Raises ToolError if the task has no such run."""
    wanted = [
        one
        for one in found["slots"]
        if (one["state"] in _RAN if at is None else at in (str(one["at"]), clock(one["at"])))
    ]
    if not wanted:
        raise ToolError("there is no such run of this task", hint=f"confide task show {found['task'][:6]} lists them")
    return wanted[0]


def _print_order(found: TaskShown, order: Order, problem: str | None) -> None:
    signed = f"signed by {found['device']}" if problem is None else f"not followed: {problem}"
    row(f"{order.id}  {found['state']}{' (' + found['why'] + ')' if found['why'] else ''}; {signed}")
    for name, value in _fields(order).items():
        row(f"{name:<12}  {value}")
    if found["approvals"]:
        row(f"{'approved by':<12}  {len(found['approvals'])} more")
    say(order.description)
    if order.context:
        say(f"context: {order.context}")


def _fields(order: Order) -> dict[str, str]:
    when = clock(order.at) if order.at is not None else f"{order.schedule} ({order.zone})"
    cost = "as the recipe says" if order.max_microusd is None else f"${order.max_microusd / 1_000_000:.2f}"
    return {
        "project": order.project,
        "recipe": f"{order.recipe} ({order.type})",
        "repository": order.repo or "none",
        "due": when,
        "expires": clock(order.expires),
        "at most": f"{order.timeout_ms / 60_000:g} min, {cost}, {order.retries} retries",
        "missed": f"{order.missed}; overlap {order.overlap}; priority {order.priority}",
    }


def _slot_line(slot: RunShown) -> str:
    parts = [slot["state"]]
    parts += (
        [{True: "checked", False: "check failed", None: "unchecked"}[slot["checked"]]]
        if slot["state"] == "succeeded"
        else []
    )
    parts += [slot["reason"]] if slot["reason"] else []
    parts += [f"by {slot['runner']}"] if slot["runner"] else []
    parts += [f"{slot['durationMs'] / 1000:.0f} s"] if slot["durationMs"] else []
    parts += [f"${slot['microusd'] / 1_000_000:.2f}"] if slot["microusd"] else []
    parts += [f"commit {slot['commit']}"] if slot["commit"] else []
    parts += [slot["path"]] if slot["path"] else []
    return f"{clock(slot['at'])}  {', '.join(parts)}"


def _plain(found: TaskShown, order: Order) -> dict[str, object]:
    approvals = [one["key"].hex() for one in found["approvals"]]
    whole = json.loads(order.encode())
    return {
        "order": whole,
        "device": found["device"],
        "state": found["state"],
        "why": found["why"],
        "approvals": approvals,
        "slots": found["slots"],
    }


def _object(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter('it is a JSON object, such as \'{"branch": "main"}\'', param_hint="--context")
    return found


def _milliseconds(text: str | None) -> int | None:
    return (
        None
        if text is None
        else 1000 * seconds(text, "smh", most_days=1, option="--timeout", examples="90s, 30m or 2h")
    )


def _local(told: str) -> str:
    return clock(datetime.fromisoformat(told).timestamp())


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "task")[:80]


def _body(text: str) -> str:

    return front_matter.split(text)[1].strip()
