"""The judge `client`: the agent's own command, asked once, with its hooks, tools and MCP servers off, and told that it runs for us.

What was said goes in by stdin, so it stands in no list of processes. One command at a time (the learner has a seat), 60 seconds each, and
no more calls and tokens a day than the configuration allows: they are the person's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confide_learn.local.finding import CannotJudgeError
from confide_learn.local.judges.asking import MOST_ANSWER_BYTES, SCHEMA, answered, question
from confide_learn.local.progress import write_whole

if TYPE_CHECKING:
    from confide_learn.local.exchanges import Exchange
    from confide_learn.local.finding import Finding
    from confide_proxy.config import Learning

DEADLINE_S: Final = 60.0
_CHARS_A_TOKEN: Final = 4
_OVERHEAD_TOKENS: Final = 4_000
"""What a client adds to a question of its own, where it does not say what it spent."""
_OURS: Final = {"CONFIDE_LEARNING": "1", "CONFIDE_HOOKS": "off"}
_SESSIONS: Final = frozenset({"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"})
"""Of the session that has started us: in it a client refuses to begin another one."""
_SETTINGS: Final = json.dumps({"disableAllHooks": True})
_NO_SERVERS: Final = json.dumps({"mcpServers": {}})


@dataclass(frozen=True, slots=True)
class Spent:
    """What a day has cost: `day` is a date of this machine."""

    day: str = ""
    calls: int = 0
    tokens: int = 0


class Budget:
    """Counts the calls and tokens of a day, on the disk: the processes that learn change, the day's limits do not."""

    def __init__(self, folder: Path, config: Learning) -> None:
        self._file = folder / "spent.json"
        self._config = config

    def today(self) -> Spent:
        """What was spent since midnight here."""
        day = time.strftime("%Y-%m-%d")
        try:
            table = json.loads(self._file.read_bytes())
            spent = Spent(str(table["day"]), int(table["calls"]), int(table["tokens"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return Spent(day)
        return spent if spent.day == day else Spent(day)

    def check(self) -> None:
        """Raises CannotJudgeError: the day's limit is reached."""
        spent = self.today()
        if spent.calls >= self._config.calls_a_day:
            raise CannotJudgeError(f"the {self._config.calls_a_day:,} calls of today are used up")
        if spent.tokens >= self._config.tokens_a_day:
            raise CannotJudgeError(f"the {self._config.tokens_a_day:,} tokens of today are used up")

    def add(self, *, calls: int = 0, tokens: int = 0) -> None:
        """Count. Raises OSError: the disk refuses, and nobody may be asked without being counted."""
        spent = self.today()
        write_whole(self._file, asdict(replace(spent, calls=spent.calls + calls, tokens=spent.tokens + tokens)))


class _Command(NamedTuple):
    """How a client is started, and where its answer is: in a file, or on stdout."""

    arguments: list[str]
    answer: Path | None


class ClientCommand:
    """Asks the command of the client whose session it is."""

    def __init__(self, config: Learning, folder: Path, *, deadline_s: float = DEADLINE_S) -> None:
        """`folder` is the learner's."""
        self._model = config.client_model
        self._deadline_s = deadline_s
        self._budget = Budget(folder, config)

    async def findings(self, window: Sequence[Exchange], client: str) -> list[Finding]:
        """What it finds. Raises CannotJudgeError."""
        if os.environ.get("CONFIDE_LEARNING"):
            raise CannotJudgeError("this is a client that a judge has started")
        self._budget.check()
        told, conversation = question(window)
        try:
            # A folder of its own, so that no project's instructions, hooks or servers count.
            with tempfile.TemporaryDirectory(prefix="confide-judge-", ignore_cleanup_errors=True) as place:
                command = self._command(client, told, Path(place))
                # Counted before it runs: what is killed has cost something too.
                self._budget.add(calls=1)
                printed = await self._run(command.arguments, f"{told}\n\n{conversation}".encode(), place)
                answer = command.answer.read_bytes()[:MOST_ANSWER_BYTES] if command.answer else b""
        except OSError as error:
            raise CannotJudgeError(f"it cannot be run: {error.strerror or type(error).__name__}") from None
        text, tokens = _read_claude(printed) if command.answer is None else _read_codex(printed, answer)
        estimate = (len(told) + len(conversation) + len(text)) // _CHARS_A_TOKEN + _OVERHEAD_TOKENS
        with suppress(OSError):
            self._budget.add(tokens=tokens or estimate)
        try:
            return answered(text)
        except ValueError:
            raise CannotJudgeError("it answered with something else than findings") from None

    def _command(self, client: str, told: str, place: Path) -> _Command:
        name = {"claude-code": "claude", "codex": "codex"}.get(client, "")
        program = shutil.which(name) if name else None
        if program is None:
            raise CannotJudgeError(f"the command of {client} is not on the PATH")
        if name == "claude":
            # --bare fires no hooks and loads nothing, but takes no account: API keys alone.
            quiet = (
                ["--bare"]
                if os.environ.get("ANTHROPIC_API_KEY")
                else ["--settings", _SETTINGS, "--strict-mcp-config", "--mcp-config", _NO_SERVERS]
            )
            asked = ["--model", self._model or "haiku", "--tools", "", "--no-session-persistence"]
            return _Command([program, "-p", *quiet, *asked, "--output-format", "json", "--system-prompt", told], None)
        schema, answer = place / "schema.json", place / "answer.txt"
        schema.write_text(json.dumps(SCHEMA))
        model = ["--model", self._model] if self._model else []
        quiet = ["--ephemeral", "--ignore-user-config", "--disable", "hooks", "--disable", "plugins"]
        where = ["--sandbox", "read-only", "--skip-git-repo-check", "--cd", str(place)]
        files = ["--output-schema", str(schema), "--output-last-message", str(answer)]
        return _Command([program, "exec", *quiet, *where, *model, "--json", *files, "-"], answer)

    async def _run(self, arguments: list[str], given: bytes, place: str) -> bytes:
        environment = {name: value for name, value in os.environ.items() if name not in _SESSIONS} | _OURS
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=place,
            env=environment,
            start_new_session=True,  # it starts programs of its own, which end with it
            limit=MOST_ANSWER_BYTES,
        )
        try:
            async with asyncio.timeout(self._deadline_s):
                printed = await _talked(process, given)
                code = await process.wait()
        except TimeoutError:
            raise CannotJudgeError(f"it did not answer within {self._deadline_s:.0f} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                await process.wait()
        if code != 0:
            raise CannotJudgeError(f"it ended with code {code}")
        return printed


async def _talked(process: asyncio.subprocess.Process, given: bytes) -> bytes:
    """What it prints, after it was given that. Raises CannotJudgeError: too much."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it does not want to hear it
        process.stdin.write(given)
        await process.stdin.drain()
        process.stdin.close()
    printed = bytearray()
    while part := await process.stdout.read(MOST_ANSWER_BYTES):
        printed += part
        if len(printed) > 4 * MOST_ANSWER_BYTES:
            raise CannotJudgeError("its answer is too long")
    return bytes(printed)


def _read_claude(printed: bytes) -> tuple[str, int]:
    """The answer's text, and the tokens that it says it took, 0 where it does not."""
    try:
        table = json.loads(printed)
    except (ValueError, RecursionError):
        raise CannotJudgeError("it answered with something else than findings") from None
    if not isinstance(table, dict) or table.get("is_error") or not isinstance(table.get("result"), str):
        raise CannotJudgeError("it reports an error")
    return table["result"], _total(table.get("usage"))


def _read_codex(printed: bytes, answer: bytes) -> tuple[str, int]:
    tokens = 0
    for line in printed.splitlines():
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                tokens = max(tokens, _total(event.get("usage")))
    return answer.decode("utf-8", "replace"), tokens


def _total(usage: Any) -> int:
    if not isinstance(usage, dict):
        return 0
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return sum(count for name in names if type(count := usage.get(name)) is int and 0 <= count < 10**9)
