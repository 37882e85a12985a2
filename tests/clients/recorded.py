"""Sessions of a real Claude Code and a real Codex, recorded in docs/sessions.txt as their models read them.

    python -m tests.clients.recorded     # with CONFIDE_CLIENTS, as `make clients`; writes the file

Each scene is a new user's: a home, a project and `confide setup CLIENT --write --hooks`, nothing else. The model is a script whose
moves follow from what it has read, so without the note it would do something else. `make clients` plays the scenes again and compares.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.clients import claude, codex
from tests.clients.answered import answering
from tests.clients.installed import Home
from tests.clients.models import Json, Model, Step, playing
from tests.clients.trial import BIN, Trial

RECORD: Final = Path(__file__).parents[2] / "docs/sessions.txt"
HEAD: Final = """\
Sessions of {claude} and {codex} with Confide, each with a new home. A script plays the
model: what it reads is real, and decides what it does next. "confide |" is what Confide adds at a tool
call, with the client's event; the briefing and notes for prompts are left out. Days, ids and folders are
replaced. A person's yes to a tool is an option of the client here.
"""
TRIES: Final = 3
"""A hook that a busy machine is too late for adds nothing, so a scene may need another try."""
THINKS_S: Final = 3.0
"""Time for a model's first answer, in which a client's servers start."""
COUNTED_S: Final = 20.0
ALLOWED: Final = ("Bash(make *)", "Bash(sleep *)", "Edit", "Read", "mcp__confide__memory_update")
"""The tools to which the person says yes in Claude Code."""
BUILD: Final = {
    "Makefile": "build:\n\t@python3 build.py\n\ngenerate:\n\t@echo 'MILK = 119' > prices.py\n",
    "build.py": "import prices\n\nprint(f'built: milk costs {prices.MILK} cents')\n",
}
NEEDED: Final = "run `make generate` before `make build`"
LEARNED: Final = f"`ModuleNotFoundError: No module named 'prices'`: prices.py is generated, so {NEEDED}."
CENTS: Final = (
    "Pitfall: amounts in `src/till.py` are whole cents. Never use floats there: `change()` once lost a cent a day."
)
PENCE: Final = "Amounts in `src/till.py` are tenths of a cent since July. Never use floats there."
TILL: Final = "def change(paid: int, price: int) -> int:\n    return paid - price\n"
OTHERS: Final = tuple(itertools.product(("Herons", "Storks", "Swifts"), ("spring", "summer", "autumn", "winter")))
LONG: Final = "with the list that hangs beside the door of the office and a pencil"
Move = Step | Callable[[str], Step]
"""What the model does next: always, or by what it has read."""
_ADDED: Final = re.compile(
    r"(?:(\w+)(?::\w+)? hook additional context: )?(<confide-memory>.*?</confide-memory>)", re.DOTALL
)
_FIXED: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d"), "2026-11-25"),
    (re.compile(r"mem_[\w-]*?[0-9a-f]{5,8}\b"), "mem_3f9a2"),
    (re.compile(r"-[0-9a-f]{8}\.md"), "-3f9a2c1b.md"),
)
"""What differs from run to run, and what the record has instead."""
_VARIES: Final = (
    re.compile(r"notes were shown \d+ times|took about [\d,]+ tokens"),
    re.compile(r"^(?:start of a session|a prompt) .*$|\d+ ms$", re.MULTILINE),
)
"""What is counted in the record, and depends on how soon a session's server listens."""


class Reader(Model):
    """Moves that may depend on what the model has read so far. `times`: when each request came."""

    def __init__(self, moves: Sequence[Move]) -> None:
        super().__init__(())
        self._moves = list(moves)
        self.times: list[float] = []

    def step(self, body: Json) -> Step:
        if not self.times:
            time.sleep(THINKS_S)
        self.times.append(time.time())
        move = self._moves.pop(0) if self._moves else Step()
        return move if isinstance(move, Step) else move("\n".join(text for _, text in _read(body)))


class Scene:
    """A new user's home and project, the lines of what happens there, and what the models were asked."""

    def __init__(self, trial: Trial, name: str, files: dict[str, str]) -> None:
        self._trial = trial
        self.home = Home(trial, name)
        self.project = self.home.project
        self.lines: list[str] = []
        self.requests: list[Json] = []
        for path, text in files.items():
            (self.project / path).parent.mkdir(exist_ok=True)
            (self.project / path).write_text(text, encoding="utf-8")
        # Without a CONFIDE_HOME, and with the programs as a person has them.
        plain = {key: value for key, value in self.home.environment().items() if key != "CONFIDE_HOME"}
        self.environment = plain | {"PATH": f"{BIN}:{plain['PATH']}"}

    def say(self, text: str) -> None:
        self.lines += ["", f"# {text}"]

    def confide(self, *words: str, is_shown: bool = False) -> str:
        """Run a command of the person, and record it; with what it prints if `is_shown`."""
        done = self.home.run([BIN / "confide", *words], self.environment)
        if done.returncode:
            raise RuntimeError(f"confide {words[0]} ended with {done.returncode}: {done.stderr[-500:]}")
        said = " ".join(json.dumps(word) if " " in word else word for word in words)
        self.lines += [f"$ confide {said}", *(done.stdout.splitlines() if is_shown else ())]
        return done.stdout

    def claude(self, prompt: str, *moves: Move, asked: Path | None = None, allowed: Sequence[str] = ALLOWED) -> None:
        """Record a session of Claude Code with one prompt; `asked`: where the answering hook notes its questions."""
        with playing(model=(model := Reader(moves))):
            there = {"ANTHROPIC_API_KEY": "made-up", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}"}
            there |= dict.fromkeys(claude.QUIET, "1")
            command = [self._trial.clients / claude.PROGRAM, "-p", prompt, "--output-format", "json", "--allowedTools"]
            done = self.home.run([*command, *allowed], self.environment | there)
        self.requests += model.requests
        seen = 0
        questions = _questions(asked) if asked else []
        for request, came in zip(model.requests, model.times, strict=True):
            while questions and questions[0][0] < came:
                self.lines += questions.pop(0)[1]
            messages = list(_read(request))
            for kind, text in messages[seen:]:
                self.lines += _shown(kind, text)
            seen = len(messages)
        self.lines += _shown("agent", str(json.loads(done.stdout)["result"]))

    def work(self, texts: Sequence[str]) -> None:
        """Store texts that are not recorded."""
        for text in texts:
            self.home.run([BIN / "confide", "store", text, "--title", text[:20]], self.environment)

    def codex(self, prompt: str, *moves: Move) -> None:
        """Record a session of Codex with one prompt."""
        file = self.home.folder / ".codex/config.toml"
        with playing(model=(model := Reader(moves))):
            provider = f'[model_providers.fake]\nname = "fake"\nbase_url = "http://127.0.0.1:{model.port}/v1"\n'
            provider += 'wire_api = "responses"\nenv_key = "MADE_UP"\n'
            chosen = 'model = "fake"\nmodel_provider = "fake"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"'
            file.write_text(f"{chosen}\n{file.read_text(encoding='utf-8')}\n{provider}", encoding="utf-8")
            command = [self._trial.clients / codex.PROGRAM, "exec", "--json", "--skip-git-repo-check"]
            command += ["--dangerously-bypass-hook-trust", prompt]
            done = self.home.run(command, self.environment | {"MADE_UP": "x"})
        for kind, text in _read(model.requests[-1]):
            self.lines += _shown(kind, text)
        items = [json.loads(line).get("item", {}) for line in done.stdout.splitlines() if line.startswith("{")]
        self.lines += _shown(
            "agent", next(item["text"] for item in reversed(items) if item.get("type") == "agent_message")
        )

    @property
    def text(self) -> str:
        """The record, without what differs from run to run."""
        made = "\n".join(self.lines).replace(str(self.project), "/home/ann/shop").replace(self.project.name, "shop")
        made = re.sub(rf"\bby {re.escape(socket.gethostname())}\b", "by laptop", made)
        for pattern, shown in _FIXED:
            made = pattern.sub(shown, made)
        return "\n".join(line.rstrip() for line in made.split("\n")).strip() + "\n"


def _read(body: Json) -> Iterator[tuple[str, str]]:
    """What a request puts before the model, in order, each with its kind: "you", "agent", "does", "result", or the event at which
    Confide adds it; "hook" where the client does not say which.
    """
    has_begun = False
    for message in body.get("messages") or body.get("input") or ():
        content = message.get("content", "")
        role = message.get("role", "")
        if message.get("type") == "function_call":
            yield "does", f"{message['name']} {_arguments(json.loads(message['arguments']))}"
        elif message.get("type") == "function_call_output":
            yield "result", _plain(message["output"]).partition("\nOutput:\n")[2] or _plain(message["output"])
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            text = part.get("text", "")
            if part["type"] == "tool_use":
                yield "does", f"{part['name']} {_arguments(part['input'])}"
            elif part["type"] == "tool_result":
                yield "result", _plain(part["content"])
            elif added := _ADDED.findall(text):
                yield from ((event or "hook", block) for event, block in added if has_begun and "Prompt" not in event)
            elif role == "assistant" and text:
                yield "agent", text
            elif role == "user" and text and not has_begun and not text.lstrip().startswith(("<", "#")):
                yield "you", text
        has_begun = has_begun or role == "assistant" or message.get("type") == "function_call"


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _arguments(given: Json) -> str:
    shown = {name: value for name, value in given.items() if name not in ("description", "replace_all")}
    (first, *more) = shown.items()
    return str(first[1]) if not more else ", ".join(f"{name}: {json.dumps(value)}" for name, value in shown.items())


def _shown(kind: str, text: str) -> list[str]:
    lines = text.strip().split("\n")
    if kind in ("you", "agent"):
        return [f"{kind:<8} {lines[0]}", *(f"{'':8} {line}" for line in lines[1:])]
    if kind == "does":
        return [f"agent    > {lines[0]}", *(f"{'':11}{line}" for line in lines[1:])]
    if kind == "result":
        return [f"{'':11}{line}" for line in lines]
    return [*([] if kind == "hook" else [f"confide  | at {kind}"]), *(f"confide  | {line}" for line in lines)]


def _questions(asked: Path) -> list[tuple[float, list[str]]]:
    """When each question was asked, and its lines with the answer."""
    found = []
    for line in asked.read_text(encoding="utf-8").splitlines() if asked.exists() else ():
        told = json.loads(line)
        titles = told["requested_schema"]["properties"]["answer"]["enum"]
        shown = [f"confide  ? {each}" for each in told["message"].split("\n")]
        shown += [f"confide  ? [{title}]" for title in titles]
        found.append((float(told["at"]), [*shown, f"you      {told['answered']}"]))
    return found


def bash(command: str) -> Step:
    return Step("Bash", {"command": command, "description": "x"})


def _compared(text: str) -> str:
    for pattern in _VARIES:
        text = pattern.sub("", text)
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def other_work(scene: Scene) -> None:
    """Newer notes, with which a session's briefing is full: what is older comes when it is needed."""
    scene.work(
        [f"{bird} are counted in the {month} by the second team, {' '.join([LONG] * 3)}." for bird, month in OTHERS]
    )


def _made(tool: Callable[[str], Step]) -> Callable[[str], Step]:
    """What a model does after the build has failed: what a note says, or else its own guess."""
    return lambda said: tool("make generate build" if NEEDED in said else "make clean")


@contextmanager
def _scene(trial: Trial, name: str, files: dict[str, str]) -> Iterator[Scene]:
    scene = Scene(trial, name, files)
    scene.confide("quickstart")
    scene.confide("setup", "claude-code", "--write", "--hooks", "--user")
    try:
        yield scene
    finally:
        scene.home.run([BIN / "confide", "stop"], scene.environment)


def known_error(trial: Trial, name: str) -> str:
    """A build fails, is mended, and the agent stores how; in a later session, another client and after the switch."""
    with _scene(trial, name, BUILD) as scene:
        scene.say("The first session finds out, and stores it.")
        store = Step("memory_store", {"content": LEARNED})
        scene.claude(
            "build the shop", bash("make build"), bash("make generate build"), store, Step(text="It is built.")
        )
        scene.say("Later, after other work and git clean: the same error, in another session.")
        other_work(scene)
        (scene.project / "prices.py").unlink(missing_ok=True)
        told = f"Built. I ran make generate first, as memory/{time.strftime('%Y-%m-%d')}.md says."
        scene.claude("build the shop", bash("make"), _made(bash), Step(text=told))
        scene.say("The same on that machine with Codex.")
        (scene.project / "prices.py").unlink(missing_ok=True)
        (scene.home.folder / ".codex").mkdir()
        scene.confide("setup", "codex", "--write", "--hooks")
        scene.codex("build the shop", _exec("make"), _made(_exec), Step(text="Built."))
        scene.say("What was it good for?")
        _wait_for_uses(scene, 2)
        scene.confide("stats", is_shown=True)
        scene.say("Switched off, with one line: nothing comes, and the model guesses.")
        (scene.project / "prices.py").unlink(missing_ok=True)
        (scene.project / ".confide.toml").write_text("hooks = false\n", encoding="utf-8")
        scene.lines.append("$ echo 'hooks = false' >> .confide.toml")
        scene.claude("build the shop", bash("make"), _made(bash), Step(text="I could not build it."))
        return scene.text


def pitfall(trial: Trial, name: str) -> str:
    """A file with a pitfall is edited."""
    with _scene(trial, name, {"src/till.py": TILL}) as scene:
        scene.confide("store", CENTS, "--title", "Cents", "--type", "pitfall")
        other_work(scene)
        scene.say("The agent edits the file. The note comes with the result of the edit.")
        file = str(scene.project / "src/till.py")
        to_float = {"file_path": file, "old_string": "paid - price", "new_string": "float(paid - price) * 1.02"}
        to_cents = {
            "file_path": file,
            "old_string": "float(paid - price) * 1.02",
            "new_string": "(paid - price) * 102 // 100",
        }

        def mended(said: str) -> Step:
            return Step("Edit", to_cents) if "whole cents" in said else Step(text="Done, with floats.")

        read, edit = Step("Read", {"file_path": file}), Step("Edit", to_float)
        scene.claude("go on", read, edit, mended, Step(text="Done, in whole cents."))
        return scene.text


def stale_note(trial: Trial, name: str) -> str:
    """A note about code that has changed since is marked, and corrected after a question."""
    with _scene(trial, name, {"src/till.py": TILL}) as scene:
        scene.confide("store", CENTS, "--title", "Cents", "--type", "pitfall")
        scene.confide("sync")
        file = scene.project / "src/till.py"
        file.write_text(TILL.replace("paid - price", "10 * (paid - price)"), encoding="utf-8")
        asked = scene.home.folder / "asked.jsonl"
        answering(scene.home.folder, asked)
        scene.say("Somebody has changed the code since. A person answers the question in Claude Code.")
        search = Step("memory_search", {"query": "how are amounts kept in the till?"})
        searches = [each for _ in range(3) for each in (search, bash("sleep 2"))]

        def corrected(said: str) -> Step:
            found = re.search(r"mem_[0-9a-f]{5,}", said)
            is_told = "is no longer true: correct it with memory_update" in said
            return (
                Step("mcp__confide__memory_update", {"id": found[0], "content": PENCE}) if found and is_told else Step()
            )

        load = Step("ToolSearch", {"query": "select:mcp__confide__memory_update", "max_results": 1})
        scene.claude(
            "how are amounts kept?", *searches, load, corrected, search, Step(text="In tenths of a cent."), asked=asked
        )
        scene.confide("stale", is_shown=True)
        return scene.text


SCENES: Final = {
    "A build error, met again with last week's fix": known_error,
    "An edit of a file with a pitfall": pitfall,
    "A stale note, marked and corrected": stale_note,
}


def _exec(command: str) -> Step:
    return Step("exec_command", {"cmd": command})


def _wait_for_uses(scene: Scene, count: int) -> None:
    """Wait for the last hooks, for which no client waits."""
    end = time.monotonic() + COUNTED_S
    while time.monotonic() < end:
        done = scene.home.run([BIN / "confide", "stats", "--json"], scene.environment)
        if sum(one["used"] for one in json.loads(done.stdout)["events"].values()) >= count:
            return
        time.sleep(0.2)


def played(trial: Trial) -> None:
    """The scenes are as the record says."""
    record = RECORD.read_text(encoding="utf-8")
    for title, scene in SCENES.items():
        expected = record.partition(f"== {title}\n\n")[2].partition("\n\n\n==")[0].strip()
        for number in range(TRIES):
            found = scene(trial, f"{scene.__name__}-{number}")
            if _compared(found) == _compared(expected):
                break
        else:
            lines = _compared(expected).split("\n")
            differs = next((line for line in _compared(found).split("\n") if line not in lines), "something is missing")
            trial.check(f"recorded: {title}", False, differs)
            continue
        trial.check(f"recorded: {title}", True, f"at try {number + 1}")


def main() -> None:
    """Play the scenes and write the record."""
    trial = Trial(Path(os.environ.get("CONFIDE_CLIENTS") or ".venv/clients").absolute())
    versions = {"claude": claude.PACKAGE, "codex": codex.PACKAGE}
    names = {
        name: f"{title} {versions[name].rpartition('@')[2]}"
        for name, title in (("claude", "Claude Code"), ("codex", "Codex"))
    }
    parts = [HEAD.format(**names)]
    parts += [f"== {title}\n\n{scene(trial, scene.__name__)}" for title, scene in SCENES.items()]
    RECORD.write_text("\n\n".join(parts), encoding="utf-8")
    trial.close()


RECORDED: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {"claude": (played,)}

if __name__ == "__main__":
    sys.exit(main())
