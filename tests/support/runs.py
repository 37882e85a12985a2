"""Runs of tasks without a daemon: repositories, an agent that does what its order says, and a model's API that a test scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_night.runner.mirrors import Mirror
from confide_night.runner.run import Result, Run, RunJob
from confide_night.runner.sandbox import bubblewrap
from confide_night.runner.settings.recipes import RunnerSettings, read

KEY = "sk-ant-canary-4c1f77e09b2d4f0aa1c3"
"""The model's key, which no test may find anywhere but with the model."""
MODEL = "claude-sonnet-5"
ROUNDS = int(os.environ.get("CONFIDE_RUNS", "1"))
"""How often what is cancelled or killed is; `make chaos` has the long form."""
_GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")

AGENT = '''#!{python} -IS
"""A `claude` that does what its order says: Python between three backticks."""
import http.client, json, os, sys

def ask(tokens=100, text="hello", path="/v1/messages", stream=False, **more):
    """One request of the gateway; its status and its body."""
    there = http.client.HTTPConnection("127.0.0.1", 7780, timeout=30)
    body = dict(model="{model}", max_tokens=tokens, stream=stream, messages=[dict(role="user", content=text)], **more)
    there.request("POST", path, json.dumps(body), {{"x-api-key": os.environ["ANTHROPIC_API_KEY"]}})
    answer = there.getresponse()
    return answer.status, answer.read().decode()

def end(result="done", **more):
    """The last event of a session."""
    print(json.dumps(dict(type="result", subtype="success", is_error=False, result=result, **more)), flush=True)

exec(compile(sys.stdin.read().split("```")[1], "order", "exec"))
'''


@cache
def _problem() -> str:
    """Why nobody can make namespaces here; whether our own sandbox is right is for the tests."""
    program = bubblewrap.program()
    if program is None:
        return "bubblewrap is not installed"
    bare = [str(program), "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.stderr.strip() if done.returncode else ""


def needing_sandbox() -> None:
    """Skip a test, with the reason, where no sandbox can be had. Blocks."""
    if problem := _problem():
        pytest.skip(problem)


@dataclass
class Api:
    """A model's API on loopback. `respond` gives for a request's body the status and the body of its answer, or the pieces of a stream."""

    respond: Callable[[dict[str, Any]], tuple[int, Any]]
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def answer(text: str = "done", *, read_tokens: int = 100, written: int = 20) -> tuple[int, Any]:
    """A whole answer of Anthropic's form."""
    usage = {"input_tokens": read_tokens, "output_tokens": written}
    return 200, {"type": "message", "content": [{"type": "text", "text": text}], "usage": usage}


def stream(*texts: str, read_tokens: int = 100, written: int | None = 20) -> tuple[int, Any]:
    """The pieces of a stream of Anthropic's form; `written`: None for one that breaks off before it says so."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": read_tokens, "output_tokens": 1}}}
    ]
    events += [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}} for text in texts]
    if written is not None:
        events += [{"type": "message_delta", "usage": {"output_tokens": written}}, {"type": "message_stop"}]
    return 200, [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


@contextmanager
def model_api(respond: Callable[[dict[str, Any]], tuple[int, Any]] = lambda _body: answer()) -> Iterator[Api]:
    """One that listens."""
    api = Api(respond)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            api.paths.append(self.path)
            self._plain(200, {"data": [], "seen": dict(self.headers)})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            api.requests.append(body)
            api.headers.append(dict(self.headers))
            api.paths.append(self.path)
            status, said = api.respond(body)
            if not isinstance(said, list):
                self._plain(status, said)
                return
            self.send_response(status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for piece in said:
                self.wfile.write(piece)
                self.wfile.flush()

        def _plain(self, status: int, said: Any) -> None:
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away is what some tests are about."""

    server = Quiet(("127.0.0.1", 0), Handler)
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def git(folder: Path, *words: str) -> str:
    """Git in a folder, as somebody without settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        [*_GIT, *words], cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=DEADLINE_S
    ).stdout


def repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """A repository with one commit."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, text in (files or {"a.txt": "one\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def agent(folder: Path) -> Path:
    """The agent's program."""
    path = folder / "claude"
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    path.write_text(AGENT.format(python=python, model=MODEL))
    path.chmod(0o755)
    return path


class Runs:
    """Runs on one machine, in a folder. `recipe` lines are of its runner.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = repository(folder / "repository")
        self.agent = agent(folder)
        self._count = 0
        self.run: Run

    def settings(
        self, recipe: str, *, url: str = "http://127.0.0.1:9", more: str = "", top: str = ""
    ) -> RunnerSettings:
        """What a runner.toml with that one recipe says; `more` comes before it, `top` before everything."""
        path = self.folder / "runner.toml"
        repositories = f'[repositories]\napp = "{self.repository}"\n'
        path.write_text(f'{top}\n[model]\nurl = "{url}"\n{repositories}{more}\n[recipes.task]\n{recipe}\n')
        path.chmod(0o600)
        return read(path)

    def make(
        self,
        settings: RunnerSettings,
        order: str,
        *,
        limit_usd: float = 1.0,
        timeout_s: float = 60.0,
        secrets: Mapping[str, bytes] | None = None,
        has_repository: bool = True,
    ) -> Run:
        """A run of an order's text; of the agent the text is Python, of a command it is its stdin."""
        self._count += 1
        self.mirror = Mirror(self.folder / "repositories", "app", str(self.repository), settings.limits)
        mirror = self.mirror if has_repository else None
        recipe, name = settings.recipes["task"], f"{self._count:016x}-1"
        job = RunJob(name, recipe, order, "", mirror, limit_usd, timeout_s, KEY, secrets or {})
        self.run = Run(job, settings, self.folder / "work")
        return self.run

    async def command(self, script: str, *, recipe: str = "", **more: Any) -> Result:
        """The result of a shell's script, as a command that asks no model."""
        settings = self.settings(f'kind = "command"\ncommand = ["sh", "-c", {json.dumps(script)}]\n{recipe}')
        return await self.make(settings, "", **more).go()


def left_over() -> list[str]:
    """What of sandboxes lives on this machine: their processes, and those that wait for them."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = status.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "--disable-userns" in line or "confide_night.runner.budget" in line:
            found.append(line[:80])
    return found
