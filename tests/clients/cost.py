"""How much longer a session of Claude Code takes with the plugin: from the start of its process to its end, for one prompt.

Three kinds in turn, so that a busy moment meets all: without any plugin; with one whose hooks and server do nothing, which shows what the
processes' own start costs here; and with ours, whose prompt asks nothing, or asks for memory and gets its hits.

On a machine with more to do than it has processors for, the clock tells what others do. There the processor's time is judged instead, by
that of the plugin that does nothing, in the same round.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients import claude
from tests.clients.models import playing
from tests.clients.trial import FACT, PROMPT, Trial, is_busy
from tests.clients.unasked import EVERYDAY, Memory, remembering

from confide_proxy.clients.hooks import PLUGIN

ROUNDS: Final = 7
MOST_MS: Final = 150.0
OWN_MS: Final = 50.0
"""What ours may add where any plugin takes a client nearly as long: that part is the client's, and nobody's hooks are faster."""
MOST_TIMES_EMPTY: Final = 1.5
"""Processor time of a whole session to that of one whose plugin does nothing. Ours starts a link to a daemon and answers hooks."""
KINDS: Final = ("bare", "empty", "plugin")


class Took(NamedTuple):
    """Of one session, in milliseconds: by the clock, and of the processors' time, with all that it has started and waited for."""

    clock: float
    processor: float


def session(trial: Trial) -> None:
    """What the plugin costs is the median of how much longer a session took than the bare one of the same round."""
    with remembering(trial, "cost") as memory:
        environments = {kind: _installed(trial, memory, kind) for kind in KINDS}
        took: dict[str, list[Took]] = {kind: [] for kind in (*KINDS, "hits")}
        with_hits = 0
        for number in range(ROUNDS + 1):
            for kind in took:
                surroundings = environments.get(kind, environments["plugin"])
                spent, has_hits = _timed(trial, memory, surroundings, PROMPT if kind == "hits" else EVERYDAY)
                if number:  # the first of each is a warm-up
                    took[kind].append(spent)
                    with_hits += has_hits
    over = {
        kind: statistics.median(mine.clock - bare.clock for mine, bare in zip(took[kind], took["bare"], strict=True))
        for kind in took
    }
    times_empty = statistics.median(
        mine.processor / empty.processor for mine, empty in zip(took["plugin"], took["empty"], strict=True)
    )
    bare = statistics.median(each.clock for each in took["bare"])
    print(
        f"     claude: a bare session takes {bare:.0f} ms, one with a plugin that does nothing {over['empty']:.0f} more"
    )
    most_ms = max(MOST_MS, over["empty"] + OWN_MS)
    told = f"{over['plugin']:.0f} of {most_ms:.0f} ms more at load {os.getloadavg()[0]:.1f}"
    if is_busy():
        print(f"     claude: one with ours {told}, which is not judged on {os.cpu_count()} processors")
    else:
        trial.check("claude: a session with the plugin is hardly longer", over["plugin"] <= most_ms, told)
    trial.check(
        "claude: nor does it need much more of the processor than with a plugin that does nothing",
        times_empty <= MOST_TIMES_EMPTY,
        f"{times_empty:.2f} of {MOST_TIMES_EMPTY} times",
    )
    print(f"     claude: one whose prompt asks for memory {over['hits']:.0f} ms more; {with_hits} of {ROUNDS} had hits")


def _installed(trial: Trial, memory: Memory, kind: str) -> dict[str, str]:
    """The environment of a Claude Code of its own with that plugin; `confide` itself stands on the path."""
    folder = trial.root / f"cost-{kind}"
    told = memory.environment(ANTHROPIC_API_KEY="made-up", CLAUDE_CONFIG_DIR=str(folder))
    told |= {**dict.fromkeys(claude.QUIET, "1"), "PATH": told["PATH"].partition(":")[2]}
    if kind == "bare":
        return told
    plugin: Path = PLUGIN
    if kind == "empty":
        plugin = trial.root / "empty"
        shutil.copytree(PLUGIN, plugin)
        hooks = json.loads((PLUGIN / "hooks/hooks.json").read_text(encoding="utf-8"))
        for each in (hook for groups in hooks["hooks"].values() for group in groups for hook in group["hooks"]):
            each["command"] = f"exec '{sys.executable}' -c 'import json, os, socket'"
        (plugin / "hooks/hooks.json").write_text(json.dumps(hooks), encoding="utf-8")
        server = {"command": sys.executable, "args": ["-S", str(Path(claude.__file__).with_name("bare.py"))]}
        (plugin / ".mcp.json").write_text(json.dumps({"mcpServers": {"confide": server}}), encoding="utf-8")
    program = trial.clients / claude.PROGRAM
    for words in (("marketplace", "add", plugin), ("install", "confide@confide")):
        done = memory.home.run([program, "plugin", *words], told)
        if done.returncode:
            raise RuntimeError(f"claude plugin {words[0]}: {done.stderr[-500:]}")
    return told


def _timed(trial: Trial, memory: Memory, environment: dict[str, str], prompt: str) -> tuple[Took, bool]:
    """What one session took, and whether its model got the fact."""
    with playing() as model:
        there = {**environment, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}"}
        command = [trial.clients / claude.PROGRAM, "-p", prompt, "--output-format", "stream-json", "--verbose"]
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        memory.home.run(command, there)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Took((time.perf_counter() - began) * 1000, spent * 1000), FACT in json.dumps(model.requests)


COST: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {"claude": (session,)}
