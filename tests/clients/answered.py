"""Questions to the person in front of a real client, which a hook of theirs answers here: a conflict is settled in the file.

Claude Code has the event `Elicitation` for hooks that answer in a person's place. `ANSWERED` has the checks by client.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.clients import claude
from tests.clients.models import Step, playing
from tests.clients.trial import NOTICE, PROMPT, Trial
from tests.clients.unasked import Memory, remembering

from confide_memory.documents import has_clash, marked_clash

PATH: Final = "memory/heron-plan.md"
ORIGINS: Final = ("ann, revision 1", "bob, revision 2")
KEPT: Final = "Herons are fed at noon."
CLASH: Final = "".join(marked_clash(["Herons are fed at dawn.\n"], [f"{KEPT}\n"], ORIGINS))
SEARCHES: Final = 4
SETTLED_S: Final = 20.0
_ANSWERS: Final = """#!{python}
import json, sys, time
asked = json.load(sys.stdin)
titles = asked["requested_schema"]["properties"]["answer"]["enum"]
with open({log!r}, "a") as log:
    log.write(json.dumps({{**asked, "at": time.time(), "answered": titles[{choice}]}}) + "\\n")
said = {{"hookEventName": "Elicitation", "action": "accept", "content": {{"answer": titles[{choice}]}}}}
print(json.dumps({{"hookSpecificOutput": said}}))
"""


def claude_answered(trial: Trial) -> None:
    """Claude Code: without a hook nobody answers, and nothing changes; with one the second version is kept."""
    for is_answered in (False, True):
        with remembering(trial, f"claude-{'answered' if is_answered else 'asked'}") as memory:
            file = memory.home.project / PATH
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"# Herons\n{CLASH}", encoding="utf-8")
            memory.set_up("claude-code", "--user")
            log = memory.home.folder / "asked.jsonl"
            if is_answered:
                answering(memory.home.folder, log)
            found = _session(trial, memory)
            is_whole = sum(NOTICE in result for result in found) == SEARCHES
            memory.check("each search has its result", is_whole, f"{len(found)} results")
            if is_answered:
                end = time.monotonic() + SETTLED_S
                while has_clash(file.read_text(encoding="utf-8")) and time.monotonic() < end:
                    time.sleep(0.1)
                asked = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
                memory.check("the person is asked once", len(asked) == 1, f"{len(asked)} times")
                memory.check(
                    "the answer settles the conflict", file.read_text(encoding="utf-8") == f"# Herons\n{KEPT}\n"
                )
            else:
                memory.check("without an answer the file stays", has_clash(file.read_text(encoding="utf-8")))


def answering(home: Path, log: Path, choice: int = 1) -> None:
    """Answer each question in Claude Code with this choice, from 0, and note the questions in `log`."""
    program = home / "answers.py"
    program.write_text(_ANSWERS.format(python=sys.executable, log=str(log), choice=choice), encoding="utf-8")
    program.chmod(0o755)
    settings = home / ".claude/settings.json"
    told: dict[str, Any] = json.loads(settings.read_text(encoding="utf-8"))
    told.setdefault("hooks", {})["Elicitation"] = [{"hooks": [{"type": "command", "command": str(program)}]}]
    settings.write_text(json.dumps(told), encoding="utf-8")


def _session(trial: Trial, memory: Memory) -> list[str]:
    """What the model reads of each search. Between searches the session has time to look for what waits."""
    search = Step("mcp__confide__memory_search", {"query": PROMPT})
    pause = Step("Bash", {"command": "sleep 2", "description": "x"})
    steps = [step for _ in range(SEARCHES) for step in (search, pause)]
    with playing(*steps, Step()) as model:
        there = {"ANTHROPIC_API_KEY": "made-up", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}"}
        command = [trial.clients / claude.PROGRAM, "-p", PROMPT, "--output-format", "stream-json", "--verbose"]
        command += ["--allowedTools", claude.TOOLS, "Bash(sleep *)"]
        done = memory.home.run(command, memory.environment(**there, **dict.fromkeys(claude.QUIET, "1")))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    parts = [part for event in events if event["type"] == "user" for part in event["message"]["content"]]
    results = [
        json.dumps(part["content"]) for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"
    ]
    return [result for result in results if "memory" in result or "error" in result.casefold()]


ANSWERED: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {"claude": (claude_answered,)}
