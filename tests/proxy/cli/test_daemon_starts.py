"""A question that has to start the daemon: answered by words from the files here, if it is not there in time."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs.command import confide
from tests.support.programs.processes import Machine

from confide_proxy.cli import search
from confide_proxy.link import daemon


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose daemon lives from its start on, and never answers."""
    machine = Machine(tmp_path, "ann")
    machine.write("memory/birds.md", "# Birds\n\nHerons fish at dawn.\n")
    monkeypatch.setattr(daemon, "_spawn", lambda *_: os.getpid())
    monkeypatch.setattr(search, "START_PATIENCE_S", 0.05)
    return machine


def test_a_search_is_answered_by_words_while_the_daemon_starts(slow: Machine) -> None:
    """One sentence on stderr says so, and so does a key for programs."""
    ended = confide(slow, "search", "herons")
    assert ended.code == 0, ended
    assert "memory/birds.md:1-3" in ended.out
    (told,) = ended.err.splitlines()
    assert told.startswith("note: the daemon is still starting (since ")
    assert told.endswith("): these are the files on this device, found by keywords alone")
    answer = json.loads(confide(slow, "search", "herons", "--json").out)
    assert answer["daemon"] == "starting"
    assert answer["searchMode"] == "offline"


@pytest.mark.parametrize("option", ["--all-projects", "--explain"])
def test_what_only_the_daemon_knows_waits_for_it(option: str, slow: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other projects, and why a hit stands where it does."""

    async def ensure(*_arguments: Any, **_options: Any) -> None:
        await asyncio.sleep(0.2)
        raise daemon.DaemonStartError("a test")

    monkeypatch.setattr(daemon, "ensure", ensure)
    assert json.loads(confide(slow, "search", "herons", option, "--json").out).get("daemon") is None
