"""Executes a run: turns a repository and an order's text into a result, in sandboxes that leave no
process and no file behind.

This module has no connection to the daemon. Effects that need the daemon's consent (a note, a
branch, a push) are only prepared here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets as randoms
import socket
import stat
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_crypto.keys.private_files import make_private_dir
from confide_night.errors import RepositoryError, RunnerError, SandboxError
from confide_night.runner import agents
from confide_night.runner.budget.gateway_process import GatewayProcess
from confide_night.runner.mirrors import Mirror
from confide_night.runner.runlog import RunLog, redact
from confide_night.runner.sandbox import disk_use
from confide_night.runner.sandbox.bubblewrap import MIRROR, OUT, TREE, WORK, Box, Sandbox
from confide_night.runner.settings.recipes import Recipe, RunnerSettings
from confide_proxy.sealing.masking import Mask

FIRST_OUTPUT_S: Final = 120.0
SILENCE_S: Final = 900.0
LAST_WORD_S: Final = 15.0
"""Seconds an agent gets to exit after its result, since some agents do not exit."""
CHECK_S: Final = 300.0
_LOOK_S: Final = 1.0
"""Interval of the checks whether an agent has been silent for too long, in seconds."""
_STEP_S: Final = 300.0
"""Time limit of a git step in a sandbox, in seconds."""
DISK_LOOK_S: Final = 5.0
_MOST_BUNDLE: Final = 512 * 2**20
_MOST_PATCH: Final = 16 * 2**20
_PIECE: Final = 64 * 1024
_TELLS_OF_COSTS: Final = 0.2
_LATER: Final = frozenset({429, 500, 502, 503, 504, 529})
_ASK_TOKENS: Final = 16_000
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_WHO: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Confide task"), ("EMAIL", "task@confide.invalid"))
}
_CLONE: Final = 'git clone --quiet --shared --no-tags --config core.hooksPath=/dev/null "$1" "$2"'
_PACK: Final = """
cd "$2" || exit 9
git add -A && { git diff --cached --quiet || git commit --quiet --no-verify -m "What a task of Confide left uncommitted"; } || exit 9
[ "$(git rev-parse HEAD)" = "$1" ] && exit 3
git bundle create --quiet "$3/result.bundle" "$1..HEAD" || exit 9
git rev-parse HEAD
"""
"""Shell script that runs in the agent's own tree, where its settings and programs apply: its output
is not trusted until `_UNPACK` has verified it.
"""
_UNPACK: Final = """
base=$1 commit=$2 mirror=$3 tree=$4 bundle=$5 out=$6; shift 6
git clone --quiet --shared --no-checkout --no-tags --template= "$mirror" "$tree" && cd "$tree" || exit 9
if [ "$commit" != "$base" ]; then
  git -c transfer.fsckObjects=true fetch --quiet --no-tags --no-write-fetch-head "$bundle" "+HEAD:refs/confide/work" || exit 9
  [ "$(git rev-parse --verify "refs/confide/work^{commit}")" = "$commit" ] || exit 4
fi
git checkout --quiet --detach "$commit" || exit 9
[ "$commit" = "$base" ] && exit 0
git diff --binary --no-ext-diff --no-textconv "$base" "$commit" > "$out/result.patch" || exit 9
names=$(git diff --name-only --no-renames "$base" "$commit" -- "$@") || exit 9
printf '%s\n' "$names" | head -n 1
"""
"""Shell script that runs in a new tree without the agent's settings: only the content of the commit
is checked and kept, no other files of the agent's tree.
"""
_OTHER: Final = 4
_OURS: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}
_BUNDLE: Final = "/task-bundle"
_OF_CI: Final = (
    *(":(top,glob).*", ":(top,glob).*/**"),
    *(f":(top,icase,glob){name}" for name in ("Jenkinsfile*", "azure-pipelines*.yml", "azure-pipelines*.yaml")),
    *(
        f":(top,icase,glob){name}"
        for name in ("buildspec*.yml", "buildspec*.yaml", "cloudbuild*.yaml", "cloudbuild*.yml")
    ),
    *(f":(top,icase,glob){name}" for name in ("ci_scripts/**", "buildkite/**", "zuul.d/**")),
    *(f":(top,icase){name}" for name in ("bitbucket-pipelines.yml", "appveyor.yml", "circle.yml", "wercker.yml")),
    *(
        f":(top,icase){name}"
        for name in ("codemagic.yaml", "bitrise.yml", "shippable.yml", "cloudbuild.json", "screwdriver.yaml")
    ),
    *(f":(top,icase){name}" for name in ("buildkite.yml", "buildkite.yaml", "zuul.yaml", "readthedocs.yml")),
    *(f":(top,icase){name}" for name in ("codeship-services.yml", "codeship-steps.yml", "readthedocs.yaml")),
    # Of hosts that build a preview of each branch.
    *(f":(top,icase){name}" for name in ("netlify.toml", "vercel.json", "amplify.yml", "render.yaml", "heroku.yml")),
    *(f":(top,icase){name}" for name in ("wrangler.toml", "wrangler.json", "wrangler.jsonc", "nixpacks.toml")),
    *(f":(top,icase){name}" for name in ("railway.toml", "railway.json")),
    *(f":(top,exclude){name}" for name in (".gitignore", ".gitattributes", ".editorconfig", ".dockerignore")),
    *(f":(top,exclude){name}" for name in (".prettierrc", ".prettierignore", ".python-version", ".nvmrc", ".mailmap")),
)
"""Files that make a forge run commands after a push, with the repository's secrets. Almost all are
names with a leading dot at the top, and forges add more, so every such name counts except those
known to be harmless.
"""
_NOTHING: Final = 3


class EndedError(Exception):
    """Ends a run early. `state` is the final state of its slot, or `again`."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RunJob:
    """The input of a run.

    Attributes:
        slot: a name of letters, digits and hyphens.
        text, context: the order's text and context.
        mirror: the repository; None for none.
        limit_usd, timeout_s: the limits of cost and duration.
        key: API key of the model; "" if the recipe uses no model.
        secrets: the values of the recipe's secrets, by name.
    """

    slot: str
    recipe: Recipe
    text: str
    context: str
    mirror: Mirror | None
    limit_usd: float
    timeout_s: float
    key: str = field(default="", repr=False)
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def hidden_values(self) -> list[bytes]:
        """Return the secret values, which no text of the run may carry out of this device."""
        return [*self.secrets.values(), *([self.key.encode()] if self.key else [])]


@dataclass(slots=True)
class Result:
    """The outcome of a run.

    Attributes:
        state: `succeeded`, `failed`, `cancelled`, `lost`, or `again`.
        reason: explanation for the user; "" for none.
        text: the result's text, without secrets.
        checked: whether the recipe's check passed on exactly that commit; None if there is no check
            or it was not reached.
        commit: the commit of the work; "" for none.
        bundle, patch: files with the work, in the run's folder; None for none.
        may_be_pushed: whether the recipe allows a push of the commit.
    """

    state: str = "failed"
    reason: str = ""
    text: str = ""
    checked: bool | None = None
    commit: str = ""
    bundle: Path | None = None
    patch: Path | None = None
    may_be_pushed: bool = False
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of an agent: a commit and a bundle with it. If nothing changed, there is no bundle,
    and `commit` is the original one.
    """

    commit: str
    bundle: Path | None


class Run:
    """A run in its own folder. The caller removes the folder with `tidy` after it has imported the
    bundle.
    """

    def __init__(self, job: RunJob, settings: RunnerSettings, folder: Path) -> None:
        """Args:
        folder: parent of the run's folder.
        """
        self._job = job
        self._recipe = job.recipe
        self._settings = settings
        self.folder = folder / f"{job.slot}-{randoms.token_hex(4)}"
        self._out = self.folder / "out"
        self._work = self.folder / "work"
        self._new_out = self.folder / "new-out"
        self._new_work = self.folder / "new-work"
        self._mirror_config = self.folder / "mirror.config"
        self.log = RunLog(job.hidden_values)
        self._stop_reason: asyncio.Future[EndedError] = asyncio.get_running_loop().create_future()
        self._last_output_at = 0.0
        self._base = ""
        self._step_number = 0

    def stop(self, state: str, reason: str) -> None:
        """Stop the run; the first call determines state and reason."""
        if not self._stop_reason.done():
            self._stop_reason.set_result(EndedError(state, reason))

    async def go(self) -> Result:
        """Execute the run. Errors become results, and no process is left on return."""
        result, began = Result(), time.monotonic()
        try:
            async with asyncio.timeout(self._job.timeout_s):
                await self._run_steps(result)
        except TimeoutError:
            result.state, result.reason = "failed", f"it took longer than {self._job.timeout_s:,.0f} s"
        except EndedError as error:
            result.state, result.reason = error.state, error.reason
        except RepositoryError as error:
            result.state, result.reason = "again", str(error)
        except RunnerError as error:
            result.state, result.reason = "again" if isinstance(error, SandboxError) else "failed", str(error)
        except (ConfideError, OSError) as error:  # for example a full disk
            problem = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
            result.state, result.reason = "failed", f"this device could not do it: {problem}"
        result.took_s = time.monotonic() - began
        result.text = redact(self.mask(result.text))
        return result

    async def tidy(self) -> None:
        """Remove the run's folder."""
        await asyncio.to_thread(disk_use.remove, self.folder)

    def mask(self, text: str) -> str:
        """Return a text with the secrets of this run replaced."""
        return Mask(self.log.forms).whole(text.encode()).decode("utf-8", "replace")

    async def _run_steps(self, result: Result) -> None:
        """Execute the steps until they end or the run is stopped."""
        steps = asyncio.create_task(self._steps(result))
        watching = asyncio.create_task(self._watch_disk())
        try:
            waiting: set[asyncio.Future[Any]] = {steps, self._stop_reason}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not steps.done():
                raise self._stop_reason.result()
            steps.result()
        finally:
            for task in (steps, watching):
                task.cancel()
            # Wait until the sandbox of the cancelled step has ended.
            await asyncio.gather(steps, watching, return_exceptions=True)

    async def _watch_disk(self) -> None:
        limits, was_hidden = self._settings.limits, False
        while True:
            await asyncio.sleep(DISK_LOOK_S)
            found = await asyncio.to_thread(disk_use.measure, self.folder)
            if found.size_bytes > limits.disk_mib * 2**20:
                self.stop("failed", f"its work folder is larger than {limits.disk_mib:,} MiB")
            elif found.is_hidden and was_hidden:  # test suites hide folders briefly; hiding a full disk takes longer
                self.stop("failed", "a part of its work folder cannot be looked at")
            was_hidden = found.is_hidden
            if disk_use.free_mib(self.folder) < limits.free_mib // 8:
                self.stop("failed", "the disk of the runner is almost full")

    async def _steps(self, result: Result) -> None:
        if self._recipe.kind == "ask":
            await self._ask(result)
            return
        await asyncio.to_thread(self._make_folders)
        program = agents.program_of(self._recipe, self._settings.model.api)
        if self._job.mirror is not None:
            self._base = await self._job.mirror.fetch()
            await asyncio.to_thread(self._mirror_config.write_text, await self._job.mirror.settings())
            await self._quick("clone", ("sh", "-c", _CLONE, "sh", MIRROR, TREE), "the repository cannot be cloned")
        else:
            await asyncio.to_thread((self._work / "tree").mkdir)
        if self._recipe.asks_a_model or self._recipe.hosts:
            await self._with_gateway(program, result)
        else:
            await self._agent(program, result, None, None)
        work = None
        if self._base and self._recipe.kind in ("fix", "command"):
            work = await self._pack()
            await self._unpack(work, result)
        if self._recipe.check:
            result.checked = await self._check(self._work if work is None else self._new_work)
            if not result.checked:
                raise EndedError("failed", "its check has failed")
        if work is not None and work.bundle is not None:
            result.commit, result.bundle = work.commit, work.bundle
            result.patch = _plain(self._new_out / "result.patch", _MOST_PATCH)
        elif work is not None:
            result.notes.append("nothing was changed")
        result.state = "succeeded"
        result.reason = "" if self._recipe.check else "unchecked"

    def _make_folders(self) -> None:
        for folder in (self.folder, self._work, self._out, self._new_work, self._new_out):
            make_private_dir(folder)

    # Agent step

    async def _with_gateway(self, program: agents.AgentProgram, result: Result) -> None:
        outside, inside = socket.socketpair()
        with outside, inside:
            terms = self._terms()
            async with await GatewayProcess.start(terms, listener_from=outside.fileno()) as gateway:
                outside.close()
                try:
                    await self._agent(program, result, gateway, inside)
                finally:
                    await gateway.close()
                    result.usd, result.tokens_in = gateway.usd, gateway.tokens_in
                    result.tokens_out = gateway.tokens_out

    async def _agent(
        self,
        program: agents.AgentProgram,
        result: Result,
        gateway: GatewayProcess | None,
        inside: socket.socket | None,
    ) -> None:
        output = agents.AgentOutput(program.speaks)
        box = self._box(
            is_open=self._recipe.kind != "review",
            environment={**program.environment, **_WHO},
            readable={str(each): each for each in program.readable},
            secrets={name: self._job.secrets[secret] for name, secret in self._recipe.files.items()},
            gateway=None if inside is None else inside.fileno(),
        )
        asked = agents.prompt(self._recipe, self._job.text, self._job.context).encode()
        try:
            async with self._sandbox(box, program.command, TREE) as sandbox:
                if inside is not None:
                    inside.close()
                code = await self._follow(sandbox, "agent", asked, output)
        finally:
            result.text = output.text
        if gateway is not None:
            await gateway.close()  # it has then reported all spending
            if (
                output.reported_usd is not None
                and abs(output.reported_usd - gateway.usd) > _TELLS_OF_COSTS * gateway.usd
            ):
                counted = (
                    f"the agent says that it cost ${output.reported_usd:.2f}; the gateway counts ${gateway.usd:.2f}"
                )
                result.notes.append(counted)
                self.log.note(counted)
        if code == 0 and not output.problem:
            return
        if gateway is not None and gateway.is_over:
            raise EndedError("failed", f"its budget of ${self._job.limit_usd:.2f} is spent")
        if gateway is not None and gateway.refusal_status in _LATER:
            raise EndedError("again", f"the model's API turned it away ({gateway.refusal_status})")
        raise EndedError("failed", output.problem or f"the agent ended with code {code}")

    async def _follow(self, sandbox: Sandbox, title: str, given: bytes, output: agents.AgentOutput) -> int:
        """Read the output of a step until it ends; return its exit code, or 0 if the agent gave its
        result but did not exit.
        """
        process = sandbox.process
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._last_output_at = began = time.monotonic()
        out, err = self.log.section(f"{title}: stdout"), self.log.section(f"{title}: stderr")
        is_said = asyncio.Event()

        async def follow(stream: asyncio.StreamReader, kept: Any, reader: agents.AgentOutput | None) -> None:
            while piece := await stream.read(_PIECE):
                self._last_output_at = time.monotonic()
                kept.feed(piece)
                if reader is not None:
                    reader.feed(piece)
                    if reader.is_done:
                        is_said.set()
            kept.end()

        async def give() -> None:
            with contextlib.suppress(ConnectionError, OSError):
                stdin.write(given)
                await stdin.drain()
                stdin.close()

        tasks = [asyncio.create_task(follow(stdout, out, output)), asyncio.create_task(give())]
        tasks.append(asyncio.create_task(follow(stderr, err, None)))
        ending = asyncio.create_task(process.wait())
        saying = asyncio.create_task(is_said.wait())
        try:
            said_at = None
            while not ending.done():
                now = time.monotonic()
                if is_said.is_set() and said_at is None:
                    said_at = now
                ends = self._last_output_at + SILENCE_S if output.has_begun else began + FIRST_OUTPUT_S
                if said_at is not None:
                    ends = said_at + LAST_WORD_S
                if now >= ends:
                    if said_at is not None:
                        break
                    waited = SILENCE_S if output.has_begun else FIRST_OUTPUT_S
                    raise EndedError("failed", f"it was silent for {waited:,.0f} s")
                watched = {ending} if said_at is not None else {ending, saying}
                await asyncio.wait(watched, timeout=min(ends - now, _LOOK_S), return_when=asyncio.FIRST_COMPLETED)
            code = process.returncode
            await sandbox.end()
            # All processes that held the pipes have ended, so the pipes end too.
            await asyncio.gather(*tasks)
            return 0 if code is None else code
        finally:
            for task in (*tasks, ending, saying):
                task.cancel()
            await asyncio.gather(*tasks, ending, saying, return_exceptions=True)

    def _terms(self) -> dict[str, object]:
        """Return the terms of the run's gateway
        (`confide_night.runner.budget.budget_gateway.RunTerms`).
        """
        hosts: dict[str, dict[str, str]] = {host: {} for host in self._recipe.hosts}
        hidden = []
        for each in self._recipe.headers:
            value = self._job.secrets[each.secret].decode("utf-8", "strict").strip()
            hidden.append(value)
            hosts[each.host][each.header] = each.form.format(value)
        return {
            "api": self._settings.model.api,
            "url": self._settings.model.place,
            "key": self._job.key,
            "prices": {model: asdict(price) for model, price in self._settings.prices.items()},
            "limit_usd": self._job.limit_usd,
            "hosts": hosts,
            "hidden": hidden,
        }

    # Steps before and after the agent

    async def _quick(self, title: str, command: Sequence[str], problem: str) -> None:
        """Execute a short step in a sandbox. Raises EndedError if it fails."""
        try:
            code, _ = await self._step(title, self._box(environment=_WHO), command, WORK, _STEP_S)
        except TimeoutError:
            raise EndedError("again", f"{problem}: it takes too long") from None
        if code:
            raise EndedError("again", problem)

    async def _check(self, work: Path) -> bool:
        """Run the recipe's check; return True if it passes. It runs without a network and without
        the agent's processes; if the run has a commit, in a tree with exactly that commit.
        """
        box = self._box(is_open=self._recipe.kind != "review", environment=_WHO, work=work)
        try:
            code, _ = await self._step("check", box, self._recipe.check, TREE, CHECK_S)
        except TimeoutError:
            self.log.note(f"the check took longer than {CHECK_S:.0f} s")
            return False
        return code == 0

    async def _pack(self) -> _Work:
        """Create a bundle of the work. Programs that the tree's git settings start run in the
        sandbox.
        """
        box = self._box(environment=_WHO, writable={OUT: self._out})
        packing = ("sh", "-c", _PACK, "sh", self._base, TREE, OUT)
        try:
            code, said = await self._step("pack", box, packing, WORK, _STEP_S)
        except TimeoutError:
            raise EndedError("failed", "what it has changed cannot be put together in time") from None
        if code == _NOTHING:
            return _Work(self._base, None)
        commit = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        if code or not commit or not _COMMIT.fullmatch(commit[0]):
            raise EndedError("failed", "what it has changed cannot be put together")
        bundle = _plain(self._out / "result.bundle", _MOST_BUNDLE)
        if bundle is None:
            raise EndedError("failed", "what it has changed is too large, or no plain file")
        return _Work(commit[0], bundle)

    async def _unpack(self, work: _Work, result: Result) -> None:
        """Check out the commit into a new tree, as in a fresh clone, and determine whether it may
        be pushed.

        Raises EndedError if the bundle has another commit, or git refuses it.
        """
        box = self._box(
            environment={**_WHO, **_OURS},
            readable={} if work.bundle is None else {_BUNDLE: work.bundle},
            writable={OUT: self._new_out},
            work=self._new_work,
        )
        words = (self._base, work.commit, MIRROR, TREE, _BUNDLE, OUT, *_OF_CI)
        try:
            code, said = await self._step("unpack", box, ("sh", "-c", _UNPACK, "sh", *words), WORK, _STEP_S)
        except TimeoutError:
            raise EndedError("failed", "what it has changed cannot be taken apart in time") from None
        if code == _OTHER:
            raise EndedError("failed", "what it has changed is not the commit that it reports")
        if code:
            raise EndedError("failed", "what it has changed is nothing that git takes")
        of_ci = said.decode("utf-8", "replace").split("\n")[0].strip()
        result.may_be_pushed = not of_ci or self._recipe.push_ci
        if self._recipe.push and not result.may_be_pushed:
            result.notes.append(f"it is not pushed: it changes {of_ci}, which may be a forge's own orders (push_ci)")

    async def _step(
        self, title: str, box: Box, command: Sequence[str], cwd: str, deadline_s: float
    ) -> tuple[int, bytes]:
        """Execute a step without a gateway; return its exit code and the end of its output. Raises
        TimeoutError.
        """
        output = agents.AgentOutput("")
        async with asyncio.timeout(deadline_s), self._sandbox(box, command, cwd) as sandbox:
            code = await self._follow(sandbox, title, b"", output)
        return code, output.text.encode()

    def _box(
        self,
        *,
        is_open: bool = True,
        environment: Mapping[str, str],
        readable: Mapping[str, Path] | None = None,
        work: Path | None = None,
        writable: Mapping[str, Path] | None = None,
        secrets: Mapping[str, bytes] | None = None,
        gateway: int | None = None,
    ) -> Box:
        self._step_number += 1
        read_only = {**{each: Path(each) for each in self._recipe.readable}, **(readable or {})}
        if self._job.mirror is not None:
            seen = {**self._job.mirror.visible_paths, "config": self._mirror_config}
            read_only |= {f"{MIRROR}/{name}": each for name, each in seen.items()}
        return Box(
            f"{self.folder.name}-{self._step_number}",
            work or self._work,
            self._settings.limits,
            read_only,
            writable or {},
            is_open,
            environment,
            secrets or {},
            gateway,
        )

    @contextlib.asynccontextmanager
    async def _sandbox(self, box: Box, command: Sequence[str], cwd: str) -> AsyncIterator[Sandbox]:
        sandbox = await Sandbox.start(box, command, cwd=cwd)
        try:
            yield sandbox
        finally:
            await asyncio.shield(sandbox.end())

    # Question to a model

    async def _ask(self, result: Result) -> None:
        """Send one request to the model, without tools and without a sandbox, since nothing of its
        answer is executed.
        """
        recipe, api = self._recipe, self._settings.model.api
        asked = agents.prompt(recipe, self._job.text, self._job.context)
        body: dict[str, object] = {"model": recipe.model}
        if api == "openai":
            path = "/v1/responses"
            body |= {"input": asked, "max_output_tokens": _ASK_TOKENS, "store": False}
        else:
            path = "/v1/messages"
            body |= {"max_tokens": _ASK_TOKENS, "messages": [{"role": "user", "content": asked}]}
        headers = {"anthropic-version": "2023-06-01"} if api == "anthropic" else {}
        terms = {**self._terms(), "ask": {"path": path, "body": body, "headers": headers}}
        async with await GatewayProcess.start(terms, listener_from=None) as gateway:
            try:
                answer = await gateway.answer()
            finally:
                await gateway.close()
                result.usd, result.tokens_in, result.tokens_out = gateway.usd, gateway.tokens_in, gateway.tokens_out
        if answer["status"] in _LATER:
            raise EndedError("again", f"the model's API turned it away ({answer['status']})")
        if answer["status"] != 200:
            if gateway.is_over:
                raise EndedError("failed", f"its budget of ${self._job.limit_usd:.2f} is spent")
            raise EndedError("failed", f"the model's API refused ({answer['status']})")
        result.text = _answer_text(answer["text"])[: agents.MOST_TEXT]
        if not result.text:
            raise EndedError("failed", "the model's answer has no text")
        result.state, result.reason = "succeeded", "unchecked"


def _answer_text(text: str) -> str:
    """Return the text of an answer of either API; "" if it has none."""
    try:
        said = json.loads(text)
        if "content" in said:
            return "".join(part["text"] for part in said["content"] if part.get("type") == "text")
        messages = [item for item in said["output"] if item.get("type") == "message"]
        return "".join(
            part["text"] for item in messages for part in item["content"] if part.get("type") == "output_text"
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def _plain(path: Path, most: int) -> Path | None:
    """Return the path if it is a regular file within the size limit, else None: a sandbox may have
    left a link or a pipe.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return path if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and 0 < status.st_size <= most else None
