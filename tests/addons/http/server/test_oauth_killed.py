"""kill -9 of a real daemon between any two steps of a sign-in, and amid each: what was answered is there, and nothing counts twice."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.addons.http.server.test_server_attacks import call
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.gateway import Answer
from tests.support.programs.processes import Machine
from tests.support.programs.server_gateway import ServerGateway, serve
from tests.support.programs.signing_in import FORM, REDIRECT, Program, error_of, returned

KILLS = int(os.environ.get("CONFIDE_SIGN_IN_KILLS", "1"))
"""Amid each step and at each moment."""
GONE = (400, "invalid_grant")


@dataclass
class Mortal:
    """A gateway whose daemon is killed and comes again on its ports, a device of its space, and a program that asks."""

    gateway: ServerGateway
    device: Machine
    program: Program
    port: str

    def kill(self) -> None:
        process = self.gateway.confided.processes[-1]
        process.kill()
        process.wait(DEADLINE_S)

    def again(self) -> None:
        serve(self.gateway.confided, f"127.0.0.1:{self.port}")

    def restart(self) -> None:
        self.kill()
        self.again()

    def code(self) -> str:
        page = self.approved()
        return self.program.code(page)

    def approved(self) -> str:
        """The page of a request whose words are approved."""
        page = self.program.page()
        self.device.run("gateway", "approve", self.program.words(page), "--yes")
        return page

    def is_let_in(self, tokens: Any) -> bool:
        return bool(call(self.gateway, tokens["access_token"], "memory_status").status == 200)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    root = tmp_path_factory.mktemp("killed")
    confided = Confided(root / "server")
    config, text = confided.home / "daemon.toml", (confided.home / "daemon.toml").read_text()
    config.write_text(text + '[gateway]\nlisten = "127.0.0.1:0"\n')
    confided.run("init")
    gateway = ServerGateway(serve(confided), confided)
    config.write_text(text + f'[gateway]\nlisten = "127.0.0.1:{gateway.port}"\n')  # where its tokens are good
    assert confided.address is not None
    url = confided.address["url"]
    device = Machine(root, "ann", is_set_up=False)
    device.run("join", confided.json("invite", "ann", "--url", url)["invite"])
    device.run("sync")
    made = confided.json("http", "allow", "Chat", "--space", "ann", "--redirect", REDIRECT)
    yield Mortal(gateway, device, Program(gateway, made["id"]), url.rsplit(":", 1)[1].strip("/"))
    confided.end()


def test_what_was_answered_is_there_after_a_kill(mortal: Mortal) -> None:
    """After each step, up to a refresh; and that something has ended is not forgotten either."""
    program = mortal.program
    page = program.page()
    mortal.restart()
    words = program.words(page)
    mortal.device.run("gateway", "approve", words, "--yes")
    mortal.restart()
    code = program.code(page)
    mortal.restart()
    assert program.code(page) == code
    first = program.exchange(code).json
    mortal.restart()
    assert mortal.is_let_in(first)
    second = program.refresh(first["refresh_token"]).json
    mortal.restart()
    assert mortal.is_let_in(second)
    assert not mortal.is_let_in(first)
    assert program.refresh(first["refresh_token"]).json["refresh_token"] == second["refresh_token"]
    third = program.refresh(second["refresh_token"]).json
    mortal.restart()
    assert error_of(program.refresh(first["refresh_token"])) == GONE
    mortal.restart()
    assert not mortal.is_let_in(third)
    assert error_of(program.refresh(third["refresh_token"])) == GONE
    assert error_of(program.exchange(code)) == GONE


def test_a_code_that_comes_again_after_a_kill_gives_the_same(mortal: Mortal) -> None:
    """Unless somebody has refreshed by what it gave."""
    code = mortal.code()
    tokens = mortal.program.exchange(code).json
    mortal.restart()
    assert mortal.program.exchange(code).json["access_token"] == tokens["access_token"]
    next_ones = mortal.program.refresh(tokens["refresh_token"]).json
    mortal.restart()
    assert error_of(mortal.program.exchange(code)) == GONE
    mortal.restart()
    assert not mortal.is_let_in(next_ones)
    assert error_of(mortal.program.refresh(next_ones["refresh_token"])) == GONE


def at_once(_mortal: Mortal, _before: int) -> None:
    """The request was sent."""


def when_written(mortal: Mortal, before: int) -> None:
    """The registry's log has grown: what is asked is done, or about to be, and nobody was told."""
    end = time.monotonic() + DEADLINE_S
    while written(mortal) == before:
        assert time.monotonic() < end


def written(mortal: Mortal) -> int:
    """When the registry was last written, in nanoseconds."""
    return max(path.stat().st_mtime_ns for path in registry_files(mortal.gateway.confided.data))


def registry_files(data: Path) -> list[Path]:
    return [path for path in data.iterdir() if path.name.startswith("registry")]


def cut_short(
    mortal: Mortal, moment: Callable[[Mortal, int], None], request: tuple[str, str, bytes | None]
) -> Answer | None:
    """A request amid which the daemon is killed, which serves again then; what was answered, if all of it was."""
    method, path, body = request
    connection = mortal.gateway.connection()
    before = written(mortal)
    connection.request(method, path, body, FORM if body is not None else {})
    moment(mortal, before)
    mortal.kill()
    try:
        answer = connection.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    except (OSError, http.client.HTTPException):
        found = None
    connection.close()
    mortal.again()
    return found


@pytest.mark.parametrize("moment", [at_once, when_written])
@pytest.mark.parametrize("step", ["page", "code", "refresh"])
def test_a_kill_amid_a_step_makes_nothing_of_it_twice(
    mortal: Mortal, step: str, moment: Callable[[Mortal, int], None]
) -> None:
    """A page that was cut short and is asked again gives the same code; what gives tokens gives the same ones."""
    program = mortal.program
    for _ in range(KILLS):
        if step == "page":
            request: tuple[str, str, bytes | None] = ("GET", mortal.approved(), None)
        elif step == "code":
            request = ("POST", "/token", program.form_of_code(mortal.code()))
        else:
            tokens = program.exchange(mortal.code()).json
            request = ("POST", "/token", program.form_of_refresh(tokens["refresh_token"]))
        first = cut_short(mortal, moment, request)
        answers = [] if first is None else [first]
        method, path, body = request
        for _again in range(2):
            answers.append(mortal.gateway.request(method, path, body, headers=FORM if body is not None else {}))
        given = [each for each in answers if each.status == (302 if step == "page" else 200)]
        assert given == answers
        if step == "page":
            (code,) = {returned(each)["code"] for each in given}
            assert program.exchange(code).status == 200
        else:
            assert len({each.json["refresh_token"] for each in given}) == 1
            assert mortal.is_let_in(given[-1].json)
