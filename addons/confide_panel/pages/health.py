"""Show the state of link, queue, index, database key, models and hooks, with the remedy for each
problem.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from starlette.responses import Response

from confide_crypto.errors import ConfideError
from confide_memory.wire.sealing import Unsealed
from confide_panel.daemon_status import StatusCache
from confide_panel.page_context import Found, PageContext
from confide_panel.rendering import count_noun, since
from confide_proxy.hooks import counts
from confide_proxy.offline.journal import Journal, JournalCounts, QueuedCall

AGAIN_S: Final = 1
"""Seconds after which a page without the daemon's status loads again."""
TOLD_S: Final = 60.0
"""Age of the daemon's status, in seconds, from which on the page says it."""
_DEAD: Final = 20
_LATE_SHARE: Final = 0.05
_OUTCOMES: Final = (counts.ANSWERED, counts.SILENT, counts.POINTED, counts.LATE, counts.ABSENT, counts.FAILED)


class HealthLine(NamedTuple):
    """The state of one part: `state` is good, warn or bad; `do` is the remedy, "" if none is
    needed.
    """

    name: str
    state: str
    said: str
    do: str = ""


async def show(desk: PageContext) -> Response:
    """Show the state of all parts."""
    gateway = desk.gateway
    (told, is_awaited), (waiting, dead), fired = await asyncio.gather(
        StatusCache.of(gateway).look(desk),
        asyncio.to_thread(_queue, desk),
        asyncio.to_thread(counts.read, os.fspath(gateway.paths.state)),
    )
    status, unsealed = (told.status, told.unsealed) if told else (None, None)
    lines = [
        *_link(desk, status, is_awaited=is_awaited),
        *_waiting(waiting, status),
        *(_daemon(status, unsealed) if status else ()),
        *_hooks(desk, fired),
    ]
    answer = desk.page(
        "health.html",
        here="health",
        lines=lines,
        troubles=sum(each.state != "good" for each in lines),
        stands=status,
        as_of=since(told.age_s) if told and told.age_s > TOLD_S else "",
        is_awaited=is_awaited,
        dead=dead,
        fired=[(name, n) for name in _OUTCOMES if (n := Counter(each[2] for each in fired)[name])],
        uptime_s=time.monotonic() - gateway.began,
    )
    if is_awaited:
        answer.headers["Refresh"] = str(AGAIN_S)
    return answer


async def retry(desk: PageContext) -> Response:
    """Send again an entry of the queue that the daemon refused."""
    entry = await asyncio.to_thread(Journal(desk.gateway.paths.journal).retry, desk.form_text("id", 64))
    return desk.go("health", "Confide sends it again." if entry else "It is no longer in the queue.")


def _queue(desk: PageContext) -> tuple[JournalCounts, list[QueuedCall]]:
    journal = Journal(desk.gateway.paths.journal)
    try:
        return journal.counts(), [each for each in journal.heads() if each.code][:_DEAD]
    except ConfideError:
        return JournalCounts(), []


def _link(desk: PageContext, status: Found | None, *, is_awaited: bool) -> Iterator[HealthLine]:
    link = desk.gateway.exchange.link
    if link.is_up and status:
        name = status["link"].get("device") or status["link"]["caller"]
        message = f"up, to {status['link']['space']} as {name}, daemon {status['daemonVersion']}"
        yield HealthLine("link", "good", message)
    elif link.is_up and is_awaited:
        yield HealthLine("link", "good", "up; the server's status is on its way")
    elif link.is_up:
        yield HealthLine("link", "warn", "up, but the server does not answer", "confide doctor")
    else:
        reason = link.reason
        hint = reason.hint if reason is not None and reason.hint else "confide doctor"
        yield HealthLine("link", "bad", f"down: {reason}" if reason else "down", hint)


def _waiting(waiting: JournalCounts, status: Found | None) -> Iterator[HealthLine]:
    if waiting.damaged:
        yield HealthLine("queue", "bad", count_noun(waiting.damaged, "damaged record"), "confide sync --queue")
    if waiting.dead:
        yield HealthLine(
            "refused", "warn", f"the server refused {count_noun(waiting.dead, 'store')}", "look at them below"
        )
    message = f"{count_noun(waiting.queued, 'store')} for the server" if waiting.queued else "empty"
    yield HealthLine("queue", "warn" if waiting.queued else "good", message)
    if status and status["pendingUploads"]:
        yield HealthLine(
            "files", "warn", f"{count_noun(status['pendingUploads'], 'change')} not sent yet", "confide sync"
        )


def _daemon(status: Found, unsealed: Unsealed | None) -> Iterator[HealthLine]:
    health = status["health"]
    if health["state"] == "ok":
        message = f"{status['totalChunks']:,} chunks of {status['totalFiles']:,} documents"
        healed = f", {count_noun(health['healed'], 'fault')} repaired" if health["healed"] else ""
        yield HealthLine("index: words", "good", message + healed)
    else:
        breaches = ", ".join(str(each["what"]) for each in health["breaches"]) or health["state"]
        yield HealthLine("index: words", "bad", breaches, "Confide repairs it by itself; if it stays: confided check")
    waits = status["queuedChunks"]
    if not status["model"]:
        yield HealthLine(
            "index: meaning", "warn", "no model is ready, so searches match words only", "see the models below"
        )
    else:
        message = (
            f"{waits:,} chunks are queued, the oldest for {status['indexAge']:.0f} s"
            if waits
            else "every chunk has its embedding"
        )
        state = "warn" if waits and status["indexAge"] > 60 else "good"
        yield HealthLine("index: meaning", state, f"{status['model']}: {message}")
    sealing = status["sealing"]
    keeper = "on your devices" if sealing["custody"] == "caller" else "on the server"
    yield HealthLine("database key", "good", f"{keeper}; {status['atRest']}")
    if sealing["secrets"] is not None:
        codes = sealing.get("recoveryCodes", 0)
        message = f"{count_noun(sealing['secrets'], 'secret')}, for {count_noun(sealing['devices'] - codes, 'device')}"
        yield HealthLine("sealed", "good", message + (f" and {count_noun(codes, 'recovery code')}" if codes else ""))
    if unsealed and (findings := unsealed["findings"]):
        message = f"{count_noun(findings, 'credential')} in clear"
        yield HealthLine("in clear", "warn", message, "confide secrets scan --stored")
    if status["clashes"]:
        message = f"{count_noun(len(status['clashes']), 'document')} with a conflict"
        yield HealthLine("conflicts", "warn", message, "see Conflicts")
    for warning in status["warnings"]:
        yield HealthLine("warning", "warn", warning)


def _hooks(desk: PageContext, fired: list[tuple[float, str, str, int, str]]) -> Iterator[HealthLine]:
    if not desk.gateway.config.hooks:
        yield HealthLine("hooks", "good", "off")
        return
    if not fired:
        hint = "confide setup claude-code --hooks adds notes to prompts automatically"
        yield HealthLine("hooks", "good", "no hook has run yet", hint)
        return
    by = Counter(outcome for _, _, outcome, _, _ in fired)
    message = f"{len(fired):,} ran: " + ", ".join(f"{by[name]} {name}" for name in _OUTCOMES if by[name])
    if by[counts.FAILED]:
        yield HealthLine("hooks", "warn", message, "confide doctor shows the last failure")
    elif by[counts.LATE] > len(fired) * _LATE_SHARE:
        yield HealthLine("hooks", "warn", message, "is a session stopped (Ctrl-Z), or this device busy?")
    else:
        yield HealthLine("hooks", "good", message)
