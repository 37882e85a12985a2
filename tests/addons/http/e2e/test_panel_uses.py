"""Where neither a terminal nor a client can ask, `confide run` waits for a person's answer in the panel."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway
from tests.support.programs.panel import Visit, text_of, words_of
from tests.support.programs.processes import CONFIDE, wait_until

VALUE = "ghp_Q7vZ2LmKx9Rc4WnTb8Jd3Hs6Fg1PaUe5YiOw"
RUN = [CONFIDE, "run", "--env", "T=secret:deploy", "--", "printenv", "T"]


@pytest.fixture(scope="module")
def named(filled: Gateway) -> Gateway:
    """A gateway whose machine has a secret with a name."""
    filled.machine.run("store", f"The deploy token is {VALUE}.", "--title", "Deploy token")
    identity = next(each["id"] for each in filled.machine.json("secrets", "ls") if each["kind"] == "github-token")
    filled.machine.run("secrets", "name", "deploy", identity[:12])
    return filled


@contextmanager
def running(gateway: Gateway, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command without a terminal, in a session of its own."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command or RUN,
        cwd=gateway.machine.project,
        env=gateway.machine.env,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def asked(visit: Visit) -> str:
    """The page with one question, once there is one."""
    return str(wait_until("the question", lambda: _asked(visit)))


def _asked(visit: Visit) -> str:
    page = text_of(visit.get("uses"))
    return page if 'name="choice"' in page else ""


def answer(visit: Visit, page: str, choice: str) -> str:
    """What the next page says."""
    found = re.search(r'name="id" value="([^"]+)"', page)
    assert found
    return words_of(visit.follow(visit.post("uses", id=found[1], choice=choice)))


def test_a_command_waits_for_the_answer_in_the_panel(named: Gateway, visit: Visit) -> None:
    """The page names the command and the secret, never the value; once is once, and a no is a no."""
    for choice, code in (("once", 0), ("no", 7)):
        with running(named) as process:
            page = asked(visit)
            assert unescape(page).count("printenv T") == 1
            assert "deploy (sealed:github-token:" in page
            assert str(named.machine.project) in page
            assert VALUE not in page
            assert "1 command waits for your answer" in words_of(visit.get("projects"))
            assert process.poll() is None
            answer(visit, page, choice)
            out, told = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == code, told
            assert out.startswith(b"(sealed:github-token:") == (choice == "once")
            assert b"in the panel: confide panel" in told
            assert VALUE.encode() not in out + told
    assert "needs a person's approval" in told.decode()
    assert "printenv" in named.machine.run("audit")


def test_an_answer_may_be_for_the_session(named: Gateway, visit: Visit) -> None:
    """Of the terminal that asks, and of no other."""
    line = shlex.join(RUN)
    with running(named, "sh", "-c", f"{line}; {line}") as process:
        answer(visit, asked(visit), "session")
        out, _ = process.communicate(timeout=DEADLINE_S)
        assert out.count(b"(sealed:github-token:") == 2
    with running(named, "sh", "-c", f"{line}; {line}") as process:
        answer(visit, asked(visit), "once")
        answer(visit, wait_until("the next question", lambda: _asked(visit)), "no")
        out, _ = process.communicate(timeout=DEADLINE_S)
        assert out.count(b"(sealed:github-token:") == 1


def test_only_a_form_of_the_panel_answers_and_a_question_ends_with_its_command(named: Gateway, visit: Visit) -> None:
    with running(named) as process:
        page = asked(visit)
        found = re.search(r'name="id" value="([^"]+)"', page)
        assert found
        assert visit.post("uses", id=found[1], choice="once", form="another").status == 403
        assert visit.get(f"uses?id={found[1]}&choice=once").status == 200
        token = named.token("uses", "--scope", "write", "--trusted")
        body = f"id={found[1]}&choice=once".encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        stranger = named.request("POST", f"{visit.base}/uses", body, token=token, headers=headers)
        assert stranger.status == 401
        for choice in ("", "yes", "ONCE"):
            assert "no longer waits" in answer(visit, page, choice)
        assert process.poll() is None
        process.kill()
        wait_until("the question to go", lambda: not _asked(visit))
        assert "no longer waits" in answer(visit, page, "once")
    assert "No command waits" in words_of(visit.get("uses"))
