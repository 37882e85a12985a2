"""One run: a repository, an agent in a sandbox, its check, and what comes out of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import time
from pathlib import Path

import pytest
from tests.support.runs import KEY, ROUNDS, Runs, answer, git, left_over, model_api

from confide_night.runner import run as runs_module
from confide_night.runner import trial

FIX = 'kind = "fix"\nprogram = "{agent}"\n'


def recipe(runs: Runs, kind: str = "fix", more: str = "") -> str:
    return f'kind = "{kind}"\nprogram = "{runs.agent}"\n{more}'


async def test_a_fix_becomes_a_branch_and_a_patch(runs: Runs) -> None:
    """The agent asks its model through the gateway, changes its clone, the check passes, and the work comes out as objects."""
    with model_api() as api:
        settings = runs.settings(recipe(runs, more='check = ["grep", "-q", "two", "a.txt"]'), url=api.url)
        order = "```\nask()\nopen('a.txt', 'a').write('two\\n')\nend('I added a line')\n```"
        result = await runs.make(settings, order).go()
        assert (result.state, result.reason, result.checked) == ("succeeded", "", True)
        assert result.text == "I added a line"
        assert (result.tokens_in, result.tokens_out, result.usd) == (100, 20, pytest.approx(0.0004))
        assert api.headers[0]["x-api-key"] == KEY
    assert result.bundle
    assert result.patch
    assert "+two" in result.patch.read_text()
    branch = await runs.mirror.keep(result.bundle, "slot")
    assert git(runs.mirror.results, "show", f"{branch}:a.txt") == "one\ntwo\n"
    assert git(runs.repository, "status", "--porcelain") == ""
    await runs.run.tidy()
    assert not runs.run.folder.exists()


async def test_the_sandbox_is_what_a_runner_asks_for(runs: Runs) -> None:
    """Where anybody can make namespaces, ours passes its own trial: else nothing would ever be claimed."""
    assert await trial.sandbox_works(runs.folder) is None


async def test_a_review_cannot_change_the_repository(runs: Runs) -> None:
    with model_api() as api:
        settings = runs.settings(recipe(runs, "review"), url=api.url)
        order = "```\ntry: open('a.txt', 'a')\nexcept OSError as error: end(f'I see {open(\"a.txt\").read()} {error.errno}')\n```"
        result = await runs.make(settings, order).go()
    assert (result.state, result.reason, result.checked) == ("succeeded", "unchecked", None)
    assert result.text == "I see one\n 30"
    assert result.bundle is None


async def test_what_an_agent_says_is_not_believed_without_its_check(runs: Runs) -> None:
    """Exit code 0 and "all tests pass" are an agent's word; the check runs behind it, in the same place and without a gateway."""
    more = 'check = ["sh", "-c", "cat /proc/net/tcp | wc -l; exit 1"]\nkind = "command"'
    command = 'command = ["sh", "-c", "echo all tests pass"]'
    settings = runs.settings(f"{command}\n{more}")
    result = await runs.make(settings, "").go()
    assert (result.state, result.reason, result.checked) == ("failed", "its check has failed", False)
    assert "all tests pass" in result.text


@pytest.mark.parametrize(
    ("script", "state", "reason"),
    [
        ("exit 7", "failed", "the agent ended with code 7"),
        ("kill -9 $$", "failed", "the agent ended with code 137"),
        ("no-such-program", "failed", "the agent ended with code 127"),
    ],
)
async def test_an_agent_that_fails_has_failed(runs: Runs, script: str, state: str, reason: str) -> None:
    result = await runs.command(script)
    assert (result.state, result.reason) == (state, reason)


async def test_a_repository_that_cannot_be_had_is_tried_again(runs: Runs) -> None:
    settings = runs.settings('kind = "command"\ncommand = ["true"]')
    run = runs.make(settings, "")
    runs.repository.rename(runs.folder / "moved")
    result = await run.go()
    assert result.state == "again"
    assert result.reason.startswith("git cannot clone the repository app")


@pytest.mark.parametrize(
    ("limit", "script", "reason"),
    [
        ("FIRST_OUTPUT_S", "sleep 60", "it was silent for 0 s"),
        ("SILENCE_S", "echo begun; sleep 60", "it was silent for 0 s"),
    ],
)
async def test_an_agent_that_says_nothing_is_ended(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, limit: str, script: str, reason: str
) -> None:
    monkeypatch.setattr(runs_module, limit, 0.3)
    result = await runs.command(script, has_repository=False)
    assert (result.state, result.reason) == ("failed", reason)


async def test_a_run_ends_at_its_time(runs: Runs) -> None:
    for timeout_s in (0.4, 4.0, 40.0):  # how long a sandbox takes to begin is the machine's business
        result = await runs.command("echo begun; sleep 600", has_repository=False, timeout_s=timeout_s)
        assert (result.state, result.reason) == ("failed", f"it took longer than {timeout_s:.0f} s")
        if "begun" in result.text:
            break
    assert "begun" in result.text


async def test_an_agent_that_does_not_end_behind_its_result_is_ended(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some agents leave a process behind that holds their pipes."""
    monkeypatch.setattr(runs_module, "LAST_WORD_S", 0.2)
    with model_api() as api:
        settings = runs.settings(recipe(runs, "review"), url=api.url)
        result = await runs.make(settings, "```\nend('here it is')\nimport time\ntime.sleep(60)\n```").go()
    assert (result.state, result.text) == ("succeeded", "here it is")


async def test_nothing_lives_behind_a_cancel(runs: Runs) -> None:
    """Also what has left its parent, its session and its process group, and ignores every signal that it can."""
    script = (
        "trap '' TERM INT HUP; (setsid sleep 61 &) ; (setsid sh -c \"trap '' TERM; sleep 62\" &); echo begun; sleep 63"
    )
    settings = runs.settings(f'kind = "command"\ncommand = ["sh", "-c", {json.dumps(script)}]')
    took = []
    for number in range(ROUNDS):
        run = runs.make(settings, "", has_repository=False)
        going = asyncio.create_task(run.go())
        # The first one runs; others are cancelled somewhere between their first step and that.
        while len(_sleeping()) < 3 and (number == 0 or random.random() > 0.05):
            await asyncio.sleep(0.02)
            assert not going.done()
        run.stop("cancelled", "it was cancelled")
        began = time.monotonic()
        result = await going
        took.append(time.monotonic() - began)
        assert (result.state, result.reason) == ("cancelled", "it was cancelled")
        assert _sleeping() == []
        await run.tidy()
    late = sorted(took)[int(len(took) * 0.99)]
    print(f"{len(took)} cancels: median {statistics.median(took) * 1000:.0f} ms, p99 {late * 1000:.0f} ms")
    assert late < (2.0 if ROUNDS > 1 else 10.0)


def _sleeping() -> list[str]:
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"] and words[1] in (b"61", b"62", b"63"):
            found.append(str(line))
    return found


async def test_a_work_folder_that_grows_too_large_ends_the_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "DISK_LOOK_S", 0.1)
    script = "echo begun; head -c 3000000 /dev/zero > big; sleep 60"
    settings = runs.settings(
        f'kind = "command"\ncommand = ["sh", "-c", {json.dumps(script)}]', more="[limits]\ndisk_mib = 2"
    )
    result = await runs.make(settings, "").go()
    assert (result.state, result.reason) == ("failed", "its work folder is larger than 2 MiB")


async def test_a_work_folder_that_hides_a_part_of_itself_ends_the_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an owner who is not root. For a moment it may: tests of programs do."""
    if os.geteuid() == 0:
        monkeypatch.setattr(runs_module.disk_use, "measure", lambda _folder: runs_module.disk_use.Used(0, True))
    monkeypatch.setattr(runs_module, "DISK_LOOK_S", 0.1)
    result = await runs.command("mkdir hidden; touch hidden/x; chmod 0 hidden; echo begun; sleep 60")
    assert (result.state, result.reason) == ("failed", "a part of its work folder cannot be looked at")


async def test_a_model_that_is_overloaded_is_asked_again_later(runs: Runs) -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    with model_api(lambda _body: (529, overloaded)) as api:
        settings = runs.settings(recipe(runs, "review"), url=api.url)
        result = await runs.make(settings, "```\nsys.exit(ask()[0] == 529)\n```").go()
    assert (result.state, result.reason) == ("again", "the model's API turned it away (529)")


async def test_a_question_needs_no_sandbox(runs: Runs) -> None:
    with model_api(lambda _body: answer("forty-two")) as api:
        settings = runs.settings('kind = "ask"', url=api.url)
        result = await runs.make(settings, "what is six times seven?", has_repository=False).go()
    assert (result.state, result.reason, result.text) == ("succeeded", "unchecked", "forty-two")
    assert "tools" not in api.requests[0]
    assert result.usd == pytest.approx(0.0004)


async def test_no_key_and_no_secret_is_in_a_sandbox_or_comes_out_of_one(runs: Runs) -> None:
    """A canary in every place where one might leak: variables, files, all of /proc, arguments; and the log masks what is printed anyway."""
    secret = b"correct-horse-battery-staple-9"
    look = (
        "import pathlib\n"
        "seen = []\n"
        "for top in ('/proc', '/etc', '/run', '/home', '/tmp', '/dev/shm', '/task'):\n"
        "    for path in pathlib.Path(top).rglob('*'):\n"
        "        if '/task/' in str(path) and path.is_dir() or any(part in ('kcore', 'kmsg', 'sys') for part in path.parts): continue\n"
        "        try:\n"
        "            if path.is_file() and CANARY in path.open('rb').read(1 << 20): seen.append(str(path))\n"
        "        except OSError: pass\n"
        "value = open('/run/secrets/token', 'rb').read()\n"
        "sys.stdout.buffer.write(value[:9]); sys.stdout.flush()\n"
        "sys.stdout.buffer.write(value[9:] + b'\\n'); sys.stdout.flush()\n"
        "end(f'{seen} {os.environ[\"ANTHROPIC_API_KEY\"]} {value.decode()} {value in str(os.environ).encode()}')\n"
    )
    # The canary itself would be found where the order stands.
    look = look.replace("CANARY", f"({KEY[:9]!r} + {KEY[9:]!r}).encode()")
    more = '[secrets]\ntoken = "(sealed:api-token:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f)"\n'
    with model_api() as api:
        settings = runs.settings(recipe(runs, "review", 'files = { token = "token" }'), url=api.url, more=more)
        result = await runs.make(settings, f"```\n{look}```", secrets={"token": secret}).go()
    assert (result.state, result.text) == ("succeeded", "[] placeholder (masked) False"), runs.run.log.redact()
    log = runs.run.log.redact()
    assert "(masked)" in log
    for canary in (secret.decode(), KEY):
        assert canary not in log
    for path in runs.folder.rglob("*"):
        if path.is_file() and path.name not in ("claude",):
            assert secret not in path.read_bytes(), path
            assert KEY.encode() not in path.read_bytes(), path


async def test_nothing_of_these_tests_lives_on(runs: Runs) -> None:
    await runs.command("true")
    assert not [line for line in left_over() if str(os.getpid()) in line or str(runs.folder) in line]
