"""The command `confide sync --queue`: list the calls that wait for the daemon, and those that it
refused. Works offline (docs/history.md).
"""

from __future__ import annotations

import json
from dataclasses import replace

from confide_crypto.errors import ConfideError
from confide_proxy.cli.console import CommandContext, Output, clock, count_noun, require_consent, row, say
from confide_proxy.errors import ToolError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall

DAMAGED = "damaged"


def list_calls(here: CommandContext, *, with_text: bool) -> Output:
    """List the calls that wait on this device for the daemon, in sending order. `with_text` adds
    their arguments, without credentials.

    Blocks.
    """
    journal = Journal(here.paths.journal)
    counts = journal.counts()
    entries = journal.heads()
    if with_text:
        entries = _as_sent(here, [journal.get(head.id) or head for head in entries])

    def tell() -> None:
        for entry in entries:
            state = "refused" if entry.code else "waits"
            row(f"{entry.id[:8]}  {clock(entry.at)}  {state:<7}  {entry.tool}  {entry.path} [{entry.target}]")
            if entry.code:
                row(f"          {entry.code}: {entry.why}")
            if with_text:
                for line in _text_lines(entry):
                    say(f"    {line}")
        if counts.damaged:
            where = journal.damaged_file
            say(f"{count_noun(counts.damaged, 'damaged record')} cannot be read; Confide moves such records to {where}")
        if not entries and not counts.damaged:
            say("nothing waits")

    calls = [_as_json(entry, show=with_text) for entry in entries]
    data = {"queuedOffline": counts.queued, "deadLetters": counts.dead, "damaged": counts.damaged, "calls": calls}
    return Output(data, tell)


def retry(here: CommandContext, identity: str) -> Output:
    """Queue calls again that the daemon has refused: the one with this id, or all if `identity` is
    "". Blocks.

    Raises ToolError if the call does not exist or was not refused.
    """
    journal = Journal(here.paths.journal)
    chosen = [_find_call(journal, identity)] if identity else [entry for entry in journal.heads() if entry.code]
    done = [entry.id for entry in chosen if journal.retry(entry.id)]
    if identity and not done:
        raise ToolError(
            f"{identity[:32]} was not refused: it is queued already",
            hint="it is sent as soon as the daemon is reachable",
        )
    message = f"{len(done)} {'is' if len(done) == 1 else 'are'} queued again; confide sync sends them now"
    return Output({"retried": done}, message)


async def drop(here: CommandContext, identity: str, *, is_sure: bool) -> Output:
    """Delete one queued call for good; `damaged` as its id means all unreadable records.

    Raises ToolError if the call does not exist; DeclinedError if the user does not confirm.
    """
    journal = Journal(here.paths.journal)
    if identity == DAMAGED:
        await require_consent("delete all records that cannot be read, for good?", is_sure=is_sure)
        count = journal.drop_damaged()
        return Output({"dropped": count}, f"dropped {count_noun(count, 'damaged record')}")
    entry = _find_call(journal, identity)
    await require_consent(f"delete {entry.id[:8]}: {entry.path} [{entry.target}], for good?", is_sure=is_sure)
    journal.drop(entry.id)
    return Output({"dropped": entry.id}, f"dropped {entry.id[:8]}: {entry.path} [{entry.target}]")


def _as_sent(here: CommandContext, entries: list[QueuedCall]) -> list[QueuedCall]:
    """Return the calls with their arguments as the daemon will receive them, as far as known
    without it.

    Credentials that cannot be sealed yet, or that the policy blocks, are redacted: the output is
    read by agents and stored in logs.
    """
    policy = here.config.secrets
    if policy.tools == "block":
        policy = policy._replace(tools="redact")
    sealing = SessionSealing(here.paths, replace(here.config, secrets=policy), MachineKeys(here.paths))
    sealing.keyring.load()
    sealed = SealedCalls(sealing, "")
    shown = []
    for entry in entries:
        try:
            given = dict(sealed.seal_for_display(ToolCall(entry.tool, entry.arguments, entry.project, entry.said)))
        except ConfideError as error:
            given = {"content": f"… (not shown: {error})"}
        shown.append(replace(entry, arguments=given))
    return shown


def _text_lines(entry: QueuedCall) -> list[str]:
    """Return a call's text as lines, after the arguments that a plain store to a file does not
    have.
    """
    fields = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in entry.arguments.items()
        if name not in ("content", "path", "project", "mode")
    ]
    return [*fields, *str(entry.arguments.get("content", "")).splitlines()]


def _find_call(journal: Journal, identity: str) -> QueuedCall:
    entry = journal.get(identity) if identity else None
    if entry is None:
        raise ToolError(
            f"no queued call has the id {identity[:32]}, or several begin with it",
            hint="confide sync --queue lists them",
        )
    return entry


def _as_json(entry: QueuedCall, *, show: bool) -> dict[str, object]:
    told: dict[str, object] = {
        "id": entry.id,
        "time": entry.said,
        "tool": entry.tool,
        "project": entry.target,
        "path": entry.path,
        "state": "refused" if entry.code else "waits",
    }
    told |= {"code": entry.code, "reason": entry.why} if entry.code else {}
    return {**told, "arguments": entry.arguments} if show else told
