"""A program in the place of an agent's command, which behaves as its file says: `claude` or `codex` on the PATH of a test."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python} -IS
import json, os, subprocess, sys, time
place = {place!r}
with open(place + "/script.json") as file:
    script = json.load(file)
with open(place + "/calls.jsonl", "a") as file:
    told = {{"arguments": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(), "pid": os.getpid()}}
    told["environment"] = {{name: os.environ[name] for name in os.environ if name.startswith("CONFIDE")}}
    file.write(json.dumps(told) + "\\n")
if script.get("starts"):
    subprocess.run(script["starts"], input=script["gives"].encode(), stdout=subprocess.DEVNULL)
if script.get("sleeps"):
    child = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"])
    with open(place + "/child", "w") as file:
        file.write(str(child.pid))
    time.sleep(600)
answer = script.get("answer", "")
if "--output-last-message" in sys.argv:
    with open(sys.argv[sys.argv.index("--output-last-message") + 1], "w") as file:
        file.write(answer)
    print(json.dumps({{"type": "turn.completed", "usage": script.get("usage", {{}})}}))
elif "raw" in script:
    sys.stdout.write(script["raw"])
else:
    print(json.dumps({{"type": "result", "is_error": False, "result": answer, "usage": script.get("usage", {{}})}}))
sys.exit(script.get("code", 0))
"""


class ScriptedClient:
    """Commands of the given names in `folder`, which is to stand first on the PATH."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            program = folder / name
            program.write_text(_PROGRAM.format(python=sys.executable, place=str(folder)))
            program.chmod(0o755)
        self.script()

    @property
    def path(self) -> str:
        return f"{self._folder}{os.pathsep}{os.environ['PATH']}"

    def script(self, **behaviour: Any) -> None:
        """How it behaves from now on: `answer` (a text or findings), `raw`, `usage`, `code`, `sleeps`, `starts` with `gives` on stdin."""
        if "answer" in behaviour and not isinstance(behaviour["answer"], str):
            behaviour["answer"] = json.dumps({"findings": behaviour["answer"]})
        (self._folder / "script.json").write_text(json.dumps(behaviour))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How it was called, each time."""
        file = self._folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def child(self) -> int | None:
        """The program that it has started, where it sleeps."""
        file = self._folder / "child"
        return int(text) if file.exists() and (text := file.read_text()) else None
