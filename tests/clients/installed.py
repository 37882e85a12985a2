"""The plugin and `confide setup` in the real clients: both install, hooks fire, and what may run unasked does, and nothing else.

In both forms of installation: entries that `confide setup` writes, and the plugin or extension that the client reads from the package.
`INSTALLED` has the checks by client.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.clients.gemini import SETTINGS
from tests.clients.models import Step, playing
from tests.clients.opencode import QUIET, settings
from tests.clients.trial import BIN, PROMPT, Trial

from confide_proxy.clients.hooks import PLUGIN

FIRED_S: Final = 30.0
MOST_ALWAYS_ON: Final = 60
"""Tokens that a session with the plugin costs before anybody types anything."""
SECRET: Final = f"(sealed:github-token:{'0f' * 16})"
CALLS: Final = (
    Step("memory_store", {"content": "Herons fish at dawn."}),
    Step("memory_search", {"query": PROMPT}),
    Step("memory_update", {"id": "none", "content": "x"}),
    Step("secret_get", {"id": SECRET}),
    Step("memory_delete", {"id": "none"}),
)
UNASKED: Final = ("memory_store", "memory_search")
CORRECTING: Final = "memory_update"
"""Allowed by a person's own rules alone: the hooks of a plugin answer for what reads and adds."""
ASKED: Final = ("secret_get", "memory_delete")
_WRAPPER: Final = """#!{python}
import os, subprocess, sys
if sys.argv[1:] != ["hook"]:
    os.execv({confide!r}, [{confide!r}, *sys.argv[1:]])
told = sys.stdin.buffer.read()
with open({log!r}, "ab") as log:
    log.write(told.replace(b"\\n", b" ") + b"\\n")
sys.stdout.buffer.write(subprocess.run([{confide!r}, "hook"], input=told, capture_output=True).stdout)
"""


class Home:
    """A client's home, project and programs, in which `confide` notes the events of its hooks and passes them on."""

    def __init__(self, trial: Trial, name: str) -> None:
        self.trial, self.name = trial, name
        self.project = trial.root / f"{name}-project"
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        self.folder = trial.root / name
        self._log = trial.root / f"{name}.events"
        self.confide = trial.root / f"{name}-bin" / "confide"
        self.confide.parent.mkdir()
        self.confide.write_text(
            _WRAPPER.format(python=sys.executable, confide=str(BIN / "confide"), log=str(self._log))
        )
        self.confide.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        plain = self.trial.environment(self.name, **more)
        return {**plain, "PATH": f"{self.confide.parent}:{plain['PATH']}"}

    def run(self, command: Sequence[str | Path], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def set_up(self, client: str, *options: str, **more: str) -> None:
        """What `confide setup` writes, with the program that notes events in the place of its own."""
        done = self.run([BIN / "confide", "setup", client, "--write", *options], self.environment(**more))
        if done.returncode:
            raise RuntimeError(done.stderr)
        for file in (*self.folder.rglob("*.json*"), *self.folder.rglob("*.toml")):
            text = file.read_text(encoding="utf-8")
            if str(BIN / "confide") in text:
                file.write_text(text.replace(str(BIN / "confide"), str(self.confide)), encoding="utf-8")

    @property
    def fired(self) -> list[str]:
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        return [json.loads(line)["hook_event_name"] for line in lines]

    def has_fired(self, events: set[str]) -> bool:
        """Whether all of these have; what a client does not wait for comes a moment after its end."""
        end = time.monotonic() + FIRED_S
        while not events <= set(self.fired) and time.monotonic() < end:
            time.sleep(0.05)
        return events <= set(self.fired)

    def judged(self, form: str, refused: Sequence[str], called: Sequence[str], events: set[str]) -> None:
        """The checks of one session: `refused` and `called` are names of tools of ours."""
        check, ours = self.trial.check, f"{self.name.partition('-')[0]}, {form}"
        has_rules = form != "plugin alone"
        unasked = {*UNASKED, CORRECTING} if has_rules else set(UNASKED)
        asked = set(ASKED) if has_rules else {*ASKED, CORRECTING}
        is_unasked = unasked <= set(called) and not unasked & set(refused)
        check(f"{ours}: what reads and adds needs no question", is_unasked, f"refused: {list(refused)}")
        check(
            f"{ours}: what opens, deletes or is left to rules asks", asked <= set(refused), f"refused: {list(refused)}"
        )
        check(f"{ours}: hooks fire", self.has_fired(events), " ".join(self.fired))


def claude_code(trial: Trial) -> None:
    """Claude Code: `--user` entries, the plugin from the folder of the package beside them, and the plugin alone, whose hooks allow."""
    program = trial.clients / "node_modules/.bin/claude"
    quiet = {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ANTHROPIC_API_KEY": "made-up",
    }
    for form in ("entries", "plugin", "plugin alone"):
        home = Home(trial, f"claude-{form.replace(' ', '-')}")
        environment = home.environment(**quiet)
        server = "confide"
        if form != "entries":
            server = "plugin_confide_confide"
            valid = home.run([program, "plugin", "validate", "--strict", "--profile", "directory", PLUGIN], environment)
            trial.check("claude: plugin validate --strict --profile directory", valid.returncode == 0)
            home.run([program, "plugin", "marketplace", "add", PLUGIN], environment)
            installed = home.run([program, "plugin", "install", "confide@confide"], environment)
            trial.check("claude: the plugin installs from the package", installed.returncode == 0)
            told = re.search(
                r"Always-on:\s+~?(\d+)", home.run([program, "plugin", "details", "confide"], environment).stdout
            )
            cost = int(told[1]) if told else None
            is_cheap = cost is not None and cost <= MOST_ALWAYS_ON
            trial.check(f"claude: the plugin costs at most {MOST_ALWAYS_ON} tokens a session", is_cheap, f"{cost}")
        if form != "plugin alone":
            home.set_up("claude-code", "--allow", "--hooks", "--user")
        names = [f"mcp__{server}__{tool}" for tool in (*UNASKED, CORRECTING, *ASKED)]
        find = Step("ToolSearch", {"query": f"select:{','.join(names)}", "max_results": 10})
        # Twice: the first request of a session of one prompt may go out before the server is connected.
        with playing(find, find, *CALLS) as model:
            told_where = {**environment, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}"}
            command = [program, "-p", PROMPT, "--output-format", "stream-json", "--verbose"]
            done = home.run(command, told_where)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        parts = [part for event in events if event["type"] == "assistant" for part in event["message"]["content"]]
        called = [part["name"].rpartition("__")[2] for part in parts if part.get("type") == "tool_use"]
        refused = [each["tool_name"].rpartition("__")[2] for each in events[-1].get("permission_denials", [])]
        home.judged(form, refused, called, {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"})


def codex(trial: Trial) -> None:
    """Codex: its one file, and the plugin, whose rules stand in a table of their own; and the plugin alone, whose hooks allow."""
    program = trial.clients / "node_modules/.bin/codex"
    for form in ("entries", "plugin", "plugin alone"):
        home = Home(trial, f"codex-{form.replace(' ', '-')}")
        folder = home.folder / ".codex"
        surroundings = {"CODEX_HOME": str(folder), "MADE_UP": "x"}
        environment = home.environment(**surroundings)
        folder.mkdir()
        with playing(*CALLS) as model:
            (folder / "config.toml").write_text(
                'model = "fake"\nmodel_provider = "fake"\napproval_policy = "on-request"\n\n[model_providers.fake]\n'
                f'name = "fake"\nbase_url = "http://127.0.0.1:{model.port}/v1"\nwire_api = "responses"\n'
                'env_key = "MADE_UP"\n',
                encoding="utf-8",
            )
            if form.startswith("plugin"):
                home.run([program, "plugin", "marketplace", "add", PLUGIN], environment)
                installed = home.run([program, "plugin", "add", "confide@confide"], environment)
                trial.check("codex: the same plugin installs", installed.returncode == 0)
            if form != "plugin alone":
                home.set_up("codex", "--allow", "--hooks", **surroundings)
            trusted = "--dangerously-bypass-hook-trust"
            done = home.run([program, "exec", "--json", "--skip-git-repo-check", trusted, PROMPT], environment)
        items = [json.loads(line).get("item", {}) for line in done.stdout.splitlines() if '"item.completed"' in line]
        calls = [item for item in items if item["type"] == "mcp_tool_call"]
        refused = [call["tool"] for call in calls if "requires approval" in json.dumps(call)]
        events = {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"}
        home.judged(form, refused, [call["tool"] for call in calls], events)


def gemini(trial: Trial) -> None:
    """Gemini CLI: `--user` entries beside a person's comments, and the extension, linked from the package."""
    program = ["node", str(trial.clients / "node_modules/@google/gemini-cli/bundle/gemini.js")]
    for form in ("entries", "extension"):
        home = Home(trial, f"gemini-{form}")
        environment = home.environment(GEMINI_API_KEY="made-up", GEMINI_CLI_TRUST_WORKSPACE="true")
        (home.folder / ".gemini").mkdir()
        (home.folder / ".gemini/settings.json").write_text(f"// mine\n{json.dumps(SETTINGS, indent=2)}\n")
        if form == "extension":
            extension = str(PLUGIN / "gemini")
            valid = home.run([*program, "extensions", "validate", extension], environment)
            trial.check("gemini: extensions validate", valid.returncode == 0)
            linked = home.run([*program, "extensions", "link", extension, "--consent"], environment)
            trial.check("gemini: the extension is linked", linked.returncode == 0)
        home.set_up("gemini", "--allow", "--hooks", "--user")
        with playing(*CALLS) as model:
            told_where = {**environment, "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}"}
            command = [*program, "-m", "gemini-2.5-flash", "-p", PROMPT, "-o", "stream-json", "--skip-trust"]
            done = home.run(command, told_where)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        called = {each["tool_id"]: each["tool_name"] for each in lines if each.get("type") == "tool_use"}
        results = [each for each in lines if each.get("type") == "tool_result"]
        refused = [called[each["tool_id"]] for each in results if "requires user confirmation" in json.dumps(each)]
        names = [name.removeprefix("mcp_confide_") for name in called.values()]
        events = {"SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"}
        home.judged(form, [name.removeprefix("mcp_confide_") for name in refused], names, events)


def opencode(trial: Trial) -> None:
    """OpenCode: entries in a file with comments; one session for each call that asks, since a no ends it."""
    for asked in ASKED:
        home = Home(trial, f"opencode-{asked}")
        environment = home.environment(**{f"OPENCODE_DISABLE_{name}": "1" for name in QUIET})
        folder = home.folder / ".config/opencode"
        folder.mkdir(parents=True)
        steps = [step for step in CALLS if step.tool in (*UNASKED, asked)]
        with playing(*steps) as model:
            told = json.dumps(settings(model.port), indent=2)
            (folder / "opencode.jsonc").write_text(f"// mine\n{told}\n", encoding="utf-8")
            home.set_up("opencode", "--allow", "--hooks", "--user")
            program = next(trial.clients.glob("node_modules/opencode-linux-x64/bin/opencode"), None)
            program = program or trial.clients / "node_modules/.bin/opencode"
            done = home.run([program, "run", "--format", "json", PROMPT], environment)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        parts = [line["part"] for line in lines if line.get("type") == "tool_use"]
        called = [part["tool"].removeprefix("confide_") for part in parts]
        refused = [part["tool"].removeprefix("confide_") for part in parts if "rejected permission" in json.dumps(part)]
        is_right = called == [*UNASKED, asked] and refused == [asked]
        trial.check(f"opencode: {asked} asks, and reading, storing and correcting do not", is_right, f"{refused}")
        events = {"SessionStart", "UserPromptSubmit", "Stop"}
        trial.check("opencode: the script tells what happens", events <= set(home.fired), " ".join(home.fired))


INSTALLED: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {
    "claude": (claude_code,),
    "codex": (codex,),
    "gemini": (gemini,),
    "opencode": (opencode,),
}
