"""`confide run` with the real programs: asked for at a terminal, ruled, refused, masked and listed."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.network.tls_hosts import echoing_host
from tests.support.programs.forked import BIN
from tests.support.programs.pair import joined
from tests.support.programs.processes import CONFIDE, Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import OPENING, Wire

from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.wire.sealing import RECORDS
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks.hook_process import answer_from, connect
from confide_proxy.link import session_values
from confide_proxy.mcp.client import CommandClient
from confide_proxy.mcp.questions import CREATE
from confide_proxy.paths import ProxyPaths
from confide_proxy.run.shown_values import AGENT_MARKS
from confide_proxy.sync import project as projects

PASSWORD = "xK7mQ2vR9tLw4zz"
OTHER = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Inside(tmp_path_factory.mktemp("run"), "desk")
    try:
        machine.run("store", f"DB_PASSWORD={PASSWORD} is for the database")
        machine.run("store", f"the token is {OTHER}")
        (secret,) = (one for one in machine.json("secrets", "ls") if one["kind"] == "password")
        machine.run("secrets", "name", "db", secret["id"][:8])
        yield machine
    finally:
        machine.stop_local_daemon()


def run(machine: Machine, *arguments: str, start_new_session: bool = False) -> subprocess.CompletedProcess[str]:
    command = [CONFIDE, "run", *arguments]
    return subprocess.run(
        command,
        cwd=machine.project,
        env=machine.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        start_new_session=start_new_session,
    )


def at_a_terminal(machine: Machine, answer: str, *arguments: str) -> str:
    """All that a person reads who answers the question."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(machine.project)
        os.execve(CONFIDE, ["confide", "run", *arguments], machine.env)
    said, is_answered = "", False
    end = time.monotonic() + DEADLINE_S
    while select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
        try:
            said += os.read(fd, 4096).decode()
        except OSError:
            break
        if "[y/N]" in said and not is_answered:
            is_answered = True
            os.write(fd, answer.encode())
    os.close(fd)
    return f"{said}[exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}]"


def test_a_command_uses_a_secret_that_nobody_sees(desk: Machine) -> None:
    """The value reaches the command; what it prints has placeholders, also for another value that this device knows."""
    script = (
        f'echo "$DB"; echo "$DB" | base64; echo {OTHER}; echo {OTHER} | base64 -w0; test "$DB" = {PASSWORD} && exit 3'
    )
    (desk.home / "proxy.toml").write_text('[run]\nallow = { db = ["sh"] }\n')
    ended = run(desk, "--env", "DB=secret:db", "--", "sh", "-c", script)
    assert ended.returncode == 3, ended.stderr
    for part in (PASSWORD, OTHER, "eEs3bVEydlI5", "Z2hwX2ExQjJj"):
        assert part not in ended.stdout + ended.stderr
    assert ended.stdout.startswith("(sealed:password:")
    assert "(sealed:github-token:" in ended.stdout
    (use,) = desk.json("secrets", "audit")
    assert use["by"].endswith("/sh")
    assert use["approved"] == "proxy.toml"


def test_without_a_rule_or_a_terminal_nothing_runs(desk: Machine, tmp_path: Path) -> None:
    """Nor in a project that forbids it, whatever the rules say. A command that is not there has the shell's exit code."""
    (desk.home / "proxy.toml").write_text('[run]\nallow = { db = ["touch"] }\n')
    made = tmp_path / "made"
    refused = run(desk, "--env", "DB=secret:db", "--", "cp", "/dev/null", str(made))
    assert (refused.returncode, made.exists()) == (7, False)
    assert "[run] allow" in refused.stderr
    (desk.project / ".confide.toml").write_text("run = false\n")
    forbidden = run(desk, "--env", "DB=secret:db", "--", "touch", str(made))
    assert (forbidden.returncode, made.exists()) == (7, False)
    (desk.project / ".confide.toml").unlink()
    assert run(desk, "--env", "DB=secret:db", "--", "no-such-command").returncode == 127
    assert run(desk, "--env", "DB=secret:ffff", "--", "touch", str(made)).returncode == 7
    assert run(desk, "--env", "DB=secret:db", "--", "touch", str(made)).returncode == 0
    assert made.exists()


def test_at_a_terminal_a_person_is_asked_once(desk: Machine) -> None:
    (desk.home / "proxy.toml").write_text("")
    command = ("--env", "DB=secret:db", "--", "printenv", "DB")
    no = at_a_terminal(desk, "n\r", *command)
    assert "printenv use db (sealed:password:" in no
    assert no.endswith("[exit 7]")
    yes = at_a_terminal(desk, "y\r", *command)
    assert yes.count("(sealed:password:") == 2
    assert yes.endswith("[exit 0]")
    assert PASSWORD not in no + yes


def test_what_a_command_leaves_on_the_terminal_stays(desk: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also its last line, without an end: the line that says what Confide does is gone before the command starts."""
    (desk.home / "proxy.toml").write_text('[run]\nallow = { db = ["printf"] }\n')
    monkeypatch.setitem(desk.env, "TERM", "xterm")
    monkeypatch.delitem(desk.env, "NO_COLOR", raising=False)
    said = at_a_terminal(desk, "", "--env", "DB=secret:db", "--", "printf", "one\\ntwo")
    assert said.rpartition("\x1b[K")[2] == "one\r\ntwo[exit 0]", said


def next_question(wire: Wire) -> dict[str, Any]:
    while (message := wire.next()).get("method") != CREATE:
        pass
    return message


def answered(wire: Wire, asked: dict[str, Any], *, is_yes: bool) -> None:
    titles = asked["params"]["requestedSchema"]["properties"]["answer"]["enum"]
    wire.send({"id": asked["id"], "result": {"action": "accept", "content": {"answer": titles[0 if is_yes else -1]}}})


def test_an_agent_has_its_user_asked_and_never_sees_the_value(desk: Machine) -> None:
    """By its client: for a command that it starts, and before it reads a value itself. A no is a no."""
    (desk.home / "proxy.toml").write_text("")
    placeholder = next(one["id"] for one in desk.json("secrets", "ls") if one["kind"] == "password")
    with Wire(desk) as wire:
        wire.call("initialize", {**OPENING, "capabilities": {"elicitation": {}}})
        wire.send({"method": "notifications/initialized"})
        wire.tool("memory_status", {})
        wait_until("the session to take questions", lambda: [*(desk.home / "proxy").glob("asks/*/hooks.*")])
        for is_yes in (False, True):
            command = [CONFIDE, "run", "--env", "DB=secret:db", "--", "printenv", "DB"]
            with subprocess.Popen(
                command,
                cwd=desk.project,
                env=desk.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            ) as process:
                asked = next_question(wire)
                assert "printenv use db (sealed:password:" in asked["params"]["message"]
                answered(wire, asked, is_yes=is_yes)
                out, _ = process.communicate(timeout=DEADLINE_S)
                assert process.returncode == (0 if is_yes else 7)
                assert out.startswith(b"(sealed:password:") == is_yes
        # An agent's shell has a terminal session of its own for each command; the answer holds for the agent's session.
        again = run(desk, "--env", "DB=secret:db", "--", "printenv", "DB", start_new_session=True)
        assert again.stdout.startswith("(sealed:password:"), again.stderr
        assert desk.json("secrets", "audit")[0]["approved"] == "before"
        for is_yes in (False, True):
            wire.send(
                {
                    "id": f"get {is_yes}",
                    "method": "tools/call",
                    "params": {"name": "secret_get", "arguments": {"id": placeholder}},
                }
            )
            answered(wire, next_question(wire), is_yes=is_yes)
            while (message := wire.next()).get("id") != f"get {is_yes}":
                pass
            assert (PASSWORD in str(message)) == is_yes
    heard = b"".join(wire.heard)
    assert heard.count(PASSWORD.encode()) <= 2  # of the one value that the user let the agent read


def test_an_agents_shell_shows_a_value_only_after_a_yes(desk: Machine) -> None:
    """By the variables that agents set: a shell of theirs writes what it prints into a transcript."""

    def shown(**more: str) -> subprocess.CompletedProcess[str]:
        command = [CONFIDE, "secrets", "show", "--raw", "db"]
        return subprocess.run(
            command,
            cwd=desk.project,
            env=desk.env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    (desk.home / "proxy.toml").write_text("")
    assert shown().stdout == PASSWORD  # a script of the user
    for mark in AGENT_MARKS:
        refused = shown(**{mark: "1"})
        assert (refused.returncode, refused.stdout) == (7, ""), mark
        assert "needs a person's approval to show a secret" in refused.stderr
        assert "confide run" in refused.stderr
    for policy, is_shown in (("never", False), ("allow", True)):
        (desk.home / "proxy.toml").write_text(f'[secrets]\nsecret_get = "{policy}"\n')
        assert (shown(CLAUDECODE="1").stdout == PASSWORD) == is_shown
    (desk.home / "proxy.toml").write_text("")
    with Wire(desk) as wire, ThreadPoolExecutor(1) as beside:
        wire.call("initialize", {**OPENING, "capabilities": {"elicitation": {}}})
        wire.send({"method": "notifications/initialized"})
        wire.tool("memory_status", {})
        wait_until("the session to take questions", lambda: [*(desk.home / "proxy").glob("asks/*/hooks.*")])
        for is_yes in (False, True):
            showing = beside.submit(shown, CLAUDECODE="1")
            asked = next_question(wire)
            assert "show the value of db (sealed:password:" in asked["params"]["message"]
            answered(wire, asked, is_yes=is_yes)
            assert (showing.result(DEADLINE_S).stdout == PASSWORD) == is_yes
    newest = next(one for one in desk.json("secrets", "audit") if one["by"] == "confide secrets show")
    assert newest["approved"] == "agent's client"


def test_a_running_session_has_the_value_for_this_device_alone(desk: Machine) -> None:
    """A run beside a session makes no link of its own, and masks, lists and refuses as any other."""
    (desk.home / "proxy.toml").write_text('[run]\nallow = { db = ["sh"] }\n')
    begins = next(one["id"] for one in desk.json("secrets", "ls") if one["kind"] == "password")[:8]

    def quick(reference: str, *command: str) -> subprocess.CompletedProcess[str]:
        line = [
            sys.executable,
            "-X",
            "importtime",
            "-m",
            "confide_proxy",
            "run",
            "--env",
            f"DB=secret:{reference}",
            "--",
        ]
        return subprocess.run(
            [*line, *command],
            cwd=desk.project,
            env=desk.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    with Wire(desk) as wire:
        wire.open()
        wire.tool("memory_status", {})
        for reference in ("db", begins):
            script = f'echo "$DB {OTHER}"; test "$DB" = {PASSWORD} && exit 3'
            ended = wait_until(
                "the session to answer",
                lambda reference=reference, script=script: (
                    one
                    if "confide_proxy.link.daemon_link" not in (one := quick(reference, "sh", "-c", script)).stderr
                    else None
                ),
            )
            assert ended.returncode == 3, ended.stderr
            assert re.fullmatch(r"\(sealed:password:[0-9a-f]+\) \(sealed:github-token:[0-9a-f]+\)\n", ended.stdout)
        assert desk.json("secrets", "audit")[0]["approved"] == "proxy.toml"
        assert run(desk, "--env", "DB=secret:db", "--", "cat", "/dev/null").returncode == 7  # no rule, nobody to ask
        (desk.project / ".confide.toml").write_text("run = false\n")
        assert run(desk, "--env", "DB=secret:db", "--", "sh", "-c", "exit 0").returncode == 7
        (desk.project / ".confide.toml").unlink()
        connection = connect(str(desk.home / "proxy"), DEADLINE_S)
        assert connection is not None
        with connection:
            connection.sendall(session_values.request([begins], bytes(16), str(desk.project)))
            answer = answer_from(connection, end=time.monotonic() + DEADLINE_S)
        assert answer.keys() == {"values"}
        assert session_values.open_values(answer, bytes(32), bytes(16)) is None


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside a session", "alone"])
def test_a_large_output_is_masked_by_all_secrets_of_the_space(desk: Machine, *, is_beside: bool) -> None:
    """Also by those that this device does not know any more: a session, or the daemon, has them."""
    desk.home.joinpath("proxy.toml").write_text('[run]\nallow = { db = ["sh"] }\n')
    is_over = desk.home / "over"
    is_over.unlink(missing_ok=True)
    script = f'until [ -e {is_over} ]; do yes filler | head -c 300000; echo; echo "$DB {OTHER}"; done'
    with ExitStack() as stack:
        if is_beside:
            wire = stack.enter_context(Wire(desk))
            wire.open()
            wire.tool("memory_status", {})
        shutil.rmtree(desk.home / "proxy" / "known", ignore_errors=True)
        command = [CONFIDE, "run", "--env", "DB=secret:db", "--", "sh", "-c", script]
        ended = stack.enter_context(
            subprocess.Popen(
                command, cwd=desk.project, env=desk.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(is_over.touch)
        assert ended.stdout is not None
        masked = re.compile(r"\(sealed:password:[0-9a-f]+\) \(sealed:github-token:[0-9a-f]+\)\n")
        assert any(masked.fullmatch(line) for line in ended.stdout)
        is_over.touch()
        last = ended.stdout.read()
        assert ended.wait(DEADLINE_S) == 0
    assert OTHER not in last
    assert PASSWORD not in last


def test_a_secret_of_a_device_that_is_gone_opens_or_is_explained(tmp_path: Path) -> None:
    """For a device that waits, one that came later, and one that stays when the device that sealed it is removed."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = joined(tmp_path, daemon, "ann", "bob")
        ann.run("store", f"DB_PASSWORD={PASSWORD} is for the database")
        (first,) = ann.json("secrets", "ls")

        def ran(machine: Machine, secret: str) -> tuple[int, str]:
            (machine.home / "proxy.toml").write_text(f'[run]\nallow = {{ "{secret}" = ["true"] }}\n')
            ended = run(machine, "--env", f"A=secret:{secret}", "--", "true")
            return ended.returncode, ended.stderr

        code, said = ran(bob, first["id"])
        assert (code, "confide device approve bob" in said) == (4, True), said
        approved = ann.json("device", "approve", "bob", "--words", bob.json("key", "show")["words"])
        bob.json("device", "confirm", "--words", approved["headWords"])
        assert ran(bob, first["id"]) == (0, "")
        bob.run("store", f"the token is {OTHER}")
        ann.run("device", "rm", "bob", "--yes")
        second = next(one for one in ann.json("secrets", "ls") if one["kind"] == "github-token")
        assert ran(ann, second["id"]) == (0, "")
        code, said = ran(bob, second["id"])
        assert (code, "revoked" in said) == (6, True), said

        others = SpaceKeys.generate().next_epoch()
        foreign = SealedRecord.seal(others, "password", b"of another space")
        asyncio.run(sent(ann, foreign))
        code, said = ran(ann, foreign.secret_id.hex())
        assert (code, "store the value again" in said) == (7, True), said
        code, said = ran(ann, f"(sealed:password:{'0' * 32})")
        assert (code, "store the value again" in said) == (7, True), said


async def sent(machine: Machine, record: SealedRecord) -> None:
    """Have the daemon keep a record that no key of its space opens, as it may after a mishap with its files."""
    paths = ProxyPaths(
        machine.home / "proxy.toml", machine.home / "proxy", machine.home / "global", machine.home / "daemon"
    )
    async with CommandClient(paths, ProxyConfig(), projects.global_project(paths.global_folder)) as client:
        await RECORDS.ask(client.connection, {"records": [b64encode(record.encode()).decode()]}, timeout_s=DEADLINE_S)


def test_the_page_is_followed(desk: Machine, tmp_path: Path) -> None:
    """The section of docs/secrets.md, command by command, with programs that only print what they got."""
    page = (Path(__file__).parents[3] / "docs/secrets.md").read_text("utf-8")
    section = page.partition("## Use a secret unseen\n")[2].partition("\n## ")[0]
    lines = [re.sub(r"\s{2,}#.*", "", line[2:]) for line in section.splitlines() if line.startswith("$ ")]
    assert len(lines) == 5
    for program, prints in {"npm": '"$NPM_TOKEN"', "kubectl": '"$(cat "$KUBECONFIG")"', "docker": '"$(cat)"'}.items():
        file = tmp_path / program
        file.write_text(
            f"#!/bin/sh\nprintf 'got %s\\n' {prints} > {tmp_path}/{program}.got\ncat {tmp_path}/{program}.got\n"
        )
        file.chmod(0o755)
    ids = {one["kind"]: one["id"] for one in desk.json("secrets", "ls")}
    desk.run("secrets", "name", "registry", ids["github-token"][:8])
    hosts = ExitStack()
    api = hosts.enter_context(echoing_host(tmp_path / "ca.pem"))
    rules = '{ npm-token = ["npm", "curl"], db = ["kubectl"], registry = ["docker"] }'
    (desk.home / "proxy.toml").write_text(f"[run]\nallow = {rules}\nca_file = '{api.ca_file}'\n")
    env = {**desk.env, "PATH": f"{tmp_path}:{BIN}:{desk.env['PATH']}"}
    for line in lines:
        line = line.replace("4f2a", ids["github-token"][:8]).replace("7a1c", ids["password"][:8])
        line = line.replace("api.example.com", api.host)
        ended = subprocess.run(
            line,
            shell=True,
            cwd=desk.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        if "curl" in line:
            assert api.got == [f"Bearer {OTHER}"]
            assert ended.stdout == f"Bearer (sealed:github-token:{ids['github-token']})"
        elif " run " in line:
            kind = "password" if "kubectl" in line else "github-token"
            assert ended.stdout == f"got (sealed:{kind}:{ids[kind]})\n", line
    got = [(tmp_path / f"{program}.got").read_text() for program in ("npm", "kubectl", "docker")]
    assert got == [f"got {OTHER}\n", f"got {PASSWORD}\n", f"got {OTHER}\n"]
    hosts.close()
